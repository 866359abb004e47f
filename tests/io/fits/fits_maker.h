/* SPDX-License-Identifier: BSD-3-Clause */
/** Small FITS files made byte by byte, so that tests can make bad ones too. */
#ifndef MILL_TEST_FITS_MAKER_H
#define MILL_TEST_FITS_MAKER_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAKER_MAX_HDU = 40 };

typedef struct fits_maker {
  unsigned char *bytes;
  size_t n, capacity;
  size_t hdu_start[MAKER_MAX_HDU], data_start[MAKER_MAX_HDU];
  int n_hdu;
} fits_maker;

static inline void maker_append(fits_maker *m, const void *bytes, size_t n)
{
  if (m->n + n > m->capacity) {
    m->capacity = 2 * (m->n + n) + 65536;
    m->bytes = realloc(m->bytes, m->capacity);
    assert_non_null(m->bytes);
  }
  if (n > 0)
    memcpy(m->bytes + m->n, bytes, n);
  m->n += n;
}

static inline void maker_pad(fits_maker *m, char fill)
{
  while (m->n % 2880)
    maker_append(m, &fill, 1);
}

static inline void maker_begin(fits_maker *m)
{
  assert_true(m->n_hdu < MAKER_MAX_HDU);
  m->hdu_start[m->n_hdu++] = m->n;
}

/** One card, filled with blanks or cut to 80 bytes. */
static inline void __attribute__((format(printf, 2, 3)))
maker_card(fits_maker *m, const char *format, ...)
{
  char text[256];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  for (; n < 80; n++)
    text[n] = ' ';
  maker_append(m, text, 80);
}

static inline void maker_end(fits_maker *m)
{
  maker_card(m, "END");
  maker_pad(m, ' ');
  m->data_start[m->n_hdu - 1] = m->n;
}

/** n values of size bytes, turned to FITS's byte order. */
static inline void maker_values(fits_maker *m, const void *values, size_t n, size_t size)
{
  const unsigned char *p = values;
  for (size_t i = 0; i < n; i++)
    for (size_t j = size; j-- > 0;)
      maker_append(m, p + i * size + j, 1);
}

static inline void maker_primary(fits_maker *m)
{
  maker_begin(m);
  maker_card(m, "SIMPLE  =                    T");
  maker_card(m, "BITPIX  =                    8");
  maker_card(m, "NAXIS   =                    0");
  maker_card(m, "EXTEND  =                    T");
  maker_end(m);
}

/** An image of host-order values; axis fastest first; extra cards one by one. */
static inline void maker_image(fits_maker *m, const char *name, int bitpix, int n_axis,
                               const long *axis, const void *values, const char *extra)
{
  size_t n = 1;
  maker_begin(m);
  maker_card(m, "XTENSION= 'IMAGE   '");
  maker_card(m, "BITPIX  = %20d", bitpix);
  maker_card(m, "NAXIS   = %20d", n_axis);
  for (int i = 0; i < n_axis; i++) {
    maker_card(m, "NAXIS%d  = %20ld", i + 1, axis[i]);
    n *= (size_t)axis[i];
  }
  maker_card(m, "PCOUNT  =                    0");
  maker_card(m, "GCOUNT  =                    1");
  maker_card(m, "EXTNAME = '%s'", name);
  for (; extra && *extra; extra += strcspn(extra, "\n") + (strchr(extra, '\n') != NULL))
    maker_card(m, "%.*s", (int)strcspn(extra, "\n"), extra);
  maker_end(m);
  maker_values(m, values, n, (size_t)abs(bitpix) / 8);
  maker_pad(m, 0);
}

/** A column: form is nK, nJ, nD, nE or nA; values in host order, [row][n]. */
typedef struct maker_column {
  const char *name, *form;
  const void *values;
} maker_column;

static inline size_t maker_column_repeat(const char *form)
{
  return form[0] >= '0' && form[0] <= '9' ? (size_t)atol(form) : 1;
}

static inline size_t maker_column_bytes(const char *form)
{
  const char code = form[strspn(form, "0123456789")];
  return maker_column_repeat(form) * (code == 'A' ? 1 : code == 'J' || code == 'E' ? 4 : 8);
}

static inline void maker_table(fits_maker *m, const char *name, int n_row, int n_column,
                               const maker_column *column)
{
  size_t row_bytes = 0;
  for (int i = 0; i < n_column; i++)
    row_bytes += maker_column_bytes(column[i].form);
  maker_begin(m);
  maker_card(m, "XTENSION= 'BINTABLE'");
  maker_card(m, "BITPIX  =                    8");
  maker_card(m, "NAXIS   =                    2");
  maker_card(m, "NAXIS1  = %20zu", row_bytes);
  maker_card(m, "NAXIS2  = %20d", n_row);
  maker_card(m, "PCOUNT  =                    0");
  maker_card(m, "GCOUNT  =                    1");
  maker_card(m, "TFIELDS = %20d", n_column);
  for (int i = 0; i < n_column; i++) {
    maker_card(m, "TTYPE%-3d= '%s'", i + 1, column[i].name);
    maker_card(m, "TFORM%-3d= '%s'", i + 1, column[i].form);
  }
  maker_card(m, "EXTNAME = '%s'", name);
  maker_end(m);
  for (int i_row = 0; i_row < n_row; i_row++)
    for (int i = 0; i < n_column; i++) {
      const size_t bytes = maker_column_bytes(column[i].form);
      const char *value = (const char *)column[i].values + (size_t)i_row * bytes;
      if (strchr(column[i].form, 'A'))
        maker_append(m, value, bytes);
      else
        maker_values(m, value, maker_column_repeat(column[i].form),
                     bytes / maker_column_repeat(column[i].form));
    }
  maker_pad(m, 0);
}

static inline void maker_save_bytes(const char *path, const void *bytes, size_t n)
{
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(bytes, 1, n, stream), n);
  assert_int_equal(fclose(stream), 0);
}

static inline void maker_save(const fits_maker *m, const char *path)
{
  maker_save_bytes(path, m->bytes, m->n);
}

static inline void maker_clear(fits_maker *m)
{
  free(m->bytes);
  memset(m, 0, sizeof *m);
}

/** A folder of this test's own below TMPDIR or /tmp; removed by maker_remove_folder. */
static inline void maker_folder(char *out, size_t size)
{
  const char *base = getenv("TMPDIR");
  snprintf(out, size, "%s/starmill-test-XXXXXX", base && *base ? base : "/tmp");
  assert_non_null(mkdtemp(out));
}

static inline void maker_remove_folder(const char *folder)
{
  char command[2100];
  assert_null(strchr(folder, '\''));
  snprintf(command, sizeof command, "rm -rf -- '%s'", folder);
  assert_int_equal(system(command), 0);
}

#endif
