/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/steps.h"

#include "src/system/log.h"
#include "src/system/stop_signal.h"

/* Over the ranks' mill_fit_tally: least and most fit_s; sums of fit_s, read_wait_s, put_wait_s. */
typedef struct mill_balance {
  double least_s, most_s, sum_s[3];
} mill_balance;

/* Log this rank's times; set *all on rank 0 to the balance of all ranks. */
static int gather_balance(const mill_fit_task *task, mill_balance *all)
{
  const mill_fit_tally *t = task->tally;
  const MPI_Comm comm = task->call->mpi->comm;
  mill_work_stats stats;
  mill_work_get_stats(task->out->work, &stats);
  mill_log_debug("fitted %lld rows of %lld chunks in %.3f s; files opened %lld times; fits waited "
                 "%.3f s for spectra, %.3f s for the I/O thread, which wrote for %.3f s; the "
                 "reader waited %.3f s for work; requests of other ranks answered: %lld",
                 (long long)t->n_put, (long long)stats.n_taken, t->fit_s,
                 (long long)t->read.n_opened, t->read_wait_s, t->put_wait_s,
                 task->out->summary.write_s, stats.wait_s, (long long)stats.n_answered);
  const double mine[3] = {t->fit_s, t->read_wait_s, t->put_wait_s};
  MILL_CHECK_MPI(MPI_Reduce(mine, all->sum_s, 3, MPI_DOUBLE, MPI_SUM, 0, comm));
  MILL_CHECK_MPI(MPI_Reduce(&t->fit_s, &all->least_s, 1, MPI_DOUBLE, MPI_MIN, 0, comm));
  MILL_CHECK_MPI(MPI_Reduce(&t->fit_s, &all->most_s, 1, MPI_DOUBLE, MPI_MAX, 0, comm));
  return MILL_OK;
}

static double percent(double some, double all)
{
  return all > 0 ? 100.0 * some / all : 0.0;
}

static void print_balance(const mill_balance *b, int n_rank)
{
  fputs("balance      ", stdout);
  if (n_rank > 1)
    printf("idle tail %.1f %% (%d ranks fitted for %.1f to %.1f s); ",
           percent(b->most_s - b->sum_s[0] / n_rank, b->most_s), n_rank, b->least_s, b->most_s);
  printf("waited %.1f %% for spectra, %.1f %% for writing\n", percent(b->sum_s[1], b->sum_s[0]),
         percent(b->sum_s[2], b->sum_s[0]));
}

/* A bit of a flag column, or a value of STATUS, with its texts. */
typedef struct mill_bit {
  int bit;
  const char *name, *meaning;
} mill_bit;

#define BIT(symbol, bit, name, meaning) {symbol, name, meaning},

static void print_reasons(const mill_result_summary *summary)
{
  static const mill_bit reason[] = {MILL_STATUS_LIST(BIT)};
  for (size_t i = 0; i < sizeof reason / sizeof reason[0]; i++) {
    const int64_t n = summary->n_status[reason[i].bit];
    if (reason[i].bit > MILL_STATUS_FITTED && n > 0)
      printf("  %-16s %lld: %s\n", reason[i].name, (long long)n, reason[i].meaning);
  }
}

static void print_where(const mill_fit_task *task)
{
  const char *path = task->call->options->output;
  if (task->out->summary.old == MILL_OLD_WAITS)
    printf("result       %s.new, which replaces %s when it is finished\n", path, path);
  else if (task->out->summary.old == MILL_OLD_KEPT)
    printf("result       none: %s is unchanged\n", path);
  else
    printf("result       %s\n", path);
}

/* Print the number of fitted rows with each bit of a flag column. */
static void print_bits(const char *column, const int64_t *n_row, const mill_bit *bit, int n_bit)
{
  int64_t n_any = 0;
  for (int i = 0; i < n_bit; i++)
    n_any += n_row[__builtin_ctz((unsigned)bit[i].bit)];
  if (n_any > 0)
    printf("%-12s rows with each bit:\n", column);
  for (int i = 0; i < n_bit; i++) {
    const int64_t n = n_row[__builtin_ctz((unsigned)bit[i].bit)];
    if (n > 0)
      printf("  %-16s %lld (bit %d): %s\n", bit[i].name, (long long)n, bit[i].bit, bit[i].meaning);
  }
}

