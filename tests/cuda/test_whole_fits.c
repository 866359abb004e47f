/* Whole fits of stars of a survey's size, GPU against CPU: within 0.05 errors in every
 * parameter and 5e-3 in -2 ln L for 99.9 % of them, the others listed; and the same bits with
 * fewer slots.
 *
 *   STARMILL_GPU_LIBRARY  a library, STARMILL_GPU_FITS  files of spectra, with ":" between them,
 *   STARMILL_GPU_STARS    how many of their stars (default 5000), STARMILL_GPU_THREADS of the CPU,
 *   STARMILL_GPU_BACKEND  instead of the GPU a level of the CPU backend (x86-64-v2)
 *
 * name the data; tools/gpu-programme makes them.  Skipped without them or without a GPU.  How the
 * rows are judged, verdict.h says. */
#include "tests/mill_test.h"

#include <string.h>

#include "io/library/library_file.h"
#include "jobs/bench/bench_batch.h"
#include "kernels/base/error.h"
#include "tests/cuda/verdict.h"
#include "kernels/gpu.h"

enum { N_STAR = 5000, N_FEW = 500, MAX_FILE = 64 };

typedef struct fixture {
  mill_library lib;
  mill_config config;
  mill_bench_stars stars;
  const mill_backend *gpu;
} fixture;

static fixture f;

static void must(int err)
{
  if (err != MILL_OK)
    fail_msg("%s", mill_error_message());
}

static int from_environment(const char *name, int otherwise)
{
  const char *text = getenv(name);
  return text && atoi(text) > 0 ? atoi(text) : otherwise;
}

/* The backend that is compared with the CPU's best; NULL: none, and *reason says why. */
static const mill_backend *find_backend(const char **reason)
{
  const char *level = getenv("STARMILL_GPU_BACKEND");
  const mill_backend *backend = NULL;
  if (level && *level) {
    backend = mill_backend_cpu(level);
    *reason = "STARMILL_GPU_BACKEND is no level of this CPU";
    return backend;
  }
  backend = mill_backend_cuda(NULL);
  *reason = mill_error_message();
  return backend;
}

/* Why there is nothing to compare; NULL: there is. */
static const char *set_up_fits(void)
{
  const char *library = getenv("STARMILL_GPU_LIBRARY"), *fits = getenv("STARMILL_GPU_FITS");
  const char *reason = NULL, *file[MAX_FILE];
  static char list[65536];
  int n_file = 0;
  if (!library || !fits)
    return "STARMILL_GPU_LIBRARY and STARMILL_GPU_FITS name no data";
  f.gpu = find_backend(&reason);
  if (!f.gpu)
    return reason;
  mill_config_default(&f.config);
  must(mill_library_read(library, &f.lib));
  must(mill_config_bind(&f.config, &f.lib));
  mill_spectra_settings settings = {.lib = &f.lib, .config = &f.config};
  for (int a = 0; a < f.lib.n_arm; a++)
    settings.arm_wanted[a] = 1;
  assert_true(strlen(fits) < sizeof list);
  memcpy(list, fits, strlen(fits) + 1);
  for (char *rest = list, *one; (one = strtok_r(rest, ":", &rest)) != NULL;) {
    assert_true(n_file < MAX_FILE);
    file[n_file++] = one;
  }
  must(mill_bench_stars_read(&settings, n_file, file,
                             from_environment("STARMILL_GPU_STARS", N_STAR), &f.stars));
  return NULL;
}

static mill_fit_result *fit_all(const mill_backend *backend, int n, int n_slot)
{
  mill_fit_result *result = NULL;
  mill_bench_batch batch;
  must(MILL_ALLOC(n, &result));
  const mill_bench_plan plan = {.lib = &f.lib,
                                .set = &f.config.fit,
                                .backend = backend,
                                .n_slot = n_slot,
                                .n_thread = from_environment("STARMILL_GPU_THREADS", 1),
                                .result = result};
  must(mill_bench_batch_run(&plan, &f.stars, n, &batch));
  printf("%s: %d stars in %d slots, %.1f s\n", backend->name, n, batch.n_slot, batch.run_s);
  return result;
}

static void test_whole_fits(void **state)
{
  (void)state;
  const char *reason = set_up_fits();
  mill_test_needs(!reason, reason);
  const int n = f.stars.n_star, n_few = n < N_FEW ? n : N_FEW;
  const int n_slot = f.gpu->default_slot > 0 && f.gpu->default_slot < n ? f.gpu->default_slot : n;
  mill_fit_result *cpu = fit_all(mill_backend_cpu(NULL), n, 64);
  mill_fit_result *gpu = fit_all(f.gpu, n, n_slot);
  mill_fit_result *few = fit_all(f.gpu, n_few, n_few > 37 ? 37 : 1);
  const verdict v = compare(n, cpu, gpu, 1);
  printf(
      "%d stars, %d fitted by both, %d beyond %g sigma or %g in -2 ln L, at most %d; mean of the "
      "largest deviation %.2e sigma\n",
      n, v.n_fitted, v.n_outside, TOLERANCE_SIGMA, TOLERANCE_M2LL, most_outside(n),
      v.n_fitted ? v.sum_sigma / v.n_fitted : 0.0);
  assert_true(is_good(&v));
  for (int i = 0; i < n_few; i++)
    if (!is_same(&gpu[i], &few[i]))
      fail_msg("star %d differs between %d slots and fewer", i, n_slot);
  mill_free(cpu);
  mill_free(gpu);
  mill_free(few);
}

static int clean_up(void **state)
{
  (void)state;
  mill_bench_stars_clear(&f.stars);
  mill_config_clear(&f.config);
  mill_library_clear(&f.lib);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_whole_fits),
  };
  return cmocka_run_group_tests(tests, NULL, clean_up);
}
