/* SPDX-License-Identifier: BSD-3-Clause */
/** The reader of a rank: threads that read its stars' pixels from disk.
 *
 *  The threads draw chunks of the catalog (io/stars/work.h), the next one when all rows of the last
 *  are taken, and hand over the stars of the wanted rows in batches of a bounded size.  Several
 *  threads read shares of the same file, which each of them opens; one thread unpacks and reads a
 *  compressed file, while the others go on.  So with several threads the batches come in any order.
 *
 *  A fixed number of batches circulates, so the memory of pixels does not depend on the catalog: it
 *  is mill_reader_batches() times the larger of MILL_BATCH_EXPOSURES exposures and the most
 *  exposures fitted jointly.  A star may outlive its batch, without its pixels.
 */
#ifndef MILL_READER_H
#define MILL_READER_H

#include "io/catalog/prior_table.h"
#include "io/catalog/start_table.h"
#include "io/stars/inputs.h"
#include "io/stars/work.h"
#include "io/surveys/spectra.h"
#include "kernels/backend.h"
#include "kernels/data/star.h"

enum {
  MILL_BATCH_ROWS = 128,     /**< most rows of a batch */
  MILL_BATCH_EXPOSURES = 16, /**< exposures of a batch, unless one row has more */
  MILL_READER_AHEAD = 2,     /**< batches besides those that the threads fill: one being fitted
                              *   from, one being uploaded from */
  MILL_READER_SHARE = 64     /**< rows of a file that one of several threads takes at a time */
};

/** Batches that circulate with n_thread threads. */
static inline int mill_reader_batches(int n_thread)
{
  return n_thread + MILL_READER_AHEAD;
}

/** Rows, of one exposure each, that n_thread threads have taken at most before any is fitted. */
static inline int64_t mill_reader_rows_ahead(int n_thread)
{
  const int64_t n_filled = (int64_t)mill_reader_batches(n_thread) * MILL_BATCH_EXPOSURES;
  return n_thread == 1 ? n_filled : n_filled + (int64_t)n_thread * MILL_READER_SHARE;
}

/** Stars of rows that belong to one file, with their pixels (of joined rows, also from other
 *  files), or the reason why these cannot be had. */
typedef struct mill_batch {
  int i_file; /**< of the catalog */
  int n_row;
  mill_star *star[MILL_BATCH_ROWS]; /**< [n_row]; NULL: taken from the batch */
  char error[512];                  /**< not empty: these rows are unreadable, and why */
  int n_exposure;
  mill_read_batch *part; /**< [n_part] the pixels, one for each file that was read, owned */
  int n_part;
  int64_t cap_part;
} mill_batch;

/** Request of a reader; everything is borrowed until mill_reader_stop. */
typedef struct mill_reader_plan {
  const mill_inputs *inputs;
  mill_work *work;                /**< which rows; the reader's own until mill_reader_stop */
  const mill_backend *backend;    /**< whose `pin` gives memory for pixels; NULL: ordinary memory */
  const mill_start_table *start;  /**< NULL: none */
  const mill_prior_table *priors; /**< NULL: none */
  int n_thread;                   /**< 1 to MILL_MAX_READER; 1 unless mill_spectra_threads() */
} mill_reader_plan;

typedef struct mill_reader mill_reader;

/** Start the threads.  MILL_ERR_MEMORY, MILL_ERR_INTERNAL. */
int mill_reader_start(const mill_reader_plan *plan, mill_reader **out);

/** Wait for the next batch; *out NULL at the end.  A failure of a thread
 *  itself (not of a file) is returned here with its message, after the batches that were ready. */
int mill_reader_next(mill_reader *reader, mill_batch **out);

/** How often the threads have opened a file so far. */
int64_t mill_reader_n_opened(mill_reader *reader);

/** CPU seconds that the threads have used so far. */
double mill_reader_cpu_s(mill_reader *reader);

/** Give a batch back for reuse, with its pixels and the stars that are still in it. NULL is
 *  allowed. */
void mill_reader_release(mill_reader *reader, mill_batch *batch);

/** Give back a star that was taken from its batch. */
void mill_reader_release_star(mill_reader *reader, mill_star *star);

/** Stop the threads, at once even when batches are left, and free everything, also stars that were
 *  taken.  NULL is allowed. */
void mill_reader_stop(mill_reader *reader);

#endif
