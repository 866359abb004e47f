/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/ranks/deliver.h"

#include <string.h>

int mill_owners_find(const mill_mpi *mpi, int64_t n_block, mill_owners *owners)
{
  int n = 0;
  MILL_OWNED int *is_first = NULL;
  MILL_AT_END(mill_mpi_free) mill_mpi node;
  *owners = (mill_owners){.mine = -1, .n_block = n_block};
  MILL_CHECK(mill_mpi_split(mpi, MILL_MPI_NODE, &node));
  MILL_CHECK(mill_mpi_agree(
      mpi, mill_error_of(MILL_ALLOC(mpi->size, &is_first), MILL_ALLOC(mpi->size, &owners->rank))));
  const int is_owner = node.rank == 0; /* the first rank of each node is */
  MILL_CHECK_MPI(MPI_Allgather(&is_owner, 1, MPI_INT, is_first, 1, MPI_INT, mpi->comm));
  for (int rank = 0; rank < mpi->size; rank++) {
    if (!is_first[rank])
      continue;
    if (rank == mpi->rank)
      owners->mine = n;
    owners->rank[n++] = rank;
  }
  owners->n = n;
  return MILL_OK;
}

static int owner_of(const mill_owners *owners, int64_t key)
{
  return (int)(key / owners->n_block % owners->n);
}

static size_t size_of(const mill_parcel *parcel)
{
  return sizeof(int64_t) + parcel->size;
}

/* Sort by counting.  A record is a key and its row; next [k]: place of owner k's next record. */
int mill_parcel_pack(const mill_owners *owners, const mill_keyed *at, int64_t n, const char *row,
                     size_t size, mill_parcel *parcel, int64_t *n_message)
{
  MILL_OWNED int64_t *next = NULL;
  *parcel = (mill_parcel){.size = size};
  MILL_CHECK(MILL_ALLOC(owners->n, &parcel->n));
  MILL_CHECK(MILL_ALLOC(owners->n, &next));
  MILL_CHECK(mill_alloc_raw((size_t)n, size_of(parcel), (void **)&parcel->record));
  for (int64_t i = 0; i < n; i++)
    parcel->n[owner_of(owners, at[i].key)]++;
  for (int k = 1; k < owners->n; k++)
    next[k] = next[k - 1] + parcel->n[k - 1];
  for (int64_t i = 0; i < n; i++) {
    char *to = parcel->record + (size_t)next[owner_of(owners, at[i].key)]++ * size_of(parcel);
    memcpy(to, &at[i].key, sizeof at[i].key);
    memcpy(to + sizeof at[i].key, row + (size_t)at[i].place * size, size);
  }
  for (int k = 0; k < owners->n; k++)
    n_message[k] += parcel->n[k] > 0 && k != owners->mine;
  return MILL_OK;
}

void mill_parcel_free(mill_parcel *parcel)
{
  MILL_FREE(parcel->record, parcel->n);
  *parcel = (mill_parcel){0};
}

/* Callback that receives records, and the code of its first failure. */
typedef struct taker {
  int (*take)(void *context, int64_t key, const char *row);
  void *context;
  int code;
} taker;

static void take_records(const char *record, int64_t n, size_t size, taker *t)
{
  int64_t key;
  for (int64_t i = 0; i < n && t->code == MILL_OK; i++, record += size) {
    memcpy(&key, record, sizeof key);
    t->code = t->take(t->context, key, record + sizeof key);
  }
}

/* Receive one group of records from any rank and pass each record to take. */
static int receive(const mill_mpi *mpi, int tag, MPI_Datatype type, size_t size, taker *t)
{
  int n = 0;
  MILL_OWNED char *record = NULL;
  MPI_Status status;
  MILL_CHECK_MPI(MPI_Probe(MPI_ANY_SOURCE, tag, mpi->comm, &status));
  MILL_CHECK_MPI(MPI_Get_count(&status, type, &n));
  if (mill_alloc_raw((size_t)n, size, (void **)&record) != MILL_OK)
    return MILL_ERROR(MILL_ERR_MPI, "no memory for %d rows of rank %d", n, status.MPI_SOURCE);
  MILL_CHECK_MPI(MPI_Recv(record, n, type, status.MPI_SOURCE, tag, mpi->comm, MPI_STATUS_IGNORE));
  take_records(record, n, size, t);
  return MILL_OK;
}

int mill_deliver(const mill_mpi *mpi, const mill_owners *owners, int tag, const mill_parcel *parcel,
                 int64_t n_message, int (*take)(void *context, int64_t key, const char *row),
                 void *context)
{
  int n_sent = 0;
  taker t = {take, context, MILL_OK};
  const size_t size = size_of(parcel);
  const char *record = parcel->record;
  MILL_AT_END(mill_mpi_type_free) MPI_Datatype type = MPI_DATATYPE_NULL;
  MILL_OWNED MPI_Request *sent = NULL;
  if (MILL_ALLOC(owners->n, &sent) != MILL_OK) /* as others wait for this rank, the job must end */
    return MILL_ERROR(MILL_ERR_MPI, "no memory for messages to %d ranks", owners->n);
  MILL_CHECK(mill_mpi_record_type(size, &type));
  for (int k = 0; k < owners->n; k++) {
    const int64_t n = parcel->n[k];
    if (k == owners->mine)
      take_records(record, n, size, &t);
    else if (n > 0)
      MILL_CHECK_MPI(
          MPI_Isend(record, (int)n, type, owners->rank[k], tag, mpi->comm, &sent[n_sent++]));
    record += (size_t)n * size;
  }
  for (int64_t i = 0; i < n_message; i++)
    MILL_CHECK(receive(mpi, tag, type, size, &t));
  MILL_CHECK_MPI(MPI_Waitall(n_sent, sent, MPI_STATUSES_IGNORE));
  return t.code;
}
