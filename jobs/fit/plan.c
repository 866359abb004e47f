/* SPDX-License-Identifier: BSD-3-Clause */
#include <unistd.h>

#include "io/result/models_file.h"
#include "jobs/fit/steps.h"
#include "src/config/text.h"
#include "src/run/backend_choice.h"
#include "src/system/progress.h"

/* Bytes of HDF5 files apart from their data: objects, attributes, configuration. */
enum { RESULT_HEADERS = 16 << 10, COLUMN_HEADERS = 430, MODELS_HEADERS = 8 << 10 };

typedef struct totals {
  int64_t n_fits_row, n_exposure;
} totals;

static int sum_up(const mill_mpi *mpi, const mill_inputs *inputs, totals *sum)
{
  totals mine = {0};
  for (int i = 0; i < inputs->file_end - inputs->file_start; i++) {
    mine.n_fits_row += inputs->index[i].n_fits_row;
    mine.n_exposure += inputs->index[i].n_exposure;
  }
  MILL_CHECK_MPI(MPI_Reduce(&mine, sum, 2, MPI_INT64_T, MPI_SUM, 0, mpi->comm));
  return MILL_OK;
}

/* Write a size in bytes as "1.2 GB". */
static const char *size_text(double bytes, char out[32])
{
  static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  int i = 0;
  for (; bytes >= 999.5 && i < 5; i++)
    bytes /= 1000.0;
  snprintf(out, 32, "%.*f %s", i > 0 && bytes < 9.95 ? 1 : 0, bytes, unit[i]);
  return out;
}

static void print_inputs(const mill_inputs *inputs, const totals *sum, FILE *out)
{
  int64_t n_byte = 0;
  char size[32];
  for (int i = 0; i < inputs->n_file; i++)
    n_byte += inputs->file[i].size > 0 ? inputs->file[i].size : 0;
  fprintf(out, "inputs       %d %s, %s", inputs->n_file, inputs->n_file == 1 ? "file" : "files",
          size_text((double)n_byte, size));
  if (inputs->n_unreadable > 0)
    fprintf(out, "; %d cannot be read (see the log)", inputs->n_unreadable);
  fprintf(out, "\nrows         %lld in the files, %lld selected, %lld exposures\n",
          (long long)sum->n_fits_row, (long long)inputs->n_row, (long long)sum->n_exposure);
}

/* Estimate a result's bytes: rows, exposures, files (each text as the longest), HDF5 headers. */
static double result_bytes(const mill_inputs *inputs, const mill_columns *fits, int with_epochs,
                           int64_t n_exposure)
{
  mill_columns catalog;
  size_t n_path = 1, n_error = 1;
  mill_columns_of(MILL_TABLE_CATALOG, NULL, &catalog);
  for (int i = 0; i < inputs->n_file; i++) {
    const size_t path = strlen(inputs->file[i].path), error = strlen(inputs->file[i].error);
    n_path = path > n_path ? path : n_path;
    n_error = error > n_error ? error : n_error;
  }
  const size_t per_file =
      n_path + n_error + 4 * sizeof(int64_t) + 2 * sizeof inputs->file[0].format;
  return (double)inputs->n_row * (double)(fits->row_size + catalog.row_size) +
         (double)n_exposure * (2 * sizeof(int64_t) + 2 * sizeof(int32_t)) +
         (with_epochs ? (double)n_exposure * sizeof(mill_epoch_result) : 0.0) +
         (double)inputs->n_file * (double)per_file + RESULT_HEADERS +
         COLUMN_HEADERS * (double)(fits->n_column + catalog.n_column);
}

/* Describe the existing output; returns the number of its rows that a run would not fit again. */
static int64_t print_existing(const mill_fit_task *task, FILE *out)
{
  const char *path = task->call->options->output;
  const mill_result_peek *peek = &task->out->existing.peek;
  const int is_new = task->out->existing.is_new; /* begun by an earlier --overwrite */
  if (task->out->existing.error[0]) {
    fprintf(out, "existing     %s: a run would refuse it%s\n", task->out->existing.error,
            is_new ? "" : ", or replace it with --overwrite");
    return 0;
  }
  if (!task->out->existing.found)
    return 0;
  const int64_t n_left = peek->n_status[MILL_STATUS_NOT_DONE];
  if (task->call->options->overwrite && access(path, F_OK) == 0)
    fprintf(out, "existing     %s is replaced (--overwrite)\n", path);
  if (task->call->options->overwrite && !is_new)
    return 0;
  fprintf(out,
          "existing     %s has %lld of %lld rows done; a run of the same settings and inputs "
          "continues it\n",
          task->out->existing.path, (long long)(peek->n_row - n_left), (long long)peek->n_row);
  if (peek->n_row != task->inputs->n_row) /* other inputs: a run does not continue it */
    return 0;
  return task->call->options->retry_failed ? peek->n_status[MILL_STATUS_FITTED]
                                           : peek->n_row - n_left;
}

/* Return the stars/s of a rank: --rate, else the default; 0: unknown. */
static double rate_of(const mill_fit_task *task)
{
  if (task->setup->running.rate > 0)
    return task->setup->running.rate;
  if (task->device->backend->kind != MILL_BACKEND_CPU)
    return 0;
  return mill_usual_core_rate(task->setup->config.fit.optimizer) * task->device->n_thread;
}

