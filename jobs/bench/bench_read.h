/** `starmill bench read`: how fast the threads of a rank bring spectra from the page cache. */
#ifndef MILL_BENCH_READ_H
#define MILL_BENCH_READ_H

#include "jobs/bench/bench_options.h"
#include "src/ranks/mpi_context.h"

/** Measure and print a line for 1, 2, 4, ... reader threads, as Markdown, as soon as it is known.
 *  The reader is that of a fit, and its batches are given back at once.  One rank. */
int mill_bench_read(const mill_mpi *mpi, const mill_bench_options *options, const char *command);

/** Numbers of reader threads to measure with: 1, 2, 4, ... and most, which is 0 for the cores of
 *  the process.  count [MILL_BENCH_READER_COUNTS].  MILL_ERR_MPI. */
enum { MILL_BENCH_READER_COUNTS = 6 };
int mill_bench_reader_counts(const mill_mpi *mpi, int most, int *count, int *n_count);

#endif
