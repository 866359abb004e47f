/* SPDX-License-Identifier: BSD-3-Clause */
/** Options of the jobs that read labelled spectra. */
#ifndef MILL_LABELLED_OPTIONS_H
#define MILL_LABELLED_OPTIONS_H

#include "io/library/labelled_spectra.h"
#include "jobs/options/option_table.h"
#include "src/config/option.h"

enum { MILL_MAX_NAMED = 2 * MILL_MAX_GRID_AXIS };

/** Named values, as --labels, --keep and --lengths give them. */
typedef struct mill_named {
  char name[MILL_MAX_NAME];
  char column[MILL_MAX_NAME];
  double min, max, length;
} mill_named;

typedef struct mill_labelled_options {
  int n_label, n_keep;
  mill_named label[MILL_MAX_NAMED], keep[MILL_MAX_NAMED];
  mill_labelled_request request;
} mill_labelled_options;

/** For rows of a table whose offset is that of the mill_labelled_options: --labels NAME=COLUMN,...;
 *  --medium; --wave and --log-wave FIRST,STEP; --columns WAVE,FLUX, or WAVE,FLUX[,CONTINUUM] where
 *  the row has this argument. */
int mill_take_labels(const mill_option *row, const char *text, void *base);
int mill_take_medium(const mill_option *row, const char *text, void *base);
int mill_take_wave(const mill_option *row, const char *text, void *base);
int mill_take_columns(const mill_option *row, const char *text, void *base);

/** NAME=X,... for --lengths, else NAME=MIN:MAX,..., added to the mill_named list at the row's
 *  offset, whose number is at offset2. */
int mill_take_named(const mill_option *row, const char *text, void *base);

/** Options that exclude one another, or do nothing without another one: of the wavelengths, and of
 *  the table of labels.  given: as mill_option_parse has it.  MILL_ERR_USAGE. */
int mill_labelled_check_options(const mill_option_table *table, const unsigned char *given,
                                const mill_labelled_options *options);

/** teff=TEFF,logg=LOGG,feh=FEH */
int mill_labelled_default_labels(mill_labelled_options *options);

/** Last part of a path, without a slash at its end, into out [size]. */
void mill_last_of_path(const char *path, char *out, size_t size);

#endif
