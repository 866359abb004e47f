/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* sched_getaffinity, CPU_SET, nftw */

#include "src/ranks/mpi_context.h"

#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/system/log.h"
#include "src/system/status_process.h"
#include "src/system/thread.h"
#include "src/system/watchdog.h"

enum { TAG_STOP = 1, LEAST_BYTES = 192 << 20 /* address space that a rank needs at the start */ };

/* guards told_stop and n_heard, which any thread may change */
static pthread_mutex_t stop_mutex = PTHREAD_MUTEX_INITIALIZER;

int mill_mpi_check(int mpi_code, const char *call, const char *file, int line)
{
  if (mpi_code == MPI_SUCCESS)
    return MILL_OK;
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  if (MPI_Error_string(mpi_code, text, &n) != MPI_SUCCESS)
    snprintf(text, sizeof text, "MPI error %d", mpi_code);
  const char *bracket = strchr(call, '(');
  const int n_name = bracket ? (int)(bracket - call) : (int)strlen(call);
  return mill_error_set(MILL_ERR_MPI, file, line, "%.*s: %s", n_name, call, text);
}

/* Open MPI's session folder by make_own_folder, which mill_mpi_end removes; empty: none. */
static char own_folder[PATH_MAX];

#ifdef OPEN_MPI
static const char session_folder[] = "OMPI_MCA_orte_tmpdir_base";

/* Did mpirun, srun or another launcher start this process? */
static int is_launched(void)
{
  static const char *const sign[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",      "PMI_RANK",
                                     "SLURM_PROCID",         "FLUX_TASK_RANK", "PALS_RANKID"};
  for (size_t i = 0; i < sizeof sign / sizeof *sign; i++)
    if (getenv(sign[i]))
      return 1;
  return 0;
}

/* Give a process without a launcher its own session folder.  In Open MPI 4.1 such processes share a
 * folder of the node: if they start together, they remove each other's files and die. */
static int make_own_folder(void)
{
  const char *base = getenv("TMPDIR");
  if (getenv(session_folder))
    return MILL_OK;
  snprintf(own_folder, sizeof own_folder, "%s/starmill-mpi.XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp(own_folder)) { /* go on with the shared folder */
    own_folder[0] = '\0';
    return MILL_OK;
  }
  return setenv(session_folder, own_folder, 1);
}
#endif

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
  (void)status;
  (void)kind;
  (void)walk;
  (void)remove(path);
  return 0;
}

static const mill_mpi nobody = {.comm = MPI_COMM_NULL, .stop_comm = MPI_COMM_NULL, .size = 1};

/* Set up a new communicator. */
static int describe(mill_mpi *mpi)
{
  MILL_CHECK_MPI(MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN));
  MILL_CHECK_MPI(MPI_Comm_rank(mpi->comm, &mpi->rank));
  MILL_CHECK_MPI(MPI_Comm_size(mpi->comm, &mpi->size));
  return MILL_OK;
}

int mill_mpi_dup(MPI_Comm from, mill_mpi *to)
{
  *to = nobody;
  MILL_CHECK_MPI(MPI_Comm_dup(from, &to->comm));
  return describe(to);
}

int mill_mpi_split(const mill_mpi *mpi, int color, mill_mpi *part)
{
  *part = nobody;
  MILL_CHECK_MPI(color == MILL_MPI_NODE ? MPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED,
                                                              mpi->rank, MPI_INFO_NULL, &part->comm)
                                        : MPI_Comm_split(mpi->comm, color, mpi->rank, &part->comm));
  return describe(part);
}

void mill_mpi_free(mill_mpi *mpi)
{
  if (mpi->comm != MPI_COMM_NULL)
    MPI_Comm_free(&mpi->comm);
}

static void log_abort(const char *text)
{
  mill_log_error("%s", text);
}

#ifdef MILL_ONE_PROCESS
static const char way_to_share[] = "this starmill is built without MPI (MILL_MPI=OFF): start one "
                                   "task with more threads, or build it with MPI";
#else
static const char way_to_share[] = "start them by srun --mpi=pmix or by the mpirun of starmill's "
                                   "MPI (starmill doctor names it)";
#endif

/* Refuse to run if the launcher started several tasks but MPI sees one rank in each: the launcher
 * belongs to another MPI.  All tasks would do the same work and write the same output. */
static int check_launcher(const mill_mpi *mpi)
{
  static const char *const variable[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                         "SLURM_STEP_NUM_TASKS"};
  for (size_t i = 0; i < sizeof variable / sizeof *variable; i++) {
    const char *text = getenv(variable[i]);
    if (!text)
      continue;
    if (mpi->size > 1 || atoi(text) <= 1) /* only the first variable that is set counts */
      return MILL_OK;
    return MILL_ERROR(MILL_ERR_USAGE,
                      "the launcher started %d tasks (%s), but MPI does not connect them: %s; if "
                      "each is to work alone, set %s=1",
                      atoi(text), variable[i], way_to_share, variable[i]);
  }
  return MILL_OK;
}

