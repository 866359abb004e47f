/* SPDX-License-Identifier: BSD-3-Clause */
/** Outputs of a fit: result, models and status file. */
#pragma once

#include "io/result/result_file.h"
#include "io/stars/work.h"
#include "io/status/status_board.h"
#include "jobs/fit/device.h"

/** Writer of finished stars; arrays are owned, all else is borrowed. */
typedef struct mill_star_output {
  const mill_library *lib;
  const mill_inputs *inputs;
  mill_result_file *result;
  float *flux;              /**< [n_pix] one row of the models' file */
  double *wave;             /**< [n_pix] wavelengths of that row, if each row has its own */
  int n_pix;                /**< pixels of the arm with most pixels */
  mill_epoch_result *epoch; /**< [epoch_room] epoch results, one per exposure of a star */
  int64_t epoch_room;
} mill_star_output;

/** Open the writer; not collective; clear it also after a failure.  MILL_ERR_MEMORY. */
int mill_star_output_open(const mill_library *lib, const mill_inputs *inputs,
                          mill_result_file *result, mill_star_output *output);

/** Hand a star's models, epochs (if it has any) and row to the I/O thread, which copies them.
 *  Returns the codes of mill_result_put_model and mill_result_put. */
int mill_star_output_put(mill_star_output *output, mill_star *star);

void mill_star_output_clear(mill_star_output *output);

typedef struct mill_fit_output {
  /** on rank 0: the existing result; zeroed if the run does not continue it */
  mill_existing existing;
  int outcome; /**< outcome of mill_result_open */
  mill_result_file *result;
  mill_star_output star;
  /* set while there are rows to fit: */
  mill_board *board;
  mill_work *work;
  /* set at the end: */
  mill_result_summary summary;
} mill_fit_output;

/** Open the result.  Collective, as is the next function. */
int mill_fit_open_output(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_inputs *inputs, const mill_fit_device *device, mill_fit_output *out);

/** Write the fitted rows, also after a failure err, and close the result; then end the exchange of
 *  work and of status between ranks.
 *
 *  is_settled  out  1: the exchange of status ended without failure */
int mill_fit_close_output(const mill_fit_call *call, mill_fit_output *out, int err,
                          int *is_settled);

/** Write the final status if is_settled, with the reason why the run ended.  Not collective. */
void mill_fit_end_board(mill_fit_output *out, int code, int exit_status, int is_settled);
