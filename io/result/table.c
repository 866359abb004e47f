/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/table.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/hdf5/output_file.h"
#include "src/system/stop_signal.h"
#include "src/system/watchdog.h"

#define ANOTHER_SHAPE "%s is damaged: %s/%s has the wrong shape or type"
enum {
  MAX_TEXT = 1 << 16, /* bytes; a longer text, or more than MAX_VALUES per row, is damage */
  MAX_VALUES = MILL_MAX_ROW_VALUES > MAX_TEXT ? MILL_MAX_ROW_VALUES : MAX_TEXT,
  NAME_SIZE = sizeof((mill_table *)0)->group + MILL_MAX_NAME + 20,
  PIECE_BYTES = 4 << 20, /* bytes of a column moved at once */
  GAP_BYTES = 1 << 14    /* longest gap between rows that one write covers, with the gap */
};

hid_t mill_column_hdf5_type(int type)
{
  const hid_t of[] = {[MILL_TYPE_F64] = H5T_IEEE_F64LE, [MILL_TYPE_F32] = H5T_IEEE_F32LE,
                      [MILL_TYPE_I64] = H5T_STD_I64LE,  [MILL_TYPE_I32] = H5T_STD_I32LE,
                      [MILL_TYPE_U32] = H5T_STD_U32LE,  [MILL_TYPE_U8] = H5T_STD_U8LE,
                      [MILL_TYPE_TEXT] = H5T_STD_U8LE};
  return of[type];
}

int mill_column_type_of(hid_t type)
{
  const size_t n_byte = H5Tget_size(type);
  switch (H5Tget_class(type)) {
  case H5T_STRING:
    return H5Tis_variable_str(type) == 0 && n_byte <= MAX_TEXT ? MILL_TYPE_TEXT : -1;
  case H5T_FLOAT:
    return n_byte == 8 ? MILL_TYPE_F64 : n_byte == 4 ? MILL_TYPE_F32 : -1;
  case H5T_INTEGER:
    if (n_byte == 4)
      return H5Tget_sign(type) == H5T_SGN_NONE ? MILL_TYPE_U32 : MILL_TYPE_I32;
    return n_byte == 8 ? MILL_TYPE_I64 : n_byte == 1 ? MILL_TYPE_U8 : -1;
  default:
    return -1;
  }
}

/* ---- creating ---- */

int mill_table_go_on(void)
{
  if (mill_stop_reason() != MILL_STOP_NONE)
    return MILL_ERROR(MILL_ERR_STOPPED,
                      "stopped while the output was made: nothing was fitted; give the same "
                      "command again");
  return MILL_OK;
}

/* Write the missing value of a column to out; returns 0 if all its bytes are zero, as for texts. */
static int missing_value(const mill_column *c, char out[sizeof(double)])
{
  static const char zeros[sizeof(double)];
  const double f64 = c->missing;
  const float f32 = (float)f64;
  const int64_t i64 = isnan(f64) ? 0 : (int64_t)f64; /* little-endian: low bytes come first */
  memset(out, 0, sizeof f64);
  if (c->type == MILL_TYPE_F64)
    memcpy(out, &f64, sizeof f64);
  else if (c->type == MILL_TYPE_F32)
    memcpy(out, &f32, sizeof f32);
  else if (c->type != MILL_TYPE_TEXT)
    memcpy(out, &i64, mill_column_type_size(c->type));
  return memcmp(out, zeros, sizeof f64) != 0;
}

static int create_column(hid_t file, const char *path, const char *group, int64_t n_row,
                         const mill_column *c)
{
  char description[256], name[NAME_SIZE], fill[sizeof(double)];
  MILL_AT_END(mill_h5_id_close)
  const hid_t type = c->type == MILL_TYPE_TEXT ? mill_h5_text_type(c->n_byte)
                                               : H5Tcopy(mill_column_hdf5_type(c->type));
  snprintf(name, sizeof name, "%s/%s", group, c->name);
  if (type < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot write %s: %s", path, name, mill_h5_reason());
  missing_value(c, fill);
  mill_column_description(c, description, sizeof description);
  return mill_output_column(file, path, name, type, c->vector ? 2 : 1, n_row, c->n_value,
                            c->type == MILL_TYPE_TEXT ? NULL : fill, c->unit, description);
}

int mill_table_create(hid_t file, const char *path, const char *group, int64_t n_row,
                      const mill_columns *columns)
{
  MILL_CHECK(mill_h5_write_group(MILL_OUTPUT(file, path), group));
  for (int i = 0; i < columns->n_column; i++) {
    MILL_CHECK(mill_table_go_on());
    MILL_CHECK(create_column(file, path, group, n_row, &columns->column[i]));
  }
  return MILL_OK;
}

/* ---- opening ---- */

/* Open dataset `name` as the table's next column. */
static int open_column(mill_table *t, const char *name)
{
  MILL_AT_END(mill_h5_array_close) mill_h5_array array = {0};
  hsize_t dim[2] = {0, 1};
  char full[NAME_SIZE];
  snprintf(full, sizeof full, "%s/%s", t->group, name);
  if (t->columns.n_column == MILL_MAX_COLUMN)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: /%s has too many columns", t->path,
                      t->group);
  if (!mill_h5_array_open(t->file, full, &array))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: %s cannot be read: %s", t->path, full,
                      mill_h5_reason());
  const int type = mill_column_type_of(array.type);
  const int n_dim = H5Sget_simple_extent_ndims(array.space);
  if (type < 0 || n_dim < 1 || n_dim > 2 || (n_dim == 2 && type == MILL_TYPE_TEXT) ||
      H5Sget_simple_extent_dims(array.space, dim, NULL) < 0 || dim[0] > INT64_MAX ||
      (t->n_row >= 0 && (int64_t)dim[0] != t->n_row) || dim[1] < 1 || dim[1] > INT_MAX)
    return MILL_ERROR(MILL_ERR_OUTPUT, ANOTHER_SHAPE, t->path, t->group, name);
  t->n_row = (int64_t)dim[0];
  t->dataset[t->columns.n_column] = array.id;
  array.id = 0; /* the table closes the dataset */
  mill_column *c = mill_columns_add(
      &t->columns, name, type, type == MILL_TYPE_TEXT ? (int)H5Tget_size(array.type) : (int)dim[1]);
  c->vector = n_dim == 2;
  return MILL_OK;
}

