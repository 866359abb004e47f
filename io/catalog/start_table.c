/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/catalog/start_table.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/hdf5/output_file.h"
#include "io/result/result_inputs.h"
#include "io/result/result_layout.h"
#include "io/result/stored_rows.h"
#include "kernels/math/counter_random.h"
#include "src/system/log.h"

/* Keys of a star, TARGETID first: a start holds for any of the star's spectra. */
static const enum mill_star_key order[MILL_N_STAR_KEY] = {MILL_BY_TARGETID, MILL_BY_OBJECT,
                                                          MILL_BY_IDENTIFIER, MILL_BY_PLACE};
static const enum mill_star_key exact_order[MILL_N_STAR_KEY] = {
    MILL_BY_IDENTIFIER, MILL_BY_TARGETID, MILL_BY_OBJECT, MILL_BY_PLACE};

struct mill_start_table {
  int n_par;
  int64_t n_row;
  double *theta;           /* [n_row][n_par] */
  mill_start_fit *fit;     /* [n_row], NULL: the table is no result */
  mill_star_rows star;     /* is_last: rows with a value that is not finite */
  mill_star_rows exact;    /* rows by IDENTIFIER, if asked for; their texts belong to star */
  mill_known_inputs input; /* the result's inputs if exact has repeated rows; else empty */
};

/* Data read from a FITS or HDF5 file. */
typedef struct raw_table {
  const char *path;
  const mill_library *lib;
  int n_lib;
  const mill_fit_settings *set;
  int library; /* use only rows with this code in LIBRARY; 0: all rows */
  int exact;   /* 1, in `sample`: find rows by IDENTIFIER first, allow values beyond limits */
  double range[MILL_MAX_PAR][2]; /* of possible values */
  int64_t n_row;
  mill_fits_values *column; /* [MILL_N_STAR_COLUMN] */
  double *value;            /* [n_row] the column just read */
  unsigned char *known;     /* [n_row] of a result: 1 if CATALOG_CRC agrees */
  mill_start_table *out;    /* theta is filled while reading */
} raw_table;

/* Allocate the table's parameters and a work column for n_row rows, and set the ranges of possible
 * values.  Fail if n_row is 0.  A label may exceed its limits by a tenth of their distance.
 * With raw->exact (job `sample`) any value is possible: the star's fit had the same limits. */
static int start_rows(raw_table *raw, int64_t n_row)
{
  const size_t n_par = (size_t)raw->lib->n_label + 2;
  raw->n_row = n_row;
  if (n_row == 0)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: has no rows; give a table of stars as start",
                      raw->path);
  raw->out->n_row = n_row;
  raw->out->n_par = (int)n_par;
  for (int j = 0; j < (int)n_par; j++) {
    double *range = raw->range[j];
    mill_star_table_range(raw->lib, raw->n_lib, raw->set, j, range);
    const double far = j < MILL_PAR_LABEL0 ? 0.0 : 0.1 * (range[1] - range[0]);
    range[0] = raw->exact ? (double)-INFINITY : range[0] - far;
    range[1] = raw->exact ? (double)INFINITY : range[1] + far;
  }
  MILL_CHECK(mill_alloc_bytes((size_t)n_row * n_par, sizeof(double), (void **)&raw->out->theta));
  return MILL_ALLOC(n_row, &raw->value);
}

/* Set parameter j of row i to `given`, or to its fixed value.  A value outside the range becomes
 * NaN, lest a fit find a wrong minimum. */
static void put_value(const raw_table *raw, int64_t i, int j, double given)
{
  const int is_possible = given >= raw->range[j][0] && given <= raw->range[j][1];
  raw->out->theta[i * raw->out->n_par + j] = raw->set->fixed[j] ? raw->set->fixed_value[j]
                                             : is_possible      ? given
                                                                : (double)NAN;
}

