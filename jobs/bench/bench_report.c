#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */

#include "jobs/bench/bench_report.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "src/system/cpu_model.h"
#include "src/system/version.h"

#define STAGE_NAME(symbol, name) [symbol] = (name),
static const char *const stage_name[] = {MILL_BENCH_STAGE_LIST(STAGE_NAME)};
#undef STAGE_NAME

/* The phase of a backend that a stage is, -1: of the host. */
static int phase_of(int stage)
{
  switch (stage) {
  case MILL_BENCH_PREPARE:
    return MILL_PHASE_PREPARE;
  case MILL_BENCH_GUESS:
    return MILL_PHASE_GUESS;
  case MILL_BENCH_SIMPLEX:
    return MILL_PHASE_SIMPLEX;
  case MILL_BENCH_POLISH:
    return MILL_PHASE_POLISH;
  case MILL_BENCH_PROFILE:
    return MILL_PHASE_PROFILE;
  case MILL_BENCH_FINAL:
    return MILL_PHASE_FINAL;
  default:
    return -1;
  }
}

void mill_bench_split(mill_bench_run *run)
{
  const mill_fit_meters *c = &run->meters;
  run->once_s = c->library_s + c->index_s + c->create_s + c->model_s + c->waveset_s + c->close_s;
  run->star_s = c->cpu_s - run->once_s;
  run->stage_s[MILL_BENCH_READ] = c->read_s;
  run->stage_s[MILL_BENCH_LOAD] = c->load_s;
  run->stage_s[MILL_BENCH_WRITE] = c->put_s + c->io_s;
  double rest = run->star_s;
  for (int s = 0; s < MILL_BENCH_OTHER; s++) {
    const int phase = phase_of(s);
    if (phase >= 0)
      run->stage_s[s] = c->timing.emulate_s[phase] + c->timing.pixel_s[phase];
    rest -= run->stage_s[s];
  }
  run->stage_s[MILL_BENCH_OTHER] = rest;
}

