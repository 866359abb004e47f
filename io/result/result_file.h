/* SPDX-License-Identifier: BSD-3-Clause */
/** The result file: one HDF5 file, which all ranks write (result_thread.c).
 *
 *  Columns, types, units and meanings are in one table (io/result/columns.c); the datasets, their
 *  attributes and docs/use/formats.md follow from it.
 */
#ifndef MILL_RESULT_FILE_H
#define MILL_RESULT_FILE_H

#include <mpi.h>

#include "io/catalog/catalog_row.h"
#include "kernels/data/library.h"
#include "kernels/data/result.h"
#include "src/ranks/mpi_context.h"

typedef struct mill_result_file mill_result_file;

/** One input file of the catalog, the same on every rank. */
typedef struct mill_input_file {
  const char *path;
  int64_t size;
  double mtime;
  int64_t row_start, n_row; /**< rows of /fits */
  const char *error;        /**< why it could not be indexed; empty: no error */
  char format[16];          /**< of io/surveys/spectra.h; empty: not known */
  char frame[16];           /**< of its wavelengths: barycentric, ... */
  int64_t rows_hash;        /**< of its rows before joining (mill_file_index) */
  const char *redrock;      /**< file that selected its rows; empty: none */
  int64_t redrock_size;
  double redrock_mtime;
} mill_input_file;

/** Everything that describes a run; equal on every rank except index and backend. */
typedef struct mill_run_info {
  const mill_library *lib;     /**< lives as long as the result is open */
  const mill_library *library; /**< [n_library] that column LIBRARY can name */
  int n_library;
  const char *identity; /**< text of the science settings (mill_config_identity) */
  const char *config;   /**< the effective configuration (YAML) */
  const char *command;  /**< the command line */
  const char *device;   /**< backend and device type, e.g. "cpu x86-64-v4"; of all ranks */
  /** Where ranks have two kinds of backend, which column BACKEND tells apart: the names of both,
   *  and this rank's kind (enum mill_row_backend).  NULL: all have the same. */
  const char *cpu, *gpu;
  int backend;
  int n_thread;
  /* which optional columns /fits has */
  int velocity_offsets;
  int epochs; /**< also /epochs */
  int binaries;
  int posteriors; /**< of `starmill sample` */
  int n_draw;     /**< samples of each star */
  int64_t n_row;  /**< rows of /fits, all files */
  int n_file;
  const mill_input_file *file; /**< [n_file] */
  /** this rank's share of /catalog: the files [file_start, file_end) with one index each */
  int file_start, file_end;
  const mill_file_index *index; /**< [file_end - file_start] */
  /** Read the rows of a file whose index has counts but no lists (row NULL) into an index, which
   *  the caller clears; NULL: every index has its lists.  MILL_ERR_INPUT. */
  int (*load)(void *context, int i_file, mill_file_index *index);
  void *load_context;
  double write_interval_s;
  const char *models; /**< the models file, for mill_result_open alone; NULL: none */
} mill_run_info;

enum mill_open_outcome { MILL_OPEN_NEW, MILL_OPEN_CONTINUE, MILL_OPEN_FINISHED };

/** Collective.  Create the file (temporary name, flushed, renamed), or continue
 *  an unfinished one of the same identity, or find it finished (nothing is
 *  touched).  Another identity or a foreign file is refused unless overwrite.
 *
 *  With overwrite a result that is there, and its models, stay until the new one is finished and
 *  has a fitted row: until then that one is PATH.new (and MODELS.new), which the next call with
 *  overwrite continues when its identity is the same.  What an earlier start of the same requeued
 *  Slurm job has made is continued also with overwrite.
 *  Takes the lock file.  Starts this rank's I/O thread.
 *  MILL_ERR_OUTPUT on every rank alike. */
int mill_result_open(const char *path, int overwrite, int retry_failed, const mill_run_info *info,
                     MPI_Comm comm, mill_result_file **out, int *outcome);

/** The file that mill_result_open with overwrite would continue, out [size]: PATH.new where there
 *  is one (*is_new), else path, whose links are resolved.  Not collective. */
