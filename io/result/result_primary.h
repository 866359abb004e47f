/* SPDX-License-Identifier: BSD-3-Clause */
/** One row of each star, the best one, in a result of many files. */
#ifndef MILL_RESULT_PRIMARY_H
#define MILL_RESULT_PRIMARY_H

#include <hdf5.h>
#include <stdint.h>

#define MILL_PRIMARY "catalog/PRIMARY"

/** Write /catalog/PRIMARY of an open result of n_row rows, which has none: 1 in one row of each
 *  star, 0 in its others.  Rows are of one star when their OBJECT is the same, or, without, their
 *  TARGETID; a row without either is a star.  The row is a fitted one where there is one, with
 *  VRAD_GOOD where there is one, and of those has the highest S/N, all arms together; of equal ones
 *  the first.  path: for messages.  Takes 64 bytes a row.  One rank alone.
 *  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_result_primary(hid_t file, const char *path, int64_t n_row);

#endif
