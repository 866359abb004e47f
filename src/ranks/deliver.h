/* SPDX-License-Identifier: BSD-3-Clause */
/** Delivery of records to the rank that owns their key.  Owners, the first ranks of nodes, get
 *  blocks of n_block successive keys in turn, so that neighbouring records arrive together. */
#pragma once

#include "src/ranks/mpi_context.h"
#include "src/system/order.h"

typedef struct mill_owners {
  int n, *rank;    /**< [n] owners: the first rank of each node */
  int mine;        /**< this rank's index among the owners; -1: not an owner */
  int64_t n_block; /**< keys in a block */
} mill_owners;

/** Find the owners.  Collective.  Free owners->rank by mill_free, also after a failure. */
int mill_owners_find(const mill_mpi *mpi, int64_t n_block, mill_owners *owners);

/** Records, each a key and `size` bytes, grouped by owner. */
typedef struct mill_parcel {
  size_t size;
  char *record;
  int64_t *n; /**< [owners] number of records for each owner */
} mill_parcel;

/** Sort records by their owner, to be sent by mill_deliver.
 *
 *  at [n]              key of each record, and its index in row
 *  row [][size]        the records
 *  n_message [owners]  in/out: grows by 1 for each owner, except this rank, that gets records
 *
 *  Free the parcel also after a failure.  MILL_ERR_MEMORY. */
int mill_parcel_pack(const mill_owners *owners, const mill_keyed *at, int64_t n, const char *row,
                     size_t size, mill_parcel *parcel, int64_t *n_message);
void mill_parcel_free(mill_parcel *parcel);

/** Send a parcel's groups to their owners, and take the groups sent to this rank.  Collective.
 *
 *  n_message  number of groups that other ranks send here
 *  take       called for each record; its first failure is returned once all groups have arrived
 *
 *  MILL_ERR_MPI: other ranks may wait for this one, so the job must end. */
int mill_deliver(const mill_mpi *mpi, const mill_owners *owners, int tag, const mill_parcel *parcel,
                 int64_t n_message, int (*take)(void *context, int64_t key, const char *row),
                 void *context);
