/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by the files that make a result file: result_file.c opens and closes it, wanted_rows.c
 *  knows which rows are to be fitted, result_queue.c takes finished rows from the fits, and
 *  result_thread.c, the I/O thread, writes them. */
#ifndef MILL_RESULT_FILE_IMPL_H
#define MILL_RESULT_FILE_IMPL_H

#include <pthread.h>

#include <hdf5.h>

#include "io/files/lock_file.h"
#include "io/result/models_file.h"
#include "io/result/result_file.h"
#include "io/result/table.h"
#include "kernels/base/error.h"
#include "src/ranks/deliver.h"
#include "src/ranks/mpi_context.h"

enum {
  /* Rows wait for write_interval.  Before that a rank asks for a write when they have so many
     bytes, more than a GPU fits in the usual interval; with twice as many mill_result_put waits. */
  MILL_EPOCH_BYTES = 64 << 20,
  MILL_EPOCH_PIX = 8 << 20,  /* pixels of models that a rank writes by itself: 32 MiB */
  MILL_QUEUE_PIX = 32 << 20, /* mill_result_put_model waits: 128 MiB */
  MILL_OWN_ROWS = 1 << 17    /* of a block that one rank writes: 1 MiB of a column of numbers */
};

/* Rows that the fits have passed between two epochs; the I/O thread swaps two of these. */
typedef struct mill_result_queue {
  mill_waiting fits, epochs, model[MILL_MAX_ARM];
  int64_t n_pix;  /* of the models; a wavelength counts as two */
  double first_s; /* moment of mill_wall_s at which the first row or model came */
} mill_result_queue;

struct mill_result_file {
  char path[MILL_MAX_PATH];
  /* what path replaces when it is finished, and the same of the models; empty: nothing */
  char target[MILL_MAX_PATH], models_target[MILL_MAX_PATH];
  int is_new;   /* made by this call */
  int was_void; /* rank 0: path is a result of another run that has no fitted row */
  mill_columns columns;
  const mill_library *lib; /* borrowed */
  mill_mpi mpi;            /* of the calling threads' collective calls */
  mill_mpi io;             /* of the I/O thread */
  int is_finished;         /* found finished: nothing is open */
  mill_result_summary found;
  hid_t file;                /* rank 0 alone writes by it */
  int fd;                    /* descriptor of the same file; -1 */
  mill_table *fits, *epochs; /* epochs NULL: none are wanted */
  int64_t n_row, n_exposure;
  mill_models_file *models;
  mill_lock lock; /* rank 0 */
  double start_s, write_interval_s;
  _Atomic int64_t n_done; /* of all ranks, written */

  /* under mutex */
  pthread_mutex_t mutex;
  pthread_cond_t room, work;
  mill_result_queue *filling, *writing; /* the second belongs to the I/O thread */
  mill_result_queue both[2];
  uint8_t *wanted; /* one bit a row */
  int is_closing;
  int may_start;           /* 1: every rank has its threads; -1: not, end at once */
  mill_error_kept failure; /* the first of writing */
  int (*meet)(void *context, const mill_mpi *io); /* NULL: ranks have nothing else to exchange */
  void *meet_context;
  double met_s; /* rank 0: when they did so last; 0: not all have a meet yet */

  pthread_t io_thread;
  int has_io_thread;
  /* of the I/O thread */
  mill_owners owners;   /* of rows, and by the same blocks of exposures */
  int64_t *count, *sum; /* [n_count] of this rank and of all in an epoch */
  mill_parcel parcel[2];
  mill_waiting taken[2]; /* rows of /fits and /epochs that this rank writes for all */
  mill_error_kept own;   /* failure of its writing models by itself */
  int64_t epoch, n_want_sent, n_want_taken;
  int announced_closing;
  double io_cpu_s; /* set at its end */
  double write_s;
  int64_t n_written;        /* epochs with rows */
  int has_marked;           /* that rows come without models */
  int watch;                /* token of the collective call under way; -1: none */
  _Atomic double longest_s; /* of the writes so far */
};

/* ---- wanted_rows.c: one bit a row; the caller holds the mutex, or is the only thread ---- */

int mill_result_bit(const uint8_t *bits, int64_t i);
void mill_result_set_bit(uint8_t *bits, int64_t i, int value);

/** Collective: learn from the open file which rows are done; every rank examines its share.  In a
 *  file that was_finished, a row that is not done counts as damaged. */
int mill_result_learn_wanted(mill_result_file *file, int retry_failed, int was_finished);

/** Collective: rows whose models did not reach the disk, or were lost there, are wanted again. */
int mill_result_learn_unmodelled(mill_result_file *file, const mill_models_info *info);

/* ---- result_queue.c ---- */

/** Under the mutex: bytes of rows that wait for an epoch. */
int64_t mill_result_n_queued(const mill_result_file *file);

/* ---- result_thread.c ---- */

/** A collective call begins or goes on (busy 1), or has ended (0): one that does not return ends
 *  the job (src/system/watchdog.h). */
void mill_result_set_busy(mill_result_file *file, int busy);

/** Collective: all ranks have their I/O threads or none. */
int mill_result_start_epochs(mill_result_file *file);

#endif
