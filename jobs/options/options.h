/** Command line of `starmill fit`. */
#ifndef MILL_OPTIONS_H
#define MILL_OPTIONS_H

#include <stdio.h>

#include "src/config/config.h"

/** What the command line says; texts are borrowed from argv, NULL: not given. */
typedef struct mill_fit_options {
  int help, print_config, overwrite, retry_failed, quiet, redrock;
  int join_by_name, plan;
  const char *library, *output, *config, *catalog, *models, *log, *log_level, *backend;
  const char *threads, *readers, *slots, *target_id_file, *min_sn, *objtype, *npoly;
  const char *optimizer, *precision;
  const char *format, *exposures, *join_radius, *lsf, *resolving_power, *medium, *start;
  const char *status;                         /**< path of the status file */
  const char *time_limit, *stop_file;         /**< see mill_fit_options_running */
  const char *status_interval, *ranks, *rate; /**< see mill_fit_options_running */
  int64_t *target_id;                         /**< [n_target_id], owned */
  size_t n_target_id;
  char *const *input; /**< [n_input] files named on the command line, in order */
  int n_input;
  /* of `starmill sample` (jobs/sample) */
  const char *fit; /**< the result whose stars are sampled; NULL: this is a fit */
  mill_sample_settings sample;
  const char *flag;               /**< names with commas; NULL: any star */
  int has_sn_range;               /**< sn_range was given */
  double least_sn, most_sn, part; /**< --sn-range, --fraction */
} mill_fit_options;

/** Parse argv, argv[0] being the job's name; argv is permuted.
 *  MILL_ERR_USAGE names the option. */
int mill_fit_options_parse(int argc, char **argv, mill_fit_options *options);

/** take of an option --targetid in a mill_fit_options (src/config/option.h). */
int mill_fit_take_target_ids(const mill_option *row, const char *text, void *base);

/** Free what it owns; NULL is allowed. */
void mill_fit_options_clear(mill_fit_options *options);

/** Put what was given over what config holds.  Reads the target-id file.
 *  MILL_ERR_USAGE names the option, its value and what it takes;
 *  MILL_ERR_MEMORY. */
int mill_fit_options_apply(const mill_fit_options *options, mill_config *config);

/** What concerns the running of a fit and stands in no configuration. */
typedef struct mill_running {
  double status_interval_s; /**< between two writes of the status file; 0: no such file */
  double time_limit_s;      /**< from now on; 0: none */
  const char *stop_file;    /**< NULL: the default, OUT.h5.stop */
  int n_rank;               /**< --plan: of the planned run; 0: as many as now */
  double rate;              /**< --plan: stars a second of one rank; 0: the default */
} mill_running;

/** MILL_ERR_USAGE names the option. */
int mill_fit_options_running(const mill_fit_options *options, mill_running *running);

/** A time in seconds, above 0 and at most ten years: 3600, 90s, 45m, 7.5h, 2d, H:MM:SS or
 *  D-HH:MM:SS.  option without its dashes.  MILL_ERR_USAGE. */
int mill_option_duration(const char *option, const char *text, double *seconds);

void mill_fit_options_print_help(FILE *out);

#endif
