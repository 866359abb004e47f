/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/particles/particle_choice.h"

#include "src/run/backend_choice.h"
#include "kernels/base/error.h"
#include "kernels/gpu.h"
#include "src/system/log.h"

static int find_cpu(const mill_mpi *mpi, const mill_particle_ops **ops)
{
  int err = MILL_OK;
  *ops = mill_particle_ops_cpu(NULL);
  if (!*ops)
    err = MILL_ERROR(MILL_ERR_BACKEND,
                     "this processor is too old for particles: x86-64-v2 or later is needed");
  return mill_mpi_agree(mpi, err);
}

static int find_gpu(const mill_mpi *mpi, const mill_particle_ops **ops)
{
  int err = mill_backend_place(mpi, 0);
  if (err == MILL_OK) {
    *ops = mill_particle_ops_cuda(&err);
    err = mill_mpi_agree(mpi, err);
  }
  if (err != MILL_OK)
    mill_gpu_release();
  return err;
}

int mill_particle_find_ops(const mill_mpi *mpi, int backend, const mill_particle_ops **ops,
                           int *is_gpu)
{
  int err = MILL_OK;
  *is_gpu = 0;
  if (backend != MILL_WORD_CPU) {
    err = find_gpu(mpi, ops);
    *is_gpu = err == MILL_OK;
    if (err == MILL_OK || err == MILL_ERR_MPI || backend == MILL_WORD_CUDA)
      goto done;
    if (mpi->rank == 0)
      mill_log_info("backend auto: the CPU, since %s", mill_error_message());
  }
  err = find_cpu(mpi, ops);
done:
  return err;
}