static int is_finite(const mill_start_table *table, int64_t row)
{
  for (int j = 0; j < table->n_par; j++)
    if (!isfinite(table->theta[row * table->n_par + j]))
      return 0;
  return 1;
}

/* Index the rows by star.  A search finds a star's first row of finite values, else its first row.
 * t->exact indexes the rows by IDENTIFIER first, for searches in a range of rows. */
static int sort_rows(raw_table *raw)
{
  mill_start_table *t = raw->out;
  MILL_OWNED unsigned char *not_finite = NULL;
  t->star = (mill_star_rows){.key = "start", .path = raw->path, .order = order};
  MILL_CHECK(MILL_ALLOC(raw->n_row, &not_finite));
  for (int64_t i = 0; i < raw->n_row; i++)
    not_finite[i] = !is_finite(t, i);
  if (raw->exact) {
    mill_fits_values column[MILL_N_STAR_COLUMN]; /* a copy, as t->star takes the texts, below */
    memcpy(column, raw->column, sizeof column);
    t->exact = (mill_star_rows){.key = "start", .path = raw->path, .order = exact_order};
    MILL_CHECK(mill_star_rows_make(column, raw->n_row, not_finite, &t->exact));
  }
  return mill_star_rows_make(raw->column, raw->n_row, not_finite, &t->star);
}

/* ---- FITS ---- */

/* List the needed columns that a table lacks, for a message; empty: none. */
static void missing_in_fits(mill_fits_file *file, int i_hdu, const raw_table *raw, char *list,
                            size_t size)
{
  snprintf(list, size, "%s", mill_star_columns_of(file, i_hdu) ? "" : " TARGETID");
  for (int j = 0; j < raw->lib->n_label + 2; j++) {
    const char *name[2];
    mill_star_table_names(raw->lib, j, name);
    const size_t n = strlen(list);
    if (!raw->set->fixed[j] && !mill_star_table_has(file, i_hdu, name[0]) &&
        !mill_star_table_has(file, i_hdu, name[1]))
      snprintf(list + n, size - n, " %s", name[0]);
  }
}

/* Read the first table that has all columns; without one, say what the nearest table lacks. */
static int read_fits(raw_table *raw, const mill_open_limits *limits)
{
  MILL_AT_END(mill_fits_file_close_at) mill_fits_file *file = NULL;
  int i_hdu = 0, nearest = -1; /* nearest: with the shortest list of missing columns */
  char missing[512] = "", least[512] = "";
  MILL_CHECK(mill_fits_file_open(raw->path, limits, &file));
  for (; i_hdu < file->guard->n_hdu; i_hdu++) {
    if (file->guard->hdu[i_hdu].kind != MILL_FITS_TABLE)
      continue;
    missing_in_fits(file, i_hdu, raw, missing, sizeof missing);
    if (!missing[0])
      break;
    if (nearest < 0 || strlen(missing) < strlen(least)) {
      nearest = i_hdu;
      memcpy(least, missing, sizeof least);
    }
  }
  if (i_hdu == file->guard->n_hdu && nearest < 0)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: has no table; start needs a table of stars", raw->path);
  if (i_hdu == file->guard->n_hdu)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s: no table has all columns to start from; HDU %d (%s) lacks%s (a "
                      "parameter fixed by fix_param needs no column)",
                      raw->path, nearest + 1, file->guard->hdu[nearest].name, least);
  MILL_CHECK(start_rows(raw, file->guard->hdu[i_hdu].axis[1]));
  MILL_CHECK(mill_star_columns_read(file, i_hdu, raw->column));
  for (int j = 0; j < raw->out->n_par; j++) {
    const char *name[2]; /* the column may have either name */
    mill_star_table_names(raw->lib, j, name);
    if (!raw->set->fixed[j])
      MILL_CHECK(mill_fits_column_double(
          file, i_hdu, mill_star_table_has(file, i_hdu, name[0]) ? name[0] : name[1], raw->value,
          NULL));
    for (int64_t i = 0; i < raw->n_row; i++)
      put_value(raw, i, j, raw->value[i]); /* ignores the value of a fixed parameter */
  }
  return sort_rows(raw);
}

