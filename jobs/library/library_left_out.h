/* SPDX-License-Identifier: BSD-3-Clause */
/** Common steps of emulators of a grid file: its good models, a library without emulators, and the
 *  report from models left out (src/libraries/library_report.h). */
#ifndef MILL_LIBRARY_LEFT_OUT_H
#define MILL_LIBRARY_LEFT_OUT_H

#include "io/library/grid_file.h"
#include "src/libraries/library_report.h"

/** Rows of the good models of a grid file: *row [*n], allocated, the caller's also on failure.
 *  MILL_ERR_INPUT where some are still to do and unfinished is 0, MILL_ERR_MEMORY. */
int mill_good_models(const mill_grid_info *info, const char *path, int unfinished, int *n,
                     int **row);

/** Measure a library on spectra that took no part in it and print the report.
 *
 *  n_component  of the residuals, 0 ... MILL_MAX_ERROR
 *  how          a line that says which models were left out, and how
 *  to           gets the text, for its file; may be lib
 *  keep_error   1: its arms get the model error too
 *
 *  By one rank.  MILL_ERR_INPUT, MILL_ERR_MEMORY. */
int mill_library_measure(const mill_library *lib, const mill_model_set *spectra, int n_thread,
                         int n_component, const char *how, int keep_error, mill_library *to);

/** The same on models of a grid file, whose arms and labels are those of the library: n rows, of
 *  which MILL_REPORT_MAX are evenly taken where there are more. */
int mill_library_measure_rows(const mill_library *lib, mill_grid_file *grid,
                              const mill_grid_info *info, int n, const int *model, int n_thread,
                              int n_component, const char *how, int keep_error, mill_library *to);

/** A failure of input in a report costs the report and not the library: say so, and MILL_OK; other
 *  codes as they are. */
int mill_without_report(int err);

/** Write a library, put its hash into it and print a line about it.  MILL_ERR_OUTPUT. */
int mill_library_keep(const char *path, int overwrite, mill_library *lib);

/** Labels' names and arms of a grid file, without emulators, into a zeroed library.
 *
 *  path  of the file, whose last part becomes the arms' source
 *  MILL_ERR_MEMORY. */
int mill_library_frame(const mill_grid_info *info, const char *path, mill_library *lib);

#endif
