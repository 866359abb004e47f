/** `starmill bench crossover` and `starmill bench slots`: CPU and GPU on stars in memory. */
#ifndef MILL_BENCH_DEVICE_H
#define MILL_BENCH_DEVICE_H

#include "jobs/bench/bench_options.h"
#include "src/ranks/mpi_context.h"

/** Measure and print, a line as soon as it is known, as Markdown; JSON where options say so.
 *  Batches of 1, 4, 16 ... stars on the CPU and on the GPU, and from where on the GPU is faster;
 *  --keep leaves that for --backend auto.  Without a GPU its column says SKIPPED and why.
 *  input [n_input]: the files that the stars come from. */
int mill_bench_crossover(const mill_mpi *mpi, const mill_bench_options *options,
                         const char *command, int n_input, const char *const *input);

/** One backend with more and more slots: rate, and the time of the least work. */
int mill_bench_slots(const mill_mpi *mpi, const mill_bench_options *options, const char *command,
                     int n_input, const char *const *input);

#endif
