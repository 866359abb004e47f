/* Who may take the lock of an output. */
#include "tests/mill_test.h"

#include <stdio.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/files/lock_file.h"
#include "kernels/base/error.h"

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

/* A lock with these lines, touched so long ago. */
static void write_lock(const char *text, long age_s)
{
  struct timespec times[2];
  FILE *file = fopen(lock_path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
  clock_gettime(CLOCK_REALTIME, &times[0]);
  times[0].tv_sec -= age_s;
  times[1] = times[0];
  assert_int_equal(utimensat(AT_FDCWD, lock_path, times, 0), 0);
}

static void expect_taken(int is_taken)
{
  mill_lock lock = {0};
  assert_int_equal(mill_lock_take(output, &lock), is_taken ? MILL_OK : MILL_ERR_OUTPUT);
  if (is_taken)
    mill_lock_release(&lock);
  else
    assert_non_null(strstr(mill_error_message(), lock_path));
  /* and nothing else is left */
  assert_int_equal(access(lock_path, F_OK) == 0, !is_taken);
  unlink(lock_path);
}

/* What this process would write, with one of its lines replaced. */
static void own_lock_but(const char *line, const char *value, char out[1024])
{
  mill_lock lock = {0};
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
    if (strncmp(at, line, strlen(line)) == 0)
      sprintf(out + strlen(out), "%s %s\n", line, value);
    else
      sprintf(out + strlen(out), "%s\n", at);
  }
}

static void test_number_of_a_process_is_not_enough(void **state)
{
  (void)state;
  char text[1024];
  own_lock_but("restart", "0", text); /* this very process */
  write_lock(text, 0);
  expect_taken(0);
  /* its number belonged to another process before; the age does not matter here */
  own_lock_but("start", "1", text);
  write_lock(text, 0);
  expect_taken(1);
  /* of an earlier start of this machine, unless somebody has touched it since */
  own_lock_but("boot", "another-start-of-this-machine", text);
  struct timespec up;
  assert_int_equal(clock_gettime(CLOCK_BOOTTIME, &up), 0);
  write_lock(text, (long)up.tv_sec + 60);
  expect_taken(1);
  write_lock(text, 0);
  expect_taken(0);
  own_lock_but("restart", "0", text);
  write_lock(text, 10 * MILL_LOCK_DEAD_S);
  expect_taken(0);
}

static void test_other_hosts_show_life(void **state)
{
  (void)state;
  char text[1024];
  const char *line[] = {"host", "pids"};
  for (int i = 0; i < 2; i++) { /* or another container of this host */
    own_lock_but(line[i], "elsewhere", text);
    write_lock(text, 0);
    expect_taken(0);
    write_lock(text, MILL_LOCK_DEAD_S - 60);
    expect_taken(0);
    write_lock(text, MILL_LOCK_DEAD_S + 60);
    expect_taken(1);
  }
  /* one that nobody touches says nothing by its age */
  write_lock("host elsewhere\npid 12\njob -\nrestart 0\n", 10 * MILL_LOCK_DEAD_S);
  expect_taken(0);
}

static void test_lock_without_text(void **state)
{
  (void)state;
  write_lock("", 0);
  expect_taken(0);
  write_lock("", MILL_LOCK_DEAD_S + 60);
  expect_taken(1);
}

static void test_holder_keeps_it_and_hears_of_its_loss(void **state)
{
  (void)state;
  mill_lock lock = {0};
  struct stat status;
  char text[1024];
  const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  assert_int_equal(mill_lock_keep(&lock), MILL_OK); /* none held */
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  assert_int_equal(utimensat(AT_FDCWD, lock_path, old, 0), 0);
  assert_int_equal(mill_lock_keep(&lock), MILL_OK);
  assert_int_equal(stat(lock_path, &status), 0);
  assert_int_equal(status.st_mtime, 1000); /* not yet */
  lock.touched_s -= 2 * MILL_LOCK_BEAT_S;
  assert_int_equal(mill_lock_keep(&lock), MILL_OK);
  assert_int_equal(stat(lock_path, &status), 0);
  assert_true(status.st_mtime > 1000000);
  /* another job takes it over: from then on nothing may be written */
  assert_int_equal(unlink(lock_path), 0);
  own_lock_but("start", "1", text);
  write_lock(text, 0);
  lock.touched_s -= 2 * MILL_LOCK_BEAT_S;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(mill_lock_keep(&lock), MILL_ERR_OUTPUT);
    assert_non_null(strstr(mill_error_message(), "taken over"));
  }
  mill_lock_release(&lock);
  assert_int_equal(access(lock_path, F_OK), 0);
  assert_int_equal(unlink(lock_path), 0);
}

/* While its owner makes a large file, a thread shows that it is alive, and leaves to it what it
 * finds out. */
static void test_keeper_touches_it_for_its_owner(void **state)
{
  (void)state;
  mill_lock lock = {0};
  mill_lock_keeper *keeper = NULL;
  struct stat status = {0};
  char text[1024];
  const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  assert_int_equal(mill_lock_keeper_start(&lock, &keeper), MILL_OK); /* none held */
  assert_null(keeper);
  mill_lock_keeper_stop(keeper);
  assert_int_equal(mill_lock_take(output, &lock), MILL_OK);
  assert_int_equal(utimensat(AT_FDCWD, lock_path, old, 0), 0);
  lock.touched_s -= 2 * MILL_LOCK_BEAT_S;
  assert_int_equal(mill_lock_keeper_start(&lock, &keeper), MILL_OK);
  for (int i = 0; i < 3000 && status.st_mtime < 1000000; i++) {
    assert_int_equal(usleep(10000), 0);
    assert_int_equal(stat(lock_path, &status), 0);
  }
  mill_lock_keeper_stop(keeper);
  assert_true(status.st_mtime > 1000000);
  assert_int_equal(mill_lock_keep(&lock), MILL_OK);
  assert_int_equal(unlink(lock_path), 0);
  own_lock_but("start", "1", text);
  write_lock(text, 0);
  lock.touched_s -= 2 * MILL_LOCK_BEAT_S;
  assert_int_equal(mill_lock_keeper_start(&lock, &keeper), MILL_OK);
  for (int i = 0; i < 100; i++)
    assert_int_equal(usleep(1000), 0); /* it may have looked by now, or else the owner does */
  mill_lock_keeper_stop(keeper);
  assert_int_equal(mill_lock_keep(&lock), MILL_ERR_OUTPUT);
  mill_lock_release(&lock);
  assert_int_equal(unlink(lock_path), 0);
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
      cmocka_unit_test(test_number_of_a_process_is_not_enough),
      cmocka_unit_test(test_other_hosts_show_life),
      cmocka_unit_test(test_lock_without_text),
      cmocka_unit_test(test_holder_keeps_it_and_hears_of_its_loss),
      cmocka_unit_test(test_keeper_touches_it_for_its_owner),
      cmocka_unit_test(test_strange_lock_is_left_alone),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