/* ---- HDF5 ---- */

/* The columns of /fits that a start needs. */
typedef struct needed_columns {
  const mill_column *par[MILL_MAX_PAR];                  /* NULL: fixed parameter */
  const mill_column *id, *info, *library, *chisq, *m2ll; /* the last three may be NULL */
} needed_columns;

/* Find the column of /fits with one of two names, ignoring case; NULL: none, or of another type. */
static const mill_column *find_column(const mill_columns *columns, const char *const name[2],
                                      int type)
{
  for (int k = 0; k < 2 && name[k]; k++)
    for (int i = 0; i < columns->n_column; i++) {
      const mill_column *c = &columns->column[i];
      if (strcasecmp(c->name, name[k]) == 0)
        return c->type == type && c->n_value == 1 ? c : NULL;
    }
  return NULL;
}

/* Find the columns of /fits to read; library and chi-square columns may be missing. */
static int find_needed(const raw_table *raw, const mill_columns *rows, needed_columns *at)
{
  *at = (needed_columns){
      .id = find_column(rows, (const char *[]){"TARGETID", NULL}, MILL_TYPE_I64),
      .info = find_column(rows, (const char *[]){"FIT_INFO", NULL}, MILL_TYPE_I32),
      .chisq = find_column(rows, (const char *[]){"CHISQ_C_DATA", NULL}, MILL_TYPE_F64),
      .m2ll = find_column(rows, (const char *[]){"M2LL", NULL}, MILL_TYPE_F64)};
  if (raw->library > 0) /* take_row uses only rows of this library */
    at->library = find_column(rows, (const char *[]){"LIBRARY", NULL}, MILL_TYPE_U8);
  if (!at->id || !at->info)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s: has no /fits/%s to start from", raw->path,
                      at->id ? "FIT_INFO" : "TARGETID");
  for (int j = 0; j < raw->out->n_par; j++) {
    const char *name[2];
    mill_star_table_names(raw->lib, j, name);
    at->par[j] = raw->set->fixed[j] ? NULL : find_column(rows, name, MILL_TYPE_F64);
    if (!at->par[j] && !raw->set->fixed[j])
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "%s: has no /fits/%s to start from (a parameter fixed by fix_param needs no column)",
          raw->path, name[0]);
  }
  return MILL_OK;
}

/* The rows of /fits while they are copied to a table. */
typedef struct fits_rows {
  raw_table *raw;
  const mill_stored_rows *rows;
  needed_columns at;
  mill_damaged_rows damaged;
} fits_rows;

/* Copy row i of /fits to the table.  A row damaged there or in /catalog (known[i] is 0) loses its
 * keys, so no star finds it.  A row not done, or of another library, gets NaN as parameters. */
