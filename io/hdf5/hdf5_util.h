/* SPDX-License-Identifier: BSD-3-Clause */
/** Checked helpers over HDF5 for untrusted files.
 *
 *  The message of a failure is one line: file, object and HDF5's innermost reason.  HDF5's error
 *  stack is not printed.  The code of a failure is mill_h5_file.code.  HDF5 is not thread-safe: one
 *  thread at a time.
 */
#ifndef MILL_HDF5_UTIL_H
#define MILL_HDF5_UTIL_H

#include <stddef.h>

#include <hdf5.h>

typedef struct mill_h5_file {
  hid_t id;         /**< negative: not open */
  int code;         /**< MILL_ERR_... of every failure with this file */
  const char *path; /**< for messages, borrowed */
} mill_h5_file;

/* Ends messages about failed writes: HDF5 does not say that a disk is full. */
#define MILL_H5_MAKE_ROOM                                                                          \
  "; if the disk is full or a quota is used up, make room, then the same command continues"

enum {
  MILL_H5_MAX_NUMBER = 16 /**< most bytes of a number; HDF5 would convert larger, damaged ones */
};

/** The innermost reason of the last HDF5 failure of this thread; call it before
 *  any other HDF5 function. */
const char *mill_h5_reason(void);

/** Close each of n ids that is open (above 0): datasets, types, groups, ..., and files that were
 *  only read. */
void mill_h5_close_ids(int n, const hid_t *id);
#define MILL_H5_CLOSE(...)                                                                         \
  mill_h5_close_ids((int)(sizeof((const hid_t[]){__VA_ARGS__}) / sizeof(hid_t)),                   \
                    (const hid_t[]){__VA_ARGS__})

/** An open dataset or attribute with its type and shape; zero: not open. */
typedef struct mill_h5_array {
  hid_t id, type, space;
} mill_h5_array;

/** Open a dataset or an attribute; 0: failed, mill_h5_reason says why.  Close it in both cases. */
int mill_h5_array_open(hid_t loc, const char *name, mill_h5_array *array);
int mill_h5_array_open_attr(hid_t loc, const char *object, const char *name, mill_h5_array *array);
void mill_h5_array_close(mill_h5_array *array);

/** Open or create by H5F_ACC_... flags.  No file locks, which read-only and network file systems
 *  often lack; no cache of raw data, because ranks write rows without HDF5. */
int mill_h5_open_as(const char *path, unsigned flags, int code, hid_t *file);

/** Open read-only, without a lock.  The message distinguishes missing, unreadable, not a file, not
 *  HDF5, and cut or damaged. */
int mill_h5_open(const char *path, int code, mill_h5_file *file);

/** Open a file in memory, image [n_byte]; messages call it path. */
int mill_h5_open_image(const void *image, size_t n_byte, const char *path, int code,
                       mill_h5_file *file);

/** Refuse what could read other files or run foreign code: external, soft and user-defined links,
 *  external and virtual storage, filters other than deflate, shuffle and fletcher32, and objects
 *  other than groups and datasets.  Call it before opening the first dataset. */
int mill_h5_scan(const mill_h5_file *file);

/** Create an empty file in memory; name: for messages, must not exist on disk. */
int mill_h5_create_image(const char *name, mill_h5_file *file);

/** Bytes of a file made by mill_h5_create_image; free with mill_free. */
int mill_h5_get_image(const mill_h5_file *file, void **image, size_t *n_byte);

/** Close; does nothing for a file that is not open. */
void mill_h5_close(mill_h5_file *file);

/** Apply mill_h5_scan to an existing output, before a run continues it.  MILL_OK if no HDF5 file
 *  can be opened at path: whoever reads it reports the error. */
int mill_h5_check_output(const char *path);

/** Does an object of that path exist? */
int mill_h5_exists(const mill_h5_file *file, const char *name);

/** Shape of a dataset, dim [n_dim]; it must have n_dim dimensions. */
int mill_h5_shape(const mill_h5_file *file, const char *name, int n_dim, size_t *dim);

/** Read a whole dataset of exactly that shape.  mem_type: a native integer or floating-point type.
 *  The dataset's type must be of the same kind; a floating-point one must not be wider. */
int mill_h5_read(const mill_h5_file *file, const char *name, hid_t mem_type, int n_dim,
                 const size_t *dim, void *data);

/** Does the object have the attribute? */
int mill_h5_has_attr(const mill_h5_file *file, const char *object, const char *name);

/** Read scalar attributes; object "/" is the root.  Enumerations (booleans) are read as int. */
int mill_h5_read_attr_int(const mill_h5_file *file, const char *object, const char *name, int *out);
int mill_h5_read_attr_double(const mill_h5_file *file, const char *object, const char *name,
                             double *out);
/** out [size]: with the final zero; a longer text is a failure. */
int mill_h5_read_attr_text(const mill_h5_file *file, const char *object, const char *name,
                           char *out, size_t size);

/** Make a UTF-8 text type of n_byte bytes (at least 1); close it with H5Tclose. */
hid_t mill_h5_text_type(size_t n_byte);

int mill_h5_write_group(const mill_h5_file *file, const char *name);
/** Write a dataset; unit and description become attributes, unit NULL: none. */
int mill_h5_write(const mill_h5_file *file, const char *name, hid_t file_type, hid_t mem_type,
                  int n_dim, const size_t *dim, const void *data, const char *unit,
                  const char *description);
/** Write an attribute: a scalar (n_value 0) or n_value values. */
int mill_h5_write_attr(const mill_h5_file *file, const char *object, const char *name,
                       hid_t file_type, hid_t mem_type, int n_value, const void *value);
int mill_h5_write_attr_int(const mill_h5_file *file, const char *object, const char *name,
                           int value);
int mill_h5_write_attr_double(const mill_h5_file *file, const char *object, const char *name,
                              double value);
int mill_h5_write_attr_text(const mill_h5_file *file, const char *object, const char *name,
                            const char *value);

#endif
