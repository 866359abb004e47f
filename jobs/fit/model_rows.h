/* SPDX-License-Identifier: BSD-3-Clause */
/** Transfer of best-fit models from a star's slot to the models' file. */
#ifndef MILL_MODEL_ROWS_H
#define MILL_MODEL_ROWS_H

#include "io/result/result_file.h"
#include "io/stars/inputs.h"
#include "kernels/data/library.h"
#include "kernels/data/star.h"

typedef struct mill_model_rows {
  const mill_library *lib; /**< NULL: no models were asked for */
  const mill_inputs *inputs;
  mill_result_file *result;
  float *flux;                      /**< [n_pix] one row of the models' file */
  double *wave;                     /**< the same */
  int n_pix;                        /**< of the arm that has most */
  struct mill_model_flight *flight; /**< [n_flight] stars under way, owned */
  int64_t n_flight, n_room;
} mill_model_rows;

/** Make room for models of these inputs; everything is borrowed until mill_model_rows_clear.  Not
 *  collective.  MILL_ERR_MEMORY. */
int mill_model_rows_open(mill_model_rows *models, const mill_library *lib,
                         const mill_inputs *inputs, mill_result_file *result);

/** Keep the data that the models of a star need when it is finished; model_row: of its first
 *  exposure, MILL_ERR_MEMORY. */
int mill_model_rows_remember(mill_model_rows *models, const mill_star *star, int64_t model_row);

/** Write the models of a row, model [n_segment][n_pix]; NULL: it was not fitted.  MILL_ERR_INTERNAL
 *  for a row that was not remembered, else the codes of mill_result_put_model. */
int mill_model_rows_put(mill_model_rows *models, int64_t row, const float *const *model);

void mill_model_rows_clear(mill_model_rows *models);

#endif