static void print_time(const mill_fit_task *task, int n_rank, const mill_schedule_sum *sum,
                       int64_t n_done, FILE *out)
{
  char text[16];
  const int64_t n_row = task->inputs->n_row;
  const int optimizer = task->setup->config.fit.optimizer;
  const double rate = rate_of(task);
  if (rate <= 0) {
    fprintf(out,
            "time         unknown for %s: give the stars per second of a rank with --rate "
            "(starmill bench fit measures it)\n",
            task->device->backend->name);
    return;
  }
  const double left = n_row > 0 ? (double)(n_row - n_done) / (double)n_row : 0.0;
  mill_progress_eta(left * (sum->row_cost + sum->open_cost) / (rate * n_rank), text, sizeof text);
  fprintf(out, "time         about %s for %lld rows: %d %s of %.4g stars/s", text,
          (long long)(n_row - n_done), n_rank, n_rank == 1 ? "rank" : "ranks", rate);
  if (task->setup->running.rate > 0)
    fputs(" (as given)\n", out);
  else
    fprintf(out,
            "\n             (a default: %.0f stars/s a core with %s, measured with DESI coadds on "
            "one core of a Xeon with\n             AVX-512, times %d %s; starmill bench fit "
            "measures yours, --rate takes it)\n",
            mill_usual_core_rate(optimizer), mill_config_key_of("optimizer")->words[optimizer],
            task->device->n_thread, task->device->n_thread == 1 ? "thread" : "threads");
}

static void print_work(const mill_schedule_sum *sum, int n_rank, FILE *out)
{
  const int64_t n_draw = sum->n_chunk < n_rank ? sum->n_chunk : n_rank;
  fprintf(out, "work         %d %s %lld %s", n_rank, n_rank == 1 ? "rank draws" : "ranks draw",
          (long long)sum->n_chunk, sum->n_chunk == 1 ? "chunk" : "chunks");
  if (sum->n_chunk >= n_rank)
    fprintf(out, ", about %.0f rows each rank\n", ceil((double)sum->n_row / (double)n_rank));
  else
    fprintf(out, "; %lld of the ranks would be idle\n", (long long)(n_rank - n_draw));
}

static int print_plan(const mill_fit_task *task, const totals *sum, int n_rank, FILE *out)
{
  const mill_inputs *inputs = task->inputs;
  MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = NULL;
  mill_schedule_sum work_sum;
  MILL_OWNED mill_columns *columns = NULL;
  char size[32];
  const double rate = rate_of(task);
  const mill_work_plan work = {.inputs = inputs,
                               .rate = rate > 0 ? rate : mill_usual_gpu_rate(),
                               .n_held = mill_fit_held_rows(task->device)};
  const int with =
      (task->setup->config.fit.velocity_offsets ? MILL_WITH_OFFSETS : 0) |
      (strcmp(task->setup->config.backend, MILL_BACKEND_MIXED) == 0 ? MILL_WITH_BACKEND : 0) |
      (task->setup->config.fit.epochs ? MILL_WITH_EPOCHS : 0) |
      (task->setup->config.fit.binaries ? MILL_WITH_BINARIES : 0) |
      (task->setup->config.n_template_lib > 1 ? MILL_WITH_LIBRARY : 0);
  MILL_CHECK(MILL_ALLOC(1, &columns));
  MILL_CHECK(mill_columns_fits(&task->setup->lib, task->setup->lib.path, with, columns));
  MILL_CHECK(mill_work_schedule(&work, n_rank, &schedule));
  mill_schedule_sums(schedule, &work_sum);
  fputs("plan         nothing is written\n", out);
  print_inputs(inputs, sum, out);
  const int is_mixed = (with & MILL_WITH_BACKEND) != 0;
  if (is_mixed)
    fputs("work         depends on how many of the ranks have a GPU, and so does the time\n", out);
  else
    print_work(&work_sum, n_rank, out);
  fprintf(out, "ranks        %d %s each, %s\n", task->device->n_thread,
          task->device->n_thread == 1 ? "thread" : "threads", task->device->backend->name);
  const int64_t n_done = print_existing(task, out);
  if (!is_mixed)
    print_time(task, n_rank, &work_sum, n_done, out);
  fprintf(out, "result       %s, about %s\n", task->call->options->output,
          size_text(result_bytes(inputs, columns, with & MILL_WITH_EPOCHS, sum->n_exposure), size));
  const double n_exposure = (double)sum->n_exposure;
  double models_bytes = MODELS_HEADERS + MILL_MODELS_ROW_BYTES * n_exposure;
  for (int a = 0; a < MILL_MAX_ARM; a++) /* a flux has 4 bytes, a wavelength 8, once if shared */
    models_bytes += (double)inputs->n_pix[a] *
                    (inputs->wave_aa[a] ? 8.0 + 4.0 * n_exposure : 12.0 * n_exposure);
  if (task->call->options->models)
    fprintf(out, "models       %s, about %s\n", task->call->options->models,
            size_text(models_bytes, size));
  return mill_text_flush(out, "the plan");
}

int mill_fit_print_plan(const mill_fit_task *task)
{
  totals sum = {0};
  const mill_mpi *mpi = task->call->mpi;
  const int n_rank = task->setup->running.n_rank;
  MILL_CHECK(sum_up(mpi, task->inputs, &sum));
  return mill_mpi_agree(mpi, mpi->rank == 0
                                 ? print_plan(task, &sum, n_rank > 0 ? n_rank : mpi->size, stdout)
                                 : MILL_OK);
}
