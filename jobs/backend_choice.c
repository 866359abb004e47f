#include "jobs/backend_choice.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/parallel_hdf5.h"
#include "jobs/bench_report.h"
#include "jobs/crossover.h"
#include "src/log.h"
#ifdef MILL_HAVE_CUDA
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_facts.h"
#endif

enum wish { WISH_CPU, WISH_GPU, WISH_GPU_AGAIN };

#ifdef MILL_HAVE_CUDA

/* Which ranks of this node have the GPU of this one.  Collective over the node. */
static int share(MPI_Comm node, const mill_gpu_facts *mine, mill_gpu_place *place, int *i_share)
{
  int err = MILL_OK, rank = 0, size = 0;
  mill_gpu_facts *all = NULL;
  MILL_MPI(MPI_Comm_rank(node, &rank));
  MILL_MPI(MPI_Comm_size(node, &size));
  MILL_TRY(MILL_ALLOC(size, &all));
  MILL_MPI(
      MPI_Allgather(mine, (int)sizeof *mine, MPI_BYTE, all, (int)sizeof *mine, MPI_BYTE, node));
  err = mill_gpu_share(size, all, rank, &place->n_sharing, i_share);
done:
  mill_free(all);
  return err;
}

static int choose(MPI_Comm node, mill_gpu_facts *mine, int *gpu, int *driver)
{
  int err = MILL_OK, local_rank = 0;
  mill_gpu_node facts;
  mill_gpu_facts *all = NULL;
  MILL_MPI(MPI_Comm_rank(node, &local_rank));
  MILL_TRY(mill_gpu_look(&facts, &all));
  MILL_TRY(mill_gpu_choose(&facts, local_rank, gpu));
  *mine = all[*gpu];
  *driver = facts.driver;
done:
  mill_free(all);
  return err;
}

int mill_backend_place(const mill_mpi *mpi)
{
  int err = MILL_OK, i_share = 0, most = 0, driver = 0;
  MPI_Comm node = MPI_COMM_NULL;
  mill_gpu_facts mine;
  mill_gpu_place place = {.n_sharing = 1};
  size_t free_bytes = 0;
  memset(&mine, 0, sizeof mine);
  MILL_MPI(MPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED, mpi->rank, MPI_INFO_NULL, &node));
  MILL_MPI(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN));
  MILL_TRY(mill_mpi_agree(mpi, choose(node, &mine, &place.gpu, &driver)));
  MILL_TRY(mill_mpi_agree(mpi, share(node, &mine, &place, &i_share)));
  MILL_TRY(mill_mpi_agree(mpi, mill_gpu_try(place.gpu, mine.name, &free_bytes)));
  /* all ranks have their contexts, and nothing else yet: what is free now can be divided */
  err = mill_gpu_try(place.gpu, mine.name, &free_bytes);
  if (err == MILL_OK)
    err = mill_gpu_memory(mine.name, free_bytes, place.n_sharing, &place.bytes);
  MILL_TRY(mill_mpi_agree(mpi, err));
  mill_gpu_assign(&place);
  mill_log_debug("GPU %d of this rank's: %s, rank %d of %d on it, %.1f GiB for this rank",
                 place.gpu, mine.name, i_share + 1, place.n_sharing,
                 (double)place.bytes / 1073741824.0);
  MILL_MPI(MPI_Allreduce(&place.n_sharing, &most, 1, MPI_INT, MPI_MAX, mpi->comm));
  if (most > 1 && mpi->rank == 0)
    mill_log_info("up to %d ranks share a GPU and divide its memory; one rank a GPU has less to do "
                  "with the others",
                  most);
  if (driver < MILL_GPU_GRAPH_DRIVER && mpi->rank == 0)
    mill_log_info(
        "the NVIDIA driver is for CUDA %d.%d: rounds are launched one by one, as from 12.4 "
        "on they need not be",
        driver / 1000, driver % 1000 / 10);
done:
  if (node != MPI_COMM_NULL)
    MPI_Comm_free(&node);
  return err;
}

/* The name under which the crossover of this rank's first GPU is kept; empty without one. */
static void name_gpu(char *name, size_t size)
{
  mill_gpu_node facts;
  mill_gpu_facts *all = NULL;
  int gpu = -1;
  name[0] = '\0';
  if (mill_gpu_look(&facts, &all) == MILL_OK && mill_gpu_choose(&facts, 0, &gpu) == MILL_OK)
    mill_gpu_backend_name(&all[gpu], name, size);
  else
    mill_log_debug("backend auto: %s", mill_error_message());
  mill_free(all);
}

