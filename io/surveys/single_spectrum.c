#include "io/surveys/single_spectrum.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/surveys/selection.h"
#include "kernels/base/error.h"

#define HDU_FORMAT "%s: HDU %d%s%s%s: "
/* the primary has no name */
#define HDU_VALUES(file, i)                                                                        \
  (file)->guard->path, (i) + 1, (file)->guard->hdu[i].name[0] ? " (" : "",                         \
      (file)->guard->hdu[i].name, (file)->guard->hdu[i].name[0] ? ")" : ""

/* ---- memory ----------------------------------------------------------- */

void mill_single_clear(mill_single_spectrum *spectrum)
{
  if (!spectrum)
    return;
  mill_free(spectrum->wave_aa);
  mill_free(spectrum->number);
  mill_free(spectrum->flux);
  mill_free(spectrum->ivar);
  mill_free(spectrum->sigma_aa);
  mill_free(spectrum->mask);
  memset(spectrum, 0, sizeof *spectrum);
}

int mill_single_resize(mill_single_spectrum *spectrum, int n_pix)
{
  int err = MILL_OK;
  if (n_pix > spectrum->capacity) {
    mill_single_clear(spectrum);
    MILL_TRY(MILL_ALLOC(n_pix, &spectrum->wave_aa));
    MILL_TRY(MILL_ALLOC(n_pix, &spectrum->number));
    MILL_TRY(MILL_ALLOC(n_pix, &spectrum->flux));
    MILL_TRY(MILL_ALLOC(n_pix, &spectrum->ivar));
    MILL_TRY(MILL_ALLOC(n_pix, &spectrum->sigma_aa));
    MILL_TRY(MILL_ALLOC(n_pix, &spectrum->mask));
    spectrum->capacity = n_pix;
  }
  spectrum->n_pix = n_pix;
done:
  if (err != MILL_OK)
    mill_single_clear(spectrum);
  return err;
}

/* ---- headers ---------------------------------------------------------- */

int mill_single_find_table(const mill_fits_guard *guard, const char *name)
{
  for (int i = 0; i < guard->n_hdu; i++)
    if (guard->hdu[i].kind == MILL_FITS_TABLE && strcmp(guard->hdu[i].name, name) == 0)
      return i;
  return -1;
}

static int read_key(mill_fits_file *file, int i_hdu, const char *key, int type, const char *kind,
                    void *out, int *found)
{
  int err = MILL_OK;
  int status = 0;
  MILL_TRY(mill_fits_file_move(file, i_hdu));
  fits_read_key(file->fptr, type, key, out, NULL, &status);
  fits_clear_errmsg();
  /* a keyword without a value is one that is not there */
  *found = status == 0;
  if (status != 0 && status != KEY_NO_EXIST && status != VALUE_UNDEFINED)
    MILL_FAIL(MILL_ERR_INPUT,
              HDU_FORMAT "keyword %s must hold %s (CFITSIO %d); fetch the file again",
              HDU_VALUES(file, i_hdu), key, kind, status);
done:
  return err;
}

int mill_single_key_text(mill_fits_file *file, int i_hdu, const char *key, char *out, size_t size,
                         int *found)
{
  int err = MILL_OK;
  char value[FLEN_VALUE] = "";
  MILL_TRY(read_key(file, i_hdu, key, TSTRING, "text", value, found));
  if (*found)
    mill_fits_text_copy(file->guard->path, key, value, out, size);
done:
  return err;
}

int mill_single_key_double(mill_fits_file *file, int i_hdu, const char *key, double *out,
                           int *found)
{
  int err = MILL_OK;
  double value = 0.0;
  MILL_TRY(read_key(file, i_hdu, key, TDOUBLE, "a number", &value, found));
  if (*found)
    *out = value;
done:
  return err;
}

/* CFITSIO 4.2 writes beyond a buffer of its own when a long value is no integer, but not when it
 * is no number. */
int mill_single_key_int32(mill_fits_file *file, int i_hdu, const char *key, int32_t *out,
                          int *found)
{
  int err = MILL_OK;
  double value = 0.0;
  MILL_TRY(read_key(file, i_hdu, key, TDOUBLE, "an integer of 32 bits", &value, found));
  /* written so that NaN fails */
  if (!(value >= (double)INT32_MIN && value <= (double)INT32_MAX))
    MILL_FAIL(MILL_ERR_INPUT,
              HDU_FORMAT "keyword %s must hold an integer of 32 bits, not %g; fetch the file again",
              HDU_VALUES(file, i_hdu), key, value);
  if (*found)
    *out = (int32_t)value;
done:
  return err;
}

