/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/catalog/prior_table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "src/system/log.h"

enum { COLUMN_SIZE = FLEN_VALUE, STAR_SIZE = 128 };
/* Keys of a star, most specific first: a prior may be meant for a single spectrum. */
static const enum mill_star_key order[MILL_N_STAR_KEY] = {MILL_BY_IDENTIFIER, MILL_BY_TARGETID,
                                                          MILL_BY_OBJECT, MILL_BY_PLACE};
#define ERROR_END "_ERR"
static const double FAR = 5.0; /* in errors; priors further outside their range are reported */

struct mill_prior_table {
  int n_pair, pair[MILL_MAX_PAR]; /* parameter of each pair of columns; -1: not in `own` */
  double *prior;                  /* [n_row][n_pair][2] value and error; error 0: no prior */
  mill_star_rows star;
  int64_t n_beyond;             /* priors more than FAR errors outside the fit's range */
  char beyond[STAR_SIZE + 128]; /* the first of these priors, for a message */
};

/* An open FITS or HDF5 table. */
typedef struct source {
  const char *path;
  int is_hdf5, i_hdu;
  mill_fits_file *fits;
  mill_h5_file h5;
  int64_t n_row;
  int n_column;
  char (*column)[COLUMN_SIZE];
} source;

/* ---- columns of either kind of file ---- */

/* Open the file; list the columns of the first table that identifies stars, if there is one. */
static int open_fits(source *s, const mill_open_limits *limits)
{
  MILL_CHECK(mill_fits_file_open(s->path, limits, &s->fits));
  const mill_fits_guard *guard = s->fits->guard;
  int status = 0;
  while (s->i_hdu < guard->n_hdu &&
         (guard->hdu[s->i_hdu].kind != MILL_FITS_TABLE || !mill_star_columns_of(s->fits, s->i_hdu)))
    s->i_hdu++;
  if (s->i_hdu == guard->n_hdu)
    return MILL_OK;
  s->n_row = guard->hdu[s->i_hdu].axis[1];
  fits_get_num_cols(s->fits->fptr, &s->n_column, &status); /* mill_star_columns_of moved to i_hdu */
  MILL_CHECK(mill_alloc_bytes((size_t)s->n_column, sizeof *s->column, (void **)&s->column));
  for (int i = 0; i < s->n_column && status == 0; i++) {
    char key[FLEN_KEYWORD];
    int no_name = 0;
    snprintf(key, sizeof key, "TTYPE%d", i + 1);
    fits_read_key(s->fits->fptr, TSTRING, key, s->column[i], NULL, &no_name);
    if (no_name != 0)
      fits_clear_errmsg();
  }
  MILL_CHECK_FITS(s->fits, s->i_hdu, status, "its columns");
  return MILL_OK;
}

static int find_column(const source *s, const char *name)
{
  for (int i = 0; i < s->n_column; i++)
    if (strcasecmp(s->column[i], name) == 0)
      return i;
  return -1;
}

/* Call mill_star_columns_wanted for the open table. */
static int columns_wanted(const source *s)
{
  int has[MILL_N_STAR_COLUMN];
  for (int k = 0; k < MILL_N_STAR_COLUMN; k++)
    has[k] = find_column(s, mill_star_column[k].name) >= 0;
  return mill_star_columns_wanted(has);
}

