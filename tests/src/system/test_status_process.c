/* SPDX-License-Identifier: BSD-3-Clause */
/* What src/system/status_process.c says of processes, memory and times. */
#include "tests/mill_test.h"

#include <sys/mman.h>

#include "src/system/status_process.h"

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
  /* a sanitizer has shadow pages of it, and the kernel counts pages in batches */
  assert_true(with - before >= BYTES - (1 << 20) && with - before < BYTES + BYTES / 4);
  assert_true(after < with - BYTES / 2);
  assert_true(peak_after >= with - (1 << 20));
}

MILL_TEST_MAIN(NULL, NULL)
