/* SPDX-License-Identifier: BSD-3-Clause */
/** Checked helpers for reading and writing HDF5 files, which may be damaged or malicious.
 *
 *  A failure has the code mill_h5_file.code, and a message with file, object and HDF5's innermost
 *  reason.  HDF5 is not thread-safe: use one thread at a time. */
#pragma once

#include <stddef.h>

#include <hdf5.h>

typedef struct mill_h5_file {
  hid_t id;         /**< negative: not open */
  int code;         /**< MILL_ERR_... code of all failures with this file */
  const char *path; /**< for messages, borrowed */
} mill_h5_file;

/* Messages about failed writes end with this text, because HDF5 does not report a full disk. */
#define MILL_H5_MAKE_ROOM                                                                          \
  "; if the disk is full or a quota is used up, make room, then the same command continues"

enum {
  MILL_H5_MAX_NUMBER = 16 /**< most bytes of a number; a larger number is damaged */
};

/** Innermost reason of this thread's last HDF5 failure; call it before any other HDF5 function. */
const char *mill_h5_reason(void);

/** Close n HDF5 objects; ids below 1 are allowed. */
void mill_h5_close_ids(int n, const hid_t *id);
static inline void mill_h5_id_close(const hid_t *id)
{
  mill_h5_close_ids(1, id);
}
#define MILL_H5_CLOSE(...)                                                                         \
  mill_h5_close_ids((int)(sizeof((const hid_t[]){__VA_ARGS__}) / sizeof(hid_t)),                   \
                    (const hid_t[]){__VA_ARGS__})

/** An open dataset or attribute with its type and shape; all zero: not open. */
typedef struct mill_h5_array {
  hid_t id, type, space;
} mill_h5_array;

/** Open a dataset or attribute; 0: failed, see mill_h5_reason.  Close it also after a failure. */
int mill_h5_array_open(hid_t loc, const char *name, mill_h5_array *array);
int mill_h5_array_open_attr(hid_t loc, const char *object, const char *name, mill_h5_array *array);
void mill_h5_array_close(mill_h5_array *array);

/** Open or create a file by H5F_ACC_... flags
 *  - without file locks, which read-only and network file systems often lack;
 *  - without a cache of raw data, since ranks write rows without HDF5. */
int mill_h5_open_as(const char *path, unsigned flags, int code, hid_t *file);

/** Open read-only, without a file lock. */
int mill_h5_open(const char *path, int code, mill_h5_file *file);

/** Open the HDF5 file whose bytes are image [n_byte]; if image is NULL, create a file in memory.
 *  path: name for messages; if image is NULL, no file may exist at path. */
int mill_h5_open_image(const void *image, size_t n_byte, const char *path, int code,
                       mill_h5_file *file);

/** Refuse a file by which HDF5 could read other files or run foreign code.  Call it before opening
 *  the first dataset.  Refused are
 *  - links other than hard links;
 *  - external and virtual storage;
 *  - filters other than deflate, shuffle and fletcher32;
 *  - objects other than groups and datasets. */
int mill_h5_scan(const mill_h5_file *file);

/** Copy the bytes of a file created by mill_h5_open_image; free them with mill_free. */
int mill_h5_get_image(const mill_h5_file *file, void **image, size_t *n_byte);

/** Close a file, if open. */
void mill_h5_close(mill_h5_file *file);

/** Apply mill_h5_scan to an existing output before a run continues it.  A file that is not HDF5
 *  passes: its reader will refuse it. */
int mill_h5_check_output(const char *path);

/** Does the object `name` exist? */
int mill_h5_exists(const mill_h5_file *file, const char *name);

/** Get the shape of a dataset, dim [n_dim] out; fail unless it has n_dim dimensions. */
int mill_h5_shape(const mill_h5_file *file, const char *name, int n_dim, size_t *dim);

/** Read a whole dataset of shape dim [n_dim].  mem_type: native type of data.  Stored integers are
 *  read only as integers, floats only as floats of at least the stored width. */
int mill_h5_read(const mill_h5_file *file, const char *name, hid_t mem_type, int n_dim,
                 const size_t *dim, void *data);

/** mill_h5_read into new memory (mill_free); out: address of the pointer to set. */
int mill_h5_read_new(const mill_h5_file *file, const char *name, hid_t mem_type, int n_dim,
                     const size_t *dim, void *out);

/** Has the object this attribute? */
int mill_h5_has_attr(const mill_h5_file *file, const char *object, const char *name);

/** Read a scalar attribute; object "/": the root.  Enumerations (booleans) can be read as int. */
int mill_h5_read_attr_int(const mill_h5_file *file, const char *object, const char *name, int *out);
int mill_h5_read_attr_double(const mill_h5_file *file, const char *object, const char *name,
                             double *out);
/** Read a text into out [size], with its final zero; fail if it is longer. */
int mill_h5_read_attr_text(const mill_h5_file *file, const char *object, const char *name,
                           char *out, size_t size);

/** Make a UTF-8 text type of n_byte bytes (at least 1); close it with H5Tclose. */
hid_t mill_h5_text_type(size_t n_byte);

int mill_h5_write_group(const mill_h5_file *file, const char *name);
/** Write a dataset with the attribute `description`. */
int mill_h5_write(const mill_h5_file *file, const char *name, hid_t file_type, hid_t mem_type,
                  int n_dim, const size_t *dim, const void *data, const char *description);
/** Write an attribute: a scalar (n_value 0) or n_value values. */
int mill_h5_write_attr(const mill_h5_file *file, const char *object, const char *name,
                       hid_t file_type, hid_t mem_type, int n_value, const void *value);
int mill_h5_write_attr_int(const mill_h5_file *file, const char *object, const char *name,
                           int value);
int mill_h5_write_attr_double(const mill_h5_file *file, const char *object, const char *name,
                              double value);
int mill_h5_write_attr_text(const mill_h5_file *file, const char *object, const char *name,
                            const char *value);
