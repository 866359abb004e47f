/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/desi_file.h"
#include "io/surveys/single_spectrum.h"
#include "kernels/base/memory.h"

/* Find out how the pixels of an image are stored. */
int mill_desi_take_image(mill_desi_file *file, int i_hdu, int is_mask, mill_desi_image *out)
{
  int type = 0, status = 0;
  double scale = 1.0, zero = 0.0;
  *out = (mill_desi_image){.i_hdu = i_hdu, .is_mask = is_mask};
  MILL_CHECK(mill_fits_file_move(file->fits, i_hdu));
  const mill_fits_hdu *hdu = &file->fits->guard->hdu[i_hdu];
  /* the type after BSCALE and BZERO */
  MILL_CHECK_FITS(file->fits, i_hdu, fits_get_img_equivtype(file->fits->fptr, &type, &status),
                  "its type cannot be found");
  if (is_mask && (type == FLOAT_IMG || type == DOUBLE_IMG))
    return MILL_ERROR_HDU(file->fits, i_hdu, " must hold integers; make the file again");
  MILL_CHECK(mill_single_key_double(file->fits, i_hdu, "BSCALE", &scale, NULL));
  MILL_CHECK(mill_single_key_double(file->fits, i_hdu, "BZERO", &zero, NULL));
  out->plain = !hdu->compressed && hdu->bitpix == (is_mask ? LONG_IMG : FLOAT_IMG) &&
               scale == 1.0 && zero == 0.0;
  out->is_wide = is_mask && type == LONGLONG_IMG;
  if (out->is_wide)
    MILL_CHECK(mill_single_mask_offset(file->fits, i_hdu, "", scale, zero, &out->offset));
  return MILL_OK;
}

/* Read a row of an image that is scaled, compressed, or stored in another type than out.  Floats
 * are read as doubles, since CFITSIO cannot convert infinity. */
static int convert_row(mill_desi_file *file, const mill_desi_image *im, int64_t i_row, int row_pix,
                       void *out)
{
  int any_null, status = 0; /* CFITSIO writes any_null even where NULL is allowed */
  long first[2] = {1, (long)i_row + 1};
  if (!im->is_mask) {
    MILL_CHECK(mill_fits_image_row(file->fits, im->i_hdu, i_row, row_pix, file->convert));
    mill_single_narrow(file->convert, row_pix, out);
    return MILL_OK;
  }
  /* read masks of up to 32 bits as doubles: CFITSIO fails to read compressed masks as int64 */
  const uint64_t *wide = (const uint64_t *)(const void *)file->convert;
  fits_read_pix(file->fits->fptr, im->is_wide ? TLONGLONG : TDOUBLE, first, row_pix, NULL,
                file->convert, &any_null, &status);
  MILL_CHECK_FITS(file->fits, im->i_hdu, status, "row %lld cannot be read", (long long)i_row);
  for (int i = 0; i < row_pix; i++)
    ((int32_t *)out)[i] =
        mill_single_fold(im->is_wide ? wide[i] + im->offset : (uint64_t)(int64_t)file->convert[i]);
  return MILL_OK;
}

int mill_desi_read(mill_desi_file *file, const mill_desi_image *im, const int64_t *fits_row, int n,
                   int64_t row_pix, size_t pitch, void *out)
{
  int status = 0;
  char *to = out;
  if (!im->plain) {
    if (file->convert_room < (size_t)row_pix)
      MILL_CHECK(MILL_RENEW(&file->convert, &file->convert_room, row_pix));
    MILL_CHECK(mill_fits_file_move(file->fits, im->i_hdu));
    if (im->offset)
      fits_set_bscale(file->fits->fptr, 1.0, 0.0, &status);
    MILL_CHECK_FITS(file->fits, im->i_hdu, status, "its scaling cannot be changed");
  }
  for (int i = 0; i < n; i++, to += pitch)
    if (im->plain)
      MILL_CHECK(mill_fits_file_words(file->fits, im->i_hdu, fits_row[i] * row_pix, row_pix, to));
    else
      MILL_CHECK(convert_row(file, im, fits_row[i], (int)row_pix, to));
  return MILL_OK;
}
