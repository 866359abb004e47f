/* SPDX-License-Identifier: BSD-3-Clause */
/** Parts of a DESI input that an export copies: rows of its tables, and keywords. */
#ifndef MILL_CARRIED_H
#define MILL_CARRIED_H

#include "io/export/export_source.h"
#include "io/export/product_file.h"
#include "io/fits/fits_file.h"

/** The spectra of one input that are exported: one for each row of /fits, or all its exposures. */
typedef struct mill_carried {
  int64_t n;
  int64_t *fits_row;  /**< [n] rows of FIBERMAP, from 0; owned */
  int64_t *target_id; /**< [n] owned */
  int64_t *exposure;  /**< [n] rows of /catalog/exposures and of the models; owned */
  int is_joined;      /**< some exposures are of other inputs (join_by_name); by exposure only */
} mill_carried;

/** Those of input i_file.  MILL_ERR_OUTPUT: the result is damaged. */
int mill_carried_find(const mill_export_source *source, int i_file, int by_exposure,
                      mill_carried *out);
void mill_carried_clear(mill_carried *carried);

/** Open input i_file and check that its FIBERMAP has the carried targets; *out NULL: it is not a
 *  DESI file.
 *
 *  MILL_ERR_INPUT: it is gone, has changed since it was fitted, or a row was joined from several
 *  inputs. */
int mill_carried_open(const mill_export_source *source, int i_file, const mill_carried *carried,
                      mill_fits_file **out);

/** Append rows [n] of a table of the input to the product, as a new HDU with the input's header.
 *  MILL_ERR_INPUT: the input has no such row, or columns of variable length. */
int mill_carried_rows(mill_fits_file *input, int i_hdu, int64_t n, const int64_t *row,
                      const mill_product *product);

/** Append EXP_FIBERMAP's rows of the carried targets, likewise. */
int mill_carried_exposures(mill_fits_file *input, int i_hdu, const mill_carried *carried,
                           const mill_product *product);

/** The primary header: versions, library, configuration, command and redrock file as rvspecfit
 *  names them, and the kind of the product.
 *
 *  i_file  -1: of all inputs
 *  input   whose keywords on its grouping of spectra are copied; NULL: none
 *  what    kind, by which mill_product_look recognises it */
int mill_carried_header(const mill_export_source *source, int i_file, mill_fits_file *input,
                        const char *what, const mill_product *product);

#endif
