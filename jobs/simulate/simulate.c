#include "jobs/simulate/simulate.h"

#include <stdio.h>
#include <string.h>

#include "io/library/library_file.h"
#include "jobs/options/job_steps.h"
#include "jobs/simulate/simulate_files.h"
#include "jobs/simulate/simulate_folder.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"

typedef struct simulate_job {
  mill_mpi mpi;
  mill_simulate_plan plan;
  mill_lock lock; /* rank 0 */
  int n_thread;
} simulate_job;

static int load_library(void *context)
{
  simulate_job *job = context;
  const char *path = job->plan.options.library;
  return mill_library_read(path, &job->plan.lib);
}

/* What the library or the settings do not allow is told before a survey is removed or a
 * folder made.  Without the templates, which take time. */
static int check_survey(const mill_simulate_plan *plan)
{
  mill_mock_settings mock = plan->options.mock;
  mill_mock_survey *survey = NULL;
  mock.n_template = 0;
  const int err = mill_mock_survey_create(&mock, mill_simulate_library(plan), 1, 0, 1, &survey);
  mill_mock_survey_destroy(survey);
  return err;
}

static int set_up(simulate_job *job)
{
  int err = MILL_OK;
  MILL_TRY(mill_job_begin(&job->mpi));
  if (mill_simulate_library(&job->plan))
    MILL_TRY(mill_mpi_rank0_first(&job->mpi, load_library, job));
  err = mill_simulate_plan_make(&job->plan);
  if (err == MILL_OK && job->mpi.rank == 0)
    err = check_survey(&job->plan);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  job->n_thread = job->plan.options.n_thread;
  if (job->n_thread == 0)
    MILL_TRY(mill_mpi_share_of_cores(&job->mpi, &job->n_thread));
done:
  return err;
}

static void print_size(const mill_simulate_size *size)
{
  printf("bytes        %lld (%.3f GB)\n", (long long)size->n_byte, (double)size->n_byte / 1e9);
}

static void print_plan(const mill_simulate_plan *plan, const mill_simulate_size *size)
{
  double n_free = 0;
  int is_new = 0;
  const char *folder = plan->options.output;
  const int n_row = (int)mill_simulate_rows(plan, 0);
  const int n_last = (int)mill_simulate_rows(plan, plan->n_file - 1);
  printf("stars        %lld\n", (long long)plan->options.mock.n_star);
  printf("files        %d, %s%s, of %d rows", plan->n_file, plan->coadd[0],
         plan->n_file > 1 ? " and so on" : "", n_row);
  if (n_last != n_row)
    printf(", the last of %d", n_last);
  printf("%s\n", plan->options.redrock ? ", each with a redrock file" : "");
  print_size(size);
  if (folder && mill_simulate_folder_check(folder, &is_new) == MILL_OK && !is_new &&
      mill_simulate_folder_free(folder, &n_free) == MILL_OK)
    printf("free         %.3f GB in %s\n", n_free / 1e9, folder);
  printf("nothing was written: leave out --plan for that\n");
  fflush(stdout);
}

static void print_summary(const simulate_job *job, const mill_simulate_size *size, int complete,
                          double wall_s)
{
  char path[MILL_MAX_PATH];
  const mill_simulate_plan *plan = &job->plan;
  if (complete)
    printf("%s is complete already; nothing was done\n", plan->options.output);
  printf("stars        %lld\n", (long long)plan->options.mock.n_star);
  printf("files        %d", plan->n_file);
  if (!complete && size->n_file_kept > 0)
    printf(", of them %lld were there already", (long long)size->n_file_kept);
  printf("\n");
  print_size(size);
  if (!complete)
    printf("time         %.1f s, %.1f stars/s (%d %s, %d %s each)\n", wall_s,
           wall_s > 0 ? (double)size->n_row_left / wall_s : 0.0, job->mpi.size,
           job->mpi.size == 1 ? "rank" : "ranks", job->n_thread,
           job->n_thread == 1 ? "thread" : "threads");
  mill_simulate_path(plan, MILL_SIMULATE_TRUTH, path);
  printf("truth        %s\n", path);
  mill_simulate_path(plan, MILL_SIMULATE_CATALOG, path);
  printf("to fit it    starmill fit --library %s --catalog %s --output RESULT.h5\n",
         mill_simulate_library(plan) ? plan->options.library : "LIB.h5", path);
  fflush(stdout);
}

static int make_survey(simulate_job *job)
{
  int complete = 0;
  mill_simulate_size size = {0};
  const mill_simulate_plan *plan = &job->plan;
  const double start_s = mill_wall_s();
  MILL_CHECK(set_up(job));
  if (plan->options.plan) {
    MILL_CHECK(mill_simulate_plan_size(plan, &size));
    if (job->mpi.rank == 0)
      print_plan(plan, &size);
    return MILL_OK;
  }
  MILL_CHECK(mill_simulate_folder_prepare(&job->mpi, plan, &job->lock, &size, &complete));
  if (!complete)
    MILL_CHECK(mill_simulate_files_make(&job->mpi, plan, job->n_thread, size.n_row_mine));
  if (job->mpi.rank == 0 && !plan->options.quiet)
    print_summary(job, &size, complete, mill_wall_s() - start_s);
  return MILL_OK;
}

static int start(simulate_job *job, int argc, char **argv)
{
  MILL_CHECK(mill_simulate_options_parse(argc, argv, &job->plan.options));
  if (mill_option_helped(job->plan.options.help, job->mpi.rank, mill_simulate_help.table,
                         mill_simulate_help.usual))
    return MILL_OK;
  return make_survey(job);
}

static int run(const mill_mpi *mpi, int argc, char **argv)
{
  simulate_job job;
  memset(&job, 0, sizeof job);
  job.mpi = *mpi;
  const int err = start(&job, argc, argv);
  mill_log_close();
  mill_lock_release(&job.lock);
  mill_simulate_plan_clear(&job.plan);
  return err;
}

int mill_job_simulate(int argc, char **argv)
{
  return mill_mpi_job("starmill simulate", run, argc, argv);
}
