/* SPDX-License-Identifier: BSD-3-Clause */
/* Run every input of the corpus through its fuzz target, which aborts if a reader breaks its
 * promise.  tests/fuzz/README.md says how to search for more inputs. */
#include "tests/mill_test.h"

#include <dirent.h>

#include "kernels/base/error.h"
#include "tests/fuzz/targets.h"

enum { MAX_BYTES = 1 << 20, N_MUTATION = 100 };

static size_t read_input(const char *path, uint8_t *bytes)
{
  FILE *file = fopen(path, "rb");
  if (!file)
    fail_msg("%s cannot be opened", path);
  const size_t n = fread(bytes, 1, MAX_BYTES, file);
  if (n == MAX_BYTES || ferror(file) || fclose(file) != 0)
    fail_msg("%s cannot be read", path);
  return n;
}

static int is_input(const struct dirent *entry)
{
  return entry->d_name[0] != '.';
}

/* The target must accept files good-*, refuse bad-*, and return from others, found by fuzzers. */
static void replay(const fuzz_target *target)
{
  char folder[1024], path[1400];
  struct dirent **entry = NULL;
  int n_good = 0;
  uint8_t *bytes = malloc(MAX_BYTES), *copy = malloc(MAX_BYTES);
  assert_non_null(bytes);
  assert_non_null(copy);
  snprintf(folder, sizeof folder, "%s/%s", MILL_FUZZ_CORPUS, target->name);
  const int n_entry = scandir(folder, &entry, is_input, alphasort);
  if (n_entry <= 0)
    fail_msg("no corpus in %s", folder);
  for (int i = 0; i < n_entry; i++) {
    const char *name = entry[i]->d_name;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const size_t n = read_input(path, bytes);
    /* an abort leaves no other trace of which input it was */
    fprintf(stderr, "%s/%s\n", target->name, name);
    const int found = target->run(bytes, n);
    const int is_good = strncmp(name, "good-", 5) == 0, is_bad = strncmp(name, "bad-", 4) == 0;
    if ((is_good && found != FUZZ_ACCEPTED) || (is_bad && found != FUZZ_REFUSED))
      fail_msg("%s: %s: %s", path, is_good ? "refused" : "accepted", mill_error_message());
    n_good += is_good;
    /* a little fuzzing in builds without libFuzzer, always the same */
    for (uint64_t seed = 0; is_good && target->is_fits && seed < N_MUTATION; seed++) {
      memcpy(copy, bytes, n);
      target->run(copy, fuzz_mutate_fits(copy, n, MAX_BYTES, seed));
    }
    free(entry[i]);
  }
  free(entry);
  free(bytes);
  free(copy);
  assert_true(n_good > 0); /* else the target may have refused all for a reason of its own */
}

static void test_target(void **state)
{
  replay(*state);
}

int main(void)
{
  struct CMUnitTest tests[16];
  assert_true(fuzz_n_target <= 16);
  for (int i = 0; i < fuzz_n_target; i++)
    tests[i] = (struct CMUnitTest){fuzz_targets[i].name, test_target, NULL, NULL,
                                   (void *)(uintptr_t)&fuzz_targets[i]};
  return _cmocka_run_group_tests("fuzz/replay", tests, (size_t)fuzz_n_target, NULL, NULL);
}