int mill_single_key_logical(mill_fits_file *file, int i_hdu, const char *key, int *out, int *found)
{
  int err = MILL_OK;
  int value = 0;
  MILL_TRY(read_key(file, i_hdu, key, TLOGICAL, "T or F", &value, found));
  if (*found)
    *out = value;
done:
  return err;
}

int mill_single_frame(mill_fits_file *file, int i_hdu, int *frame)
{
  int err = MILL_OK;
  int corrected = 0, found;
  double velocity;
  *frame = MILL_FRAME_UNKNOWN;
  MILL_TRY(mill_single_key_logical(file, i_hdu, "HELIO", &corrected, &found));
  if (found) {
    *frame = corrected ? MILL_FRAME_HELIOCENTRIC : MILL_FRAME_TOPOCENTRIC;
  } else {
    MILL_TRY(mill_single_key_double(file, i_hdu, "HELIO_RV", &velocity, &found));
    if (found)
      *frame = MILL_FRAME_HELIOCENTRIC;
  }
done:
  return err;
}

int mill_single_medium(mill_fits_file *file, int i_hdu, int *air)
{
  int err = MILL_OK;
  int vacuum = 1, found;
  MILL_TRY(mill_single_key_logical(file, i_hdu, "VACUUM", &vacuum, &found));
  *air = !vacuum;
done:
  return err;
}

/* ---- pixels ----------------------------------------------------------- */

