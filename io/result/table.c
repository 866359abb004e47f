/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/table.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/stop_signal.h"
#include "src/system/watchdog.h"

#define ANOTHER_SHAPE "%s: %s/%s has another shape or type than this program writes"
enum {
  MAX_TEXT = 1 << 16, /* more bytes, or values, a row are damage: */
  MAX_VALUES = MILL_MAX_ROW_VALUES > MAX_TEXT ? MILL_MAX_ROW_VALUES : MAX_TEXT,
  NAME_SIZE = sizeof((mill_table *)0)->group + MILL_MAX_NAME + 20
};

hid_t mill_column_hdf5_type(int type)
{
  switch (type) {
  case MILL_TYPE_F64:
    return H5T_IEEE_F64LE;
  case MILL_TYPE_F32:
    return H5T_IEEE_F32LE;
  case MILL_TYPE_I64:
    return H5T_STD_I64LE;
  case MILL_TYPE_I32:
    return H5T_STD_I32LE;
  case MILL_TYPE_U32:
    return H5T_STD_U32LE;
  default:
    return H5T_STD_U8LE;
  }
}

/* Which of our types a dataset has; -1: none. */
static int type_of(hid_t type)
{
  const size_t n_byte = H5Tget_size(type);
  switch (H5Tget_class(type)) {
  case H5T_STRING:
    return H5Tis_variable_str(type) == 0 && n_byte <= MAX_TEXT ? MILL_TYPE_TEXT : -1;
  case H5T_FLOAT:
    return n_byte == 8 ? MILL_TYPE_F64 : n_byte == 4 ? MILL_TYPE_F32 : -1;
  case H5T_INTEGER:
    return n_byte == 8                         ? MILL_TYPE_I64
           : n_byte == 1                       ? MILL_TYPE_U8
           : n_byte != 4                       ? -1
           : H5Tget_sign(type) == H5T_SGN_NONE ? MILL_TYPE_U32
                                               : MILL_TYPE_I32;
  default:
    return -1;
  }
}

/* ---- creating ---- */

int mill_table_go_on(void)
{
  if (mill_stop_reason() != MILL_STOP_NONE)
    return MILL_ERROR(MILL_ERR_STOPPED,
                      "stopped while the output was made: nothing was fitted; the same "
                      "command starts again");
  return MILL_OK;
}

static int create_column(hid_t file, const char *path, const char *group, int64_t n_row,
                         const mill_column *c)
{
  int err = MILL_OK;
  char description[256], name[NAME_SIZE], fill[sizeof(double)] = "";
  const double f64 = c->missing;
  const float f32 = (float)f64;
  const int64_t i64 = isnan(f64) ? 0 : (int64_t)f64; /* little-endian: also of fewer bytes */
  const hid_t type = c->type == MILL_TYPE_TEXT ? mill_ph5_text_type(c->n_byte)
                                               : H5Tcopy(mill_column_hdf5_type(c->type));
  snprintf(name, sizeof name, "%s/%s", group, c->name);
  if (type < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot write %s: %s", path, name, mill_h5_reason());
  memcpy(fill,
         c->type == MILL_TYPE_F64   ? (const void *)&f64
         : c->type == MILL_TYPE_F32 ? (const void *)&f32
                                    : &i64,
         c->type == MILL_TYPE_F32 ? sizeof f32 : sizeof fill);
  mill_column_description(c, description, sizeof description);
  MILL_TRY(mill_ph5_dataset(file, path, name, type, c->vector ? 2 : 1, n_row, c->n_value,
                            c->type == MILL_TYPE_TEXT ? NULL : fill, c->unit, description));
done:
  MILL_H5_CLOSE(type);
  return err;
}

int mill_table_create(hid_t file, const char *path, const char *group, int64_t n_row,
                      const mill_columns *columns)
{
  MILL_CHECK(mill_ph5_group(file, path, group));
  for (int i = 0; i < columns->n_column; i++) {
    MILL_CHECK(mill_table_go_on());
    MILL_CHECK(create_column(file, path, group, n_row, &columns->column[i]));
  }
  return MILL_OK;
}

/* ---- opening ---- */

/* Open the dataset of that name as the table's next column. */
static int open_column(mill_table *t, const char *name)
{
  int err = MILL_OK;
  mill_h5_array array = {0};
  hsize_t dim[2] = {0, 1};
  char full[NAME_SIZE];
  snprintf(full, sizeof full, "%s/%s", t->group, name);
  if (t->columns.n_column == MILL_MAX_COLUMN)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: /%s has too many columns", t->path, t->group);
  if (!mill_h5_array_open(t->file, full, &array))
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: %s cannot be read: %s", t->path, full,
              mill_h5_reason());
  const int type = type_of(array.type);
  const int n_dim = H5Sget_simple_extent_ndims(array.space);
  if (type < 0 || n_dim < 1 || n_dim > 2 || (n_dim == 2 && type == MILL_TYPE_TEXT) ||
      H5Sget_simple_extent_dims(array.space, dim, NULL) < 0 || dim[0] > INT64_MAX ||
      (t->n_row >= 0 && (int64_t)dim[0] != t->n_row) || dim[1] < 1 || dim[1] > INT_MAX)
    MILL_FAIL(MILL_ERR_OUTPUT, ANOTHER_SHAPE, t->path, t->group, name);
  t->n_row = (int64_t)dim[0];
  t->dataset[t->columns.n_column] = array.id;
  array.id = 0;
  mill_column *c = mill_columns_add(
      &t->columns, name, type, type == MILL_TYPE_TEXT ? (int)H5Tget_size(array.type) : (int)dim[1]);
  c->vector = n_dim == 2;
done:
  mill_h5_array_close(&array);
  return err;
}

