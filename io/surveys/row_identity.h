/* SPDX-License-Identifier: BSD-3-Clause */
/** Identity of the rows of a file. */
#ifndef MILL_ROW_IDENTITY_H
#define MILL_ROW_IDENTITY_H

#include "io/catalog/catalog_row.h"

/** Complete the rows of an index: identifiers, and the hash of them all.  path: of the file, whose
 *  name is part of an identifier that a survey does not give. */
void mill_rows_identify(const char *path, mill_file_index *index);

#endif
