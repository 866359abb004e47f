/* SPDX-License-Identifier: BSD-3-Clause */
/** Load balance of a run's ranks, and their waiting times. */
#ifndef MILL_BALANCE_H
#define MILL_BALANCE_H

#include <stdint.h>
#include <stdio.h>

#include "src/ranks/mpi_context.h"

/** One rank.  Wall seconds, from the moment when all ranks began to fit. */
typedef struct mill_balance {
  double start_s;     /**< that moment, by mill_wall_s */
  double end_s;       /**< its last star was finished */
  double read_wait_s; /**< waiting for the reader */
  double put_wait_s;  /**< in handing over rows and models: waiting for the I/O thread */
  double draw_wait_s; /**< of the reader, for its next chunk */
  double write_s;     /**< of the I/O thread, writing */
  double n_row;       /**< rows fitted, and not */
  double n_chunk;     /**< drawn */
  double n_opened;    /**< files, each time */
} mill_balance;

/** All ranks; n_ are sums, others the means, but for least and most. */
typedef struct mill_balance_all {
  int n_rank;
  double least_end_s, most_end_s;
  mill_balance mean;
  double idle_tail; /**< fraction of the ranks' time that passed after their ends: 0 to 1 */
} mill_balance_all;

/** Collective; *all is filled on every rank.  MILL_ERR_MPI. */
int mill_balance_gather(const mill_mpi *mpi, const mill_balance *mine, mill_balance_all *all);

/** The line of the summary. */
void mill_balance_print(const mill_balance_all *all, FILE *out);

#endif
