/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/balance.h"

#include <string.h>

int mill_balance_gather(const mill_mpi *mpi, const mill_balance *mine, mill_balance_all *all)
{
  enum { N = sizeof *mine / sizeof(double) };
  double sum[N], least, most;
  memset(all, 0, sizeof *all);
  MILL_CHECK_MPI(MPI_Allreduce(mine, sum, N, MPI_DOUBLE, MPI_SUM, mpi->comm));
  MILL_CHECK_MPI(MPI_Allreduce(&mine->end_s, &least, 1, MPI_DOUBLE, MPI_MIN, mpi->comm));
  MILL_CHECK_MPI(MPI_Allreduce(&mine->end_s, &most, 1, MPI_DOUBLE, MPI_MAX, mpi->comm));
  for (int i = 0; i < N; i++)
    sum[i] /= (double)mpi->size;
  memcpy(&all->mean, sum, sizeof all->mean);
  all->n_rank = mpi->size;
  all->least_end_s = least;
  all->most_end_s = most;
  all->mean.start_s = 0; /* clocks of different machines */
  all->mean.n_row *= mpi->size;
  all->mean.n_chunk *= mpi->size;
  all->mean.n_opened *= mpi->size;
  all->idle_tail = most > 0 ? 1.0 - all->mean.end_s / most : 0.0;
  return MILL_OK;
}

static double percent(double some, double all)
{
  return all > 0 ? 100.0 * some / all : 0.0;
}

void mill_balance_print(const mill_balance_all *all, FILE *out)
{
  const mill_balance *mean = &all->mean;
  fputs("balance      ", out);
  if (all->n_rank > 1)
    fprintf(out, "idle tail %.1f %% (%d ranks fitted for %.1f to %.1f s); ", 100.0 * all->idle_tail,
            all->n_rank, all->least_end_s, all->most_end_s);
  fprintf(out, "waited %.1f %% for spectra, %.1f %% for writing\n",
          percent(mean->read_wait_s, mean->end_s), percent(mean->put_wait_s, mean->end_s));
}
