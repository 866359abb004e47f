/* SPDX-License-Identifier: BSD-3-Clause */
/** The result file: one HDF5 file, written by all ranks (result_thread.c).
 *
 *  io/result/columns.c defines its columns, types, units and meanings. */
#pragma once

#include <mpi.h>

#include "io/catalog/catalog_row.h"
#include "kernels/data/library.h"
#include "kernels/data/result.h"
#include "src/ranks/mpi_context.h"

typedef struct mill_result_file mill_result_file;

/** An input file of the catalog; equal on all ranks. */
typedef struct mill_input_file {
  const char *path;
  int64_t size;
  double mtime;
  int64_t row_start, n_row; /**< its rows of /fits */
  const char *error;        /**< why it could not be indexed; empty if it could */
  char format[16];          /**< name of its mill_format; empty: unknown */
  char frame[16];           /**< frame of its wavelengths: barycentric, ... */
  int64_t rows_hash;        /**< mill_file_index.rows_hash, before joining */
  int32_t named_by_file;    /**< mill_file_index.named_by_file */
  const char *redrock;      /**< redrock file that was read; empty: none */
  int64_t redrock_size;
  double redrock_mtime;
} mill_input_file;

/** A run; equal on all ranks, except backend, index, file_start and file_end. */
typedef struct mill_run_info {
  const mill_library *lib;     /**< must outlive the open result */
  const mill_library *library; /**< [n_library] libraries, named in column LIBRARY */
  int n_library;
  const char *identity; /**< science settings as text (mill_config_identity) */
  const char *config;   /**< configuration in effect (YAML) */
  const char *command;  /**< the command line */
  const char *device;   /**< backend and kind of device of all ranks, e.g. "cpu x86-64-v4" */
  /** Values of column BACKEND for CPUs and GPUs; both NULL if all ranks use the same kind. */
  const char *cpu, *gpu;
  int backend; /**< this rank's kind, enum mill_row_backend */
  int n_thread;
  /* 1: /fits has these columns */
  int velocity_offsets;
  int epochs; /**< and the file has a table /epochs */
  int binaries;
  int posteriors; /**< columns of `starmill sample` */
  int n_draw;     /**< samples per star */
  int64_t n_row;  /**< rows of /fits */
  int n_file;
  const mill_input_file *file; /**< [n_file] */
  /** this rank's share of /catalog: files [file_start, file_end) */
  int file_start, file_end;
  const mill_file_index *index; /**< [file_end - file_start] */
  /** Read the rows of a file whose index holds only counts (row NULL) into *index, which the caller
   *  clears.  load NULL: every index has its rows.  MILL_ERR_INPUT. */
  int (*load)(void *context, int i_file, mill_file_index *index);
  void *load_context;
  double write_interval_s;
  const char *models; /**< path of the models file, used by mill_result_open only; NULL: none */
} mill_run_info;

enum mill_open_outcome { MILL_OPEN_NEW, MILL_OPEN_CONTINUE, MILL_OPEN_FINISHED };

/** Open a result, take its lock file and start this rank's I/O thread.  Collective.
 *
 *  no file, or another run's result without a fitted row: create the result
 *  an unfinished result of the same identity: continue it
 *  a finished result of the same identity: leave it unchanged; no lock and no thread
 *  any other file: MILL_ERR_OUTPUT, the same on every rank
 *
 *  With overwrite, the run writes or continues PATH.new and MODELS.new.  They replace the old files
 *  once the new result is finished and has a fitted row.  A requeued Slurm job continues the file
 *  of its earlier start. */
int mill_result_open(const char *path, int overwrite, int retry_failed, const mill_run_info *info,
                     MPI_Comm comm, mill_result_file **out, int *outcome);

/** Set out [size] to PATH.new if it exists (*is_new 1): a run with overwrite continues it.  Else
 *  set out to path.  Links are resolved.  Not collective. */
