#include <stdio.h>
#include <string.h>

#include "jobs/bench/bench_job.h"
#include "io/stars/inputs.h"
#include "io/stars/reader.h"
#include "io/stars/work.h"
#include "jobs/options/job_steps.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/ranks/usual_rate.h"
#include "src/system/stop_signal.h"

/* One time through the inputs. */
typedef struct pass {
  int64_t n_row, n_unreadable, n_byte; /* bytes of what was handed over, as floats and masks */
  double wall_s, cpu_s;
} pass;

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

static int read_once(const mill_bench *job, const mill_inputs *inputs, int n_thread, pass *p)
{
  int err = MILL_OK;
  mill_reader *reader = NULL;
  mill_work *work = NULL;
  mill_batch *batch = NULL;
  const mill_work_plan plan = {
      .inputs = inputs,
      .n_row_limit = job->options.n_star,
      .rate = mill_usual_gpu_rate(),
      .n_held = mill_reader_rows_ahead(n_thread),
      .n_ahead = mill_reader_rows_ahead(n_thread),
  };
  memset(p, 0, sizeof *p);
  MILL_TRY(mill_work_open(&job->mpi, &plan, &work));
  const mill_reader_plan reading = {
      .inputs = inputs,
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
static int measure(const mill_bench *job, const mill_inputs *inputs, int n_thread, pass *best)
{
  pass p;
  for (int i = 0; i < job->options.n_repeat; i++) {
    MILL_CHECK(read_once(job, inputs, n_thread, &p));
    if (i == 0 || p.wall_s < best->wall_s)
      *best = p;
  }
  return MILL_OK;
}

static int measure_all(const mill_bench *job, const mill_inputs *inputs)
{
  int count[MILL_BENCH_READER_COUNTS], n_count = 0;
  pass p;
  MILL_CHECK(mill_bench_reader_counts(job, count, &n_count));
  printf("| reader threads | rows | s | rows/s | MB/s of pixels | CPU ms a row |\n"
         "|---:|---:|---:|---:|---:|---:|\n");
  MILL_CHECK(read_once(job, inputs, count[n_count - 1], &p)); /* into the page cache */
  for (int i = 0; i < n_count; i++) {
    MILL_CHECK(measure(job, inputs, count[i], &p));
    const double n = (double)p.n_row;
    printf("| %d | %.0f | %.3f | %.0f | %.0f | %.3f |\n", count[i], n, p.wall_s, n / p.wall_s,
           1e-6 * (double)p.n_byte / p.wall_s, 1e3 * p.cpu_s / n);
    MILL_CHECK(mill_job_flush("the table"));
  }
  if (p.n_unreadable > 0)
    printf("\nOf the rows %lld could not be read.\n", (long long)p.n_unreadable);
  return MILL_OK;
}

int mill_bench_task_read(mill_bench *job)
{
  int err = MILL_OK, arm_wanted[MILL_MAX_ARM] = {0};
  mill_inputs inputs = {0};
  mill_input_request request;
  MILL_TRY(mill_bench_open_library(job));
  MILL_TRY(mill_config_arms(&job->config, &job->lib, arm_wanted));
  const double start_s = mill_wall_s();
  mill_fit_options_inputs(&job->options.fit, &request);
  MILL_TRY(
      mill_inputs_index(&job->mpi, &request, &job->config, &job->lib, arm_wanted, NULL, &inputs));
  const double index_s = mill_wall_s() - start_s;
  mill_inputs_drop_index(&inputs);
  if (inputs.n_row == 0)
    MILL_FAIL(MILL_ERR_USAGE, "the inputs have no row that is selected");
  mill_bench_print_head(job, NULL);
  printf("%lld rows in %d files, indexed in %.3f s; nothing is fitted.\n\n",
         (long long)inputs.n_row, inputs.n_file, index_s);
  MILL_TRY(measure_all(job, &inputs));
done:
  mill_inputs_clear(&inputs);
  return err;
}