void mill_bench_describe(mill_bench_report *report)
{
  cpu_set_t cores;
  const time_t now = time(NULL);
  struct tm utc;
  if (gmtime_r(&now, &utc))
    strftime(report->date, sizeof report->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  report->n_core = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
  mill_cpu_model(report->cpu, sizeof report->cpu);
}

/* ---- Markdown ---- */

static void print_gemm(FILE *out, const char *what, const mill_gemm_rate *rate)
{
  if (rate->gflop_s > 0.0)
    fprintf(out, "| %s, %d × %d × %d | %.1f GFLOP/s |\n", what, rate->m, rate->k, rate->n,
            rate->gflop_s);
}

static void print_rates(FILE *out, const mill_bench_rates *r)
{
  fprintf(out, "| rate of one core | |\n|---|---|\n");
  print_gemm(out, "sgemm", &r->sgemm_square);
  print_gemm(out, "sgemm, last layer of the emulator", &r->sgemm_last);
  print_gemm(out, "dgemm", &r->dgemm_square);
  print_gemm(out, "dgemm, before the last layer", &r->dgemm_hidden);
  fprintf(out, "| copy within L2, buffers of %.0f KiB, bytes read and written | %.1f GB/s |\n",
          (double)r->copy_cache_bytes / 1024.0, r->copy_cache_gbyte_s);
  fprintf(out, "| copy, buffers of %.0f MiB | %.1f GB/s |\n",
          (double)r->copy_memory_bytes / 1048576.0, r->copy_memory_gbyte_s);
  if (r->read_gbyte_s > 0.0)
    fprintf(out, "| reading the inputs from the page cache | %.1f GB/s |\n", r->read_gbyte_s);
}

/* Less than a microsecond a star is no floor to compare a stage with: reading the clock takes
 * as long. */
static double shown_floor_s(double floor_s, double n_star)
{
  return floor_s < 1e-6 * n_star ? 0.0 : floor_s;
}

/* Time per star over its floor; a stage without one has no ratio. */
static void print_ratio(FILE *out, double spent_s, double floor_s)
{
  if (floor_s > 0.0)
    fprintf(out, spent_s < 1000.0 * floor_s ? " %.1f |\n" : " %.0f |\n", spent_s / floor_s);
  else
    fprintf(out, " – |\n");
}

static void print_stages(FILE *out, const mill_bench_series *series, const mill_bench_rates *rates)
{
  const mill_bench_run *run = &series->run[series->median];
  const mill_timing *t = &run->meters.timing;
  const double n = (double)run->shape.n_star;
  double floor_s = 0.0, mflop = 0.0;
  int64_t n_value = 0, n_jacobian = 0;
  fprintf(out, "\n%s, a star:\n\n", series->optimizer);
  fprintf(out, "| stage | values | Jacobians | MFLOP | core-ms | of it emulator | floor, ms | "
               "bound by | time/floor |\n|---|---|---|---|---|---|---|---|---|\n");
  for (int s = 0; s < MILL_BENCH_N_STAGE; s++) {
    const int phase = phase_of(s);
    const mill_bench_work *w = &series->work[s];
    const double flop = w->f32 + w->f64;
    int by_traffic = 0;
    const double least_s = mill_bench_floor_s(w, rates, &by_traffic);
    const double shown_s = shown_floor_s(least_s, n);
    fprintf(out, "| %s |", stage_name[s]);
    if (phase >= 0 && t->n_value[phase] + t->n_jacobian[phase] > 0) {
      fprintf(out, " %.2f | %.2f |", (double)t->n_value[phase] / n,
              (double)t->n_jacobian[phase] / n);
      n_value += t->n_value[phase];
      n_jacobian += t->n_jacobian[phase];
    } else
      fprintf(out, " | |");
    if (flop > 0.0)
      fprintf(out, " %.2f |", 1e-6 * flop / n);
    else
      fprintf(out, " |");
    fprintf(out, " %.3f |", 1e3 * run->stage_s[s] / n);
    if (phase >= 0 && t->emulate_s[phase] > 0.0)
      fprintf(out, " %.3f |", 1e3 * t->emulate_s[phase] / n);
    else
      fprintf(out, " |");
    if (shown_s > 0.0)
      fprintf(out, " %.4f | %s |", 1e3 * shown_s / n, by_traffic ? "bytes" : "arithmetic");
    else
      fprintf(out, " | |");
    print_ratio(out, run->stage_s[s], shown_s);
    floor_s += least_s;
    mflop += 1e-6 * flop;
  }
  fprintf(out, "| total | %.2f | %.2f | %.2f | %.3f | | %.4f | |", (double)n_value / n,
          (double)n_jacobian / n, mflop / n, 1e3 * run->star_s / n, 1e3 * floor_s / n);
  print_ratio(out, run->star_s, floor_s);
  if (t->n_velocity > 0)
    fprintf(out, "\nThe profile's values stand for %.1f velocities.\n", (double)t->n_velocity / n);
}

static void print_overview(FILE *out, const mill_bench_report *report)
{
  fprintf(out, "\n| optimizer | stars | stars per core-second | stars/s | core-ms a star | "
               "all runs | evaluations a star | of them Jacobians |\n"
               "|---|---|---|---|---|---|---|---|\n");
  for (int i = 0; i < report->n_series; i++) {
    const mill_bench_series *series = &report->series[i];
    const mill_bench_run *run = &series->run[series->median];
    const mill_fit_meters *c = &run->meters;
    const double n = (double)run->shape.n_star;
    double least = INFINITY, most = 0.0;
    for (int r = 0; r < series->n_run; r++) {
      const double each = series->run[r].star_s / (double)series->run[r].shape.n_star;
      least = fmin(least, each);
      most = fmax(most, each);
    }
    fprintf(out, "| %s | %lld | %.1f | %.1f | %.2f | %.2f to %.2f | %.1f | %.1f |\n",
            series->optimizer, (long long)run->shape.n_star, n / run->star_s, n / c->wall_s,
            1e3 * run->star_s / n, 1e3 * least, 1e3 * most, (double)run->n_eval / n,
            (double)run->n_jac / n);
  }
  fprintf(out,
          "\nStars per core-second leave out what a run does once; stars/s are of wall time with "
          "it.\n");
  fprintf(out, "\n| once a run, CPU ms | library | inputs | new file | emulator and guess table | "
               "wavelength sets | closing the file | together | first star after, wall ms |\n"
               "|---|---|---|---|---|---|---|---|---|\n");
  for (int i = 0; i < report->n_series; i++) {
    const mill_bench_series *series = &report->series[i];
    const mill_bench_run *run = &series->run[series->median];
    const mill_fit_meters *c = &run->meters;
    fprintf(out, "| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.0f |\n",
            series->optimizer, 1e3 * c->library_s, 1e3 * c->index_s, 1e3 * c->create_s,
            1e3 * c->model_s, 1e3 * c->waveset_s, 1e3 * c->close_s, 1e3 * run->once_s,
            1e3 * run->first_wall_s);
  }
}

void mill_bench_print_head(const mill_bench_report *report, const char *command, FILE *out)
{
  fprintf(out, "Measured on %.10s with starmill %s, revision %s (%s), on %s, %d cores",
          report->date, mill_version(), mill_version_revision(), mill_version_compiler(),
          report->cpu, report->n_core);
  if (report->backend)
    fprintf(out, ", backend %s", report->backend);
  fprintf(out, ".\n\n```\n%s\n```\n\n", command);
}

int mill_bench_flush(FILE *out)
{
  int err = MILL_OK;
  if (fflush(out) != 0 || ferror(out))
    MILL_FAIL(MILL_ERR_OUTPUT, "cannot print the table: %s", strerror(errno));
done:
  return err;
}

int mill_bench_print(const mill_bench_report *report, FILE *out)
{
  mill_bench_print_head(report, report->command, out);
  print_rates(out, &report->rates);
  if (report->n_series > 0) {
    const mill_fit_meters *c = &report->series[0].run[0].meters;
    fprintf(out, "\n%d %s, %d slots; of %d %s with each optimizer the median by CPU time.\n",
            c->n_thread, c->n_thread == 1 ? "thread" : "threads", c->n_slot,
            report->series[0].n_run, report->series[0].n_run == 1 ? "run" : "runs");
    print_overview(out, report);
    for (int i = 0; i < report->n_series; i++)
      print_stages(out, &report->series[i], &report->rates);
  }
  return mill_bench_flush(out);
}

/* ---- JSON ---- */

/* Text with its quotes.  Bytes from 128 on are UTF-8 and pass. */
static void json_text(FILE *out, const char *text)
{
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\')
      fprintf(out, "\\%c", *c);
    else if (*c < 0x20)
      fprintf(out, "\\u%04x", *c);
    else
      fputc(*c, out);
  }
  fputc('"', out);
}

