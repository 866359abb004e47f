/** One rank's part of a step of training: the network forwards and backwards over some models.
 *  For train_network.c and train_solve.c. */
#ifndef MILL_TRAIN_WORK_H
#define MILL_TRAIN_WORK_H

#include "src/libraries/train_network.h"

/** Buffers for up to n_room models at a time.  Threads share models in blocks of MILL_TRAIN_ROWS
 *  and outputs of the last layer in n_block blocks of n_wide, whatever their number. */
enum { MILL_TRAIN_ROWS = 64, MILL_TRAIN_WIDE = 512 };

typedef struct mill_train_work {
  const mill_train_ops *ops;
  const mill_train_settings *settings;
  const mill_train_problem *problem;
  mill_train_shape shape;
  int n_room, n_block, n_wide;
  int *model;                   /**< [n_room] of the models at work */
  const float **target;         /**< [n_room] */
  float *act[MILL_MAX_LAYER];   /**< [n_room][n_in of the layer] what goes into it */
  float *slope[MILL_MAX_LAYER]; /**< [n_room][n_out] of a hidden layer's SiLU */
  float *delta[MILL_MAX_LAYER]; /**< [n_room][n_out] slope of the loss before its SiLU */
  float *out;                   /**< [n_block][n_room][n_wide] of the last layer */
  float *part;                  /**< [n_block][n_room][n_in of the last] slopes from each block */
  double *row_loss;             /**< [n_block][n_room] */
  float *gradient;              /**< [n_param] */
} mill_train_work;

int mill_train_work_create(const mill_train_ops *ops, const mill_train_settings *settings,
                           const mill_train_problem *problem, int n_room, mill_train_work **out);
void mill_train_work_destroy(mill_train_work *w); /* NULL is allowed */

/** Through the hidden layers: act of the last layer for w->model [n_row]. */
void mill_train_forward(mill_train_work *w, int n_row, const float *param);

/** Sum of the losses of w->model [n_row]. */
int mill_train_losses(mill_train_work *w, int n_row, const float *param, double *loss);

/** The same, and w->gradient: of the mean over n_all models, of which these are n_row. */
int mill_train_slopes(mill_train_work *w, int n_row, int n_all, const float *param, double *loss);

/** Adam's step of n numbers by all threads. */
void mill_train_adam_step(const mill_train_work *w, const mill_train_adam *adam, size_t n,
                          const float *gradient, float *param, float *m, float *v);

/** The parameters' shares of the ranks. */
typedef struct mill_train_shares {
  int *start, *count;           /**< [n_rank] */
  int *mine_start, *mine_count; /**< [n_rank] of what the ranks send for this rank's share */
  float *received;              /**< [n_rank][count of this rank] */
} mill_train_shares;

int mill_train_shares_create(const mill_mpi *mpi, size_t n_param, mill_train_shares *shares);
void mill_train_shares_clear(mill_train_shares *shares);

#endif
