/* SPDX-License-Identifier: BSD-3-Clause */
/** Plan of a mock survey: its library, its files and their names, and its history. */
#ifndef MILL_SIMULATE_PLAN_H
#define MILL_SIMULATE_PLAN_H

#include "io/files/lock_file.h"
#include "io/mock/mock_files.h"
#include "jobs/simulate/simulate_options.h"

enum { MILL_SIMULATE_NAME = 40, MILL_SIMULATE_N_HISTORY = 6, MILL_SIMULATE_HISTORY = 240 };
enum { MILL_SIMULATE_ID = 16 /**< digits of a survey's id */ };

/** Names of the survey's files without spectra. */
#define MILL_SIMULATE_TRUTH   "truth.fits"
#define MILL_SIMULATE_CATALOG "catalog.txt"

/** A survey; options are set by the caller, the rest is made from them. */
typedef struct mill_simulate_plan {
  mill_simulate_options options;
  char library[1024]; /**< path of the library */
  int was_cut;        /**< its only arm was cut into the instrument's */
  mill_library lib;
  mill_mock_survey *survey;
  int n_file;
  char id[65]; /**< MILL_SIMULATE_ID digits of a digest of the history */
  char history[MILL_SIMULATE_N_HISTORY][MILL_SIMULATE_HISTORY];
  const char *history_line[MILL_SIMULATE_N_HISTORY]; /**< the same */
  mill_mock_origin origin;                           /**< of it */
  char *name;         /**< [n_file][MILL_SIMULATE_NAME] of the coadd files */
  const char **coadd; /**< [n_file] the same */
} mill_simulate_plan;

/** Read the library, by default the shipped one, and cut it.  MILL_ERR_USAGE, MILL_ERR_LIBRARY,
 *  MILL_ERR_CONFIG, MILL_ERR_MEMORY. */
int mill_simulate_library_read(mill_simulate_plan *plan);

/** The survey of plan->lib, names and history.  MILL_ERR_LIBRARY, MILL_ERR_MEMORY. */
int mill_simulate_plan_make(mill_simulate_plan *plan);
void mill_simulate_plan_clear(mill_simulate_plan *plan); /* zeroed is allowed */

/** Path of a file of the survey. */
void mill_simulate_path(const mill_simulate_plan *plan, const char *name, char out[MILL_MAX_PATH]);

/** Name of a coadd file, or of its redrock file. */
void mill_simulate_name(int i_file, int redrock, char out[MILL_SIMULATE_NAME]);

/** Rows of a file. */
int64_t mill_simulate_rows(const mill_simulate_plan *plan, int i_file);

#endif
