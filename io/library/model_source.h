/* SPDX-License-Identifier: BSD-3-Clause */
/** Model spectra with labels, one at a time: files with one spectrum each, or one file with an
 *  image of spectra and a table, or a cube (io/library/labelled_spectra.h says what is read).
 *
 *  Memory holds the labels of a file with many spectra, and one spectrum. */
#ifndef MILL_MODEL_SOURCE_H
#define MILL_MODEL_SOURCE_H

#include "io/library/grid_file.h"
#include "io/library/labelled_spectra.h"

enum { MILL_GRID_WHY = 128 };

typedef struct mill_model_request {
  mill_labelled_request labelled;
  char label[MILL_MAX_LABEL][MILL_MAX_NAME]; /**< names in the library, [labelled.n_label] */
  const char *name_pattern; /**< labels from the files' names (io/library/name_pattern.h); NULL:
                                 cards, columns or axes */
} mill_model_request;

/** Description of a model without its spectrum. */
typedef struct mill_model_entry {
  int index;
  double label[MILL_MAX_GRID_AXIS]; /**< NaN: not known */
  uint64_t stamp;                   /**< of its file; 0: the file cannot be looked at */
  char name[MILL_GRID_NAME];        /**< of its file, without folder and end, or "row 7" */
  char why[MILL_GRID_WHY];          /**< it cannot be used; empty: it can */
} mill_model_entry;

typedef struct mill_model_spectrum {
  int n_pix;
  const double *wave_aa; /**< [n_pix] vacuum A; own_wave, or what the source keeps */
  double *own_wave, *flux;
  double *continuum; /**< [n_pix]; NULL: not asked for */
} mill_model_spectrum;

void mill_model_spectrum_clear(mill_model_spectrum *spectrum);

typedef struct mill_model_source mill_model_source;

/** path [n_path]: files with one spectrum each, or one file with many; borrowed, as request is.
 *  is_many: 1 for one file with many.  MILL_ERR_INPUT. */
int mill_model_source_open(const mill_model_request *request, const char *const *path, int n_path,
                           int is_many, mill_model_source **out);
void mill_model_source_close(mill_model_source *source); /* NULL is allowed */

int mill_model_source_n(const mill_model_source *source);

/** Model i without its spectrum: its header is read.  entry->why gives its defect; a returned
 *  failure stops everything. */
int mill_model_source_entry(mill_model_source *source, int i, mill_model_entry *entry);

/** The spectrum of model i; spectrum zeroed before, valid until the source is closed.
 *  MILL_ERR_INPUT says what is wrong with this model. */
int mill_model_source_read(mill_model_source *source, int i, mill_model_spectrum *spectrum);

/** Description of the last spectrum. */
const mill_labelled_origin *mill_model_source_origin(const mill_model_source *source);

#endif