static void json_key_text(FILE *out, const char *key, const char *text, const char *end)
{
  fprintf(out, "\"%s\": ", key);
  json_text(out, text);
  fputs(end, out);
}

/* JSON has no NaN and no infinity. */
static void json_key_number(FILE *out, const char *key, double value, const char *end)
{
  if (isfinite(value))
    fprintf(out, "\"%s\": %.17g%s", key, value, end);
  else
    fprintf(out, "\"%s\": null%s", key, end);
}

static void json_gemm(FILE *out, const char *key, const mill_gemm_rate *rate)
{
  fprintf(out, "    \"%s\": {\"m\": %d, \"k\": %d, \"n\": %d, ", key, rate->m, rate->k, rate->n);
  json_key_number(out, "gflop_s", rate->gflop_s, "},\n");
}

static void json_rates(FILE *out, const mill_bench_rates *r)
{
  fputs("  \"rates\": {\n", out);
  json_gemm(out, "sgemm_square", &r->sgemm_square);
  json_gemm(out, "sgemm_last", &r->sgemm_last);
  json_gemm(out, "dgemm_square", &r->dgemm_square);
  json_gemm(out, "dgemm_hidden", &r->dgemm_hidden);
  fprintf(out, "    \"copy_cache_bytes\": %zu, \"copy_memory_bytes\": %zu,\n    ",
          r->copy_cache_bytes, r->copy_memory_bytes);
  json_key_number(out, "copy_cache_gbyte_s", r->copy_cache_gbyte_s, ", ");
  json_key_number(out, "copy_memory_gbyte_s", r->copy_memory_gbyte_s, ",\n    ");
  json_key_number(out, "read_gbyte_s", r->read_gbyte_s, ",\n    ");
  json_key_number(out, "f32_gflop_s", mill_bench_f32_gflop_s(r), ", ");
  json_key_number(out, "f64_gflop_s", mill_bench_f64_gflop_s(r), "\n  },\n");
}