/* Open columns by their names; those that are expected have these types and shapes. */
static int open_columns(mill_table *t, const char *names, const mill_columns *expected)
{
  char name[sizeof((mill_column *)0)->name];
  for (const char *next = names; *next; next += strspn(next, " ")) {
    const size_t n = strcspn(next, " ");
    snprintf(name, sizeof name, "%.*s", (int)n, next);
    next += n;
    MILL_CHECK(open_column(t, name));
    if (t->columns.column[t->columns.n_column - 1].n_value > MAX_VALUES)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: %s/%s has too many values a row", t->path,
                        t->group, name);
  }
  for (int i = 0; expected && i < expected->n_column; i++) {
    const mill_column *e = &expected->column[i];
    MILL_CHECK(open_column(t, e->name));
    mill_column *c = &t->columns.column[i];
    if (c->type != e->type || c->vector != e->vector ||
        (c->n_byte != e->n_byte && !(c->type == MILL_TYPE_TEXT && e->n_byte == 1)))
      return MILL_ERROR(MILL_ERR_OUTPUT, ANOTHER_SHAPE, t->path, t->group, c->name);
    c->source = e->source;
    c->field = e->field;
  }
  return MILL_OK;
}

static int open_table(hid_t file, const char *path, const char *group, int64_t n_row,
                      const char *names, const mill_columns *expected, mill_table **table)
{
  MILL_CHECK(MILL_ALLOC(1, table));
  (*table)->path = path;
  (*table)->file = file;
  (*table)->n_row = n_row;
  snprintf((*table)->group, sizeof(*table)->group, "%s", group);
  const int err = open_columns(*table, names, expected);
  if (err != MILL_OK) {
    mill_table_close(*table);
    *table = NULL;
  }
  return err;
}

int mill_table_open(hid_t file, const char *path, const char *group, int64_t n_row,
                    const mill_columns *columns, mill_table **table)
{
  return open_table(file, path, group, n_row, "", columns, table);
}

int mill_table_open_named(hid_t file, const char *path, const char *group, int64_t n_row,
                          const char *names, mill_table **table)
{
  return open_table(file, path, group, n_row, names, NULL, table);
}

void mill_table_close(mill_table *table)
{
  if (table)
    mill_h5_close_ids(table->columns.n_column, table->dataset);
  mill_free(table);
}

/* ---- rows ---- */

enum direction { READ, WRITE, WRITE_ALONE };

/* Select n rows of a part in the dataset of a column. */
static int select_rows(const mill_table_part *p, const mill_column *c, const int64_t *at, int64_t n,
                       mill_ph5_rows *rows)
{
  const mill_table *t = p->table;
  const int n_dim = c->vector ? 2 : 1;
  const int64_t n_value = c->vector ? c->n_value : 1;
  return p->at && n > 0
             ? mill_ph5_select(t->path, n_dim, t->n_row, n_value, at, n, rows)
             : mill_ph5_select_range(t->path, n_dim, t->n_row, n_value, p->start, n, rows);
}

/* Copy a column between the packed rows and value [n][n_byte]. */
static void copy_column(const mill_table_part *p, const mill_column *c, int is_write, int64_t n,
                        char *value)
{
  for (int64_t i = 0; i < n; i++, value += c->n_byte) {
    char *packed = p->row + (size_t)(p->at ? p->at[i].place : i) * p->stride + c->at;
    memcpy(is_write ? value : packed, is_write ? packed : value, c->n_byte);
  }
}

/* One column of the selected rows. */
static int move_column(const mill_table_part *p, int i, enum direction direction,
                       const mill_ph5_rows *rows, char *value)
{
  const mill_column *c = &p->table->columns.column[i];
  const hid_t dataset = p->table->dataset[i];
  /* HDF5 does not convert between character sets, and merged results may have another one */
  const hid_t type =
      c->type == MILL_TYPE_TEXT ? H5Dget_type(dataset) : H5Tcopy(mill_column_hdf5_type(c->type));
  const int err = direction == READ
                      ? mill_ph5_read(dataset, p->table->path, c->name, type, rows, value)
                      : mill_ph5_write(dataset, p->table->path, c->name, type, rows, value,
                                       direction == WRITE_ALONE);
  MILL_H5_CLOSE(type);
  return err;
}

