/* SPDX-License-Identifier: BSD-3-Clause */
/** Rates of one core of this machine, from which floors are computed.
 *
 *  Work over CPU time of the calling thread, the best of several tries, so that other programs on
 *  the machine matter little.
 */
#ifndef MILL_BENCH_RATES_H
#define MILL_BENCH_RATES_H

#include <stddef.h>

typedef struct mill_bench_rates {
  double f32_gflop_s, f64_gflop_s; /**< products of large square matrices, 2 n^3 over their time */
  size_t l2_bytes;                 /**< of a core; 0: the system does not say */
  /* copies of a buffer into another of its size; bytes read and bytes written both count */
  size_t copy_cache_bytes, copy_memory_bytes;     /**< of one buffer */
  double copy_cache_gbyte_s, copy_memory_gbyte_s; /**< 1e9 bytes/s */
  double read_gbyte_s; /**< of files in the page cache, each byte once; 0: not measured */
} mill_bench_rates;

/** Measure products and copies, about two seconds, and keep the best of this and of what rates
 *  holds; zero it before the first call.  OpenBLAS uses one thread meanwhile.  MILL_ERR_MEMORY. */
int mill_bench_rates_measure(mill_bench_rates *rates);

/** Measure read_gbyte_s on the files (an unmeasured read brings them into the page cache):
 *  blocks of 256 KiB into one buffer, up to 1 GiB in all, the best of five passes.
 *  MILL_ERR_INPUT names the file that cannot be read, MILL_ERR_MEMORY. */
int mill_bench_rates_read(int n_file, const char *const *path, mill_bench_rates *rates);

#endif
