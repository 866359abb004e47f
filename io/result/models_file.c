/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/models_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/hdf5/hdf5_crash.h"
#include "io/files/lock_file.h"
#include "io/hdf5/output_file.h"
#include "io/result/result_layout.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/file_roles.h"

#define FORMAT_NAME   "starmill models"
#define CATALOG_NAMES "FIRST_EXPOSURE N_EXPOSURE TARGETID IDENTIFIER"
enum { FIRST_EXPOSURE, N_EXPOSURE, TARGET, IDENTIFIER }; /* columns, in this order */
enum { BLOCK_ROWS = 65536, NAME_SIZE = MILL_MAX_NAME + 32 };

struct mill_models_file {
  char path[MILL_MAX_PATH];
  hid_t file;
  mill_table *arm[MILL_MAX_ARM]; /**< NULL: no file has the arm */
  mill_lock lock;                /**< held by rank 0 */
  int fd;                        /**< descriptor of `file`; -1: not open */
  mill_output_mark mark;         /**< from the beginning, with RUN_ID */
};

const mill_table *mill_models_arm(const mill_models_file *models, int arm)
{
  return models && arm >= 0 && arm < MILL_MAX_ARM ? models->arm[arm] : NULL;
}

/* Name the group of an arm, and list its columns. */
static void describe_arm(const mill_models_info *info, int arm, int own_waves,
                         char group[NAME_SIZE], mill_columns *columns)
{
  const int n_pix = info->n_pix[arm];
  snprintf(group, NAME_SIZE, "models/%s", info->lib->arm[arm].name);
  mill_columns_of(MILL_TABLE_ARM, (const int[]){n_pix, own_waves ? n_pix : 0}, columns);
}

/* Create an arm's group, and write the wavelengths if all rows share them. */
static int create_arm(hid_t file, const char *path, const mill_models_info *info, int arm)
{
  char name[2 * NAME_SIZE], group[NAME_SIZE];
  const double *wave_aa = info->wave_aa[arm];
  mill_columns columns;
  describe_arm(info, arm, wave_aa == NULL, group, &columns);
  MILL_CHECK(mill_table_create(file, path, group, info->n_exposure, &columns));
  if (!wave_aa)
    return MILL_OK;
  snprintf(name, sizeof name, "%s/wavelength", group);
  MILL_CHECK(mill_output_dataset(file, path, name, H5T_IEEE_F64LE, 1,
                                 &(hsize_t){(hsize_t)info->n_pix[arm]}, "Angstrom",
                                 "vacuum wavelength of the pixels"));
  return mill_output_write_whole(file, path, name, H5T_NATIVE_DOUBLE, wave_aa);
}

/* Create the models file with all its space. */
static int create(const char *path, const mill_models_info *info)
{
  enum { FLUX = 4, WAVE = 8, REST = 1 << 16 }; /* bytes: a pixel's flux, wavelength; metadata */
  int err = MILL_OK;
  const int64_t version = MILL_MODELS_FORMAT;
  hid_t file = H5I_INVALID_HID;
  mill_columns columns;
  int64_t n_byte = MILL_MODELS_ROW_BYTES * info->n_exposure + REST;
  for (int a = 0; a < info->lib->n_arm; a++)
    n_byte += info->n_pix[a] *
              (FLUX * info->n_exposure + WAVE * (info->wave_aa[a] ? 1 : info->n_exposure));
  MILL_TRY(mill_output_create(path, n_byte, &file));
  MILL_TRY(mill_h5_write_attr_text(MILL_OUTPUT(file, path), "/", "FORMAT", FORMAT_NAME));
  MILL_TRY(mill_output_attr_int64(file, path, "/", "FORMAT_VERSION", &version, 0));
  MILL_TRY(mill_h5_write_attr_text(MILL_OUTPUT(file, path), "/", "RUN_ID", info->run_id));
  mill_columns_of(MILL_TABLE_MODELS, NULL, &columns);
  MILL_TRY(mill_table_create(file, path, "models", info->n_exposure, &columns));
  for (int a = 0; a < info->lib->n_arm; a++)
    if (info->n_pix[a] > 0)
      MILL_TRY(create_arm(file, path, info, a));
done:
  err = mill_output_end(path, &file, err);
  return err == MILL_OK ? mill_output_take_room(path) : err; /* now its size is known */
}

