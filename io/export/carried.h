/** What an export carries over from an input: rows of its tables, and keywords. */
#ifndef MILL_CARRIED_H
#define MILL_CARRIED_H

#include "io/export/export_source.h"
#include "io/export/product_file.h"
#include "io/fits/fits_file.h"

/** The spectra of one input that an export has: rows of /fits, or their exposures. */
typedef struct mill_carried {
  int64_t n;
  int64_t *fits_row;  /**< [n] rows of FIBERMAP, from 0; owned */
  int64_t *target_id; /**< [n] owned */
} mill_carried;

/** Those of input i_file, one for each exported row, or one for each of its exposures.
 *  MILL_ERR_INPUT: exposures of other inputs are among them (join_by_name), which has no FIBERMAP.
 */
int mill_carried_find(const mill_export_source *source, int i_file, int by_exposure,
                      mill_carried *out);
void mill_carried_clear(mill_carried *carried);

/** Open input i_file where it is a file of DESI; *out NULL: it is none.
 *  MILL_ERR_INPUT: it is gone, or has another size than when it was fitted. */
int mill_carried_open(const mill_export_source *source, int i_file, mill_fits_file **out);

/** Refuse an input whose FIBERMAP has other targets in these rows.  MILL_ERR_INPUT. */
int mill_carried_check(mill_fits_file *input, const mill_carried *carried);

/** Append rows [n] of a table of the input to the last HDU of the product; is_first: which is made
 *  for it, with the input's header.
 *
 *  MILL_ERR_INPUT: the input has no such row, other columns than the product, or ones of variable
 *  length. */
int mill_carried_rows(mill_fits_file *input, int i_hdu, int is_first, int64_t n, const int64_t *row,
                      const mill_product *product, fitsfile *out);

/** Append the rows of EXP_FIBERMAP of the carried targets, likewise. */
int mill_carried_exposures(mill_fits_file *input, int i_hdu, int is_first,
                           const mill_carried *carried, const mill_product *product, fitsfile *out);

/** The primary header: versions, library, configuration, command and redrock file as rvspecfit
 *  names them, the input's keywords that it keeps (input NULL: none), and what the product is.
 *
 *  what   how mill_carried_state knows it again */
int mill_carried_header(const mill_export_source *source, int i_file, mill_fits_file *input,
                        const char *what, const mill_product *product, fitsfile *out);

enum mill_product_state {
  MILL_PRODUCT_ABSENT,
  MILL_PRODUCT_DONE,  /**< of this result, finished, and not older than it */
  MILL_PRODUCT_OLDER, /**< of this result before it was continued */
  MILL_PRODUCT_OTHER, /**< an export of something else */
  MILL_PRODUCT_FOREIGN
};

/** What is at path?  Not collective. */
int mill_carried_state(const mill_export_source *source, const char *path, const char *what);

#endif
