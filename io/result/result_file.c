/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_file.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "io/hdf5/hdf5_crash.h"
#include "io/result/existing_result.h"
#include "io/result/result_inputs.h"
#include "io/result/result_layout.h"
#include "io/result/stored_rows.h"
#include "io/result/result_file_impl.h"
#include "kernels/base/clock.h"
#include "src/system/log.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"
#include "src/system/status_process.h"
#include "src/system/thread.h"
#include "src/system/version.h"
#include "src/system/watchdog.h"

/* Seconds to read or write a byte, and a row of 1 kB, on the slowest disks (10 MB/s). */
static const double BYTE_S = 1e-7, ROW_S = 1e-4;

/* ---- open ---- */

/* Set first [n_file] to the number of each file's first exposure, counted over all files.
 * Fail unless each file belongs to one rank and the files' rows are contiguous.  Collective. */
static int number_exposures(const mill_run_info *info, const mill_mpi *mpi, int64_t *first,
                            int64_t *n_exposure)
{
  int code = MILL_OK;
  int64_t next_row = 0;
  MILL_OWNED int *n_owner = NULL;
  MILL_CHECK(mill_mpi_agree(mpi, MILL_ALLOC(info->n_file, &n_owner)));
  for (int i = info->file_start; i < info->file_end && code == MILL_OK; i++) {
    const mill_file_index *index = &info->index[i - info->file_start];
    first[i] = index->n_exposure; /* a count, until the running sum below */
    n_owner[i] = 1;
    if (index->n_row != info->file[i].n_row)
      code = MILL_BUG("%s: the file's index has %lld rows, but the list of inputs has %lld",
                      info->file[i].path, (long long)index->n_row, (long long)info->file[i].n_row);
  }
  MILL_CHECK(mill_mpi_agree(mpi, code));
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, first, info->n_file, MPI_INT64_T, MPI_SUM, mpi->comm));
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, n_owner, info->n_file, MPI_INT, MPI_SUM, mpi->comm));
  *n_exposure = 0;
  for (int i = 0; i < info->n_file; i++) {
    const int64_t n = first[i];
    first[i] = *n_exposure;
    *n_exposure += n;
    if (info->file[i].row_start != next_row || n_owner[i] != 1)
      return MILL_BUG(
          "%s: %d ranks indexed this file, expected 1 rank; its first row is %lld, expected %lld",
          info->file[i].path, n_owner[i], (long long)info->file[i].row_start, (long long)next_row);
    next_row += info->file[i].n_row;
  }
  if (next_row != info->n_row)
    return MILL_BUG("the ranks indexed %lld rows in all inputs, but the catalog counts %lld",
                    (long long)next_row, (long long)info->n_row);
  return MILL_OK;
}

static void close_tables(mill_result_file *file)
{
  mill_table_close(file->fits);
  mill_table_close(file->epochs);
  file->fits = file->epochs = NULL;
}

static void close_descriptor(mill_result_file *file)
{
  if (file->fd >= 0)
    close(file->fd);
  file->fd = -1;
}

