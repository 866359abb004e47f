/* SPDX-License-Identifier: BSD-3-Clause */
/** Tables too large for each rank: records are sent to the rank that answers for them, and results
 *  are kept once a node. */
#ifndef MILL_EXCHANGE_H
#define MILL_EXCHANGE_H

#include "src/ranks/mpi_context.h"

/** Records received from all ranks. */
typedef struct mill_exchange {
  int n;        /**< records received */
  char *record; /**< [n] in rank order, of each rank in the order of its list; owned */
  /* For the answers, owned.  By rank: n_to records sent, the first with number `to`; n_from records
   * received, the first with number `from`.  Record i of the caller was sent as number place[i]. */
  int *n_to, *to, *n_from, *from, *place;
  int n_sent;
} mill_exchange;

/** Send n records of size bytes, record i to rank rank_of[i].  Collective.  Free e by
 *  mill_exchange_free, also after a failure.  MILL_ERR_RANGE: more than INT_MAX records of or for
 *  one rank.  MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_exchange_send(const mill_mpi *mpi, const int *rank_of, const void *record, int64_t n,
                       size_t size, mill_exchange *e);

/** Send back an answer of size bytes to each received record; out [n_sent]: the answers to the
 *  records that this rank sent.  Collective. */
int mill_exchange_answer(const mill_mpi *mpi, const mill_exchange *e, const void *answer,
                         size_t size, void *out);

void mill_exchange_free(mill_exchange *e);

/** Elements of all ranks, in rank order, in memory that the ranks of a node share. */
typedef struct mill_node_array {
  void *data;
  size_t n_byte;
  int is_shared; /**< 0: the node has no shared memory, so each rank has its own copy */
} mill_node_array;

/** Gather elements of size bytes.  Collective; free by mill_node_array_free, also after a failure.
 *  MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_node_gather(const mill_mpi *mpi, const void *mine, int64_t n_mine, size_t size,
                     mill_node_array *all);

/** Not collective; NULL data is allowed. */
void mill_node_array_free(mill_node_array *array);

#endif
