/* SPDX-License-Identifier: BSD-3-Clause */
/** HDF5 files written by a run: result, models, particles.
 *
 *  - One rank creates all datasets under a temporary name and then renames the file, so that a kill
 *    never leaves a half-made file.
 *  - Then each rank writes rows without HDF5, at their offset in the file (mill_output_place).  So
 *    no rank waits for another.
 *  Failures are MILL_ERR_OUTPUT and name the file.  One thread at a time. */
#pragma once

#include <stdint.h>

#include "io/hdf5/hdf5_util.h"
#include "src/ranks/mpi_context.h"

/** An open output as a mill_h5_file, for functions of hdf5_util.h. */
#define MILL_OUTPUT(file, path) (&(const mill_h5_file){file, MILL_ERR_OUTPUT, path})

/** Fail because `what` cannot be written to the file at path, with HDF5's reason. */
#define MILL_OUTPUT_ERROR(path, what)                                                              \
  MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot write %s: %s" MILL_H5_MAKE_ROOM, path, what,             \
             mill_h5_reason())

/** Create a file at path.  n_byte: estimated size, for which disk space is reserved. */
int mill_output_create(const char *path, int64_t n_byte, hid_t *file);

/** Reserve disk space for all of a closed file, so that writing rows cannot fill the disk. */
int mill_output_take_room(const char *path);

/** Open a file for this rank alone; flags: H5F_ACC_RDONLY, H5F_ACC_RDWR, H5F_ACC_TRUNC (empty). */
int mill_output_open(const char *path, unsigned flags, hid_t *file);

/** Open an existing output read-only, by one process.  If path is missing, return MILL_OK with an
 *  invalid *file.  MILL_ERR_OUTPUT: path is not a readable HDF5 file. */
int mill_output_open_existing(const char *path, hid_t *file);

/** Open a descriptor, to write rows and for mill_output_still_there.  The caller closes *fd. */
int mill_output_hold(const char *path, int *fd);

/** Fail with MILL_ERR_OUTPUT unless all ranks see the file of rank 0 within 20 s: hosts without a
 *  shared folder would each write their own file.  Collective. */
int mill_output_check_shared(const char *path, const mill_mpi *mpi);

/** Wait until everything written to fd is on disk; fd -1: nothing to do. */
int mill_output_sync(const char *path, int fd);

/** n bytes at offset `at` by which a run recognises its open output; n <= 0: none. */
typedef struct mill_output_mark {
  int64_t at;
  ssize_t n;
  char bytes[1024];
} mill_output_mark;

/** Fail with MILL_ERR_OUTPUT unless the path still names the open file fd, and fd has the mark (cp
 *  and > overwrite a file but keep its inode).  fd -1: MILL_OK. */
int mill_output_still_there(const char *path, int fd, const mill_output_mark *mark);

/** Close a file; flush it first, unless err is a failure.  Returns err, or else a new failure. */
int mill_output_end(const char *path, hid_t *file, int err);

/** Call this before a job finalizes MPI.  If any rank failed to close a file, all ranks exit here:
 *  HDF5 would close the file again in MPI_Finalize, where HDF5 1.10 crashes.
 *
 *  err  outcome of the job, the same on all ranks except for MILL_ERR_MPI
 *
 *  If err is MILL_ERR_MPI, abort all ranks: this rank cannot reach them any more.  Collective. */
void mill_output_leave_if_broken(const mill_mpi *mpi, int err, int exit_status);

/** Read a text attribute of the file at path into out [size]. */
int mill_output_peek(const char *path, const char *object, const char *name, char *out,
                     size_t size);

/** Flush the file to disk, rename it to its final name, and flush the folder. */
int mill_output_rename(const char *from, const char *to);

/** Create a contiguous dataset of zeros, dim [n_dim]; n_dim 0: a scalar.  unit (if not empty) and
 *  description become attributes. */
int mill_output_dataset(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                        const hsize_t *dim, const char *unit, const char *description);

/** Create a column [n_row] or [n_row][n_value] without values; the caller writes all rows.
 *  fill: recorded as HDF5's fill value, to tell readers the missing value; NULL: none. */
int mill_output_column(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                       int64_t n_row, int64_t n_value, const void *fill, const char *unit,
                       const char *description);

/** Set *place to the byte offset of a dataset's values in the file.  type: the datatype that the
 *  dataset must have; negative: any.  MILL_ERR_OUTPUT: another type, or not contiguous. */
int mill_output_place(hid_t dataset, const char *path, const char *name, hid_t type,
                      haddr_t *place);

/** Write an attribute of several values; texts are UTF-8 of fixed length. */
int mill_output_attr_texts(hid_t loc, const char *path, const char *object, const char *name,
                           const char *const *text, int n_text);
int mill_output_attr_int64(hid_t loc, const char *path, const char *object, const char *name,
                           const int64_t *value, int n_value);

/** Write a scalar text dataset, which unlike an attribute may exceed 64 kB. */
int mill_output_text(hid_t loc, const char *path, const char *name, const char *text,
                     const char *description);
/** Read a scalar text dataset; the caller frees it with mill_free. */
int mill_output_read_text(hid_t loc, const char *path, const char *name, char **text);

/** Texts of a dataset [n], each padded with zeros to n_byte bytes; a zero follows the last text.
 *  The caller frees `text` with mill_free. */
typedef struct mill_output_texts {
  char *text;
  size_t n_byte;
  int64_t n;
} mill_output_texts;
/** Read texts.  n_dim: 1, or 0 for a scalar dataset, which gives n = 1. */
int mill_output_read_texts(hid_t loc, const char *path, const char *name, int n_dim,
                           mill_output_texts *out);

/** Read a whole dataset [n_row], which must have this type; not collective. */
int mill_output_read_whole(hid_t loc, const char *path, const char *name, hid_t type, int64_t n_row,
                           void *buffer);

/** Write a whole small dataset from one rank alone; not collective. */
int mill_output_write_whole(hid_t loc, const char *path, const char *name, hid_t type,
                            const void *buffer);
