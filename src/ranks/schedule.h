/* SPDX-License-Identifier: BSD-3-Clause */
/** Division of a catalog's rows into a list of chunks, which ranks draw one after another.
 *
 *  - All ranks make the same list, so a rank needs only a drawn number (src/ranks/draw.h).
 *  - A chunk is a share of the work left.  So chunks become smaller, and ranks of different speed
 *    end together (Polychronopoulos & Kuck 1987, IEEE Trans. Comput. C-36, 1425).
 *  - A chunk has consecutive rows, and ends at the end of a file if that is near.
 *  - Files that are expensive to open (compressed) come first and are rarely cut.
 *  - A fast rank counts as several slow ranks and draws several chunks at a time.
 *
 *  A row with one exposure costs 1.  This code uses no MPI and no files, so that
 *  tests/src/ranks/schedule_model.h can run it with recorded costs. */
#pragma once

#include "kernels/base/memory.h"
#include "kernels/data/settings.h"

/** One input file. */
typedef struct mill_schedule_file {
  /** first row in the catalog, and number of rows; files follow each other */
  int64_t row_start, n_row;
  double row_cost;  /**< cost of one row */
  double open_cost; /**< cost of opening the file once */
} mill_schedule_file;

/** Arguments of mill_schedule_make; borrowed. */
typedef struct mill_schedule_plan {
  int n_file;
  const mill_schedule_file *file; /**< [n_file] */
  /** [row / 8] one bit per row, lowest first: 1 is wanted; NULL: all rows */
  const uint8_t *wanted;
  int64_t n_row_limit; /**< only rows below this number; 0: all */
  int n_rank;          /**< 1 or more; a fast rank counts as several */
  double rate;         /**< expected speed of a rank, rows/s */
  int64_t n_held;      /**< rows that a rank takes before it finishes its first row */
} mill_schedule_plan;

typedef struct mill_schedule mill_schedule;

/** Make the list of chunks.  MILL_ERR_MEMORY. */
int mill_schedule_make(const mill_schedule_plan *plan, mill_schedule **out);
void mill_schedule_free(mill_schedule *schedule); /* NULL is allowed */
MILL_CLOSER(mill_schedule, mill_schedule_free)

/** Totals over all chunks: numbers, and costs of wanted rows and of opening each file once. */
typedef struct mill_schedule_sum {
  int64_t n_chunk, n_row;
  double row_cost, open_cost;
  double least_cost; /**< least cost of a chunk; the last chunk may cost less */
} mill_schedule_sum;
void mill_schedule_sums(const mill_schedule *schedule, mill_schedule_sum *sum);

/** Rows of one file in a chunk.  The caller fits only wanted rows (mill_schedule_wanted). */
typedef struct mill_schedule_rows {
  int file;
  int64_t first, end; /**< [first, end) counted within the file */
} mill_schedule_rows;

/** Walk through chunks, file after file. */
typedef struct mill_schedule_walk {
  int64_t at, end; /**< indices in the list of files: next file, and file of the last rows */
  int64_t first_row, end_row;
} mill_schedule_walk;

/** Begin a walk through the chunks [number, number + n); chunks beyond the last have no rows. */
void mill_schedule_begin(const mill_schedule *schedule, int64_t number, int n,
                         mill_schedule_walk *walk);
/** Set *piece to the rows of the next file and return 1; return 0 at the end. */
int mill_schedule_next(const mill_schedule *schedule, mill_schedule_walk *walk,
                       mill_schedule_rows *piece);

/** Was a row of the catalog wanted when the list was made? */
int mill_schedule_wanted(const mill_schedule *schedule, int64_t row);

/** Return the cost of a row with n_exposure exposures, which share the emulator's work. */
double mill_schedule_row_cost(double n_exposure);

/** Return the cost of opening a file of n_byte bytes, for a rank of this rate (rows/s). */
double mill_schedule_open_cost(int64_t n_byte, int is_compressed, double rate);

/* ---- default rates, for estimates and sizes of chunks only ---- */

/** Return the usual stars/s of one core: DESI coadds, three arms with resolution matrices, on a
 *  Xeon with AVX-512 (docs/develop/performance.md).  optimizer: MILL_OPT_HYBRID, ... */
static inline double mill_usual_core_rate(int optimizer)
{
  /* hybrid and levenberg-marquardt have the same rate within 2 % */
  return optimizer == MILL_OPT_NELDER_MEAD ? 40.0 : 127.0;
}

/** Stars/s of a GPU: the goal for one H200, not a measurement. */
static inline double mill_usual_gpu_rate(void)
{
  return 10000.0;
}
