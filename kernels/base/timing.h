/* SPDX-License-Identifier: BSD-3-Clause */
/** Where the time of a backend goes, by stage of the fit.
 *
 *  Each lane (thread) of a device has its own counts; mill_backend.timing adds them up.  Stages
 *  share calls of the emulator: a call's time is split among stages by numbers of rows. */
#pragma once

#include "kernels/base/common.h"

enum mill_phase {
  MILL_PHASE_PREPARE = 0, /**< pixel preparation */
  MILL_PHASE_GUESS,       /**< initial guess */
  MILL_PHASE_SIMPLEX,     /**< values at a point of a simplex */
  MILL_PHASE_POLISH,      /**< Jacobians */
  MILL_PHASE_PROFILE,     /**< velocity profiles of star, arms and epochs */
  MILL_PHASE_FINAL,       /**< last evaluation: models, true chi-squares */
  MILL_N_PHASE
};

/** Thread seconds and counts since the device was opened. */
typedef struct mill_timing {
  double emulate_s[MILL_N_PHASE]; /**< emulator: front, hidden layers, last layer */
  double pixel_s[MILL_N_PHASE];   /**< all other work; in PREPARE and GUESS all work */
  int64_t n_value[MILL_N_PHASE];  /**< requests answered, except Jacobians */
  int64_t n_jacobian[MILL_N_PHASE];
} mill_timing;
