/* SPDX-License-Identifier: BSD-3-Clause */
/** Delivery of records to the rank that owns their key.  One rank of each node is an owner; owners
 *  take turns in blocks of keys, so that neighbouring records arrive together. */
#ifndef MILL_DELIVER_H
#define MILL_DELIVER_H

#include "src/ranks/mpi_context.h"
#include "src/system/order.h"

typedef struct mill_owners {
  int n, *rank;    /**< [n] owners: the first rank of each node */
  int mine;        /**< index of this rank among the owners; -1: not an owner */
  int64_t n_block; /**< keys in a block */
} mill_owners;

/** Find the owners.  Collective; free owners->rank by mill_free, also after a failure. */
int mill_owners_find(const mill_mpi *mpi, int64_t n_block, mill_owners *owners);

/** Records, each a key and `size` bytes, grouped by owner. */
typedef struct mill_parcel {
  size_t size;
  char *record;
  int64_t *n; /**< [owners] records of each */
} mill_parcel;

/** Pack records.
 *
 *  at [n]              keys of the records, and their places in row
 *  row [][size]        the records
 *  n_message [owners]  in/out: 1 is added for each other rank that gets records
 *
 *  Free the parcel also after a failure.  MILL_ERR_MEMORY. */
int mill_parcel_pack(const mill_owners *owners, const mill_keyed *at, int64_t n, const char *row,
                     size_t size, mill_parcel *parcel, int64_t *n_message);
void mill_parcel_free(mill_parcel *parcel);

/** Send a parcel's groups to their owners, and take the groups sent to this rank.  Collective.
 *
 *  n_message  number of groups that other ranks send to this one
 *  take       called for each record; its first failure is returned, after all groups have arrived
 *
 *  MILL_ERR_MPI: other ranks may wait for this one, so the job must end. */
int mill_deliver(const mill_mpi *mpi, const mill_owners *owners, int tag, const mill_parcel *parcel,
                 int64_t n_message, int (*take)(void *context, int64_t key, const char *row),
                 void *context);

#endif