/* Open file and tables.  Rank 0 writes provenance by HDF5; all ranks write rows by descriptor. */
static int open_tables(mill_result_file *file, const char *path)
{
  mill_columns epochs;
  MILL_CHECK(mill_output_hold(path, &file->fd));
  MILL_CHECK(
      mill_output_open(path, file->mpi.rank == 0 ? H5F_ACC_RDWR : H5F_ACC_RDONLY, &file->file));
  mill_h5_forget(file->file); /* open during the whole job, so not to blame for a crash */
  MILL_AT_END(mill_h5_id_close)
  const hid_t start = H5Dopen2(file->file, "provenance/START_TIME", H5P_DEFAULT);
  file->mark.at = (int64_t)H5Dget_offset(start); /* START_TIME marks this run's file */
  file->mark.n = pread(file->fd, file->mark.bytes, MILL_TIME_SIZE - 1, file->mark.at);
  if (file->mark.n <= 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: START_TIME cannot be read; fit again", path);
  MILL_CHECK(mill_table_open(file->file, file->fd, path, "fits", file->n_row, "", &file->columns,
                             &file->fits));
  if (mill_columns_find(&file->columns, "EPOCH_CRC") < 0)
    return MILL_OK; /* the result has no /epochs */
  mill_columns_of(MILL_TABLE_EPOCHS, NULL, &epochs);
  return mill_table_open(file->file, file->fd, path, "epochs", file->n_exposure, "", &epochs,
                         &file->epochs);
}

/* Write this rank's share of a new file: missing values in /fits and /epochs, and /catalog. */
static int fill(mill_result_file *file, const char *path, const mill_run_info *info,
                const int64_t *first_exposure)
{
  int err = MILL_OK;
  MILL_TRY(open_tables(file, path));
  const mill_table *table[] = {file->fits, file->epochs};
  for (int k = 0; k < 2 && table[k]; k++) {
    int64_t hi;
    const int64_t lo = mill_mpi_share(&file->mpi, table[k]->n_row, &hi);
    mill_table_part part = mill_table_range(table[k], lo, hi - lo, NULL);
    part.first = k == 0 ? file->columns.i_target + 1 : 0; /* TARGETID is written with /catalog */
    MILL_TRY(mill_table_fill(part));
  }
  MILL_TRY(mill_result_catalog_write(file->file, file->fd, path, info, first_exposure,
                                     file->n_exposure));
  MILL_TRY(mill_output_sync(path, file->fd));
done:
  close_tables(file); /* open_file opens the file again under its final name */
  close_descriptor(file);
  return mill_output_end(path, &file->file, err);
}

/* Create the file under a temporary name, fill and rename it.  Collective. */
static int create(mill_result_file *file, const mill_run_info *info, const int64_t *first_exposure)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH] = "", job[96];
  const mill_mpi *mpi = &file->mpi;
  if (mpi->rank == 0) {
    mill_lock_job(job, sizeof job);
    snprintf(path, sizeof path, "%.*s.tmp-%s", (int)sizeof path - MILL_PATH_SPARE,
             file->target[0] ? file->target : file->path, job); /* see mill_lock_remove_leftovers */
    err = mill_result_layout_create(path, info, &file->columns, file->n_exposure, mpi->size);
  }
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_MPI(MPI_Bcast(path, sizeof path, MPI_CHAR, 0, mpi->comm));
  MILL_TRY(mill_output_check_shared(path, mpi));
  MILL_TRY(mill_mpi_agree(mpi, fill(file, path, info, first_exposure)));
  MILL_TRY(mill_mpi_agree(mpi, mpi->rank == 0 ? mill_output_rename(path, file->path) : MILL_OK));
done:
  if (err != MILL_OK && mpi->rank == 0 && path[0])
    unlink(path);
  return err;
}

static void destroy(mill_result_file *file)
{
  if (!file)
    return;
  mill_result_set_busy(file, MILL_RESULT_WRITES); /* removing the lock may take long */
  for (int i = 0; i < 2; i++) {
    mill_waiting_free(&file->both[i].fits);
    mill_waiting_free(&file->both[i].epochs);
    for (int a = 0; a < MILL_MAX_ARM; a++)
      mill_waiting_free(&file->both[i].model[a]);
    mill_waiting_free(&file->taken[i]);
  }
  mill_lock_release(&file->lock);
  close_descriptor(file);
  mill_result_set_busy(file, MILL_RESULT_IDLE);
  pthread_mutex_destroy(&file->mutex);
  pthread_cond_destroy(&file->room);
  pthread_cond_destroy(&file->work);
  mill_mpi_free(&file->mpi);
  mill_mpi_free(&file->io);
  MILL_FREE(file->wanted, file->owners.rank, file->count, file->sum, file);
}

