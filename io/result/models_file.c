/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/models_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/hdf5/hdf5_util.h"
#include "io/files/lock_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/regular_file.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/file_roles.h"
#include "src/system/watchdog.h"

#define FORMAT_NAME "starmill models"
enum {
  BLOCK_ROWS = 65536,
  MODEL_ROWS = 256, /* read together: some MB of an arm */
  NAME_SIZE = MILL_MAX_NAME + 32
};

struct mill_models_file {
  char path[MILL_MAX_PATH];
  hid_t file;
  hid_t flux[MILL_MAX_ARM], wave[MILL_MAX_ARM]; /**< wave: where rows have their own */
  char name[MILL_MAX_ARM][NAME_SIZE];           /**< of the datasets */
  char wave_name[MILL_MAX_ARM][NAME_SIZE];
  int own_waves[MILL_MAX_ARM];
  int n_arm, n_pix[MILL_MAX_ARM];
  int64_t n_row;
  mill_lock lock; /**< rank 0 */
  int held;       /**< rank 0: descriptor of the same file; -1 */
};

int mill_models_n_pix(const mill_models_file *models, int arm)
{
  return arm >= 0 && arm < models->n_arm ? models->n_pix[arm] : 0;
}

int64_t mill_models_n_row(const mill_models_file *models)
{
  return models->n_row;
}

int mill_models_has_own_waves(const mill_models_file *models, int arm)
{
  return arm >= 0 && arm < models->n_arm && models->own_waves[arm];
}

/* The datasets of the index, one entry a model row: numbers of 4 or 8 bytes, and a text. */
enum { FITS_ROW, EXPOSURE, TARGET, IDENTIFIER, N_INDEX };
enum { IDENTIFIER_SIZE = sizeof((mill_catalog_row *)0)->identifier };
static const struct {
  const char *name;
  size_t size;
  const char *description;
} index_data[N_INDEX] = {
    [FITS_ROW] = {"models/fits_row", 8, "row of /fits in the result file"},
    [EXPOSURE] = {"models/exposure", 4, "exposure of that row, from 0"},
    [TARGET] = {"models/TARGETID", 8, "target identifier, -1 when there is none"},
    [IDENTIFIER] = {"models/IDENTIFIER", IDENTIFIER_SIZE,
                    "that of the row in /catalog of the result file"}};

/* The type of dataset k, to be closed. */
static hid_t index_type(int k)
{
  const size_t size = index_data[k].size;
  return size > 8 ? mill_ph5_text_type(size) : H5Tcopy(size == 8 ? H5T_STD_I64LE : H5T_STD_I32LE);
}

/* The dataset of an arm. */
static void name_flux(const mill_models_info *info, int arm, char name[NAME_SIZE])
{
  snprintf(name, NAME_SIZE, "models/%s/flux", info->arm_name[arm]);
}

static void name_wave(const mill_models_info *info, int arm, char name[NAME_SIZE])
{
  snprintf(name, NAME_SIZE, "models/%s/wavelength", info->arm_name[arm]);
}

