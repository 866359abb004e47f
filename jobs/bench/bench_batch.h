/** Fits of stars held in memory, as many as are wanted: a few stars repeated.
 *
 *  What is timed is what the stars cost once their files have been read: the device made
 *  ready, pixels copied to it, fits, rows back.  No files are read or written.
 */
#ifndef MILL_BENCH_BATCH_H
#define MILL_BENCH_BATCH_H

#include "io/surveys/spectra.h"
#include "src/floor/bench_floor.h"
#include "src/pipeline/pipeline.h"

/** Stars read from files, with all memory behind them. */
typedef struct mill_bench_stars {
  int n_star, n_segment;
  mill_star *star;           /**< [n_star], owned; row: number */
  mill_raw_segment *segment; /**< [n_segment] of all stars, owned; waveset: index into wave */
  int n_wave;
  struct mill_bench_wave {
    int arm, n_pix;
    const double *wave_aa; /**< [n_pix] */
  } * wave;                /**< [n_wave] sets that stars share, owned */
  mill_read_batch *part;   /**< [n_part] one a file, owned */
  int n_part;
  int is_desi; /**< all files are of that format */
  int64_t star_room, segment_room, wave_room, part_room;
} mill_bench_stars;

/** Read up to n_star stars that can be fitted, in the order of the files.
 *  MILL_ERR_INPUT, MILL_ERR_MEMORY; MILL_ERR_USAGE when there is none. */
int mill_bench_stars_read(const mill_spectra_settings *settings, int n_file,
                          const char *const *path, int n_star, mill_bench_stars *stars);
void mill_bench_stars_clear(mill_bench_stars *stars);

/** How to fit the stars. */
typedef struct mill_bench_plan {
  const mill_library *lib;
  const mill_fit_settings *set;
  const mill_backend *backend;
  int n_slot, n_thread;
  mill_fit_result *result; /**< [n_star of the batch] out, by number; NULL: not wanted */
} mill_bench_plan;

typedef struct mill_bench_batch {
  int64_t n_star;
  int n_slot;    /**< at the end: fewer than planned where memory was full */
  double open_s; /**< wall: device, emulator, templates of the guess, wavelength sets */
  double run_s;  /**< wall: from the first star to the last row */
  double load_s; /**< CPU: stars copied towards their slots, within run_s or at the same time */
  int64_t n_fitted, n_eval, n_jac;
  int64_t n_differ; /**< rows that are not, bit for bit, those of the same star before */
  mill_timing timing;
  mill_bench_shape shape; /**< of each distinct star once */
} mill_bench_batch;

/** Fit n_star stars, those of memory one after the other, again and again.  MILL_ERR_STOPPED
 *  after a signal; MILL_ERR_MEMORY where the slots, or one star in them, do not fit. */
int mill_bench_batch_run(const mill_bench_plan *plan, const mill_bench_stars *stars, int64_t n_star,
                         mill_bench_batch *out);

/** Seconds that the least work of a star takes on a device with these rates, by
 *  mill_bench_floor_s, reading and writing left out; *by_traffic of the larger part. */
double mill_bench_batch_floor_s(const mill_bench_plan *plan, const mill_bench_batch *batch,
                                const mill_bench_rates *rates, int *by_traffic);

#endif