/* Open the columns `names`, of any type; if names is "", the columns `expected`, which must have
 * the same type and shape in the file; a text of one byte allows any width. */
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
    c->missing = e->missing;
  }
  return MILL_OK;
}

int mill_table_open(hid_t file, int fd, const char *path, const char *group, int64_t n_row,
                    const char *names, const mill_columns *expected, mill_table **table)
{
  MILL_AT_END(mill_table_close_at) mill_table *t = NULL;
  *table = NULL;
  MILL_CHECK(MILL_ALLOC(1, &t));
  t->path = path;
  t->file = file;
  t->fd = fd;
  t->n_row = n_row;
  snprintf(t->group, sizeof t->group, "%s", group);
  MILL_CHECK(open_columns(t, names, expected));
  for (int i = 0; fd >= 0 && i < t->columns.n_column; i++) { /* only to write by fd */
    const mill_column *c = &t->columns.column[i];
    const hid_t type = c->type == MILL_TYPE_TEXT ? H5I_INVALID_HID : mill_column_hdf5_type(c->type);
    MILL_CHECK(mill_output_place(t->dataset[i], path, c->name, type, &t->place[i]));
  }
  return MILL_GIVE(&t, table);
}

void mill_table_close(mill_table *table)
{
  if (table)
    mill_h5_close_ids(table->columns.n_column, table->dataset);
  mill_free(table);
}

/* ---- writing ---- */

static _Atomic int64_t n_write_done, n_byte_done;

void mill_table_written(int64_t *n_write, int64_t *n_byte)
{
  *n_write = n_write_done;
  *n_byte = n_byte_done;
}

/* Write or read n bytes of a column, from row `row` on. */
static int transfer(const mill_table *t, int i_column, int64_t row, int is_write, char *data,
                    size_t n)
{
  const mill_column *c = &t->columns.column[i_column];
  off_t at = (off_t)t->place[i_column] + (off_t)row * (off_t)c->n_byte;
  while (n > 0) {
    const ssize_t moved = is_write ? pwrite(t->fd, data, n, at) : pread(t->fd, data, n, at);
    if (moved < 0 && errno == EINTR)
      continue;
    if (moved <= 0)
      return MILL_ERROR(
          MILL_ERR_OUTPUT, "%s: cannot %s %s: %s%s", t->path, is_write ? "write" : "read", c->name,
          moved < 0 ? strerror(errno) : "the file is truncated", is_write ? MILL_H5_MAKE_ROOM : "");
    if (is_write) {
      n_write_done++;
      n_byte_done += moved;
    }
    data += moved;
    at += moved;
    n -= (size_t)moved;
  }
  return MILL_OK;
}

static int64_t row_of(const mill_table_part *p, int64_t i)
{
  return p->at ? p->at[i].key : p->start + i;
}

/* Return the end of the piece that begins at row i.  A piece is one read or write.  Its rows are
 * adjacent, or have gaps of up to GAP_BYTES inside one ownership block (mill_table_part.n_own). */
static int64_t end_of_piece(const mill_table_part *p, int64_t n_byte, int64_t i)
{
  const int64_t first = row_of(p, i);
  const int64_t n_most = PIECE_BYTES > n_byte ? PIECE_BYTES / n_byte : 1;
  int64_t end = i + 1;
  for (int64_t last = first; end < p->n; end++) {
    const int64_t row = row_of(p, end), n_between = row - last - 1;
    const int in_block = p->n_own > 0 && row / p->n_own == first / p->n_own;
    if (row - first >= n_most || (n_between > 0 && (!in_block || n_between * n_byte > GAP_BYTES)))
      break;
    last = row;
  }
  return end;
}

