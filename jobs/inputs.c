#define _GNU_SOURCE /* qsort_r */

#include "jobs/inputs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/catalog_list.h"
#include "kernels/error.h"
#include "src/log.h"

/* What a rank finds out about a file. */
typedef struct file_facts {
  mill_input_file file;
  int64_t n_exposure;
  int on_disk; /* the next two are known */
  uint64_t device, inode;
} file_facts;

/* Names of all inputs, one after the other, each with its final zero. */
typedef struct name_list {
  int64_t n, n_byte;
  char *text;
  const char **name; /* [n] into text */
} name_list;

/* Rank 0: command line, then catalog file. */
static int collect_names(const mill_fit_options *options, name_list *names)
{
  int err = MILL_OK;
  char **listed = NULL;
  size_t n_listed = 0;
  if (options->catalog)
    MILL_TRY(mill_catalog_list_read(options->catalog, &listed, &n_listed));
  names->n = options->n_input + (int64_t)n_listed;
  if (names->n == 0 && options->catalog)
    MILL_FAIL(MILL_ERR_USAGE, "the catalog %s names no file", options->catalog);
  if (names->n == 0)
    MILL_FAIL(MILL_ERR_USAGE,
              "no input: name FITS files or give --catalog; see starmill fit --help");
  if (names->n > INT_MAX / 2)
    MILL_FAIL(MILL_ERR_USAGE, "%lld inputs are too many for one run", (long long)names->n);
  for (int64_t i = 0; i < names->n; i++) {
    const char *name = i < options->n_input ? options->input[i] : listed[i - options->n_input];
    const size_t n = strlen(name);
    if (n == 0 || n >= sizeof((mill_input_file *)0)->path)
      MILL_FAIL(MILL_ERR_USAGE, "input %lld has a path of %zu bytes; 1 to %zu are possible",
                (long long)i + 1, n, sizeof((mill_input_file *)0)->path - 1);
    names->n_byte += (int64_t)n + 1;
  }
  if (names->n_byte > INT_MAX)
    MILL_FAIL(MILL_ERR_USAGE, "the names of the %lld inputs are too long for one run",
              (long long)names->n);
  MILL_TRY(MILL_ALLOC(names->n_byte, &names->text));
  char *at = names->text;
  for (int64_t i = 0; i < names->n; i++) {
    const char *name = i < options->n_input ? options->input[i] : listed[i - options->n_input];
    const size_t n = strlen(name) + 1;
    memcpy(at, name, n);
    at += n;
  }
done:
  mill_catalog_list_free(listed, n_listed);
  return err;
}

static int split_names(name_list *names)
{
  int err = MILL_OK;
  MILL_TRY(MILL_ALLOC(names->n, &names->name));
  const char *at = names->text;
  for (int64_t i = 0; i < names->n; i++) {
    names->name[i] = at;
    at += strlen(at) + 1;
  }
done:
  return err;
}

static int share_names(const mill_mpi *mpi, const mill_fit_options *options, name_list *names)
{
  int err = MILL_OK;
  int64_t size[2] = {0, 0};
  if (mpi->rank == 0)
    err = collect_names(options, names);
  MILL_TRY(mill_mpi_agree(mpi, err));
  size[0] = names->n;
  size[1] = names->n_byte;
  MILL_MPI(MPI_Bcast(size, 2, MPI_INT64_T, 0, mpi->comm));
  names->n = size[0];
  names->n_byte = size[1];
  if (mpi->rank != 0)
    err = MILL_ALLOC(names->n_byte, &names->text);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_MPI(MPI_Bcast(names->text, (int)names->n_byte, MPI_CHAR, 0, mpi->comm));
  MILL_TRY(mill_mpi_agree(mpi, split_names(names)));
done:
  return err;
}

/* Remember the wavelengths of arms seen for the first time. */
static int keep_wavelengths(const mill_desi_file *desi, const mill_library *lib, int i_file,
                            mill_inputs *inputs, int *first_file)
{
  int err = MILL_OK;
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_desi_arm *info = mill_desi_arm_info(desi, a);
    if (info->n_pix == 0 || first_file[a] != INT_MAX)
      continue;
    MILL_TRY(MILL_ALLOC(info->n_pix, &inputs->wave_aa[a]));
    memcpy(inputs->wave_aa[a], info->wave_aa, (size_t)info->n_pix * sizeof(double));
    inputs->n_pix[a] = info->n_pix;
    first_file[a] = i_file;
  }
done:
  return err;
}

