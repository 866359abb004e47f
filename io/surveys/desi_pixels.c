/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <string.h>

#include "io/surveys/desi_file.h"
#include "io/surveys/single_spectrum.h"
#include "kernels/base/memory.h"

enum { CONVERT_BYTES = 1 << 22 /* buffer for images that are not stored as we keep them */ };

/* BSCALE and BZERO of the current HDU. */
static int read_scaling(mill_desi_file *file, int i_hdu, double value[2])
{
  static const char *const key[2] = {"BSCALE", "BZERO"};
  value[0] = 1.0;
  value[1] = 0.0;
  for (int i = 0; i < 2; i++) {
    int status = 0;
    fits_read_key(file->fits->fptr, TDOUBLE, key[i], &value[i], NULL, &status);
    MILL_CHECK_FITS(file->fits, i_hdu, status == KEY_NO_EXIST ? 0 : status,
                    "its scaling cannot be read");
    fits_clear_errmsg();
  }
  return MILL_OK;
}

int mill_desi_take_image(mill_desi_file *file, int i_hdu, int is_mask, mill_desi_image *out)
{
  int type = 0, status = 0;
  double scaling[2];
  *out = (mill_desi_image){.i_hdu = i_hdu, .is_mask = is_mask};
  MILL_CHECK(mill_fits_file_move(file->fits, i_hdu));
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  /* the type after BSCALE and BZERO */
  MILL_CHECK_FITS(file->fits, i_hdu, fits_get_img_equivtype(file->fits->fptr, &type, &status),
                  "its type cannot be found");
  if (is_mask && (type == FLOAT_IMG || type == DOUBLE_IMG))
    return MILL_ERROR_HDU(file->fits, i_hdu, " must hold integers; make the file again");
  MILL_CHECK(read_scaling(file, i_hdu, scaling));
  out->plain = !hdu->compressed && hdu->bitpix == (is_mask ? LONG_IMG : FLOAT_IMG) &&
               scaling[0] == 1.0 && scaling[1] == 0.0;
  if (!is_mask || type != LONGLONG_IMG)
    return MILL_OK;
  /* CFITSIO 4.2 takes unsigned integers of 64 bits for signed ones and then finds them out of
   * range, so stored values are read and the offset is added here */
  if (scaling[0] != 1.0 || (scaling[1] != 0.0 && scaling[1] != 0x1p63))
    return MILL_ERROR_HDU(
        file->fits, i_hdu,
        " holds scaled integers of 64 bits, which no mask has; make the file again");
  out->is_wide = 1;
  out->offset = scaling[1] != 0.0 ? UINT64_C(1) << 63 : 0;
  return MILL_OK;
}

/* Pixels of one row, chunk by chunk through the buffer, as a row may be longer than that.  By way
 * of doubles, since CFITSIO refuses infinity when it narrows them. */
static int convert_row(mill_desi_file *file, const mill_desi_image *im, int64_t i_row,
                       int64_t row_pix, void *out)
{
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[im->i_hdu];
  const int fill_null = !im->is_mask && (hdu->compressed || hdu->bitpix > 0);
  double nan_value = NAN;
  int any_null, status = 0; /* CFITSIO writes the first, even through a NULL */
  long first[3] = {1, 1, 1};
  first[hdu->n_axis - 1] = (long)i_row + 1;
  for (int64_t at = 0, n; at < row_pix; at += n) {
    n = row_pix - at < CONVERT_BYTES / 8 ? row_pix - at : CONVERT_BYTES / 8;
    first[0] = (long)(at % hdu->axis[0]) + 1;
    if (hdu->n_axis == 3)
      first[1] = (long)(at / hdu->axis[0]) + 1;
    fits_read_pix(file->fits->fptr, im->is_wide ? TLONGLONG : TDOUBLE, first, n,
                  fill_null ? &nan_value : NULL, file->convert, &any_null, &status);
    MILL_CHECK_FITS(file->fits, im->i_hdu, status, "row %lld cannot be read", (long long)i_row);
    const double *real = file->convert;
    const uint64_t *wide = file->convert;
    if (!im->is_mask)
      mill_single_narrow(real, (int)n, (float *)out + at);
    for (int64_t i = 0; im->is_mask && i < n; i++)
      ((int32_t *)out)[at + i] =
          mill_single_fold(im->is_wide ? wide[i] + im->offset : (uint64_t)(int64_t)real[i]);
  }
  return MILL_OK;
}

int mill_desi_read(mill_desi_file *file, const mill_desi_image *im, const int64_t *fits_row, int n,
                   int64_t row_pix, size_t pitch, void *out)
{
  int status = 0;
  char *to = out;
  if (!im->plain) {
    if (!file->convert)
      MILL_CHECK(mill_alloc_bytes(CONVERT_BYTES, 1, &file->convert));
    MILL_CHECK(mill_fits_file_move(file->fits, im->i_hdu));
    if (im->offset)
      fits_set_bscale(file->fits->fptr, 1.0, 0.0, &status);
    MILL_CHECK_FITS(file->fits, im->i_hdu, status, "its scaling cannot be changed");
  }
  for (int i = 0; i < n; i++, to += pitch)
    if (im->plain)
      MILL_CHECK(mill_fits_file_words(file->fits, im->i_hdu, fits_row[i] * row_pix, row_pix, to));
    else
      MILL_CHECK(convert_row(file, im, fits_row[i], row_pix, to));
  return MILL_OK;
}
