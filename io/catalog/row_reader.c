#include "io/catalog/row_reader.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/fits/fits_file.h"
#include "io/hdf5/hdf5_util.h"
#include "kernels/base/error.h"
#include "kernels/data/result.h"
#include "src/system/regular_file.h"

enum { WARN, STATUS, N_GOOD, N_COLUMN = MILL_READER_MAX_COLUMN + N_GOOD, MAX_NAME = 256 };

typedef struct column {
  int is_there;
  char name[MAX_NAME]; /* as asked for */
  char unit[MILL_READER_UNIT];
  mill_h5_array array; /* of HDF5 */
  int i_hdu, number;   /* of FITS */
} column;

struct mill_row_reader {
  const char *path; /* borrowed */
  mill_h5_file hdf5;
  mill_fits_file *fits; /* NULL: HDF5 */
  int n_name;
  column column[N_COLUMN]; /* the names', then what says whether a row is good */
  int64_t n_row;           /* -1: not yet known */
  double *scratch;         /* of is_good */
  int n_scratch;
};

static int take_rows(mill_row_reader *r, const column *c, int64_t n_row)
{
  if (r->n_row >= 0 && r->n_row != n_row)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: %s has %lld rows where %s has %lld: they are no columns of one "
                      "table",
                      r->path, c->name, (long long)n_row, r->column[0].name, (long long)r->n_row);
  r->n_row = n_row;
  return MILL_OK;
}

/* ---- HDF5 ---- */

/* Where a column is: a path, or in one of the groups, as it stands or in upper case. */
static int find_dataset(const mill_row_reader *r, const char *name, char path[MAX_NAME + 16])
{
  static const char *const group[] = {"", "fits/", "catalog/"};
  char upper[MAX_NAME];
  snprintf(upper, sizeof upper, "%s", name);
  for (char *c = upper; *c; c++)
    *c = (char)toupper((unsigned char)*c);
  for (int k = 0; k < 6; k++) {
    snprintf(path, MAX_NAME + 16, "%s%s", group[k % 3], k < 3 ? name : upper);
    while (path[0] == '/')
      memmove(path, path + 1, strlen(path));
    if (path[0] && mill_h5_exists(&r->hdf5, path))
      return 1;
  }
  return 0;
}

static int find_in_hdf5(mill_row_reader *r, const char *name, column *c)
{
  char path[MAX_NAME + 16];
  size_t n_row = 0;
  if (!find_dataset(r, name, path))
    return MILL_OK;
  const char *const file = r->path;
  H5O_info_t info;
  if (H5Oget_info_by_name(r->hdf5.id, path, &info, H5P_DEFAULT) < 0 ||
      info.type != H5O_TYPE_DATASET)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: /%s is no dataset: give the name of a column", file,
                      path);
  MILL_CHECK(mill_h5_shape(&r->hdf5, path, 1, &n_row));
  if (!mill_h5_array_open(r->hdf5.id, path, &c->array))
    return MILL_ERROR(MILL_ERR_INPUT, "%s: /%s cannot be opened as a dataset: %s", file, path,
                      mill_h5_reason());
  const H5T_class_t class = H5Tget_class(c->array.type);
  if ((class != H5T_FLOAT && class != H5T_INTEGER) ||
      H5Tget_size(c->array.type) > MILL_H5_MAX_NUMBER)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: /%s does not hold numbers: give a column that does",
                      file, path);
  if (n_row > 0 && H5Dget_storage_size(c->array.id) == 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: /%s was never written", file, path);
  if (mill_h5_has_attr(&r->hdf5, path, "unit") &&
      mill_h5_read_attr_text(&r->hdf5, path, "unit", c->unit, sizeof c->unit) != MILL_OK)
    c->unit[0] = '\0';
  MILL_CHECK(take_rows(r, c, (int64_t)n_row));
  c->is_there = 1;
  return MILL_OK;
}

static int read_hdf5(const mill_row_reader *r, const column *c, int64_t first, int n, double *out)
{
  int err = MILL_OK;
  const hsize_t start = (hsize_t)first, count = (hsize_t)n;
  const hid_t memory = H5Screate_simple(1, &count, NULL);
  if (memory < 0 ||
      H5Sselect_hyperslab(c->array.space, H5S_SELECT_SET, &start, NULL, &count, NULL) < 0 ||
      H5Dread(c->array.id, H5T_NATIVE_DOUBLE, memory, c->array.space, H5P_DEFAULT, out) < 0)
    MILL_FAIL(MILL_ERR_INPUT, "%s: column %s cannot be read: %s", r->path, c->name,
              mill_h5_reason());
done:
  MILL_H5_CLOSE(memory);
  return err;
}

/* ---- FITS ---- */

static int find_in_fits(mill_row_reader *r, const char *name, column *c)
{
  for (int i = 0; i < r->fits->guard->n_hdu && !c->is_there; i++) {
    mill_fits_column found;
    int is_there = 0, status = 0;
    char key[16];
    if (r->fits->guard->hdu[i].kind != MILL_FITS_TABLE)
      continue;
    MILL_CHECK(mill_fits_column_find(r->fits, i, name, &is_there, &found));
    if (!is_there)
      continue;
    const int type = found.type;
    if (found.repeat != 1 || !(type == TBYTE || type == TSBYTE || type == TSHORT || type == TLONG ||
                               type == TLONGLONG || type == TFLOAT || type == TDOUBLE))
      return MILL_ERROR_HDU(
          r->fits, i, ": column %s does not hold one number a row: give a column that does", name);
    snprintf(key, sizeof key, "TUNIT%d", found.number);
    char unit[FLEN_VALUE] = "";
    fits_read_key_str(r->fits->fptr, key, unit, NULL, &status);
    fits_clear_errmsg();
    snprintf(c->unit, sizeof c->unit, "%.*s", MILL_READER_UNIT - 1, unit);
    c->i_hdu = i;
    c->number = found.number;
    MILL_CHECK(take_rows(r, c, r->fits->guard->hdu[i].axis[1]));
    c->is_there = 1;
  }
  return MILL_OK;
}

