/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/run/backend_choice.h"

#include <stdio.h>
#include <unistd.h>

#include "kernels/gpu.h"
#include "src/system/status_process.h"
#include "src/system/log.h"

const char *const mill_backend_words[] = {"auto", "cpu", "cuda", NULL};

enum wish { WISH_CPU, WISH_GPU, WISH_GPU_AGAIN, WISH_MIXED_AGAIN };
static const char *const choice_of[] = {"cpu", "cuda", "cuda", MILL_BACKEND_MIXED};

/* The GPU that a rank would use. */
typedef struct rank_gpu {
  int rank; /* rank in the whole job, also if only some ranks get GPUs */
  int gpu;  /* -1: the rank sees no GPU, and facts are 0 */
  mill_gpu_facts facts;
  int driver;
  int n_sharing, i_share; /* ranks of the node with the same GPU; this rank's index among them */
} rank_gpu;

/* Choose a GPU for this rank; may_be_none: seeing no GPU is no error. */
static int choose(int local_rank, int may_be_none, rank_gpu *mine)
{
  mill_gpu_node node;
  MILL_OWNED mill_gpu_facts *all = NULL;
  MILL_CHECK(mill_gpu_look(&node, &all));
  mine->driver = node.driver;
  /* a driver (12040: CUDA 12.4) of an older major version than this build hides GPUs: an error */
  const int is_old = node.driver < node.runtime / 1000 * 1000;
  if (may_be_none && (node.driver == 0 || (node.n_gpu < 1 && !is_old)))
    return MILL_OK;
  MILL_CHECK(mill_gpu_choose(&node, local_rank, &mine->gpu));
  mine->facts = all[mine->gpu];
  return MILL_OK;
}

/* Check that all GPUs are of one kind, so that results do not differ.  rank: number in the job. */
static int same_kind(const mill_mpi *mpi, int rank, const mill_gpu_facts *mine)
{
  int code = MILL_OK, first_rank = rank;
  char name[64] = "", first[sizeof name];
  mill_gpu_backend_name(mine, name, sizeof name);
  memcpy(first, name, sizeof first);
  MILL_CHECK_MPI(MPI_Bcast(first, (int)sizeof first, MPI_CHAR, 0, mpi->comm));
  MILL_CHECK_MPI(MPI_Bcast(&first_rank, 1, MPI_INT, 0, mpi->comm));
  if (strcmp(name, first) != 0)
    code =
        MILL_ERROR(MILL_ERR_BACKEND,
                   "rank %d has the GPU '%s', rank %d '%s', and results would differ in the last "
                   "digits: use GPUs of one kind",
                   first_rank, first, rank, name);
  return mill_mpi_agree(mpi, code);
}

/* Assign each rank its GPU and a share of the GPU's memory.  Collective. */
static int place_ranks(const mill_mpi *mpi, const rank_gpu *mine)
{
  int err = MILL_OK, most = 0;
  const char *name = mine->facts.name;
  mill_gpu_place place = {.gpu = mine->gpu, .n_sharing = mine->n_sharing};
  size_t free_bytes = 0;
  MILL_TRY(same_kind(mpi, mine->rank, &mine->facts));
  MILL_TRY(mill_mpi_agree(mpi, mill_gpu_try(place.gpu, name, &free_bytes)));
  /* all ranks have made their contexts: divide the memory that is still free */
  err = mill_gpu_try(place.gpu, name, &free_bytes);
  MILL_STEP(mill_gpu_memory(name, free_bytes, place.n_sharing, &place.bytes));
  MILL_TRY(mill_mpi_agree(mpi, err));
  mill_gpu_assign(&place);
  mill_log_debug("this rank uses GPU %d, %s, as number %d of %d ranks, with %.1f GiB of its memory",
                 place.gpu, name, mine->i_share + 1, place.n_sharing,
                 (double)place.bytes / 1073741824.0);
  MILL_MPI(MPI_Allreduce(&place.n_sharing, &most, 1, MPI_INT, MPI_MAX, mpi->comm));
  if (most > 1 && mpi->rank == 0)
    mill_log_info("up to %d ranks share a GPU and take turns on it", most);
  if (mine->driver < MILL_GPU_GRAPH_DRIVER && mpi->rank == 0)
    mill_log_info("the NVIDIA driver is for CUDA %d.%d: kernels are launched one by one, which is "
                  "slower; a driver for CUDA 12.4 or later avoids this",
                  mine->driver / 1000, mine->driver % 1000 / 10);
done:
  return err;
}

