/* SPDX-License-Identifier: BSD-3-Clause */
/** Division of a catalog's rows among ranks: one list of chunks, which the ranks draw one by one.
 *
 *  The list depends on the catalog, on the rows that are still wanted, and on the number of
 *  ranks, and is the same on every rank; so a rank that draws a number knows its rows without
 *  a message.  Chunks begin large and become smaller (guided self-scheduling, Polychronopoulos
 *  & Kuck 1987), each a share of the work that is left, so that ranks of different speed and files
 *  of any size end together.  A chunk is rows that follow each other, cut where a file ends if
 *  that is near: then a file is opened by few ranks.  Files that are expensive to open
 *  (compressed ones) come first and are cut rarely; the others fill the gaps that these leave.
 *
 *  The first numbers belong to the ranks in their order.  Ranks are of one kind, or a fast one
 *  counts as several slow ones and takes as many chunks at a time, so that all of them take work
 *  for about the same time.
 *
 *  Costs are in usual rows: one row with one exposure is 1.
 *
 *  Pure code: no MPI, no files.  src/ranks/draw.h hands out the numbers; `starmill bench schedule`
 *  (tests/src/ranks/schedule_model.h) runs this same code with recorded costs.
 */
#ifndef MILL_SCHEDULE_H
#define MILL_SCHEDULE_H

#include <stdint.h>

/** One input file. */
typedef struct mill_schedule_file {
  int64_t row_start, n_row; /**< rows of the catalog, which follow those of the file before */
  double row_cost;          /**< of one of its rows */
  double open_cost;         /**< of opening it once */
} mill_schedule_file;

/** Input of the list; borrowed for the call of mill_schedule_make. */
typedef struct mill_schedule_plan {
  int n_file;
  const mill_schedule_file *file; /**< [n_file] */
  const uint8_t *wanted;          /**< one bit a row, lowest first; NULL: all rows */
  int64_t n_row_limit;            /**< only rows below it; 0: all */
  int n_rank;                     /**< at least 1; a fast one counts as several */
  double rate;                    /**< usual rows a second of one of these */
  int64_t n_held;                 /**< rows that a rank takes before it has finished any */
} mill_schedule_plan;

typedef struct mill_schedule mill_schedule;

/** Make the list.  MILL_ERR_MEMORY. */
int mill_schedule_make(const mill_schedule_plan *plan, mill_schedule **out);
void mill_schedule_free(mill_schedule *schedule); /* NULL is allowed */

/** Number of chunks, of wanted rows, their cost without opening files, and that of opening
 *  each file with wanted rows once. */
typedef struct mill_schedule_sum {
  int64_t n_chunk, n_row;
  double row_cost, open_cost;
  double least_cost; /**< of a chunk, but for the last and where opening a file costs more */
} mill_schedule_sum;
void mill_schedule_sums(const mill_schedule *schedule, mill_schedule_sum *sum);

/** Rows of one file that belong to a chunk; those among them that are wanted are to be done. */
typedef struct mill_schedule_rows {
  int file;
  int64_t first, end; /**< rows within the file */
} mill_schedule_rows;

/** Walk a chunk: begin, then take its rows file after file. */
typedef struct mill_schedule_walk {
  int64_t at, end; /**< places in the list of files, end: of the chunk's last rows */
  int64_t first_row, end_row;
} mill_schedule_walk;

/** The chunks [number, number + n) together; those beyond the last chunk have no rows. */
void mill_schedule_begin(const mill_schedule *schedule, int64_t number, int n,
                         mill_schedule_walk *walk);
/** 1 and the rows of the next file, or 0. */
int mill_schedule_next(const mill_schedule *schedule, mill_schedule_walk *walk,
                       mill_schedule_rows *piece);

/** Is a row of the catalog wanted?  (Of the list as it was made.) */
int mill_schedule_wanted(const mill_schedule *schedule, int64_t row);

/** Cost of a row with n_exposure exposures: the emulator works once for all of them. */
double mill_schedule_row_cost(double n_exposure);

/** Cost of opening a file of n_byte, compressed or not, for a rank of this rate. */
double mill_schedule_open_cost(int64_t n_byte, int is_compressed, double rate);

#endif
