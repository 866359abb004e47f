/* SPDX-License-Identifier: BSD-3-Clause */
/** Output of a fit: result, models and status file. */
#ifndef MILL_FIT_OUTPUT_H
#define MILL_FIT_OUTPUT_H

#include "io/result/result_file.h"
#include "io/stars/work.h"
#include "io/status/status_board.h"
#include "jobs/fit/device.h"

/** Writer of finished stars; arrays are owned, the rest is borrowed. */
typedef struct mill_star_output {
  const mill_library *lib;
  const mill_inputs *inputs;
  mill_result_file *result;
  float *flux;              /**< [n_pix] one row of the models' file */
  double *wave;             /**< [n_pix] its wavelengths, where each row has its own */
  int n_pix;                /**< of the arm with most pixels */
  mill_epoch_result *epoch; /**< [epoch_room] of the exposures of one star */
  int64_t epoch_room;
} mill_star_output;

/** Not collective; clear it also after a failure.  MILL_ERR_MEMORY. */
int mill_star_output_open(const mill_library *lib, const mill_inputs *inputs,
                          mill_result_file *result, mill_star_output *output);

/** Hand a star's models, epochs (where it has any) and row over to the I/O thread, which copies
 *  them.  The codes of mill_result_put_model and mill_result_put. */
int mill_star_output_put(mill_star_output *output, mill_star *star);

void mill_star_output_clear(mill_star_output *output);

typedef struct mill_fit_output {
  mill_existing existing; /**< on rank 0; zeroed when the result was opened and is not continued */
  int outcome;            /**< of mill_result_open */
  mill_result_file *result;
  mill_star_output star;
  /* while there is something to fit */
  mill_board *board;
  mill_work *work;
  /* at the end */
  mill_result_summary summary;
} mill_fit_output;

/** Open the result.  Collective, as are the next two functions. */
int mill_fit_open_output(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_inputs *inputs, const mill_fit_device *device, mill_fit_output *out);

/** Open the models' file and the status file, and share the work among the ranks: for a run that
 *  has rows to fit. */
int mill_fit_open_work(const mill_fit_call *call, const mill_fit_setup *setup,
                       const mill_inputs *inputs, const mill_fit_device *device,
                       mill_fit_output *out);

/** Write the fitted rows, also after a failure err, and close the result.
 *
 *  is_settled  out  1: the ranks can still communicate */
int mill_fit_close_output(const mill_fit_call *call, mill_fit_output *out, int err,
                          int *is_settled);

/** Write the last status, which says how the run ended.  Not collective. */
void mill_fit_end_board(mill_fit_output *out, int code, int exit_status, int is_settled);

#endif