/* Has the measured crossover been reached?  On rank 0; what cannot be read is as not measured. */
static int is_worth_it(const mill_mpi *mpi, int64_t n_row, int n_thread)
{
  char path[MILL_CROSSOVER_PATH], gpu[64], cpu[128];
  mill_crossover line;
  int found = 0;
  const int64_t n_each = n_row / mpi->size;
  if (mill_crossover_path(path) != MILL_OK || access(path, F_OK) != 0) {
    mill_log_debug("backend auto: the CPU, as no crossover has been measured here (starmill bench "
                   "crossover --keep)");
    return 0;
  }
  name_gpu(gpu, sizeof gpu);
  if (!gpu[0]) {
    mill_log_debug("backend auto: the CPU, as there is no GPU");
    return 0;
  }
  mill_bench_cpu_model(cpu, sizeof cpu);
  if (mill_crossover_find(path, gpu, cpu, n_thread, &line, &found) != MILL_OK) {
    mill_log_warning("backend auto: the CPU: %s", mill_error_message());
    return 0;
  }
  if (!found) {
    mill_log_info("backend auto: the CPU, as %s has no crossover of %s beside %d threads of %s "
                  "(starmill bench crossover --keep)",
                  path, gpu, n_thread, cpu);
    return 0;
  }
  const int wants = mill_crossover_wants_gpu(&line, n_each);
  mill_log_info(
      "backend auto: the %s for %lld rows a rank (the GPU is faster from %lld on, measured "
      "%.10s)",
      wants ? "GPU" : "CPU", (long long)n_each, (long long)line.n_star, line.date);
  return wants;
}

#else

int mill_backend_place(const mill_mpi *mpi)
{
  (void)mpi;
  return mill_error_set(MILL_ERR_CONFIG, __FILE__, __LINE__,
                        "backend cuda: this program was built without CUDA; use cpu or auto, "
                        "or build it where nvcc is found");
}

static int is_worth_it(const mill_mpi *mpi, int64_t n_row, int n_thread)
{
  (void)mpi;
  (void)n_row;
  (void)n_thread;
  mill_log_debug("backend auto: the CPU, as this program was built without CUDA");
  return 0;
}

#endif

/* The backend of a result file that is to be continued; opening it will say what is wrong. */
static int wish_of_file(const char *path, int *wish)
{
  char device[256] = "";
  hid_t file = H5I_INVALID_HID;
  if (!path || access(path, R_OK) != 0)
    return 0;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  if (H5Fis_hdf5(path) <= 0 || mill_ph5_open(path, H5F_ACC_RDONLY, MPI_COMM_SELF, &file) != MILL_OK)
    return 0;
  const int err =
      mill_ph5_read_attr_text(file, path, "provenance", "DEVICE", device, sizeof device);
  (void)mill_ph5_close(path, &file);
  if (err != MILL_OK || !device[0])
    return 0;
  *wish = strncmp(device, "cuda", 4) == 0 ? WISH_GPU_AGAIN : WISH_CPU;
  mill_log_debug("backend auto: as %s was begun (%s)", path, device);
  return 1;
}

int mill_backend_settle(const mill_mpi *mpi, const char *output, int overwrite, int64_t n_row,
                        int n_thread, const char **choice)
{
  int err = MILL_OK, wish = WISH_CPU;
  *choice = "cpu";
  if (mpi->rank == 0 && (overwrite || !wish_of_file(output, &wish)))
    wish = is_worth_it(mpi, n_row, n_thread) ? WISH_GPU : WISH_CPU;
  MILL_MPI(MPI_Bcast(&wish, 1, MPI_INT, 0, mpi->comm));
  if (wish == WISH_CPU)
    goto done;
  err = mill_backend_place(mpi);
#ifdef MILL_HAVE_CUDA
  if (err == MILL_OK) {
    mill_backend_cuda(&err);
    err = mill_mpi_agree(mpi, err);
  }
#endif
  if (err == MILL_OK)
    *choice = "cuda";
  else if (err != MILL_ERR_MPI && wish == WISH_GPU) {
    if (mpi->rank == 0)
      mill_log_warning("backend auto: the CPU for the whole run: %s", mill_error_message());
    err = MILL_OK;
  } else if (err != MILL_ERR_MPI) {
    char message[512];
    snprintf(message, sizeof message, "%s", mill_error_message());
    mill_error_set(err, __FILE__, __LINE__,
                   "%s was begun on a GPU, so it needs one again (--overwrite begins anew): %s",
                   output, message);
  }
done:
  return err;
}