static int take_row(void *context, int64_t i, const char *row)
{
  fits_rows *from = context;
  raw_table *raw = from->raw;
  const needed_columns *at = &from->at;
  int is_whole; /* 1: done, with correct CRCs */
  const int n_par = raw->out->n_par;
  const int32_t status = mill_stored_row_status(from->rows, row, &is_whole);
  const int is_done = status != MILL_STATUS_NOT_DONE;
  if (!raw->known[i] || (is_done && !is_whole)) {
    raw->column[MILL_BY_TARGETID].i64[i] = -1;
    for (int k = MILL_BY_IDENTIFIER; k <= MILL_BY_OBJECT; k++)
      raw->column[k].text[(size_t)i * raw->column[k].stride] = '\0';
    mill_damaged_rows_add(&from->damaged, i);
    from->damaged.n_catalog += raw->known[i] ? 0 : 1;
    return MILL_OK;
  }
  memcpy(&raw->column[MILL_BY_TARGETID].i64[i], row + at->id->at, sizeof(int64_t));
  mill_start_fit *fit = &raw->out->fit[i];
  fit->identity = mill_star_identity(raw->column[MILL_BY_TARGETID].i64[i],
                                     mill_fits_text_at(&raw->column[MILL_BY_OBJECT], i),
                                     mill_fits_text_at(&raw->column[MILL_BY_IDENTIFIER], i));
  memcpy(&fit->info, row + at->info->at, sizeof fit->info);
  const int library = at->library ? row[at->library->at] : raw->library;
  fit->is_other = library > 0 && library != raw->library; /* 0: not fitted */
  if (at->chisq)
    memcpy(&fit->chisq_c_data, row + at->chisq->at, sizeof fit->chisq_c_data);
  if (at->m2ll)
    memcpy(&fit->m2ll, row + at->m2ll->at, sizeof fit->m2ll);
  for (int j = 0; j < n_par; j++) {
    double value = 0.0; /* a parameter without a column is fixed: put_value ignores its value */
    if (at->par[j])
      memcpy(&value, row + at->par[j]->at, sizeof value);
    if (is_done && library == raw->library)
      put_value(raw, i, j, value);
    else
      raw->out->theta[i * n_par + j] = NAN;
  }
  return MILL_OK;
}

/* Read rows of a result.  The caller frees what raw then holds, even after a failure. */
static int read_hdf5(raw_table *raw)
{
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  MILL_AT_END(mill_stored_rows_close) mill_stored_rows rows = {0};
  fits_rows fits = {.raw = raw, .rows = &rows};
  char text[MILL_ROWS_TEXT];
  size_t n_row = 0;
  MILL_CHECK(mill_result_open_stored(raw->path, MILL_ERR_CONFIG, &file));
  MILL_CHECK(mill_h5_shape(&file, "fits/STATUS", 1, &n_row));
  MILL_CHECK(start_rows(raw, (int64_t)n_row));
  MILL_CHECK(MILL_ALLOC(n_row, &raw->column[MILL_BY_TARGETID].i64));
  MILL_CHECK(MILL_ALLOC(n_row, &raw->out->fit));
  MILL_CHECK(
      mill_star_texts_read(&file, "catalog/OBJECT", raw->n_row, &raw->column[MILL_BY_OBJECT]));
  MILL_CHECK(mill_star_texts_read(&file, "catalog/IDENTIFIER", raw->n_row,
                                  &raw->column[MILL_BY_IDENTIFIER]));
  MILL_CHECK(MILL_ALLOC(n_row, &raw->known));
  MILL_CHECK(mill_catalog_known(file.id, raw->path, raw->n_row, raw->known));
  MILL_CHECK(mill_stored_rows_open(file.id, raw->path, raw->n_row, &rows));
  MILL_CHECK(find_needed(raw, &rows.table->columns, &fits.at));
  MILL_CHECK(mill_stored_rows_each(&rows, 0, raw->n_row, take_row, &fits));
  if (fits.damaged.n > 0)
    mill_log_warning("%s: %s; fits do not start from these rows", raw->path,
                     mill_damaged_rows_text(&fits.damaged, text));
  MILL_CHECK(sort_rows(raw));
  return raw->out->exact.n_repeated > 0 /* inputs tell rows of one IDENTIFIER apart */
             ? mill_known_inputs_read(file.id, raw->path, &raw->out->input)
             : MILL_OK;
}

/* ---- the table ---- */

/* Hash the key of each row, and the row's parameters if all are finite. */
static void digest(mill_start_table *t)
{
  mill_sha256 sha;
  const mill_star_rows *rows = t->exact.row ? &t->exact : &t->star;
  mill_sha256_init(&sha);
  for (int64_t i = 0; i < rows->n_row; i++) {
    const mill_star_row *row = &rows->row[i];
    mill_star_row_hash(row, &sha);
    mill_sha256_update(&sha, row->is_last ? "n" : "f", 1); /* is_last: not finite */
    if (!row->is_last)
      mill_sha256_update(&sha, t->theta + row->row * t->n_par, (size_t)t->n_par * sizeof(double));
  }
  mill_sha256_final(&sha, t->star.hash);
}

