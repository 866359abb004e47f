/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by the result and the models file: creating, filling and opening HDF5 files that many
 *  ranks write.
 *
 *  One rank makes the structure under a temporary name, with all space allocated and filled: a file
 *  that is complete before it is renamed survives any kill, and a failure on one rank cannot leave
 *  others waiting in a collective call.  Afterwards ranks only write raw data.  Failures are
 *  MILL_ERR_OUTPUT and name the file.  One thread at a time.
 */
#ifndef MILL_PARALLEL_HDF5_H
#define MILL_PARALLEL_HDF5_H

#include <hdf5.h>
#include <mpi.h>
#include <stdint.h>

#include "src/ranks/mpi_context.h"

/** Create under its temporary name, open by one process (MPI_COMM_SELF); n_byte:
 *  about how large it gets, so that a full disk is noticed before HDF5 starts. */
int mill_ph5_create(const char *path, int64_t n_byte, hid_t *file);

/** Open with the mpio driver, which takes no lock and leaves no mark; flags
 *  H5F_ACC_RDONLY, H5F_ACC_RDWR or, for a file that becomes empty, H5F_ACC_TRUNC.  Collective over
 *  comm, the outcome may differ. */
int mill_ph5_open(const char *path, unsigned flags, MPI_Comm comm, hid_t *file);

/** Open an earlier output read-only by one process; no failure and *file invalid: there is none.
 *  MILL_ERR_OUTPUT says what else is at the path. */
int mill_ph5_open_existing(const char *path, hid_t *file);

/** Keep the file at path open, to check later that the path still names it.  *fd is the caller's to
 *  close. */
int mill_ph5_hold(const char *path, int *fd);

/** Does the path still name the file that is held?  fd -1: nothing is held, MILL_OK.
 *  MILL_ERR_OUTPUT says whether the file was removed or where it is now. */
int mill_ph5_still_there(const char *path, int fd);

/** Flush to disk and close; the first failure counts.  *file becomes invalid. */
int mill_ph5_close(const char *path, hid_t *file);

/** Give up a file whose writing has failed already; n_rank: that have it open.  Of several a
 *  close may never return, for a rank that fails in it leaves the others waiting, so then
 *  it stays open. */
void mill_ph5_drop(hid_t *file, int n_rank);

/** Close, or after a failure err drop, a file that n_rank ranks have open; the first failure, which
 *  counts. */
int mill_ph5_end(const char *path, hid_t *file, int n_rank, int err);

/** To be called before a job with the outcome err ends MPI: as mill_mpi_abort_if_lost, and where a
 * rank has a file that it could not close (HDF5 tries again when MPI is finalized, which 1.10 does
 * not survive) every rank leaves the program here, with this status.  Collective; all ranks have
 * the same outcome, but for MILL_ERR_MPI. */
void mill_ph5_leave_if_broken(const mill_mpi *mpi, int err, int exit_status);

/** Flush to disk, then rename to the final name. */
int mill_ph5_rename(const char *from, const char *to);

int mill_ph5_group(hid_t loc, const char *path, const char *name);

/** One contiguous dataset of one value (n_dim 0), [n_row] or [n_row][n_value], allocated and
 * filled. With unit and description as attributes (unit empty: none). */
int mill_ph5_dataset(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                     int64_t n_row, int64_t n_value, const void *fill, const char *unit,
                     const char *description);

/** The same of any shape, dim [n_dim]. */
int mill_ph5_dataset_shaped(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                            const hsize_t *dim, const void *fill, const char *unit,
                            const char *description);

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

/** Open a dataset and check its shape [n_row] or [n_row][n_value], class and size. */
int mill_ph5_open_dataset(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                          int64_t n_row, int64_t n_value, hid_t *dataset);

/** Rows of one shape to be written or read: n runs of neighbours. */
typedef struct mill_ph5_rows {
  hid_t space;  /**< of the file, rows selected */
  hid_t memory; /**< of the buffer, packed */
} mill_ph5_rows;

/** Select rows [n], ascending and different, of a [n_total] (n_dim 1) or
 *  [n_total][n_value] (n_dim 2) dataset; n = 0 selects nothing. */
int mill_ph5_select(const char *path, int n_dim, int64_t n_total, int64_t n_value,
                    const int64_t *row, int64_t n, mill_ph5_rows *rows);
int mill_ph5_select_range(const char *path, int n_dim, int64_t n_total, int64_t n_value,
                          int64_t start, int64_t n, mill_ph5_rows *rows);
void mill_ph5_unselect(mill_ph5_rows *rows);

/** Write or read the selected rows; writing is collective over the ranks that opened the file,
 *  unless one rank writes alone (is_alone 1); reading is not. */
int mill_ph5_write(hid_t dataset, const char *path, const char *name, hid_t type,
                   const mill_ph5_rows *rows, const void *buffer, int is_alone);
int mill_ph5_read(hid_t dataset, const char *path, const char *name, hid_t type,
                  const mill_ph5_rows *rows, void *buffer);

/** Read a whole dataset [n_row], which must hold this very type; not collective. */
int mill_ph5_read_whole(hid_t loc, const char *path, const char *name, hid_t type, int64_t n_row,
                        void *buffer);

/** Write a whole small dataset from one rank alone; not collective. */
int mill_ph5_write_whole(hid_t loc, const char *path, const char *name, hid_t type,
                         const void *buffer);

/** A fixed-length UTF-8 text type, close with H5Tclose; length at least 1. */
hid_t mill_ph5_text_type(size_t n_byte);

#endif
