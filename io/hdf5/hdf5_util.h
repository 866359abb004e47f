/* SPDX-License-Identifier: BSD-3-Clause */
/** Small checked helpers over HDF5 for untrusted files.
 *
 *  Every failure is one line that names the file, the object and HDF5's own
 *  innermost reason; HDF5's error stack is not printed.  The code of a failure is
 *  the file's.  HDF5 is not thread-safe: one thread at a time.
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

/* HDF5 does not pass the reason on */
#define MILL_H5_MAKE_ROOM                                                                          \
  "; if the disk is full or a quota is used up, make room, then the same command continues"

enum { MILL_H5_MAX_NUMBER = 16 /**< bytes; damaged ones of gigabytes would be converted */ };

/** The innermost reason of the last HDF5 failure of this thread; call it before
 *  any other HDF5 function. */
const char *mill_h5_reason(void);

/** Close each of n ids that is open (above 0): of datasets, types, groups, lists, ..., and of files
 *  that were only read. */
void mill_h5_close_ids(int n, const hid_t *id);
#define MILL_H5_CLOSE(...)                                                                         \
  mill_h5_close_ids((int)(sizeof((const hid_t[]){__VA_ARGS__}) / sizeof(hid_t)),                   \
                    (const hid_t[]){__VA_ARGS__})

/** A dataset or an attribute, open with its type and its shape; zeros where it is not open. */
typedef struct mill_h5_array {
  hid_t id, type, space;
} mill_h5_array;

/** Open; 1: all of it, 0: not, and mill_h5_reason says why.  Either way close it. */
int mill_h5_array_open(hid_t loc, const char *name, mill_h5_array *array);
int mill_h5_array_open_attr(hid_t loc, const char *object, const char *name, mill_h5_array *array);
void mill_h5_array_close(mill_h5_array *array);

/** Open or create by H5F_ACC_... flags, without locks, which read-only and network file systems
 *  often lack, and without copies of data, as ranks write rows past HDF5. */
int mill_h5_open_as(const char *path, unsigned flags, int code, hid_t *file);

/** Open read-only and without a lock.  Nothing inside is followed or read yet.
 *  Distinguishes missing, unreadable, not a file, not HDF5, cut or damaged. */
int mill_h5_open(const char *path, int code, mill_h5_file *file);

/** The same of a file in memory, which is called path in messages. */
int mill_h5_open_image(const void *image, size_t n_byte, const char *path, int code,
                       mill_h5_file *file);

/** Refuse what could reach beyond the file or run foreign code: external, soft and
 *  user-defined links, external and virtual storage, filters other than deflate,
 *  shuffle and fletcher32, objects other than groups and datasets.
 *  To be called before the first dataset is opened. */
int mill_h5_scan(const mill_h5_file *file);

/** An empty file in memory; name is for messages and must not exist on disk. */
int mill_h5_create_image(const char *name, mill_h5_file *file);

/** The bytes of a file made by mill_h5_create_image; free with mill_free. */
int mill_h5_get_image(const mill_h5_file *file, void **image, size_t *n_byte);

/** Close; does nothing for a file that is not open. */
void mill_h5_close(mill_h5_file *file);

/** Refuse an existing output that reaches beyond its file (mill_h5_scan), before a run that
 *  continues it writes there.  MILL_OK where there is no HDF5 file that can be opened: its reader
 *  reports the error. */
int mill_h5_check_output(const char *path);

/** 1 when the path of hard links exists, else 0. */
int mill_h5_exists(const mill_h5_file *file, const char *name);

/** The dataset's shape; it must have n_dim dimensions. dim [n_dim]. */
int mill_h5_shape(const mill_h5_file *file, const char *name, int n_dim, size_t *dim);

/** Read a whole dataset of exactly that shape into data.  mem_type is a native
 *  integer or floating type; the file's type must be of the same kind, and a
 *  floating one no wider. */
int mill_h5_read(const mill_h5_file *file, const char *name, hid_t mem_type, int n_dim,
                 const size_t *dim, void *data);

/** 1 when the object has the attribute, else 0. */
int mill_h5_has_attr(const mill_h5_file *file, const char *object, const char *name);

/** Scalar attributes; object "/" is the root.  Booleans (enumerations) are read as int. */
int mill_h5_read_attr_int(const mill_h5_file *file, const char *object, const char *name, int *out);
int mill_h5_read_attr_double(const mill_h5_file *file, const char *object, const char *name,
                             double *out);
/** out [size] with its end; a text that does not fit is a failure. */
int mill_h5_read_attr_text(const mill_h5_file *file, const char *object, const char *name,
                           char *out, size_t size);

int mill_h5_write_group(const mill_h5_file *file, const char *name);
/** A contiguous dataset; unit and description become attributes (unit may be NULL). */
int mill_h5_write(const mill_h5_file *file, const char *name, hid_t file_type, hid_t mem_type,
                  int n_dim, const size_t *dim, const void *data, const char *unit,
                  const char *description);
/** An attribute of one value (n_value 0) or of n_value values. */
int mill_h5_write_attr(const mill_h5_file *file, const char *object, const char *name,
                       hid_t file_type, hid_t mem_type, int n_value, const void *value);
int mill_h5_write_attr_int(const mill_h5_file *file, const char *object, const char *name,
                           int value);
int mill_h5_write_attr_double(const mill_h5_file *file, const char *object, const char *name,
                              double value);
int mill_h5_write_attr_text(const mill_h5_file *file, const char *object, const char *name,
                            const char *value);

#endif
