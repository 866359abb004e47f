/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/simulate/simulate.h"

#include <stdio.h>
#include <string.h>

#include "jobs/options/job_steps.h"
#include "jobs/simulate/simulate_files.h"
#include "jobs/simulate/simulate_folder.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/system/log.h"
#include "src/system/shipped_file.h"

typedef struct simulate_job {
  mill_mpi mpi;
  mill_simulate_plan plan;
  mill_lock lock; /* rank 0 */
  int n_thread;
} simulate_job;

static int load_library(void *context)
{
  simulate_job *job = context;
  return mill_simulate_library_read(&job->plan);
}

static int set_up(simulate_job *job)
{
  MILL_CHECK(mill_job_begin(&job->mpi));
  MILL_CHECK(mill_mpi_rank0_first(&job->mpi, load_library, job));
  /* errors of the library are reported before a survey is removed or a folder made */
  MILL_CHECK(mill_mpi_agree(&job->mpi, mill_simulate_plan_make(&job->plan)));
  job->n_thread = job->plan.options.n_thread;
  if (job->n_thread == 0)
    MILL_CHECK(mill_mpi_share_of_cores(&job->mpi, &job->n_thread));
  return MILL_OK;
}

static void print_summary(const simulate_job *job, const mill_simulate_count *count, int complete,
                          double wall_s)
{
  char path[MILL_MAX_PATH], config[MILL_MAX_PATH] = "";
  const mill_simulate_plan *plan = &job->plan;
  if (complete)
    printf("%s is complete already; nothing was done\n", plan->options.output);
  printf("stars        %lld\n", (long long)plan->options.mock.n_star);
  printf("files        %d", plan->n_file);
  if (!complete && count->n_file_kept > 0)
    printf(", %lld of them already done", (long long)count->n_file_kept);
  printf("\nlibrary      %s\n", plan->library);
  if (!complete)
    printf("time         %.1f s, %.1f stars/s (%d %s, %d %s each)\n", wall_s,
           wall_s > 0 ? (double)count->n_row / wall_s : 0.0, job->mpi.size,
           job->mpi.size == 1 ? "rank" : "ranks", job->n_thread,
           job->n_thread == 1 ? "thread" : "threads");
  mill_simulate_path(plan, MILL_SIMULATE_TRUTH, path);
  printf("truth        %s\n", path);
  mill_simulate_path(plan, MILL_SIMULATE_CATALOG, path);
  if (plan->was_cut) /* a fit must cut it the same way */
    mill_shipped_file("config/desi-arms.yaml", config, sizeof config);
  printf("to fit it    starmill fit --library %s%s%s --catalog %s --output RESULT.h5\n",
         plan->library, config[0] ? " --config " : "", config, path);
  fflush(stdout);
}

static int make_survey(simulate_job *job)
{
  int complete = 0;
  mill_simulate_count count = {0};
  const mill_simulate_plan *plan = &job->plan;
  const double start_s = mill_wall_s();
  MILL_CHECK(set_up(job));
  MILL_CHECK(mill_simulate_folder_prepare(&job->mpi, plan, &job->lock, &complete));
  if (!complete)
    MILL_CHECK(mill_simulate_files_make(&job->mpi, plan, job->n_thread, &count));
  if (job->mpi.rank == 0 && !plan->options.quiet)
    print_summary(job, &count, complete, mill_wall_s() - start_s);
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
