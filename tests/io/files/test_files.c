/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may take the lock of an output, and the hash of a file. */

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "io/files/lock_file.h"
#include "io/files/sha256.h"
#include "kernels/base/memory.h"
#include "tests/test_folder.h"

static char output[300], lock_path[320];

static int begin(void **state)
{
  if (make_folder(state) != 0)
    return -1;
  snprintf(output, sizeof output, "%s/out.h5", folder);
  snprintf(lock_path, sizeof lock_path, "%s.lock", output);
  return unsetenv("SLURM_JOB_ID");
}

/* Start a child that takes the lock, says so by a pipe, and ends when keep_alive is closed. */
static pid_t start_holder(int *keep_alive)
{
  int ready[2], hold[2];
  char byte = 0;
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(pipe(hold), 0);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    mill_lock lock = {.path = ""};
    close(hold[1]);
    byte = mill_lock_take(output, &lock) == MILL_OK;
    if (write(ready[1], &byte, 1) == 1 && read(hold[0], &byte, 1) >= 0)
      _exit(0);
    _exit(1);
  }
  close(ready[1]);
  close(hold[0]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  assert_int_equal(byte, 1);
  close(ready[0]);
  *keep_alive = hold[1];
  return pid;
}

MILL_TEST(living_holder_keeps_it)
{
  mill_lock lock = {.path = ""};
  int keep_alive;
  const pid_t pid = start_holder(&keep_alive);
  assert_fails(mill_lock_take(output, &lock), MILL_ERR_OUTPUT, lock_path);
  close(keep_alive);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  mill_lock_release(&lock);
  assert_int_not_equal(access(lock_path, F_OK), 0);
}

/* as after kill -9 of a job whose parent is slow to notice */
MILL_TEST(unreaped_holder_is_gone)
{
  MILL_AT_END(mill_lock_release) mill_lock lock = {.path = ""};
  siginfo_t end;
  int keep_alive;
  const pid_t pid = start_holder(&keep_alive);
  close(keep_alive);
  assert_int_equal(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT), 0);
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}

MILL_TEST(leftovers_go_only_with_the_lock)
{
  MILL_AT_END(mill_lock_release) mill_lock lock = {.path = ""};
  char left[420], other[320], job[96];
  setenv("SLURM_JOB_ID", "12ab", 1); /* no id of Slurm, so the process id names the file */
  mill_lock_job(job, sizeof job);
  unsetenv("SLURM_JOB_ID");
  snprintf(left, sizeof left, "%s.tmp-%s", output, job);
  snprintf(other, sizeof other, "%s2.tmp-pid1", output);
  save_file(left, "", 0);
  save_file(other, "", 0);
  mill_lock_remove_leftovers(&lock, output);
  assert_int_equal(access(left, F_OK), 0);
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  mill_lock_remove_leftovers(&lock, output);
  assert_int_not_equal(access(left, F_OK), 0);
  assert_int_equal(unlink(other), 0);
}

/* A lock with these lines, touched so long ago. */
static void write_lock(const char *text, long age_s)
{
  struct timespec times[2];
  save_file(lock_path, text, strlen(text));
  clock_gettime(CLOCK_REALTIME, &times[0]);
  times[0].tv_sec -= age_s;
  times[1] = times[0];
  assert_int_equal(utimensat(AT_FDCWD, lock_path, times, 0), 0);
}