/* Number of a column of numbers and how many there are in a row. */
static int find_column(mill_fits_file *file, int i_hdu, const char *column, int *number,
                       int64_t *repeat)
{
  int err = MILL_OK;
  int type = 0, status = 0;
  LONGLONG n_value = 0, width = 0;
  char template[FLEN_VALUE];
  if (file->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
    MILL_FAIL(MILL_ERR_INPUT, HDU_FORMAT "is no binary table, so there is no column %s",
              HDU_VALUES(file, i_hdu), column);
  MILL_TRY(mill_fits_file_move(file, i_hdu));
  snprintf(template, sizeof template, "%s", column);
  fits_get_colnum(file->fptr, CASEINSEN, template, number, &status);
  if (status == COL_NOT_FOUND) {
    fits_clear_errmsg();
    MILL_FAIL(MILL_ERR_INPUT, HDU_FORMAT "has no column %s, which is needed",
              HDU_VALUES(file, i_hdu), column);
  }
  if (status == 0)
    fits_get_coltypell(file->fptr, *number, &type, &n_value, &width, &status);
  if (status != 0) {
    char what[128];
    snprintf(what, sizeof what, "column %s cannot be found", column);
    err = mill_fits_file_error(file, i_hdu, what, status);
    goto done;
  }
  /* negative: a column of variable length */
  if (type != TBYTE && type != TSBYTE && type != TSHORT && type != TLONG && type != TLONGLONG &&
      type != TFLOAT && type != TDOUBLE)
    MILL_FAIL(MILL_ERR_INPUT, HDU_FORMAT "column %s must hold a fixed number of numbers",
              HDU_VALUES(file, i_hdu), column);
  *repeat = n_value;
done:
  return err;
}

static int count_pixels(mill_fits_file *file, int i_hdu, const char *column, int *n_pix)
{
  int err = MILL_OK;
  int number = 0;
  int64_t repeat = 0;
  MILL_TRY(find_column(file, i_hdu, column, &number, &repeat));
  const int64_t n_row = file->guard->hdu[i_hdu].axis[1];
  const int64_t n = n_row == 1 ? repeat : n_row;
  if (n < 2 || n > MILL_SINGLE_MAX_PIX || (n_row != 1 && repeat != 1))
    MILL_FAIL(MILL_ERR_INPUT,
              HDU_FORMAT "%lld rows with %lld values of column %s each are no spectrum: one row a "
                         "pixel or one row with all, of 2 to %d pixels; fetch the file again",
              HDU_VALUES(file, i_hdu), (long long)n_row, (long long)repeat, column,
              MILL_SINGLE_MAX_PIX);
  *n_pix = (int)n;
done:
  return err;
}

/* Number of a column that has one value for each of n_pix pixels. */
static int find_pixels(mill_fits_file *file, int i_hdu, const char *column, int n_pix, int *number)
{
  int err = MILL_OK;
  int64_t repeat = 0;
  MILL_TRY(find_column(file, i_hdu, column, number, &repeat));
  const int64_t n_row = file->guard->hdu[i_hdu].axis[1];
  if (n_row == 1 ? repeat != n_pix : n_row != n_pix || repeat != 1)
    MILL_FAIL(MILL_ERR_INPUT,
              HDU_FORMAT "column %s has %lld rows of %lld values, but the spectrum has %d pixels; "
                         "fetch the file again",
              HDU_VALUES(file, i_hdu), column, (long long)n_row, (long long)repeat, n_pix);
done:
  return err;
}

int mill_single_check_columns(mill_fits_file *file, int i_hdu, const char *const *column,
                              int n_column, int *n_pix)
{
  int err = MILL_OK;
  int number;
  MILL_TRY(count_pixels(file, i_hdu, column[0], n_pix));
  for (int i = 1; i < n_column; i++)
    MILL_TRY(find_pixels(file, i_hdu, column[i], *n_pix, &number));
done:
  return err;
}

int mill_single_column(mill_fits_file *file, int i_hdu, const char *column, int n_pix, double *out)
{
  int err = MILL_OK;
  int number = 0, status = 0;
  MILL_TRY(find_pixels(file, i_hdu, column, n_pix, &number));
  /* no value is substituted for nulls, so that NaN stays NaN */
  if (fits_read_col(file->fptr, TDOUBLE, number, 1, 1, n_pix, NULL, out, NULL, &status)) {
    char what[128];
    snprintf(what, sizeof what, "column %s cannot be read", column);
    err = mill_fits_file_error(file, i_hdu, what, status);
  }
done:
  return err;
}

int mill_single_check_wave(const mill_fits_file *file, int i_hdu, const char *what, int n_pix,
                           const double *wave_aa)
{
  int err = MILL_OK;
  for (int i = 0; i < n_pix; i++)
    if (!isfinite(wave_aa[i]) || wave_aa[i] <= (i > 0 ? wave_aa[i - 1] : 0.0))
      MILL_FAIL(MILL_ERR_INPUT,
                HDU_FORMAT "%s: the wavelength of pixel %d is %g A, but they must be positive and "
                           "ascending; fetch the file again",
                HDU_VALUES(file, i_hdu), what, i, wave_aa[i]);
done:
  return err;
}

void mill_single_narrow(const double *value, int n_pix, float *out)
{
  for (int i = 0; i < n_pix; i++) {
    if (fabs(value[i]) > (double)FLT_MAX)
      out[i] = value[i] > 0.0 ? INFINITY : -INFINITY;
    else
      out[i] = (float)value[i];
  }
}

int mill_single_mask(const mill_fits_file *file, int i_hdu, const char *what, const double *value,
                     int n_pix, int32_t *out)
{
  int err = MILL_OK;
  for (int i = 0; i < n_pix; i++) {
    /* signed or unsigned; written so that NaN fails */
    if (!(value[i] >= (double)INT32_MIN && value[i] <= (double)UINT32_MAX) ||
        value[i] != floor(value[i]))
      MILL_FAIL(MILL_ERR_INPUT,
                HDU_FORMAT "%s: the mask of pixel %d is %g, but masks are integers of 32 bits; "
                           "fetch the file again",
                HDU_VALUES(file, i_hdu), what, i, value[i]);
    out[i] = (int32_t)(uint32_t)(int64_t)value[i];
  }
done:
  return err;
}

/* ---- index ------------------------------------------------------------ */

void mill_single_row_init(mill_catalog_row *row)
{
  memset(row, 0, sizeof *row);
  row->target_id = row->ref_id = row->fiber = row->exp_id = -1;
  row->target_ra = row->target_dec = row->z = NAN;
}

int mill_single_index(const mill_fits_file *file, const mill_single_object *object,
                      const mill_selection *select, mill_file_index *index)
{
  int err = MILL_OK;
  const int n = object->n_exposure;
  memset(index, 0, sizeof *index);
  index->n_fits_row = 1;
  index->file_size = file->guard->file_size;
  index->file_mtime = file->guard->file_mtime;
  const int kept = mill_selection_keeps_target(select, object->row.target_id) &&
                   mill_selection_keeps_objtype(select, object->objtype) &&
                   mill_selection_keeps_redrock(select, object->row.z, object->row.spectype);
  const int n_row = !kept ? 0 : object->joint ? 1 : n;
  index->n_row = n_row;
  index->n_exposure = kept ? n : 0;
  MILL_TRY(MILL_ALLOC(n_row, &index->row));
  MILL_TRY(MILL_ALLOC(index->n_exposure, &index->exposure_row));
  MILL_TRY(MILL_ALLOC(index->n_exposure, &index->exposure_id));
  for (int i = 0; i < index->n_exposure; i++) {
    index->exposure_row[i] = object->exposure[i];
    index->exposure_id[i] = object->exposure_id[i];
  }
  for (int i = 0; i < n_row; i++) {
    mill_catalog_row *row = &index->row[i];
    *row = object->row;
    row->first_exposure = i;
    row->n_exposure = object->joint ? n : 1;
    row->fits_row = object->exposure[i];
    row->exp_id = row->n_exposure == 1 ? object->exposure_id[i] : -1;
  }
done:
  if (err != MILL_OK)
    mill_file_index_clear(index);
  return err;
}