static int create(const char *path, const mill_models_info *info)
{
  int err = MILL_OK;
  const int64_t version = MILL_MODELS_FORMAT, none = -1; /* its first 4 bytes too */
  static const char empty[IDENTIFIER_SIZE];
  const float nan32 = NAN;
  const double nan64 = NAN;
  hid_t file = H5I_INVALID_HID, type = H5I_INVALID_HID;
  int64_t n_byte = MILL_MODELS_ROW_BYTES * info->n_exposure + (1 << 16);
  for (int a = 0; a < info->n_arm; a++)
    n_byte +=
        info->n_pix[a] * (info->wave_aa[a] ? 8 + 4 * info->n_exposure : 12 * info->n_exposure);
  MILL_TRY(mill_ph5_create(path, n_byte, &file));
  MILL_TRY(mill_ph5_attr_text(file, path, "/", "FORMAT", FORMAT_NAME));
  MILL_TRY(mill_ph5_attr_int64(file, path, "/", "FORMAT_VERSION", &version, 0));
  MILL_TRY(mill_ph5_attr_text(file, path, "/", "RUN_ID", info->run_id));
  MILL_TRY(mill_ph5_group(file, path, "models"));
  for (int k = 0; k < N_INDEX; k++) {
    type = index_type(k);
    if (type < 0)
      MILL_FAIL(MILL_ERR_MEMORY, "no memory for a type");
    MILL_TRY(mill_ph5_dataset(file, path, index_data[k].name, type, 1, info->n_exposure, 1,
                              index_data[k].size > 8 ? (const void *)empty : &none, "",
                              index_data[k].description));
    H5Tclose(type);
    type = H5I_INVALID_HID;
  }
  for (int a = 0; a < info->n_arm; a++) {
    char name[NAME_SIZE];
    if (info->n_pix[a] == 0)
      continue;
    snprintf(name, sizeof name, "models/%s", info->arm_name[a]);
    MILL_TRY(mill_ph5_group(file, path, name));
    name_wave(info, a, name);
    if (info->wave_aa[a]) {
      MILL_TRY(mill_ph5_dataset(file, path, name, H5T_IEEE_F64LE, 1, info->n_pix[a], 1, NULL,
                                "Angstrom", "vacuum wavelength of the pixels"));
      MILL_TRY(mill_ph5_write_whole(file, path, name, H5T_NATIVE_DOUBLE, info->wave_aa[a]));
    } else {
      MILL_TRY(mill_ph5_dataset(file, path, name, H5T_IEEE_F64LE, 2, info->n_exposure,
                                info->n_pix[a], &nan64, "Angstrom",
                                "vacuum wavelength of each row's pixels; NaN beyond its last "
                                "pixel and where not fitted"));
    }
    name_flux(info, a, name);
    MILL_TRY(mill_ph5_dataset(file, path, name, H5T_IEEE_F32LE, 2, info->n_exposure, info->n_pix[a],
                              &nan32, "as the input",
                              "best-fit model with its continuum; NaN where not fitted"));
  }
done:
  MILL_H5_CLOSE(type);
  return mill_ph5_end(path, &file, 1, err);
}

/* A block of a column of the result file. */
static int read_column(const mill_models_info *info, const char *name, hid_t type, int64_t start,
                       int64_t n, void *out)
{
  return mill_ph5_read_rows(info->result, info->result_path, name, type, info->n_row, NULL, start,
                            n, out);
}

/* Some rows of the result, and their model rows, which follow one another. */
typedef struct block {
  int64_t n_row, first, n_model;
  int64_t *first_exposure; /* [n_row] */
  int32_t *n_exposure;     /* [n_row] */
  void *value[N_INDEX];    /* [n_model] */
} block;

static void clear_block(block *b)
{
  for (int k = 0; k < N_INDEX; k++)
    mill_free(b->value[k]);
  MILL_FREE(b->first_exposure, b->n_exposure);
  *b = (block){.n_row = 0};
}

/* Which exposures the rows [start, start + n) have, of rows with at most n_most, or of one. */
static int find_exposures(const mill_models_info *info, int64_t start, int64_t n, int64_t n_most,
                          block *b)
{
  MILL_CHECK(MILL_ALLOC(n, &b->first_exposure));
  MILL_CHECK(MILL_ALLOC(n, &b->n_exposure));
  MILL_CHECK(read_column(info, "catalog/N_EXPOSURE", H5T_STD_I32LE, start, n, b->n_exposure));
  MILL_CHECK(
      read_column(info, "catalog/FIRST_EXPOSURE", H5T_STD_I64LE, start, n, b->first_exposure));
  b->first = n > 0 ? b->first_exposure[0] : 0;
  for (; b->n_row < n; b->n_row++) {
    const int64_t i = b->n_row, n_exp = b->n_exposure[i];
    if (n_exp < 0 || b->first < 0 || b->first_exposure[i] != b->first + b->n_model ||
        b->first_exposure[i] > info->n_exposure - n_exp)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: the exposures of row %lld",
                        info->result_path, (long long)(start + i));
    if (i > 0 && b->n_model + n_exp > n_most)
      break;
    b->n_model += n_exp;
  }
  return MILL_OK;
}

