/* SPDX-License-Identifier: BSD-3-Clause */
#include "libstarmill/handle.h"

#include "io/hdf5/hdf5_util.h"
#include "io/result/table.h"

_Static_assert(STARMILL_F64 == (int)MILL_TYPE_F64 && STARMILL_I64 == (int)MILL_TYPE_I64 &&
                   STARMILL_I32 == (int)MILL_TYPE_I32 && STARMILL_U32 == (int)MILL_TYPE_U32 &&
                   STARMILL_U8 == (int)MILL_TYPE_U8 && STARMILL_TEXT == (int)MILL_TYPE_TEXT,
               "enum starmill_type must have the values of enum mill_column_type");

enum { MAX_COLUMN = 1024, NAME = 96, PATH = NAME + 8, UNIT = 64, TEXT = 256 };

typedef struct table_column {
  char name[NAME], unit[UNIT], description[TEXT];
  int type, n_value;
  char *data; /* [n_row][n_value], owned; NULL: not read yet */
} table_column;

struct starmill_table {
  int64_t n_row;
  int n_column, n_fits; /* number of known columns, /fits first; number in /fits */
  int64_t n_room;
  table_column **column; /* each column is allocated separately, so that pointers stay valid */
  mill_h5_file file;     /* result file; id 0: the table comes from a fit */
  char *path;
};

void starmill_table_free(starmill_table *table)
{
  if (!table)
    return;
  if (table->path) {
    MILL_HDF5_LOCKED;
    mill_h5_close(&table->file);
  }
  for (int i = 0; i < table->n_column; i++)
    MILL_FREE(table->column[i]->data, table->column[i]);
  MILL_FREE((void *)table->column, table->path, table);
}

MILL_CLOSER(starmill_table, starmill_table_free)

/* ---- rows of a fit ---- */

static int add_column(starmill_table *t, const char *name, table_column **column)
{
  MILL_CHECK(MILL_GROW(&t->column, &t->n_room, t->n_column + 1));
  MILL_CHECK(MILL_ALLOC(1, column));
  snprintf((*column)->name, sizeof(*column)->name, "%s", name);
  t->column[t->n_column++] = *column;
  return MILL_OK;
}

/* Make the table's columns like those of /fits in a result file, with room for n_row rows. */
static int make_columns(const starmill_library *h, int64_t n_row, mill_columns *columns,
                        starmill_table *t)
{
  MILL_CHECK(mill_columns_fits(&h->lib, h->lib.path,
                               (h->set.velocity_offsets ? MILL_WITH_OFFSETS : 0) |
                                   (h->set.binaries ? MILL_WITH_BINARIES : 0),
                               columns));
  t->n_row = n_row;
  t->n_fits = columns->n_column;
  for (int i = 0; i < t->n_fits; i++) {
    const mill_column *from = &columns->column[i];
    table_column *to = NULL;
    MILL_CHECK(add_column(t, from->name, &to));
    snprintf(to->unit, sizeof to->unit, "%s", from->unit);
    mill_column_description(from, to->description, sizeof to->description);
    to->type = from->type;
    to->n_value = from->n_value;
    MILL_CHECK(mill_alloc_bytes((size_t)n_row, from->n_byte, (void **)&to->data));
  }
  return MILL_OK;
}

/* A fit of n stars, each from n_start points. */
typedef struct fit_task {
  const starmill_star *const *star;
  int n, n_start;
  const double *start;
  size_t n_deriv;
  int64_t next;          /* i_star x n_start + i_start */
  mill_star *raw;        /* [n][n_start] */
  mill_fit_result *best; /* [n] */
} fit_task;

/* Is a row better than the best so far?  Fitted rows first, then least m2ll. */
static int is_better(const mill_fit_result *row, const mill_fit_result *best)
{
  if (best->status == MILL_STATUS_NOT_DONE)
    return 1;
  if ((row->status == MILL_STATUS_FITTED) != (best->status == MILL_STATUS_FITTED))
    return row->status == MILL_STATUS_FITTED;
  /* several starts may reach the same m2ll, in any order: keep the one with fewest evaluations */
  return row->m2ll < best->m2ll || (row->m2ll == best->m2ll && row->n_eval < best->n_eval);
}