/* The rows of a part as a plain list, and room for one column. */
static int prepare(const mill_table_part *p, int64_t **at, char **value)
{
  size_t widest = 1;
  for (int c = p->first; c < p->end; c++)
    if (p->table->columns.column[c].n_byte > widest)
      widest = p->table->columns.column[c].n_byte;
  MILL_CHECK(mill_alloc_bytes((size_t)p->n, widest, (void **)value));
  MILL_CHECK(MILL_ALLOC(p->at ? p->n : 0, at));
  for (int64_t i = 0; i < p->n && p->at; i++)
    (*at)[i] = p->at[i].key;
  return MILL_OK;
}

/* Move a part between memory and file.  A rank that has failed still makes all collective calls,
   for the others wait for it there, but without rows. */
static int move_part(const mill_table_part *p, enum direction direction, int code, int watch)
{
  int err = code;
  int64_t *at = NULL;
  char *value = NULL;
  mill_ph5_rows scalar = {H5I_INVALID_HID, H5I_INVALID_HID}, vector = scalar;
  const mill_column none = {.n_value = 1};
  if (err == MILL_OK)
    err = prepare(p, &at, &value);
  if (err == MILL_OK)
    err = select_rows(p, &none, at, p->n, &scalar);
  int has_rows = 1;
  for (int i = p->first; i < p->end && (err == MILL_OK || direction == WRITE); i++) {
    const mill_column *c = &p->table->columns.column[i];
    int failed = MILL_OK;
    if (err != MILL_OK && has_rows) {
      has_rows = 0;
      mill_ph5_unselect(&scalar);
      (void)select_rows(p, &none, NULL, 0, &scalar);
    }
    const int64_t n = has_rows ? p->n : 0;
    if (direction != READ)
      copy_column(p, c, 1, n, value);
    if (c->vector)
      failed = select_rows(p, c, at, n, &vector);
    const int moved = move_column(p, i, direction, c->vector ? &vector : &scalar, value);
    mill_ph5_unselect(&vector);
    failed = failed == MILL_OK ? moved : failed;
    if (direction == READ && failed == MILL_OK)
      copy_column(p, c, 0, n, value);
    err = err == MILL_OK ? failed : err;
    mill_watch_again(watch);
  }
  mill_ph5_unselect(&scalar);
  MILL_FREE(at, value);
  return err;
}

mill_table_part mill_table_range(const mill_table *table, int64_t start, int64_t n, char *row)
{
  return (mill_table_part){.table = table,
                           .end = table->columns.n_column,
                           .n = n,
                           .start = start,
                           .row = row,
                           .stride = table->columns.row_size};
}

int mill_table_write(const mill_table_part *part, int n_part, const mill_mpi *mpi, int code,
                     int watch)
{
  int err = code;
  for (int i = 0; i < n_part; i++) {
    const mill_table *before = i > 0 ? part[i - 1].table : part->table;
    if (before->file != part[i].table->file && H5Fflush(before->file, H5F_SCOPE_LOCAL) < 0 &&
        err == MILL_OK)
      err = MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be flushed to disk: %s", before->path,
                       mill_h5_reason());
    if (part[i].waits && i > 0)
      MILL_TRY(mill_mpi_agree(mpi, err));
    err = move_part(&part[i], mpi ? WRITE : WRITE_ALONE, err, watch);
  }
  if (mpi)
    err = mill_mpi_agree(mpi, err);
done:
  return err;
}

int mill_table_read(mill_table_part part)
{
  return move_part(&part, READ, MILL_OK, -1);
}

int mill_waiting_add(mill_waiting *rows, const mill_columns *columns, int64_t at, char **row)
{
  MILL_CHECK(mill_grow_bytes((void **)&rows->row, &rows->row_room, rows->n + 1, columns->row_size));
  MILL_CHECK(MILL_GROW(&rows->at, &rows->at_room, rows->n + 1));
  *row = memset(rows->row + (size_t)rows->n * columns->row_size, 0, columns->row_size);
  rows->at[rows->n] = (mill_keyed){at, rows->n};
  rows->n++;
  return MILL_OK;
}

mill_table_part mill_waiting_part(mill_waiting *rows, const mill_table *table)
{
  if (rows->n > 0)
    qsort(rows->at, (size_t)rows->n, sizeof *rows->at, mill_by_key);
  mill_table_part part = mill_table_range(table, 0, rows->n, rows->row);
  part.at = rows->at;
  return part;
}

void mill_waiting_free(mill_waiting *rows)
{
  MILL_FREE(rows->row, rows->at);
}
