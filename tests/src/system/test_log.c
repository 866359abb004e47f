/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of src/system/log.c: format, level, file, standard error, threads. */
#include "tests/test_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <sys/stat.h>

#include "kernels/base/error.h"
#include "src/system/log.h"

static char log_path[300], err_path[300];
static int saved_stderr;

static int begin(void **state)
{
  if (make_folder(state) != 0)
    return -1;
  snprintf(log_path, sizeof log_path, "%s/run.log", folder);
  snprintf(err_path, sizeof err_path, "%s/stderr", folder);
  return 0;
}

static MILL_FIXTURE(catch_stderr)
{
  unlink(log_path);
  saved_stderr = dup(STDERR_FILENO);
  const int file = open(err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (saved_stderr < 0 || file < 0 || dup2(file, STDERR_FILENO) < 0)
    return -1;
  return close(file);
}

static MILL_FIXTURE(release_stderr)
{
  mill_log_close();
  dup2(saved_stderr, STDERR_FILENO);
  return close(saved_stderr);
}

/* Of both files, "" of one that is not there. */
static char text[1 << 20], err[1 << 20];

static void look(void)
{
  const char *const path[] = {log_path, err_path};
  char *const to[] = {text, err};
  memset(text, 0, sizeof text);
  memset(err, 0, sizeof err);
  for (int i = 0; i < 2; i++) {
    FILE *file = fopen(path[i], "r");
    if (file) {
      assert_true(fread(to[i], 1, sizeof text - 1, file) < sizeof text - 1);
      fclose(file);
    }
  }
}

static void assert_matches(const char *line, const char *pattern)
{
  regex_t regex;
  assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
  const int result = regexec(&regex, line, 0, NULL, 0);
  regfree(&regex);
  if (result != 0)
    fail_msg("'%s' does not match '%s'", line, pattern);
}

#define TIME "^20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z "

MILL_TEST(line_in_a_file)
{
  assert_int_equal(mill_log_open(3, 1, MILL_LOG_INFO, log_path), MILL_OK);
  mill_log_info("%d stars", 12);
  const int line = __LINE__ - 1;
  mill_log_close();
  char pattern[128];
  look();
  snprintf(pattern, sizeof pattern, TIME "rank 3 INFO  test_log\\.c:%d  12 stars\n$", line);
  assert_matches(text, pattern);
  assert_string_equal(err, "");
}

MILL_TEST(error_also_reaches_standard_error)
{
  assert_int_equal(mill_log_open(1, 1, MILL_LOG_ERROR, log_path), MILL_OK);
  mill_log_warning("not asked for");
  mill_log_error("lost");
  look();
  assert_matches(text, TIME "rank 1 ERROR test_log\\.c:[0-9]+  lost\n$");
  assert_string_equal(text, err);
}

MILL_TEST(without_a_file_lines_go_to_standard_error)
{
  assert_int_equal(mill_log_open(0, 1, MILL_LOG_WARNING, NULL), MILL_OK);
  mill_log_warning("careful");
  mill_log_error("lost");
  look();
  assert_matches(err, TIME "rank 0 WARN  test_log\\.c:[0-9]+  careful\n");
  assert_null(strstr(strstr(err, "lost") + 1, "lost")); /* once */
}

MILL_TEST(levels)
{
  for (int level = MILL_LOG_ERROR; level <= MILL_LOG_DEBUG; level++) {
    unlink(log_path);
    assert_int_equal(mill_log_open(0, 1, level, log_path), MILL_OK);
    for (int i = MILL_LOG_ERROR; i <= MILL_LOG_DEBUG; i++)
      MILL_LOG(i, "level%d", i);
    mill_log_close();
    char name[32];
    look();
    for (int i = MILL_LOG_ERROR; i <= MILL_LOG_DEBUG; i++) {
      snprintf(name, sizeof name, "level%d", i);
      assert_int_equal(strstr(text, name) != NULL, i <= level);
    }
  }
  static const char *const name[] = {"error", "warning", "info", "debug", "loud", ""};
  for (int i = 0; i < 6; i++)
    assert_int_equal(mill_log_level_from_name(name[i]), i <= MILL_LOG_DEBUG ? i : -1);
}

MILL_TEST(one_line_a_message)
{
  char longest[9000];
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  assert_int_equal(mill_log_open(0, 1, MILL_LOG_INFO, log_path), MILL_OK);
  mill_log_info("two\nlines\r\x1b[2J");
  mill_log_info("%s", longest);
  look();
  assert_non_null(strstr(text, "  two lines  [2J\n"));
  char *second = strchr(text, '\n') + 1;
  assert_int_equal(strlen(second), 4095);
  assert_string_equal(second + 4095 - 5, "x...\n");
}

MILL_TEST(full_disk_sends_lines_to_standard_error)
{
  assert_int_equal(mill_log_open(0, 1, MILL_LOG_INFO, "/dev/full"), MILL_OK);
  errno = ENOENT;
  mill_log_info("not lost");
  assert_int_equal(errno, ENOENT); /* callers look at it after they have logged */
  mill_log_info("nor this");
  look();
  const char *line = strchr(err, '\n') + 1;
  assert_matches(line, TIME "rank 0 INFO  test_log\\.c:[0-9]+  not lost\n20.*  nor this\n$");
  *strchr(err, '\n') = '\0'; /* the reason, once */
  assert_matches(err, "cannot write the log: No space left on device");
}

MILL_TEST(log_that_cannot_be_opened)
{
  const char *path = in_folder("nowhere/run.log");
  assert_int_equal(mill_log_open(0, 1, MILL_LOG_INFO, log_path), MILL_OK);
  assert_fails(mill_log_open(0, 1, MILL_LOG_INFO, path), MILL_ERR_OUTPUT, path);
  assert_int_equal(mill_log_open(0, 1, MILL_LOG_INFO, folder), MILL_ERR_OUTPUT);
  mill_log_info("the old log stays");
  look();
  assert_non_null(strstr(text, "the old log stays\n"));
}

static int n_line_with(const char *part)
{
  int n = 0;
  for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
    n++;
  return n;
}

static void complain(int n, const char *what)
{
  for (int i = 0; i < n; i++)
    mill_log_error("%s %d", what, i);
}

MILL_TEST(a_flood_is_counted)
{
  enum { N = 10000, N_RANK = 10, SHOWN = MILL_LOG_LINES / N_RANK };
  assert_int_equal(mill_log_open(2, N_RANK, MILL_LOG_INFO, log_path), MILL_OK);
  complain(N, "unreadable");
  mill_log_error("of another place");
  for (int i = 0; i < 2 * MILL_LOG_LINES; i++)
    mill_log_info("news %d", i); /* that is no complaint */
  mill_log_close();
  char count[64];
  look();
  assert_int_equal(n_line_with("unreadable "), SHOWN);
  assert_non_null(strstr(text, "unreadable 9 [more like this are only counted]\n"));
  snprintf(count, sizeof count, "  %d more lines like this were left out", N - SHOWN);
  assert_int_equal(n_line_with(count), 1);
  assert_matches(err, "Z rank 2 ERROR test_log\\.c:[0-9]+  9990 more lines like this were");
  assert_int_equal(n_line_with("left out"), 1);
  assert_int_equal(n_line_with("of another place"), 1);
  assert_int_equal(n_line_with("news "), 2 * MILL_LOG_LINES);
}

/* Of lines from one place in the source some are shown, and a last line counts the others. */
MILL_TEST(each_rank_shows_its_share)
{
  static const struct {
    int rank, n_rank, level, n_line, n_shown;
    const char *count;
  } c[] = {
      {0, 1, MILL_LOG_INFO, MILL_LOG_LINES, MILL_LOG_LINES, NULL},
      {0, 1, MILL_LOG_INFO, MILL_LOG_LINES + 1, MILL_LOG_LINES, "1 more line like this was left"},
      {1023, 1024, MILL_LOG_INFO, 3, 1, "2 more lines like this were left out"},
      {0, 1, MILL_LOG_DEBUG, 3 * MILL_LOG_LINES, 3 * MILL_LOG_LINES, NULL}};
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    unlink(log_path);
    assert_int_equal(mill_log_open(c[i].rank, c[i].n_rank, c[i].level, log_path), MILL_OK);
    complain(c[i].n_line, "fails");
    mill_log_close();
    look();
    assert_non_null(strstr(text, "  fails 0\n"));
    assert_int_equal(n_line_with("fails "), c[i].n_shown);
    assert_int_equal(n_line_with("left out"), c[i].count != NULL);
    assert_true(!c[i].count || strstr(text, c[i].count));
  }
}

