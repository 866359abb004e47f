/* Who may take the lock of an output. */
#include "tests/mill_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/lock_file.h"
#include "kernels/error.h"

static char folder[] = "/tmp/starmill-lock-XXXXXX";
static char output[64], lock_path[80];

static int make_folder(void **state)
{
  (void)state;
  if (!mkdtemp(folder))
    return -1;
  snprintf(output, sizeof output, "%s/out.h5", folder);
  snprintf(lock_path, sizeof lock_path, "%s.lock", output);
  return unsetenv("SLURM_JOB_ID");
}

static int remove_folder(void **state)
{
  (void)state;
  unlink(lock_path);
  return rmdir(folder);
}

/* A child that takes the lock, says so through a pipe, and lives until its own pipe ends. */
static pid_t start_holder(int *keep_alive)
{
  int ready[2], hold[2];
  char byte = 0;
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(pipe(hold), 0);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    mill_lock lock = {0};
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

static void test_living_holder_keeps_it(void **state)
{
  (void)state;
  mill_lock lock = {0};
  int keep_alive;
  const pid_t pid = start_holder(&keep_alive);
  assert_int_equal(mill_lock_take(output, &lock), MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), lock_path));
  close(keep_alive);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  mill_lock_release(&lock);
  assert_int_not_equal(access(lock_path, F_OK), 0);
}

/* as after kill -9 of a job whose parent is slow to notice */
static void test_unreaped_holder_is_gone(void **state)
{
  (void)state;
  mill_lock lock = {0};
  siginfo_t end;
  int keep_alive;
  const pid_t pid = start_holder(&keep_alive);
  close(keep_alive);
  assert_int_equal(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT), 0);
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  mill_lock_release(&lock);
}

static int make_file(const char *path)
{
  FILE *file = fopen(path, "w");
  return file && fclose(file) == 0;
}

static void test_leftovers_go_only_with_the_lock(void **state)
{
  (void)state;
  mill_lock lock = {0};
  char left[96], other[96];
  snprintf(left, sizeof left, "%s.tmp-pid1", output);
  snprintf(other, sizeof other, "%s2.tmp-pid1", output);
  assert_true(make_file(left) && make_file(other));
  mill_lock_remove_leftovers(&lock, output);
  assert_int_equal(access(left, F_OK), 0);
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  mill_lock_remove_leftovers(&lock, output);
  assert_int_not_equal(access(left, F_OK), 0);
  assert_int_equal(unlink(other), 0);
  mill_lock_release(&lock);
}

static void test_strange_lock_is_left_alone(void **state)
{
  (void)state;
  mill_lock lock = {0};
  FILE *file = fopen(lock_path, "w");
  assert_non_null(file);
  assert_true(fputs("not ours\n", file) >= 0);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(mill_lock_take(output, &lock), MILL_ERR_OUTPUT);
  assert_int_equal(access(lock_path, F_OK), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_living_holder_keeps_it),
      cmocka_unit_test(test_unreaped_holder_is_gone),
      cmocka_unit_test(test_leftovers_go_only_with_the_lock),
      cmocka_unit_test(test_strange_lock_is_left_alone),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
