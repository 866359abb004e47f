/** A file that an export makes: under a temporary name beside its place, renamed when it is whole.
 */
#ifndef MILL_PRODUCT_FILE_H
#define MILL_PRODUCT_FILE_H

#include <fitsio.h>

#include "io/files/lock_file.h"

typedef struct mill_product {
  char path[MILL_MAX_PATH];          /**< links followed */
  char temporary[MILL_MAX_PATH + 8]; /**< empty: not begun */
  mill_lock lock;
  mill_lock_keeper *keeper; /**< touches it */
} mill_product;

/** Take the lock of path and find the temporary name, *product zeroed; nothing is made yet.
 *  MILL_ERR_OUTPUT: another job writes it. */
int mill_product_begin(const char *path, mill_product *product);

/** The temporary file, which is closed, reaches the disk and takes its name.  MILL_ERR_OUTPUT. */
int mill_product_commit(mill_product *product);

/** Remove the temporary file of a product that was not committed, and release the lock; also of
 *  one that was never begun. */
void mill_product_end(mill_product *product);

/* ---- FITS ---- */

/** Begin product->temporary as a FITS file with an empty primary HDU. */
int mill_product_fits(const mill_product *product, fitsfile **out);

/** Write checksums into all HDUs and close; *out becomes NULL, also after a failure. */
int mill_product_fits_close(const mill_product *product, fitsfile **out);

/** MILL_ERR_OUTPUT with CFITSIO's reason where status is not 0. */
int mill_product_status(const mill_product *product, int status);
#define MILL_TRY_PRODUCT(product, status)   MILL_TRY(mill_product_status((product), (status)))
#define MILL_CHECK_PRODUCT(product, status) MILL_CHECK(mill_product_status((product), (status)))

/** A keyword with a text, cut after 4 kB; bytes that FITS does not allow become '?', and single
 *  quotes double ones. */
void mill_product_key(fitsfile *out, const char *key, const char *value, const char *comment,
                      int *status);

/** Bytes that a FITS text may not hold become '?'. */
void mill_product_printable(char *text, size_t n);

#endif
