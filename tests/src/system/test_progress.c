/* SPDX-License-Identifier: BSD-3-Clause */
/* Text and manners of src/system/progress.c. */
#include "tests/mill_test.h"

#include <poll.h>
#include <pty.h>
#include <termios.h>

#include "src/system/progress.h"

MILL_TEST(eta)
{
  static const struct {
    double left_s;
    const char *text;
  } expected[] = {
      {0.0, "0s"},        {0.4, "0s"},
      {12.3, "12s"},      {59.4, "59s"},
      {59.6, "1m00s"},    {185.0, "3m05s"},
      {3599.4, "59m59s"}, {3599.6, "1h00m"},
      {3725.0, "1h02m"},  {360000.0, "100h00m"},
      {1e12, "?"},        {-1.0, "?"},
      {(double)NAN, "?"}, {(double)INFINITY, "?"},
  };
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    char text[16];
    mill_progress_eta(expected[i].left_s, text, sizeof text);
    assert_string_equal(text, expected[i].text);
  }
}

/* What two quick updates, a last one and the end write to a standard error that is a terminal or a
 * pipe; where earlier runs have done n_before rows, one update that adds none. */
static void run(int terminal, int quiet, int64_t n_before, int64_t n_total, char *out, size_t size)
{
  int ends[2]; /* to read from, to write to */
  if (terminal) {
    struct termios raw;
    assert_int_equal(openpty(&ends[0], &ends[1], NULL, NULL, NULL), 0);
    assert_int_equal(tcgetattr(ends[1], &raw), 0);
    cfmakeraw(&raw); /* no \r before our \n */
    assert_int_equal(tcsetattr(ends[1], TCSANOW, &raw), 0);
  } else {
    assert_int_equal(pipe(ends), 0);
  }
  const int saved = dup(STDERR_FILENO);
  assert_true(saved >= 0);
  assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
  mill_progress progress;
  mill_progress_start(&progress, "stars", n_total, quiet);
  if (n_before > 0) {
    mill_progress_update(&progress, n_before, 0);
  } else if (n_total > 0) {
    mill_progress_update(&progress, 1, 0);
    mill_progress_update(&progress, 2, 0); /* too soon to be drawn */
    mill_progress_update(&progress, n_total, 3);
  }
  mill_progress_end(&progress);
  mill_progress_end(&progress); /* harmless */
  assert_true(dup2(saved, STDERR_FILENO) >= 0);
  close(saved);
  struct pollfd ready = {.fd = ends[0], .events = POLLIN};
  size_t n = 0;
  while (n < size - 1 && poll(&ready, 1, 50) > 0 && (ready.revents & POLLIN)) {
    const ssize_t got = read(ends[0], out + n, size - 1 - n);
    if (got <= 0)
      break;
    n += (size_t)got;
  }
  out[n] = '\0';
  close(ends[1]);
  close(ends[0]);
}

MILL_TEST(terminal_shows_done_rate_and_time_left)
{
  char out[1024] = " 2/400";
  /* the second is drawn where a busy machine lets much time pass between them */
  for (int i = 0; i < 20 && strstr(out, " 2/400"); i++)
    run(1, 0, 0, 400, out, sizeof out);
  assert_null(strstr(out, " 2/400"));
  assert_int_equal(out[0], '\r');
  assert_non_null(strstr(out, "[                    ] 0.2 %  1/400 stars  0 failed  "));
  assert_non_null(strstr(out, "/s  "));
  char *last = strstr(out, "[====================] 100.0 %  400/400 stars  3 failed  ");
  assert_non_null(last);
  assert_non_null(strstr(last, "  0s left\x1b[K"));
  const char *end = strchr(last, '\n');
  assert_non_null(end);
  assert_string_equal(end, "\n"); /* one, at the end */
}

/* A continued run: what earlier ones did took no time of this one, so before its first
 * row the rate is nothing and the time left is not known. */
MILL_TEST(rows_of_earlier_runs_are_no_rate)
{
  char out[512];
  run(1, 0, 398, 400, out, sizeof out);
  assert_non_null(strstr(out, "99.5 %  398/400 stars  0 failed  0.00/s  ? left"));
}

MILL_TEST(nothing_in_the_first_minute_of_a_log_or_when_quiet)
{
  char out[1024];
  run(0, 0, 0, 400, out, sizeof out);
  assert_string_equal(out, "");
  run(1, 1, 0, 400, out, sizeof out);
  assert_string_equal(out, "");
  run(1, 0, 0, 0, out, sizeof out); /* no line, and no end of one */
  assert_string_equal(out, "");
}

MILL_TEST_MAIN(NULL, NULL)
