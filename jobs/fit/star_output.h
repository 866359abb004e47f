/* SPDX-License-Identifier: BSD-3-Clause */
/** A finished star into the result: the models and epochs of its exposures, and its row. */
#ifndef MILL_STAR_OUTPUT_H
#define MILL_STAR_OUTPUT_H

#include "io/result/result_file.h"
#include "io/stars/inputs.h"
#include "kernels/data/library.h"
#include "kernels/data/star.h"

typedef struct mill_star_output {
  const mill_library *lib;
  const mill_inputs *inputs;
  mill_result_file *result;
  float *flux;              /**< [n_pix] one row of the models' file */
  double *wave;             /**< the same */
  int n_pix;                /**< of the arm that has most */
  mill_epoch_result *epoch; /**< [epoch_room] of the exposures of one star */
  int64_t epoch_room;
} mill_star_output;

/** Everything is borrowed until mill_star_output_clear.  Not collective.  MILL_ERR_MEMORY. */
int mill_star_output_open(const mill_library *lib, const mill_inputs *inputs,
                          mill_result_file *result, mill_star_output *output);

/** Pass the star's result, with its models and epochs where it has any, to the I/O thread (copied).
 *  The codes of mill_result_put_model and mill_result_put. */
int mill_star_output_put(mill_star_output *output, mill_star *star);

void mill_star_output_clear(mill_star_output *output);

#endif
