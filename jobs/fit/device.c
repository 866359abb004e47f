/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/steps.h"

#include "src/run/backend_choice.h"
#include "kernels/cuda/device_choice.h"
#include "src/system/log.h"
#include "src/system/thread.h"

enum {
  MOST_READERS = 8, /* most readers by default: more would wait for the file system */
  MOST_SAMPLED = 2  /* `sample` has by default at most the slots of this many threads */
};

int64_t mill_fit_held_rows(const mill_fit_device *device)
{
  return device->n_slot + mill_reader_rows_ahead(device->n_reader);
}

#define CPU "cpu " /* before the instruction set in names of backends */
enum { NAME = sizeof((mill_fit_device *)0)->cpu };

/* Gather the backend names of all ranks in *all [size][NAME], which the caller frees by mill_free.
 * code: this rank's failure so far, which makes all ranks fail. */
static int gather_names(const mill_mpi *mpi, int code, const char *mine, char **all)
{
  char name[NAME] = "";
  if (code == MILL_OK)
    code = MILL_ALLOC((size_t)mpi->size * NAME, all);
  MILL_CHECK(mill_mpi_agree(mpi, code));
  snprintf(name, sizeof name, "%s", mine);
  MILL_CHECK_MPI(MPI_Allgather(name, NAME, MPI_CHAR, *all, NAME, MPI_CHAR, mpi->comm));
  return MILL_OK;
}

/* Give all CPU ranks the backend of the oldest instruction set among them: its name sorts first.
 * GPU ranks already have one backend.  code: this rank's failure so far. */
static int agree_on_one(const mill_mpi *mpi, int code, const mill_backend **backend)
{
  MILL_OWNED char *all = NULL;
  const char *oldest = NULL, *mine = code == MILL_OK ? (*backend)->name : "";
  MILL_CHECK(gather_names(mpi, code, mine, &all)); /* one rank's failure makes all fail */
  oldest = all;
  for (int rank = 1; rank < mpi->size; rank++)
    if (strcmp(all + (size_t)rank * NAME, oldest) < 0)
      oldest = all + (size_t)rank * NAME;
  if (strcmp(mine, oldest) != 0) {
    *backend = mill_backend_cpu(oldest + strlen(CPU));
    if (!*backend)
      code = MILL_ERROR(MILL_ERR_BACKEND,
                        "one rank has the backend '%s' and cannot run '%s', the backend of "
                        "another: use machines of one kind",
                        mine, oldest);
    else
      mill_log_info("backend %s instead of %s: the same on all ranks", oldest, mine);
  }
  return mill_mpi_agree(mpi, code);
}

/* Choose the two backends of cuda+cpu.  Ranks with a GPU also take part in the choice of the CPU
 * backend, so that it does not depend on which ranks have GPUs. */
static int agree_on_both(const mill_fit_call *call, mill_fit_device *device)
{
  const mill_backend *cpu = NULL, *gpu = NULL;
  MILL_OWNED char *all = NULL;
  int code = mill_backend_find("cpu", &cpu);
  MILL_CHECK(agree_on_one(call->mpi, code, &cpu));
  if (device->has_gpu)
    code = mill_backend_find("cuda", &gpu);
  MILL_CHECK(gather_names(call->mpi, code, gpu ? gpu->name : "", &all));
  for (int rank = 0; rank < call->mpi->size; rank++) {
    const char *name = all + (size_t)rank * NAME;
    if (name[0])
      memcpy(device->gpu, name, sizeof device->gpu);
  }
  snprintf(device->cpu, sizeof device->cpu, "%s", cpu->name);
  snprintf(device->both, sizeof device->both, "%s" MILL_BACKEND_AND "%s", device->gpu, device->cpu);
  device->backend = gpu ? gpu : cpu;
  device->name = device->both;
  mill_log_debug("this rank fits on %s", device->backend->name);
  return MILL_OK;
}

/* Set device->backend to the backend `choice`, the same kind on all ranks. */
static int agree_backend(const mill_fit_call *call, const char *choice, mill_fit_device *device)
{
  static const mill_backend planned[] = {
      /* a plan needs no GPU: it gets one of these entries */
      {.name = "cuda", .kind = MILL_BACKEND_CUDA, .default_slot = MILL_GPU_SLOTS},
      {.name = MILL_BACKEND_MIXED, .kind = MILL_BACKEND_CUDA, .default_slot = MILL_GPU_SLOTS}};
  const int is_mixed = strcmp(choice, MILL_BACKEND_MIXED) == 0;
  if (call->observer && call->observer->instead) /* a test's backend */
    device->backend = call->observer->instead;
  else if (call->options->plan && strncmp(choice, "cuda", 4) == 0)
    device->backend = is_mixed ? &planned[1] : &planned[0];
  else if (is_mixed)
    return agree_on_both(call, device);
  else
    MILL_CHECK(
        agree_on_one(call->mpi, mill_backend_find(choice, &device->backend), &device->backend));
  device->name = device->backend->name;
  return MILL_OK;
}