/* Make this rank's state of a result (locks, communicators, columns); no file.  Collective. */
static int prepare(const char *path, const mill_run_info *info, const mill_mpi *outer,
                   mill_result_file **out)
{
  int level = MPI_THREAD_SINGLE;
  MILL_OWNED mill_result_file *made = NULL;
  int code = MILL_ALLOC(1, &made);
  if (code == MILL_OK && (pthread_mutex_init(&made->mutex, NULL) != 0 ||
                          mill_cond_init(&made->room) != 0 || mill_cond_init(&made->work) != 0))
    code =
        MILL_ERROR(MILL_ERR_INTERNAL, "no memory for the locks of the thread that writes results");
  MILL_CHECK(mill_mpi_agree(outer, code));
  mill_result_file *file = *out = made;
  made = NULL; /* from here on the caller destroys *out, even after a failure */
  file->mpi.comm = file->io.comm = MPI_COMM_NULL;
  file->file = H5I_INVALID_HID;
  file->fd = -1;
  file->filling = &file->both[0];
  file->writing = &file->both[1];
  file->start_s = mill_wall_s();
  file->write_interval_s = info->write_interval_s;
  file->watch = -1;
  file->n_row = info->n_row;
  file->lib = info->lib;
  MILL_CHECK(mill_mpi_dup(outer->comm, &file->mpi)); /* for callers' threads */
  MILL_CHECK(mill_mpi_dup(outer->comm, &file->io));  /* for the I/O thread */
  if (strlen(path) + MILL_PATH_SPARE > sizeof file->path)
    return MILL_ERROR(MILL_ERR_OUTPUT, "the output's path is too long; shorten it: %s", path);
  memcpy(file->path, path, strlen(path) + 1);
  MILL_CHECK_MPI(MPI_Query_thread(&level));
  if (level < MPI_THREAD_MULTIPLE)
    return MILL_ERROR(MILL_ERR_MPI, "MPI must be initialised with MPI_THREAD_MULTIPLE");
  MILL_CHECK(mill_columns_fits(
      info->lib, info->lib->path,
      (info->velocity_offsets ? MILL_WITH_OFFSETS : 0) |
          (info->posteriors ? MILL_WITH_POSTERIOR : 0) | MILL_WITH_DRAWS(info->n_draw) |
          (info->gpu ? MILL_WITH_BACKEND : 0) | (info->n_library > 1 ? MILL_WITH_LIBRARY : 0) |
          (info->epochs ? MILL_WITH_EPOCHS : 0) | (info->binaries ? MILL_WITH_BINARIES : 0),
      &file->columns));
  file->columns.backend = (uint8_t)info->backend;
  return mill_alloc_bytes((size_t)info->n_row / 8 + 1, 1, (void **)&file->wanted);
}

/* Send rank 0's findings about the existing file to all ranks.  Collective. */
static int share_found(mill_result_file *file, int *found)
{
  MILL_CHECK_MPI(MPI_Bcast(found, 1, MPI_INT, 0, file->mpi.comm));
  MILL_CHECK_MPI(MPI_Bcast(file->path, sizeof file->path, MPI_CHAR, 0, file->mpi.comm));
  MILL_CHECK_MPI(MPI_Bcast(file->target, sizeof file->target, MPI_CHAR, 0, file->mpi.comm));
  if (*found != MILL_FOUND_FINISHED)
    return MILL_OK;
  MILL_CHECK_MPI(MPI_Bcast(&file->found, sizeof file->found, MPI_BYTE, 0, file->mpi.comm));
  file->is_finished = 1;
  atomic_store(&file->n_done, file->n_row);
  return MILL_OK;
}

/* Write /catalog of this rank's repaired files again; their rows are still to be fitted. */
static int renew_catalog(mill_result_file *file, const mill_run_info *info,
                         const int64_t *first_exposure)
{
  int n_repaired;
  mill_run_info one = *info; /* the run with file i alone: one.index[0] is its index */
  MILL_OWNED mill_input_file *then = NULL;
  MILL_CHECK(mill_result_inputs_repaired(file->file, file->path, info, &then, &n_repaired));
  for (int i = info->file_start; i < info->file_end; i++, one.index++) {
    one.file_start = i;
    one.file_end = i + 1;
    if (then[i].size != info->file[i].size || then[i].mtime != info->file[i].mtime)
      MILL_CHECK(mill_result_catalog_write(file->file, file->fd, file->path, &one, first_exposure,
                                           file->n_exposure));
  }
  return MILL_OK;
}

/* On rank 0: warn if another version of the program began the result. */
static int compare_versions(hid_t file, const char *path)
{
  char version[64], revision[64];
  const mill_h5_file *output = MILL_OUTPUT(file, path);
  const char *now = mill_version(), *now_revision = mill_version_revision();
  MILL_CHECK(mill_h5_read_attr_text(output, "provenance", "VERSION", version, sizeof version));
  MILL_CHECK(mill_h5_read_attr_text(output, "provenance", "REVISION", revision, sizeof revision));
  if (strcmp(version, now) != 0 || strcmp(revision, now_revision) != 0)
    mill_log_warning("%s was begun by starmill %s (%s) and is continued by %s (%s): their rows may "
                     "differ; --overwrite fits all rows again",
                     path, version, revision, now, now_revision);
  return MILL_OK;
}

