/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/fits/fits_output.h"

#include <errno.h>
#include <fitsio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/files/lock_file.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

enum { MAX_COLUMN = 64, ROWS = 1024 /* of a table at once */ };

struct mill_fits_output {
  char path[MILL_MAX_PATH];
  char temporary[MILL_MAX_PATH + 80]; /* empty: none to be removed */
  fitsfile *fits;
  int n_hdu;
};

static int check(const mill_fits_output *file, int status)
{
  char reason[FLEN_STATUS];
  if (status == 0)
    return MILL_OK;
  fits_get_errstatus(status, reason);
  fits_clear_errmsg();
  return MILL_ERROR(MILL_ERR_OUTPUT,
                    "%s cannot be written (CFITSIO %d: %s): make room, make its folder writable or "
                    "choose another output",
                    file->path, status, reason);
}

int mill_fits_output_open(const char *path, const char *id, int n_history,
                          const char *const *history, mill_fits_output **out)
{
  int err = MILL_OK, status = 0;
  char job[64];
  mill_fits_output *file = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &file));
  snprintf(file->path, sizeof file->path, "%s", path);
  if (access(path, F_OK) == 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists already: choose another output", path);
  mill_lock_job(job, sizeof job);
  snprintf(file->temporary, sizeof file->temporary, "%s.tmp-%s", file->path, job);
  unlink(file->temporary); /* of a job that was killed */
  fits_create_diskfile(&file->fits, file->temporary, &status);
  if (status != 0)
    file->fits = NULL;
  fits_create_img(file->fits, BYTE_IMG, 0, NULL, &status);
  fits_write_key_str(file->fits, "MOCKID", id, "digest of what the file is made from", &status);
  for (int i = 0; i < n_history && status == 0; i++)
    fits_write_history(file->fits, history[i], &status);
  MILL_TRY(check(file, status));
  file->n_hdu = 1;
  *out = file;
  file = NULL;
done:
  mill_fits_output_free(file);
  return err;
}

int mill_fits_output_text(mill_fits_output *file, const char *key, const char *text)
{
  int status = 0;
  fits_write_key_str(file->fits, key, text, NULL, &status);
  return check(file, status);
}

int mill_fits_output_number(mill_fits_output *file, const char *key, int64_t number)
{
  int status = 0;
  fits_write_key_lng(file->fits, key, number, NULL, &status);
  return check(file, status);
}

int mill_fits_output_flag(mill_fits_output *file, const char *key, int flag)
{
  int status = 0;
  fits_write_key_log(file->fits, key, flag, NULL, &status);
  return check(file, status);
}

int mill_fits_output_image(mill_fits_output *file, const char *extname, int bitpix, int n_axis,
                           const int64_t *axis, const char *unit)
{
  int status = 0;
  LONGLONG length[3] = {0};
  for (int i = 0; i < n_axis && i < 3; i++)
    length[i] = axis[i];
  fits_create_imgll(file->fits, bitpix, n_axis, length, &status);
  fits_write_key_str(file->fits, "EXTNAME", extname, "extension name", &status);
  if (unit)
    fits_write_key_str(file->fits, "BUNIT", unit, NULL, &status);
  file->n_hdu++;
  return check(file, status);
}

int mill_fits_output_table(mill_fits_output *file, const char *extname, int64_t n_row, int n_column,
                           const mill_output_column *column)
{
  int status = 0;
  char *name[MAX_COLUMN], *format[MAX_COLUMN], *unit[MAX_COLUMN], none[] = "";
  if (n_column > MAX_COLUMN)
    return MILL_ERROR(MILL_ERR_INTERNAL, "%s: table %s has %d columns", file->path, extname,
                      n_column);
  for (int i = 0; i < n_column; i++) { /* CFITSIO only reads them */
    name[i] = (char *)(uintptr_t)column[i].name;
    format[i] = (char *)(uintptr_t)column[i].format;
    unit[i] = column[i].unit ? (char *)(uintptr_t)column[i].unit : none;
  }
  fits_create_tbl(file->fits, BINARY_TBL, n_row, n_column, name, format, unit, extname, &status);
  file->n_hdu++;
  return check(file, status);
}

int mill_fits_output_pixels(mill_fits_output *file, int i_hdu, int bitpix, int64_t first, int64_t n,
                            const void *pixel)
{
  int status = 0;
  const int type = bitpix == DOUBLE_IMG ? TDOUBLE : bitpix == FLOAT_IMG ? TFLOAT : TINT;
  fits_movabs_hdu(file->fits, i_hdu + 1, NULL, &status);
  fits_write_img(file->fits, type, first + 1, n, (void *)(uintptr_t)pixel, &status);
  return check(file, status);
}

/* Type, values and bytes of a column's values in one row. */
static int column_type(const char *format, LONGLONG *repeat, size_t *n_byte)
{
  const long count = strtol(format, NULL, 10);
  const char code = format[strlen(format) - 1];
  *repeat = code == 'A' || count < 1 ? 1 : count;
  *n_byte = (size_t)*repeat * (code == 'K' || code == 'D' ? 8 : 4);
  return code == 'A'   ? TSTRING
         : code == 'K' ? TLONGLONG
         : code == 'D' ? TDOUBLE
         : code == 'E' ? TFLOAT
                       : TINT;
}

/* At most ROWS rows; buffer has room for a column of them. */
static void write_rows(fitsfile *fits, int n_column, const mill_output_column *column,
                       int64_t first, int64_t n, const char *row, size_t row_bytes, char *buffer,
                       int *status)
{
  for (int k = 0; k < n_column; k++) {
    LONGLONG repeat;
    size_t n_byte;
    const int type = column_type(column[k].format, &repeat, &n_byte);
    for (int64_t i = 0; i < n; i++) {
      const char *from = row + (size_t)i * row_bytes + column[k].offset;
      if (type == TSTRING)
        ((const char **)(void *)buffer)[i] = from;
      else
        memcpy(buffer + (size_t)i * n_byte, from, n_byte);
    }
    fits_write_col(fits, type, k + 1, first + 1, 1, n * repeat, buffer, status);
  }
}

int mill_fits_output_rows(mill_fits_output *file, int i_hdu, int n_column,
                          const mill_output_column *column, int64_t first, int64_t n,
                          const void *row, size_t row_bytes)
{
  int err = MILL_OK, status = 0;
  char *buffer = NULL;
  /* a text takes a pointer here, otherwise it is no larger than its row */
  MILL_TRY(MILL_ALLOC(ROWS * (row_bytes + sizeof(char *)), &buffer));
  fits_movabs_hdu(file->fits, i_hdu + 1, NULL, &status);
  for (int64_t i = 0; i < n && status == 0; i += ROWS)
    write_rows(file->fits, n_column, column, first + i, n - i < ROWS ? n - i : ROWS,
               (const char *)row + (size_t)i * row_bytes, row_bytes, buffer, &status);
  MILL_TRY(check(file, status));
done:
  mill_free(buffer);
  return err;
}

int mill_fits_output_commit(mill_fits_output *file)
{
  int status = 0;
  fits_close_file(file->fits, &status);
  file->fits = NULL;
  MILL_CHECK(check(file, status));
  if (rename(file->temporary, file->path) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be renamed to %s: %s", file->temporary,
                      file->path, strerror(errno));
  file->temporary[0] = '\0';
  return MILL_OK;
}

void mill_fits_output_free(mill_fits_output *file)
{
  int status = 0;
  if (!file)
    return;
  if (file->fits)
    fits_close_file(file->fits, &status);
  fits_clear_errmsg();
  if (file->temporary[0])
    unlink(file->temporary);
  mill_free(file);
}