int mill_result_begun(const char *path, char *out, size_t size, int *is_new);

/** Copy the rows still to be fitted: bits [n_row / 8 + 1], lowest bit first.  Thread-safe. */
void mill_result_wanted_bits(const mill_result_file *file, uint8_t *bits);

/** Queue a finished row for the I/O thread; any thread.  Returns an earlier write's failure. */
int mill_result_put(mill_result_file *file, const mill_fit_result *result);

/** Queue a star's epochs as rows [first, first + n) of /epochs, before mill_result_put of the star.
 *  *crc: EPOCH_CRC for the star's row.  The result must have epochs. */
int mill_result_put_epochs(mill_result_file *file, int64_t first, mill_epoch_result *epoch,
                           int64_t n, uint32_t *crc);

/** Queue the model of an exposure in an arm after mill_result_open_models, each model only once.
 *
 *  model_row        row of /models
 *  flux [n_pix]     best-fit model
 *  wave_aa [n_pix]  wavelengths; NULL if all rows of the arm share them */
int mill_result_put_model(mill_result_file *file, int arm, int64_t model_row, const float *flux,
                          const double *wave_aa, int n_pix);

/** Also write best-fit models to path, one row per exposure in catalog order.  Collective, before
 *  the first put.
 *
 *  n_pix    [n_arm]              pixels of the longest model in each arm; 0: no file has the arm
 *  wave_aa  [n_arm][n_pix[arm]]  wavelengths of all rows; NULL: each row has its own */
int mill_result_open_models(mill_result_file *file, const char *path, int overwrite,
                            const double *const *wave_aa, const int *n_pix);

/** Fate of the old file under --overwrite. */
enum mill_old_result {
  MILL_OLD_NONE, /**< there was no old file */
  MILL_OLD_REPLACED,
  MILL_OLD_WAITS, /**< kept until the new one is finished */
  MILL_OLD_KEPT   /**< kept, since the new result has no fitted row */
};

/** Number of bits of a flag that are counted, lowest first. */
enum { MILL_N_RESULT_BIT = 32 };

/** Counts of all ranks (n_status first, for reductions), then times of this rank. */
typedef struct mill_result_summary {
  int64_t n_status[MILL_N_STATUS];
  int64_t n_warned;                  /**< fitted rows with a warning */
  int64_t n_good;                    /**< rows with VRAD_GOOD */
  int64_t n_not_stellar;             /**< fitted rows with a bit of MILL_WARN_NOT_STELLAR */
  int64_t n_warn[MILL_N_RESULT_BIT]; /**< fitted rows with each bit of RVS_WARN */
  int64_t n_info[MILL_N_RESULT_BIT]; /**< ... of FIT_INFO */
  int64_t n_post[MILL_N_RESULT_BIT]; /**< ... of POST_FLAG, in a sample */
  int32_t old;                       /**< enum mill_old_result */
  double wall_s;                     /**< since mill_result_open */
  double io_cpu_s;                   /**< CPU seconds of this rank's I/O thread */
  double write_s;  /**< wall seconds of the thread's writes, with waits for other ranks */
  int64_t n_write; /**< number of the thread's writes */
} mill_result_summary;

/** Write the queued rows, mark the file finished if all rows are done, stop the I/O thread and
 *  release the lock.  Collective.  summary may be NULL. */
int mill_result_close(mill_result_file *file, mill_result_summary *summary);

/** Make the I/O threads of all ranks call meet() at the same time, every write_interval seconds and
 *  even without rows to write.  Collective, before the first put.  If meet fails, the job ends. */
int mill_result_meet(mill_result_file *file, int (*meet)(void *context, const mill_mpi *io),
                     void *context);

/** Number of rows of all ranks written so far. */
int64_t mill_result_n_done(const mill_result_file *file);

/** Seconds of the longest write so far; any thread. */
double mill_result_longest_write_s(const mill_result_file *file);
