/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by the parts of the result file: result_file.c opens and closes it, wanted_rows.c finds
 *  the rows to fit, result_queue.c queues finished rows, result_thread.c (a thread) writes them. */
#pragma once

#include <pthread.h>

#include "io/files/lock_file.h"
#include "io/hdf5/output_file.h"
#include "io/result/models_file.h"
#include "io/result/result_file.h"
#include "io/result/table.h"
#include "src/ranks/deliver.h"

/* A rank writes its queue every write_interval, or earlier if the queue reaches these sizes. */
enum {
  MILL_WRITE_BYTES = 64 << 20, /* bytes of rows: ask for a write; at twice as many, put waits */
  MILL_WRITE_PIX = 8 << 20,    /* pixels of models: write models without the other ranks */
  MILL_QUEUE_PIX = 32 << 20,   /* pixels of models: put waits for room */
  MILL_OWN_ROWS = 1 << 17      /* rows of a block that one rank writes: 1 MiB of float64 */
};

/* Rows and models queued since the last write; the I/O thread swaps two queues. */
typedef struct mill_result_queue {
  mill_waiting fits, epochs, model[MILL_MAX_ARM];
  int64_t n_pix;  /* pixels of the queued models; a float64 wavelength counts as two */
  double first_s; /* when the first row or model was queued (mill_wall_s) */
} mill_result_queue;

struct mill_result_file {
  char path[MILL_MAX_PATH];
  /* files that result and models replace once finished; empty: none */
  char target[MILL_MAX_PATH], models_target[MILL_MAX_PATH];
  int is_new;   /* 1: this run created the file */
  int was_void; /* rank 0: path held another run's result without a fitted row */
  mill_columns columns;
  const mill_library *lib; /* borrowed */
  mill_mpi mpi;            /* communicator of the calling threads */
  mill_mpi io;             /* communicator of the I/O threads */
  int is_finished;         /* 1: the result was finished before, and nothing is open */
  mill_result_summary found;
  hid_t file;                /* rank 0 alone writes by HDF5 */
  int fd;                    /* descriptor of `file`; -1: not open */
  mill_output_mark mark;     /* START_TIME */
  mill_table *fits, *epochs; /* epochs NULL: the result has no /epochs */
  int64_t n_row, n_exposure;
  mill_models_file *models;
  mill_lock lock; /* held by rank 0 */
  double start_s, write_interval_s;
  _Atomic int64_t n_done; /* rows of all ranks that are written */

  /* under mutex */
  pthread_mutex_t mutex;
  pthread_cond_t room, work;
  mill_result_queue *filling, *writing; /* writing is used by the I/O thread alone */
  mill_result_queue both[2];
  uint8_t *wanted; /* bit 1: row still to be fitted */
  int is_closing;
  int may_start; /* I/O thread 0: waits; 1: begins; -1: ends, because a rank could not start one */
  mill_error_kept failure;                        /* first failed write */
  int (*meet)(void *context, const mill_mpi *io); /* set by mill_result_meet; NULL: none */
  void *meet_context;
  double met_s; /* rank 0: mill_wall_s at the last call of meet; 0 until all ranks have set meet */

  pthread_t io_thread;
  /* used by the I/O thread alone */
  mill_owners owners;   /* ranks that write each block of rows, and of exposures */
  int64_t *count, *sum; /* [n_count] counts of a write: this rank's; summed over ranks */
  mill_parcel parcel[2];
  mill_waiting taken[2]; /* rows of /fits and of /epochs that this rank will write */
  mill_error_kept own;   /* failure of write_many_models, to be reported by the next write */
  int64_t i_write;       /* number of the next write */
  int64_t n_want_sent, n_want_taken;
  int announced_closing;
  double io_cpu_s; /* CPU seconds, set when the thread ends */
  double write_s;
  int64_t n_written;        /* number of writes that had rows or models */
  int has_marked;           /* 1: UNMODELLED is set in the file */
  int watch;                /* watchdog's token while a collective call runs; -1: none runs */
  _Atomic double longest_s; /* seconds of the longest write so far */
};

/* ---- existing_result.c ---- */

/** Find what path holds (*found: enum mill_found); lock it unless it is finished.  Rank 0 alone. */
int mill_result_claim(mill_result_file *file, const char *path, const mill_run_info *info,
                      int overwrite, int retry_failed, int *found);

/* ---- wanted_rows.c ---- */

/** Get or set a row's bit of `wanted`.  The caller holds the mutex or is the only thread. */
int mill_result_bit(const uint8_t *bits, int64_t i);
void mill_result_set_bit(uint8_t *bits, int64_t i, int value);

/** Set the bits `wanted` of the rows to fit.  Collective.  was_finished 1: the result was finished,
 *  so a row that is not done is damaged. */
int mill_result_learn_wanted(mill_result_file *file, int retry_failed, int was_finished);

/* ---- result_queue.c ---- */

/** Bytes of the queued rows; the caller holds the mutex. */
int64_t mill_result_n_queued(const mill_result_file *file);

/* ---- result_thread.c ---- */

/** Tell the watchdog what this thread does, and restart its clock.  WAITS: the thread waits until
 *  other ranks have written, for which the watchdog allows an hour more. */
enum mill_result_busy { MILL_RESULT_IDLE, MILL_RESULT_WRITES, MILL_RESULT_WAITS };
void mill_result_set_busy(mill_result_file *file, enum mill_result_busy busy);

/** Start the I/O threads of all ranks, or of none.  Collective. */
int mill_result_start_thread(mill_result_file *file);