static void print_flags(const mill_result_summary *summary)
{
  static const mill_bit warn[] = {MILL_WARN_LIST(BIT)}, info[] = {MILL_INFO_LIST(BIT)},
                        post[] = {MILL_POST_LIST(BIT)};
  print_bits("RVS_WARN", summary->n_warn, warn, (int)(sizeof warn / sizeof warn[0]));
  print_bits("FIT_INFO", summary->n_info, info, (int)(sizeof info / sizeof info[0]));
  print_bits("POST_FLAG", summary->n_post, post, (int)(sizeof post / sizeof post[0]));
}

/* With cuda+cpu: ranks, threads and rows on the CPU [0] and on GPUs [1]. */
typedef struct mill_kinds {
  int64_t n_rank[2], n_thread[2], n_row[2];
} mill_kinds;

static int gather_kinds(const mill_fit_task *task, mill_kinds *all)
{
  mill_kinds mine = {{0}, {0}, {0}};
  mine.n_rank[task->device->has_gpu] = 1;
  mine.n_thread[task->device->has_gpu] = task->device->n_thread;
  mine.n_row[task->device->has_gpu] = task->tally->n_put;
  MILL_CHECK_MPI(MPI_Reduce(&mine, all, sizeof mine / sizeof(int64_t), MPI_INT64_T, MPI_SUM, 0,
                            task->call->mpi->comm));
  return MILL_OK;
}

static void print_kinds(const mill_fit_task *task, const mill_kinds *kinds)
{
  const char *const name[2] = {task->device->cpu, task->device->gpu};
  for (int kind = 1; kind >= 0; kind--)
    printf("  %-10lld rows by %lld %s with %lld %s in all, %s\n", (long long)kinds->n_row[kind],
           (long long)kinds->n_rank[kind], kinds->n_rank[kind] == 1 ? "rank" : "ranks",
           (long long)kinds->n_thread[kind], kinds->n_thread[kind] == 1 ? "thread" : "threads",
           name[kind]);
}

/* Print the summary.  n_put: rows that this run wrote; balance and kinds: of all ranks. */
static void print_summary(const mill_fit_task *task, int64_t n_put, double wall_s,
                          const mill_balance *balance, const mill_kinds *kinds)
{
  const mill_result_summary *summary = &task->out->summary;
  const int outcome = task->out->outcome;
  const int64_t n_row = task->inputs->n_row;
  const int64_t n_left = summary->n_status[MILL_STATUS_NOT_DONE];
  const int64_t n_fitted = summary->n_status[MILL_STATUS_FITTED];
  if (outcome == MILL_OPEN_FINISHED)
    printf("%s is finished already; nothing was done\n", task->call->options->output);
  if (task->inputs->n_skipped > 0)
    printf("skipped      %d inputs that are done, by %s\n", task->inputs->n_skipped,
           task->call->options->input_table);
  printf("rows         %lld\n", (long long)n_row);
  if (task->setup->priors)
    printf("priors       %lld rows have priors in %s, %lld have none\n",
           (long long)task->setup->n_prior, task->setup->config.prior_table,
           (long long)(n_row - task->setup->n_prior));
  printf("fitted       %lld, of them %lld with warnings\n", (long long)n_fitted,
         (long long)summary->n_warned);
  printf("not fitted   %lld\n", (long long)(n_row - n_left - n_fitted));
  print_reasons(summary);
  if (n_fitted > 0)
    printf("velocities   %lld good (VRAD_GOOD), %lld not of stars (NO_STAR, CLASS), %lld with "
           "other warnings\n",
           (long long)summary->n_good, (long long)summary->n_not_stellar,
           (long long)(n_fitted - summary->n_good - summary->n_not_stellar));
  print_flags(summary);
  /* without an old file, --overwrite wrote to OUT.h5 itself; the next run must not overwrite it */
  if (n_left > 0)
    printf("left         %lld; give the same command again%s to continue\n", (long long)n_left,
           task->call->options->overwrite && summary->old == MILL_OLD_NONE
               ? ", without --overwrite,"
               : "");
  if (n_left > 0 && mill_stop_reason() == MILL_STOP_FILE)
    printf("             but first remove the stop file %s\n", task->setup->stop_file);
  if (task->inputs->n_unreadable > 0)
    printf("unreadable   %d of %d files, listed with the reason in /catalog/files\n",
           task->inputs->n_unreadable, task->inputs->n_file);
  if (outcome != MILL_OPEN_FINISHED)
    printf("time         %.1f s, %.1f stars/s (%d %s, %d %s each, %s)\n", wall_s,
           wall_s > 0 ? (double)n_put / wall_s : 0.0, task->call->mpi->size,
           task->call->mpi->size == 1 ? "rank" : "ranks", task->device->n_thread,
           task->device->n_thread == 1 ? "thread" : "threads", task->device->name);
  if (outcome != MILL_OPEN_FINISHED && task->device->both[0])
    print_kinds(task, kinds);
  if (task->out->work)
    print_balance(balance, task->call->mpi->size);
  print_where(task);
  if (task->call->options->models && summary->old != MILL_OLD_KEPT && outcome != MILL_OPEN_FINISHED)
    printf("models       %s%s\n", task->call->options->models,
           summary->old == MILL_OLD_WAITS ? MILL_NEW_END ", in the same way" : "");
  if (task->out->board) {
    int n_rank = 0;
    const mill_rank_state *rank = mill_board_ranks(task->out->board, &n_rank);
    mill_status_print_memory(n_rank, rank, stdout);
  }
  fflush(stdout);
}

