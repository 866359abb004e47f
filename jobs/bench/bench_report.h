/** What `starmill bench` prints: Markdown for people, JSON for programs. */
#ifndef MILL_BENCH_REPORT_H
#define MILL_BENCH_REPORT_H

#include <stdio.h>

#include "jobs/fit/fit.h"
#include "src/floor/bench_floor.h"

/** One run of a fit. */
typedef struct mill_bench_run {
  mill_fit_meters meters;
  int64_t n_taken;       /**< rows that became stars */
  int64_t n_eval, n_jac; /**< as the results of all stars have them */
  mill_bench_shape shape;
  double start_s;      /**< wall */
  double first_wall_s; /**< wall, to the first finished star; 0: there was none */
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
  const char *command;
  char date[32];       /**< UTC, ISO 8601 */
  char cpu[128];       /**< model */
  int n_core;          /**< that the process may use */
  const char *backend; /**< NULL: nothing was fitted */
  mill_bench_rates rates;
  int n_series;
  const mill_bench_series *series; /**< [n_series] */
} mill_bench_report;

/** Split a finished run's CPU time into what is done once, and stages. */
void mill_bench_split(mill_bench_run *run);

/** Fill date, cpu and n_core. */
void mill_bench_describe(mill_bench_report *report);

/** Print when, with what and where, and the command line. */
void mill_bench_print_head(const mill_bench_report *report, const char *command, FILE *out);

/** Lines are to be seen as they are made.  MILL_ERR_OUTPUT when the stream does not take them. */
int mill_bench_flush(FILE *out);

/** MILL_ERR_OUTPUT when the stream does not take it. */
int mill_bench_print(const mill_bench_report *report, FILE *out);

/** Write the JSON file.  MILL_ERR_OUTPUT names it. */
int mill_bench_write_json(const mill_bench_report *report, const char *path);

#endif
