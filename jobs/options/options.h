/* SPDX-License-Identifier: BSD-3-Clause */
/** Command line of `starmill fit`. */
#pragma once

#include "jobs/options/option_table.h"

/** Values of the command line; texts are borrowed from argv; NULL: option not given. */
typedef struct mill_fit_options {
  int help, print_config, overwrite, retry_failed, quiet, redrock;
  int join_by_name, plan, skip_done;
  const char *library[MILL_MAX_LIBRARY];
  int n_library;
  const char *output, *config, *catalog, *models, *log, *log_level, *backend;
  const char *threads, *readers, *slots, *object_file, *min_sn, *min_sn_from, *objtype, *npoly;
  const char *target_class, *select_by, *min_exp_id, *max_exp_id;
  char arm[MILL_MAX_ARM][MILL_MAX_NAME];
  int n_arm;
  const char *optimizer, *precision;
  const char *format, *exposures, *join_radius, *epochs, *lsf, *resolving_power, *lsf_width_error,
      *medium, *start, *prior_table;
  const char *status;                 /**< path of the status file */
  const char *time_limit, *stop_file; /**< see mill_fit_options_running */
  const char *ranks, *rate;           /**< see mill_fit_options_running */
  /** [n_pattern] patterns of input paths; the array is owned, its texts borrowed */
  char **pattern;
  size_t n_pattern;
  char **object; /**< [n_object] names of stars; the array is owned, its texts borrowed */
  size_t n_object;
  const char *numbers, *numbers_file, *input_table;
  char *const *input; /**< [n_input] files named on the command line, in order */
  int n_input;
  /* the members below are for `starmill sample` only */
  const char *fit; /**< result whose stars are sampled; NULL: this is a fit */
  mill_sample_settings sample;
  const char *flag;               /**< names of flags separated by commas; NULL: any star */
  double least_sn, most_sn, part; /**< --sn-range, --fraction */
} mill_fit_options;

/** Rows of the options for running a job, common to fit and sample.  output: how the help names
 *  the result, such as "OUT.h5". */
#define MILL_FIT_RUNNING_ROWS(output)                                                              \
  {"backend", MILL_OPTION_TEXT, MILL_AT(mill_fit_options, backend), .key = "backend"},             \
      {"threads", MILL_OPTION_TEXT, MILL_AT(mill_fit_options, threads), .key = "threads"},         \
      {"readers", MILL_OPTION_TEXT, MILL_AT(mill_fit_options, readers), .key = "readers"},         \
      {"slots", MILL_OPTION_TEXT, MILL_AT(mill_fit_options, slots), .key = "slots"},               \
      {"quiet", MILL_OPTION_FLAG, MILL_AT(mill_fit_options, quiet), .may_differ = 1,               \
       .help = "no progress and no summary"},                                                      \
      {"log", MILL_OPTION_TEXT, MILL_AT(mill_fit_options, log), .may_differ = 1,                   \
       .help = "write the log there instead of to standard error"},                                \
      {"log-level", MILL_OPTION_TEXT, MILL_AT(mill_fit_options, log_level), .key = "log_level"},   \
      {"status", MILL_OPTION_TEXT, MILL_AT(mill_fit_options, status),                              \
       .help = "status file for `starmill status` (default: " output ".status.json)"},             \
      {"time-limit",                                                                               \
       MILL_OPTION_TEXT,                                                                           \
       MILL_AT(mill_fit_options, time_limit),                                                      \
       .argument = "T",                                                                            \
       .may_differ = 1,                                                                            \
       .help = "stop in good order before T is over, counted from the start: 3600 (seconds), "     \
               "45m, 7.5h, 7:30:00; auto: the end of the Slurm job"},                              \
  {                                                                                                \
    "stop-file", MILL_OPTION_TEXT, MILL_AT(mill_fit_options, stop_file),                           \
        .help = "stop in good order when this file appears (default: " output ".stop)"             \
  }

/** Parse the command line of `starmill fit`; argv[0] is the job's name, and argv is permuted.
 *  MILL_ERR_USAGE names the option. */
int mill_fit_options_parse(int argc, char **argv, mill_fit_options *options);

/** Callback `take` (src/config/option.h) of the repeatable option --library: append the path `text`
 *  to `library` in the mill_fit_options at base + row->offset. */
int mill_fit_take_library(const mill_option *row, const char *text, void *base);

/** Callback `take` of an option that may be repeated: append text to the list at base + row->offset
 *  with its length at base + row->offset2. */
int mill_fit_take_text(const mill_option *row, const char *text, void *base);

/** Kind, and offsets of list and length, of an option that mill_fit_take_text reads. */
#define MILL_FIT_TEXTS(member)                                                                     \
  MILL_OPTION_OTHER, .take = mill_fit_take_text, .offset = offsetof(mill_fit_options, member),     \
                     .offset2 = offsetof(mill_fit_options, n_##member)

/** Rows that choose the stars of a job, common to fit and sample. */
#define MILL_FIT_OBJECT_ROWS                                                                       \
  {"object", MILL_FIT_TEXTS(object), .argument = "STAR",                                           \
   .help = "only this star: a TARGETID, IDENTIFIER or OBJECT; may be repeated"},                   \
  {                                                                                                \
    "object-file", MILL_OPTION_TEXT, MILL_AT(mill_fit_options, object_file),                       \
        .may_differ = 1,                                                                           \
        .help = "only the stars listed in this file: a TARGETID, IDENTIFIER or OBJECT in each "    \
                "line, or a FITS table with such a column"                                         \
  }

/** Free the owned lists; NULL is allowed. */
void mill_fit_options_clear(mill_fit_options *options);

/** Apply the given options to config, and read the list of stars.  MILL_ERR_USAGE names the
 *  option, its value and its allowed values; MILL_ERR_MEMORY. */
int mill_fit_options_apply(const mill_fit_options *options, mill_config *config);

/** Fill request with the inputs of the command line; it borrows from options. */
struct mill_input_request;
void mill_fit_options_inputs(const mill_fit_options *options, struct mill_input_request *request);

/** Settings of a run that are not part of the configuration. */
typedef struct mill_running {
  double time_limit_s;   /**< seconds from now; 0: no limit */
  const char *stop_file; /**< NULL: the default, OUT.h5.stop */
  int n_rank;            /**< --plan: ranks of the planned run; 0: as many as now */
  double rate;           /**< --plan: stars/s of one rank; 0: the default */
} mill_running;

/** Read the settings of a run from the options.  MILL_ERR_USAGE names the wrong option. */
int mill_fit_options_running(const mill_fit_options *options, mill_running *running);

/** Read a time above 0 and at most ten years as seconds: 3600, 90s, 45m, 7.5h, 2d, H:MM:SS or
 *  D-HH:MM:SS.  option: its name without dashes.  MILL_ERR_USAGE. */
int mill_option_duration(const char *option, const char *text, double *seconds);
