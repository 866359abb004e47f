/* SPDX-License-Identifier: BSD-3-Clause */
/* The crossover from CPU to GPU: found in measured times, used by backend auto, kept in a file. */
#include "tests/test_folder.h"

#include <sys/stat.h>

#include "src/run/crossover.h"
#include "kernels/base/error.h"

MILL_TEST(of_table)
{
  static const struct {
    const char *what;
    int n;
    mill_crossover_point point[4];
    int64_t expected;
  } row[] = {{"nothing", 0, {{0, 0, 0}}, 0},
             {"from the second on", 3, {{1, 1, 2}, {4, 3, 2}, {16, 9, 3}}, 4},
             {"always", 2, {{1, 2, 1}, {4, 2, 1}}, 1},
             {"never", 2, {{1, 1, 2}, {4, 1, 2}}, 0},
             {"once, then no more", 3, {{1, 2, 1}, {4, 1, 2}, {16, 3, 2}}, 16},
             {"not in the largest", 3, {{1, 2, 1}, {4, 2, 1}, {16, 2, 3}}, 0},
             {"a tie is no gain", 1, {{1, 2, 2}}, 0},
             {"no GPU", 2, {{1, 2, -1}, {4, 2, -1}}, 0},
             {"large ones without the CPU", 3, {{1, 1, 2}, {4, 3, 2}, {16, -1, 3}}, 4},
             {"NaN is no gain", 2, {{1, 2, 1}, {4, 2, (double)NAN}}, 0}};
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
    if (mill_crossover_of(row[i].n, row[i].point) != row[i].expected)
      fail_msg("%s: %lld", row[i].what, (long long)mill_crossover_of(row[i].n, row[i].point));
}

MILL_TEST(choice)
{
  mill_crossover measured = {.from = 256};
  assert_false(mill_crossover_wants_gpu(NULL, 1000000));
  assert_false(mill_crossover_wants_gpu(&measured, 255));
  assert_true(mill_crossover_wants_gpu(&measured, 256));
  measured.from = 0;
  assert_false(mill_crossover_wants_gpu(&measured, 1000000));
}

static mill_crossover line_of(int64_t n_star, int n_thread, const char *gpu, const char *cpu)
{
  mill_crossover line = {.from = n_star, .n_thread = n_thread};
  snprintf(line.date, sizeof line.date, "2026-11-21T18:00:00Z");
  snprintf(line.revision, sizeof line.revision, "abc");
  snprintf(line.gpu, sizeof line.gpu, "%s", gpu);
  snprintf(line.cpu, sizeof line.cpu, "%s", cpu);
  return line;
}

static int64_t found_at(const char *path, const char *gpu, const char *cpu, int n_thread)
{
  mill_crossover line;
  int found = 0;
  assert_ok(mill_crossover_find(path, MILL_CROSSOVER_FIT, gpu, cpu, n_thread, &line, &found));
  if (found)
    assert_string_equal(line.date, "2026-11-21T18:00:00Z");
  return found ? line.from : -1;
}

MILL_TEST(file)
{
  static const char h200[] = "cuda NVIDIA H200 sm_90", t4[] = "cuda Tesla T4 sm_75";
  static const char xeon[] = "Intel(R) Xeon(R)  8480", epyc[] = "AMD EPYC 7763";
  const char *path = in_folder("a/b/crossover");
  mill_crossover line;
  struct stat status;
  int found = 1;
  assert_int_equal(found_at(path, "G", "C", 4), -1);
  line = line_of(256, 16, h200, xeon);
  line.revision[0] = '\0'; /* of a program built without git */
  assert_int_equal(mill_crossover_keep(path, &line), MILL_OK);
  line = line_of(0, 2, t4, epyc);
  assert_int_equal(mill_crossover_keep(path, &line), MILL_OK);
  assert_int_equal(found_at(path, h200, xeon, 16), 256);
  assert_int_equal(found_at(path, t4, epyc, 2), 0);
  /* another number of threads, GPU or CPU was not measured */
  assert_int_equal(found_at(path, h200, xeon, 8), -1);
  assert_int_equal(found_at(path, h200, epyc, 16), -1);
  assert_int_equal(found_at(path, t4, xeon, 2), -1);
  /* a newer crossover replaces the older one of the same machine, and no other */
  line = line_of(1024, 16, h200, xeon);
  assert_int_equal(mill_crossover_keep(path, &line), MILL_OK);
  assert_int_equal(found_at(path, h200, xeon, 16), 1024);
  assert_int_equal(found_at(path, t4, epyc, 2), 0);
  /* others may read it, as far as the user lets them */
  const mode_t mask = umask(027);
  assert_int_equal(mill_crossover_keep(path, &line), MILL_OK);
  umask(mask);
  assert_int_equal(stat(path, &status), 0);
  assert_int_equal(status.st_mode & 0777, 0640);
  save_file(path, "# a comment\n256 stars\n", 22);
  assert_fails(mill_crossover_find(path, MILL_CROSSOVER_FIT, "G", "C", 1, &line, &found),
               MILL_ERR_CONFIG, path);
  assert_says("line 2");
  assert_fails(mill_crossover_keep("/proc/none/crossover", &line), MILL_ERR_OUTPUT, "/proc/none");
}

MILL_TEST(path)
{
  char path[MILL_CROSSOVER_PATH];
  setenv("STARMILL_CROSSOVER", "/x/y", 1);
  setenv("XDG_CACHE_HOME", "/cache", 1);
  setenv("HOME", "/home/u", 1);
  assert_int_equal(mill_crossover_path(path), MILL_OK);
  assert_string_equal(path, "/x/y");
  unsetenv("STARMILL_CROSSOVER");
  assert_int_equal(mill_crossover_path(path), MILL_OK);
  assert_string_equal(path, "/cache/starmill/crossover");
  setenv("XDG_CACHE_HOME", "relative", 1);
  assert_int_equal(mill_crossover_path(path), MILL_OK);
  assert_string_equal(path, "/home/u/.cache/starmill/crossover");
  unsetenv("HOME");
  assert_fails(mill_crossover_path(path), MILL_ERR_CONFIG, "STARMILL_CROSSOVER");
}

MILL_TEST_MAIN(make_folder, remove_folder)
