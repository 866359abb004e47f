/* SPDX-License-Identifier: BSD-3-Clause */
/** A caller that measures a fit: `starmill bench`, and tests. */
#ifndef MILL_FIT_OBSERVER_H
#define MILL_FIT_OBSERVER_H

#include "kernels/backend.h"

/** Cost of a run on this rank, CPU seconds unless called wall. */
typedef struct mill_fit_meters {
  /* what ran */
  char backend[64]; /**< its name */
  int n_thread, n_slot;

  /* once a run: start-up and end */
  double library_s; /**< configuration, log, library */
  double index_s;   /**< metadata of the inputs */
  double create_s;  /**< result file */
  double model_s;   /**< emulator to the device, templates of the initial guess */
  double waveset_s; /**< sets of wavelengths */
  double close_s;   /**< result file */

  /* work on stars */
  double read_s;     /**< reader threads */
  double load_s;     /**< stars from the reader into slots */
  double put_s;      /**< handing over results */
  double run_wall_s; /**< by the clock, from the first star to the last row */
  double io_s;       /**< I/O thread */
  mill_timing timing;

  double cpu_s, wall_s; /**< of the process, from the call to its end */
} mill_fit_meters;

/** A caller that measures a run.  The main thread calls put, whose time counts as the run's. */
typedef struct mill_fit_observer {
  void *context;
  /** A star's result was handed over. */
  void (*put)(void *context, const mill_fit_result *result);
  int64_t n_row_limit;         /**< fit only the first rows of the catalog; 0: all */
  const mill_backend *instead; /**< replaces the configured backend; NULL: not replaced */
  mill_fit_meters meters;      /**< out */
} mill_fit_observer;

#endif
