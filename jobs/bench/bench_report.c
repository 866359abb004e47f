#include "jobs/bench/bench_report.h"

#include <math.h>
#include <stdio.h>

#include "jobs/options/job_steps.h"
#include "kernels/base/error.h"

#define STAGE_NAME(symbol, name) [symbol] = (name),
static const char *const stage_name[] = {MILL_BENCH_STAGE_LIST(STAGE_NAME)};
#undef STAGE_NAME

/* The phase of a backend that a stage is, -1: of the host. */
static int phase_of(int stage)
{
  _Static_assert(MILL_BENCH_FINAL - MILL_BENCH_PREPARE == (int)MILL_PHASE_FINAL, "same order");
  return stage < MILL_BENCH_PREPARE || stage > MILL_BENCH_FINAL ? -1 : stage - MILL_BENCH_PREPARE;
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

/* ---- Markdown ---- */

static void print_gemm(const char *what, const mill_gemm_rate *rate)
{
  if (rate->gflop_s > 0.0)
    printf("| %s, %d × %d × %d | %.1f GFLOP/s |\n", what, rate->m, rate->k, rate->n, rate->gflop_s);
}

static void print_rates(const mill_bench_rates *r)
{
  printf("| rate of one core | |\n|---|---|\n");
  print_gemm("sgemm", &r->sgemm_square);
  print_gemm("sgemm, last layer of the emulator", &r->sgemm_last);
  print_gemm("dgemm", &r->dgemm_square);
  print_gemm("dgemm, before the last layer", &r->dgemm_hidden);
  printf("| copy within L2, buffers of %.0f KiB, bytes read and written | %.1f GB/s |\n",
         (double)r->copy_cache_bytes / 1024.0, r->copy_cache_gbyte_s);
  printf("| copy, buffers of %.0f MiB | %.1f GB/s |\n", (double)r->copy_memory_bytes / 1048576.0,
         r->copy_memory_gbyte_s);
  if (r->read_gbyte_s > 0.0)
    printf("| reading the inputs from the page cache | %.1f GB/s |\n", r->read_gbyte_s);
}

/* The end of a line: time over its floor; a stage without one has no ratio. */
static void print_ratio(double spent_s, double floor_s)
{
  if (floor_s > 0.0)
    printf(spent_s < 1000.0 * floor_s ? " %.1f |\n" : " %.0f |\n", spent_s / floor_s);
  else
    printf(" – |\n");
}

static void print_stages(const mill_bench_series *series, const mill_bench_rates *rates)
{
  const mill_bench_run *run = &series->run[series->median];
  const mill_timing *t = &run->meters.timing;
  const double n = (double)run->shape.n_star;
  double floor_s = 0.0, mflop = 0.0, n_value = 0.0, n_jacobian = 0.0;
  printf("\n%s, a star:\n\n", series->optimizer);
  printf("| stage | values | Jacobians | MFLOP | core-ms | of it emulator | floor, ms | "
         "bound by | time/floor |\n|---|---|---|---|---|---|---|---|---|\n");
  for (int s = 0; s < MILL_BENCH_N_STAGE; s++) {
    const int phase = phase_of(s);
    const mill_bench_work *w = &series->work[s];
    const double flop = w->f32 + w->f64;
    const double value = phase < 0 ? 0.0 : (double)t->n_value[phase];
    const double jacobian = phase < 0 ? 0.0 : (double)t->n_jacobian[phase];
    const double emulate_s = phase < 0 ? 0.0 : t->emulate_s[phase];
    int by_traffic = 0;
    const double least_s = mill_bench_floor_s(w, rates, &by_traffic);
    /* less than a microsecond a star is no floor to compare a stage with: reading the clock takes
     * as long */
    const double shown_s = least_s < 1e-6 * n ? 0.0 : least_s;
    printf("| %s |", stage_name[s]);
    mill_bench_print_cell(value + jacobian > 0.0, 2, value / n, "");
    mill_bench_print_cell(value + jacobian > 0.0, 2, jacobian / n, "");
    mill_bench_print_cell(flop > 0.0, 2, 1e-6 * flop / n, "");
    mill_bench_print_cell(1, 3, 1e3 * run->stage_s[s] / n, "");
    mill_bench_print_cell(emulate_s > 0.0, 3, 1e3 * emulate_s / n, "");
    mill_bench_print_cell(shown_s > 0.0, 4, 1e3 * shown_s / n, "");
    printf(shown_s <= 0.0 ? " |" : by_traffic ? " bytes |" : " arithmetic |");
    print_ratio(run->stage_s[s], shown_s);
    n_value += value;
    n_jacobian += jacobian;
    floor_s += least_s;
    mflop += 1e-6 * flop;
  }
  printf("| total | %.2f | %.2f | %.2f | %.3f | | %.4f | |", n_value / n, n_jacobian / n, mflop / n,
         1e3 * run->star_s / n, 1e3 * floor_s / n);
  print_ratio(run->star_s, floor_s);
  if (t->n_velocity > 0)
    printf("\nThe profile's values stand for %.1f velocities.\n", (double)t->n_velocity / n);
}

static void print_overview(const mill_bench_report *report)
{
  printf("\n| optimizer | stars | stars per core-second | stars/s | core-ms a star | "
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
    printf("| %s | %lld | %.1f | %.1f | %.2f | %.2f to %.2f | %.1f | %.1f |\n", series->optimizer,
           (long long)run->shape.n_star, n / run->star_s, n / c->wall_s, 1e3 * run->star_s / n,
           1e3 * least, 1e3 * most, (double)run->n_eval / n, (double)run->n_jac / n);
  }
  printf("\nStars per core-second leave out what a run does once; stars/s are of wall time with "
         "it.\n");
  printf("\n| once a run, CPU ms | library | inputs | new file | emulator and guess table | "
         "wavelength sets | closing the file | together | first star after, wall ms |\n"
         "|---|---|---|---|---|---|---|---|---|\n");
  for (int i = 0; i < report->n_series; i++) {
    const mill_bench_run *run = &report->series[i].run[report->series[i].median];
    const mill_fit_meters *c = &run->meters;
    printf("| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.0f |\n",
           report->series[i].optimizer, 1e3 * c->library_s, 1e3 * c->index_s, 1e3 * c->create_s,
           1e3 * c->model_s, 1e3 * c->waveset_s, 1e3 * c->close_s, 1e3 * run->once_s,
           1e3 * run->first_wall_s);
  }
}

static void print_markdown(const mill_bench *job, const mill_bench_report *report)
{
  const mill_bench_series *first = &report->series[0];
  mill_bench_print_head(job, report->n_series > 0 ? first->run[0].meters.backend : NULL);
  print_rates(&report->rates);
  if (report->n_series == 0)
    return;
  const mill_fit_meters *c = &first->run[0].meters;
  printf("\n%d %s, %d slots; of %d %s with each optimizer the median by CPU time.\n", c->n_thread,
         c->n_thread == 1 ? "thread" : "threads", c->n_slot, first->n_run,
         first->n_run == 1 ? "run" : "runs");
  print_overview(report);
  for (int i = 0; i < report->n_series; i++)
    print_stages(&report->series[i], &report->rates);
}

/* ---- JSON ---- */

typedef struct number {
  const char *key;
  double value;
} number;

/* Members of the object that is open; counts, which are below 2^53, without a point. */
static void put_numbers(mill_json *json, size_t n, const number *list)
{
  for (size_t i = 0; i < n; i++)
    if (fabs(list[i].value) < 0x1p53 && list[i].value == rint(list[i].value))
      mill_json_integer(json, list[i].key, (int64_t)list[i].value);
    else
      mill_json_real(json, list[i].key, list[i].value);
}
#define PUT(json, ...)                                                                             \
  put_numbers(json, sizeof((number[]){__VA_ARGS__}) / sizeof(number), (number[]){__VA_ARGS__})
#define PUT_OBJECT(json, key, ...)                                                                 \
  do {                                                                                             \
    mill_json_open(json, key, '{');                                                                \
    PUT(json, __VA_ARGS__);                                                                        \
    mill_json_close(json);                                                                         \
  } while (0)

static void put_gemm(mill_json *json, const char *key, const mill_gemm_rate *rate)
{
  PUT_OBJECT(json, key, {"m", rate->m}, {"k", rate->k}, {"n", rate->n}, {"gflop_s", rate->gflop_s});
}

static void put_rates(mill_json *json, const mill_bench_rates *r)
{
  mill_json_open(json, "rates", '{');
  put_gemm(json, "sgemm_square", &r->sgemm_square);
  put_gemm(json, "sgemm_last", &r->sgemm_last);
  put_gemm(json, "dgemm_square", &r->dgemm_square);
  put_gemm(json, "dgemm_hidden", &r->dgemm_hidden);
  PUT(json, {"copy_cache_bytes", (double)r->copy_cache_bytes},
      {"copy_memory_bytes", (double)r->copy_memory_bytes},
      {"copy_cache_gbyte_s", r->copy_cache_gbyte_s},
      {"copy_memory_gbyte_s", r->copy_memory_gbyte_s}, {"read_gbyte_s", r->read_gbyte_s},
      {"f32_gflop_s", mill_bench_f32_gflop_s(r)}, {"f64_gflop_s", mill_bench_f64_gflop_s(r)});
  mill_json_close(json);
}

static void put_arms(mill_json *json, const mill_bench_shape *shape, const mill_timing *t)
{
  int n_arm = 0;
  for (int a = 0; a < MILL_MAX_ARM; a++)
    if (shape->arm[a].n_star > 0)
      n_arm = a + 1;
  mill_json_open(json, "arms", '[');
  for (int a = 0; a < n_arm; a++)
    PUT_OBJECT(json, NULL, {"stars", (double)shape->arm[a].n_star},
               {"segments", (double)shape->arm[a].n_segment},
               {"pixels", (double)shape->arm[a].n_pix}, {"resolution", (double)shape->arm[a].n_res},
               {"deconvolution", (double)shape->arm[a].n_deconv},
               {"guess_bins", (double)shape->arm[a].n_guess_bin},
               {"raw_bytes", (double)shape->arm[a].raw_bytes},
               {"rotation", (double)shape->arm[a].n_rotation},
               {"jacobians_alone", (double)t->n_led[1 + a]},
               {"jacobians_alone_stored", (double)t->n_stored[1 + a]},
               {"jacobians_alone_rough", (double)t->n_rough[1 + a]},
               {"rough_directions", (double)t->n_direction[a]});
  mill_json_close(json);
}

static void put_stages(mill_json *json, const mill_bench_series *series,
                       const mill_bench_rates *rates)
{
  const mill_bench_run *run = &series->run[series->median];
  const mill_timing *t = &run->meters.timing;
  mill_json_open(json, "stages", '[');
  for (int s = 0; s < MILL_BENCH_N_STAGE; s++) {
    const int phase = phase_of(s);
    const mill_bench_work *w = &series->work[s];
    mill_json_open(json, NULL, '{');
    mill_json_text(json, "name", stage_name[s]);
    if (phase >= 0)
      PUT(json, {"emulator_s", t->emulate_s[phase]}, {"values", (double)t->n_value[phase]},
          {"jacobians", (double)t->n_jacobian[phase]});
    PUT(json, {"cpu_s", run->stage_s[s]}, {"f32_operations", w->f32}, {"f64_operations", w->f64},
        {"file_bytes", w->bytes_file}, {"memory_bytes", w->bytes_memory},
        {"cache_bytes", w->bytes_cache}, {"floor_s", mill_bench_floor_s(w, rates, NULL)});
    mill_json_close(json);
  }
  mill_json_close(json);
}

static void put_series(mill_json *json, const mill_bench_series *series,
                       const mill_bench_rates *rates)
{
  const mill_bench_run *run = &series->run[series->median];
  const mill_fit_meters *c = &run->meters;
  mill_json_open(json, NULL, '{');
  mill_json_text(json, "optimizer", series->optimizer);
  PUT(json, {"stars", (double)run->shape.n_star}, {"fitted", (double)run->shape.n_fitted},
      {"evaluations", (double)run->n_eval}, {"jacobians", (double)run->n_jac},
      {"jacobians_stored", (double)c->timing.n_stored[0]},
      {"jacobians_rough", (double)c->timing.n_rough[0]},
      {"velocities", (double)c->timing.n_velocity}, {"cpu_s", c->cpu_s}, {"wall_s", c->wall_s},
      {"once_s", run->once_s}, {"star_s", run->star_s});
  PUT_OBJECT(json, "once", {"library_s", c->library_s}, {"index_s", c->index_s},
             {"create_s", c->create_s}, {"model_s", c->model_s}, {"waveset_s", c->waveset_s},
             {"close_s", c->close_s}, {"first_wall_s", run->first_wall_s});
  put_arms(json, &run->shape, &c->timing);
  put_stages(json, series, rates);
  mill_json_open(json, "runs", '[');
  for (int r = 0; r < series->n_run; r++)
    PUT_OBJECT(json, NULL, {"cpu_s", series->run[r].meters.cpu_s},
               {"wall_s", series->run[r].meters.wall_s}, {"star_s", series->run[r].star_s});
  mill_json_close(json);
  mill_json_integer(json, "median_run", series->median);
  mill_json_close(json);
}

static void put_settings(mill_json *json, const mill_fit_meters *c)
{
  mill_json_text(json, "backend", c->backend);
  mill_json_open(json, "settings", '{');
  mill_json_text(json, "library", c->library);
  mill_json_text(json, "rotation_kernel",
                 mill_config_key_of("rotation_kernel")->words[c->set.rotation]);
  mill_json_bool(json, "wide", c->set.precision == MILL_FLOAT64);
  PUT(json, {"threads", c->n_thread}, {"slots", c->n_slot}, {"n_cont", c->set.n_cont},
      {"min_vel", c->set.min_vel_km_s}, {"max_vel", c->set.max_vel_km_s},
      {"guess_vel_step", c->set.guess_vel_step_km_s});
  mill_json_close(json);
}

static int write_json(const mill_bench *job, const mill_bench_report *report)
{
  mill_json json;
  MILL_CHECK(mill_bench_open_json(job, &json));
  PUT(&json, {"l2_bytes", (double)report->rates.l2_bytes},
      {"l3_bytes", (double)report->rates.l3_bytes});
  if (report->n_series > 0)
    put_settings(&json, &report->series[0].run[0].meters);
  put_rates(&json, &report->rates);
  mill_json_open(&json, "optimizers", '[');
  for (int i = 0; i < report->n_series; i++)
    put_series(&json, &report->series[i], &report->rates);
  return mill_bench_close_json(job, &json);
}

int mill_bench_print(const mill_bench *job, const mill_bench_report *report)
{
  print_markdown(job, report);
  MILL_CHECK(mill_job_flush("the table"));
  if (job->options.json)
    MILL_CHECK(write_json(job, report));
  return MILL_OK;
}