static void json_shape(FILE *out, const mill_bench_shape *shape)
{
  int n_arm = 0;
  for (int a = 0; a < MILL_MAX_ARM; a++)
    if (shape->arm[a].n_star > 0)
      n_arm = a + 1;
  fputs("      \"arms\": [", out);
  for (int a = 0; a < n_arm; a++)
    fprintf(out,
            "%s\n        {\"stars\": %lld, \"segments\": %lld, \"pixels\": %lld, "
            "\"resolution\": %lld, \"deconvolution\": %lld,\n         \"guess_bins\": %lld, "
            "\"raw_bytes\": %lld, \"rotation\": %lld}",
            a ? "," : "", (long long)shape->arm[a].n_star, (long long)shape->arm[a].n_segment,
            (long long)shape->arm[a].n_pix, (long long)shape->arm[a].n_res,
            (long long)shape->arm[a].n_deconv, (long long)shape->arm[a].n_guess_bin,
            (long long)shape->arm[a].raw_bytes, (long long)shape->arm[a].n_rotation);
  fputs("],\n", out);
}

static void json_stages(FILE *out, const mill_bench_series *series, const mill_bench_rates *rates)
{
  const mill_bench_run *run = &series->run[series->median];
  const mill_timing *t = &run->meters.timing;
  fputs("      \"stages\": [", out);
  for (int s = 0; s < MILL_BENCH_N_STAGE; s++) {
    const int phase = phase_of(s);
    const mill_bench_work *w = &series->work[s];
    fprintf(out, "%s\n        {", s ? "," : "");
    json_key_text(out, "name", stage_name[s], ", ");
    json_key_number(out, "cpu_s", run->stage_s[s], ", ");
    if (phase >= 0) {
      json_key_number(out, "emulator_s", t->emulate_s[phase], ", ");
      fprintf(out, "\"values\": %lld, \"jacobians\": %lld, ", (long long)t->n_value[phase],
              (long long)t->n_jacobian[phase]);
    }
    json_key_number(out, "f32_operations", w->f32, ", ");
    json_key_number(out, "f64_operations", w->f64, ",\n         ");
    json_key_number(out, "file_bytes", w->bytes_file, ", ");
    json_key_number(out, "memory_bytes", w->bytes_memory, ", ");
    json_key_number(out, "cache_bytes", w->bytes_cache, ", ");
    json_key_number(out, "floor_s", mill_bench_floor_s(w, rates, NULL), "}");
  }
  fputs("],\n", out);
}

