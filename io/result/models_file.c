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
#include "src/ranks/same_on_ranks.h"
#include "src/system/order.h"
#include "src/system/watchdog.h"

#define FORMAT_NAME "starmill models"
enum {
  BLOCK_ROWS = 65536,
  MODEL_ROWS = 256, /* looked at together: some MB of an arm */
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

/* one model row of the index; row first, for sorting */
typedef struct index_row {
  int64_t row, fits_row, target;
  int32_t exposure;
  char identifier[sizeof((mill_catalog_row *)0)->identifier];
} index_row;

/* The datasets of the index: numbers of 4 or 8 bytes, and a text. */
static const struct {
  const char *name;
  size_t size, field;
  const char *description;
} index_data[] = {
    {"models/fits_row", 8, offsetof(index_row, fits_row), "row of /fits in the result file"},
    {"models/exposure", 4, offsetof(index_row, exposure), "exposure of that row, from 0"},
    {"models/TARGETID", 8, offsetof(index_row, target), "target identifier, -1 when there is none"},
    {"models/IDENTIFIER", sizeof((index_row *)0)->identifier, offsetof(index_row, identifier),
     "that of the row in /catalog of the result file"}};
enum { N_INDEX = sizeof index_data / sizeof index_data[0] };

/* The type of dataset k, to be closed. */
static hid_t index_type(int k)
{
  const size_t size = index_data[k].size;
  return size > 8 ? mill_ph5_text_type(size) : H5Tcopy(size == 8 ? H5T_STD_I64LE : H5T_STD_I32LE);
}

/* Collective: dataset k of the index, for entry [n]. */
static int write_index(hid_t file, const char *path, int k, const index_row *entry,
                       const mill_ph5_rows *rows, int64_t n, char *buffer)
{
  int err = MILL_OK;
  const char *name = index_data[k].name;
  const size_t size = index_data[k].size;
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), type = index_type(k);
  if (dataset < 0 || type < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: cannot open %s: %s", path, name, mill_h5_reason());
  for (int64_t i = 0; i < n; i++)
    memcpy(buffer + (size_t)i * size, (const char *)&entry[i] + index_data[k].field, size);
  MILL_TRY(mill_ph5_write(dataset, path, name, type, rows, buffer));
done:
  MILL_H5_CLOSE(dataset, type);
  return err;
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
  static const char empty[sizeof((index_row *)0)->identifier];
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

/* Read a block of a /catalog column of the result file */
static int read_catalog(const mill_models_info *info, const char *name, hid_t type, int64_t start,
                        int64_t n, void *out)
{
  int err = MILL_OK;
  hid_t dataset = H5I_INVALID_HID;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  MILL_TRY(mill_ph5_open_dataset(info->result, info->result_path, name, type, 1, info->n_row, 1,
                                 &dataset));
  MILL_TRY(mill_ph5_select_range(info->result_path, 1, info->n_row, 1, start, n, &rows));
  MILL_TRY(mill_ph5_read(dataset, info->result_path, name, type, &rows, out));
done:
  mill_ph5_unselect(&rows);
  MILL_H5_CLOSE(dataset);
  return err;
}

/* The index of one block of rows: which exposures they have. */
static int collect_index(const mill_models_info *info, int64_t start, int64_t n, index_row **entry,
                         int64_t *n_entry)
{
  int err = MILL_OK;
  int32_t *n_exposure = NULL;
  int64_t *first = NULL, *target = NULL;
  char *identifier = NULL;
  hid_t type = H5I_INVALID_HID;
  int64_t n_total = 0;
  *entry = NULL;
  *n_entry = 0;
  MILL_TRY(MILL_ALLOC(n, &n_exposure));
  MILL_TRY(MILL_ALLOC(n, &first));
  MILL_TRY(MILL_ALLOC(n, &target));
  MILL_TRY(read_catalog(info, "catalog/N_EXPOSURE", H5T_STD_I32LE, start, n, n_exposure));
  MILL_TRY(read_catalog(info, "catalog/FIRST_EXPOSURE", H5T_STD_I64LE, start, n, first));
  MILL_TRY(read_catalog(info, "catalog/TARGETID", H5T_STD_I64LE, start, n, target));
  MILL_TRY(mill_alloc_bytes((size_t)n, sizeof(*entry)->identifier, (void **)&identifier));
  type = mill_ph5_text_type(sizeof(*entry)->identifier);
  if (type < 0)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for a type");
  MILL_TRY(read_catalog(info, "catalog/IDENTIFIER", type, start, n, identifier));
  for (int64_t i = 0; i < n; i++) {
    if (n_exposure[i] < 0 || first[i] < 0 || first[i] > info->n_exposure - n_exposure[i])
      MILL_FAIL(MILL_ERR_INTERNAL, "%s: row %lld has exposures %lld to %lld of %lld",
                info->result_path, (long long)(start + i), (long long)first[i],
                (long long)(first[i] + n_exposure[i]), (long long)info->n_exposure);
    n_total += n_exposure[i];
  }
  MILL_TRY(MILL_ALLOC(n_total, entry));
  for (int64_t i = 0; i < n; i++)
    for (int32_t e = 0; e < n_exposure[i]; e++) {
      index_row *row = &(*entry)[(*n_entry)++];
      *row = (index_row){first[i] + e, start + i, target[i], e, ""};
      memcpy(row->identifier, identifier + (size_t)i * sizeof row->identifier,
             sizeof row->identifier);
    }
  qsort(*entry, (size_t)n_total, sizeof **entry, mill_by_int64);
  for (int64_t i = 1; i < n_total; i++)
    if ((*entry)[i].row == (*entry)[i - 1].row)
      MILL_FAIL(MILL_ERR_INTERNAL, "%s: two rows share exposure %lld", info->result_path,
                (long long)(*entry)[i].row);
done:
  MILL_H5_CLOSE(type);
  MILL_FREE(identifier, target, first, n_exposure);
  if (err != MILL_OK) {
    mill_free(*entry);
    *entry = NULL;
    *n_entry = 0;
  }
  return err;
}

/* fits_row, exposure, TARGETID.  Collective: all ranks make the same number of calls, each
   for its share of the rows. */
static int fill_index(const mill_models_info *info, const mill_mpi *mpi, const char *path,
                      hid_t file)
{
  int err = MILL_OK;
  const int64_t lo = info->n_row * mpi->rank / mpi->size;
  const int64_t hi = info->n_row * (mpi->rank + 1) / mpi->size;
  const int64_t per_rank = (info->n_row + mpi->size - 1) / mpi->size;
  index_row *entry = NULL;
  int64_t *row = NULL;
  char *buffer = NULL;
  int64_t n_entry = 0;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  for (int64_t at = 0; at < per_rank; at += BLOCK_ROWS) {
    const int64_t left = hi - lo - at;
    const int64_t n = left < 0 ? 0 : left < BLOCK_ROWS ? left : BLOCK_ROWS;
    err = collect_index(info, lo + (n > 0 ? at : 0), n, &entry, &n_entry);
    if (err == MILL_OK)
      err = MILL_ALLOC(n_entry, &row);
    if (err == MILL_OK)
      err = mill_alloc_bytes((size_t)n_entry, sizeof entry->identifier, (void **)&buffer);
    for (int64_t i = 0; err == MILL_OK && i < n_entry; i++)
      row[i] = entry[i].row;
    if (err == MILL_OK)
      err = mill_ph5_select(path, 1, info->n_exposure, 1, row, n_entry, &rows);
    MILL_TRY(mill_mpi_agree(mpi, err));
    for (int k = 0; k < N_INDEX; k++) {
      err = write_index(file, path, k, entry, &rows, n_entry, buffer);
      MILL_TRY(mill_mpi_agree(mpi, err));
    }
    mill_ph5_unselect(&rows);
    MILL_FREE(buffer, row, entry);
    buffer = NULL;
    row = NULL;
    entry = NULL;
  }
done:
  mill_ph5_unselect(&rows);
  MILL_FREE(buffer, row, entry);
  return err;
}

/* Has an arm the shape and the wavelengths that it would be given? */
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

/* Rank 0: can what is there be used? */
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
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists and is no regular file", path);
  MILL_TRY(mill_h5_check_output(path));
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  if (H5Fis_hdf5(path) <= 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists and is no HDF5 file", path);
  if (mill_ph5_open(path, H5F_ACC_RDONLY, MPI_COMM_SELF, &file) != MILL_OK)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists and is a damaged or truncated HDF5 file", path);
  if (mill_ph5_read_attr_text(file, path, "/", "FORMAT", text, sizeof text) != MILL_OK ||
      strcmp(text, FORMAT_NAME) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s exists and is no models file of starmill", path);
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
  /* whatever fails here, the collective writes of the other arms still happen */
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
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be brought to the disk: %s", models->path,
                      mill_h5_reason());
  return MILL_OK;
}

/* ---- what is there of an earlier run ---- */

/* Some rows whose model rows follow one another, and their models in one arm. */
typedef struct look {
  int64_t n_row, first, n_model;
  int64_t *first_exposure, *n_good; /* [n_row] */
  int32_t *n_exposure, *status;     /* [n_row] */
  char *is_missing;                 /* [n_row] */
  float *flux;                      /* [n_model][n_pix], grown as needed */
  double *wave;
  size_t n_flux, n_wave; /* values that there is room for */
} look;

static void clear_look(look *l)
{
  MILL_FREE(l->first_exposure, l->n_good, l->n_exposure, l->status, l->is_missing, l->flux,
            l->wave);
}

/* The rows of an arm's dataset. */
static int read_models(const mill_models_file *models, hid_t dataset, const char *name, hid_t type,
                       size_t size, int n_pix, const look *l, void **values, size_t *n_room)
{
  int err = MILL_OK;
  const size_t n = (size_t)l->n_model * (size_t)n_pix;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  if (n > *n_room) {
    mill_free(*values);
    *values = NULL;
    *n_room = 0;
    MILL_TRY(mill_alloc_raw(n, size, values));
    *n_room = n;
  }
  MILL_TRY(
      mill_ph5_select_range(models->path, 2, models->n_row, n_pix, l->first, l->n_model, &rows));
  MILL_TRY(mill_ph5_read(dataset, models->path, name, type, &rows, *values));
done:
  mill_ph5_unselect(&rows);
  return err;
}

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

static int look_at_arm(const mill_models_file *models, int arm, look *l)
{
  const int n_pix = models->n_pix[arm];
  const int has_waves = models->own_waves[arm];
  MILL_CHECK(read_models(models, models->flux[arm], models->name[arm], H5T_NATIVE_FLOAT,
                         sizeof *l->flux, n_pix, l, (void **)&l->flux, &l->n_flux));
  if (has_waves)
    MILL_CHECK(read_models(models, models->wave[arm], models->wave_name[arm], H5T_NATIVE_DOUBLE,
                           sizeof *l->wave, n_pix, l, (void **)&l->wave, &l->n_wave));
  for (int64_t i = 0; i < l->n_row; i++) {
    int64_t n_there = 0, n_cut = 0;
    for (int32_t e = 0; e < l->n_exposure[i]; e++) {
      const size_t at = (size_t)(l->first_exposure[i] + e - l->first) * (size_t)n_pix;
      const int state = state_of_model(n_pix, l->flux + at, has_waves ? l->wave + at : NULL);
      n_there += state == 1;
      n_cut += state < 0;
    }
    if (l->status[i] == MILL_STATUS_FITTED && (n_cut > 0 || (l->n_good[i] > 0 && n_there == 0)))
      l->is_missing[i] = 1;
  }
  return MILL_OK;
}

/* How many rows from start on have exposures that follow one another, MODEL_ROWS or one row's. */
static int plan_look(const mill_models_info *info, int64_t start, int64_t n, look *l)
{
  MILL_CHECK(read_catalog(info, "catalog/N_EXPOSURE", H5T_STD_I32LE, start, n, l->n_exposure));
  MILL_CHECK(
      read_catalog(info, "catalog/FIRST_EXPOSURE", H5T_STD_I64LE, start, n, l->first_exposure));
  MILL_CHECK(read_catalog(info, "fits/STATUS", H5T_STD_I32LE, start, n, l->status));
  l->first = l->first_exposure[0];
  l->n_model = 0;
  for (l->n_row = 0; l->n_row < n; l->n_row++) {
    const int64_t i = l->n_row, first = l->first_exposure[i], n_exp = l->n_exposure[i];
    if (n_exp < 0 || first < 0 || first > info->n_exposure - n_exp)
      return MILL_ERROR(MILL_ERR_OUTPUT,
                        "%s: is damaged, row %lld has exposures that are not there",
                        info->result_path, (long long)(start + i));
    if (i > 0 && (first != l->first + l->n_model || l->n_model + n_exp > MODEL_ROWS))
      break;
    l->n_model += n_exp;
    l->is_missing[i] = 0;
  }
  return MILL_OK;
}

int mill_models_find_missing(const mill_models_file *models, const mill_models_info *info,
                             int64_t lo, int64_t hi, int watch, int64_t **row, int64_t *n)
{
  int err = MILL_OK;
  int64_t n_room = 0;
  look l = {0};
  *row = NULL;
  *n = 0;
  MILL_TRY(MILL_ALLOC(MODEL_ROWS, &l.first_exposure));
  MILL_TRY(MILL_ALLOC(MODEL_ROWS, &l.n_good));
  MILL_TRY(MILL_ALLOC(MODEL_ROWS, &l.n_exposure));
  MILL_TRY(MILL_ALLOC(MODEL_ROWS, &l.status));
  MILL_TRY(MILL_ALLOC(MODEL_ROWS, &l.is_missing));
  for (int64_t at = lo; at < hi; at += l.n_row) {
    MILL_TRY(plan_look(info, at, hi - at < MODEL_ROWS ? hi - at : MODEL_ROWS, &l));
    for (int a = 0; a < info->n_arm; a++) {
      const mill_column *good = &info->columns->column[info->columns->i_n_pix[a]];
      char name[sizeof good->name + 8];
      if (models->n_pix[a] == 0)
        continue;
      snprintf(name, sizeof name, "fits/%s", good->name);
      MILL_TRY(read_catalog(info, name, H5T_STD_I64LE, at, l.n_row, l.n_good));
      MILL_TRY(look_at_arm(models, a, &l));
    }
    for (int64_t i = 0; i < l.n_row; i++) {
      if (!l.is_missing[i])
        continue;
      MILL_TRY(MILL_GROW(row, &n_room, *n + 1));
      (*row)[(*n)++] = at + i;
    }
    mill_watch_again(watch);
  }
done:
  clear_look(&l);
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
