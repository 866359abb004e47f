/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole fits of a survey's stars, GPU against CPU.  99.9 % of the stars must agree within 0.05
 * errors in every parameter and 5e-3 in -2 ln L (verdict.h); the others are listed.  Fewer slots
 * must give the same bits.  packaging/gpu-programme makes the data, which the environment names:
 *
 *    STARMILL_GPU_LIBRARY  a library
 *    STARMILL_GPU_FITS     files of spectra, with ":" between them
 *    STARMILL_GPU_STARS    how many of their stars (default 5000)
 *    STARMILL_GPU_THREADS  threads of the CPU
 *    STARMILL_GPU_BACKEND  in place of the GPU, a level of the CPU backend (x86-64-v2)
 * Skipped without the data or without a GPU. */
#include "tests/mill_test.h"

#include "jobs/fit/fit.h"
#include "tests/cuda/verdict.h"
#include "kernels/gpu.h"

enum { N_STAR = 5000, N_FEW = 500, MAX_FILE = 64 };

static mill_mpi mpi;
static const mill_backend *gpu;
static char *file[MAX_FILE];
static int n_file;

static int from_environment(const char *name, int otherwise)
{
  const char *text = getenv(name);
  return text && atoi(text) > 0 ? atoi(text) : otherwise;
}

/* The backend to compare with the CPU's best, or NULL with the reason. */
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
  const char *fits = getenv("STARMILL_GPU_FITS"), *reason = NULL;
  static char list[65536];
  if (!getenv("STARMILL_GPU_LIBRARY") || !fits)
    return "STARMILL_GPU_LIBRARY and STARMILL_GPU_FITS name no data";
  gpu = find_backend(&reason);
  if (!gpu)
    return reason;
  assert_true(strlen(fits) < sizeof list);
  memcpy(list, fits, strlen(fits) + 1);
  for (char *rest = list, *one; (one = strtok_r(rest, ":", &rest)) != NULL;) {
    assert_true(n_file < MAX_FILE);
    file[n_file++] = one;
  }
  assert_ok(mill_mpi_start(&mpi));
  return NULL;
}

/* The rows of a run, by number. */
typedef struct rows {
  mill_fit_result *result; /* [n]; status 0 where there was no star */
  int64_t n;
} rows;

static void put(void *context, const mill_fit_result *result)
{
  const rows *all = context;
  assert_in_range(result->row, 0, all->n - 1);
  all->result[result->row] = *result;
}

/* The first n rows of the inputs. */
static mill_fit_result *fit_all(const mill_backend *backend, int n, int n_slot)
{
  char folder[] = "/tmp/starmill-test-XXXXXX", output[64], slots[16], threads[16];
  int status = 0;
  rows all = {.n = n};
  assert_ok(MILL_ALLOC(n, &all.result));
  assert_non_null(mkdtemp(folder));
  snprintf(output, sizeof output, "%s/fit.h5", folder);
  snprintf(slots, sizeof slots, "%d", n_slot);
  snprintf(threads, sizeof threads, "%d", from_environment("STARMILL_GPU_THREADS", 1));
  const mill_fit_options options = {.quiet = 1,
                                    .library = {getenv("STARMILL_GPU_LIBRARY")},
                                    .n_library = 1,
                                    .output = output,
                                    .slots = slots,
                                    .threads = threads,
                                    .input = file,
                                    .n_input = n_file};
  mill_fit_observer observer = {.context = &all, .put = put, .n_row_limit = n, .instead = backend};
  const int err = mill_fit_run(&mpi, &options, "test_whole_fits", &observer, &status);
  unlink(output);
  rmdir(folder);
  assert_ok(err);
  printf("%s: %d stars in %d slots, %.1f s\n", backend->name, n, observer.meters.n_slot,
         observer.meters.run_wall_s);
  return all.result;
}

MILL_TEST(whole_fits)
{
  const char *reason = set_up_fits();
  mill_test_needs(!reason, reason);
  const int n = from_environment("STARMILL_GPU_STARS", N_STAR), n_few = n < N_FEW ? n : N_FEW;
  const int n_slot = gpu->default_slot > 0 && gpu->default_slot < n ? gpu->default_slot : n;
  MILL_OWNED mill_fit_result *by_cpu = fit_all(mill_backend_cpu(NULL), n, 64);
  MILL_OWNED mill_fit_result *by_gpu = fit_all(gpu, n, n_slot);
  MILL_OWNED mill_fit_result *few = fit_all(gpu, n_few, n_few > 37 ? 37 : 1);
  const verdict v = compare(n, by_cpu, by_gpu, 1);
  printf(
      "%d stars, %d fitted by both, %d beyond %g sigma or %g in -2 ln L, at most %d; mean of the "
      "largest deviation %.2e sigma\n",
      n, v.n_fitted, v.n_outside, TOLERANCE_SIGMA, TOLERANCE_M2LL, most_outside(n),
      v.n_fitted ? v.sum_sigma / v.n_fitted : 0.0);
  assert_true(is_good(&v));
  for (int i = 0; i < n_few; i++)
    if (!is_same(&by_gpu[i], &few[i]))
      fail_msg("star %d differs between %d slots and fewer", i, n_slot);
}

static MILL_FIXTURE(clean_up)
{
  if (n_file > 0)
    mill_mpi_end(&mpi);
  return 0;
}

MILL_TEST_MAIN(NULL, clean_up)