/* Give the pipeline the next pair of star and start; callback of mill_pipeline_run. */
static int next_star(void *context, mill_star **star)
{
  fit_task *f = context;
  while (f->next < (int64_t)f->n * f->n_start) {
    const int64_t i = f->next++, i_star = i / f->n_start;
    if (f->star[i_star]->n_segment == 0)
      continue;
    const double *start = f->start ? f->start + (size_t)i * f->n_deriv : NULL;
    *star = &f->raw[i];
    **star = mill_star_raw(f->star[i_star], i_star, start);
    return 1;
  }
  return 0;
}

static int take_result(void *context, mill_star *star)
{
  fit_task *f = context;
  if (is_better(star->result, &f->best[star->row]))
    f->best[star->row] = *star->result;
  return MILL_OK;
}

static int check_fit(const starmill_library *h, const fit_task *f)
{
  if (f->n < 0 || (f->n > 0 && !f->star))
    return MILL_ERROR(MILL_ERR_USAGE, "n is %d%s", f->n,
                      f->n > 0 ? ", but star is NULL" : "; give 0 stars or more");
  for (int i = 0; i < f->n; i++)
    if (!f->star[i] || f->star[i]->library != h)
      return MILL_ERROR(MILL_ERR_USAGE, "star %d is NULL or was made with another library", i);
  if (f->n_start < 1)
    return MILL_ERROR(MILL_ERR_USAGE, "n_start is %d: give 1 start or more per star, or start NULL",
                      f->n_start);
  for (size_t i = 0; f->start && i < (size_t)f->n * (size_t)f->n_start * f->n_deriv; i++)
    if (!isfinite(f->start[i]))
      return MILL_ERROR(MILL_ERR_USAGE, "a start of star %zu is not finite",
                        i / ((size_t)f->n_start * f->n_deriv));
  return MILL_OK;
}

/* Fit each star from each start, and pack its best result into the table's columns. */
static int fit(starmill_library *h, fit_task *f, starmill_table **table)
{
  mill_columns columns;
  MILL_AT_END(starmill_table_free_at) starmill_table *t = NULL;
  MILL_OWNED char *row = NULL;
  MILL_CHECK(check_fit(h, f));
  MILL_CHECK(MILL_ALLOC(1, &t));
  MILL_CHECK(make_columns(h, f->n, &columns, t));
  MILL_CHECK(MILL_ALLOC(columns.row_size, &row));
  MILL_CHECK(MILL_ALLOC(f->n, &f->best));
  MILL_CHECK(MILL_ALLOC((int64_t)f->n * f->n_start, &f->raw));
  for (int i = 0; i < f->n; i++)
    mill_fit_result_init(&f->best[i], &h->lib, i,
                         f->star[i]->n_segment ? MILL_STATUS_NOT_DONE : f->star[i]->status);
  h->held = 0; /* the run unloads the held star */
  MILL_CHECK(mill_pipeline_run(h->pipeline, next_star, f, take_result, f));
  for (int i = 0; i < f->n; i++) {
    memset(row, 0, columns.row_size);
    memcpy(row + columns.column[columns.i_target].at, &f->star[i]->target_id,
           sizeof f->star[i]->target_id);
    mill_columns_pack(&columns, &f->best[i], row);
    mill_columns_set_crc(&columns, row);
    for (int k = 0; k < columns.n_column; k++) {
      const mill_column *c = &columns.column[k];
      memcpy(t->column[k]->data + (size_t)i * c->n_byte, row + c->at, c->n_byte);
    }
  }
  return MILL_GIVE(&t, table);
}

int starmill_fit(starmill_library *library, const starmill_star *const *star, int n,
                 const double *start, int n_start, starmill_table **table, starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, table);
  fit_task f = {.star = star,
                .n = n,
                .n_start = start ? n_start : 1,
                .start = start,
                .n_deriv = MILL_PAR_LABEL0 + (size_t)library->lib.n_label};
  MILL_LOCKED(&library->mutex);
  const int err = mill_tell(fit(library, &f, table), error);
  MILL_FREE(f.raw, f.best);
  return err;
}

/* ---- result files ---- */

