/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* mkostemp */

#include "src/ranks/exchange.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int alloc_counts(const mill_mpi *mpi, int64_t n, mill_exchange *e)
{
  MILL_CHECK(MILL_ALLOC(mpi->size, &e->n_to));
  MILL_CHECK(MILL_ALLOC(mpi->size, &e->to));
  MILL_CHECK(MILL_ALLOC(mpi->size, &e->n_from));
  MILL_CHECK(MILL_ALLOC(mpi->size, &e->from));
  if (n > INT_MAX)
    return MILL_ERROR(MILL_ERR_RANGE, "one rank has %lld records, more than %d: start more ranks",
                      (long long)n, INT_MAX);
  return MILL_ALLOC(n, &e->place);
}

/* Set start [ranks] to the index of each rank's first record; returns the sum of n [ranks]. */
static int64_t start_each(const mill_mpi *mpi, const int *n, int *start)
{
  int64_t sum = 0;
  for (int r = 0; r < mpi->size; r++) {
    start[r] = (int)sum;
    sum += n[r];
  }
  return sum;
}

/* Sort the records by receiving rank; exchange their numbers, then the records. */
int mill_exchange_send(const mill_mpi *mpi, const int *rank_of, const void *record, int64_t n,
                       size_t size, mill_exchange *e)
{
  MILL_OWNED char *sorted = NULL;
  MILL_AT_END(mill_mpi_type_free) MPI_Datatype type = MPI_DATATYPE_NULL;
  *e = (mill_exchange){.n_sent = (int)n};
  MILL_CHECK(mill_mpi_agree(mpi, mill_error_of(alloc_counts(mpi, n, e),
                                               mill_alloc_raw((size_t)n, size, (void **)&sorted))));
  for (int i = 0; i < n; i++)
    e->n_to[rank_of[i]]++;
  MILL_CHECK_MPI(MPI_Alltoall(e->n_to, 1, MPI_INT, e->n_from, 1, MPI_INT, mpi->comm));
  start_each(mpi, e->n_to, e->to);
  for (int i = 0; i < n; i++) {
    e->place[i] = e->to[rank_of[i]]++;
    memcpy(sorted + (size_t)e->place[i] * size, (const char *)record + (size_t)i * size, size);
  }
  start_each(mpi, e->n_to, e->to); /* again, as the loop has moved e->to */
  const int64_t n_received = start_each(mpi, e->n_from, e->from);
  const int code =
      n_received > INT_MAX
          ? MILL_ERROR(MILL_ERR_RANGE, "one rank gets %lld records, more than %d: start more ranks",
                       (long long)n_received, INT_MAX)
          : mill_alloc_raw((size_t)n_received, size, (void **)&e->record);
  e->n = (int)n_received;
  MILL_CHECK(mill_mpi_agree(mpi, code));
  MILL_CHECK(mill_mpi_record_type(size, &type));
  MILL_CHECK_MPI(
      MPI_Alltoallv(sorted, e->n_to, e->to, type, e->record, e->n_from, e->from, type, mpi->comm));
  return MILL_OK;
}

/* Answers go back by the counts of mill_exchange_send; `place` restores the callers' order. */
int mill_exchange_answer(const mill_mpi *mpi, const mill_exchange *e, const void *answer,
                         size_t size, void *out)
{
  MILL_OWNED char *sorted = NULL;
  MILL_AT_END(mill_mpi_type_free) MPI_Datatype type = MPI_DATATYPE_NULL;
  MILL_CHECK(mill_mpi_agree(mpi, mill_alloc_raw((size_t)e->n_sent, size, (void **)&sorted)));
  MILL_CHECK(mill_mpi_record_type(size, &type));
  MILL_CHECK_MPI(
      MPI_Alltoallv(answer, e->n_from, e->from, type, sorted, e->n_to, e->to, type, mpi->comm));
  for (int i = 0; i < e->n_sent; i++)
    memcpy((char *)out + (size_t)i * size, sorted + (size_t)e->place[i] * size, size);
  return MILL_OK;
}

void mill_exchange_free(mill_exchange *e)
{
  MILL_FREE(e->record, e->n_to, e->to, e->n_from, e->from, e->place);
  *e = (mill_exchange){0};
}

/* ---- once a node ---- */

