/* SPDX-License-Identifier: BSD-3-Clause */
/** Records that go to the rank that owns their key: one rank of each node owns whole blocks of
 *  keys, so that neighbours come together. */
#ifndef MILL_DELIVER_H
#define MILL_DELIVER_H

#include "src/ranks/mpi_context.h"
#include "src/system/order.h"

typedef struct mill_owners {
  int n, *rank;    /**< [n] the first rank of each node */
  int mine;        /**< index of this rank among them; -1: it is none */
  int64_t n_block; /**< keys of a block; owners take turns */
} mill_owners;

/** Collective; free rank with mill_free, also after a failure. */
int mill_owners_find(const mill_mpi *mpi, int64_t n_block, mill_owners *owners);

/** Records grouped by owner, each a key and `size` bytes. */
typedef struct mill_parcel {
  size_t size;
  char *record;
  int64_t *n; /**< [owners] records of each */
} mill_parcel;

/** Pack n records; at [n] has their keys and places in row [][size].  n_message [owners] is raised
 *  by 1 for each other rank that gets some.  Free it also after a failure.  MILL_ERR_MEMORY. */
int mill_parcel_pack(const mill_owners *owners, const mill_keyed *at, int64_t n, const char *row,
                     size_t size, mill_parcel *parcel, int64_t *n_message);
void mill_parcel_free(mill_parcel *parcel);

/** Send a parcel's groups to their owners, and take those that are sent to this rank.  All ranks
 *  call it together.
 *
 *  n_message  groups that other ranks send to this one
 *  take       gets each record; its first failure is returned when all have come
 *
 *  MILL_ERR_MPI: ranks may wait for this one, so the job must end. */
int mill_deliver(const mill_mpi *mpi, const mill_owners *owners, int tag, const mill_parcel *parcel,
                 int64_t n_message, int (*take)(void *context, int64_t key, const char *row),
                 void *context);

#endif
