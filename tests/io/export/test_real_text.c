/* Numbers as text, against printf and strtod. */
#include "tests/mill_test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/export/real_text.h"

static void check(double x)
{
  char want[MILL_NUMBER_SIZE], got[MILL_NUMBER_SIZE];
  snprintf(want, sizeof want, "%.15g", x);
  if (strtod(want, NULL) != x)
    snprintf(want, sizeof want, "%.17g", x);
  const size_t n = mill_real_text(x, got);
  assert_string_equal(got, want);
  assert_int_equal(n, strlen(want));
}

static uint64_t draw(uint64_t *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

static void test_reals_are_those_of_printf(void **state)
{
  (void)state;
  uint64_t seed = 20;
  static const double odd[] = {
      0.0,  -0.0, INFINITY, -INFINITY, 5e-324,    1.7976931348623157e308, 1e-8, 1e17,
      1e15, 1e16, 0.1,      0.3,       1.0 / 3.0, 9.9999999999999995e-5};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
    for (int side = -1; side <= 1; side++)
      check(side == 0 ? odd[i] : nextafter(odd[i], side * HUGE_VAL));
  for (int i = 0; i < 60000; i++) {
    const uint64_t bits = draw(&seed), more = draw(&seed);
    const int power = (int)(more % 40) - 15;
    double x;
    memcpy(&x, &bits, sizeof x);
    if (!isnan(x))
      check(x); /* of any size */
    check(((double)(int64_t)bits) * pow(10.0, power - 18));
    /* few digits, and halves of the last one that is printed */
    check((double)(bits % 100000) * pow(10.0, power));
    check(ldexp((double)(bits >> 11), power - 40));
    check(ldexp((double)(bits >> 40), power - 20));
  }
}

static void test_integers_are_those_of_printf(void **state)
{
  (void)state;
  static const int64_t some[] = {0, 1, -1, 9, 10, -10, 39627652591521181, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    char want[MILL_NUMBER_SIZE], got[MILL_NUMBER_SIZE];
    snprintf(want, sizeof want, "%" PRId64, some[i]);
    assert_int_equal(mill_integer_text(some[i], got), strlen(want));
    assert_string_equal(got, want);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reals_are_those_of_printf),
      cmocka_unit_test(test_integers_are_those_of_printf),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