/* Map a file in /dev/shm as memory shared by the ranks of *node.  If there is no room for the file,
 * allocate memory for this rank alone and reduce *node to this rank. */
static int share_memory(mill_mpi *node, mill_node_array *array)
{
  char name[] = "/dev/shm/starmill-XXXXXX";
  int fd = -1, is_there;
  mill_mpi alone;
  if (node->rank == 0) {
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)array->n_byte) != 0)
      unlink(name);
  }
  MILL_CHECK_MPI(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, node->comm));
  if (node->rank > 0)
    fd = open(name, O_RDWR | O_CLOEXEC);
  array->data = mmap(NULL, array->n_byte, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  array->is_shared = array->data != MAP_FAILED;
  /* rank 0 has removed the file if there is no room for it */
  is_there = array->is_shared && access(name, F_OK) == 0;
  if (fd >= 0)
    close(fd);
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &is_there, 1, MPI_INT, MPI_MIN, node->comm));
  if (node->rank == 0)
    unlink(name);
  if (is_there)
    return MILL_OK;
  if (array->is_shared)
    munmap(array->data, array->n_byte);
  array->is_shared = 0;
  array->data = NULL;
  MILL_CHECK(mill_mpi_split(node, node->rank, &alone));
  mill_mpi_free(node);
  *node = alone;
  return mill_alloc_raw(array->n_byte, 1, &array->data);
}

/* Ranks copy their elements into their node's array; the leaders, the first ranks of the nodes,
 * then send them to the other nodes. */
int mill_node_gather(const mill_mpi *mpi, const void *mine, int64_t n_mine, size_t size,
                     mill_node_array *all)
{
  MILL_OWNED int *leader = NULL; /* [size] for each rank, its leader's rank in `leaders` */
  MILL_OWNED int64_t *start = NULL;
  MILL_AT_END(mill_mpi_free) mill_mpi node = {.comm = MPI_COMM_NULL}, leaders = node;
  MILL_AT_END(mill_mpi_type_free) MPI_Datatype type = MPI_DATATYPE_NULL;
  *all = (mill_node_array){0};
  MILL_CHECK(mill_mpi_agree(
      mpi, mill_error_of(MILL_ALLOC(mpi->size, &leader), MILL_ALLOC(mpi->size + 1, &start))));
  MILL_CHECK_MPI(MPI_Allgather(&n_mine, 1, MPI_INT64_T, start + 1, 1, MPI_INT64_T, mpi->comm));
  for (int r = 0; r < mpi->size; r++)
    start[r + 1] += start[r];
  all->n_byte = (size_t)(start[mpi->size] > 0 ? start[mpi->size] : 1) * size; /* mmap refuses 0 */
  MILL_CHECK(mill_mpi_split(mpi, MILL_MPI_NODE, &node));
  MILL_CHECK(mill_mpi_agree(mpi, share_memory(&node, all)));
  /* the ranks that lead no node get a communicator too, which is not used */
  MILL_CHECK(mill_mpi_split(mpi, node.rank > 0, &leaders));
  int my_leader = leaders.rank;
  MILL_CHECK_MPI(MPI_Bcast(&my_leader, 1, MPI_INT, 0, node.comm));
  MILL_CHECK_MPI(MPI_Allgather(&my_leader, 1, MPI_INT, leader, 1, MPI_INT, mpi->comm));
  char *to = all->data;
  memcpy(to + (size_t)start[mpi->rank] * size, mine, (size_t)n_mine * size);
  MILL_CHECK_MPI(MPI_Barrier(node.comm)); /* the node's elements are there: the leader may send */
  MILL_CHECK(mill_mpi_record_type(size, &type));
  for (int r = 0; r < mpi->size && node.rank == 0; r++)
    MILL_CHECK_MPI(MPI_Bcast(to + (size_t)start[r] * size, (int)(start[r + 1] - start[r]), type,
                             leader[r], leaders.comm));
  MILL_CHECK_MPI(MPI_Barrier(node.comm)); /* all elements are there */
  return MILL_OK;
}

void mill_node_array_free(mill_node_array *array)
{
  if (array->is_shared)
    munmap(array->data, array->n_byte);
  else
    mill_free(array->data);
  *array = (mill_node_array){0};
}