/* Mark the file unfinished, and find the rows that earlier runs have not done.  Collective. */
static int continue_rows(mill_result_file *file, const mill_run_info *info,
                         const int64_t *first_exposure, int retry_failed)
{
  uint8_t was_finished = 0;
  const char *const name = "provenance/FINISHED", *path = file->path;
  int err = retry_failed ? renew_catalog(file, info, first_exposure) : MILL_OK;
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  if (file->mpi.rank == 0) {
    err = mill_output_read_whole(file->file, path, name, H5T_NATIVE_UINT8, 1, &was_finished);
    /* a finished file is unfinished while its failed rows are fitted again */
    MILL_STEP(mill_output_write_whole(file->file, path, name, H5T_NATIVE_UINT8, &(uint8_t){0}));
    /* record the present inputs before rows are fitted from them */
    MILL_STEP(retry_failed ? mill_result_inputs_note(file->file, path, info) : MILL_OK);
    MILL_STEP(compare_versions(file->file, path));
  }
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  MILL_MPI(MPI_Bcast(&was_finished, 1, MPI_UINT8_T, 0, file->mpi.comm));
  err = mill_result_learn_wanted(file, retry_failed, was_finished);
done:
  return err;
}

/* Holding the lock, create the file or open the one to continue.  Collective. */
static int open_file(mill_result_file *file, const mill_run_info *info,
                     const int64_t *first_exposure, int retry_failed, int is_new)
{
  file->is_new = is_new;
  if (is_new)
    MILL_CHECK(create(file, info, first_exposure));
  mill_watch_again();
  MILL_CHECK(mill_output_check_shared(file->path, &file->mpi));
  MILL_CHECK(mill_mpi_agree(&file->mpi, open_tables(file, file->path)));
  if (!is_new)
    MILL_CHECK(continue_rows(file, info, first_exposure, retry_failed));
  else
    for (int64_t i = 0; i < file->n_row; i++)
      mill_result_set_bit(file->wanted, i, 1);
  return mill_mpi_agree(&file->mpi, mill_lock_keep(&file->lock));
}

int mill_result_open(const char *path, int overwrite, int retry_failed, const mill_run_info *info,
                     MPI_Comm comm, mill_result_file **out, int *outcome)
{
  int err = MILL_OK;
  mill_result_file *file = NULL;
  mill_mpi outer = {.comm = comm, .stop_comm = MPI_COMM_NULL};
  MILL_OWNED int64_t *first_exposure = NULL;
  int watch = -1, found = MILL_FOUND_NOTHING;
  char end[MILL_MAX_PATH] = "";
  *out = NULL;
  *outcome = MILL_OPEN_NEW;
  MILL_MPI(MPI_Comm_rank(comm, &outer.rank));
  MILL_MPI(MPI_Comm_size(comm, &outer.size));
  MILL_TRY(mill_resolve_links_for_all(&outer, path, end, sizeof end));
  err = prepare(end, info, &outer, &file);
  MILL_STEP(MILL_ALLOC(info->n_file, &first_exposure));
  MILL_TRY(mill_mpi_agree(&outer, err)); /* after a failure, file->mpi may not exist */
  MILL_TRY(mill_owners_find(&file->mpi, MILL_OWN_ROWS, &file->owners));
  MILL_TRY(number_exposures(info, &file->mpi, first_exposure, &file->n_exposure));
  watch = mill_watch_begin(MILL_WATCH_START, 2 * ROW_S * (double)info->n_row,
                           "%s: opening the output", end);
  err = outer.rank == 0 ? mill_result_claim(file, end, info, overwrite, retry_failed, &found)
                        : MILL_OK;
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  mill_watch_again();
  MILL_TRY(share_found(file, &found));
  *outcome = found == MILL_FOUND_FINISHED  ? MILL_OPEN_FINISHED
             : found == MILL_FOUND_NOTHING ? MILL_OPEN_NEW
                                           : MILL_OPEN_CONTINUE;
  if (found != MILL_FOUND_FINISHED) {
    MILL_TRY(open_file(file, info, first_exposure, retry_failed, found == MILL_FOUND_NOTHING));
    MILL_TRY(mill_result_start_thread(file));
  }
  err = MILL_GIVE(&file, out);
done:
  mill_watch_end(watch);
  if (file) {
    close_tables(file);
    (void)mill_output_end(file->path, &file->file, err);
    destroy(file);
  }
  return err;
}

