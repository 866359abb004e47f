/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/export/products.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/export/carried.h"
#include "io/export/rvtab.h"
#include "io/hdf5/hdf5_util.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/log.h"
#include "src/system/order.h"
#include "src/system/regular_file.h"

enum kind { RVTAB, RVMOD, TABLE };
static const char *const kind_name[][2] = {
    {"rvtab alone", "rvtab"}, {"rvmod alone", "rvmod"}, {"table", "table"}};

typedef struct products {
  const mill_products *want;
  mill_export_source *source;
  mill_export_models *models; /* NULL: none */
  mill_product_counts counts;
  int64_t n_refused;
  char refused[MILL_MAX_PATH]; /* the first product whose place is taken */
} products;

/* ---- names ---- */

static int make_folder(const char *folder)
{
  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    return MILL_ERROR(MILL_ERR_OUTPUT, "the folder %s cannot be made: %s", folder, strerror(errno));
  return MILL_OK;
}

int mill_products_folder(const char *folder, const char *option)
{
  struct stat status;
  MILL_CHECK(make_folder(folder));
  if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s %s: is not a folder", option, folder);
  if (access(folder, W_OK | X_OK) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot write in the folder %s: %s", option, folder,
                      strerror(errno));
  return MILL_OK;
}

/* The last two folders of a path, "100/10001/", or fewer; empty for a file alone.
 */
static void last_folders(const char *path, char *out, size_t size)
{
  const char *end = mill_base_name(path), *start = end;
  for (int n = 0; start > path && n < 3; start--)
    n += start[-1] == '/' && start > path + 1;
  while (start < end && *start == '/')
    start++;
  snprintf(out, size, "%.*s", (int)(end - start), start);
}

/* Name of the product of an input, with subfolders before it and without .gz. */
static int name_of(const char *input, int has_subfolders, const char *prefix,
                   char out[MILL_MAX_PATH])
{
  char below[MILL_MAX_PATH] = "";
  const char *name = mill_base_name(input);
  const size_t n = strlen(name);
  if (has_subfolders)
    last_folders(input, below, sizeof below);
  if (strncmp(below, "../", 3) == 0 || strstr(below, "/../"))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--subdirs: the product of %s would lie outside the output folder: fit with "
                      "paths without '..', or export without --subdirs",
                      input);
  if (snprintf(out, MILL_MAX_PATH, "%s%s%.*s", below, prefix,
               (int)(n > 3 && strcmp(name + n - 3, ".gz") == 0 ? n - 3 : n), name) >= MILL_MAX_PATH)
    return MILL_ERROR(MILL_ERR_USAGE, "the name of the product of %s is too long", input);
  return MILL_OK;
}

int mill_products_check_names(int n, const char *const *input, int has_subfolders)
{
  int err = MILL_OK;
  char **name = NULL, path[MILL_MAX_PATH];
  MILL_TRY(MILL_ALLOC(n, &name));
  for (int i = 0; i < n; i++) {
    MILL_TRY(name_of(input[i], has_subfolders, "", path));
    MILL_TRY(mill_alloc_bytes(strlen(path) + 1, 1, (void **)&name[i]));
    memcpy(name[i], path, strlen(path) + 1);
  }
  qsort(name, (size_t)n, sizeof *name, mill_by_text_at);
  for (int i = 0; i + 1 < n; i++)
    if (strcmp(name[i], name[i + 1]) == 0)
      MILL_FAIL(MILL_ERR_USAGE, "two inputs are called %s, and so would be their products: %s",
                name[i],
                has_subfolders ? "fit them into different results"
                               : "write them with starmill export --subdirs, which keeps the last "
                                 "two folders of inputs");
done:
  for (int i = 0; name && i < n; i++)
    mill_free(name[i]);
  mill_free(name);
  return err;
}

static int check_names(const products *p)
{
  int err = MILL_OK;
  const int n = p->source->inputs.n_file;
  const size_t size = p->source->inputs.text[MILL_INPUT_PATH].n_byte + 1;
  char *text = NULL;
  const char **path = NULL;
  MILL_TRY(mill_alloc_bytes((size_t)n, size, (void **)&text));
  MILL_TRY(MILL_ALLOC(n, &path));
  for (int i = 0; i < n; i++) {
    char *at = text + (size_t)i * size;
    MILL_TRY(mill_recorded_text(&p->source->inputs, MILL_INPUT_PATH, i, at, size));
    path[i] = at;
  }
  MILL_TRY(mill_products_check_names(n, path, p->want->has_subfolders));
done:
  MILL_FREE(text, path);
  return err;
}

/* The path of a product; the folders below the output folder are made. */
static int place_product(const products *p, int i_file, const char *prefix, char out[MILL_MAX_PATH])
{
  char input[MILL_MAX_PATH], name[MILL_MAX_PATH];
  const size_t n_folder = strlen(p->want->output);
  MILL_CHECK(mill_recorded_text(&p->source->inputs, MILL_INPUT_PATH, i_file, input, sizeof input));
  MILL_CHECK(name_of(input, p->want->has_subfolders, prefix, name));
  if (snprintf(out, MILL_MAX_PATH, "%s/%s", p->want->output, name) >= MILL_MAX_PATH)
    return MILL_ERROR(MILL_ERR_USAGE, "the path of the product of %s is too long", input);
  for (char *c = out + n_folder + 1; (c = strchr(c, '/')); *c++ = '/') {
    *c = '\0';
    MILL_CHECK(make_folder(out));
  }
  return MILL_OK;
}

