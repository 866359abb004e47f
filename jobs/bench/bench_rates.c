/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/bench/bench_rates.h"

#include <cblas.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/blas_threads.h"
#include "kernels/base/clock.h"

enum {
  SQUARE_F32 = 1536,
  SQUARE_F64 = 1024,
  N_TRY = 8,
  MIN_TRY = 3,
  READ_BLOCK = 256 << 10,
  READ_TRY = 5
};
/** Shortest try, s: long enough for the clock's resolution. */
static const double TRY_S = 0.02;
/** Seconds after which MIN_TRY tries are enough: long tries scatter less. */
static const double ENOUGH_S = 0.2;
static const size_t MEMORY_BYTES = (size_t)128 << 20, READ_BYTES = (size_t)1 << 30;

/** One repeat of a measured operation. */
typedef struct work {
  void (*run)(const struct work *work);
  int n;
  const void *a, *b;
  void *c;
  size_t bytes;
} work;

static void run_sgemm(const work *w)
{
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, w->n, w->n, w->n, 1, w->a, w->n, w->b,
              w->n, 0, w->c, w->n);
}

static void run_dgemm(const work *w)
{
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, w->n, w->n, w->n, 1, w->a, w->n, w->b,
              w->n, 0, w->c, w->n);
}

static void run_copy(const work *w)
{
  memcpy(w->c, w->a, w->bytes);
}

static int is_enough(int n_try, double all_s)
{
  return n_try >= N_TRY || (n_try >= MIN_TRY && all_s >= ENOUGH_S);
}

/** Least seconds of one repeat. */
static double least_s(const work *w)
{
  double least = INFINITY, all_s = 0;
  int n_repeat = 1;
  w->run(w); /* pages and caches */
  for (int i = 0; !is_enough(i, all_s);) {
    const double start = mill_thread_cpu_s();
    for (int r = 0; r < n_repeat; r++)
      w->run(w);
    const double spent = mill_thread_cpu_s() - start;
    if (spent < TRY_S) {
      n_repeat *= 2;
      continue;
    }
    least = fmin(least, spent / (double)n_repeat);
    all_s += spent;
    i++;
  }
  return least;
}

static void keep_better(double found, double *best)
{
  if (found > *best)
    *best = found;
}

/** A matrix of n numbers, float64 if wide. */
static int make_matrix(int wide, size_t n, void **out)
{
  MILL_CHECK(mill_alloc_bytes(n, wide ? sizeof(double) : sizeof(float), out));
  for (size_t i = 0; i < n; i++) {
    const double x = (double)(i % 17) / 16.0 - 0.5;
    if (wide)
      ((double *)*out)[i] = x;
    else
      ((float *)*out)[i] = (float)x;
  }
  return MILL_OK;
}

/** Rate of products of large square matrices, 1e9 operations/s. */
static int measure_gemm(int wide, int n, double *gflop_s)
{
  int err = MILL_OK;
  void *a = NULL, *b = NULL, *c = NULL;
  const size_t size = (size_t)n * (size_t)n;
  MILL_TRY(make_matrix(wide, size, &a));
  MILL_TRY(make_matrix(wide, size, &b));
  MILL_TRY(make_matrix(wide, size, &c));
  const work w = {.run = wide ? run_dgemm : run_sgemm, .n = n, .a = a, .b = b, .c = c};
  keep_better(2e-9 * n * n * n / least_s(&w), gflop_s);
done:
  MILL_FREE(a, b, c);
  return err;
}

static int measure_copy(size_t bytes, double *gbyte_s)
{
  int err = MILL_OK;
  char *from = NULL, *to = NULL;
  MILL_TRY(MILL_ALLOC(bytes, &from));
  MILL_TRY(MILL_ALLOC(bytes, &to));
  memset(from, 1, bytes); /* pages that were never written share one of zeros */
  const work w = {.run = run_copy, .a = from, .c = to, .bytes = bytes};
  keep_better(2e-9 * (double)bytes / least_s(&w), gbyte_s);
done:
  mill_free(from);
  mill_free(to);
  return err;
}

static size_t cache_size(int name)
{
  const long bytes = sysconf(name);
  return bytes > 0 ? (size_t)bytes : 0;
}

int mill_bench_rates_measure(mill_bench_rates *rates)
{
  int err = MILL_OK;
  int n_blas = 0;
  MILL_TRY(mill_blas_begin(1, &n_blas));
  rates->l2_bytes = cache_size(_SC_LEVEL2_CACHE_SIZE);
  /* both buffers within half of the cache; outside it well beyond it */
  rates->copy_cache_bytes = rates->l2_bytes > 0 ? rates->l2_bytes / 4 : (size_t)128 << 10;
  rates->copy_memory_bytes = MEMORY_BYTES;
  MILL_TRY(measure_gemm(0, SQUARE_F32, &rates->f32_gflop_s));
  MILL_TRY(measure_gemm(1, SQUARE_F64, &rates->f64_gflop_s));
  MILL_TRY(measure_copy(rates->copy_cache_bytes, &rates->copy_cache_gbyte_s));
  MILL_TRY(measure_copy(rates->copy_memory_bytes, &rates->copy_memory_gbyte_s));
done:
  mill_blas_end(n_blas);
  return err;
}

/** Read all files, no more than READ_BYTES together. */
static int read_pass(int n_file, const char *const *path, char *block, size_t *n_read)
{
  int err = MILL_OK, file = -1;
  *n_read = 0;
  for (int i = 0; i < n_file && *n_read < READ_BYTES; i++) {
    file = open(path[i], O_RDONLY | O_CLOEXEC);
    if (file < 0)
      MILL_FAIL(MILL_ERR_INPUT, "%s: %s", path[i], strerror(errno));
    ssize_t n = 0;
    do {
      n = read(file, block, READ_BLOCK);
      if (n < 0 && errno != EINTR)
        MILL_FAIL(MILL_ERR_INPUT, "%s: %s", path[i], strerror(errno));
      *n_read += n > 0 ? (size_t)n : 0;
    } while (n != 0 && *n_read < READ_BYTES);
    close(file);
    file = -1;
  }
done:
  if (file >= 0)
    close(file);
  return err;
}

int mill_bench_rates_read(int n_file, const char *const *path, mill_bench_rates *rates)
{
  int err = MILL_OK;
  char *block = NULL;
  size_t n_read = 0;
  MILL_TRY(MILL_ALLOC(READ_BLOCK, &block));
  MILL_TRY(read_pass(n_file, path, block, &n_read));
  for (int i = 0; i < READ_TRY && n_read > 0; i++) {
    const double start = mill_thread_cpu_s();
    MILL_TRY(read_pass(n_file, path, block, &n_read));
    const double spent = mill_thread_cpu_s() - start;
    if (spent > 0.0)
      keep_better(1e-9 * (double)n_read / spent, &rates->read_gbyte_s);
  }
done:
  mill_free(block);
  return err;
}
