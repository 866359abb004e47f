/* What the tasks of `starmill bench` share. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/library/library_file.h"
#include "io/surveys/spectra.h"
#include "jobs/bench/bench_job.h"
#include "jobs/bench/bench_options.h"
#include "kernels/base/error.h"
#include "src/system/stop_signal.h"
#include "src/system/version.h"

int mill_bench_one_rank(const mill_bench *job)
{
  if (job->mpi.size > 1)
    return MILL_ERROR(MILL_ERR_USAGE, "bench measures one rank, not %d: run it without mpirun",
                      job->mpi.size);
  return MILL_OK;
}

int mill_bench_open_library(mill_bench *job)
{
  const char *path = job->config.template_lib;
  if (path[0] == '\0')
    return MILL_ERROR(MILL_ERR_USAGE,
                      "no library: give --library FILE or template_lib in the configuration");
  MILL_CHECK(mill_stop_signal_catch());
  MILL_CHECK(mill_library_read(path, &job->lib));
  MILL_CHECK(mill_config_cut_arms(&job->config, &job->lib));
  return mill_config_bind(&job->config, &job->lib);
}

void mill_bench_print_head(const mill_bench *job, const char *backend)
{
  printf("Measured on %.10s with starmill %s, revision %s (%s), on %s, %d cores", job->date,
         mill_version(), mill_version_revision(), mill_version_compiler(), job->cpu, job->n_core);
  if (backend)
    printf(", backend %s", backend);
  printf(".\n\n```\n%s\n```\n\n", job->command);
}

int mill_bench_keep_crossover(const mill_bench *job, int kind, int64_t from, int n_thread,
                              const char *gpu)
{
  char path[MILL_CROSSOVER_PATH];
  mill_crossover line = {.kind = kind, .from = from, .n_thread = n_thread};
  if (!gpu) {
    printf("\nNothing is kept for --backend auto: no GPU was measured.\n");
    return MILL_OK;
  }
  MILL_CHECK(mill_crossover_path(path));
  snprintf(line.date, sizeof line.date, "%s", job->date);
  snprintf(line.revision, sizeof line.revision, "%s", mill_version_revision());
  snprintf(line.gpu, sizeof line.gpu, "%s", gpu);
  snprintf(line.cpu, sizeof line.cpu, "%s", job->cpu);
  MILL_CHECK(mill_crossover_keep(path, &line));
  printf("\nKept for --backend auto in %s.\n", path);
  return MILL_OK;
}

void mill_bench_print_cell(int there, int n_digit, double value, const char *without)
{
  if (there)
    printf(" %.*f |", n_digit, value);
  else
    printf("%s%s |", without[0] ? " " : "", without);
}

int mill_bench_open_json(const mill_bench *job, mill_json *json)
{
  *json = (mill_json){.out = fopen(job->options.json, "w"), .n_digit = 17};
  if (!json->out)
    return MILL_ERROR(MILL_ERR_OUTPUT, "--json %s cannot be written: %s", job->options.json,
                      strerror(errno));
  mill_json_open(json, NULL, '{');
  mill_json_text(json, "version", mill_version());
  mill_json_text(json, "revision", mill_version_revision());
  mill_json_text(json, "compiler", mill_version_compiler());
  mill_json_text(json, "date", job->date);
  mill_json_text(json, "command", job->command);
  mill_json_text(json, "cpu", job->cpu);
  mill_json_integer(json, "cores", job->n_core);
  return MILL_OK;
}

int mill_bench_close_json(const mill_bench *job, mill_json *json)
{
  int err = MILL_OK;
  while (json->depth > 0)
    err = mill_json_close(json);
  if (fclose(json->out) != 0 || err == MILL_ERR_OUTPUT)
    MILL_FAIL(MILL_ERR_OUTPUT, "--json %s cannot be written: the disk may be full",
              job->options.json);
done:
  return err;
}

int mill_bench_reader_counts(const mill_bench *job, int *count, int *n_count)
{
  int most = job->config.n_reader;
  *n_count = 0;
  if (most == 0)
    MILL_CHECK(mill_mpi_share_of_cores(&job->mpi, &most));
  if (most > MILL_MAX_READER)
    most = MILL_MAX_READER;
  if (!mill_spectra_threads())
    most = 1;
  for (int n = 1; n < most; n *= 2)
    count[(*n_count)++] = n;
  count[(*n_count)++] = most;
  return MILL_OK;
}

int mill_bench_take_list(const mill_option *row, const char *text, void *base)
{
  char number[32];
  int *list = (int *)(void *)((char *)base + row->offset);
  int *n = (int *)(void *)((char *)base + row->offset2);
  const mill_option one = {.kind = MILL_OPTION_COUNT, .min = 1, .max = row->max};
  *n = 0;
  while (*text) {
    const size_t length = strcspn(text, ",");
    if (*n == MILL_BENCH_MAX_LIST || length >= sizeof number)
      return MILL_ERROR(MILL_ERR_USAGE, "--%s takes up to %d numbers with commas between",
                        row->name, MILL_BENCH_MAX_LIST);
    memcpy(number, text, length);
    number[length] = '\0';
    MILL_CHECK(mill_option_read(&one, row->name, number, &list[(*n)++]));
    text += length + (text[length] == ',');
  }
  return MILL_OK;
}

int mill_bench_check_list(const char *option, int n, const int *list, int least)
{
  for (int i = 0; i < n; i++)
    if (list[i] < least || (i > 0 && list[i] <= list[i - 1]))
      return MILL_ERROR(MILL_ERR_USAGE, "--%s takes ascending numbers from %d on", option, least);
  return MILL_OK;
}
