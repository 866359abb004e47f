/* SPDX-License-Identifier: BSD-3-Clause */
/** Tables too large for every rank: records go to the rank that answers for them, and a result is
 *  kept once a node. */
#ifndef MILL_EXCHANGE_H
#define MILL_EXCHANGE_H

#include "src/ranks/mpi_context.h"

/** Records that came from all ranks. */
typedef struct mill_exchange {
  int n;        /**< records received */
  char *record; /**< [n] in the order of ranks, and of each rank as it has listed them; owned */
  /* Owned, for the answers.  Of each rank: n_to records were sent to it, the first of them number
   * `to`; n_from records came from it, the first of them number `from`.  Record i of the caller was
   * sent as number place[i]. */
  int *n_to, *to, *n_from, *from, *place;
  int n_sent;
} mill_exchange;

/** Send n records of size bytes: record i goes to rank rank_of[i].  Collective.  The caller
 *  releases e by mill_exchange_free, also after a failure.  MILL_ERR_RANGE: a rank would get more
 *  than INT_MAX records.  MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_exchange_send(const mill_mpi *mpi, const int *rank_of, const void *record, int64_t n,
                       size_t size, mill_exchange *e);

/** Send back an answer of size bytes to each received record; out [n_sent] are those to this
 *  rank's own.  Collective. */
int mill_exchange_answer(const mill_mpi *mpi, const mill_exchange *e, const void *answer,
                         size_t size, void *out);

void mill_exchange_free(mill_exchange *e);

/** Elements of all ranks in the order of ranks, in memory that the ranks of a node share. */
typedef struct mill_node_array {
  void *data;
  size_t n_byte;
  int is_shared; /**< 0: this rank's own, as the node lends no memory */
} mill_node_array;

/** Gather elements of size bytes.  Collective; release by mill_node_array_free, also after a
 *  failure.  MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_node_gather(const mill_mpi *mpi, const void *mine, int64_t n_mine, size_t size,
                     mill_node_array *all);

/** Not collective; NULL data is allowed. */
void mill_node_array_free(mill_node_array *array);

#endif
