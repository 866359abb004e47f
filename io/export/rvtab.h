/* SPDX-License-Identifier: BSD-3-Clause */
/** The HDUs of each kind of export, written into a product that was begun. */
#ifndef MILL_RVTAB_H
#define MILL_RVTAB_H

#include "io/export/carried.h"
#include "io/export/export_source.h"
#include "io/export/product_file.h"

/** rvtab of an input, as rvspecfit writes it: RVTAB, and of a DESI input FIBERMAP, SCORES and GAIA
 *  in step with it, and EXP_FIBERMAP.  input NULL: RVTAB alone.
 *  MILL_ERR_INPUT: the input cannot be read; MILL_ERR_OUTPUT, MILL_ERR_STOPPED. */
int mill_rvtab_write(mill_export_source *source, int i_file, mill_fits_file *input,
                     const mill_carried *carried, const mill_product *product);

/** The whole result: a table STARMILL with all columns of /fits and /catalog, and FILES, the inputs
 *  that its column FILE counts. */
int mill_whole_write(mill_export_source *source, const mill_product *product);

typedef struct mill_export_models mill_export_models;

/** Open the models of a result.  MILL_ERR_USAGE: they are those of another one. */
int mill_export_models_open(const mill_export_source *source, const char *path,
                            mill_export_models **out);

/** NULL is allowed. */
void mill_export_models_close(mill_export_models *models);

/** rvmod of an input: for each arm an image ARM_WAVELENGTH and one ARM_MODEL with a row for each
 *  exposure, and FIBERMAP in step with them.  carried: by exposure; input NULL: no FIBERMAP. */
int mill_rvmod_write(const mill_export_models *models, mill_fits_file *input,
                     const mill_carried *carried, const mill_product *product);

#endif
