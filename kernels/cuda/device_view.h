/* SPDX-License-Identifier: BSD-3-Clause */
/** Device addresses of lists, rows and work space, for the CUDA backend's kernels and host code. */
#pragma once

#include "kernels/star/slot.h"

/** Layout of a batch's rows: row t of lane s is at base + s * lane + t * row. */
template <typename real> struct row_layout {
  real *base;
  size_t lane, row;
};

/** Bookkeeping of rounds, in device memory. */
struct loop_state {
  int n_finished;                  /**< entries of finished and result not yet collected */
  int n_listed, n_want, max_round; /**< arguments of loop_begin */
  int n_round;                     /**< rounds done */
  int n_active;                    /**< entries of active */
};

/** Device memory of a call, given to its kernels by value. */
struct device_view {
  const mill_model *m;
  mill_slot *const *slot; /**< [n_slot] */
  mill_workspace *work;   /**< [n_lane] */
  int n_row;              /**< rows reserved per lane: one for the value, one per label's tangent */
  loop_state *state;
  const int *fresh;        /**< newly loaded slots */
  const int *listed;       /**< [n_listed] slots of the rounds */
  int *active;             /**< [n_slot] listed slots that have a request */
  int *finished;           /**< [n_slot] slots with a result */
  mill_fit_result *result; /**< [n_slot] result rows of these slots */
  int *row_count;          /**< [MILL_MAX_ARM] rows of a pass in row_list */
  int *row_list;           /**< [MILL_MAX_ARM][row_pitch] lane * n_row + row */
  size_t row_pitch;
  row_layout<double> input;     /**< mapped labels, [n_lane][n_row][MILL_MAX_LABEL] */
  row_layout<double> hidden[2]; /**< [n_lane][n_row][pitch] */
  row_layout<float> narrow;     /**< the last layer's input in float32 */
};