int mill_result_begun(const char *path, char *out, size_t size, int *is_new);

/** Which rows have to be fitted (not done before, CRC whole), one bit each, the lowest bit first;
 *  bits [n_row / 8 + 1].  Thread-safe. */
void mill_result_wanted_bits(const mill_result_file *file, uint8_t *bits);

/** Pass a finished row to the I/O thread (copied); any thread, not collective.  A failure of an
 *  earlier write is returned here. */
int mill_result_put(mill_result_file *file, const mill_fit_result *result);

/** Pass the rows of a star's exposures in /epochs, from `first` on, to the I/O thread (copied),
 *  before its row, whose EPOCH_CRC is *crc.  epoch [n]; only of a result with epochs. */
int mill_result_put_epochs(mill_result_file *file, int64_t first, mill_epoch_result *epoch,
                           int64_t n, uint32_t *crc);

/** Pass a best-fit model row to the I/O thread (copied), once for each arm and row.  Only after
 *  mill_result_open_models. flux [n_pix] of the arm, model_row as catalogued; wave_aa [n_pix] where
 *  the arm has no common wavelengths, else NULL. */
int mill_result_put_model(mill_result_file *file, int arm, int64_t model_row, const float *flux,
                          const double *wave_aa, int n_pix);

/** Collective, before the first put: also write best-fit models to path.
 *  n_pix per arm, 0 for arms that no file has; wave_aa [n_pix[arm]] per arm, NULL where
 *  each row brings its own and n_pix is that of the longest; one model row per exposure of
 *  each fits row, in catalog order.  Rows of an earlier run whose models are not whole are wanted
 *  again (a full read of the models, shared by the ranks). */
int mill_result_open_models(mill_result_file *file, const char *path, int overwrite,
                            const double *const *wave_aa, const int *n_pix);

/** What happened to the file that was to be overwritten: there was none; it is replaced; it stays
 *  until the new one is finished; it stays because the new one has no fitted row. */
enum mill_old_result { MILL_OLD_NONE, MILL_OLD_REPLACED, MILL_OLD_WAITS, MILL_OLD_KEPT };

/** Number of counted bits of a flag, from bit 1 on. */
enum { MILL_N_RESULT_BIT = 32 };

/** After close: counts over all ranks, which come first, and times. */
typedef struct mill_result_summary {
  int64_t n_status[MILL_N_STATUS];
  int64_t n_warned;                  /**< fitted rows with a warning */
  int64_t n_good;                    /**< rows with VRAD_GOOD */
  int64_t n_not_stellar;             /**< fitted rows with a bit of MILL_WARN_NOT_STELLAR */
  int64_t n_warn[MILL_N_RESULT_BIT]; /**< fitted rows with each bit of RVS_WARN */
  int64_t n_info[MILL_N_RESULT_BIT]; /**< of FIT_INFO */
  int64_t n_post[MILL_N_RESULT_BIT]; /**< and of POST_FLAG, of a sample */
  int32_t old;                       /**< enum mill_old_result */
  double wall_s;
  double io_cpu_s; /**< CPU seconds of this rank's I/O thread */
  double write_s;  /**< wall seconds of its writes, in which it may wait for other ranks */
  int64_t n_epoch; /**< of them */
} mill_result_summary;

/** Collective.  Write what is queued, mark the file finished when every row is
 *  done, stop the I/O thread, release the lock.  summary may be NULL. */
int mill_result_close(mill_result_file *file, mill_result_summary *summary);

/** Collective, before the first put: from now on the I/O threads of all ranks call meet together,
 *  every write_interval and whether there are rows to write or not.  If it returns an error, the
 *  ranks cannot continue and the job is aborted. */
int mill_result_meet(mill_result_file *file, int (*meet)(void *context, const mill_mpi *io),
                     void *context);

/** Rows finished on all ranks, as of the last write epoch; rank 0's progress. */
int64_t mill_result_n_done(const mill_result_file *file);

/** Seconds that the longest write epoch has taken so far; any thread. */
double mill_result_longest_write_s(const mill_result_file *file);

#endif