/* Write the consecutive rows of /models that belong to the result's rows [start, start + n). */
static int write_block(const mill_models_info *info, const mill_table *catalog,
                       const mill_table *models, int64_t start, int64_t n)
{
  const mill_columns *from = &catalog->columns;
  const mill_column *name = &from->column[IDENTIFIER], *to = models->columns.column;
  enum { FITS_ROW, EXPOSURE, MODEL_TARGET, MODEL_IDENTIFIER }; /* columns of /models */
  MILL_OWNED char *rows = NULL, *packed = NULL;
  int64_t begin = 0, n_model = 0; /* rows of /models: [begin, begin + n_model) */
  MILL_CHECK(mill_alloc_bytes((size_t)n, from->row_size, (void **)&rows));
  MILL_CHECK(mill_table_read(mill_table_range(catalog, start, n, rows)));
  const char *row = rows;
  for (int64_t i = 0; i < n; i++, row += from->row_size) {
    const int64_t n_exp = mill_column_integer(&from->column[N_EXPOSURE], row);
    const int64_t first = mill_column_integer(&from->column[FIRST_EXPOSURE], row);
    begin = i == 0 ? first : begin;
    if (n_exp < 0 || begin < 0 || first != begin + n_model || first > info->n_exposure - n_exp)
      return MILL_ERROR(
          MILL_ERR_OUTPUT,
          "%s: row %lld of /catalog has a wrong FIRST_EXPOSURE or N_EXPOSURE; fit again",
          info->result_path, (long long)(start + i));
    n_model += n_exp;
  }
  MILL_CHECK(mill_alloc_bytes((size_t)n_model, models->columns.row_size, (void **)&packed));
  char *model = packed;
  row = rows;
  for (int64_t fits_row = start; fits_row < start + n; fits_row++, row += from->row_size) {
    const int64_t target = mill_column_integer(&from->column[TARGET], row);
    const int32_t n_exp = (int32_t)mill_column_integer(&from->column[N_EXPOSURE], row);
    for (int32_t e = 0; e < n_exp; e++, model += models->columns.row_size) {
      memcpy(model + to[FITS_ROW].at, &fits_row, sizeof fits_row);
      memcpy(model + to[EXPOSURE].at, &e, sizeof e);
      memcpy(model + to[MODEL_TARGET].at, &target, sizeof target);
      memcpy(model + to[MODEL_IDENTIFIER].at, row + name->at,
             name->n_byte < to[MODEL_IDENTIFIER].n_byte ? name->n_byte
                                                        : to[MODEL_IDENTIFIER].n_byte);
    }
  }
  const mill_table_part part = mill_table_range(models, begin, n_model, packed);
  return mill_table_write(&part);
}

/* Open the tables of the arms for writing: rows go through models->fd, past HDF5, which only reads
 * the file's layout.  Keep the file's first bytes as mark, to notice if the file is replaced. */
static int open_arms(mill_models_file *models, const char *path, const mill_models_info *info)
{
  MILL_CHECK(mill_output_hold(path, &models->fd));
  models->mark.n = pread(models->fd, models->mark.bytes, sizeof models->mark.bytes, 0);
  MILL_CHECK(mill_output_open(path, H5F_ACC_RDONLY, &models->file));
  mill_h5_forget(models->file); /* open during the whole job, so not to blame for a crash */
  for (int a = 0; a < info->lib->n_arm; a++) {
    char group[NAME_SIZE];
    mill_columns columns;
    describe_arm(info, a, info->wave_aa[a] == NULL, group, &columns);
    if (info->n_pix[a] == 0)
      continue;
    MILL_CHECK(mill_table_open(models->file, models->fd, path, group, info->n_exposure, "",
                               &columns, &models->arm[a]));
  }
  return MILL_OK;
}

static int close_arms(mill_models_file *models, int err)
{
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    mill_table_close(models->arm[a]);
    models->arm[a] = NULL;
  }
  if (models->fd >= 0)
    close(models->fd);
  models->fd = -1;
  return mill_output_end(models->path, &models->file, err);
}

