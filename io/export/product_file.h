/* SPDX-License-Identifier: BSD-3-Clause */
/** A FITS file that an export makes: under a temporary name in its folder, renamed when it is
 *  whole. */
#ifndef MILL_PRODUCT_FILE_H
#define MILL_PRODUCT_FILE_H

#include <fitsio.h>

#include "io/files/lock_file.h"

typedef struct mill_product {
  char path[MILL_MAX_PATH];          /**< links followed */
  char temporary[MILL_MAX_PATH + 8]; /**< empty: not begun */
  fitsfile *fits;                    /**< NULL: not open */
  mill_lock lock;
} mill_product;

/** Take the lock of path and begin the temporary file with an empty primary HDU; *product is
 *  zeroed.  MILL_ERR_OUTPUT: another job writes it, or it cannot be made. */
int mill_product_begin(const char *path, mill_product *product);

/** Write checksums into all HDUs, close; the file reaches the disk and takes its name.
 *  MILL_ERR_OUTPUT. */
int mill_product_commit(mill_product *product);

/** Remove the temporary file of a product that was not committed and release the lock; a product
 *  that was never begun is allowed. */
void mill_product_end(mill_product *product);

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

/** State of a product's path: nothing, or an export of this result. */
enum mill_product_state { MILL_PRODUCT_ABSENT, MILL_PRODUCT_DONE, MILL_PRODUCT_OLDER };

/** Check that a product of this kind (what) and result may be written at path.
 *
 *  *state: MILL_PRODUCT_DONE: it is there and not older than the result; OLDER: it is of the result
 *  before failed rows were fitted again, or of another one with overwrite.
 *  MILL_ERR_OUTPUT: another result's export without overwrite, or no export at all. */
int mill_product_look(const char *path, const char *what, const char *run_id, const char *result,
                      int overwrite, int *state);

#endif