/* Choose this rank's GPU and count the ranks of its node that use the same GPU.  Collective. */
static int find_gpu(const mill_mpi *mpi, int may_be_none, rank_gpu *mine)
{
  int code = MILL_OK;
  MILL_AT_END(mill_mpi_free) mill_mpi node;
  MILL_OWNED mill_gpu_facts *all = NULL;
  memset(mine, 0, sizeof *mine);
  mine->rank = mpi->rank;
  mine->gpu = -1;
  MILL_CHECK(mill_mpi_split(mpi, MILL_MPI_NODE, &node));
  MILL_CHECK(mill_mpi_agree(
      mpi, mill_error_of(choose(node.rank, may_be_none, mine), MILL_ALLOC(node.size, &all))));
  MILL_CHECK_MPI(MPI_Allgather(&mine->facts, (int)sizeof mine->facts, MPI_BYTE, all,
                               (int)sizeof mine->facts, MPI_BYTE, node.comm));
  if (may_be_none) /* only one sharer will use the GPU: no error in exclusive mode */
    mill_gpu_sharers(node.size, all, node.rank, &mine->n_sharing, &mine->i_share);
  else
    code = mill_gpu_share(node.size, all, node.rank, &mine->n_sharing, &mine->i_share);
  return mill_mpi_agree(mpi, code);
}

static int place_all(const mill_mpi *mpi)
{
  rank_gpu mine;
  MILL_CHECK(find_gpu(mpi, 0, &mine));
  return place_ranks(mpi, &mine);
}

/* Give each GPU to one rank, as mill_backend_place_some says.  Collective. */
static int place_some(const mill_mpi *mpi, int *has_gpu)
{
  int code = MILL_OK, n_gpu = 0;
  MILL_AT_END(mill_mpi_free) mill_mpi part = {.comm = MPI_COMM_NULL, .stop_comm = MPI_COMM_NULL};
  rank_gpu mine;
  MILL_CHECK(find_gpu(mpi, 1, &mine));
  *has_gpu = mine.gpu >= 0 && mine.i_share == 0;
  mine.n_sharing = 1; /* the other ranks that see this GPU will fit on the CPU */
  MILL_CHECK_MPI(MPI_Allreduce(has_gpu, &n_gpu, 1, MPI_INT, MPI_SUM, mpi->comm));
  if (n_gpu == 0)
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "no rank sees a GPU: ask the scheduler for one (and check CUDA_VISIBLE_DEVICES)");
  MILL_CHECK(mill_mpi_split(mpi, *has_gpu, &part));
  if (*has_gpu)
    code = place_ranks(&part, &mine);
  MILL_CHECK(mill_mpi_agree(mpi, code));
  if (mpi->rank == 0)
    mill_log_info("%d of %d ranks %s a GPU, %d %s on the CPU: rows of GPU and CPU differ in the "
                  "last digits, and column BACKEND records where each row was fitted",
                  n_gpu, mpi->size, n_gpu == 1 ? "has" : "have", mpi->size - n_gpu,
                  mpi->size - n_gpu == 1 ? "fits" : "fit");
  return code;
}

/* Give every rank a GPU, or (is_mixed) give each GPU to one rank; open the CUDA backend. */
static int take_gpus(const mill_mpi *mpi, int is_mixed, int *has_gpu)
{
  int code = MILL_OK;
  *has_gpu = 1;
  MILL_CHECK(is_mixed ? place_some(mpi, has_gpu) : place_all(mpi));
  if (*has_gpu)
    mill_backend_cuda(&code);
  return mill_mpi_agree(mpi, code);
}

int mill_backend_crossover(enum mill_crossover_kind kind, int n_thread, mill_crossover *line,
                           int *found, char *why, size_t size)
{
  int gpu = -1;
  char path[MILL_CROSSOVER_PATH], name[sizeof line->gpu], cpu[sizeof line->cpu];
  mill_gpu_node facts;
  MILL_OWNED mill_gpu_facts *all = NULL;
  memset(line, 0, sizeof *line);
  *found = 0;
  if (mill_crossover_path(path) != MILL_OK || access(path, F_OK) != 0) {
    snprintf(why, size, "the size from which a GPU is faster is not measured yet (run %s)",
             MILL_CROSSOVER_COMMAND);
    return MILL_OK;
  }
  if (mill_gpu_look(&facts, &all) != MILL_OK || mill_gpu_choose(&facts, 0, &gpu) != MILL_OK) {
    snprintf(why, size, "no GPU was found (%s)", mill_error_message());
    return MILL_OK;
  }
  mill_gpu_backend_name(&all[gpu], name, sizeof name);
  mill_cpu_model(cpu, sizeof cpu);
  MILL_CHECK(mill_crossover_find(path, kind, name, cpu, n_thread, line, found));
  if (!*found) {
    memcpy(line->gpu, name, sizeof name);
    snprintf(why, size, "%s does not say when %s is faster than %d threads of %s (run %s)", path,
             name, n_thread, cpu, MILL_CROSSOVER_COMMAND);
  }
  return MILL_OK;
}

