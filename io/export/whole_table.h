/** A result as one table: all columns of /fits and /catalog, in a form that other programs open. */
#ifndef MILL_WHOLE_TABLE_H
#define MILL_WHOLE_TABLE_H

#include "io/export/export_source.h"
#include "io/export/product_file.h"

/** FITS: a table STARMILL, and FILES, the inputs that its column FILE counts. */
int mill_whole_fits(mill_export_source *source, const mill_product *product);

/** CSV (RFC 4180): a line of names, then one for each row.  Numbers keep all their digits; NaN is
 *  an empty field; of a vector each value has a field, NAME_0 and so on. */
int mill_whole_csv(mill_export_source *source, const mill_product *product);

/** HDF5: one dataset /table of compound rows, with units and descriptions as astropy keeps them. */
int mill_whole_hdf5(mill_export_source *source, const mill_product *product);

#endif
