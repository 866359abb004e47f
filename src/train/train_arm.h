/* SPDX-License-Identifier: BSD-3-Clause */
/** Training of an arm's network on its spectra: first statistics and principal components, then
 *  gradient steps (docs/science/numerics.md, "Training a network"). */
#pragma once

#include "src/train/train_network.h"

/** Unit of a pixel's residual. */
enum mill_train_unit {
  MILL_TRAIN_NOISE = 0, /**< the noise of a spectrum with the same S/N in every pixel */
  MILL_TRAIN_SPREAD     /**< the standard deviation of the pixel over the models */
};

/** Outputs of the trained network. */
enum mill_train_last {
  MILL_TRAIN_COMPONENTS = 0, /**< scores of principal components, with loss L2 only */
  MILL_TRAIN_PIXELS          /**< pixels */
};

enum { MILL_TRAIN_MOST_COMPONENT = 256 }; /**< most components if n_component is 0 */

typedef struct mill_train_arm_settings {
  mill_train_settings net;
  int log_flux; /**< 1: the network makes ln flux; 0: flux */
  enum mill_train_unit unit;
  double sn; /**< S/N of MILL_TRAIN_NOISE, above 0 */
  enum mill_train_last last;
  /** principal components; 0: the fewest, up to 256, that leave out at most 1e-8 of the variance */
  int n_component;
  double keep_gib; /**< PIXELS: if the spectra need more GiB, each step reads them again */
} mill_train_arm_settings;

void mill_train_arm_settings_init(mill_train_arm_settings *settings);

/** MILL_ERR_USAGE. */
int mill_train_arm_settings_check(const mill_train_arm_settings *settings);

/** The spectra of an arm.
 *
 *  x     [n][n_label]  mapped labels; the first n_train models are for training, the others are
 *                      left out
 *  read  reads flux [n][n_pix] of models, above 0 and finite; not collective */
typedef struct mill_train_arm_task {
  int n_pix, n_label, n, n_train;
  const float *x;
  int (*read)(void *context, int n, const int *model, float *flux);
  void *context;
} mill_train_arm_task;

typedef struct mill_train_arm_report {
  int n_component; /**< number of components used */
  double rest;     /**< fraction of the variance outside the components */
  /** final loss, and loss before the last layer is solved; of the models left out, else of all */
  double loss, loss_unsolved;
  /** wall seconds of this call for statistics and for gradient steps */
  double statistics_s, gradient_s;
  double gflop; /**< 1e9 operations of this call's matrix products */
} mill_train_arm_report;

/** Convert a loss to a pixel's error: rms for l2 and huber, mean absolute for l1.  Units: the
 *  pixel's spread with MILL_TRAIN_SPREAD, else ln flux, or flux / mean flux if log_flux is 0. */
double mill_train_arm_error(const mill_train_arm_settings *settings, double loss);

/** Train an arm.
 *
 *  state     in/out  zeroed to begin, else a state to continue; cleared by the caller
 *  emulator  out     zeroed by the caller; filled on every rank
 *
 *  Collective, with equal arguments.  MILL_ERR_INPUT, MILL_ERR_MEMORY, codes of watch->after. */
int mill_train_arm(const mill_mpi *mpi, const mill_train_ops *ops,
                   const mill_train_arm_settings *settings, const mill_train_arm_task *task,
                   const mill_train_watch *watch, mill_train_state *state, mill_emulator *emulator,
                   mill_train_arm_report *report);