int mill_result_open_models(mill_result_file *file, const char *path, int overwrite,
                            const double *const *wave_aa, const int *n_pix)
{
  int err = MILL_OK, watch = -1;
  double n_byte = 0;
  char run_id[MILL_RUN_ID_SIZE] = "", renewed[MILL_MAX_PATH];
  mill_models_info info = {.run_id = run_id,
                           .result = file->file,
                           .result_path = file->path,
                           .n_row = file->n_row,
                           .n_exposure = file->n_exposure,
                           .n_done = atomic_load(&file->n_done),
                           .lib = file->lib};
  for (int a = 0; a < file->lib->n_arm; a++) {
    info.wave_aa[a] = wave_aa[a];
    info.n_pix[a] = n_pix[a];
    /* bytes: 4 of flux, and 8 of wavelength unless all rows share it */
    n_byte += (wave_aa[a] ? 4.0 : 12.0) * n_pix[a] * (double)file->n_exposure;
  }
  watch = mill_watch_begin(MILL_WATCH_START, BYTE_S * n_byte, "%s: opening the models", path);
  if (file->target[0]) { /* write MODELS.new, which is renamed at the end */
    MILL_TRY(mill_resolve_links_for_all(&file->mpi, path, file->models_target,
                                        sizeof file->models_target - MILL_PATH_SPARE));
    snprintf(renewed, sizeof renewed, "%.*s" MILL_NEW_END, (int)sizeof renewed - MILL_PATH_SPARE,
             file->models_target);
    /* if a run was killed after it renamed only MODELS.new, path already is the new file */
    int is_replaced = info.n_done > 0 && info.n_done == info.n_row && access(renewed, F_OK) != 0;
    MILL_MPI(MPI_Bcast(&is_replaced, 1, MPI_INT, 0, file->mpi.comm));
    if (is_replaced) {
      file->models_target[0] = '\0';
    } else {
      path = renewed;
      info.target = file->models_target;
    }
  }
  err = mill_h5_read_attr_text(MILL_OUTPUT(file->file, file->path), "provenance", "RUN_ID", run_id,
                               sizeof run_id);
  if (err == MILL_OK && file->target[0] && file->mpi.rank == 0)
    err = mill_refuse_foreign(path, "--models", "starmill models");
  MILL_TRY(mill_mpi_agree(&file->mpi, err));
  /* despite --overwrite, keep the models of a result that is continued */
  MILL_TRY(mill_models_open(path, overwrite && info.n_done == 0, &info, &file->mpi, &file->models));
done:
  if (err != MILL_OK)
    file->target[0] = '\0'; /* rename and remove no file: MODELS.h5.new may be another run's */
  if (err != MILL_OK && file->is_new && file->mpi.rank == 0) { /* a new result needs its models */
    unlink(file->path);
    close_descriptor(file);
  }
  mill_watch_end(watch);
  return err;
}

/* ---- close ---- */

/* On rank 0, once the rows are on disk: record this run's N_RUN, WALL_S and END_TIME. */
static int write_end(mill_result_file *file)
{
  char now[MILL_UTC_SIZE];
  int32_t n_run = 0;
  double wall_s = 0;
  const hid_t i32 = H5T_NATIVE_INT32;
  MILL_AT_END(mill_h5_id_close) const hid_t text = mill_h5_text_type(MILL_TIME_SIZE - 1);
  mill_utc_text(mill_unix_s(), now);
  MILL_CHECK(mill_output_read_whole(file->file, file->path, "provenance/N_RUN", i32, 1, &n_run));
  MILL_CHECK(mill_output_read_whole(file->file, file->path, "provenance/WALL_S", H5T_NATIVE_DOUBLE,
                                    1, &wall_s));
  n_run++;
  wall_s += mill_wall_s() - file->start_s;
  MILL_CHECK(mill_output_write_whole(file->file, file->path, "provenance/N_RUN", i32, &n_run));
  MILL_CHECK(mill_output_write_whole(file->file, file->path, "provenance/WALL_S", H5T_NATIVE_DOUBLE,
                                     &wall_s));
  return mill_output_write_whole(file->file, file->path, "provenance/END_TIME", text, now);
}

