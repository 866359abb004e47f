/* SPDX-License-Identifier: BSD-3-Clause */
/** The reader of a rank: threads that read its stars' pixels from disk.
 *
 *  The threads draw chunks of the catalog (io/stars/work.h) and hand over the stars in batches.
 *  With several threads, batches come in any order.
 *
 *  mill_reader_batches() batches circulate, so memory does not grow with the catalog.  A batch has
 *  up to MILL_BATCH_EXPOSURES exposures, or a single row with more.  A star may outlive its batch,
 *  but loses its pixels then. */
#pragma once

#include "io/stars/inputs.h"
#include "io/stars/work.h"
#include "kernels/backend.h"

enum {
  MILL_BATCH_ROWS = 128,     /**< most rows of a batch */
  MILL_BATCH_EXPOSURES = 16, /**< most exposures of a batch, unless a single row has more */
  MILL_READER_AHEAD = 2,     /**< batches beyond one per thread: one fitted, one uploaded */
  MILL_READER_SHARE = 64     /**< most rows of a file that one of several threads takes at once */
};

/** Number of batches that circulate with n_thread threads. */
static inline int mill_reader_batches(int n_thread)
{
  return n_thread + MILL_READER_AHEAD;
}

/** Return how many rows, of one exposure each, n_thread threads may take before they are fitted. */
static inline int64_t mill_reader_rows_ahead(int n_thread)
{
  const int64_t n_filled = (int64_t)mill_reader_batches(n_thread) * MILL_BATCH_EXPOSURES;
  return n_thread == 1 ? n_filled : n_filled + (int64_t)n_thread * MILL_READER_SHARE;
}

/** Stars of a file with their pixels, or the reason why they cannot be read. */
typedef struct mill_batch {
  int i_file; /**< file of the rows, index in mill_inputs.file */
  int n_row;
  mill_star *star[MILL_BATCH_ROWS]; /**< [n_row]; NULL: the caller has taken the star */
  char error[512];                  /**< why the rows are unreadable; empty: readable */
  int n_exposure;
  mill_read_batch *part; /**< [n_part] pixels read from each file, owned */
  int n_part;
  int64_t cap_part;
} mill_batch;

/** Cost of reading; set by mill_reader_stop. */
typedef struct mill_reader_cost {
  int64_t n_opened; /**< number of times that a thread opened a file */
  double cpu_s;     /**< CPU seconds of the threads */
} mill_reader_cost;

/** Arguments of a reader, borrowed until mill_reader_stop. */
typedef struct mill_reader_plan {
  const mill_inputs *inputs;
  mill_work *work;             /**< rows to read; only the reader may draw from it */
  const mill_backend *backend; /**< its `pin` allocates pixels; NULL: ordinary memory */
  int n_thread;                /**< 1 to MILL_MAX_READER; 1 unless mill_spectra_threads() */
  mill_reader_cost *cost;      /**< out, zeroed by the caller; NULL: not wanted */
} mill_reader_plan;

typedef struct mill_reader mill_reader;

/** Start the threads.  MILL_ERR_MEMORY, MILL_ERR_INTERNAL. */
int mill_reader_start(const mill_reader_plan *plan, mill_reader **out);

/** Wait for the next batch; *out NULL: no more.  Returns the error of a failed thread once no batch
 *  is ready.  An unreadable file is no failure. */
int mill_reader_next(mill_reader *reader, mill_batch **out);

/** Give back a batch, its pixels and the stars still in it.  NULL is allowed. */
void mill_reader_release(mill_reader *reader, mill_batch *batch);

/** Give back a star that was taken from its batch. */
void mill_reader_release_star(mill_reader *reader, mill_star *star);

/** Stop the threads, even if batches are left, and free everything, including stars taken from
 *  batches.  NULL is allowed. */
void mill_reader_stop(mill_reader *reader);
MILL_CLOSER(mill_reader, mill_reader_stop)