static void warn_of_noise(const mill_fit_task *task)
{
  const mill_result_summary *summary = &task->out->summary;
  const int64_t n_odd = summary->n_info[__builtin_ctz((unsigned)MILL_INFO_NOISE)];
  const int64_t n_fitted = summary->n_status[MILL_STATUS_FITTED];
  if (task->call->mpi->rank == 0 && 2 * n_odd > n_fitted)
    mill_log_warning("%lld of %lld fitted rows have ODD_NOISE: the spectra's noise (CHISQ_NOISE) "
                     "is far from the errors in the files; check that IVAR is 1 / sigma^2, with "
                     "sigma in the flux's unit, and not sigma or sigma^2",
                     (long long)n_odd, (long long)n_fitted);
}

/* If this run took all rows (is_whole) and some arm got a spectrum, warn of arms that got none. */
static int warn_of_arms(const mill_fit_task *task, int is_whole)
{
  int arms = 0;
  MILL_CHECK_MPI(
      MPI_Reduce(&task->tally->arms, &arms, 1, MPI_INT, MPI_BOR, 0, task->call->mpi->comm));
  for (int a = 0; a < task->setup->lib.n_arm && arms != 0 && is_whole; a++)
    if (task->setup->arm_wanted[a] && !(arms & 1 << a))
      mill_log_warning("arm %s got no spectrum: the inputs have no channel for it, or the library "
                       "cannot fit it; correct the arm's channel or limits in the key `arms`",
                       task->setup->lib.arm[a].name);
  return MILL_OK;
}

int mill_fit_print_summary(const mill_fit_task *task, double fit_s)
{
  int64_t n_put = 0;
  mill_balance balance = {0};
  mill_kinds kinds = {{0}, {0}, {0}};
  MILL_CHECK_MPI(
      MPI_Reduce(&task->tally->n_put, &n_put, 1, MPI_INT64_T, MPI_SUM, 0, task->call->mpi->comm));
  if (task->out->work) /* NULL if there were no rows to fit */
    MILL_CHECK(gather_balance(task, &balance));
  if (task->device->both[0]) /* backend cuda+cpu */
    MILL_CHECK(gather_kinds(task, &kinds));
  MILL_CHECK(mill_medium_hint(task->call->mpi, &task->tally->velocities));
  const int narrow_bit = __builtin_ctz((unsigned)MILL_INFO_LSF_NARROW); /* number of the bit */
  MILL_CHECK(mill_narrow_hint(task->call->mpi, &task->setup->lib, &task->tally->narrow,
                              task->out->summary.n_info[narrow_bit],
                              task->out->summary.n_status[MILL_STATUS_FITTED]));
  const int is_whole = n_put == task->inputs->n_row;
  MILL_CHECK(
      mill_segment_hint(task->call->mpi, &task->setup->config, &task->tally->segments, is_whole));
  MILL_CHECK(warn_of_arms(task, is_whole));
  warn_of_noise(task);
  if (task->call->mpi->rank == 0 && task->out->summary.old == MILL_OLD_KEPT)
    mill_log_warning("%s was not overwritten: no row has been fitted", task->call->options->output);
  if (task->call->mpi->rank == 0 && !task->call->options->quiet)
    print_summary(task, n_put, fit_s, &balance, &kinds);
  return MILL_OK;
}