/* Write this rank's share of a new file: missing values as models, and the rows of /models. */
static int fill(mill_models_file *models, const char *path, const mill_models_info *info,
                const mill_mpi *mpi)
{
  int err = MILL_OK;
  int64_t row_end, exposure_end;
  const int64_t row_start = mill_mpi_share(mpi, info->n_row, &row_end);
  const int64_t exposure_start = mill_mpi_share(mpi, info->n_exposure, &exposure_end);
  mill_table *table = NULL, *catalog = NULL;
  mill_columns columns;
  MILL_TRY(open_arms(models, path, info));
  for (int a = 0; a < MILL_MAX_ARM; a++)
    if (models->arm[a])
      MILL_TRY(mill_table_fill(
          mill_table_range(models->arm[a], exposure_start, exposure_end - exposure_start, NULL)));
  mill_columns_of(MILL_TABLE_MODELS, NULL, &columns);
  MILL_TRY(mill_table_open(models->file, models->fd, path, "models", info->n_exposure, "", &columns,
                           &table));
  MILL_TRY(mill_table_open(info->result, -1, info->result_path, "catalog", info->n_row,
                           CATALOG_NAMES, NULL, &catalog));
  for (int64_t at = row_start; at < row_end; at += BLOCK_ROWS)
    MILL_TRY(write_block(info, catalog, table, at,
                         row_end - at < BLOCK_ROWS ? row_end - at : BLOCK_ROWS));
  MILL_TRY(mill_output_sync(path, models->fd));
done:
  mill_table_close(table);
  mill_table_close(catalog);
  return close_arms(models, err); /* mill_models_open opens the renamed file again */
}

/* Fail unless arm a of the file has this run's shape (mill_table_open checks it) and wavelengths:
 * one set for all rows, or a column `wavelength` if info->wave_aa[a] is NULL. */
static int check_arm(hid_t file, const char *path, const mill_models_info *info, int a)
{
  char group[NAME_SIZE], name[2 * NAME_SIZE];
  mill_columns columns;
  MILL_AT_END(mill_table_close_at) mill_table *flux = NULL, *waves = NULL;
  MILL_OWNED double *wave = NULL;
  describe_arm(info, a, 0, group, &columns); /* 0: the flux only */
  MILL_CHECK(mill_table_open(file, -1, path, group, info->n_exposure, "", &columns, &flux));
  if (!info->wave_aa[a]) {
    describe_arm(info, a, 1, group, &columns); /* 1: with wavelengths of each row */
    if (mill_table_open(file, -1, path, group, info->n_exposure, "", &columns, &waves) != MILL_OK)
      return MILL_ERROR(MILL_ERR_OUTPUT,
                        "%s has one set of wavelengths for all rows in arm %s, but this run has "
                        "one for each row",
                        path, info->lib->arm[a].name);
    return MILL_OK;
  }
  snprintf(name, sizeof name, "%s/wavelength", group);
  MILL_CHECK(MILL_ALLOC(info->n_pix[a], &wave));
  MILL_CHECK(mill_output_read_whole(file, path, name, H5T_NATIVE_DOUBLE, info->n_pix[a], wave));
  if (memcmp(wave, info->wave_aa[a], sizeof *wave * (size_t)info->n_pix[a]) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: the wavelengths of arm %s differ from this run's", path,
                      info->lib->arm[a].name);
  return MILL_OK;
}

static int check_run_id(const char *path, const char *id, const char *result, const char *run_id)
{
  return strcmp(id, run_id) == 0
             ? MILL_OK
             : MILL_ERROR(MILL_ERR_OUTPUT, "%s belongs to another result than %s", path, result);
}

int mill_models_check(const char *path, const char *result)
{
  char id[MILL_RUN_ID_SIZE], of_result[MILL_RUN_ID_SIZE];
  MILL_CHECK(mill_output_peek(path, "/", "RUN_ID", id, sizeof id));
  MILL_CHECK(mill_output_peek(result, "provenance", "RUN_ID", of_result, sizeof of_result));
  return check_run_id(path, id, result, of_result);
}

void mill_models_remove_of(const char *path, const char *result)
{
  char end[MILL_MAX_PATH];
  if (mill_resolve_links(path, end, sizeof end) == MILL_OK &&
      mill_models_check(end, result) == MILL_OK)
    unlink(end);
}

/* On rank 0: *found 1: this run can continue the file at path; 0: no file.  Else fail. */
static int inspect(const char *path, const mill_models_info *info, int *found)
{
  char text[64];
  MILL_AT_END(mill_h5_id_close) hid_t file = H5I_INVALID_HID;
  *found = 0;
  if (info->n_done > 0)
    MILL_CHECK(mill_result_layout_check_modelled(info->result, info->result_path, path));
  MILL_CHECK(mill_h5_check_output(path));
  MILL_CHECK(mill_output_open_existing(path, &file));
  if (file < 0 && info->n_done > 0)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s does not exist, but %lld rows of %s are already fitted and their models "
                      "would be missing: continue without --models",
                      path, (long long)info->n_done, info->result_path);
  if (file < 0)
    return MILL_OK;
  if (mill_h5_read_attr_text(MILL_OUTPUT(file, path), "/", "FORMAT", text, sizeof text) !=
          MILL_OK ||
      strcmp(text, FORMAT_NAME) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s exists and is not a models file of starmill", path);
  if (mill_h5_read_attr_text(MILL_OUTPUT(file, path), "/", "RUN_ID", text, sizeof text) != MILL_OK)
    text[0] = '\0';
  MILL_CHECK(check_run_id(path, text, info->result_path, info->run_id));
  for (int a = 0; a < info->lib->n_arm; a++)
    if (info->n_pix[a] > 0)
      MILL_CHECK(check_arm(file, path, info, a));
  *found = 1;
  return MILL_OK;
}

