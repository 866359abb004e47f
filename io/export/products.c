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
#include "src/system/log.h"
#include "src/system/order.h"
#include "src/system/regular_file.h"

typedef struct products {
  const mill_products *want;
  mill_export_source *source;
  mill_export_models *models; /* NULL: none */
  mill_product_counts counts;
  int64_t n_refused;
  char refused[MILL_MAX_PATH]; /* the first product that is something else */
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
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s %s: is no folder", option, folder);
  if (access(folder, W_OK | X_OK) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot write in the folder %s: %s", option, folder,
                      strerror(errno));
  return MILL_OK;
}

/* The last two folders of a path, "100/10001/", or what there is of them; empty for a file alone.
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
  char below[MILL_EXPORT_PATH] = "";
  const char *name = mill_base_name(input);
  const size_t n = strlen(name);
  if (has_subfolders)
    last_folders(input, below, sizeof below);
  if (snprintf(out, MILL_MAX_PATH, "%s%s%.*s", below, prefix,
               (int)(n > 3 && strcmp(name + n - 3, ".gz") == 0 ? n - 3 : n), name) >= MILL_MAX_PATH)
    return MILL_ERROR(MILL_ERR_USAGE, "the name of the product of %s is too long", input);
  return MILL_OK;
}

static int name_product(const products *p, int i_file, const char *prefix, char out[MILL_MAX_PATH])
{
  char input[MILL_EXPORT_PATH], name[MILL_MAX_PATH];
  MILL_CHECK(mill_export_text(&p->source->input, i_file, input, sizeof input));
  MILL_CHECK(name_of(input, p->want->has_subfolders, prefix, name));
  if (snprintf(out, MILL_MAX_PATH, "%s/%s", p->want->folder, name) >= MILL_MAX_PATH)
    return MILL_ERROR(MILL_ERR_USAGE, "the path of the product of %s is too long", input);
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

/* No two inputs of the result have one product. */
static int check_names(const products *p)
{
  int err = MILL_OK;
  const mill_ph5_texts *input = &p->source->input;
  char *text = NULL;
  const char **path = NULL;
  MILL_TRY(mill_alloc_bytes((size_t)input->n, input->n_byte + 1, (void **)&text));
  MILL_TRY(MILL_ALLOC(input->n, &path));
  for (int64_t i = 0; i < input->n; i++) {
    char *at = text + (size_t)i * (input->n_byte + 1);
    memcpy(at, input->text + (size_t)i * input->n_byte, input->n_byte);
    path[i] = at;
  }
  MILL_TRY(mill_products_check_names((int)input->n, path, p->want->has_subfolders));
done:
  MILL_FREE(text, path);
  return err;
}

/* FOLDER/a/b of FOLDER/a/b/name */
static int make_subfolders(const products *p, const char *path)
{
  char folder[MILL_MAX_PATH];
  snprintf(folder, sizeof folder, "%s", path);
  for (char *c = folder + strlen(p->want->folder) + 1; (c = strchr(c, '/')); c++) {
    *c = '\0';
    MILL_CHECK(make_folder(folder));
    *c = '/';
  }
  return MILL_OK;
}

/* ---- writing ---- */

static int write_product(products *p, int i_file, int is_mod, const char *what, const char *path)
{
  int err = MILL_OK;
  mill_product product = {.path = ""};
  MILL_TRY(mill_product_begin(path, &product));
  MILL_TRY(
      is_mod
          ? mill_rvmod_write(p->source, p->models, i_file, p->want->has_fibermap, what, &product)
          : mill_rvtab_write(p->source, i_file, i_file + 1, p->want->has_fibermap, what, &product));
  MILL_TRY(mill_product_commit(&product));
  p->counts.n_written++;
done:
  mill_product_end(&product);
  return err;
}