/* Open the file, and list the links of its root, the columns. */
static int open_hdf5(source *s)
{
  H5G_info_t info;
  size_t n_row = 0;
  MILL_CHECK(mill_h5_open(s->path, MILL_ERR_CONFIG, &s->h5));
  MILL_CHECK(mill_h5_scan(&s->h5));
  if (H5Gget_info(s->h5.id, &info) < 0)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: cannot be read: %s", s->path, mill_h5_reason());
  MILL_CHECK(mill_alloc_bytes((size_t)info.nlinks, sizeof *s->column, (void **)&s->column));
  for (hsize_t l = 0; l < info.nlinks; l++) {
    char *name = s->column[s->n_column];
    const ssize_t n = H5Lget_name_by_idx(s->h5.id, ".", H5_INDEX_NAME, H5_ITER_INC, l, name,
                                         COLUMN_SIZE, H5P_DEFAULT);
    if (n > 0 && n < COLUMN_SIZE) /* skip longer names: no column of a prior table has one */
      s->n_column++;
  }
  int column = -1; /* any star's column gives the number of rows */
  for (int k = 0; k < MILL_N_STAR_COLUMN && column < 0; k++)
    column = find_column(s, mill_star_column[k].name);
  if (column >= 0)
    MILL_CHECK(mill_h5_shape(&s->h5, s->column[column], 1, &n_row));
  s->n_row = (int64_t)n_row;
  return MILL_OK;
}

static int read_double(source *s, const char *column, double *out)
{
  const size_t n_row = (size_t)s->n_row;
  return s->is_hdf5 ? mill_h5_read(&s->h5, column, H5T_NATIVE_DOUBLE, 1, &n_row, out)
                    : mill_fits_column_double(s->fits, s->i_hdu, column, out, NULL);
}

/* Read the columns that identify stars; no positions if the table has names or TARGETIDs. */
static int read_star_columns(source *s, mill_fits_values *v)
{
  const int n = columns_wanted(s);
  const size_t n_row = (size_t)s->n_row;
  if (!s->is_hdf5)
    return mill_star_columns_read(s->fits, s->i_hdu, v);
  MILL_CHECK(mill_fits_columns_missing(mill_star_column, n, s->n_row, v));
  for (int k = 0; k < n; k++) {
    const int column = find_column(s, mill_star_column[k].name);
    if (column < 0)
      continue;
    const char *name = s->column[column];
    v[k].there = 1;
    if (mill_star_column[k].as == MILL_AS_TEXT)
      MILL_CHECK(mill_star_texts_read(&s->h5, name, s->n_row, &v[k]));
    else if (mill_star_column[k].as == MILL_AS_INT64)
      MILL_CHECK(mill_h5_read(&s->h5, name, H5T_NATIVE_INT64, 1, &n_row, v[k].i64));
    else
      MILL_CHECK(read_double(s, name, v[k].f64));
  }
  return MILL_OK;
}

/* ---- pairs ---- */

/* Return the parameter whose name is the n characters at text; -1: none. */
static int find_parameter(const mill_library *lib, const char *text, size_t n)
{
  for (int j = 0; j < MILL_PAR_LABEL0 + lib->n_label; j++) {
    const char *name[2];
    mill_star_table_names(lib, j, name);
    for (int k = 0; k < 2 && name[k]; k++)
      if (strlen(name[k]) == n && strncasecmp(name[k], text, n) == 0)
        return j;
  }
  return -1;
}

/* Return the parameter of column i, called NAME or NAME_ERR; -1: none.  *other: column of the
 * pair's other half; -1: missing. */
static int find_pair(const source *s, const mill_library *lib, int i, int *is_error, int *other)
{
  const char *name = s->column[i];
  size_t n = strlen(name), n_end = sizeof ERROR_END - 1;
  char wanted[COLUMN_SIZE + sizeof ERROR_END];
  *is_error = n > n_end && strcasecmp(name + n - n_end, ERROR_END) == 0;
  n -= *is_error ? n_end : 0;
  snprintf(wanted, sizeof wanted, "%.*s%s", (int)n, name, *is_error ? "" : ERROR_END);
  *other = find_column(s, wanted);
  return find_parameter(lib, name, n);
}

/* Refuse a TUNIT of column i that is not `wanted`, the result's unit, if this is km/s or K; other
 * units have too many spellings.  Only the letters and digits of TUNIT count, in lower case. */
