/* SPDX-License-Identifier: BSD-3-Clause */
/** The columns of io/result/columns.h as datasets of an HDF5 file. */
#ifndef MILL_COLUMN_DATA_H
#define MILL_COLUMN_DATA_H

#include <hdf5.h>

#include "io/result/columns.h"

/** The type of numbers of enum mill_column_type in the file and in memory; borrowed from HDF5. */
hid_t mill_column_hdf5_type(int type);

/** The type of a column, whose texts have n_byte bytes; for H5Tclose. */
hid_t mill_column_new_type(int type, size_t n_byte);

/** A dataset of /fits or /catalog with its fill value; path: of the file, for messages. */
int mill_column_create(hid_t group, const char *path, const mill_column *column, int64_t n_row);

/** Open a column of a group, whose shape and type are checked. */
int mill_column_open(hid_t file, const char *path, const char *group, const mill_column *column,
                     int64_t n_row, hid_t *dataset);

#endif