enum { N_THREAD = 4, N_LINE = 200 };

static void *write_lines(void *argument)
{
  for (int i = 0; i < N_LINE; i++)
    mill_log_info("thread %d line %d end", *(const int *)argument, i);
  return NULL;
}

MILL_TEST(lines_of_threads_do_not_mix)
{
  pthread_t thread[N_THREAD];
  int number[N_THREAD], next[N_THREAD] = {0};
  assert_int_equal(mill_log_open(0, 1, MILL_LOG_INFO, log_path), MILL_OK);
  for (int i = 0; i < N_THREAD; i++) {
    number[i] = i;
    assert_int_equal(pthread_create(&thread[i], NULL, write_lines, &number[i]), 0);
  }
  for (int i = 0; i < N_THREAD; i++)
    assert_int_equal(pthread_join(thread[i], NULL), 0);
  char *rest = NULL;
  look();
  int n = 0;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), n++) {
    int i_thread, i_line;
    char end[8];
    assert_int_equal(
        sscanf(line, "%*s rank 0 INFO %*s thread %d line %d %7s", &i_thread, &i_line, end), 3);
    assert_string_equal(end, "end");
    assert_in_range(i_thread, 0, N_THREAD - 1);
    assert_int_equal(i_line, next[i_thread]++);
  }
  assert_int_equal(n, N_THREAD * N_LINE);
}

MILL_TEST(log_line_clears_the_status_line)
{
  assert_int_equal(mill_log_open(0, 1, MILL_LOG_INFO, NULL), MILL_OK);
  mill_log_status("1/2");
  mill_log_info("between");
  mill_log_status(NULL); /* nothing stands: no newline */
  mill_log_status("2/2");
  mill_log_status(NULL);
  look();
  assert_matches(err, "^\r1/2\x1b\\[K\r\x1b\\[K20[^\n]*between\n\r2/2\x1b\\[K\n$");
}

int main(void)
{
  return mill_run_tests(begin, remove_folder, catch_stderr, release_stderr);
}