static int check_unit(const source *s, int i, const char *wanted)
{
  int status = 0;
  const int is_k = strcmp(wanted, "K") == 0, is_known = is_k || strcmp(wanted, "km/s") == 0;
  char key[FLEN_KEYWORD], unit[FLEN_VALUE] = "", plain[FLEN_VALUE + 2] = " ";
  snprintf(key, sizeof key, "TUNIT%d", i + 1);
  if (!s->is_hdf5 && fits_read_key(s->fits->fptr, TSTRING, key, unit, NULL, &status) != 0)
    fits_clear_errmsg();
  for (const char *c = unit; *c; c++)
    if (isalnum((unsigned char)*c))
      plain[strlen(plain)] = (char)tolower((unsigned char)*c);
  strcat(plain, " "); /* plain is between blanks, so that strstr finds whole words */
  if (unit[0] && is_known && !strstr(is_k ? " k kelvin " : " kms kms1 kmsec ", plain))
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "prior_table: %s: column %s is in %s; convert it to the result's unit, %s",
                      s->path, s->column[i], unit, wanted);
  return MILL_OK;
}

/* If column i holds a parameter's values, set column[parameter][0] to i and [1] to the column of
 * their errors.  Fail if only one half of the pair exists, if it is a pair of no parameter, or if
 * a TUNIT is not the result's.  lib has the parameters that the table may name; own, the library of
 * the fit, may lack some of them. */
static int take_column(const source *s, const mill_library *lib, const mill_library *own,
                       const mill_fit_settings *set, int i, int column[][2])
{
  int is_error, other;
  const char *name = s->column[i];
  const int j = find_pair(s, lib, i, &is_error, &other); /* the parameter; -1: none */
  if (j < 0 && !(is_error && other >= 0))
    return MILL_OK; /* neither a parameter nor the error of another column */
  if (j < 0) {      /* a pair, perhaps of a misspelt parameter */
    char all[MILL_MAX_PAR * MILL_MAX_NAME] = "";
    for (int k = 0; k < MILL_PAR_LABEL0 + lib->n_label; k++) {
      const char *one[2];
      const size_t n = strlen(all);
      mill_star_table_names(lib, k, one);
      snprintf(all + n, sizeof all - n, " %s", one[0]);
    }
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "prior_table: %s has columns %s and %s, but the library has no parameter %s, "
                      "only%s: rename or remove the columns",
                      s->path, s->column[other], name, s->column[other], all);
  }
  if (other < 0)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "prior_table: %s has a column %s but no column %.*s%s; a prior needs both",
                      s->path, name, (int)strlen(name) - (is_error ? (int)sizeof ERROR_END - 1 : 0),
                      name, is_error ? "" : ERROR_END);
  if (is_error)
    return MILL_OK; /* the pair is taken when i is the column of values */
  const int i_own = find_parameter(own, name, strlen(name)); /* -1: own lacks the label */
  if (i_own >= 0 && set->fixed[i_own])
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "prior_table: %s has priors of %s, which is fixed: remove it from the table "
                      "or from fix_param",
                      s->path, name);
  if (column[j][0] >= 0)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "prior_table: %s has columns %s and %s of one parameter: remove one", s->path,
                      s->column[column[j][0]], name);
  const char *unit = j < MILL_PAR_LABEL0 ? "km/s" : lib->label[j - MILL_PAR_LABEL0].unit;
  MILL_CHECK(check_unit(s, i, unit));
  MILL_CHECK(check_unit(s, other, unit));
  column[j][0] = i;
  column[j][1] = other;
  return MILL_OK;
}

static int is_far(const double range[2], double mean, double sigma)
{
  return mean < range[0] - FAR * sigma || mean > range[1] + FAR * sigma;
}

int mill_prior_check(const mill_library *lib, int n_lib, const mill_fit_settings *set, int is_loud)
{
  for (int j = 0; j < MILL_PAR_LABEL0 + lib->n_label; j++) {
    const double mean = set->prior_mean[j], sigma = set->prior_sigma[j];
    const char *name[2];
    double range[2];
    mill_star_table_names(lib, j, name);
    mill_star_table_range(lib, n_lib, set, j, range);
    if (sigma > 0.0 && is_far(range, mean, sigma))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "priors: %s %g +- %g lies more than five times its error outside the range "
                        "%g to %g; give it in the result's unit",
                        name[0], mean, sigma, range[0], range[1]);
    if (is_loud && sigma > 0.0 && (mean < range[0] || mean > range[1]))
      mill_log_warning("priors: %s %g +- %g is centred outside its range, %g to %g, and pulls "
                       "stars to the edge: check the mean",
                       name[0], mean, sigma, range[0], range[1]);
  }
  return MILL_OK;
}

