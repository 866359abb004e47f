/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/ranks/same_on_ranks.h"

#include <limits.h>
#include <string.h>

#include "src/system/file_roles.h"
#include "src/system/status_process.h"

enum { HOST_BYTES = 64, SHOWN_BYTES = 200 };

void mill_first_difference(const char **a, size_t *n_a, const char **b, size_t *n_b)
{
  for (;;) {
    *n_a = strcspn(*a, "\n");
    *n_b = strcspn(*b, "\n");
    if (*n_a != *n_b || memcmp(*a, *b, *n_a) != 0 || (!(*a)[*n_a] && !(*b)[*n_b]))
      return;
    *a += *n_a + ((*a)[*n_a] != '\0');
    *b += *n_b + ((*b)[*n_b] != '\0');
  }
}

static int shown(size_t n)
{
  return (int)(n < SHOWN_BYTES ? n : SHOWN_BYTES);
}

int mill_same_on_ranks(const mill_mpi *mpi, const char *what, const char *text)
{
  int code = MILL_OK;
  char host[HOST_BYTES] = "";
  MILL_OWNED char *first = NULL;
  struct {
    int64_t n_byte;
    char host[HOST_BYTES];
  } head;
  memset(&head, 0, sizeof head);
  mill_host_name(host, sizeof host);
  head.n_byte = (int64_t)strlen(text) + 1;
  memcpy(head.host, host, sizeof host);
  MILL_CHECK_MPI(MPI_Bcast(&head, (int)sizeof head, MPI_BYTE, 0, mpi->comm));
  if (head.n_byte > INT_MAX) /* on every rank */
    return MILL_ERROR(MILL_ERR_CONFIG, "the %s exceed %d bytes: make several runs", what, INT_MAX);
  MILL_CHECK(mill_mpi_agree(mpi, MILL_ALLOC(head.n_byte, &first)));
  if (mpi->rank == 0)
    memcpy(first, text, (size_t)head.n_byte);
  MILL_CHECK_MPI(MPI_Bcast(first, (int)head.n_byte, MPI_CHAR, 0, mpi->comm));
  if (strcmp(first, text) != 0) {
    const char *a = first, *b = text;
    size_t n_a, n_b;
    mill_first_difference(&a, &n_a, &b, &n_b);
    code = MILL_ERROR(MILL_ERR_CONFIG,
                      "rank 0 on %s and rank %d on %s have different %s (\"%.*s\" and "
                      "\"%.*s\"), and all ranks write one result: start them alike",
                      head.host, mpi->rank, host, what, shown(n_a), a, shown(n_b), b);
  }
  return mill_mpi_agree(mpi, code);
}

int mill_resolve_links_for_all(const mill_mpi *mpi, const char *path, char *out, size_t size)
{
  const int code = mpi->rank == 0 ? mill_resolve_links(path, out, size) : MILL_OK;
  MILL_CHECK(mill_mpi_agree(mpi, code));
  MILL_CHECK_MPI(MPI_Bcast(out, (int)size, MPI_CHAR, 0, mpi->comm));
  return MILL_OK;
}