static int index_file(const char *path, const mill_config *config, const mill_library *lib,
                      int i_file, int want_models, mill_inputs *inputs, int *first_file,
                      file_facts *facts)
{
  int err = MILL_OK;
  mill_file_index *index = &inputs->index[i_file - inputs->file_start];
  const mill_open_limits limits = {config->gzip_limit_mib, config->scratch};
  mill_desi_file *desi = NULL;
  struct stat status;

  snprintf(facts->file.path, sizeof facts->file.path, "%s", path);
  facts->file.size = -1;
  facts->file.mtime = 0;
  if (stat(path, &status) == 0) {
    facts->on_disk = 1;
    facts->device = (uint64_t)status.st_dev;
    facts->inode = (uint64_t)status.st_ino;
    facts->file.size = (int64_t)status.st_size;
    facts->file.mtime = (double)status.st_mtim.tv_sec + 1e-9 * (double)status.st_mtim.tv_nsec;
  }
  err = mill_desi_open(path, lib, &limits, &desi);
  if (err == MILL_OK)
    err = mill_desi_index(desi, &config->select, index);
  if (err == MILL_ERR_INPUT || err == MILL_ERR_RANGE) {
    mill_log_error("%s", mill_error_message());
    snprintf(facts->file.error, sizeof facts->file.error, "%s", mill_error_message());
    mill_file_index_clear(index);
    memset(index, 0, sizeof *index);
    err = MILL_OK;
    goto done;
  }
  MILL_TRY(err);
  facts->file.size = index->file_size;
  facts->file.mtime = index->file_mtime;
  facts->file.n_row = index->n_row;
  facts->n_exposure = index->n_exposure;
  mill_log_debug("%s: %lld of %lld rows selected", path, (long long)index->n_row,
                 (long long)index->n_fits_row);
  if (want_models && index->n_row > 0)
    MILL_TRY(keep_wavelengths(desi, lib, i_file, inputs, first_file));
done:
  mill_desi_close(desi);
  return err;
}

static int index_share(const name_list *names, const mill_config *config, const mill_library *lib,
                       int want_models, mill_inputs *inputs, int *first_file, file_facts *facts)
{
  int err = MILL_OK;
  MILL_TRY(MILL_ALLOC(inputs->file_end - inputs->file_start, &inputs->index));
  for (int i = inputs->file_start; i < inputs->file_end; i++)
    MILL_TRY(
        index_file(names->name[i], config, lib, i, want_models, inputs, first_file, &facts[i]));
done:
  return err;
}

static int gather_facts(const mill_mpi *mpi, int n_file, file_facts *facts)
{
  int err = MILL_OK;
  int *count = NULL, *start = NULL;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  err = MILL_ALLOC(mpi->size, &count);
  if (err == MILL_OK)
    err = MILL_ALLOC(mpi->size, &start);
  MILL_TRY(mill_mpi_agree(mpi, err));
  for (int rank = 0; rank < mpi->size; rank++) {
    start[rank] = (int)((int64_t)n_file * rank / mpi->size);
    count[rank] = (int)((int64_t)n_file * (rank + 1) / mpi->size) - start[rank];
  }
  MILL_MPI(MPI_Type_contiguous((int)sizeof(file_facts), MPI_BYTE, &type));
  MILL_MPI(MPI_Type_commit(&type));
  MILL_MPI(
      MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, facts, count, start, type, mpi->comm));
done:
  if (type != MPI_DATATYPE_NULL)
    MPI_Type_free(&type);
  mill_free(count);
  mill_free(start);
  return err;
}

static int compare_identity(const void *a, const void *b, void *all)
{
  const file_facts *x = (const file_facts *)all + *(const int *)a;
  const file_facts *y = (const file_facts *)all + *(const int *)b;
  if (x->on_disk != y->on_disk)
    return x->on_disk - y->on_disk;
  if (!x->on_disk)
    return strcmp(x->file.path, y->file.path);
  if (x->device != y->device)
    return x->device < y->device ? -1 : 1;
  return (x->inode > y->inode) - (x->inode < y->inode);
}

/* The same file twice would give its stars twice, unnoticed. */
static int refuse_duplicates(file_facts *facts, int n_file)
{
  int err = MILL_OK;
  int *order = NULL;
  MILL_TRY(MILL_ALLOC(n_file, &order));
  for (int i = 0; i < n_file; i++)
    order[i] = i;
  qsort_r(order, (size_t)n_file, sizeof *order, compare_identity, facts);
  for (int i = 1; i < n_file; i++)
    if (compare_identity(&order[i - 1], &order[i], facts) == 0)
      MILL_FAIL(MILL_ERR_USAGE, "inputs %d (%s) and %d (%s) are the same file: name it once",
                order[i - 1] + 1, facts[order[i - 1]].file.path, order[i] + 1,
                facts[order[i]].file.path);
done:
  mill_free(order);
  return err;
}

