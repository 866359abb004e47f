/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by the result and the models file: creating and opening HDF5 files that many ranks write.
 *
 *  One rank makes the structure under a temporary name, with all space allocated: a file that is
 *  complete before it is renamed survives any kill.  Afterwards each rank opens it for itself and
 *  writes rows at their place (mill_ph5_place), so no rank waits for another in HDF5.  Failures are
 *  MILL_ERR_OUTPUT and name the file.  One thread at a time.
 */
#ifndef MILL_PARALLEL_HDF5_H
#define MILL_PARALLEL_HDF5_H

#include <hdf5.h>
#include <mpi.h>
#include <stdint.h>

#include "src/ranks/mpi_context.h"

/** Create under its temporary name; n_byte: about how large it gets, so that a full disk is noticed
 *  before HDF5 starts. */
int mill_ph5_create(const char *path, int64_t n_byte, hid_t *file);

/** Take the room on disk of a file that has been made and closed, so that rows find it. */
int mill_ph5_take_room(const char *path);

/** Open for this rank alone; flags H5F_ACC_RDONLY, H5F_ACC_RDWR or, for a file that becomes empty,
 *  H5F_ACC_TRUNC. */
int mill_ph5_open(const char *path, unsigned flags, hid_t *file);

/** Open an earlier output read-only by one process; no failure and *file invalid: there is none.
 *  MILL_ERR_OUTPUT says what else is at the path. */
int mill_ph5_open_existing(const char *path, hid_t *file);

/** A descriptor of the file at path, to write rows by, and to check later that the path still names
 *  the file.  *fd is the caller's to close. */
int mill_ph5_hold(const char *path, int *fd);

/** Do all ranks see the file that rank 0 has made or found?  A file of another host may come some
 *  seconds late.  Collective.  MILL_ERR_OUTPUT names a rank and its host: hosts that do not share
 *  the folder would each write a file of their own. */
int mill_ph5_check_shared(const char *path, const mill_mpi *mpi);

/** What was written by it is on disk; fd -1: MILL_OK. */
int mill_ph5_sync(const char *path, int fd);

/** Does the path still name the file that is held?  fd -1: nothing is held, MILL_OK.
 *  MILL_ERR_OUTPUT says whether the file was removed or where it is now. */
int mill_ph5_still_there(const char *path, int fd);

/** Close, or after a failure err give up without another; the first failure, which counts. */
int mill_ph5_end(const char *path, hid_t *file, int err);

/** To be called before a job with the outcome err ends MPI: as mill_mpi_abort_if_lost, and where a
 * rank has a file that it could not close (HDF5 tries again when MPI is finalized, which 1.10 does
 * not survive) every rank leaves the program here, with this status.  Collective; all ranks have
 * the same outcome, but for MILL_ERR_MPI. */
void mill_ph5_leave_if_broken(const mill_mpi *mpi, int err, int exit_status);

/** Flush to disk, then rename to the final name. */
int mill_ph5_rename(const char *from, const char *to);

int mill_ph5_group(hid_t loc, const char *path, const char *name);

/** A contiguous dataset of zeros, of any shape, dim [n_dim]; n_dim 0: of one value.  With unit and
 *  description as attributes (unit empty: none). */
int mill_ph5_dataset_shaped(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                            const hsize_t *dim, const char *unit, const char *description);

/** The same with n values. */
int mill_ph5_dataset(hid_t loc, const char *path, const char *name, hid_t type, int64_t n,
                     const char *unit, const char *description);

/** The same [n_row] or [n_row][n_value], of which nothing is written: who writes its rows writes
 *  what is missing as well.  fill: the missing value, which readers are told; NULL: none. */
int mill_ph5_column(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                    int64_t n_row, int64_t n_value, const void *fill, const char *unit,
                    const char *description);

/** Where the values of an open dataset begin in the file.  type: which they must have exactly;
 *  negative: any.  MILL_ERR_OUTPUT when they do not follow one another in the file. */
int mill_ph5_place(hid_t dataset, const char *path, const char *name, hid_t type, haddr_t *place);

/** Attributes of an object; texts have fixed length, UTF-8. */
int mill_ph5_attr_text(hid_t loc, const char *path, const char *object, const char *name,
                       const char *text);
int mill_ph5_attr_texts(hid_t loc, const char *path, const char *object, const char *name,
                        const char *const *text, int n_text);
int mill_ph5_attr_int64(hid_t loc, const char *path, const char *object, const char *name,
                        const int64_t *value, int n_value);
/** Read a text attribute into out [size]; absent, another type or too long: failure. */
int mill_ph5_read_attr_text(hid_t loc, const char *path, const char *object, const char *name,
                            char *out, size_t size);
int mill_ph5_read_attr_int(hid_t loc, const char *path, const char *object, const char *name,
                           int *value);

/** A scalar text dataset, for texts of any length (attributes end at 64 kB). */
int mill_ph5_text(hid_t loc, const char *path, const char *name, const char *text,
                  const char *description);
/** free with mill_free */
int mill_ph5_read_text(hid_t loc, const char *path, const char *name, char **text);

/** A dataset [n] of texts, each of n_byte bytes, filled with zeros; free text with mill_free. */
typedef struct mill_ph5_texts {
  char *text;
  size_t n_byte;
  int64_t n;
} mill_ph5_texts;
int mill_ph5_read_texts(hid_t loc, const char *path, const char *name, mill_ph5_texts *out);

/** Read a whole dataset [n_row], which must hold this very type; not collective. */
int mill_ph5_read_whole(hid_t loc, const char *path, const char *name, hid_t type, int64_t n_row,
                        void *buffer);

/** Write a whole small dataset from one rank alone; not collective. */
int mill_ph5_write_whole(hid_t loc, const char *path, const char *name, hid_t type,
                         const void *buffer);

/** A fixed-length UTF-8 text type, close with H5Tclose; length at least 1. */
hid_t mill_ph5_text_type(size_t n_byte);

#endif
