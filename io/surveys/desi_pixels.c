#include <math.h>
#include <string.h>

#include "io/surveys/desi_file.h"
#include "io/surveys/single_spectrum.h"

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

/* CFITSIO 4.2 takes unsigned integers of 64 bits for signed ones and then finds
 * them out of range, so stored values are read and the offset is added here. */
static int take_mask64(mill_desi_file *file, int i_hdu, mill_desi_image *out)
{
  double value[2];
  MILL_CHECK(read_scaling(file, i_hdu, value));
  if (value[0] != 1.0 || (value[1] != 0.0 && value[1] != 0x1p63))
    return MILL_ERROR_HDU(
        file->fits, i_hdu,
        " holds scaled integers of 64 bits, which no mask has; make the file again");
  out->convert = TLONGLONG;
  out->offset = value[1] != 0.0 ? UINT64_C(1) << 63 : 0;
  return MILL_OK;
}

int mill_desi_take_image(mill_desi_file *file, int i_hdu, int is_mask, mill_desi_image *out)
{
  int type = 0, status = 0;
  out->i_hdu = i_hdu;
  MILL_CHECK(mill_fits_file_move(file->fits, i_hdu));
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  /* the type after BSCALE and BZERO */
  MILL_CHECK_FITS(file->fits, i_hdu, fits_get_img_equivtype(file->fits->fptr, &type, &status),
                  "its type cannot be found");
  if (is_mask) {
    if (type == LONGLONG_IMG)
      MILL_CHECK(take_mask64(file, i_hdu, out));
    else if (type == BYTE_IMG || type == SBYTE_IMG || type == SHORT_IMG || type == USHORT_IMG ||
             type == LONG_IMG)
      out->direct = TINT;
    else if (type == ULONG_IMG)
      out->direct = TUINT;
    else
      return MILL_ERROR_HDU(file->fits, i_hdu, " must hold integers; make the file again");
  } else {
    if (hdu->bitpix == FLOAT_IMG && type == FLOAT_IMG)
      out->direct = TFLOAT;
    else
      out->convert = TDOUBLE; /* CFITSIO refuses infinity when it narrows doubles */
    out->fill_null = hdu->compressed || hdu->bitpix > 0;
  }
  if (!hdu->compressed && ((out->direct == TFLOAT && hdu->bitpix == FLOAT_IMG) ||
                           (out->direct == TINT && hdu->bitpix == LONG_IMG))) {
    double scaling[2];
    MILL_CHECK(read_scaling(file, i_hdu, scaling));
    out->plain = scaling[0] == 1.0 && scaling[1] == 0.0;
  }
  return MILL_OK;
}

/* Pixels of one row, chunk by chunk through the buffer, as a row may be longer than that; out is
 * float or int32.  Returns CFITSIO's status. */
static int convert_row(mill_desi_file *file, const mill_desi_image *im, int64_t i_row,
                       int64_t row_pix, void *out)
{
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[im->i_hdu];
  const int is_real = im->convert == TDOUBLE;
  double double_nan = NAN;
  int any_null, status = 0; /* CFITSIO writes the first, even through a NULL */
  long first[3] = {1, 1, 1};
  first[hdu->n_axis - 1] = (long)i_row + 1;
  for (int64_t at = 0, n; at < row_pix && status == 0; at += n) {
    n = row_pix - at < CONVERT_BYTES / 8 ? row_pix - at : CONVERT_BYTES / 8;
    first[0] = (long)(at % hdu->axis[0]) + 1;
    if (hdu->n_axis == 3)
      first[1] = (long)(at / hdu->axis[0]) + 1;
    if (fits_read_pix(file->fits->fptr, im->convert, first, n,
                      im->fill_null && is_real ? &double_nan : NULL, file->convert, &any_null,
                      &status))
      break;
    if (is_real)
      mill_single_narrow(file->convert, (int)n, (float *)out + at);
    for (int64_t i = 0; !is_real && i < n; i++)
      ((int32_t *)out)[at + i] =
          mill_single_fold(((const uint64_t *)file->convert)[i] + im->offset);
  }
  return status;
}