/* --overwrite must not destroy what the run reads. */
static int refuse_output_as_input(const file_facts *facts, int n_file, const char *output)
{
  int err = MILL_OK;
  struct stat status;
  if (!output || stat(output, &status) != 0)
    goto done;
  for (int i = 0; i < n_file; i++)
    if (facts[i].on_disk && facts[i].device == (uint64_t)status.st_dev &&
        facts[i].inode == (uint64_t)status.st_ino)
      MILL_FAIL(MILL_ERR_USAGE, "%s is an input and cannot be an output", output);
done:
  return err;
}

static int build_table(file_facts *facts, const mill_fit_options *options, mill_inputs *inputs)
{
  int err = MILL_OK;
  int64_t n_exposure = 0;
  MILL_TRY(refuse_duplicates(facts, inputs->n_file));
  MILL_TRY(refuse_output_as_input(facts, inputs->n_file, options->output));
  MILL_TRY(refuse_output_as_input(facts, inputs->n_file, options->models));
  MILL_TRY(MILL_ALLOC(inputs->n_file, &inputs->file));
  MILL_TRY(MILL_ALLOC(inputs->n_file, &inputs->exposure_start));
  for (int i = 0; i < inputs->n_file; i++) {
    inputs->file[i] = facts[i].file;
    inputs->file[i].row_start = inputs->n_row;
    inputs->exposure_start[i] = n_exposure;
    inputs->n_row += facts[i].file.n_row;
    n_exposure += facts[i].n_exposure;
    inputs->n_unreadable += facts[i].file.error[0] != '\0';
  }
done:
  return err;
}

/* Per arm, everybody gets the wavelengths of the first file of all that has it. */
static int share_wavelengths(const mill_mpi *mpi, const mill_library *lib, const int *first_file,
                             mill_inputs *inputs)
{
  int err = MILL_OK;
  for (int a = 0; a < lib->n_arm; a++) {
    struct {
      int file, rank;
    } mine = {first_file[a], mpi->rank}, first;
    MILL_MPI(MPI_Allreduce(&mine, &first, 1, MPI_2INT, MPI_MINLOC, mpi->comm));
    if (first.file == INT_MAX)
      continue;
    MILL_MPI(MPI_Bcast(&inputs->n_pix[a], 1, MPI_INT, first.rank, mpi->comm));
    if (mpi->rank != first.rank) {
      mill_free(inputs->wave_aa[a]);
      err = MILL_ALLOC(inputs->n_pix[a], &inputs->wave_aa[a]);
    }
    MILL_TRY(mill_mpi_agree(mpi, err));
    MILL_MPI(MPI_Bcast(inputs->wave_aa[a], inputs->n_pix[a], MPI_DOUBLE, first.rank, mpi->comm));
  }
done:
  return err;
}

int mill_inputs_index(const mill_mpi *mpi, const mill_fit_options *options,
                      const mill_config *config, const mill_library *lib, mill_inputs *inputs)
{
  int err = MILL_OK;
  const int want_models = options->models != NULL;
  name_list names = {0};
  file_facts *facts = NULL;
  int first_file[MILL_MAX_ARM];

  memset(inputs, 0, sizeof *inputs);
  for (int a = 0; a < MILL_MAX_ARM; a++)
    first_file[a] = INT_MAX;
  MILL_TRY(share_names(mpi, options, &names));
  inputs->n_file = (int)names.n;
  inputs->file_start = (int)(names.n * mpi->rank / mpi->size);
  inputs->file_end = (int)(names.n * (mpi->rank + 1) / mpi->size);
  err = MILL_ALLOC(names.n, &facts);
  if (err == MILL_OK)
    err = index_share(&names, config, lib, want_models, inputs, first_file, facts);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(gather_facts(mpi, inputs->n_file, facts));
  MILL_TRY(mill_mpi_agree(mpi, build_table(facts, options, inputs)));
  if (want_models)
    MILL_TRY(share_wavelengths(mpi, lib, first_file, inputs));
done:
  mill_free(facts);
  mill_free(names.text);
  mill_free(names.name);
  return err;
}

void mill_inputs_drop_index(mill_inputs *inputs)
{
  if (inputs->index)
    for (int i = 0; i < inputs->file_end - inputs->file_start; i++)
      mill_file_index_clear(&inputs->index[i]);
  mill_free(inputs->index);
  inputs->index = NULL;
}

void mill_inputs_clear(mill_inputs *inputs)
{
  if (!inputs)
    return;
  mill_inputs_drop_index(inputs);
  mill_free(inputs->file);
  mill_free(inputs->exposure_start);
  for (int a = 0; a < MILL_MAX_ARM; a++)
    mill_free(inputs->wave_aa[a]);
  memset(inputs, 0, sizeof *inputs);
}
