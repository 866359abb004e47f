/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared declarations of `starmill bench`. */
#pragma once

#include "io/catalog/catalog_list.h"
#include "jobs/fit/fit.h"
#include "src/system/status_process.h"

typedef struct mill_bench mill_bench;

/** Values of the command line; texts are borrowed from argv. */
typedef struct mill_bench_options {
  int (*task)(mill_bench *job); /**< NULL: only --help was asked for */
  mill_fit_options fit;         /**< options of the measured fits; quiet is set */
  const char *output;           /**< folder of the temporary result; NULL: $TMPDIR, else /tmp */
  int64_t n_star; /**< number of rows that the task fit fits (0: all) or the task write writes */
  int n_repeat;
  int work;       /**< crossover: enum mill_bench_work_kind */
  int64_t n_most; /**< crossover: largest size to measure */
  double limit_s; /**< crossover: skip measurements expected to take longer */
  int keep;       /**< crossover: store the result for --backend auto */
} mill_bench_options;

enum mill_bench_work_kind {
  MILL_BENCH_ALL = 0,
  MILL_BENCH_FIT,
  MILL_BENCH_TRAIN,
  MILL_BENCH_PARTICLES
};

struct mill_bench {
  mill_mpi mpi;
  mill_bench_options options;
  char *command;
  mill_path_list input;
  mill_config config;
  mill_library lib;
  char date[MILL_UTC_SIZE]; /**< UTC, ISO 8601 */
  char cpu[128];            /**< model */
  int n_core;               /**< cores that the process may use */
  int exit_status;          /**< 0, or 3 after unreadable input; valid if nothing fails */
};

/** Print date, version, machine and command line.  backend NULL: omitted. */
void mill_bench_print_head(const mill_bench *job, const char *backend);

/** Print a table cell: value with n_digit decimals if `there` is 1, else the text `without`. */
void mill_bench_print_cell(int there, int n_digit, double value, const char *without);

/** The tasks.  Each prints Markdown on standard output, line by line as it measures.
 *
 *  fit        cost of a fit on this machine, by stage
 *  crossover  times of fits, trainings and particles of growing size, on the CPU and on the GPU,
 *             and the size from which the GPU is faster.  Without a GPU, its times are SKIPPED
 *  write      speed of writing a result file, by all ranks; collective */
int mill_bench_task_fit(mill_bench *job);
int mill_bench_task_crossover(mill_bench *job);
int mill_bench_task_write(mill_bench *job);

enum { MILL_BENCH_FOLDER = 1024 };

/** Make a temporary folder in base (NULL: $TMPDIR, else /tmp).  MILL_ERR_USAGE, MILL_ERR_OUTPUT. */
int mill_bench_make_folder(const char *base, char folder[MILL_BENCH_FOLDER]);

void mill_bench_remove_folder(const char *folder);

/** Stages of a star's time, in the order of the table. */
#define MILL_BENCH_STAGE_LIST(X)                                                                   \
  X(MILL_BENCH_READ, "read")                                                                       \
  X(MILL_BENCH_LOAD, "load")                                                                       \
  X(MILL_BENCH_PREPARE, "prepare")                                                                 \
  X(MILL_BENCH_GUESS, "guess")                                                                     \
  X(MILL_BENCH_SIMPLEX, "simplex")                                                                 \
  X(MILL_BENCH_POLISH, "polish")                                                                   \
  X(MILL_BENCH_PROFILE, "profile")                                                                 \
  X(MILL_BENCH_FINAL, "final")                                                                     \
  X(MILL_BENCH_WRITE, "write")                                                                     \
  X(MILL_BENCH_OTHER, "other")
#define MILL_BENCH_STAGE_ENUM(symbol, name) symbol,
enum mill_bench_stage { MILL_BENCH_STAGE_LIST(MILL_BENCH_STAGE_ENUM) MILL_BENCH_N_STAGE };
#undef MILL_BENCH_STAGE_ENUM

typedef struct mill_bench_run {
  mill_fit_meters meters;
  int64_t n_star;        /**< stars that the pipeline has finished */
  int64_t n_eval, n_jac; /**< sums of the stars' NEVAL and NJAC */
  double once_s;         /**< CPU s of work done once: start-up, wavelength sets and the end */
  double star_s;         /**< CPU s of all other work, on stars */
  double stage_s[MILL_BENCH_N_STAGE]; /**< star_s by stage */
} mill_bench_run;

/** Fit the first n_star rows of the inputs (0: all) into a temporary file; run gets the costs.
 *  Unreadable rows set job->exit_status to 3.  Codes of mill_fit_run; MILL_ERR_STOPPED: a signal;
 *  MILL_ERR_USAGE: no star was fitted. */
int mill_bench_run_fit(mill_bench *job, const mill_fit_options *options, int64_t n_star,
                       mill_bench_run *run);
