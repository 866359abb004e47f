/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_layout.h"

#include <string.h>

#include "io/result/table.h"
#include "src/system/watchdog.h"

enum { BLOCK_ROWS = 65536 };

typedef struct tables {
  mill_table *catalog, *exposures, *targets; /* targets: only the column /fits/TARGETID */
  const int64_t *first_exposure;             /* [n_file] see mill_result_catalog_write */
} tables;

/* Consecutive files whose rows are written together. */
typedef struct group {
  int first, end;         /* files [first, end) of the catalog */
  mill_file_index *index; /* [end - first] */
  int *is_loaded;         /* [end - first] 1: read by info->load, so clear_group clears it */
  int64_t n_row, n_exp;
  char *row, *exposure; /* packed rows [n_row] and exposures [n_exp] */
} group;

static void clear_group(group *g)
{
  for (int i = 0; i < g->end - g->first && g->index; i++)
    if (g->is_loaded[i])
      mill_file_index_clear(&g->index[i]);
  MILL_FREE(g->index, g->is_loaded, g->row, g->exposure);
  memset(g, 0, sizeof *g);
}

/* Pack a row of file i_file for /catalog.  first_exposure: number of the file's first exposure. */
static void pack_row(const mill_columns *columns, const mill_catalog_row *from, int32_t i_file,
                     int64_t first_exposure, char *row)
{
  const int64_t first = first_exposure + from->first_exposure;
  for (int i = 0; i < columns->n_column; i++) {
    const mill_column *c = &columns->column[i];
    char *to = row + c->at;
    if (c->source == MILL_FROM_FILE)
      memcpy(to, &i_file, sizeof i_file);
    else if (c->source == MILL_FROM_OFFSET)
      memcpy(to, &first, sizeof first);
    else if (c->type == MILL_TYPE_TEXT) /* bytes after the text's end stay zero */
      memcpy(to, (const char *)from + c->field, strnlen((const char *)from + c->field, c->n_byte));
    else if (c->source != MILL_FROM_CRC)
      memcpy(to, (const char *)from + c->field, c->n_byte);
  }
  mill_columns_set_crc(columns, row);
}

/* Pack exposure k of file i_file; FILE is i_file if index->exposure_file is NULL (not joined). */
static void pack_exposure(const mill_columns *columns, const mill_file_index *index, int64_t k,
                          int32_t i_file, char *row)
{
  for (int i = 0; i < columns->n_column; i++) {
    const mill_column *c = &columns->column[i];
    const char *from;
    memcpy(&from, (const char *)index + c->field, sizeof from);
    memcpy(row + c->at, from ? from + (size_t)k * c->n_byte : (const char *)&i_file, c->n_byte);
  }
}

/* Index the group of files from `first` on.  Read a file again if its index holds only counts. */
static int load_group(const mill_run_info *info, int first, group *g)
{
  int64_t n = 0;
  int end = first;
  for (; end < info->file_end; end++) { /* one file, or files of up to BLOCK_ROWS rows */
    const mill_file_index *index = &info->index[end - info->file_start];
    n += index->n_row > index->n_exposure ? index->n_row : index->n_exposure;
    if (end > first && n > BLOCK_ROWS)
      break;
  }
  MILL_CHECK(MILL_ALLOC(end - first, &g->index));
  MILL_CHECK(MILL_ALLOC(end - first, &g->is_loaded));
  g->first = first;
  g->end = end;
  for (int i = 0; i < end - first; i++) {
    const mill_file_index *from = &info->index[first + i - info->file_start];
    mill_file_index *index = &g->index[i];
    *index = *from;
    if (!from->row && from->n_row > 0 && info->load) {
      memset(index, 0, sizeof *index);
      g->is_loaded[i] = 1;
      MILL_CHECK(mill_table_go_on()); /* fails if the job shall stop */
      MILL_CHECK(info->load(info->load_context, first + i, index));
      mill_watch_again();
      if (index->n_row != from->n_row || index->n_exposure != from->n_exposure)
        return MILL_ERROR(MILL_ERR_STOPPED,
                          "%s changed while the job was starting: give the same command again",
                          info->file[first + i].path);
    }
    g->n_row += index->n_row;
    g->n_exp += index->n_exposure;
  }
  return MILL_OK;
}

/* Pack the rows of a group's files, and their exposures, for writing. */
static int pack_group(const tables *t, group *g)
{
  const mill_columns *catalog = &t->catalog->columns, *exposures = &t->exposures->columns;
  MILL_CHECK(mill_alloc_bytes((size_t)g->n_row, catalog->row_size, (void **)&g->row));
  MILL_CHECK(mill_alloc_bytes((size_t)g->n_exp, exposures->row_size, (void **)&g->exposure));
  char *row = g->row, *exposure = g->exposure;
  for (int i = g->first; i < g->end; i++) {
    const mill_file_index *index = &g->index[i - g->first];
    for (int64_t k = 0; k < index->n_row; k++, row += catalog->row_size)
      pack_row(catalog, &index->row[k], i, t->first_exposure[i], row);
    for (int64_t k = 0; k < index->n_exposure; k++, exposure += exposures->row_size)
      pack_exposure(exposures, index, k, i, exposure);
  }
  return MILL_OK;
}

/* Write a packed group's rows of /catalog, /catalog/exposures and /fits/TARGETID. */
static int write_group(const tables *t, const mill_run_info *info, const group *g)
{
  const mill_columns *catalog = &t->catalog->columns;
  const int64_t start = info->file[g->first].row_start;
  const int64_t start_exp = t->first_exposure[g->first];
  mill_table_part part[] = {mill_table_range(t->catalog, start, g->n_row, g->row),
                            mill_table_range(t->exposures, start_exp, g->n_exp, g->exposure),
                            mill_table_range(t->targets, start, g->n_row,
                                             g->row + catalog->column[catalog->i_target].at)};
  part[2].stride = catalog->row_size; /* TARGETIDs lie in the packed rows of /catalog */
  for (size_t i = 0; i < sizeof part / sizeof *part; i++)
    MILL_CHECK(mill_table_write(&part[i]));
  return MILL_OK;
}

int mill_result_catalog_write(hid_t file, int fd, const char *path, const mill_run_info *info,
                              const int64_t *first_exposure, int64_t n_exposure)
{
  MILL_AT_END(mill_table_close_at) mill_table *catalog = NULL, *exposures = NULL, *targets = NULL;
  MILL_AT_END(clear_group) group g = {0};
  mill_columns columns;
  mill_columns_of(MILL_TABLE_CATALOG, NULL, &columns);
  MILL_CHECK(mill_table_open(file, fd, path, "catalog", info->n_row, "", &columns, &catalog));
  mill_columns_of(MILL_TABLE_EXPOSURES, NULL, &columns);
  MILL_CHECK(
      mill_table_open(file, fd, path, "catalog/exposures", n_exposure, "", &columns, &exposures));
  MILL_CHECK(mill_table_open(file, fd, path, "fits", info->n_row, "TARGETID", NULL, &targets));
  const tables t = {catalog, exposures, targets, first_exposure};
  for (int first = info->file_start; first < info->file_end; first = g.end) {
    clear_group(&g);
    MILL_CHECK(load_group(info, first, &g));
    MILL_CHECK(pack_group(&t, &g));
    MILL_CHECK(write_group(&t, info, &g));
    mill_watch_again();
  }
  return MILL_OK;
}
