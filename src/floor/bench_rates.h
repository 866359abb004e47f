/** What this machine can do, on one core: the rates that floors are counted with.
 *
 *  Work over CPU time of the calling thread, the best of several tries, so that what
 *  other programs do on the machine matters little.
 */
#ifndef MILL_BENCH_RATES_H
#define MILL_BENCH_RATES_H

#include <stddef.h>

#include "kernels/data/library.h"

/** A matrix product that was measured: [m][k] times [k][n]. */
typedef struct mill_gemm_rate {
  int m, k, n;
  double gflop_s; /**< 2 m k n over its time; 0: not measured */
} mill_gemm_rate;

typedef struct mill_bench_rates {
  mill_gemm_rate sgemm_square, dgemm_square; /**< large ones */
  mill_gemm_rate sgemm_last;                 /**< the emulator's last layer, n_row rows at once */
  mill_gemm_rate dgemm_hidden;               /**< its largest hidden layer, or front */
  size_t l2_bytes;                           /**< of a core; 0: the system does not say */
  size_t l3_bytes;                           /**< the same; often shared by many cores */
  /* copies of a buffer into another of its size; bytes read and bytes written both count */
  size_t copy_cache_bytes, copy_memory_bytes;     /**< of one buffer */
  double copy_cache_gbyte_s, copy_memory_gbyte_s; /**< 1e9 bytes/s */
  double read_gbyte_s; /**< of files in the page cache, each byte once; 0: not measured */
} mill_bench_rates;

/** Measure products and copies, about two seconds, and keep the best of this and of what
 *  rates holds; zero it before the first call.
 *
 *  lib    NULL: no product of the emulator's shape
 *  n_row  rows that the emulator's products have
 *
 *  OpenBLAS is told to use one thread while it lasts.  MILL_ERR_MEMORY. */
int mill_bench_rates_measure(const mill_library *lib, int n_row, mill_bench_rates *rates);

/** Products of large float32 matrices by n_thread threads at once, each with one of its own: work
 * of all over time by the clock, or over CPU time where it is one thread.  The best of eight tries
 * and of what rate holds; zero it before the first call.  Between mill_blas_begin and
 * mill_blas_end.  MILL_ERR_MEMORY. */
int mill_bench_rates_threads(int n_thread, mill_gemm_rate *rate);

/** Measure read_gbyte_s on the files (an unmeasured read brings them into the page cache):
 *  blocks of 256 KiB into one buffer, up to 1 GiB in all, the best of five passes.
 *  MILL_ERR_INPUT names the file that cannot be read, MILL_ERR_MEMORY. */
int mill_bench_rates_read(int n_file, const char *const *path, mill_bench_rates *rates);

/** The rates that floors take: the best product of each type. */
double mill_bench_f32_gflop_s(const mill_bench_rates *rates);
double mill_bench_f64_gflop_s(const mill_bench_rates *rates);

#endif