static int read_fits(mill_row_reader *r, const column *c, int64_t first, int n, double *out)
{
  int status = 0;
  double none = NAN;
  MILL_CHECK(mill_fits_file_move(r->fits, c->i_hdu));
  fits_read_col(r->fits->fptr, TDOUBLE, c->number, first + 1, 1, n, &none, out, NULL, &status);
  MILL_CHECK_FITS(r->fits, c->i_hdu, status, "column %s cannot be read", c->name);
  return MILL_OK;
}

/* ---- both ---- */

static int find(mill_row_reader *r, const char *name, column *c)
{
  snprintf(c->name, sizeof c->name, "%s", name);
  return r->fits ? find_in_fits(r, name, c) : find_in_hdf5(r, name, c);
}

/* The file alone. */
static int open_file(const char *path, mill_row_reader **out)
{
  int err = MILL_OK;
  char first[4];
  mill_row_reader *r = NULL;
  MILL_TRY(MILL_ALLOC(1, &r));
  r->hdf5.id = H5I_INVALID_HID;
  r->n_row = -1;
  r->path = path;
  if (mill_first_bytes(path, first, sizeof first) == 4 && memcmp(first, "\x89HDF", 4) == 0) {
    MILL_TRY(mill_h5_open(path, MILL_ERR_INPUT, &r->hdf5));
    MILL_TRY(mill_h5_scan(&r->hdf5));
  } else {
    MILL_TRY(mill_fits_file_open(path, NULL, &r->fits));
  }
  *out = r;
  r = NULL;
done:
  mill_row_reader_close(r);
  return err;
}

int mill_row_reader_open(const char *path, int n_name, const char *const *name,
                         mill_row_reader **out)
{
  int err = MILL_OK;
  mill_row_reader *r = NULL;
  *out = NULL;
  MILL_TRY(open_file(path, &r));
  r->n_name = n_name;
  for (int i = 0; i < n_name; i++) {
    if (strlen(name[i]) >= MAX_NAME)
      MILL_FAIL(MILL_ERR_USAGE, "the name of a column has %zu bytes, more than %d", strlen(name[i]),
                MAX_NAME - 1);
    MILL_TRY(find(r, name[i], &r->column[i]));
    if (!r->column[i].is_there)
      MILL_FAIL(MILL_ERR_INPUT, "%s: has no column %s%s", path, name[i],
                r->fits ? " in its tables" : " in /fits, /catalog or /");
  }
  MILL_TRY(find(r, "RVS_WARN", &r->column[n_name + WARN]));
  if (!r->fits && mill_h5_exists(&r->hdf5, "fits/STATUS"))
    MILL_TRY(find(r, "fits/STATUS", &r->column[n_name + STATUS]));
  *out = r;
  r = NULL;
done:
  mill_row_reader_close(r);
  return err;
}

int64_t mill_row_reader_n_row(const mill_row_reader *r)
{
  return r->n_row;
}

const char *mill_row_reader_unit(const mill_row_reader *r, int i_name)
{
  return r->column[i_name].unit;
}

int mill_row_reader_knows_good(const mill_row_reader *r)
{
  return r->column[r->n_name + WARN].is_there || r->column[r->n_name + STATUS].is_there;
}

int mill_row_reader_has(const char *path, int n_name, const char *const *name, int *found)
{
  int err = MILL_OK;
  mill_row_reader *r = NULL;
  MILL_TRY(open_file(path, &r));
  *found = 1;
  for (int i = 0; i < n_name && *found; i++)
    *found = find(r, name[i], &r->column[i]) == MILL_OK && r->column[i].is_there;
done:
  mill_row_reader_close(r);
  return err;
}

static int read_column(mill_row_reader *r, int i, int64_t first, int n, double *out)
{
  return r->fits ? read_fits(r, &r->column[i], first, n, out)
                 : read_hdf5(r, &r->column[i], first, n, out);
}

int mill_row_reader_read(mill_row_reader *r, int64_t first, int n, double *const *value,
                         unsigned char *is_good)
{
  for (int i = 0; i < r->n_name; i++)
    MILL_CHECK(read_column(r, i, first, n, value[i]));
  if (!is_good)
    return MILL_OK;
  memset(is_good, 1, (size_t)n);
  if (n > r->n_scratch) {
    mill_free(r->scratch);
    r->scratch = NULL;
    MILL_CHECK(MILL_ALLOC(n, &r->scratch));
    r->n_scratch = n;
  }
  for (int k = 0; k < N_GOOD; k++) {
    if (!r->column[r->n_name + k].is_there)
      continue;
    MILL_CHECK(read_column(r, r->n_name + k, first, n, r->scratch));
    const double good = k == STATUS ? MILL_STATUS_FITTED : 0;
    for (int i = 0; i < n; i++)
      is_good[i] = is_good[i] && r->scratch[i] == good;
  }
  return MILL_OK;
}

void mill_row_reader_close(mill_row_reader *r)
{
  if (!r)
    return;
  for (int i = 0; i < N_COLUMN; i++)
    mill_h5_array_close(&r->column[i].array);
  mill_h5_close(&r->hdf5);
  mill_fits_file_close(r->fits);
  MILL_FREE(r->scratch, r);
}
