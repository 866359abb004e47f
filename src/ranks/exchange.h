/* SPDX-License-Identifier: BSD-3-Clause */
/** Exchange of tables too large for each rank: send records to other ranks, return their answers,
 *  and keep common tables once per node. */
#pragma once

#include "src/ranks/mpi_context.h"

/** Records received from all ranks. */
typedef struct mill_exchange {
  int n;              /**< records received */
  char *record;       /**< [n] by sending rank, then in the order of the sender's list; owned */
  int *n_to, *to;     /**< [ranks] number and first index of the records sent to a rank; owned */
  int *n_from, *from; /**< the same for the records received from a rank */
  int *place;         /**< [n_sent] index at which each of the caller's records was sent; owned */
  int n_sent;
} mill_exchange;

/** Send n records of size bytes, record i to rank rank_of[i].  Collective.  Free e by
 *  mill_exchange_free, also after a failure.  MILL_ERR_RANGE: one rank sends or receives more
 *  than INT_MAX records.  MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_exchange_send(const mill_mpi *mpi, const int *rank_of, const void *record, int64_t n,
                       size_t size, mill_exchange *e);

/** Send the answer [n][size bytes] to each received record back to its sender.  out [n_sent]:
 *  the answers to this rank's records.  Collective. */
int mill_exchange_answer(const mill_mpi *mpi, const mill_exchange *e, const void *answer,
                         size_t size, void *out);

void mill_exchange_free(mill_exchange *e);

/** The elements of all ranks in rank order, in memory shared by the ranks of a node. */
typedef struct mill_node_array {
  void *data;
  size_t n_byte;
  int is_shared; /**< 0: no shared memory, so each rank has its own copy */
} mill_node_array;

/** Gather all ranks' elements of size bytes in one array per node.  Collective; free by
 *  mill_node_array_free, also after a failure.  MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_node_gather(const mill_mpi *mpi, const void *mine, int64_t n_mine, size_t size,
                     mill_node_array *all);

/** Not collective; NULL data is allowed. */
void mill_node_array_free(mill_node_array *array);