/* Pixels of n_row rows of row_pix from first_row on; out is float or int32. */
static int read_run(mill_desi_file *file, const mill_desi_image *im, int64_t first_row,
                    int64_t n_row, int64_t row_pix, void *out)
{
  int status = 0;
  fitsfile *fptr = file->fits->fptr;
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[im->i_hdu];
  MILL_CHECK(mill_fits_file_move(file->fits, im->i_hdu));
  if (im->offset)
    fits_set_bscale(fptr, 1.0, 0.0, &status);
  if (im->direct) {
    float float_nan = NAN;
    int any_null;
    long first[3] = {1, 1, 1};
    first[hdu->n_axis - 1] = (long)first_row + 1;
    fits_read_pix(fptr, im->direct, first, n_row * row_pix,
                  im->fill_null && im->direct == TFLOAT ? &float_nan : NULL, out, &any_null,
                  &status);
  } else {
    if (!file->convert)
      MILL_CHECK(mill_alloc_bytes(CONVERT_BYTES, 1, &file->convert));
    for (int64_t i = 0; i < n_row && status == 0; i++)
      status = convert_row(file, im, first_row + i, row_pix, (char *)out + 4 * i * row_pix);
  }
  MILL_CHECK_FITS(file->fits, im->i_hdu, status, "rows %lld to %lld cannot be read",
                  (long long)first_row, (long long)(first_row + n_row - 1));
  return MILL_OK;
}

int mill_desi_read(mill_desi_file *file, int i_arm, const int64_t *fits_row, int n,
                   mill_desi_block *block)
{
  const char *path = file->fits->guard->path;
  if (i_arm < 0 || i_arm >= file->n_arm || file->arm[i_arm].info.n_pix == 0)
    return MILL_ERROR(MILL_ERR_RANGE, "%s: has no arm %d", path, i_arm);
  const mill_desi_file_arm *a = &file->arm[i_arm];
  if (block->resolution && a->info.n_diag == 0)
    return MILL_ERROR(MILL_ERR_RANGE, "%s: arm %s has no resolution matrix", path, a->prefix);
  for (int i = 0; i < n; i++)
    if (fits_row[i] < 0 || fits_row[i] >= file->n_spec)
      return MILL_ERROR(MILL_ERR_RANGE, "%s: row %lld is not among its %lld", path,
                        (long long)fits_row[i], (long long)file->n_spec);
  const int64_t n_pix = a->info.n_pix;
  const struct {
    const mill_desi_image *im;
    char *out;
    int64_t row_pix;
  } wanted[] = {{&a->flux, (char *)block->flux, n_pix},
                {&a->ivar, (char *)block->ivar, n_pix},
                {&a->mask, (char *)block->mask, n_pix},
                {&a->resolution, (char *)block->resolution, n_pix * a->info.n_diag}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    if (!wanted[i].out)
      continue;
    const size_t row_bytes = (size_t)wanted[i].row_pix * 4; /* float and int32 alike */
    if (wanted[i].im->i_hdu < 0) {
      memset(wanted[i].out, 0, (size_t)n * row_bytes);
      continue;
    }
    for (int start = 0, end; start < n; start = end) {
      end = start + 1;
      while (end < n && fits_row[end] == fits_row[end - 1] + 1)
        end++;
      const int64_t row_pix = wanted[i].row_pix, n_row = end - start;
      char *out = wanted[i].out + (size_t)start * row_bytes;
      if (wanted[i].im->plain)
        MILL_CHECK(mill_fits_file_words(file->fits, wanted[i].im->i_hdu, fits_row[start] * row_pix,
                                        n_row * row_pix, out));
      else
        MILL_CHECK(read_run(file, wanted[i].im, fits_row[start], n_row, row_pix, out));
    }
  }
  return MILL_OK;
}