/* Open a dataset, and describe it in c and n_row. *is_column is 1 if it can be a column. */
static int describe(const starmill_table *t, const char *path, table_column *c, int64_t *n_row,
                    mill_h5_array *array, int *is_column)
{
  hsize_t dim[2] = {0, 1};
  *is_column = 0;
  if (!mill_h5_array_open(t->file.id, path, array))
    return MILL_ERROR(MILL_ERR_INPUT, "%s: /%s cannot be opened as a dataset: %s", t->path, path,
                      mill_h5_reason());
  const int n_dim = H5Sget_simple_extent_ndims(array->space);
  c->type = mill_column_type_of(array->type);
  if (c->type == MILL_TYPE_F32)
    c->type = STARMILL_F64; /* HDF5 converts while reading */
  if (n_dim < 1 || n_dim > 2 || c->type < 0 || (c->type == STARMILL_TEXT && n_dim > 1) ||
      H5Sget_simple_extent_dims(array->space, dim, NULL) != n_dim || dim[1] > MILL_MAX_ROW_VALUES)
    return MILL_OK;
  c->n_value = c->type == STARMILL_TEXT ? (int)H5Tget_size(array->type) : (int)dim[1];
  *n_row = (int64_t)dim[0];
  if (mill_h5_has_attr(&t->file, path, "unit"))
    MILL_CHECK(mill_h5_read_attr_text(&t->file, path, "unit", c->unit, sizeof c->unit));
  if (mill_h5_has_attr(&t->file, path, "description"))
    MILL_CHECK(mill_h5_read_attr_text(&t->file, path, "description", c->description,
                                      sizeof c->description));
  *is_column = 1;
  return MILL_OK;
}

/* Build the path of a column's dataset: in /fits unless the name has a folder. */
static void path_of(const char *name, char path[PATH])
{
  snprintf(path, PATH, "%s%s", strchr(name, '/') ? "" : "fits/", name);
}

/* List the columns of /fits, and set the table's number of rows. */
static int list_columns(starmill_table *t)
{
  H5G_info_t info;
  if (H5Gget_info_by_name(t->file.id, "fits", &info, H5P_DEFAULT) < 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: has no group /fits: give a result of starmill fit",
                      t->path);
  if (info.nlinks > MAX_COLUMN)
    return MILL_ERROR(MILL_ERR_INPUT, "%s is no result: /fits has %llu columns, more than %d",
                      t->path, (unsigned long long)info.nlinks, MAX_COLUMN);
  t->n_row = -1;
  for (hsize_t i = 0; i < info.nlinks; i++) {
    char path[PATH], name[NAME];
    int64_t n_row = 0;
    int is_column = 0;
    MILL_AT_END(mill_h5_array_close) mill_h5_array array = {0};
    table_column *c = NULL;
    if (H5Lget_name_by_idx(t->file.id, "fits", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name,
                           H5P_DEFAULT) < 0)
      return MILL_ERROR(MILL_ERR_INPUT, "%s: /fits is damaged: %s", t->path, mill_h5_reason());
    MILL_CHECK(add_column(t, name, &c));
    path_of(c->name, path);
    MILL_CHECK(describe(t, path, c, &n_row, &array, &is_column));
    if (!is_column || (t->n_row >= 0 && n_row != t->n_row))
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "%s is damaged: /%s is no column, or has more or fewer rows than the others", t->path,
          path);
    t->n_row = n_row;
  }
  if (t->n_column == 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: /fits is empty", t->path);
  t->n_fits = t->n_column;
  return MILL_OK;
}

static int open_table(const char *path, starmill_table **table)
{
  const size_t n_byte = strlen(path) + 1;
  MILL_AT_END(starmill_table_free_at) starmill_table *t = NULL;
  MILL_CHECK(MILL_ALLOC(1, &t));
  MILL_CHECK(MILL_ALLOC(n_byte, &t->path));
  memcpy(t->path, path, n_byte);
  MILL_HDF5_LOCKED;
  MILL_CHECK(mill_h5_open(t->path, MILL_ERR_INPUT, &t->file));
  MILL_CHECK(mill_h5_scan(&t->file));
  MILL_CHECK(list_columns(t));
  return MILL_GIVE(&t, table);
}

int starmill_table_open(const char *path, starmill_table **table, starmill_error *error)
{
  MILL_REFUSE_NULL(error, path, table);
  return mill_tell(open_table(path, table), error);
}

