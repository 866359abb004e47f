#include "jobs/particles/particle_choice.h"

#include "jobs/fit/backend_choice.h"
#include "kernels/base/error.h"
#include "src/system/log.h"
#ifdef MILL_HAVE_CUDA
#include "kernels/cuda/device_facts.h"
#include "kernels/cuda/particles_cuda.h"
#endif

static int find_cpu(const mill_mpi *mpi, const mill_particle_ops **ops)
{
  int err = MILL_OK;
  *ops = mill_particle_ops_cpu(NULL);
  if (!*ops)
    err = MILL_ERROR(MILL_ERR_BACKEND,
                     "this processor is too old for particles: x86-64-v2 or later is wanted");
  return mill_mpi_agree(mpi, err);
}

static int find_gpu(const mill_mpi *mpi, const mill_particle_ops **ops)
{
  int err = mill_backend_place(mpi, 0);
#ifdef MILL_HAVE_CUDA
  if (err == MILL_OK) {
    *ops = mill_particle_ops_cuda(&err);
    err = mill_mpi_agree(mpi, err);
  }
  if (err != MILL_OK)
    mill_gpu_release();
#else
  (void)ops;
#endif
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
