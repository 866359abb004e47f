#include "jobs/fit/fit_job.h"

#include <stdio.h>
#include <string.h>

#include "jobs/fit/backend_choice.h"
#include "jobs/fit/reader.h"
#include "kernels/base/error.h"
#include "kernels/cuda/device_choice.h"
#include "src/system/log.h"
#ifdef MILL_HAVE_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

enum { MANY_SLOTS = 64, THREAD_SLOTS = 32 };

int mill_fit_default_slots(const mill_backend *backend, int n_thread)
{
  if (backend->default_slot > 0)
    return backend->default_slot;
  /* half of them keep one thread busy: its first star comes earlier, and they take less memory */
  return backend->kind == MILL_BACKEND_CPU && n_thread == 1 ? THREAD_SLOTS : MANY_SLOTS;
}

int mill_fit_default_readers(const mill_backend *backend, int n_thread)
{
  /* fitting a star on the CPU takes some 20 times as long as reading it */
  const int n = backend->kind == MILL_BACKEND_CPU ? (n_thread + 15) / 16 : n_thread / 2;
  const int most = mill_spectra_threads() ? MILL_FIT_MOST_READERS : 1;
  return n < 1 ? 1 : n > most ? most : n;
}

int64_t mill_fit_held_rows(const mill_fit_job *job)
{
  return job->device.n_slot + mill_reader_rows_ahead(job->device.n_reader);
}

int mill_fit_find_backend(const char *choice, const mill_backend **backend)
{
  int err = MILL_OK;
  if (strcmp(choice, "cuda") == 0) {
#ifdef MILL_HAVE_CUDA
    *backend = mill_backend_cuda(&err);
    goto done;
#else
    MILL_FAIL(MILL_ERR_CONFIG,
              "backend cuda: this program was built without CUDA; use cpu or auto, "
              "or build it where nvcc is found");
#endif
  }
  /* auto is a CPU until a run settles it by the number of its rows */
  *backend = mill_backend_cpu(NULL);
  if (!*backend)
    MILL_FAIL(MILL_ERR_BACKEND, "no CPU backend runs on this machine");
done:
  return err;
}

int mill_fit_agree_backend(mill_fit_job *job)
{
  int err = MILL_OK;
  static const char prefix[] = "cpu ";
  static const mill_backend any_gpu = {
      .name = "cuda", .kind = MILL_BACKEND_CUDA, .default_slot = MILL_GPU_SLOTS};
  enum { SIZE = 64 };
  char mine[SIZE] = "", *all = NULL;
  const char *oldest = NULL;

  if (job->observer && job->observer->instead) {
    job->device.backend = job->observer->instead;
    goto done;
  }
  if (job->options.plan && strcmp(job->setup.config.backend, "cuda") == 0) {
    job->device.backend = &any_gpu; /* a plan looks for none */
    goto done;
  }
  err = mill_fit_find_backend(job->setup.config.backend, &job->device.backend);
  if (err == MILL_OK)
    err = MILL_ALLOC((size_t)job->mpi.size * SIZE, &all);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  snprintf(mine, sizeof mine, "%s", job->device.backend->name);
  MILL_MPI(MPI_Allgather(mine, SIZE, MPI_CHAR, all, SIZE, MPI_CHAR, job->mpi.comm));
  oldest = all;
  for (int rank = 1; rank < job->mpi.size; rank++)
    if (strcmp(all + (size_t)rank * SIZE, oldest) < 0)
      oldest = all + (size_t)rank * SIZE;
  if (strcmp(mine, oldest) != 0 && strncmp(oldest, prefix, strlen(prefix)) != 0)
    err = mill_error_set(MILL_ERR_BACKEND, __FILE__, __LINE__,
                         "one rank has the backend '%s', another '%s', and their results would "
                         "differ in the last digits: use GPUs of one kind",
                         mine, oldest);
  else if (strcmp(mine, oldest) != 0) {
    job->device.backend = mill_backend_cpu(oldest + strlen(prefix));
    if (!job->device.backend)
      err = mill_error_set(MILL_ERR_BACKEND, __FILE__, __LINE__,
                           "one rank has the backend '%s', another only '%s', which the first "
                           "cannot run: use machines of one kind",
                           mine, oldest);
    else
      mill_log_info("backend %s instead of %s, as other ranks have no better", oldest, mine);
  }
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
done:
  mill_free(all);
  return err;
}

/* The device of the result that is continued, on rank 0; NULL: a new one is begun. */
static const char *begun_on(const mill_fit_job *job)
{
  /* this attribute may be known where others are not */
  const mill_existing *existing = &job->out.existing;
  const char *device = existing->peek.device;
  return device[0] && (!job->options.overwrite || existing->is_new) ? device : NULL;
}

static int settle_backend(mill_fit_job *job)
{
  int err = MILL_OK;
  const char *choice = NULL;
  const char *begun = job->out.existing.path; /* on rank 0 */
  if (strcmp(job->setup.config.backend, "auto") != 0)
    goto done;
  MILL_TRY((job->options.plan ? mill_backend_wish : mill_backend_settle)(
      &job->mpi, begun[0] ? begun : job->options.output, begun_on(job), job->inputs.n_row,
      job->device.n_thread, &choice));
  snprintf(job->setup.config.backend, sizeof job->setup.config.backend, "%s", choice);
  MILL_TRY(mill_fit_agree_backend(job));
done:
  return err;
}

static int choose_readers(mill_fit_job *job)
{
  int err = MILL_OK;
  mill_fit_device *device = &job->device;
  const int n_reader = job->setup.config.n_reader;
  device->n_reader =
      n_reader > 0 ? n_reader : mill_fit_default_readers(device->backend, device->n_thread);
  if (device->n_reader > 1 && !mill_spectra_threads())
    MILL_FAIL(MILL_ERR_CONFIG,
              "readers: %d, but this CFITSIO was built without threads (--enable-reentrant): "
              "take 1",
              device->n_reader);
done:
  return err;
}

int mill_fit_settle_device(mill_fit_job *job)
{
  int err = MILL_OK;
  const int n_slot = job->setup.config.n_slot;
  MILL_TRY(settle_backend(job));
  job->device.n_slot =
      n_slot > 0 ? n_slot : mill_fit_default_slots(job->device.backend, job->device.n_thread);
  MILL_TRY(mill_mpi_agree(&job->mpi, choose_readers(job)));
done:
  return err;
}
