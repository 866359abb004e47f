/* SPDX-License-Identifier: BSD-3-Clause */
/* Small parts of src/system: random streams, the progress line, and what status files say. */
#include "tests/mill_test.h"

#include <poll.h>
#include <pty.h>
#include <sys/mman.h>
#include <termios.h>

#include "kernels/base/memory.h"
#include "src/system/progress.h"
#include "src/system/random.h"
#include "src/system/status_json.h"
#include "src/system/status_process.h"

/* --- streams made of the words of kernels/math/counter_random.h --- */

MILL_TEST(streams_depend_on_seed_index_and_purpose)
{
  /* the last ones differ from the first in the upper halves only */
  static const uint64_t seed[] = {7, 8, 7, 7, 7 + (1ull << 32), 7};
  static const uint64_t index[] = {3, 3, 4, 3, 3, 3 + (1ull << 32)};
  static const uint32_t purpose[] = {1, 1, 1, 2, 1, 1};
  uint32_t word[6][32];
  for (int s = 0; s < 6; s++) {
    mill_random r, again;
    mill_random_begin(&r, seed[s], index[s], purpose[s]);
    mill_random_begin(&again, seed[s], index[s], purpose[s]);
    for (int i = 0; i < 32; i++) {
      word[s][i] = mill_random_word(&r);
      assert_int_equal(mill_random_word(&again), word[s][i]);
      for (int k = 0; k < i; k++)
        assert_int_not_equal(word[s][i], word[s][k]);
    }
    for (int t = 0; t < s; t++)
      for (int i = 0; i < 32; i++)
        for (int k = 0; k < 32; k++)
          assert_int_not_equal(word[s][i], word[t][k]);
  }
}

MILL_TEST(uniform_never_reaches_its_ends)
{
  mill_random r;
  memset(&r, 0, sizeof r);
  r.n_left = 4;
  memset(r.block, 0, 2 * sizeof *r.block);
  memset(r.block + 2, 0xff, 2 * sizeof *r.block);
  assert_true(mill_random_uniform(&r) > 0);
  assert_true(mill_random_uniform(&r) < 1);
}

/* --- text and manners of progress.c --- */

MILL_TEST(eta)
{
  static const struct {
    double left_s;
    const char *text;
  } expected[] = {{0.0, "0s"},        {0.4, "0s"},
                  {12.3, "12s"},      {59.4, "59s"},
                  {59.6, "1m00s"},    {185.0, "3m05s"},
                  {3599.4, "59m59s"}, {3599.6, "1h00m"},
                  {3725.0, "1h02m"},  {360000.0, "100h00m"},
                  {1e12, "?"},        {-1.0, "?"},
                  {(double)NAN, "?"}, {(double)INFINITY, "?"}};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    char text[16];
    mill_progress_eta(expected[i].left_s, text, sizeof text);
    assert_string_equal(text, expected[i].text);
  }
}

/* Store in out what the progress line writes to a terminal or a pipe.  If n_before is 0,
 * these are two quick updates, a last update and the end.  Otherwise these are one update, with
 * n_before rows of earlier runs and none of this run, and the end. */
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
  /* the second update comes too soon to be drawn; on a busy machine it may come late: try again */
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

/* A continued run: rows of earlier runs took no time of this run.  Before this run's first row the
 * rate is 0 and the time left is unknown. */
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

/* --- what status_process.c says of processes, memory and times --- */

MILL_TEST(times)
{
  /* from `date -u -d @SECONDS` */
  static const struct {
    double s;
    const char *text;
  } c[] = {{0, "1970-01-01T00:00:00Z"},
           {951782400, "2000-02-29T00:00:00Z"},
           {1763736965.75, "2025-11-21T14:56:05Z"},
           {4102444799, "2099-12-31T23:59:59Z"}};
  char text[MILL_UTC_SIZE];
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    mill_utc_text(c[i].s, text);
    assert_string_equal(text, c[i].text);
  }
}

MILL_TEST(own_memory)
{
  enum { BYTES = 64 << 20 };
  int64_t before, peak_before, with, peak_with, after, peak_after;
  mill_process_memory(&before, &peak_before);
  assert_true(before > 0 && peak_before >= before);
  void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  memset(memory, 1, BYTES);
  mill_process_memory(&with, &peak_with);
  assert_int_equal(munmap(memory, BYTES), 0);
  mill_process_memory(&after, &peak_after);
  /* a sanitizer adds shadow pages to BYTES, and the kernel counts pages in batches */
  assert_true(with - before >= BYTES - (1 << 20) && with - before < BYTES + BYTES / 4);
  assert_true(after < with - BYTES / 2);
  assert_true(peak_after >= with - (1 << 20));
}