static void json_series(FILE *out, const mill_bench_series *series, const mill_bench_rates *rates)
{
  const mill_bench_run *run = &series->run[series->median];
  const mill_fit_meters *c = &run->meters;
  fputs("\n    {\n      ", out);
  json_key_text(out, "optimizer", series->optimizer, ",\n      ");
  fprintf(out,
          "\"stars\": %lld, \"fitted\": %lld, \"evaluations\": %lld, \"jacobians\": %lld, "
          "\"velocities\": %lld,\n      ",
          (long long)run->shape.n_star, (long long)run->shape.n_fitted, (long long)run->n_eval,
          (long long)run->n_jac, (long long)c->timing.n_velocity);
  json_key_number(out, "cpu_s", c->cpu_s, ", ");
  json_key_number(out, "wall_s", c->wall_s, ", ");
  json_key_number(out, "once_s", run->once_s, ", ");
  json_key_number(out, "star_s", run->star_s, ",\n      \"once\": {");
  json_key_number(out, "library_s", c->library_s, ", ");
  json_key_number(out, "index_s", c->index_s, ", ");
  json_key_number(out, "create_s", c->create_s, ", ");
  json_key_number(out, "model_s", c->model_s, ", ");
  json_key_number(out, "waveset_s", c->waveset_s, ", ");
  json_key_number(out, "close_s", c->close_s, ", ");
  json_key_number(out, "first_wall_s", run->first_wall_s, "},\n");
  json_shape(out, &run->shape);
  json_stages(out, series, rates);
  fputs("      \"runs\": [", out);
  for (int r = 0; r < series->n_run; r++) {
    fputs(r ? ", {" : "{", out);
    json_key_number(out, "cpu_s", series->run[r].meters.cpu_s, ", ");
    json_key_number(out, "wall_s", series->run[r].meters.wall_s, ", ");
    json_key_number(out, "star_s", series->run[r].star_s, "}");
  }
  fprintf(out, "],\n      \"median_run\": %d\n    }", series->median);
}

static void json_settings(FILE *out, const mill_fit_meters *c)
{
  fputs("  \"settings\": {", out);
  json_key_text(out, "library", c->library, ", ");
  fprintf(out,
          "\"threads\": %d, \"slots\": %d, \"n_cont\": %d, \"wide\": %s, \"min_vel\": %.17g, "
          "\"max_vel\": %.17g, \"guess_vel_step\": %.17g, \"rotation_kernel\": \"%s\"},\n",
          c->n_thread, c->n_slot, c->set.n_cont,
          c->set.precision == MILL_FLOAT64 ? "true" : "false", c->set.min_vel_km_s,
          c->set.max_vel_km_s, c->set.guess_vel_step_km_s,
          c->set.rotation == MILL_ROT_LINEAR ? "linear" : "spline");
}

int mill_bench_write_json(const mill_bench_report *report, const char *path)
{
  int err = MILL_OK;
  FILE *out = fopen(path, "w");
  if (!out)
    MILL_FAIL(MILL_ERR_OUTPUT, "--json %s cannot be written: %s", path, strerror(errno));
  fputs("{\n  ", out);
  json_key_text(out, "version", mill_version(), ", ");
  json_key_text(out, "revision", mill_version_revision(), ", ");
  json_key_text(out, "compiler", mill_version_compiler(), ",\n  ");
  json_key_text(out, "date", report->date, ", ");
  json_key_text(out, "command", report->command, ",\n  ");
  json_key_text(out, "cpu", report->cpu, ", ");
  fprintf(out, "\"cores\": %d, \"l2_bytes\": %zu, \"l3_bytes\": %zu,\n", report->n_core,
          report->rates.l2_bytes, report->rates.l3_bytes);
  if (report->backend) {
    fputs("  ", out);
    json_key_text(out, "backend", report->backend, ",\n");
  }
  if (report->n_series > 0)
    json_settings(out, &report->series[0].run[0].meters);
  json_rates(out, &report->rates);
  fputs("  \"optimizers\": [", out);
  for (int i = 0; i < report->n_series; i++) {
    fputs(i ? "," : "", out);
    json_series(out, &report->series[i], &report->rates);
  }
  fputs("]\n}\n", out);
  const int failed = ferror(out);
  const int closed = fclose(out);
  out = NULL;
  if (failed || closed != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "--json %s cannot be written: the disk may be full", path);
done:
  if (out)
    fclose(out);
  return err;
}
