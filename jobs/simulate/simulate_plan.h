/** What a mock survey is: its files, their names and sizes, and what makes it what it is. */
#ifndef MILL_SIMULATE_PLAN_H
#define MILL_SIMULATE_PLAN_H

#include "io/files/lock_file.h"
#include "io/mock/desi_write.h"
#include "jobs/simulate/simulate_options.h"
#include "src/ranks/mpi_context.h"

enum { MILL_SIMULATE_NAME = 40, MILL_SIMULATE_N_HISTORY = 6, MILL_SIMULATE_HISTORY = 240 };

/** Names of the survey's files without spectra. */
#define MILL_SIMULATE_TRUTH   "truth.fits"
#define MILL_SIMULATE_CATALOG "catalog.txt"

/** The first line of the catalog, by which it is known. */
#define MILL_SIMULATE_CATALOG_HEAD "# by starmill simulate, for starmill fit --catalog\n"

/** What a user can do about a survey that is there and another one. */
#define MILL_SIMULATE_OTHER                                                                        \
  "a survey with other settings: give its settings to continue it, another folder, or "            \
  "--overwrite, which removes that survey"

/** A survey; options and lib (of the source emulator) are set by the caller, the rest is made
 *  from them. */
typedef struct mill_simulate_plan {
  mill_simulate_options options;
  mill_library lib;
  int n_file;
  int64_t file_bytes[2][2]; /**< coadd, redrock; of the last file, of all others */
  double *wave_aa[MILL_MOCK_N_ARM];
  mill_desi_write_arm arm[MILL_MOCK_N_ARM];
  char history[MILL_SIMULATE_N_HISTORY][MILL_SIMULATE_HISTORY];
  int n_label;
  const char *label_column[MILL_MAX_LABEL], *label_unit[MILL_MAX_LABEL];
  int i_teff;         /**< label of Teff, -1: none */
  char *name;         /**< [n_file][MILL_SIMULATE_NAME] of the coadd files */
  const char **coadd; /**< [n_file] the same */
} mill_simulate_plan;

/** Names, labels, wavelengths and sizes; no file is touched.  MILL_ERR_MEMORY. */
int mill_simulate_plan_make(mill_simulate_plan *plan);
void mill_simulate_plan_clear(mill_simulate_plan *plan); /* zeroed is allowed */

/** The library where the source is an emulator, else NULL. */
const mill_library *mill_simulate_library(const mill_simulate_plan *plan);

/** Path of a file of the survey. */
void mill_simulate_path(const mill_simulate_plan *plan, const char *name, char out[MILL_MAX_PATH]);

/** Name of a coadd file, or of its redrock file. */
void mill_simulate_name(int i_file, int redrock, char out[MILL_SIMULATE_NAME]);

/** Rows of a file. */
int64_t mill_simulate_rows(const mill_simulate_plan *plan, int i_file);

/** HISTORY of one file: the survey's, and which part of it the file is. */
typedef struct mill_simulate_history {
  const char *line[MILL_SIMULATE_N_HISTORY + 1];
  char part[MILL_SIMULATE_HISTORY];
} mill_simulate_history;
void mill_simulate_history_of(const mill_simulate_plan *plan, int i_file,
                              mill_simulate_history *history);

/** Shape of the truth table; borrows from plan and history. */
mill_truth_shape mill_simulate_truth_shape(const mill_simulate_plan *plan,
                                           mill_simulate_history *history);

/** One file: its bytes, and whether it is there (MILL_FILE_ABSENT or MILL_FILE_SAME).
 *  MILL_ERR_OUTPUT when another one is there. */
int mill_simulate_look_at(const mill_simulate_plan *plan, int i_file, int redrock, int64_t *n_byte,
                          int *state);

/** All files together, and how many are there already. */
typedef struct mill_simulate_size {
  int64_t n_byte, n_byte_left;
  int64_t n_file_kept, n_row_left;
  int64_t n_row_mine; /**< of n_row_left those of this rank */
} mill_simulate_size;

/** What the whole survey takes: n_byte only. */
int mill_simulate_plan_size(const mill_simulate_plan *plan, mill_simulate_size *size);

/** Which files are there: each rank looks at its own.  *complete: the truth table and all files
 *  are.  Collective. */
int mill_simulate_look_at_all(const mill_mpi *mpi, const mill_simulate_plan *plan,
                              mill_simulate_size *size, int *complete);

#endif
