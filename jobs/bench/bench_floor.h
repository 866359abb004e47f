/* SPDX-License-Identifier: BSD-3-Clause */
/** Lower bound of the work of a fit: arithmetic and bytes by stage, and the time that this machine
 *  needs for it.
 *
 *  Counted from compulsory work only, with the sizes of the library and of the spectra
 *  that were fitted; the formulas are in bench_floor.c and explained in
 *  docs/develop/performance.md.  How many likelihoods and Jacobians a stage takes is not part of
 *  the count: it is what the run had (mill_timing).
 */
#ifndef MILL_BENCH_FLOOR_H
#define MILL_BENCH_FLOOR_H

#include "kernels/data/library.h"
#include "kernels/data/settings.h"
#include "kernels/data/star.h"
#include "kernels/base/timing.h"
#include "jobs/bench/bench_rates.h"

/** Stages of a star's time, in the order of the tables. */
#define MILL_BENCH_STAGE_LIST(X)                                                                   \
  X(MILL_BENCH_READ, "read")                                                                       \
  X(MILL_BENCH_LOAD, "load")                                                                       \
  X(MILL_BENCH_PREPARE, "prepare")                                                                 \
  X(MILL_BENCH_GUESS, "guess")                                                                     \
  X(MILL_BENCH_SIMPLEX, "simplex")                                                                 \
  X(MILL_BENCH_POLISH, "polish")                                                                   \
  X(MILL_BENCH_PROFILE, "profile")                                                                 \
  X(MILL_BENCH_FINAL, "final")                                                                     \
  X(MILL_BENCH_WRITE, "write")                                                                     \
  X(MILL_BENCH_OTHER, "other")
#define MILL_BENCH_STAGE_ENUM(symbol, name) symbol,
enum mill_bench_stage { MILL_BENCH_STAGE_LIST(MILL_BENCH_STAGE_ENUM) MILL_BENCH_N_STAGE };
#undef MILL_BENCH_STAGE_ENUM

/** Sums over the stars of a run; zero it, then let every star be added once. */
typedef struct mill_bench_shape {
  int64_t n_star;
  /** by arm of the library, over all segments */
  struct {
    int64_t n_star;      /**< stars with a segment of this arm */
    int64_t n_segment;   /**< arms of exposures */
    int64_t n_pix;       /**< their pixels */
    int64_t n_res;       /**< pixels times diagonals of their resolution rows */
    int64_t n_guess_bin; /**< velocity bins that the pixels cover */
    int64_t raw_bytes;   /**< of flux, ivar, mask and line-spread function as they are read */
  } arm[MILL_MAX_ARM];
} mill_bench_shape;

/** Add a star as the pipeline is about to take it. */
void mill_bench_shape_add(mill_bench_shape *shape, const mill_library *lib,
                          const mill_fit_settings *set, const mill_star *star);

/** The least work of one stage, all stars together. */
typedef struct mill_bench_work {
  double f32, f64;     /**< operations in float32 and in float64 */
  double bytes_file;   /**< read from the page cache */
  double bytes_memory; /**< moved to or from memory */
  double bytes_cache;  /**< the same, where a star's data fit half of a core's L2 cache */
} mill_bench_work;

/** Count every stage.
 *
 *  n_slot     stars at once: what all stars share (the emulator, continuum functions,
 *             templates of the guess) is moved once a round for all of them
 *  row_bytes  of a row of the result
 *  work       out, [MILL_BENCH_N_STAGE] */
void mill_bench_floor_count(const mill_library *lib, const mill_fit_settings *set,
                            const mill_bench_shape *shape, const mill_timing *timing, int n_slot,
                            size_t row_bytes, size_t l2_bytes, mill_bench_work *work);

/** Seconds that the work needs at the rates: the larger of arithmetic (both types one
 *  after the other, on the same units) and traffic.  *by_traffic tells which; may be NULL. */
double mill_bench_floor_s(const mill_bench_work *work, const mill_bench_rates *rates,
                          int *by_traffic);

#endif
