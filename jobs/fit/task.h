/* SPDX-License-Identifier: BSD-3-Clause */
/** What the steps of a rank's share of the fits work with, and its counts for the summary. */
#ifndef MILL_FIT_TASK_H
#define MILL_FIT_TASK_H

#include "jobs/fit/lsf_hint.h"
#include "jobs/fit/medium_hint.h"
#include "jobs/fit/output.h"
#include "kernels/base/clock.h"

/** Counts of a rank, and wall seconds. */
typedef struct mill_fit_tally {
  int64_t n_put;      /**< rows that it has finished */
  int64_t n_opened;   /**< files, each time */
  double fit_s;       /**< from when all ranks began to fit until its last star was finished */
  double read_wait_s; /**< waiting for the reader */
  double put_wait_s;  /**< in handing over rows and models: waiting for the I/O thread */
  mill_velocity_counts velocities;
  mill_narrow_widths narrow;
  mill_width_use width;
  mill_fit_meters meters;
} mill_fit_tally;

/** Inputs and outputs of a rank's share of the fits; borrowed. */
typedef struct mill_fit_task {
  const mill_fit_call *call;
  const mill_fit_setup *setup;
  const mill_inputs *inputs;
  const mill_fit_device *device;
  mill_fit_output *out;
  mill_fit_tally *tally;
} mill_fit_task;

/** CPU seconds of this thread; 0 where they are not wanted, since reading the clock costs time. */
static inline double mill_fit_meter_s(const mill_fit_task *task)
{
  return task->call->observer ? mill_thread_cpu_s() : 0.0;
}

#endif