/* --- JSON of status_json.c: any text and number is written, and what is written is read --- */

MILL_CLOSER(json_t, json_decref)
static char *text;
static size_t n_byte;

static mill_json begin(void)
{
  mill_json json = {.out = open_memstream(&text, &n_byte)};
  assert_non_null(json.out);
  mill_json_open(&json, NULL, '{');
  return json;
}

static json_t *end(mill_json *json)
{
  json_error_t error;
  assert_int_equal(mill_json_close(json), MILL_OK);
  assert_int_equal(fclose(json->out), 0);
  json_t *doc = json_loadb(text, n_byte, 0, &error);
  if (!doc)
    fail_msg("%s in %s", error.text, text);
  return doc;
}

MILL_TEST(texts)
{
  /* Bytes that are not UTF-8 become U+FFFD: stray bytes, incomplete sequences, overlong forms,
   * surrogates and numbers beyond U+10FFFF.  read: the expected text; NULL: the given text. */
  static const struct {
    const char *given, *read;
  } c[] = {{"", NULL},
           {"a/b c", NULL},
           {"q\"b\\", NULL},
           {"\x01\t\n\r\x1f\x7f", NULL},
           {"%s%n", NULL},
           {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\x9f", NULL},
           {"a\xff z", "a\xef\xbf\xbd z"},
           {"\xc3", "\xef\xbf\xbd"},
           {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
           {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
           {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
           {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
           {"\xc3\xa9\xff\xe2\x82\xac", "\xc3\xa9\xef\xbf\xbd\xe2\x82\xac"},
           {"\xc2\x85\xef\xbb\xbf", NULL}};
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    mill_json json = begin();
    mill_json_text(&json, "text", c[i].given);
    MILL_AT_END(json_decref_at) json_t *doc = end(&json);
    assert_string_equal(json_string_value(json_object_get(doc, "text")),
                        c[i].read ? c[i].read : c[i].given);
    free(text);
  }
}

MILL_TEST(numbers)
{
  mill_json json = begin();
  mill_json_integer(&json, "most", INT64_MAX);
  mill_json_integer(&json, "least", INT64_MIN);
  mill_json_real(&json, "real", -1.5e-7);
  mill_json_real(&json, "nan", (double)NAN);
  mill_json_real(&json, "infinity", -(double)INFINITY);
  mill_json_text(&json, "text", "12");
  mill_json_text(&json, "null", NULL);
  MILL_AT_END(json_decref_at) json_t *doc = end(&json);
  assert_true(json_integer_value(json_object_get(doc, "most")) == INT64_MAX);
  assert_true(json_integer_value(json_object_get(doc, "least")) == INT64_MIN);
  assert_true(json_real_value(json_object_get(doc, "real")) == -1.5e-7);
  assert_non_null(strstr(text, "\"nan\": null"));
  assert_non_null(strstr(text, "\"infinity\": null"));
  assert_true(json_is_null(json_object_get(doc, "null")));
  free(text);
}

/* Members keep the order in which they were added: a status file is known by its first member. */
MILL_TEST(structure)
{
  mill_json json = begin();
  mill_json_open(&json, "z", '{');
  mill_json_close(&json);
  mill_json_open(&json, "list", '[');
  for (int i = 0; i < 3; i++) {
    mill_json_open(&json, NULL, '{');
    mill_json_integer(&json, "i", i);
    mill_json_open(&json, "deep", '[');
    mill_json_integer(&json, NULL, 10 * i);
    mill_json_integer(&json, NULL, 10 * i + 1);
    mill_json_close(&json);
    mill_json_close(&json);
  }
  mill_json_close(&json);
  MILL_AT_END(json_decref_at) json_t *doc = end(&json);
  assert_int_equal(strncmp(text, "{\n  \"z\": {},\n  \"list\": [\n", 23), 0);
  assert_string_equal(text + n_byte - 2, "}\n");
  MILL_OWNED char *compact = json_dumps(doc, JSON_COMPACT);
  assert_string_equal(compact, "{\"z\":{},\"list\":[{\"i\":0,\"deep\":[0,1]},"
                               "{\"i\":1,\"deep\":[10,11]},{\"i\":2,\"deep\":[20,21]}]}");
  free(text);
}

MILL_TEST(what_cannot_be_written)
{
  char small[8];
  mill_json json = {.out = fmemopen(small, sizeof small, "w")};
  assert_non_null(json.out);
  setvbuf(json.out, NULL, _IONBF, 0);
  mill_json_open(&json, NULL, '{');
  mill_json_text(&json, "text", "longer than that");
  assert_int_equal(mill_json_close(&json), MILL_ERR_OUTPUT);
  fclose(json.out);
}

MILL_TEST_MAIN(NULL, NULL)