int mill_mpi_start(mill_mpi *mpi)
{
  int provided = MPI_THREAD_SINGLE;
  const int watch_err = mill_watchdog_start(log_abort); /* reported once MPI knows the rank */
  MILL_WATCHED(MILL_WATCH_START, 0, "MPI_Init_thread");
  *mpi = nobody;
  /* without memory MPI, OpenMP and HDF5 fail without a message */
  if (mill_memory_room(1, LEAST_BYTES) == 0)
    return MILL_ERROR(MILL_ERR_MEMORY, "not enough memory to start: a rank needs %d MiB more%s",
                      LEAST_BYTES >> 20, mill_memory_limit());
#ifdef OPEN_MPI
  /* save 0.4 s: without a launcher Open MPI needs no daemon (isolated) and no networks (ob1) */
  if (setenv("OMPI_MCA_ess_singleton_isolated", "1", 0) != 0 ||
      (!is_launched() && (setenv("OMPI_MCA_pml", "ob1", 0) != 0 || make_own_folder() != 0)))
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for an environment variable");
#endif
  MILL_CHECK_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided));
  MILL_CHECK(mill_mpi_dup(MPI_COMM_WORLD, mpi));
  MILL_CHECK_MPI(MPI_Comm_dup(mpi->comm, &mpi->stop_comm)); /* copies the error handler, too */
  /* needed because one thread computes while another writes collectively */
  if (provided < MPI_THREAD_MULTIPLE)
    return MILL_ERROR(
        MILL_ERR_MPI,
        "this MPI does not grant MPI_THREAD_MULTIPLE (it gives level %d): use an MPI library "
        "built with full thread support",
        provided);
  return mill_mpi_agree(mpi, mill_error_of(watch_err, check_launcher(mpi)));
}

void mill_mpi_end(mill_mpi *mpi)
{
  const int watch = mill_watch_begin(MILL_WATCH_FILE, 0, "MPI_Finalize");
  mill_mpi_free(mpi);
  if (mpi->stop_comm != MPI_COMM_NULL)
    MPI_Comm_free(&mpi->stop_comm);
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (started && !ended)
    MPI_Finalize();
  if (own_folder[0])
    nftw(own_folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
  own_folder[0] = '\0';
  mill_watch_end(watch);
  mill_watchdog_stop();
}

int mill_mpi_tell(const mill_mpi *mpi, const char *name, int err)
{
  if (err == MILL_OK)
    return 0;
  if (mpi->rank == 0 || err == MILL_ERR_MPI)
    fprintf(stderr, "%s: %s\n", name, mill_error_message());
  return mill_error_exit_status(err);
}

/* Return the severity of a failure.  A stop or an unreadable input is less severe than others, as
 * it leaves a consistent result. */
static int severity(int code)
{
  return code == MILL_OK ? 0 : code == MILL_ERR_INPUT ? 1 : code == MILL_ERR_STOPPED ? 2 : 3 + code;
}

int mill_mpi_agree(const mill_mpi *mpi, int code)
{
  struct {
    int severity, rank;
  } mine = {severity(code), mpi->rank}, worst = {0, 0};
  struct {
    mill_error_kept error;
    char host[256];
  } outcome;
  char host[256];
  MILL_WATCHED(MILL_WATCH_RANKS, 0, "waiting for the other ranks");
  MILL_CHECK_MPI(MPI_Allreduce(&mine, &worst, 1, MPI_2INT, MPI_MAXLOC, mpi->comm));
  if (worst.severity == 0)
    return MILL_OK;
  mill_error_save(code, &outcome.error);
  mill_host_name(outcome.host, sizeof outcome.host);
  MILL_CHECK_MPI(MPI_Bcast(&outcome, (int)sizeof outcome, MPI_BYTE, worst.rank, mpi->comm));
  const int worst_code = mill_error_restore(&outcome.error);
  mill_host_name(host, sizeof host);
  /* name the host, unless the message does so: a file may be missing on that host only */
  if (strcmp(host, outcome.host) != 0 && strncmp(outcome.error.message, "on host ", 8) != 0)
    return mill_error_set(worst_code, __FILE__, __LINE__, "on host %.255s: %.700s", outcome.host,
                          outcome.error.message);
  return worst_code;
}

int mill_mpi_record_type(size_t size, MPI_Datatype *type)
{
  MILL_CHECK_MPI(MPI_Type_contiguous((int)size, MPI_BYTE, type));
  MILL_CHECK_MPI(MPI_Type_commit(type));
  return MILL_OK;
}

void mill_mpi_type_free(MPI_Datatype *type)
{
  if (*type != MPI_DATATYPE_NULL)
    MPI_Type_free(type);
}

int mill_mpi_gather(const mill_mpi *mpi, const void *mine, int64_t n_mine, size_t size,
                    const char *too_many, void **all, int64_t *n_all)
{
  const int n = (int)n_mine;
  MILL_OWNED int *count = NULL, *start = NULL;
  MILL_OWNED void *gathered = NULL;
  MILL_AT_END(mill_mpi_type_free) MPI_Datatype type = MPI_DATATYPE_NULL;
  *all = NULL;
  MILL_CHECK_MPI(MPI_Allreduce(&n_mine, n_all, 1, MPI_INT64_T, MPI_SUM, mpi->comm));
  if (*n_all > INT_MAX)
    return MILL_ERROR(MILL_ERR_RANGE, "%lld %s", (long long)*n_all, too_many); /* on every rank */
  const int code = mill_error_of(MILL_ALLOC(mpi->size, &count), MILL_ALLOC(mpi->size, &start));
  MILL_CHECK(
      mill_mpi_agree(mpi, mill_error_of(code, mill_alloc_bytes((size_t)*n_all, size, &gathered))));
  MILL_CHECK_MPI(MPI_Allgather(&n, 1, MPI_INT, count, 1, MPI_INT, mpi->comm));
  for (int rank = 1; rank < mpi->size; rank++)
    start[rank] = start[rank - 1] + count[rank - 1];
  MILL_CHECK(mill_mpi_record_type(size, &type));
  MILL_CHECK_MPI(MPI_Allgatherv(mine, n, type, gathered, count, start, type, mpi->comm));
  return MILL_GIVE(&gathered, all);
}

int mill_mpi_rank0_first(const mill_mpi *mpi, int (*load)(void *context), void *context)
{
  MILL_CHECK(mill_mpi_agree(mpi, mpi->rank == 0 ? load(context) : MILL_OK));
  return mill_mpi_agree(mpi, mpi->rank == 0 ? MILL_OK : load(context));
}

int64_t mill_mpi_share(const mill_mpi *mpi, int64_t n, int64_t *end)
{
  *end = n * (mpi->rank + 1) / mpi->size;
  return n * mpi->rank / mpi->size;
}

int mill_mpi_stop_others(mill_mpi *mpi)
{
  MILL_LOCKED(&stop_mutex);
  if (mpi->told_stop || mpi->n_heard > 0) /* a rank that asks, asks all ranks */
    return MILL_OK;
  mpi->told_stop = 1;
  for (int rank = 0; rank < mpi->size; rank++) {
    MPI_Request request;
    if (rank == mpi->rank)
      continue;
    MILL_CHECK_MPI(MPI_Isend(NULL, 0, MPI_BYTE, rank, TAG_STOP, mpi->stop_comm, &request));
    /* no wait: mill_mpi_stop_settle receives the message */
    MILL_CHECK_MPI(MPI_Request_free(&request));
  }
  return MILL_OK;
}

int mill_mpi_stop_asked(mill_mpi *mpi)
{
  int err = MILL_OK, there = 0;
  MILL_LOCKED(&stop_mutex);
  if (mpi->n_heard > 0)
    return 1;
  MILL_MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_STOP, mpi->stop_comm, &there, MPI_STATUS_IGNORE));
  if (there) {
    MILL_MPI(
        MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, TAG_STOP, mpi->stop_comm, MPI_STATUS_IGNORE));
    mpi->n_heard++;
  }