/* Read the priors of pair k for all rows.  value, error [n_row]: work space. */
static int read_pair(source *s, const int column[2], int k, const double range[2],
                     mill_prior_table *t, double *value, double *error)
{
  MILL_CHECK(read_double(s, s->column[column[0]], value));
  MILL_CHECK(read_double(s, s->column[column[1]], error));
  for (int64_t i = 0; i < t->star.n_row; i++) {
    const mill_star_row *star = &t->star.row[i];
    const int64_t row = star->row;
    double *prior = &t->prior[(row * t->n_pair + k) * 2];
    char text[STAR_SIZE];
    if (isnan(value[row]) || isnan(error[row]))
      continue; /* error stays 0: no prior */
    if (!isfinite(value[row]) || !(error[row] > 0.0 && isfinite(error[row])))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "prior_table: %s: %s of %s is %g +- %g: give a value and an error above 0, "
                        "or NaN for no prior",
                        s->path, s->column[column[0]], mill_star_row_text(&t->star, star, text),
                        value[row], error[row]);
    prior[0] = value[row];
    prior[1] = error[row];
    if (is_far(range, value[row], error[row]) && t->n_beyond++ == 0)
      snprintf(t->beyond, sizeof t->beyond, "%s %g +- %g of %s", s->column[column[0]], value[row],
               error[row], mill_star_row_text(&t->star, star, text));
  }
  return MILL_OK;
}

/* ---- stars ---- */

/* Index the rows by star; fail if a star has two rows. */
static int read_stars(source *s, mill_prior_table *t)
{
  MILL_FITS_VALUES(v, MILL_N_STAR_COLUMN);
  char text[STAR_SIZE];
  t->star = (mill_star_rows){.key = "prior_table", .path = s->path, .order = order};
  MILL_CHECK(read_star_columns(s, v));
  MILL_CHECK(mill_star_rows_make(v, s->n_row, NULL, &t->star));
  if (t->star.n_repeated > 0)
    return MILL_ERROR(MILL_ERR_CONFIG, "prior_table: %s has two rows of %s: give each star one",
                      s->path, mill_star_row_text(&t->star, &t->star.repeated, text));
  return MILL_OK;
}

/* Hash the names of the parameters with priors, then keys and priors of all rows. */
static void digest(const mill_library *lib, mill_prior_table *t)
{
  mill_sha256 sha;
  mill_sha256_init(&sha);
  for (int k = 0; k < t->n_pair; k++) {
    const char *name[2];
    mill_star_table_names(lib, t->pair[k], name);
    mill_sha256_update(&sha, name[0], strlen(name[0]) + 1);
  }
  for (int64_t i = 0; i < t->star.n_row; i++) {
    const mill_star_row *row = &t->star.row[i];
    mill_star_row_hash(row, &sha);
    mill_sha256_update(&sha, t->prior + row->row * t->n_pair * 2,
                       (size_t)t->n_pair * 2 * sizeof *t->prior);
  }
  mill_sha256_final(&sha, t->star.hash);
}

