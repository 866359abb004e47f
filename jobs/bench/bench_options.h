/** Command line of `starmill bench`. */
#ifndef MILL_BENCH_OPTIONS_H
#define MILL_BENCH_OPTIONS_H

#include <stdio.h>

#include "jobs/options/options.h"

struct mill_bench;

enum { MILL_BENCH_N_OPTIMIZER = 3 };

/** What the command line says; texts are borrowed from argv. */
typedef struct mill_bench_options {
  int (*task)(struct mill_bench *job); /**< (jobs/bench/bench_job.h); NULL: only --help */
  /** The fit: library, config, catalog, backend, threads, slots, input; quiet is set. */
  mill_fit_options fit;
  int n_optimizer; /**< 0: that of the configuration; more than one only of fit */
  const char *optimizer[MILL_BENCH_N_OPTIMIZER];
  const char *output; /**< folder of the temporary result; NULL: $TMPDIR, else /tmp */
  const char *json;   /**< NULL: none */
  int64_t n_star;     /**< rows to fit; 0: all (slots: eight times the slots) */
  int n_repeat;
  int64_t n_most; /**< crossover: the largest batch */
  double limit_s; /**< crossover, slots: nothing is begun that would take longer */
  int keep;       /**< crossover: for --backend auto */
} mill_bench_options;

/** Parse and check argv, argv[0] being the job's name; argv is permuted.
 *  MILL_ERR_USAGE names the option and what it takes, or the task that has no use for it. */
int mill_bench_options_parse(int argc, char **argv, mill_bench_options *options);

/** take of an option (src/config/option.h): numbers from 1 to the row's max with commas between,
 *  into an int [MILL_BENCH_MAX_LIST]; how many into the int at offset2.  MILL_ERR_USAGE. */
enum { MILL_BENCH_MAX_LIST = 16 };
int mill_bench_take_list(const mill_option *row, const char *text, void *base);

/** That in the row of an option: member and n_member of a structure. */
#define MILL_BENCH_LIST(type, member, most)                                                        \
  MILL_OPTION_OTHER, MILL_AT(type, member), .offset2 = offsetof(type, n_##member), .max = most,    \
                                            .take = mill_bench_take_list, .argument = "LIST"

/** MILL_ERR_USAGE unless the list [n] of an option ascends, and its first number is least or more.
 */
int mill_bench_check_list(const char *option, int n, const int *list, int least);

#endif
