/* Whole fits of stars of a survey's size, GPU against CPU: within 0.05 errors in every
 * parameter and 5e-3 in -2 ln L for 99.9 % of them, the others listed; and the same bits with
 * fewer slots.
 *
 *   STARMILL_GPU_LIBRARY  a library, STARMILL_GPU_FITS  a file of spectra,
 *   STARMILL_GPU_STARS    how many of its stars (default 200), STARMILL_GPU_THREADS of the CPU
 *
 * name the data; tools/gpu-programme makes them.  Skipped without them or without a GPU. */
#include "tests/mill_test.h"

#include <string.h>

#include "io/library/library_file.h"
#include "jobs/bench/bench_batch.h"
#include "kernels/base/error.h"
#ifdef MILL_HAVE_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

static const double TOLERANCE_SIGMA = 0.05, TOLERANCE_M2LL = 5e-3, GOOD_SHARE = 0.999;

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

/* Why there is nothing to compare; NULL: there is. */
static const char *set_up_fits(void)
{
  const char *library = getenv("STARMILL_GPU_LIBRARY"), *fits = getenv("STARMILL_GPU_FITS");
  if (!library || !fits)
    return "STARMILL_GPU_LIBRARY and STARMILL_GPU_FITS name no data";
#ifdef MILL_HAVE_CUDA
  f.gpu = mill_backend_cuda(NULL);
  if (!f.gpu)
    return mill_error_message();
#else
  return "this build has no CUDA backend";
#endif
  mill_config_default(&f.config);
  must(mill_library_read(library, &f.lib));
  must(mill_config_bind(&f.config, &f.lib));
  mill_spectra_settings settings = {.lib = &f.lib, .config = &f.config};
  for (int a = 0; a < f.lib.n_arm; a++)
    settings.arm_wanted[a] = 1;
  must(mill_bench_stars_read(&settings, 1, &fits, from_environment("STARMILL_GPU_STARS", 200),
                             &f.stars));
  return NULL;
}

static mill_fit_result *fit_all(const mill_backend *backend, int n_slot)
{
  mill_fit_result *result = NULL;
  mill_bench_batch batch;
  must(MILL_ALLOC(f.stars.n_star, &result));
  const mill_bench_plan plan = {.lib = &f.lib,
                                .set = &f.config.fit,
                                .backend = backend,
                                .n_slot = n_slot,
                                .n_thread = from_environment("STARMILL_GPU_THREADS", 1),
                                .result = result};
  must(mill_bench_batch_run(&plan, &f.stars, f.stars.n_star, &batch));
  return result;
}

/* In units of the CPU's error; NaN on one of them is no agreement.  A parameter without an error
 * stands at a limit or where it began, but passes through a transformation whose exp, log and
 * fused products differ between the two in the last bits. */
static double deviation(double a, double b, double sigma)
{
  const int is_same = fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
  const double off = sigma > 0.0 ? fabs(a - b) / sigma : is_same ? 0.0 : INFINITY;
  if (!(sigma > 0.0) && isnan(a) && isnan(b))
    return 0.0;
  return isnan(off) ? INFINITY : off;
}

static double worst_deviation(const mill_fit_result *a, const mill_fit_result *b)
{
  double worst = fmax(deviation(b->vrad_km_s, a->vrad_km_s, a->vrad_err_km_s),
                      deviation(b->vsini_km_s, a->vsini_km_s, a->vsini_err_km_s));
  for (int l = 0; l < a->n_label; l++)
    worst = fmax(worst, deviation(b->label[l], a->label[l], a->label_err[l]));
  return worst;
}

static void test_whole_fits(void **state)
{
  (void)state;
  const char *reason = set_up_fits();
  if (reason) {
    printf("SKIPPED: %s\n", reason);
    skip();
  }
  const int n = f.stars.n_star;
  mill_fit_result *cpu = fit_all(mill_backend_cpu(NULL), 64), *gpu = fit_all(f.gpu, n);
  mill_fit_result *few = fit_all(f.gpu, n > 37 ? 37 : 1);
  int n_bad = 0, n_fitted = 0;
  double sum = 0.0;
  for (int i = 0; i < n; i++) {
    const double sigma = worst_deviation(&cpu[i], &gpu[i]), m2ll = gpu[i].m2ll - cpu[i].m2ll;
    if (cpu[i].status == MILL_STATUS_FITTED && gpu[i].status == MILL_STATUS_FITTED) {
      n_fitted++;
      sum += sigma;
    }
    if (gpu[i].status == cpu[i].status &&
        (cpu[i].status != MILL_STATUS_FITTED ||
         (sigma <= TOLERANCE_SIGMA && fabs(m2ll) <= TOLERANCE_M2LL)))
      continue;
    n_bad++;
    printf("star %d: status %d and %d, %.4f sigma, -2 ln L %+.2e, warn %#llx and %#llx\n", i,
           cpu[i].status, gpu[i].status, sigma, m2ll, (unsigned long long)cpu[i].warn,
           (unsigned long long)gpu[i].warn);
  }
  printf("%d stars, %d fitted by both, %d beyond %g sigma or %g in -2 ln L; mean of the largest "
         "deviation %.2e sigma\n",
         n, n_fitted, n_bad, TOLERANCE_SIGMA, TOLERANCE_M2LL, n_fitted ? sum / n_fitted : 0.0);
  assert_true(n_fitted > n / 2);
  assert_true(n_bad <= (1.0 - GOOD_SHARE) * n);
  for (int i = 0; i < n; i++) {
    mill_fit_result *a = &gpu[i], *b = &few[i];
    if (memcmp(&a->m2ll, &b->m2ll, sizeof a->m2ll) != 0 ||
        memcmp(a->label, b->label, sizeof a->label) != 0 ||
        memcmp(a->covar, b->covar, sizeof a->covar) != 0 || a->n_eval != b->n_eval ||
        a->warn != b->warn)
      fail_msg("star %d differs between %d slots and fewer", i, n);
  }
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole_fits)};
  return cmocka_run_group_tests(tests, NULL, clean_up);
}