static int one_product(products *p, int i_file, int is_mod)
{
  char what[64], path[MILL_MAX_PATH];
  MILL_CHECK(mill_export_go_on());
  snprintf(what, sizeof what, "%s%s", is_mod ? "rvmod" : "rvtab",
           p->want->has_fibermap ? "" : " alone");
  MILL_CHECK(name_product(p, i_file, is_mod ? p->want->mod_prefix : p->want->tab_prefix, path));
  MILL_CHECK(make_subfolders(p, path));
  const int state = mill_carried_state(p->source, path, what);
  if (state == MILL_PRODUCT_DONE && !p->want->overwrite) {
    p->counts.n_there++;
    return MILL_OK;
  }
  if (state == MILL_PRODUCT_FOREIGN || (state == MILL_PRODUCT_OTHER && !p->want->overwrite)) {
    mill_log_error("%s: exists and is %s: %s", path,
                   state == MILL_PRODUCT_OTHER ? "the product of another result"
                                               : "no export of starmill",
                   state == MILL_PRODUCT_OTHER ? "give another folder or --overwrite"
                                               : "give another folder, or remove it yourself");
    if (p->n_refused++ == 0)
      snprintf(p->refused, sizeof p->refused, "%s", path);
    return MILL_OK;
  }
  return write_product(p, i_file, is_mod, what, path);
}

/* A product that its input spoils costs no other. */
static int products_of(products *p, int i_file)
{
  int err = MILL_OK;
  const int is_read = p->source->error.text[(size_t)i_file * p->source->error.n_byte] == '\0';
  if (!is_read) {
    p->counts.n_unread++;
    goto done;
  }
  for (int is_mod = 0; is_mod < 2 && err == MILL_OK; is_mod++)
    if (is_mod ? p->models != NULL : p->want->tab_prefix != NULL)
      err = one_product(p, i_file, is_mod);
  if (err == MILL_ERR_INPUT) {
    mill_log_error("%s", mill_error_message());
    p->counts.n_failed++;
    err = MILL_OK;
  }
done:
  return err;
}

static int open_source(void *context)
{
  products *p = context;
  const mill_products *want = p->want;
  MILL_CHECK(mill_export_open(want->result, want->is_partial, &p->source));
  if (want->mod_prefix)
    MILL_CHECK(mill_export_models_open(p->source, want->models, &p->models));
  return check_names(p);
}

int mill_products_write(const mill_mpi *mpi, const mill_products *want, mill_product_counts *counts)
{
  int err = MILL_OK;
  products p = {.want = want};
  *counts = (mill_product_counts){0};
  if (mpi->rank == 0)
    err = mill_h5_check_output(want->result);
  if (err == MILL_OK && mpi->rank == 0 && want->models)
    err = mill_h5_check_output(want->models);
  if (err == MILL_OK && mpi->rank == 0)
    err = mill_products_folder(want->folder, "the folder of products");
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(mill_mpi_rank0_first(mpi, open_source, &p));
  for (int i = mpi->rank; i < p.source->n_file && err == MILL_OK; i += mpi->size)
    err = products_of(&p, i);
  if (err == MILL_OK && p.n_refused > 0)
    err = MILL_ERROR(MILL_ERR_OUTPUT,
                     "%s: exists and is no product of this result; nor are %lld more: give "
                     "another folder or --overwrite",
                     p.refused, (long long)p.n_refused - 1);
  MILL_TRY(mill_mpi_agree(mpi, err));
  int64_t mine[] = {p.counts.n_written, p.counts.n_there, p.counts.n_failed, p.counts.n_unread};
  int64_t all[4];
  MILL_MPI(MPI_Allreduce(mine, all, 4, MPI_INT64_T, MPI_SUM, mpi->comm));
  *counts = (mill_product_counts){all[0], all[1], all[2], all[3]};
done:
  mill_export_models_close(p.models);
  mill_export_close(p.source);
  return err;
}

int mill_products_check_one(const char *path, int overwrite)
{
  struct stat status;
  char key[8 * 80 + 2880];
  if (lstat(path, &status) != 0)
    return MILL_OK;
  MILL_CHECK(mill_refuse_existing(path, overwrite));
  const size_t n = mill_first_bytes(path, key, sizeof key - 1);
  key[n] = '\0';
  if (n > 0 && (strncmp(key, "SIMPLE", 6) != 0 || !strstr(key, "EXPORTED=")))
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s: exists and is no export of starmill, and --overwrite replaces nothing else: "
        "give another name, or remove it yourself",
        path);
  return MILL_OK;
}
