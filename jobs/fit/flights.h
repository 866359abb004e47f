/* SPDX-License-Identifier: BSD-3-Clause */
/** Stars under way: what their models and epochs need when they have been fitted. */
#ifndef MILL_FLIGHTS_H
#define MILL_FLIGHTS_H

#include "io/result/result_file.h"
#include "io/stars/inputs.h"
#include "kernels/data/library.h"
#include "kernels/data/star.h"

typedef struct mill_flights {
  const mill_library *lib;
  const mill_inputs *inputs;
  mill_result_file *result;
  int with_models, with_epochs;
  float *flux;                     /**< [n_pix] one row of the models' file */
  double *wave;                    /**< the same */
  int n_pix;                       /**< of the arm that has most */
  struct mill_flight_star *flight; /**< [n_flight] stars under way, owned */
  int64_t n_flight, n_room;
  mill_epoch_result *epoch; /**< [n_epoch] of the exposures of one star */
  int64_t n_epoch;
} mill_flights;

/** Make room for stars of these inputs; everything is borrowed until mill_flights_clear.  Not
 *  collective.  MILL_ERR_MEMORY. */
int mill_flights_open(mill_flights *flights, const mill_library *lib, const mill_inputs *inputs,
                      mill_result_file *result, int with_models, int with_epochs);

/** Keep what a star needs when it is finished.
 *
 *  first_exposure      of the catalog
 *  epoch [n_exposure]  the epoch of each exposure, -1: it has no spectrum; not with n_epoch 0
 *
 *  MILL_ERR_MEMORY. */
int mill_flights_remember(mill_flights *flights, const mill_star *star, int64_t first_exposure,
                          int n_exposure, const int *epoch);

/** Pass the models, model [n_segment][n_pix] (NULL: it was not fitted), and epochs of a row to the
 *  result; *epoch_crc its EPOCH_CRC.  MILL_ERR_INTERNAL for a row that was not remembered, else the
 *  codes of mill_result_put_model. */
int mill_flights_put(mill_flights *flights, const mill_fit_result *row, const float *const *model,
                     uint32_t *epoch_crc);

void mill_flights_clear(mill_flights *flights);

#endif