/* Read or write one column of p's rows.  piece: buffer of PIECE_BYTES, or one value if larger. */
static int move_column(const mill_table_part *p, int i_column, int is_write, char *piece)
{
  const mill_column *c = &p->table->columns.column[i_column];
  for (int64_t i = 0, end; i < p->n; i = end) {
    end = end_of_piece(p, (int64_t)c->n_byte, i);
    const int64_t first = row_of(p, i), n = row_of(p, end - 1) - first + 1;
    if (!is_write || n > end - i) /* before a write, read the rows in its gaps */
      MILL_CHECK(transfer(p->table, i_column, first, 0, piece, (size_t)n * c->n_byte));
    for (; i < end; i++) {
      char *packed = p->row + (size_t)(p->at ? p->at[i].place : i) * p->stride + c->at;
      char *stored = piece + (size_t)(row_of(p, i) - first) * c->n_byte;
      memcpy(is_write ? stored : packed, is_write ? packed : stored, c->n_byte);
    }
    if (is_write)
      MILL_CHECK(transfer(p->table, i_column, first, 1, piece, (size_t)n * c->n_byte));
    mill_watch_again();
  }
  return MILL_OK;
}

/* Bytes of the widest column of a part. */
static size_t widest(const mill_table_part *p)
{
  size_t n_byte = 1;
  for (int c = p->first; c < p->end; c++)
    if (p->table->columns.column[c].n_byte > n_byte)
      n_byte = p->table->columns.column[c].n_byte;
  return n_byte;
}

/* Read or write all columns of a part, through one buffer. */
static int move_part(const mill_table_part *p, int is_write)
{
  MILL_OWNED char *piece = NULL;
  if (p->n == 0)
    return MILL_OK;
  const size_t n_row = (size_t)(row_of(p, p->n - 1) - row_of(p, 0) + 1), n_byte = widest(p);
  const size_t n_most = PIECE_BYTES > n_byte ? PIECE_BYTES : n_byte;
  MILL_CHECK(mill_alloc_raw(n_row < n_most / n_byte ? n_row * n_byte : n_most, 1, (void **)&piece));
  for (int i = p->first; i < p->end; i++)
    MILL_CHECK(move_column(p, i, is_write, piece));
  return MILL_OK;
}

int mill_table_write(const mill_table_part *part)
{
  return move_part(part, 1);
}

int mill_table_fill(mill_table_part part)
{
  char value[sizeof(double)];
  const int end = part.end;
  MILL_OWNED char *row = NULL;
  MILL_CHECK(mill_alloc_bytes(part.table->columns.row_size, 1, (void **)&row));
  part.row = row;
  part.stride = 0; /* the same packed row is written to all rows */
  for (; part.first < end; part.first++) {
    const mill_column *c = &part.table->columns.column[part.first];
    const size_t size = mill_column_type_size(c->type);
    if (!missing_value(c, value))
      continue;
    MILL_CHECK(mill_table_go_on());
    for (size_t k = 0; k < c->n_byte; k += size)
      memcpy(part.row + c->at + k, value, size);
    part.end = part.first + 1;
    MILL_CHECK(mill_table_write(&part));
  }
  return MILL_OK;
}

/* ---- reading ---- */

mill_table_part mill_table_range(const mill_table *table, int64_t start, int64_t n, char *row)
{
  return (mill_table_part){.table = table,
                           .end = table->columns.n_column,
                           .n = n,
                           .start = start,
                           .row = row,
                           .stride = table->columns.row_size};
}

/* Read a column of a range of rows by HDF5, which converts any layout and byte order. */
static int read_column(const mill_table_part *p, int i_column, char *value)
{
  int err = MILL_OK;
  const mill_table *t = p->table;
  const mill_column *c = &t->columns.column[i_column];
  const hid_t dataset = t->dataset[i_column], space = H5Dget_space(dataset);
  const hsize_t start[2] = {(hsize_t)p->start, 0};
  const hsize_t count[2] = {(hsize_t)p->n, (hsize_t)c->n_value};
  const hid_t memory = H5Screate_simple(c->vector ? 2 : 1, count, NULL);
  /* HDF5 does not convert character sets, so use the dataset's own */
  const hid_t type =
      c->type == MILL_TYPE_TEXT ? H5Dget_type(dataset) : H5Tcopy(mill_column_hdf5_type(c->type));
  if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
      H5Dread(dataset, type, memory, space, H5P_DEFAULT, value) < 0)
    err = MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot read %s: %s", t->path, c->name, mill_h5_reason());
  for (int64_t i = 0; i < p->n && err == MILL_OK; i++)
    memcpy(p->row + (size_t)i * p->stride + c->at, value + (size_t)i * c->n_byte, c->n_byte);
  MILL_H5_CLOSE(space, memory, type);
  return err;
}

int mill_table_read(mill_table_part part)
{
  MILL_OWNED char *value = NULL;
  if (part.at || part.n == 0) /* scattered rows: read by the descriptor, without HDF5 */
    return move_part(&part, 0);
  MILL_CHECK(mill_alloc_bytes((size_t)part.n, widest(&part), (void **)&value));
  for (int i = part.first; i < part.end; i++)
    MILL_CHECK(read_column(&part, i, value));
  return MILL_OK;
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