/* Write this process's lock text to out.  The line named `line` (NULL: none) gets `value`. */
static void own_lock_but(const char *line, const char *value, char out[1024])
{
  mill_lock lock = {.path = ""};
  char text[1024] = "", *at = text;
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  FILE *file = fopen(lock_path, "r");
  assert_non_null(file);
  assert_true(fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  mill_lock_release(&lock);
  out[0] = '\0';
  for (char *end; (end = strchr(at, '\n')); at = end + 1) {
    *end = '\0';
    const size_t n = strlen(out);
    if (line && strncmp(at, line, strlen(line)) == 0)
      snprintf(out + n, 1024 - n, "%s %s\n", line, value);
    else
      snprintf(out + n, 1024 - n, "%s\n", at);
  }
}

/* Try to take a lock whose file holds `text` and is age_s old; says: message of a refusal. */
static void try_to_take(const char *text, long age_s, int is_taken, const char *says)
{
  mill_lock lock = {.path = ""};
  write_lock(text, age_s);
  assert_int_equal(mill_lock_take(output, &lock), is_taken ? MILL_OK : MILL_ERR_OUTPUT);
  if (!is_taken)
    assert_says(says);
  mill_lock_release(&lock);
  assert_int_equal(access(lock_path, F_OK) == 0, !is_taken);
  unlink(lock_path);
}

MILL_TEST(who_may_take_it_over)
{
  const int dead = MILL_LOCK_DEAD_S;
  mill_lock_beat_s = 0.05; /* of the watching, too */
  const struct {
    const char *line, *value; /* the line that differs from our lock, and its value; or NULL */
    long age_s;
    int is_taken;
  } row[] = {{NULL, NULL, 0, 0},
             {NULL, NULL, dead + 60, 1},
             {"start", "1", 0, 1}, /* its number belonged to another process before */
             {"pid", "2147483646", 0, 1},
             {"host", "elsewhere", 0, 0},
             {"host", "elsewhere", dead - 60, 0},
             {"host", "elsewhere", dead + 60, 1},
             {"space", "pid:[1]", dead - 60, 0}, /* another container of this host */
             {"space", "pid:[1]", dead + 60, 1},
             {"job", "17", 0, 0}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    char text[1024];
    own_lock_but(row[i].line, row[i].value, text);
    try_to_take(text, row[i].age_s, row[i].is_taken, lock_path);
  }
  mill_lock_beat_s = 10;
}

/* The lock looks old, as another host's clock is ahead, but its holder touches it. */
MILL_TEST(old_lock_that_is_touched)
{
  mill_lock lock = {.path = ""};
  char text[1024];
  own_lock_but("host", "elsewhere", text);
  write_lock(text, MILL_LOCK_DEAD_S + 60);
  mill_lock_beat_s = 1;
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    (void)usleep(500000);
    write_lock(text, MILL_LOCK_DEAD_S + 50);
    _exit(0);
  }
  assert_fails(mill_lock_take(output, &lock), MILL_ERR_OUTPUT, "on host elsewhere");
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  mill_lock_beat_s = 10;
  assert_int_equal(unlink(lock_path), 0);
}

MILL_TEST(requeued_job_takes_its_own)
{
  mill_lock lock = {.path = ""};
  char text[1024];
  assert_int_equal(setenv("SLURM_JOB_ID", "17", 1) + setenv("SLURM_RESTART_COUNT", "1", 1), 0);
  own_lock_but("host", "elsewhere", text);
  write_lock(text, 0);
  assert_int_equal(mill_lock_take(output, &lock), MILL_ERR_OUTPUT); /* taken by this start */
  assert_says("Slurm job 17");
  assert_int_equal(setenv("SLURM_RESTART_COUNT", "2", 1), 0);
  mill_lock_beat_s = 0.05;
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  mill_lock_release(&lock);
  mill_lock_beat_s = 10; /* no thread reads it any more */
  assert_int_equal(unsetenv("SLURM_JOB_ID") + unsetenv("SLURM_RESTART_COUNT"), 0);
}

MILL_TEST(lock_that_says_nothing)
{
  try_to_take("", 0, 1, NULL);
  try_to_take("", 300, 1, NULL);
  try_to_take("not ours\n", 300, 0, "remove the lock file");
}

/* A thread of the holder touches the lock, and notices if another job has taken it. */
MILL_TEST(holder_keeps_it_and_hears_of_its_loss)
{
  mill_lock lock = {.path = ""};
  struct stat status = {0};
  char text[1024];
  const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  assert_int_equal(mill_lock_keep(&lock), MILL_OK); /* none held */
  own_lock_but("start", "1", text);
  mill_lock_beat_s = 0.01;
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  assert_int_equal(utimensat(AT_FDCWD, lock_path, old, 0), 0);
  for (int i = 0; i < 3000 && status.st_mtime < 1000000; i++) {
    assert_int_equal(usleep(10000), 0);
    assert_int_equal(stat(lock_path, &status), 0);
  }
  assert_true(status.st_mtime > 1000000);
  assert_int_equal(mill_lock_keep(&lock), MILL_OK);
  /* another job takes it over: from then on nothing may be written */
  write_lock(text, 0);
  for (int i = 0; i < 3000 && mill_lock_keep(&lock) == MILL_OK; i++)
    assert_int_equal(usleep(10000), 0);
  assert_fails(mill_lock_keep(&lock), MILL_ERR_OUTPUT, "taken over");
  mill_lock_release(&lock);
  mill_lock_beat_s = 10;
  assert_int_equal(unlink(lock_path), 0); /* it is the other job's */
}

/* --- SHA-256 against the published examples of FIPS 180-4 (NIST's example values) --- */

MILL_TEST(sha256_published_examples)
{
  static const struct {
    const char *text;
    int n_repeat;
    const char *hex;
  } example[] = {
      {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
  for (size_t i = 0; i < sizeof example / sizeof *example; i++) {
    char hex[65];
    mill_sha256 sha;
    mill_sha256_init(&sha);
    for (int k = 0; k < example[i].n_repeat; k++)
      mill_sha256_update(&sha, example[i].text, strlen(example[i].text));
    mill_sha256_final(&sha, hex);
    assert_string_equal(hex, example[i].hex);
  }
}

MILL_TEST_MAIN(begin, remove_folder)