/* Read a column of the file into memory; fail unless it has as many rows as /fits. */
static int read_column(starmill_table *t, table_column *c)
{
  char path[PATH];
  int64_t n_row = 0;
  int is_column = 0;
  MILL_AT_END(mill_h5_array_close) mill_h5_array array = {0};
  MILL_OWNED char *data = NULL;
  path_of(c->name, path);
  MILL_CHECK(describe(t, path, c, &n_row, &array, &is_column));
  if (!is_column || n_row != t->n_row)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: /%s is not a column with a value for each of the %lld rows", t->path,
                      path, (long long)t->n_row);
  const size_t n_byte = mill_column_type_size(c->type) * (size_t)c->n_value; /* of a row */
  MILL_CHECK(mill_alloc_raw((size_t)n_row, n_byte, (void **)&data));
  const hid_t type = c->type == STARMILL_TEXT ? array.type : mill_column_hdf5_type(c->type);
  if (n_row > 0 && H5Dread(array.id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: /%s cannot be read: %s", t->path, path,
                      mill_h5_reason());
  return MILL_GIVE(&data, &c->data);
}

/* ---- columns of fits and files ---- */

int64_t starmill_table_n_row(const starmill_table *table)
{
  return table ? table->n_row : 0;
}

int starmill_table_n_column(const starmill_table *table)
{
  return table ? table->n_fits : 0;
}

static starmill_column shown(const table_column *c)
{
  return (starmill_column){.name = c->name,
                           .unit = c->unit,
                           .description = c->description,
                           .type = c->type,
                           .n_value = c->n_value,
                           .data = c->data};
}

int starmill_table_column_at(const starmill_table *table, int i_column, starmill_column *column,
                             starmill_error *error)
{
  MILL_REFUSE_NULL(error, table, column);
  MILL_HDF5_LOCKED; /* another thread's starmill_table_column may move the array */
  const int err = mill_check_index("column", i_column, table->n_fits);
  if (err == MILL_OK)
    *column = shown(table->column[i_column]);
  return mill_tell(err, error);
}

/* Find a column of /fits by name or, in a file's table, any column by path; read its data. */
static int find_column(starmill_table *t, const char *name, table_column **column)
{
  int i = 0;
  while (i < t->n_column && strcmp(t->column[i]->name, name) != 0)
    i++;
  if (i < t->n_column)
    *column = t->column[i];
  else if (t->path && strchr(name, '/') && strlen(name) < NAME && mill_h5_exists(&t->file, name))
    MILL_CHECK(add_column(t, name, column));
  else
    return MILL_ERROR(MILL_ERR_USAGE, "%s: no column %s", t->path ? t->path : "the table", name);
  return !(*column)->data ? read_column(t, *column) : MILL_OK;
}

int starmill_table_column(starmill_table *table, const char *name, starmill_column *column,
                          starmill_error *error)
{
  MILL_REFUSE_NULL(error, table, name, column);
  table_column *c = NULL;
  MILL_HDF5_LOCKED; /* the lock also guards the table */
  const int err = find_column(table, name, &c);
  if (err == MILL_OK)
    *column = shown(c);
  return mill_tell(err, error);
}

/* Copy a row's parameters from the table's columns to theta [n_par]. */
static int theta_of(const starmill_library *library, starmill_table *table, int64_t i_row,
                    double *theta)
{
  MILL_CHECK(mill_check_index("row", i_row, table->n_row));
  MILL_HDF5_LOCKED;
  for (int j = 0; j < mill_n_par(library); j++) {
    table_column *c = NULL;
    MILL_CHECK(find_column(table, mill_parameter(library, j).column, &c));
    if (c->type != STARMILL_F64 || c->n_value != 1)
      return MILL_ERROR(MILL_ERR_INPUT,
                        "column %s is not one number per row; give a result of starmill fit",
                        c->name);
    const double value = ((const double *)(const void *)c->data)[i_row];
    /* an arm without data has no velocity offset; the prior's mean is 0 */
    theta[j] = isnan(value) && j >= MILL_PAR_LABEL0 + library->lib.n_label ? 0.0 : value;
  }
  return MILL_OK;
}

int starmill_table_theta(const starmill_library *library, starmill_table *table, int64_t i_row,
                         double *theta, starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, table, theta);
  return mill_tell(theta_of(library, table, i_row, theta), error);
}
