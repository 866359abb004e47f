/* SPDX-License-Identifier: BSD-3-Clause */
/** Output of a fit: result, models, status, and the table of inputs. */
#ifndef MILL_FIT_OUTPUT_H
#define MILL_FIT_OUTPUT_H

#include "io/stars/work.h"
#include "io/status/status_board.h"
#include "jobs/fit/device.h"
#include "jobs/fit/star_output.h"

typedef struct mill_fit_output {
  mill_existing existing; /**< on rank 0; once the result is open: only where it is continued */
  int outcome;            /**< of mill_result_open */
  mill_result_file *result;
  mill_star_output star;
  /* while there is something to fit */
  mill_board *board;
  mill_work *work;
  /* at the end */
  mill_result_summary summary;
} mill_fit_output;

int mill_fit_open_output(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_inputs *inputs, const mill_fit_device *device, mill_fit_output *out);

/** The models' file, the status and the work: for a run that has rows to fit. */
int mill_fit_open_work(const mill_fit_call *call, const mill_fit_setup *setup,
                       const mill_inputs *inputs, const mill_fit_device *device,
                       mill_fit_output *out);

/** Write the fitted rows, also after a failure, err: the code so far.  *is_settled: the ranks can
 *  still communicate. */
int mill_fit_close_output(const mill_fit_call *call, mill_fit_output *out, int err,
                          int *is_settled);

/** Write the last status, once it is known how the run has ended.  Not collective. */
void mill_fit_end_board(mill_fit_output *out, int code, int exit_status, int is_settled);

#endif