/* ---- writing ---- */

static int write_product(products *p, enum kind kind, int i_file, const char *what,
                         const char *path)
{
  int err = MILL_OK;
  mill_product product = {.path = ""};
  mill_carried carried = {.n = 0};
  mill_fits_file *input = NULL;
  MILL_TRY(mill_export_go_on());
  if (kind != TABLE)
    MILL_TRY(mill_carried_find(p->source, i_file, kind == RVMOD, &carried));
  if (kind != TABLE && p->want->has_fibermap)
    MILL_TRY(mill_carried_open(p->source, i_file, &carried, &input));
  MILL_TRY(mill_product_begin(path, &product));
  MILL_TRY(mill_carried_header(p->source, i_file, input, what, &product));
  MILL_TRY(kind == RVTAB   ? mill_rvtab_write(p->source, i_file, input, &carried, &product)
           : kind == RVMOD ? mill_rvmod_write(p->models, input, &carried, &product)
                           : mill_whole_write(p->source, &product));
  MILL_TRY(mill_product_commit(&product));
  p->counts.n_written++;
done:
  mill_product_end(&product);
  mill_carried_clear(&carried);
  mill_fits_file_close(input);
  return err;
}

/* One product, unless it is there; i_file -1: the table. */
static int make_product(products *p, enum kind kind, int i_file)
{
  char path[MILL_MAX_PATH];
  int state = MILL_PRODUCT_ABSENT;
  const char *const what = kind_name[kind][p->want->has_fibermap];
  if (kind == TABLE && snprintf(path, sizeof path, "%s", p->want->output) >= (int)sizeof path)
    return MILL_ERROR(MILL_ERR_USAGE, "--output: the path is too long");
  if (kind != TABLE)
    MILL_CHECK(
        place_product(p, i_file, kind == RVMOD ? p->want->mod_prefix : p->want->tab_prefix, path));
  const int code =
      mill_product_look(path, what, p->source->run_id, p->want->result, p->want->overwrite, &state);
  if (code != MILL_OK && kind != TABLE) {
    mill_log_error("%s", mill_error_message());
    if (p->n_refused++ == 0)
      memcpy(p->refused, path, sizeof path);
    return MILL_OK;
  }
  MILL_CHECK(code);
  if (state != MILL_PRODUCT_DONE)
    return write_product(p, kind, i_file, what, path);
  p->counts.n_there++;
  return MILL_OK;
}

/* A failure of one input does not affect other products. */
static int products_of(products *p, int i_file)
{
  int err = MILL_OK;
  const mill_ph5_texts *error = &p->source->inputs.text[MILL_INPUT_ERROR];
  if (error->text[(size_t)i_file * error->n_byte] != '\0') {
    p->counts.n_unread++;
    return MILL_OK;
  }
  if (p->want->tab_prefix)
    err = make_product(p, RVTAB, i_file);
  if (p->models && err == MILL_OK)
    err = make_product(p, RVMOD, i_file);
  if (err == MILL_ERR_INPUT) {
    mill_log_error("%s", mill_error_message());
    p->counts.n_failed++;
    err = MILL_OK;
  }
  return err;
}

static int open_source(void *context)
{
  products *p = context;
  const mill_products *want = p->want;
  MILL_CHECK(mill_export_open(want->result, &p->source));
  if (want->mod_prefix)
    MILL_CHECK(mill_export_models_open(p->source, want->models, &p->models));
  return want->tab_prefix || want->mod_prefix ? check_names(p) : MILL_OK;
}

int mill_products_write(const mill_mpi *mpi, const mill_products *want, mill_product_counts *counts)
{
  int err = MILL_OK;
  products p = {.want = want};
  const int is_table = !want->tab_prefix && !want->mod_prefix;
  *counts = (mill_product_counts){0};
  if (mpi->rank == 0 && !is_table)
    err = mill_products_folder(want->output, "the folder of products");
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(mill_mpi_rank0_first(mpi, open_source, &p));
  if (is_table && mpi->rank == 0)
    err = make_product(&p, TABLE, -1);
  for (int i = mpi->rank; !is_table && i < p.source->inputs.n_file && err == MILL_OK;
       i += mpi->size)
    err = products_of(&p, i);
  if (err == MILL_OK && p.n_refused > 0)
    err = MILL_ERROR(MILL_ERR_OUTPUT,
                     "%s: exists and is not a product of this result (and %lld more): give another "
                     "folder or --overwrite",
                     p.refused, (long long)p.n_refused - 1);
  MILL_TRY(mill_mpi_agree(mpi, err));
  int64_t mine[] = {p.counts.n_written, p.counts.n_there, p.counts.n_failed, p.counts.n_unread};
  int64_t all[4];
  MILL_MPI(MPI_Allreduce(mine, all, 4, MPI_INT64_T, MPI_SUM, mpi->comm));
  *counts = (mill_product_counts){p.source->table.n_row, all[0], all[1], all[2], all[3]};
done:
  mill_export_models_close(p.models);
  mill_export_close(p.source);
  return err;
}