/* Flush the rows, and mark the file finished if all rows are done.  Collective. */
static int finish(mill_result_file *file, mill_result_summary *summary)
{
  int64_t n_done = 0;
  const mill_owners *owners = &file->owners;
  /* count the blocks that this rank wrote (mine < 0: none); NFS may show other blocks late */
  const int64_t step = owners->n * owners->n_block;
  int code = mill_output_sync(file->path, file->fd);
  for (int64_t at = owners->mine * owners->n_block; owners->mine >= 0 && at < file->n_row;
       at += step) {
    const int64_t n = file->n_row - at < owners->n_block ? file->n_row - at : owners->n_block;
    if (code == MILL_OK)
      code = mill_stored_rows_count(file->file, file->path, file->n_row, at, n, summary);
  }
  MILL_CHECK(mill_mpi_agree(&file->mpi, code));
  /* sum the integers before wall_s over the ranks: counts, and `old`, which is still 0 */
  static_assert(offsetof(mill_result_summary, n_status) == 0, "counts come first");
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, summary,
                               offsetof(mill_result_summary, wall_s) / sizeof(int64_t), MPI_INT64_T,
                               MPI_SUM, file->mpi.comm));
  for (int i = MILL_STATUS_FITTED; i < MILL_N_STATUS; i++)
    n_done += summary->n_status[i];
  if (file->mpi.rank == 0)
    code = write_end(file);
  /* finished: STATUS in the file and the count of written rows both say that all rows are done */
  if (file->mpi.rank == 0 && code == MILL_OK && n_done == file->n_row &&
      atomic_load(&file->n_done) == file->n_row)
    code = mill_output_write_whole(file->file, file->path, "provenance/FINISHED", H5T_NATIVE_UINT8,
                                   &(uint8_t){1});
  return mill_mpi_agree(&file->mpi, code);
}

/* On rank 0, once all is on disk: replace the old files by the new files.  Keep both if only some
 * rows are done.  Remove new files without a fitted row.  *old: enum mill_old_result. */
static int replace_old(const mill_result_file *file, const mill_result_summary *counts, int *old)
{
  char models[MILL_MAX_PATH];
  snprintf(models, sizeof models, "%.*s" MILL_NEW_END, (int)sizeof models - MILL_PATH_SPARE,
           file->models_target);
  const int64_t n_left = counts->n_status[MILL_STATUS_NOT_DONE];
  const int is_empty = counts->n_status[MILL_STATUS_FITTED] == 0;
  if (n_left > 0 && n_left < file->n_row) {
    *old = MILL_OLD_WAITS;
  } else if (is_empty) {
    *old = MILL_OLD_KEPT;
    unlink(file->path);
    if (file->models_target[0])
      unlink(models);
  } else {
    /* models first: while PATH.new exists, the same command can finish the replacement */
    if (file->models_target[0])
      MILL_CHECK(mill_output_rename(models, file->models_target));
    MILL_CHECK(mill_output_rename(file->path, file->target));
    *old = MILL_OLD_REPLACED;
  }
  return MILL_OK;
}

int mill_result_close(mill_result_file *file, mill_result_summary *summary)
{
  int err = MILL_OK;
  mill_result_summary counts = {0};
  if (!file)
    return MILL_OK;
  if (file->is_finished) {
    counts = file->found;
    goto done;
  }
  mill_cond_end(&file->work, &file->mutex, &file->is_closing);
  pthread_join(file->io_thread, NULL);
  mill_result_set_busy(file, MILL_RESULT_WRITES);
  const int has_failed = file->failure.code != MILL_OK;
  err = mill_models_close(file->models, file->failure.code);
  if (has_failed) /* report the I/O thread's failure */
    err = mill_error_restore(&file->failure);
  err = mill_mpi_agree(&file->mpi, err);
  mill_result_set_busy(file, MILL_RESULT_WRITES); /* each long step restarts the watchdog's time */
  /* the models are on disk, so the result may be marked finished */
  MILL_STEP(finish(file, &counts));
  mill_result_set_busy(file, MILL_RESULT_WRITES);
  close_tables(file);
  err = mill_output_end(file->path, &file->file, err);
  if (err == MILL_OK && file->mpi.rank == 0)
    err = mill_output_still_there(file->path, file->fd, &file->mark);
  err = mill_mpi_agree(&file->mpi, err);
  if (err == MILL_OK && file->target[0]) {
    counts.old = MILL_OLD_NONE;
    if (file->mpi.rank == 0)
      err = replace_old(file, &counts, &counts.old);
    err = mill_mpi_agree(&file->mpi, err);
    MPI_Bcast(&counts.old, 1, MPI_INT32_T, 0, file->mpi.comm);
  }
done:
  counts.wall_s = mill_wall_s() - file->start_s;
  counts.io_cpu_s = file->io_cpu_s;
  counts.write_s = file->write_s;
  counts.n_write = file->n_written;
  if (summary)
    *summary = counts;
  destroy(file);
  return err;
}
