/* SPDX-License-Identifier: BSD-3-Clause */
/** An arm's network from its spectra: statistics and components first, then gradients
 *  (docs/science/numerics.md, "Training a network"). */
#ifndef MILL_TRAIN_ARM_H
#define MILL_TRAIN_ARM_H

#include "src/train/train_network.h"

/** Unit of a pixel's residual. */
enum mill_train_unit {
  MILL_TRAIN_NOISE = 0, /**< the noise of a spectrum with the same S/N in every pixel */
  MILL_TRAIN_SPREAD     /**< the standard deviation of the pixel over the models */
};

/** What is trained. */
enum mill_train_last {
  MILL_TRAIN_COMPONENTS = 0, /**< scores of principal components, by which the last layer stays
                                  within their patterns; L2 only: the loss is that of the pixels */
  MILL_TRAIN_PIXELS          /**< every weight of the last layer by itself */
};

enum { MILL_TRAIN_MOST_COMPONENT = 256 }; /**< unless a number of them is given */

typedef struct mill_train_arm_settings {
  mill_train_settings net;
  int log_flux; /**< 1: ln flux is learned, 0: flux */
  enum mill_train_unit unit;
  double sn; /**< of NOISE, > 0 */
  enum mill_train_last last;
  int n_component; /**< 0: as many as leave a part of 1e-8 of the variance, at most the above */
  double keep_gib; /**< PIXELS: spectra that need more memory are read again for every step */
} mill_train_arm_settings;

void mill_train_arm_settings_init(mill_train_arm_settings *settings);

/** MILL_ERR_USAGE. */
int mill_train_arm_settings_check(const mill_train_arm_settings *settings);

/** The spectra of an arm.
 *
 *  x     [n][n_label]  mapped labels; the first n_train models are learned, the others left out
 *  read  flux [n][n_pix] of models, above 0 and finite; each rank reads what it needs
 */
typedef struct mill_train_arm_task {
  int n_pix, n_label, n, n_train;
  const float *x;
  int (*read)(void *context, int n, const int *model, float *flux);
  void *context;
} mill_train_arm_task;

typedef struct mill_train_arm_report {
  int n_component;                 /**< in use */
  double rest;                     /**< part of the variance that they leave */
  double spread;                   /**< rms over pixels of the models' standard deviations */
  double loss, loss_unsolved;      /**< of the models left out (of all without any), in the end and
                                        before the last layer was solved */
  double statistics_s, gradient_s; /**< of this call */
  double gflop;                    /**< of this call's steps, products alone */
} mill_train_arm_report;

/** What a loss is as an error of a pixel: of ln flux or relative to the mean flux where the unit is
 *  the noise, else in units of the pixel's spread. */
double mill_train_arm_error(const mill_train_arm_settings *settings, double loss);

/** Train from *state on, which is zeroed for a beginning; it is the caller's to clear.  emulator
 *  zeroed before, filled on every rank.  Collective, with equal arguments.
 *  MILL_ERR_INPUT, MILL_ERR_MEMORY; what watch->after returned. */
int mill_train_arm(const mill_mpi *mpi, const mill_train_ops *ops,
                   const mill_train_arm_settings *settings, const mill_train_arm_task *task,
                   const mill_train_watch *watch, mill_train_state *state, mill_emulator *emulator,
                   mill_train_arm_report *report);

#endif
