/* SPDX-License-Identifier: BSD-3-Clause */
/** One rank's part of a training: its network at work (kernels/train/train_ops.h) and the models
 *  that it takes to it.  For train_network.c and train_solve.c. */
#ifndef MILL_TRAIN_WORK_H
#define MILL_TRAIN_WORK_H

#include "src/train/train_network.h"

typedef struct mill_train_team {
  const mill_train_ops *ops;
  const mill_train_problem *problem;
  mill_train_net net;
  mill_train_work *work;
  int *model;                /**< [n_room] of the models at work */
  const float **x, **target; /**< [n_room] */
  mill_train_rows rows;      /**< result of mill_train_team_rows */
  float *param;              /**< [n_param] copy of mill_train_team_bind; else NULL */
} mill_train_team;

/** Models at most at a time, of n. */
int mill_train_room(const mill_train_settings *settings, int n);

/** For up to n_room models at a time. */
int mill_train_team_create(const mill_train_ops *ops, const mill_train_settings *settings,
                           const mill_train_problem *problem, int n_room, mill_train_team **out);
void mill_train_team_destroy(mill_train_team *team); /* NULL is allowed */

/** Parameters [n_param] that no step changes, in place of those before. */
int mill_train_team_bind(mill_train_team *team, const float *param);

/** rows of team->model [n], with targets or without. */
int mill_train_team_rows(mill_train_team *team, int n, int with_target);

/** Validation loss, of models that the ranks share.  Collective. */
int mill_train_team_validate(const mill_mpi *mpi, mill_train_team *team, double *loss);

/** The parameters' shares of the ranks. */
typedef struct mill_train_shares {
  int *start, *count;           /**< [n_rank] */
  int *mine_start, *mine_count; /**< [n_rank] of what the ranks send for this rank's share */
  float *received;              /**< [n_rank][count of this rank] */
} mill_train_shares;

int mill_train_shares_create(const mill_mpi *mpi, size_t n_param, mill_train_shares *shares);
void mill_train_shares_clear(mill_train_shares *shares);

#endif