static int read_table(source *s, const mill_library *lib, int n_lib, const mill_library *own,
                      const mill_fit_settings *set, mill_prior_table *t)
{
  int column[MILL_MAX_PAR][2]; /* value and error of each parameter; -1: none */
  double range[2];
  MILL_OWNED double *value = NULL, *error = NULL;
  if (columns_wanted(s) == 0)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "prior_table: %s has no column TARGETID, OBJECT or IDENTIFIER%s, and no "
                      "columns RA and DEC; add a column that identifies the stars",
                      s->path, s->is_hdf5 ? " at its root" : "");
  for (int j = 0; j < MILL_MAX_PAR; j++)
    column[j][0] = -1;
  for (int i = 0; i < s->n_column; i++)
    MILL_CHECK(take_column(s, lib, own, set, i, column));
  for (int j = 0; j < MILL_MAX_PAR; j++)
    if (column[j][0] >= 0)
      t->pair[t->n_pair++] = j;
  if (t->n_pair == 0)
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "prior_table: %s has no pair of columns for a prior; add a pair such as TEFF and TEFF_ERR",
        s->path);
  MILL_CHECK(mill_alloc_bytes((size_t)s->n_row, (size_t)t->n_pair * 2 * sizeof *t->prior,
                              (void **)&t->prior));
  MILL_CHECK(MILL_ALLOC(s->n_row, &value));
  MILL_CHECK(MILL_ALLOC(s->n_row, &error));
  MILL_CHECK(read_stars(s, t));
  for (int k = 0; k < t->n_pair; k++) {
    mill_star_table_range(lib, n_lib, set, t->pair[k], range);
    MILL_CHECK(read_pair(s, column[t->pair[k]], k, range, t, value, error));
  }
  digest(lib, t); /* pair[k] is still an index in lib; fits need the index in own, -1: none */
  for (int *p = t->pair; p < t->pair + t->n_pair; p++)
    *p = find_parameter(own, s->column[column[*p][0]], strlen(s->column[column[*p][0]]));
  return MILL_OK;
}

int mill_prior_table_read(const char *path, const mill_library *lib, int n_lib,
                          const mill_library *own, const mill_fit_settings *set,
                          const mill_open_limits *limits, int is_loud, mill_prior_table **out)
{
  int err = MILL_OK;
  source s = {.path = path, .h5 = {.id = H5I_INVALID_HID}};
  mill_prior_table *t = NULL;
  *out = NULL;
  MILL_TRY(mill_star_table_is_hdf5(path, "a FITS or HDF5 table of priors", &s.is_hdf5));
  MILL_TRY(MILL_ALLOC(1, &t));
  err = s.is_hdf5 ? open_hdf5(&s) : open_fits(&s, limits);
  MILL_STEP(read_table(&s, lib, n_lib, own, set, t));
  MILL_TRY(mill_star_table_code(err, s.is_hdf5, "prior_table")); /* a failure stops the run */
  if (is_loud && t->n_beyond > 0)
    mill_log_warning("prior_table: %s: %lld values are far beyond the fit's limits, the first is "
                     "%s: give NaN for missing values, and use the result's units",
                     path, (long long)t->n_beyond, t->beyond);
  err = MILL_GIVE(&t, out);
done:
  mill_fits_file_close(s.fits);
  mill_h5_close(&s.h5);
  mill_free(s.column);
  mill_prior_table_free(t);
  return err;
}

void mill_prior_table_free(mill_prior_table *table)
{
  if (!table)
    return;
  mill_star_rows_clear(&table->star);
  MILL_FREE(table->prior, table);
}

int mill_prior_table_find(const mill_prior_table *table, const mill_catalog_row *star, int64_t *row)
{
  int has_any = 0;
  MILL_CHECK(mill_star_rows_find(&table->star, star, NULL, row));
  for (int k = 0; *row >= 0 && k < table->n_pair; k++)
    has_any |= table->pair[k] >= 0 && table->prior[(*row * table->n_pair + k) * 2 + 1] > 0.0;
  *row = has_any ? *row : -1;
  return MILL_OK;
}

void mill_prior_table_take(const mill_prior_table *table, int64_t row, mill_star *star)
{
  for (int k = 0; row >= 0 && k < table->n_pair; k++) {
    const double *prior = table->prior + (row * table->n_pair + k) * 2;
    if (table->pair[k] < 0)
      continue;
    star->prior_mean[table->pair[k]] = prior[0];
    star->prior_sigma[table->pair[k]] = prior[1];
  }
}

const mill_star_rows *mill_prior_table_stars(const mill_prior_table *table)
{
  return &table->star;
}