/* Return err; put text before and after the message of a failure, unless MPI failed. */
static int tell(int err, const char *before, const char *after)
{
  return err == MILL_OK || err == MILL_ERR_MPI
             ? err
             : MILL_ERROR(err, "%s%s%s", before, mill_error_message(), after);
}

int mill_backend_place(const mill_mpi *mpi, int may_be_mixed)
{
  return tell(place_all(mpi), "backend cuda: ",
              mpi->size == 1 || !mill_gpu_is_built() || !may_be_mixed
                  ? "; or use --backend cpu"
                  : "; or use --backend cpu, or --backend " MILL_BACKEND_MIXED
                    ", by which ranks without a GPU fit on the CPU");
}

int mill_backend_place_some(const mill_mpi *mpi, int *has_gpu)
{
  return tell(place_some(mpi, has_gpu), "backend " MILL_BACKEND_MIXED ": ",
              "; or use --backend cpu");
}

/* Rank 0: does each rank's part of the work reach the crossover?  No if it is not measured. */
static int is_worth_it(const mill_mpi *mpi, enum mill_crossover_kind kind, int64_t size,
                       int n_thread)
{
  mill_crossover line;
  char why[1536];
  int found = 0;
  const int64_t n_each = size / mpi->size;
  if (mill_backend_crossover(kind, n_thread, &line, &found, why, sizeof why) != MILL_OK) {
    mill_log_warning("backend auto: the CPU: %s", mill_error_message());
    return 0;
  }
  if (!found) { /* line.gpu is empty without a GPU or any measurement: the CPU is then expected */
    MILL_LOG(line.gpu[0] ? MILL_LOG_INFO : MILL_LOG_DEBUG, "backend auto: the CPU, as %s", why);
    return 0;
  }
  const int wants = mill_crossover_wants_gpu(&line, n_each);
  mill_log_info("backend auto: the %s for %lld %s (the GPU is faster from %lld on, measured %.10s)",
                wants ? "GPU" : "CPU", (long long)n_each, mill_crossover_unit(kind),
                (long long)line.from, line.date);
  return wants;
}

/* Rank 0 decides.  Without a usable GPU, a new run takes the CPU; a run begun on a GPU fails. */
int mill_backend_settle(const mill_mpi *mpi, enum mill_crossover_kind kind, const char *output,
                        const char *device, int64_t size, int n_thread, const char **choice,
                        int *has_gpu)
{
  int wish = WISH_CPU;
  if (mpi->rank == 0 && device) {
    mill_log_debug("backend auto: %s was begun on %s and continues on the same", output, device);
    if (strncmp(device, "cuda", 4) == 0) /* a result of cuda+cpu has "cuda ... + cpu ..." */
      wish = strstr(device, MILL_BACKEND_AND "cpu ") ? WISH_MIXED_AGAIN : WISH_GPU_AGAIN;
  } else if (mpi->rank == 0)
    wish = is_worth_it(mpi, kind, size, n_thread) ? WISH_GPU : WISH_CPU;
  MILL_CHECK_MPI(MPI_Bcast(&wish, 1, MPI_INT, 0, mpi->comm));
  *choice = choice_of[wish];
  if (!has_gpu) /* the caller only plans: do not try the choice */
    return MILL_OK;
  *choice = choice_of[WISH_CPU]; /* unless the GPUs can be used */
  *has_gpu = 0;
  if (wish == WISH_CPU)
    return MILL_OK;
  const int code = take_gpus(mpi, wish == WISH_MIXED_AGAIN, has_gpu);
  if (code == MILL_OK) {
    *choice = choice_of[wish];
    return MILL_OK;
  }
  *has_gpu = 0;
  if (code == MILL_ERR_MPI)
    return code;
  mill_gpu_release();
  if (wish == WISH_GPU) {
    if (mpi->rank == 0)
      mill_log_warning("backend auto: the CPU for the whole run: %s", mill_error_message());
    return MILL_OK;
  }
  char before[512];
  snprintf(
      before, sizeof before,
      "%.300s was begun on a GPU and continues only on a GPU of that kind (to start over, %s): ",
      output,
      kind == MILL_CROSSOVER_FIT ? "give --overwrite; if you gave it, remove this file"
                                 : "remove this file");
  /* no GPU here: report it as a problem of the output file */
  return tell(code == MILL_ERR_CONFIG ? MILL_ERR_OUTPUT : code, before, "");
}