int mill_start_table_read(const char *path, const mill_library *lib, int n_lib,
                          const mill_fit_settings *set, const mill_open_limits *limits, int exact,
                          int library, mill_start_table **out)
{
  int err = MILL_OK, is_hdf5 = 0;
  MILL_FITS_VALUES(column, MILL_N_STAR_COLUMN);
  raw_table raw = {path, lib, n_lib, set, library, exact, .column = column};
  *out = NULL;
  MILL_TRY(mill_star_table_is_hdf5(path, "a FITS table or a result to start from", &is_hdf5));
  MILL_TRY(MILL_ALLOC(1, &raw.out));
  err = is_hdf5 ? read_hdf5(&raw) : read_fits(&raw, limits);
  MILL_TRY(mill_star_table_code(err, is_hdf5, "start"));
  digest(raw.out);
  err = MILL_GIVE(&raw.out, out);
done:
  mill_start_table_free(raw.out);
  MILL_FREE(raw.value, raw.known);
  return err;
}

void mill_start_table_free(mill_start_table *table)
{
  if (!table)
    return;
  mill_star_rows_clear(&table->star);
  mill_known_inputs_clear(&table->input);
  MILL_FREE(table->theta, table->fit, table->exact.row, table);
}

int mill_start_table_find(const mill_start_table *table, const char *path,
                          const mill_catalog_row *star, int64_t *row)
{
  char absolute[PATH_MAX] = "";
  *row = -1;
  /* files of one name in two folders have the same IDENTIFIERs: search only rows of this file */
  if (table->input.n > 0)
    MILL_CHECK(mill_input_absolute(path, absolute));
  const mill_known_input *file = mill_known_inputs_find(&table->input, absolute);
  const int64_t range[] = {file ? file->row_start : 0,
                           file ? file->row_start + file->n_row : INT64_MAX};
  if (table->exact.row) /* the spectrum's own row; only results have exact, so fit exists */
    MILL_CHECK(mill_star_rows_find(&table->exact, star, range, row));
  /* search by star if there is no own row, or if this IDENTIFIER is another star's there */
  if (*row < 0 || table->fit[*row].identity !=
                      mill_star_identity(star->target_id, star->object, star->identifier))
    MILL_CHECK(mill_star_rows_find(&table->star, star, NULL, row));
  if (*row < 0)
    *row = -MILL_START_ABSENT;
  else if (!is_finite(table, *row))
    *row = table->fit && table->fit[*row].is_other ? -MILL_START_OF_OTHER : -MILL_START_NOT_FINITE;
  return MILL_OK;
}

const double *mill_start_table_theta(const mill_start_table *table, int64_t row)
{
  return row >= 0 ? table->theta + row * table->n_par : NULL;
}

const mill_start_fit *mill_start_table_fit(const mill_start_table *table, const double *theta)
{
  return table->fit ? &table->fit[(theta - table->theta) / table->n_par] : NULL;
}

uint64_t mill_star_identity(int64_t target_id, const char *object, const char *identifier)
{
  enum { PURPOSE = 20 /* purpose of the random words; sampled_fit.c has 21 */ };
  uint64_t identity = (uint64_t)target_id;
  if (target_id != -1)
    return identity;
  for (const char *c = object[0] ? object : identifier; *c; c++) {
    const mill_counter_key key =
        mill_counter_key_of(identity, (uint64_t)(unsigned char)*c, PURPOSE);
    identity = (uint64_t)key.v[0] << 32 | key.v[1];
  }
  return identity;
}

const mill_star_rows *mill_start_table_stars(const mill_start_table *table)
{
  return &table->star;
}