done:
  return err != MILL_OK || there;
}

int mill_mpi_stop_settle(mill_mpi *mpi)
{
  int n_told = 0;
  MILL_CHECK_MPI(MPI_Allreduce(&mpi->told_stop, &n_told, 1, MPI_INT, MPI_SUM, mpi->comm));
  /* each rank that asked has sent a message to every other rank */
  for (const int n_due = n_told - mpi->told_stop; mpi->n_heard < n_due; mpi->n_heard++)
    MILL_CHECK_MPI(
        MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, TAG_STOP, mpi->stop_comm, MPI_STATUS_IGNORE));
  return MILL_OK;
}

int mill_mpi_share_of_cores(const mill_mpi *mpi, int *n_thread)
{
  MILL_AT_END(mill_mpi_free) mill_mpi node = nobody;
  cpu_set_t mine;
  MILL_OWNED cpu_set_t *all = NULL;
  double share = 0;
  *n_thread = 1;
  CPU_ZERO(&mine);
  /* the call fails if there are more cores than a cpu_set_t holds: then assume one core */
  if (sched_getaffinity(0, sizeof mine, &mine) != 0)
    CPU_SET(0, &mine);
  MILL_CHECK(mill_mpi_split(mpi, MILL_MPI_NODE, &node));
  MILL_CHECK(mill_mpi_agree(mpi, MILL_ALLOC(node.size, &all)));
  MILL_CHECK_MPI(
      MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine, MPI_BYTE, node.comm));
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &mine))
      continue;
    int n_user = 0;
    for (int i = 0; i < node.size; i++)
      n_user += CPU_ISSET(cpu, &all[i]) != 0;
    share += 1.0 / n_user;
  }
  /* 1e-6 against rounding: three thirds of a core are one core */
  *n_thread = share + 1e-6 < 1 ? 1 : (int)(share + 1e-6);
  return MILL_OK;
}
