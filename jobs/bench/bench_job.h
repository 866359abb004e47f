/** `starmill bench`: what its tasks share, and the tasks. */
#ifndef MILL_BENCH_TASKS_H
#define MILL_BENCH_TASKS_H

#include "io/catalog/catalog_list.h"
#include "jobs/bench/bench_options.h"
#include "src/run/crossover.h"
#include "kernels/data/library.h"
#include "src/config/config.h"
#include "src/ranks/mpi_context.h"
#include "src/system/status_json.h"
#include "src/system/status_process.h"

typedef struct mill_bench {
  mill_mpi mpi;
  mill_bench_options options;
  char *command;
  mill_path_list input;
  mill_config config;
  mill_library lib;         /**< empty until mill_bench_open_library */
  char date[MILL_UTC_SIZE]; /**< UTC, ISO 8601 */
  char cpu[128];            /**< model */
  int n_core;               /**< that the process may use */
  int exit_status;          /**< of a bench that ends without a failure */
} mill_bench;

/** MILL_ERR_USAGE where there are more ranks. */
int mill_bench_one_rank(const mill_bench *job);

/** Read the library that the command line or the configuration names, and bind the configuration
 *  to it; signals are caught from then on.  MILL_ERR_USAGE, MILL_ERR_CONFIG, MILL_ERR_LIBRARY. */
int mill_bench_open_library(mill_bench *job);

/** Print when, with what and where, and the command line.  backend NULL: none is named. */
void mill_bench_print_head(const mill_bench *job, const char *backend);

/** A cell of a table: value with n_digit decimals where there is one, else what stands in its
 * place, which may be empty. */
void mill_bench_print_cell(int there, int n_digit, double value, const char *without);

/** Keep a crossover for `--backend auto`, and say so; gpu NULL: none was measured, and nothing is
 *  kept.  The rest as mill_crossover has it.  MILL_ERR_CONFIG, MILL_ERR_OUTPUT. */
int mill_bench_keep_crossover(const mill_bench *job, int kind, int64_t from, int n_thread,
                              const char *gpu);

/** Open the file of --json, with an object that says when, with what and where; end all that is
 *  open, and close the file.  MILL_ERR_OUTPUT names it; MILL_ERR_MEMORY. */
int mill_bench_open_json(const mill_bench *job, mill_json *json);
int mill_bench_close_json(const mill_bench *job, mill_json *json);

/** Numbers of reader threads to measure with, [MILL_BENCH_READER_COUNTS]: 1, 2, 4, ... and that of
 *  the configuration, or the cores of the process.  MILL_ERR_MPI. */
enum { MILL_BENCH_READER_COUNTS = 6 };
int mill_bench_reader_counts(const mill_bench *job, int *count, int *n_count);

/** Each task measures and prints Markdown on standard output, lines as soon as they are known;
 *  JSON where the options say so.
 *
 *  fit        what a fit costs on this machine, and what it must cost
 *  rates      what the machine can do
 *  crossover  batches of 1, 4, 16 ... stars in memory on the CPU and on the GPU, and from where on
 *             the GPU is faster; --keep leaves that for --backend auto.  Without a GPU its column
 *             says SKIPPED and why
 *  slots      one backend with more and more slots: rate, and the time of the least work
 *  read       how fast 1, 2, 4, ... reader threads of a rank bring spectra from the page cache
 *  host       a fit with a device that computes nothing, in no time: the work of the host */
int mill_bench_task_fit(mill_bench *job);
int mill_bench_task_rates(mill_bench *job);
int mill_bench_task_crossover(mill_bench *job);
int mill_bench_task_slots(mill_bench *job);
int mill_bench_task_read(mill_bench *job);
int mill_bench_task_host(mill_bench *job);

/** How fast networks are trained, on this CPU and on a GPU where there is one: Markdown on standard
 *  output.  argv[0] is "train"; argv is permuted.  MILL_ERR_USAGE, MILL_ERR_MEMORY,
 *  MILL_ERR_OUTPUT; what ends a training on a GPU that does not work. */
int mill_bench_train(mill_bench *job, int argc, char **argv);

/** How fast particles move and make densities: Markdown on standard output.  argv[0] is
 *  "particles"; argv is permuted.  MILL_ERR_USAGE, MILL_ERR_MEMORY, MILL_ERR_OUTPUT. */
int mill_bench_particles(mill_bench *job, int argc, char **argv);

/** How evenly the ranks of a run would be busy, by the scheduler's own code.  argv[0] is
 *  "schedule"; argv is permuted.  MILL_ERR_USAGE, MILL_ERR_MEMORY, MILL_ERR_OUTPUT. */
int mill_bench_schedule(int argc, char **argv);

#endif