/* The index of the rows [start, start + n). */
static int collect_index(const mill_models_info *info, int64_t start, int64_t n, block *b)
{
  int err = MILL_OK;
  int64_t *target = NULL;
  char *identifier = NULL;
  hid_t type = index_type(IDENTIFIER);
  MILL_TRY(find_exposures(info, start, n, INT64_MAX, b));
  MILL_TRY(MILL_ALLOC(n, &target));
  MILL_TRY(MILL_ALLOC(n * IDENTIFIER_SIZE, &identifier));
  MILL_TRY(read_column(info, "catalog/TARGETID", H5T_STD_I64LE, start, n, target));
  MILL_TRY(read_column(info, "catalog/IDENTIFIER", type, start, n, identifier));
  for (int k = 0; k < N_INDEX; k++)
    MILL_TRY(mill_alloc_bytes((size_t)b->n_model, index_data[k].size, &b->value[k]));
  for (int64_t i = 0, m = 0; i < n; i++)
    for (int32_t e = 0; e < b->n_exposure[i]; e++, m++) {
      ((int64_t *)b->value[FITS_ROW])[m] = start + i;
      ((int32_t *)b->value[EXPOSURE])[m] = e;
      ((int64_t *)b->value[TARGET])[m] = target[i];
      memcpy((char *)b->value[IDENTIFIER] + m * IDENTIFIER_SIZE, identifier + i * IDENTIFIER_SIZE,
             IDENTIFIER_SIZE);
    }
done:
  MILL_H5_CLOSE(type);
  MILL_FREE(target, identifier);
  return err;
}

/* Collective: dataset k of the index, for a block. */
static int write_index(hid_t file, const char *path, int k, const mill_ph5_rows *rows,
                       const void *value)
{
  int err = MILL_OK;
  const char *name = index_data[k].name;
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), type = index_type(k);
  if (dataset < 0 || type < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot open %s: %s", path, name, mill_h5_reason());
  MILL_TRY(mill_ph5_write(dataset, path, name, type, rows, value));
done:
  MILL_H5_CLOSE(dataset, type);
  return err;
}

/* Collective: all ranks make the same number of calls, each for its share of the rows. */
static int fill_index(const mill_models_info *info, const mill_mpi *mpi, const char *path,
                      hid_t file)
{
  int err = MILL_OK;
  const int64_t lo = info->n_row * mpi->rank / mpi->size;
  const int64_t hi = info->n_row * (mpi->rank + 1) / mpi->size;
  const int64_t per_rank = (info->n_row + mpi->size - 1) / mpi->size;
  block b = {.n_row = 0};
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  for (int64_t at = 0; at < per_rank; at += BLOCK_ROWS) {
    const int64_t left = hi - lo - at;
    const int64_t n = left < 0 ? 0 : left < BLOCK_ROWS ? left : BLOCK_ROWS;
    err = collect_index(info, lo + (n > 0 ? at : 0), n, &b);
    if (err == MILL_OK)
      err = mill_ph5_select_range(path, 1, info->n_exposure, 1, b.first, b.n_model, &rows);
    MILL_TRY(mill_mpi_agree(mpi, err));
    for (int k = 0; k < N_INDEX; k++)
      MILL_TRY(mill_mpi_agree(mpi, write_index(file, path, k, &rows, b.value[k])));
    mill_ph5_unselect(&rows);
    clear_block(&b);
  }
done:
  mill_ph5_unselect(&rows);
  clear_block(&b);
  return err;
}

