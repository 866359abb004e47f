#include "jobs/bench/bench_read.h"

#include <stdio.h>
#include <string.h>

#include "jobs/bench/bench_batch.h"
#include "jobs/bench/bench_report.h"
#include "jobs/fit/inputs.h"
#include "jobs/fit/reader.h"
#include "jobs/fit/work.h"
#include "kernels/base/error.h"
#include "kernels/base/clock.h"
#include "src/system/stop_signal.h"
#include "src/ranks/usual_rate.h"

typedef struct bench_read {
  const mill_mpi *mpi;
  const mill_bench_options *options;
  mill_config config;
  mill_library lib;
  mill_inputs inputs;
  double index_s;
} bench_read;

/* One time through the inputs. */
typedef struct pass {
  int64_t n_row, n_unreadable, n_byte; /* bytes of what was handed over, as floats and masks */
  double wall_s, cpu_s;
} pass;

static int set_up(bench_read *job)
{
  int err = MILL_OK, arm_wanted[MILL_MAX_ARM] = {0};
  MILL_TRY(mill_bench_open(job->options, &job->config, &job->lib));
  MILL_TRY(mill_config_arms(&job->config, &job->lib, arm_wanted));
  const double start_s = mill_wall_s();
  MILL_TRY(mill_inputs_index(job->mpi, &job->options->fit, &job->config, &job->lib, arm_wanted,
                             NULL, &job->inputs));
  job->index_s = mill_wall_s() - start_s;
  mill_inputs_drop_index(&job->inputs);
  if (job->inputs.n_row == 0)
    MILL_FAIL(MILL_ERR_USAGE, "the inputs have no row that is selected");
done:
  return err;
}

static void count(const mill_batch *batch, pass *p)
{
  p->n_row += batch->n_row;
  if (batch->error[0])
    p->n_unreadable += batch->n_row;
  for (int i = 0; i < batch->n_segment; i++) {
    const mill_read_segment *s = &batch->segment[i].read;
    if (s->use == MILL_SEGMENT_FIT)
      p->n_byte += (int64_t)s->n_pix *
                   (int64_t)((s->flux != NULL) + (s->ivar != NULL) + (s->mask != NULL) +
                             (s->sigma_aa != NULL) + (s->resolution ? s->n_diag : 0)) *
                   4;
  }
}

static int read_once(const bench_read *job, int n_thread, pass *p)
{
  int err = MILL_OK;
  mill_reader *reader = NULL;
  mill_work *work = NULL;
  mill_batch *batch = NULL;
  const mill_work_plan plan = {
      .n_file = job->inputs.n_file,
      .file = job->inputs.file,
      .n_exposure = job->inputs.n_exposure,
      .n_row_limit = job->options->n_star,
      .rate = mill_usual_gpu_rate(),
      .n_held = mill_reader_rows_ahead(n_thread),
      .n_ahead = mill_reader_rows_ahead(n_thread),
  };
  memset(p, 0, sizeof *p);
  MILL_TRY(mill_work_open(job->mpi, &plan, &work));
  const mill_reader_plan reading = {
      .settings = job->inputs.settings,
      .n_file = job->inputs.n_file,
      .file = job->inputs.file,
      .exposure_start = job->inputs.exposure_start,
      .join = job->inputs.join,
      .work = work,
      .n_thread = n_thread,
  };
  const double start_s = mill_wall_s();
  MILL_TRY(mill_reader_start(&reading, &reader));
  for (;;) {
    MILL_TRY(mill_reader_next(reader, &batch));
    if (!batch)
      break;
    count(batch, p);
    mill_reader_release(reader, batch);
    if (mill_stop_signal_seen())
      MILL_FAIL(MILL_ERR_STOPPED, "signal %d: stopped", mill_stop_signal_seen());
  }
  p->wall_s = mill_wall_s() - start_s;
  p->cpu_s = mill_reader_cpu_s(reader);
  MILL_TRY(mill_work_settle(work));
done:
  mill_reader_stop(reader);
  mill_work_free(work);
  return err;
}

/* The quickest of several passes. */
static int measure(const bench_read *job, int n_thread, pass *best)
{
  int err = MILL_OK;
  pass p;
  for (int i = 0; i < job->options->n_repeat; i++) {
    MILL_TRY(read_once(job, n_thread, &p));
    if (i == 0 || p.wall_s < best->wall_s)
      *best = p;
  }
done:
  return err;
}

static int print_line(int n_thread, const pass *p)
{
  const double n = (double)p->n_row;
  printf("| %d | %.0f | %.3f | %.0f | %.0f | %.3f |\n", n_thread, n, p->wall_s, n / p->wall_s,
         1e-6 * (double)p->n_byte / p->wall_s, 1e3 * p->cpu_s / n);
  return mill_bench_flush(stdout);
}

int mill_bench_reader_counts(const mill_mpi *mpi, int most, int *count, int *n_count)
{
  int err = MILL_OK;
  *n_count = 0;
  if (most == 0)
    MILL_TRY(mill_mpi_share_of_cores(mpi, &most));
  if (most > MILL_MAX_READER)
    most = MILL_MAX_READER;
  if (!mill_spectra_threads())
    most = 1;
  for (int n = 1; n < most; n *= 2)
    count[(*n_count)++] = n;
  count[(*n_count)++] = most;
done:
  return err;
}

static int print_all(const bench_read *job, const char *command)
{
  int err = MILL_OK, count[MILL_BENCH_READER_COUNTS], n_count = 0;
  mill_bench_report report;
  pass p;
  memset(&report, 0, sizeof report);
  mill_bench_describe(&report);
  MILL_TRY(mill_bench_reader_counts(job->mpi, job->config.n_reader, count, &n_count));
  mill_bench_print_head(&report, command, stdout);
  printf("%lld rows in %d files, indexed in %.3f s; nothing is fitted.\n\n",
         (long long)job->inputs.n_row, job->inputs.n_file, job->index_s);
  printf("| reader threads | rows | s | rows/s | MB/s of pixels | CPU ms a row |\n");
  printf("|---:|---:|---:|---:|---:|---:|\n");
  MILL_TRY(read_once(job, count[n_count - 1], &p)); /* into the page cache */
  for (int i = 0; i < n_count; i++) {
    MILL_TRY(measure(job, count[i], &p));
    MILL_TRY(print_line(count[i], &p));
  }
  if (p.n_unreadable > 0)
    printf("\nOf the rows %lld could not be read.\n", (long long)p.n_unreadable);
done:
  return err;
}

int mill_bench_read(const mill_mpi *mpi, const mill_bench_options *options, const char *command)
{
  int err = MILL_OK;
  bench_read job;
  memset(&job, 0, sizeof job);
  job.mpi = mpi;
  job.options = options;
  MILL_TRY(set_up(&job));
  MILL_TRY(print_all(&job, command));
done:
  mill_inputs_clear(&job.inputs);
  mill_library_clear(&job.lib);
  mill_config_clear(&job.config);
  return err;
}