const char *mill_fit_begun_on(const mill_fit_call *call, const mill_existing *existing)
{
  const char *device = existing->peek.device;
  const int is_void = existing->found && existing->peek.n_status[MILL_STATUS_FITTED] == 0;
  return device[0] && !is_void && (!call->options->overwrite || existing->is_new) ? device : NULL;
}

/* Replace the backend auto: keep the backend of a result to continue, else choose by n_row.  If all
 * ranks are on CPUs with the result's instruction set, keep this.  Only rank 0 knows the result. */
static int settle_backend(const mill_fit_call *call, mill_fit_setup *setup,
                          const mill_existing *existing, int64_t n_row, mill_fit_device *device)
{
  const char *choice = NULL, *begun = mill_fit_begun_on(call, existing);
  const char *path = existing->path[0] ? existing->path : call->options->output;
  if (strcmp(setup->config.backend, "auto") == 0) {
    MILL_CHECK(mill_backend_settle(call->mpi, MILL_CROSSOVER_FIT, path, begun, n_row,
                                   device->n_thread, &choice,
                                   call->options->plan ? NULL : &device->has_gpu));
    snprintf(setup->config.backend, sizeof setup->config.backend, "%s", choice);
    MILL_CHECK(agree_backend(call, setup->config.backend, device));
  }
  if (device->backend->kind != MILL_BACKEND_CPU || device->both[0]) /* both: cuda+cpu */
    return MILL_OK;
  if (begun && strncmp(begun, CPU, strlen(CPU)) == 0 && mill_backend_cpu(begun + strlen(CPU)))
    device->backend = mill_backend_cpu(begun + strlen(CPU));
  MILL_CHECK(agree_on_one(call->mpi, MILL_OK, &device->backend));
  device->name = device->backend->name;
  return MILL_OK;
}

static int choose_readers(const mill_fit_setup *setup, mill_fit_device *device)
{
  const int n_thread = device->n_thread, most = mill_spectra_threads() ? MOST_READERS : 1;
  /* A star takes 0.08 to 0.3 ms to read, and about 20 times as long to fit on a CPU: one reader is
   * enough for 16 threads.  A GPU fits much faster. */
  const int n = device->backend->kind == MILL_BACKEND_CPU ? (n_thread + 15) / 16 : n_thread / 2;
  device->n_reader = (int)fmax(1, fmin(n, most));
  if (setup->config.n_reader > 0)
    device->n_reader = setup->config.n_reader;
  if (device->n_reader > 1 && !mill_spectra_threads())
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "readers: %d, but this CFITSIO was built without threads "
                      "(--enable-reentrant): set readers: 1",
                      device->n_reader);
  return MILL_OK;
}

int mill_fit_settle_device(const mill_fit_call *call, mill_fit_setup *setup,
                           const mill_existing *existing, int64_t n_row, mill_fit_device *device)
{
  const int n_slot = setup->config.n_slot, n_thread = device->n_thread;
  MILL_CHECK(settle_backend(call, setup, existing, n_row, device));
  /* a posterior takes minutes, and a stop loses it: sample fewer stars at once */
  const int n_busy = call->options->fit && n_thread > MOST_SAMPLED ? MOST_SAMPLED : n_thread;
  device->n_slot = n_slot > 0 ? n_slot : mill_backend_slots(device->backend, n_busy);
  /* a CPU evaluates only stars of one library together: take this number of slots for each */
  if (n_slot == 0 && device->backend->kind == MILL_BACKEND_CPU)
    device->n_slot *= setup->n_library;
  return mill_mpi_agree(call->mpi, choose_readers(setup, device));
}

int mill_fit_find_device(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_fit_device *device)
{
  const char *choice = setup->config.backend;
  if (strcmp(choice, "cuda") == 0 && !call->options->plan)
    MILL_CHECK(mill_backend_place(call->mpi, 1)); /* 1: an error message proposes cuda+cpu */
  if (strcmp(choice, MILL_BACKEND_MIXED) == 0 && !call->options->plan)
    MILL_CHECK(mill_backend_place_some(call->mpi, &device->has_gpu));
  if (strcmp(choice, "auto") != 0) /* auto: mill_fit_settle_device chooses by the number of rows */
    MILL_CHECK(agree_backend(call, choice, device));
  device->n_thread = setup->config.n_thread;
  MILL_CHECK(mill_mpi_agree(call->mpi, mill_thread_check_number(device->n_thread)));
  if (device->n_thread == 0)
    MILL_CHECK(mill_mpi_share_of_cores(call->mpi, &device->n_thread));
  return MILL_OK;
}
