/** Runs of a fit that were measured, and their report: Markdown for people, JSON for programs. */
#ifndef MILL_BENCH_REPORT_H
#define MILL_BENCH_REPORT_H

#include "jobs/bench/bench_job.h"
#include "jobs/fit/fit.h"
#include "src/floor/bench_floor.h"

/** One run of a fit. */
typedef struct mill_bench_run {
  mill_fit_meters meters;
  int64_t n_taken;       /**< rows that became stars */
  int64_t n_eval, n_jac; /**< as the results of all stars have them */
  mill_bench_shape shape;
  double start_s;      /**< its start, by mill_wall_s */
  double first_wall_s; /**< wall seconds to the first finished star; 0: there was none */
  double once_s;       /**< CPU seconds of start-up, sets of wavelengths, and the end */
  double star_s;       /**< the rest */
  double stage_s[MILL_BENCH_N_STAGE]; /**< sum: star_s */
} mill_bench_run;

/** All runs with one optimizer. */
typedef struct mill_bench_series {
  const char *optimizer;
  mill_bench_run *run; /**< [n_run], owned */
  int n_run;
  int median; /**< the run that is shown: of median star_s, the faster of two */
  mill_bench_work work[MILL_BENCH_N_STAGE]; /**< the least of that run, all its stars */
} mill_bench_series;

typedef struct mill_bench_report {
  mill_bench_rates rates;
  int n_series; /**< 0: nothing was fitted */
  mill_bench_series series[MILL_BENCH_N_OPTIMIZER];
} mill_bench_report;

/** Run a fit in a temporary folder, of which only its costs are kept.  A row that is unreadable
 *  goes into job->exit_status.  instead: takes the place of the configured backend, and shapes and
 *  rows are not counted; NULL: none does.  The codes of mill_fit_run, MILL_ERR_STOPPED after a
 *  signal, MILL_ERR_USAGE when there was no star. */
int mill_bench_run_fit(mill_bench *job, mill_fit_options fit, const mill_backend *instead,
                       mill_bench_run *run);

/** Split a finished run's CPU time into what is done once, and stages. */
void mill_bench_split(mill_bench_run *run);

/** Print the report, and write the JSON file where the options name one.  MILL_ERR_OUTPUT. */
int mill_bench_print(const mill_bench *job, const mill_bench_report *report);

#endif