/* On rank 0, holding the lock: find a file to continue (*found 1), or create one at temporary. */
static int find_or_create(mill_models_file *models, int overwrite, const mill_models_info *info,
                          const char *temporary, int *found)
{
  const int code = overwrite ? MILL_OK : inspect(models->path, info, found);
  if (code == MILL_ERR_OUTPUT)
    return MILL_ERROR(code, "%s; give another --models, or %s%s to start over",
                      mill_error_message(), info->target ? "remove " : "--overwrite",
                      info->target ? info->result_path : "");
  MILL_CHECK(code);
  mill_lock_remove_leftovers(&models->lock, info->target ? info->target : models->path);
  return *found ? MILL_OK : create(temporary, info);
}

/* Rank 0 finds or creates the file; then all ranks open it.  With --overwrite, path may be
 * MODELS.new, which replaces info->target at the end: then the lock is the target's. */
int mill_models_open(const char *path, int overwrite, const mill_models_info *info,
                     const mill_mpi *mpi, mill_models_file **out)
{
  int err = MILL_OK, found = 0;
  char temporary[MILL_MAX_PATH] = "", real[MILL_MAX_PATH] = "", job[96];
  mill_models_file *models = NULL;
  *out = NULL;
  MILL_TRY(mill_resolve_links_for_all(mpi, path, real, sizeof real));
  MILL_TRY(mill_mpi_agree(mpi, MILL_ALLOC(1, &models)));
  models->file = H5I_INVALID_HID;
  models->fd = -1;
  mill_lock_job(job, sizeof job);
  if (snprintf(models->path, sizeof models->path, "%s", real) >=
      (int)sizeof models->path - MILL_PATH_SPARE)
    err = MILL_ERROR(MILL_ERR_OUTPUT, "the path of --models is too long; give a shorter one");
  if (mpi->rank == 0 && err == MILL_OK) {
    snprintf(temporary, sizeof temporary, "%.*s.tmp-%s", (int)sizeof temporary - MILL_PATH_SPARE,
             info->target ? info->target : real, job);
    err = mill_lock_take(info->target ? info->target : real, &models->lock);
    MILL_STEP(find_or_create(models, overwrite, info, temporary, &found));
  }
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_MPI(MPI_Bcast(&found, 1, MPI_INT, 0, mpi->comm));
  MILL_MPI(MPI_Bcast(temporary, sizeof temporary, MPI_CHAR, 0, mpi->comm));
  MILL_TRY(mill_output_check_shared(found ? models->path : temporary, mpi));
  if (!found) {
    MILL_TRY(mill_mpi_agree(mpi, fill(models, temporary, info, mpi)));
    MILL_TRY(mill_mpi_agree(mpi, mpi->rank == 0 ? mill_output_rename(temporary, real) : MILL_OK));
  }
  temporary[0] = '\0'; /* the file has its final name: a failure does not remove it */
  MILL_TRY(mill_mpi_agree(mpi, open_arms(models, models->path, info)));
  *out = models;
done:
  if (err != MILL_OK) {
    if (mpi->rank == 0 && temporary[0])
      unlink(temporary);
    (void)mill_models_close(models, err);
  }
  return err;
}

int mill_models_still_there(const mill_models_file *models)
{
  if (!models)
    return MILL_OK;
  MILL_CHECK(mill_lock_keep(&models->lock));
  return mill_output_still_there(models->path, models->fd, &models->mark);
}

int mill_models_flush(const mill_models_file *models)
{
  return mill_output_sync(models->path, models->fd);
}

int mill_models_close(mill_models_file *models, int err)
{
  if (!models)
    return MILL_OK;
  MILL_STEP(mill_output_sync(models->path, models->fd));
  MILL_STEP(mill_models_still_there(models));
  err = close_arms(models, err);
  mill_lock_release(&models->lock);
  mill_free(models);
  return err;
}