/* Does an arm have the expected shape and wavelengths? */
static int check_arm(hid_t file, const char *path, const mill_models_info *info, int a)
{
  int err = MILL_OK;
  char name[NAME_SIZE];
  hid_t flux = H5I_INVALID_HID, each = H5I_INVALID_HID;
  double *wave = NULL;
  name_flux(info, a, name);
  MILL_TRY(mill_ph5_open_dataset(file, path, name, H5T_IEEE_F32LE, 2, info->n_exposure,
                                 info->n_pix[a], &flux));
  name_wave(info, a, name);
  if (!info->wave_aa[a]) {
    if (mill_ph5_open_dataset(file, path, name, H5T_IEEE_F64LE, 2, info->n_exposure, info->n_pix[a],
                              &each) != MILL_OK)
      MILL_FAIL(MILL_ERR_OUTPUT,
                "%s has one set of wavelengths for all rows in arm %s, but they differ now", path,
                info->arm_name[a]);
    goto done;
  }
  MILL_TRY(MILL_ALLOC(info->n_pix[a], &wave));
  MILL_TRY(mill_ph5_read_whole(file, path, name, H5T_NATIVE_DOUBLE, info->n_pix[a], wave));
  if (memcmp(wave, info->wave_aa[a], sizeof *wave * (size_t)info->n_pix[a]) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s has other wavelengths in arm %s", path, info->arm_name[a]);
done:
  mill_free(wave);
  MILL_H5_CLOSE(flux, each);
  return err;
}

static int read_run_id(const char *path, const char *object, char out[MILL_RUN_ID_SIZE])
{
  int err = MILL_OK;
  hid_t file = H5I_INVALID_HID;
  MILL_TRY(mill_h5_check_output(path));
  MILL_TRY(mill_ph5_open(path, H5F_ACC_RDONLY, MPI_COMM_SELF, &file));
  MILL_TRY(mill_ph5_read_attr_text(file, path, object, "RUN_ID", out, MILL_RUN_ID_SIZE));
done:
  MILL_H5_CLOSE(file);
  return err;
}

void mill_models_remove_of(const char *path, const char *result)
{
  char end[MILL_MAX_PATH], id[MILL_RUN_ID_SIZE], of_result[MILL_RUN_ID_SIZE];
  if (mill_resolve_links(path, end, sizeof end) == MILL_OK && access(end, F_OK) == 0 &&
      read_run_id(end, "/", id) == MILL_OK &&
      read_run_id(result, "provenance", of_result) == MILL_OK && strcmp(id, of_result) == 0)
    unlink(end);
}

/* Rank 0: can the existing file be used? */
static int inspect(const char *path, const mill_models_info *info, int *found)
{
  int err = MILL_OK;
  char text[64];
  hid_t file = H5I_INVALID_HID;
  struct stat status;
  *found = 0;
  if (info->n_done > 0)
    MILL_TRY(mill_result_layout_check_modelled(info->result, info->result_path, path));
  if (stat(path, &status) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
    if (info->n_done > 0)
      MILL_FAIL(
          MILL_ERR_OUTPUT,
          "%s does not exist, but %lld rows of %s are already fitted and their models would be "
          "missing: continue without --models",
          path, (long long)info->n_done, info->result_path);
    goto done;
  }
  if (!S_ISREG(status.st_mode))
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists and is not a regular file", path);
  MILL_TRY(mill_h5_check_output(path));
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  if (H5Fis_hdf5(path) <= 0) {
    MILL_TRY(mill_check_descriptors(path, MILL_ERR_OUTPUT));
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists and is not an HDF5 file", path);
  }
  if (mill_ph5_open(path, H5F_ACC_RDONLY, MPI_COMM_SELF, &file) != MILL_OK) {
    MILL_TRY(mill_check_descriptors(path, MILL_ERR_OUTPUT));
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists and is a damaged or truncated HDF5 file", path);
  }
  if (mill_ph5_read_attr_text(file, path, "/", "FORMAT", text, sizeof text) != MILL_OK ||
      strcmp(text, FORMAT_NAME) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists and is not a models file of starmill", path);
  if (mill_ph5_read_attr_text(file, path, "/", "RUN_ID", text, sizeof text) != MILL_OK ||
      strcmp(text, info->run_id) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists and belongs to another result file than %s", path,
              info->result_path);
  for (int a = 0; a < info->n_arm; a++)
    if (info->n_pix[a] > 0)
      MILL_TRY(check_arm(file, path, info, a));
  *found = 1;
done:
  MILL_H5_CLOSE(file);
  return err;
}

/* Rank 0, with the lock: *found what can be used, or the file made under a temporary name. */
static int find_or_create(mill_models_file *models, int overwrite, const mill_models_info *info,
                          const char *temporary, int *found)
{
  int err = MILL_OK;
  if (!overwrite)
    err = inspect(models->path, info, found);
  if (err == MILL_ERR_OUTPUT && info->target)
    MILL_FAIL(err, "%s; give another --models, or remove %s to start over", mill_error_message(),
              info->result_path);
  if (err == MILL_ERR_OUTPUT)
    MILL_FAIL(err, "%s; give another --models, or --overwrite to start over", mill_error_message());
  if (err != MILL_OK)
    goto done;
  mill_lock_remove_leftovers(&models->lock, info->target ? info->target : models->path);
  if (!*found)
    MILL_TRY(create(temporary, info));
done:
  return err;
}

/* Collective: the index of a new file, which then gets its name. */
static int complete(const char *temporary, const char *path, const mill_models_info *info,
                    const mill_mpi *mpi, hid_t *file)
{
  MILL_CHECK(mill_mpi_agree(mpi, mill_ph5_open(temporary, H5F_ACC_RDWR, mpi->comm, file)));
  MILL_CHECK(fill_index(info, mpi, temporary, *file));
  MILL_CHECK(mill_mpi_agree(mpi, mill_ph5_close(temporary, file)));
  return mill_mpi_agree(mpi, mpi->rank == 0 ? mill_ph5_rename(temporary, path) : MILL_OK);
}

static int open_arms(mill_models_file *models, const mill_models_info *info, const mill_mpi *mpi)
{
  MILL_CHECK(mill_ph5_open(models->path, H5F_ACC_RDWR, mpi->comm, &models->file));
  if (mpi->rank == 0)
    MILL_CHECK(mill_ph5_hold(models->path, &models->held));
  for (int a = 0; a < info->n_arm; a++) {
    if (info->n_pix[a] == 0)
      continue;
    name_flux(info, a, models->name[a]);
    MILL_CHECK(mill_ph5_open_dataset(models->file, models->path, models->name[a], H5T_IEEE_F32LE, 2,
                                     info->n_exposure, info->n_pix[a], &models->flux[a]));
    models->own_waves[a] = info->wave_aa[a] == NULL;
    name_wave(info, a, models->wave_name[a]);
    if (models->own_waves[a])
      MILL_CHECK(mill_ph5_open_dataset(models->file, models->path, models->wave_name[a],
                                       H5T_IEEE_F64LE, 2, info->n_exposure, info->n_pix[a],
                                       &models->wave[a]));
  }
  return MILL_OK;
}

int mill_models_open(const char *path, int overwrite, const mill_models_info *info,
                     const mill_mpi *mpi, mill_models_file **out)
{
  int err = MILL_OK, found = 0;
  char temporary[MILL_MAX_PATH] = "", end[MILL_MAX_PATH] = "", job[96];
  mill_models_file *models = NULL;
  *out = NULL;
  MILL_TRY(mill_resolve_links_for_all(mpi, path, end, sizeof end));
  err = MILL_ALLOC(1, &models);
  MILL_TRY(mill_mpi_agree(mpi, err));
  models->file = H5I_INVALID_HID;
  models->held = -1;
  models->n_arm = info->n_arm;
  models->n_row = info->n_exposure;
  memcpy(models->n_pix, info->n_pix, sizeof models->n_pix);
  mill_lock_job(job, sizeof job);
  if (snprintf(models->path, sizeof models->path, "%s", end) >= (int)sizeof models->path - 128)
    err = MILL_ERROR(MILL_ERR_OUTPUT, "the path of --models is too long");
  if (mpi->rank == 0 && err == MILL_OK) {
    snprintf(temporary, sizeof temporary, "%.*s.tmp-%s", (int)sizeof temporary - 128,
             info->target ? info->target : end, job);
    err = mill_lock_take(info->target ? info->target : end, &models->lock);
    if (err == MILL_OK)
      err = find_or_create(models, overwrite, info, temporary, &found);
  }
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_MPI(MPI_Bcast(&found, 1, MPI_INT, 0, mpi->comm));
  MILL_MPI(MPI_Bcast(temporary, sizeof temporary, MPI_CHAR, 0, mpi->comm));
  if (!found)
    MILL_TRY(complete(temporary, end, info, mpi, &models->file));
  temporary[0] = '\0';
  MILL_TRY(mill_mpi_agree(mpi, open_arms(models, info, mpi)));
  *out = models;
done:
  if (err != MILL_OK) {
    if (mpi->rank == 0 && temporary[0])
      unlink(temporary);
    (void)mill_models_close(models, mpi->size);
  }
  return err;
}

static int by_arm_and_row(const void *a, const void *b)
{
  const mill_model_item *x = a, *y = b;
  return x->arm != y->arm ? x->arm - y->arm : (x->row > y->row) - (x->row < y->row);
}

int mill_models_write(mill_models_file *models, mill_model_item *item, int64_t n, const float *pool)
{
  int err = MILL_OK, failed = MILL_OK;
  if (n > 0)
    qsort(item, (size_t)n, sizeof *item, by_arm_and_row);
  /* after a failure here the collective writes of the other arms still happen */
  for (int64_t i = 0, a = 0; a < models->n_arm; a++) {
    const size_t n_pix = (size_t)models->n_pix[a];
    int64_t n_arm = 0, n_put;
    int64_t *row = NULL;
    float *packed = NULL;
    double *packed_wave = NULL;
    mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
    if (n_pix == 0)
      continue;
    while (i + n_arm < n && item[i + n_arm].arm == a)
      n_arm++;
    err = MILL_ALLOC(n_arm, &row);
    if (err == MILL_OK)
      err = MILL_ALLOC((size_t)n_arm * n_pix, &packed);
    if (err == MILL_OK && models->own_waves[a])
      err = MILL_ALLOC((size_t)n_arm * n_pix, &packed_wave);
    n_put = err == MILL_OK ? n_arm : 0;
    for (int64_t k = 0; k < n_put; k++) {
      row[k] = item[i + k].row;
      memcpy(packed + (size_t)k * n_pix, pool + item[i + k].at, n_pix * sizeof *packed);
      if (packed_wave)
        memcpy(packed_wave + (size_t)k * n_pix, pool + item[i + k].at + n_pix,
               n_pix * sizeof *packed_wave);
    }
    failed = failed == MILL_OK ? err : failed;
    err = mill_ph5_select(models->path, 2, models->n_row, (int64_t)n_pix, row, n_put, &rows);
    failed = failed == MILL_OK ? err : failed;
    err = mill_ph5_write(models->flux[a], models->path, models->name[a], H5T_NATIVE_FLOAT, &rows,
                         packed);
    failed = failed == MILL_OK ? err : failed;
    if (models->own_waves[a]) {
      err = mill_ph5_write(models->wave[a], models->path, models->wave_name[a], H5T_NATIVE_DOUBLE,
                           &rows, packed_wave);
      failed = failed == MILL_OK ? err : failed;
    }
    mill_ph5_unselect(&rows);
    MILL_FREE(packed_wave, packed, row);
    i += n_arm;
  }
  return failed;
}

int mill_models_sync(mill_models_file *models)
{
  if (H5Fflush(models->file, H5F_SCOPE_LOCAL) < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be flushed to disk: %s", models->path,
                      mill_h5_reason());
  return MILL_OK;
}

/* ---- rows of an earlier run ---- */

/* Is a model there (1), not there (0), or cut (-1)? */
static int state_of_model(int n_pix, const float *flux, const double *wave)
{
  int n_flux = 0, n_expected = 0;
  for (int i = 0; i < n_pix; i++) {
    const int is_there = !isnan(flux[i]), is_expected = wave ? !isnan(wave[i]) : 1;
    n_flux += is_there;
    n_expected += is_expected;
    if (wave && is_there != is_expected)
      return -1;
  }
  return n_flux == 0 ? 0 : n_flux == n_expected ? 1 : -1;
}

/* The model rows of a block in an arm's dataset, for mill_free. */
static int read_models(const mill_models_file *models, int arm, int is_wave, const block *b,
                       void *out)
{
  int err = MILL_OK;
  void *values = NULL;
  const int n_pix = models->n_pix[arm];
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  MILL_TRY(mill_alloc_raw((size_t)b->n_model * (size_t)n_pix,
                          is_wave ? sizeof(double) : sizeof(float), &values));
  MILL_TRY(
      mill_ph5_select_range(models->path, 2, models->n_row, n_pix, b->first, b->n_model, &rows));
  MILL_TRY(mill_ph5_read(is_wave ? models->wave[arm] : models->flux[arm], models->path,
                         is_wave ? models->wave_name[arm] : models->name[arm],
                         is_wave ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT, &rows, values));
  *(void **)out = values;
  values = NULL;
done:
  mill_free(values);
  mill_ph5_unselect(&rows);
  return err;
}

/* Note the rows, which begin at start, whose models in an arm are not whole. */
static int look_at_arm(const mill_models_file *models, const mill_models_info *info, int arm,
                       int64_t start, const block *b, char *is_missing)
{
  int err = MILL_OK;
  const int n_pix = models->n_pix[arm];
  const mill_column *good = &info->columns->column[info->columns->i_n_pix[arm]];
  char name[sizeof good->name + 8];
  float *flux = NULL;
  double *wave = NULL;
  int64_t *n_good = NULL;
  MILL_TRY(MILL_ALLOC(b->n_row, &n_good));
  snprintf(name, sizeof name, "fits/%s", good->name);
  MILL_TRY(read_column(info, name, H5T_STD_I64LE, start, b->n_row, n_good));
  MILL_TRY(read_models(models, arm, 0, b, &flux));
  if (models->own_waves[arm])
    MILL_TRY(read_models(models, arm, 1, b, &wave));
  for (int64_t i = 0; i < b->n_row; i++) {
    int64_t n_there = 0, n_cut = 0;
    for (int32_t e = 0; e < b->n_exposure[i]; e++) {
      const size_t at = (size_t)(b->first_exposure[i] + e - b->first) * (size_t)n_pix;
      const int state = state_of_model(n_pix, flux + at, wave ? wave + at : NULL);
      n_there += state == 1;
      n_cut += state < 0;
    }
    is_missing[i] |= n_cut > 0 || (n_good[i] > 0 && n_there == 0);
  }
done:
  MILL_FREE(n_good, flux, wave);
  return err;
}

int mill_models_find_missing(const mill_models_file *models, const mill_models_info *info,
                             int64_t lo, int64_t hi, int watch, int64_t **row, int64_t *n)
{
  int err = MILL_OK;
  int64_t n_room = 0;
  int32_t status[MODEL_ROWS];
  block b = {.n_row = 0};
  *row = NULL;
  *n = 0;
  for (int64_t at = lo; at < hi;) {
    char is_missing[MODEL_ROWS] = {0};
    MILL_TRY(find_exposures(info, at, hi - at < MODEL_ROWS ? hi - at : MODEL_ROWS, MODEL_ROWS, &b));
    MILL_TRY(read_column(info, "fits/STATUS", H5T_STD_I32LE, at, b.n_row, status));
    for (int a = 0; a < info->n_arm; a++)
      if (models->n_pix[a] > 0)
        MILL_TRY(look_at_arm(models, info, a, at, &b, is_missing));
    for (int64_t i = 0; i < b.n_row; i++) {
      if (!is_missing[i] || status[i] != MILL_STATUS_FITTED)
        continue;
      MILL_TRY(MILL_GROW(row, &n_room, *n + 1));
      (*row)[(*n)++] = at + i;
    }
    at += b.n_row;
    clear_block(&b);
    mill_watch_again(watch);
  }
done:
  clear_block(&b);
  return err;
}

int mill_models_still_there(const mill_models_file *models)
{
  if (!models)
    return MILL_OK;
  MILL_CHECK(mill_lock_keep(&models->lock));
  return mill_ph5_still_there(models->path, models->held);
}

int mill_models_close(mill_models_file *models, int n_drop)
{
  int err = MILL_OK;
  if (!models)
    return MILL_OK;
  mill_h5_close_ids(MILL_MAX_ARM, models->flux);
  mill_h5_close_ids(MILL_MAX_ARM, models->wave);
  if (n_drop > 0)
    mill_ph5_drop(&models->file, n_drop);
  else
    err = mill_ph5_close(models->path, &models->file);
  if (err == MILL_OK && n_drop == 0)
    err = mill_models_still_there(models);
  if (models->held >= 0)
    close(models->held);
  mill_lock_release(&models->lock);
  mill_free(models);
  return err;
}
