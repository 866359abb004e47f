/* SPDX-License-Identifier: BSD-3-Clause */
/* Every function of libstarmill with NULL in the place of each pointer that it needs. */
#include "tests/mill_test.h"

#include "libstarmill/include/starmill/starmill.h"

/* clang-format off */
/* X(function, number of needed pointers, arguments): p(k) is the k-th needed pointer. */
#define FALLIBLE(X)                                                                               \
  X(library_open, 2, (p(0), NULL, p(1), e))        X(library_parameter, 2, (p(0), 0, p(1), e))    \
  X(library_check, 2, (p(0), NULL, 0, p(1), e))    X(channels_open, 2, (p(0), NULL, p(1), e))     \
  X(channels_read, 2, (p(0), 0, p(1), e))          X(channels_at, 2, (p(0), 0, p(1), e))          \
  X(library_arm, 2, (p(0), 0, p(1), e))            X(star_create, 2, (p(0), NULL, 0, p(1), e))    \
  X(library_constrain, 1, (p(0), NULL, NULL, NULL, e))                                            \
  X(file_open, 3, (p(0), p(1), p(2), e))           X(file_row, 2, (p(0), 0, p(1), e))             \
  X(file_star, 2, (p(0), 0, p(1), e))              X(fix_model_error, 2, (p(0), p(1), NULL, e))   \
  X(minus2loglike, 2, (p(0), p(1), 0, NULL, NULL, NULL, NULL, NULL, e))                           \
  X(model_create, 4, (p(0), p(1), p(2), p(3), e))  X(model_get_arm, 2, (p(0), 0, p(1), e))        \
  X(model_get_piece, 2, (p(0), 0, p(1), e))        X(template, 4, (p(0), p(1), p(2), p(3), e))    \
  X(guess, 5, (p(0), p(1), 1, p(2), p(3), p(4), e)) X(fit, 2, (p(0), NULL, 0, NULL, 0, p(1), e))  \
  X(table_open, 2, (p(0), p(1), e))                X(table_column_at, 2, (p(0), 0, p(1), e))      \
  X(table_column, 3, (p(0), p(1), p(2), e))        X(table_theta, 3, (p(0), p(1), 0, p(2), e))
#define NUMBERS(X)                                                                                \
  X(library_n_par) X(library_n_label) X(library_n_arm) X(star_n_piece) X(file_n_row)              \
  X(table_n_row) X(table_n_column)
/* clang-format on */
#define p(k) ((void *)((k) == i_null ? NULL : any))

MILL_TEST(a_null_that_must_not_be_is_named)
{
  static double any[512]; /* handles and arrays: a call is refused before it looks into them */
  starmill_error error, *e = &error;
#define REFUSED(name, n, arguments)                                                                \
  for (int i_null = 0; i_null < (n); i_null++, e = e ? NULL : &error) {                            \
    assert_int_equal(starmill_##name arguments, STARMILL_USAGE);                                   \
    assert_true(!e || (strstr(e->message, "starmill_" #name ": ") && strstr(e->message, "NULL"))); \
  }
  FALLIBLE(REFUSED)
#define IS_ZERO(name) assert_int_equal(starmill_##name(NULL), 0);
  NUMBERS(IS_ZERO)
  starmill_star_set_target_id(NULL, 1);
  assert_true(!*starmill_library_hash(NULL) && !*starmill_library_backend(NULL));
  assert_true(isnan(starmill_model_m2ll(NULL)) && isnan(starmill_model_penalty(NULL)));
}

MILL_TEST_MAIN(NULL, NULL)
