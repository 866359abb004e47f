/** The files that rvspecfit writes beside each input, from a result: rvtab with the parameters, and
 *  rvmod with the best-fit models. */
#ifndef MILL_RVTAB_H
#define MILL_RVTAB_H

#include "io/export/export_source.h"
#include "io/export/product_file.h"

/** Write rvtab of the inputs [lo, hi) into a product that was begun: HDUs RVTAB, and of DESI's
 *  inputs FIBERMAP, SCORES and GAIA in step with it, and EXP_FIBERMAP.
 *
 *  what          mill_carried_header
 *  has_fibermap  0: RVTAB alone, and the inputs are not opened
 *
 *  MILL_ERR_INPUT: an input is gone or has changed; MILL_ERR_OUTPUT, MILL_ERR_STOPPED. */
int mill_rvtab_write(mill_export_source *source, int lo, int hi, int has_fibermap, const char *what,
                     const mill_product *product);

typedef struct mill_export_models mill_export_models;

/** Open the models of a result.  MILL_ERR_USAGE: they are those of another one. */
int mill_export_models_open(const mill_export_source *source, const char *path,
                            mill_export_models **out);

/** NULL is allowed. */
void mill_export_models_close(mill_export_models *models);

/** Write rvmod of an input: of each arm an image ARM_WAVELENGTH and one ARM_MODEL with a row for
 *  each exposure, and FIBERMAP in step with them. */
int mill_rvmod_write(mill_export_source *source, mill_export_models *models, int i_file,
                     int has_fibermap, const char *what, const mill_product *product);

#endif
