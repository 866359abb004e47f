/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* fallocate */

#include "io/hdf5/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/hdf5/hdf5_crash.h"
#include "src/system/status_process.h"
#include "kernels/base/clock.h"
#include "src/system/regular_file.h"

#define WRITE_ERROR(what) MILL_OUTPUT_ERROR(path, what)
#define READ_ERROR(what)                                                                           \
  MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot read %s: %s", path, what, mill_h5_reason())

enum { SEEN_S = 20 /* longest wait, s, until NFS shows a new file to other hosts */ };

static int is_broken; /* 1: this process failed to close a file */

void mill_output_leave_if_broken(const mill_mpi *mpi, int err, int exit_status)
{
  int broken = is_broken;
  if (err == MILL_ERR_MPI && mpi->size > 1)
    MPI_Abort(MPI_COMM_WORLD, exit_status);
  if (err == MILL_OK || err == MILL_ERR_MPI || mpi->comm == MPI_COMM_NULL ||
      (MPI_Allreduce(MPI_IN_PLACE, &broken, 1, MPI_INT, MPI_MAX, mpi->comm) == MPI_SUCCESS &&
       !broken))
    return;
  fflush(NULL);
  _exit(exit_status);
}

/* Reserve n_byte of disk space (negative: the file's size) before HDF5 writes: HDF5 cannot close a
 * file that does not fit on the disk.  flags: O_CREAT | O_TRUNC for a new file. */
static int take_room(const char *path, int flags, int64_t n_byte)
{
  int rc = 0;
  struct stat status;
  MILL_AT_END(mill_descriptor_close) const int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
  if (fd < 0)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s cannot be created: %s: create the folder or make it writable, or choose another output",
        path, strerror(errno));
  if (n_byte < 0 && fstat(fd, &status) == 0)
    n_byte = status.st_size;
  do
    rc = fallocate(fd, 0, 0, (off_t)n_byte);
  while (rc != 0 && errno == EINTR);
  /* not an error: the file system cannot reserve, or n_byte is 0 (EINVAL) */
  if (rc != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s cannot be created: %s: it needs %.1f MB: make room or choose another output", path,
        strerror(errno), (double)n_byte / 1e6);
  return MILL_OK;
}

int mill_output_open(const char *path, unsigned flags, hid_t *file)
{
  MILL_CHECK(mill_h5_open_as(path, flags, MILL_ERR_OUTPUT, file));
  if (flags != H5F_ACC_RDONLY)
    mill_h5_forget(*file); /* a new or checked file is not to blame for later crashes */
  return MILL_OK;
}

int mill_output_open_existing(const char *path, hid_t *file)
{
  struct stat status;
  *file = H5I_INVALID_HID;
  if (stat(path, &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) /* mill_output_create reports a missing folder */
      return MILL_OK;
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be examined: %s", path, strerror(errno));
  }
  if (!S_ISREG(status.st_mode))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s exists and is not a regular file", path);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  const int is_hdf5 = H5Fis_hdf5(path) > 0;
  if (!is_hdf5 || mill_output_open(path, H5F_ACC_RDONLY, file) != MILL_OK) {
    MILL_CHECK(mill_check_descriptors(path, MILL_ERR_OUTPUT));
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s exists and is %s HDF5 file", path,
                      is_hdf5 ? "a damaged or truncated" : "not an");
  }
  return MILL_OK;
}

int mill_output_create(const char *path, int64_t n_byte, hid_t *file)
{
  *file = H5I_INVALID_HID;
  MILL_CHECK(take_room(path, O_CREAT | O_TRUNC, n_byte));
  return mill_output_open(path, H5F_ACC_TRUNC, file);
}

int mill_output_take_room(const char *path)
{
  return take_room(path, 0, -1);
}

int mill_output_hold(const char *path, int *fd)
{
  *fd = open(path, O_RDWR | O_CLOEXEC);
  if (*fd < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be opened: %s", path, strerror(errno));
  return MILL_OK;
}

/* Marks of one file agree in size, and in inode or time: hosts may show different inodes. */
typedef struct file_mark {
  int64_t inode, size, time_s;
} file_mark;

/* Return a file's mark; all -1: no file.  Opens the file: NFS shows changes only at an open. */
static file_mark mark_of(const char *path)
{
  struct stat status;
  file_mark mark = {-1, -1, -1};
  MILL_AT_END(mill_descriptor_close) const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && fstat(fd, &status) == 0)
    mark = (file_mark){(int64_t)status.st_ino, (int64_t)status.st_size,
                       (int64_t)status.st_mtim.tv_sec};
  return mark;
}

static int is_same(file_mark a, file_mark b)
{
  return a.size == b.size && (a.inode == b.inode || a.time_s == b.time_s);
}

int mill_output_check_shared(const char *path, const mill_mpi *mpi)
{
  char host[256];
  file_mark of_rank0 = mark_of(path);
  MILL_CHECK_MPI(MPI_Bcast(&of_rank0, (int)sizeof of_rank0, MPI_BYTE, 0, mpi->comm));
  int err = MILL_OK;
  const double end = mill_wall_s() + SEEN_S;
  while (!is_same(mark_of(path), of_rank0) && mill_wall_s() < end)
    (void)usleep(100000);
  mill_host_name(host, sizeof host);
  if (!is_same(mark_of(path), of_rank0))
    err = MILL_ERROR(MILL_ERR_OUTPUT,
                     "rank %d on host %s does not see %s, which rank 0 has made: choose an output "
                     "in a folder that all hosts share",
                     mpi->rank, host, path);
  return mill_mpi_agree(mpi, err);
}

int mill_output_sync(const char *path, int fd)
{
  if (fd >= 0 && fsync(fd) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be flushed to disk: %s" MILL_H5_MAKE_ROOM, path,
                      strerror(errno));
  return MILL_OK;
}

int mill_output_still_there(const char *path, int fd, const mill_output_mark *mark)
{
  char link[64], target[PATH_MAX] = "", bytes[sizeof mark->bytes] = "";
  struct stat held, named;
  if (fd < 0)
    return MILL_OK;
  const int is_known = fstat(fd, &held) == 0;
  const int is_there = is_known && stat(path, &named) == 0 && held.st_dev == named.st_dev &&
                       held.st_ino == named.st_ino;
  if (is_there && mark->n > 0 && pread(fd, bytes, (size_t)mark->n, mark->at) >= 0 &&
      memcmp(bytes, mark->bytes, (size_t)mark->n) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s was overwritten while this job wrote it, and its contents are lost: "
                      "remove it, then give the same command again to start over",
                      path);
  if (is_there)
    return MILL_OK;
  if (is_known && held.st_nlink == 0)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s was removed while this job wrote it, and its contents are lost: give the "
                      "same command again to start over",
                      path);
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, target, sizeof target - 1);
  return MILL_ERROR(MILL_ERR_OUTPUT,
                    "%s was moved while this job wrote it%s%s: finished rows are kept there; move "
                    "it back, and the same command continues it",
                    path, n > 0 ? " and is now " : "", n > 0 ? target : "");
}

int mill_output_end(const char *path, hid_t *file, int err)
{
  const hid_t id = *file;
  *file = H5I_INVALID_HID;
  if (id < 0)
    return err;
  mill_h5_forget(id);
  if (err == MILL_OK && H5Fflush(id, H5F_SCOPE_GLOBAL) < 0)
    err = MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be flushed to disk: %s" MILL_H5_MAKE_ROOM, path,
                     mill_h5_reason());
  if (H5Fclose(id) < 0) {
    is_broken = 1; /* for mill_output_leave_if_broken, at the end of the job */
    MILL_STEP(MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be closed: %s" MILL_H5_MAKE_ROOM, path,
                         mill_h5_reason()));
  }
  return err;
}

int mill_output_rename(const char *from, const char *to)
{
  char folder[PATH_MAX];
  MILL_AT_END(mill_descriptor_close) int fd = open(from, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be written to disk: %s", from, strerror(errno));
  if (rename(from, to) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be renamed to %s: %s", from, to,
                      strerror(errno));
  close(fd);
  /* flush the folder, which holds the new name; some file systems cannot, which is no error */
  snprintf(folder, sizeof folder, "%s", to);
  fd = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && fsync(fd) != 0 && errno == EIO)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot flush its folder to disk: %s", to,
                      strerror(errno));
  return MILL_OK;
}

int mill_output_peek(const char *path, const char *object, const char *name, char *out, size_t size)
{
  MILL_AT_END(mill_h5_id_close) hid_t file = H5I_INVALID_HID;
  MILL_CHECK(mill_h5_check_output(path));
  MILL_CHECK(mill_output_open(path, H5F_ACC_RDONLY, &file));
  return mill_h5_read_attr_text(MILL_OUTPUT(file, path), object, name, out, size);
}

int mill_output_attr_texts(hid_t loc, const char *path, const char *object, const char *name,
                           const char *const *text, int n_text)
{
  MILL_OWNED char *packed = NULL;
  size_t n_byte = 1;
  for (int i = 0; i < n_text; i++)
    n_byte = strlen(text[i]) > n_byte ? strlen(text[i]) : n_byte;
  MILL_CHECK(mill_alloc_bytes((size_t)n_text, n_byte, (void **)&packed));
  for (int i = 0; i < n_text; i++)
    memcpy(packed + (size_t)i * n_byte, text[i], strlen(text[i]));
  MILL_AT_END(mill_h5_id_close) const hid_t type = mill_h5_text_type(n_byte);
  return mill_h5_write_attr(MILL_OUTPUT(loc, path), object, name, type, type, n_text, packed);
}

int mill_output_attr_int64(hid_t loc, const char *path, const char *object, const char *name,
                           const int64_t *value, int n_value)
{
  const hid_t i64 = H5T_STD_I64LE;
  return mill_h5_write_attr(MILL_OUTPUT(loc, path), object, name, i64, i64, n_value, value);
}

/* Create a dataset.  is_column: HDF5 writes no zeros, since the caller writes all values; `fill`,
 * if given, only tells readers the missing value. */
static int create_dataset(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                          const hsize_t *dim, int is_column, const void *fill, const char *unit,
                          const char *description)
{
  MILL_AT_END(mill_h5_id_close)
  const hid_t space = H5Screate_simple(n_dim, dim, NULL), create = H5Pcreate(H5P_DATASET_CREATE);
  int err = MILL_OK;
  /* omit times, so that equal content gives equal bytes */
  if (space < 0 || create < 0 || H5Pset_layout(create, H5D_CONTIGUOUS) < 0 ||
      H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY) < 0 ||
      H5Pset_fill_time(create, is_column ? H5D_FILL_TIME_NEVER : H5D_FILL_TIME_ALLOC) < 0 ||
      H5Pset_obj_track_times(create, 0) < 0 || (fill && H5Pset_fill_value(create, type, fill) < 0))
    return WRITE_ERROR(name);
  const hid_t dataset = H5Dcreate2(loc, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT);
  if (dataset < 0)
    return WRITE_ERROR(name);
  if (unit && unit[0])
    MILL_STEP(mill_h5_write_attr_text(MILL_OUTPUT(dataset, path), ".", "unit", unit));
  if (description && description[0])
    MILL_STEP(mill_h5_write_attr_text(MILL_OUTPUT(dataset, path), ".", "description", description));
  if (H5Dclose(dataset) < 0)
    MILL_STEP(WRITE_ERROR(name));
  return err;
}

int mill_output_dataset(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                        const hsize_t *dim, const char *unit, const char *description)
{
  return create_dataset(loc, path, name, type, n_dim, dim, 0, NULL, unit, description);
}

int mill_output_column(hid_t loc, const char *path, const char *name, hid_t type, int n_dim,
                       int64_t n_row, int64_t n_value, const void *fill, const char *unit,
                       const char *description)
{
  const hsize_t dim[2] = {(hsize_t)n_row, (hsize_t)n_value};
  return create_dataset(loc, path, name, type, n_dim, dim, 1, fill, unit, description);
}

int mill_output_place(hid_t dataset, const char *path, const char *name, hid_t type, haddr_t *place)
{
  const hid_t space = H5Dget_space(dataset), stored = H5Dget_type(dataset);
  const int is_empty = H5Sget_simple_extent_npoints(space) == 0; /* then HDF5 gives no place */
  const int is_ours = type < 0 || H5Tequal(stored, type) > 0;    /* negative type: any */
  MILL_H5_CLOSE(space, stored);
  *place = H5Dget_offset(dataset);
  if (!is_ours || (*place == HADDR_UNDEF && !is_empty))
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s: %s is in chunks or in another byte order, which this program cannot "
                      "write: copy the file with h5repack -n -f NONE -l CONTI, or give --overwrite",
                      path, name);
  return MILL_OK;
}

int mill_output_text(hid_t loc, const char *path, const char *name, const char *text,
                     const char *description)
{
  MILL_AT_END(mill_h5_id_close) const hid_t type = mill_h5_text_type(strlen(text));
  if (type < 0)
    return WRITE_ERROR(name);
  MILL_CHECK(mill_output_dataset(loc, path, name, type, 0, NULL, "", description));
  return mill_output_write_whole(loc, path, name, type, text);
}

int mill_output_read_texts(hid_t loc, const char *path, const char *name, int n_dim,
                           mill_output_texts *out)
{
  enum { MAX_TEXT = 1 << 28 }; /* most bytes of a scalar text (n_dim 0) */
  MILL_AT_END(mill_h5_array_close) mill_h5_array array = {0};
  MILL_OWNED char *text = NULL;
  *out = (mill_output_texts){0};
  if (!mill_h5_array_open(loc, name, &array))
    return READ_ERROR(name);
  out->n = (int64_t)H5Sget_simple_extent_npoints(array.space);
  out->n_byte = H5Tget_size(array.type);
  if (H5Tget_class(array.type) != H5T_STRING || H5Tis_variable_str(array.type) != 0 || out->n < 0 ||
      (n_dim == 0 ? out->n != 1 || out->n_byte > MAX_TEXT
                  : H5Sget_simple_extent_ndims(array.space) != 1))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: %s is not a %s", path, name,
                      n_dim ? "list of texts of fixed length" : "text");
  MILL_CHECK(mill_alloc_bytes((size_t)out->n + 1, out->n_byte, (void **)&text));
  if (out->n > 0 && H5Dread(array.id, array.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0)
    return READ_ERROR(name);
  return MILL_GIVE(&text, &out->text);
}

int mill_output_read_text(hid_t loc, const char *path, const char *name, char **text)
{
  mill_output_texts one;
  const int err = mill_output_read_texts(loc, path, name, 0, &one);
  *text = one.text;
  return err;
}

int mill_output_read_whole(hid_t loc, const char *path, const char *name, hid_t type, int64_t n_row,
                           void *buffer)
{
  MILL_AT_END(mill_h5_array_close) mill_h5_array array = {0};
  hsize_t n = 0;
  if (!mill_h5_array_open(loc, name, &array))
    return READ_ERROR(name);
  if (H5Sget_simple_extent_ndims(array.space) != 1 ||
      H5Sget_simple_extent_dims(array.space, &n, NULL) != 1 || n != (hsize_t)n_row ||
      H5Tget_class(array.type) != H5Tget_class(type) ||
      H5Tget_size(array.type) != H5Tget_size(type))
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s is damaged: %s has the wrong shape or type", path, name);
  if (n_row > 0 && H5Dread(array.id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer) < 0)
    return READ_ERROR(name);
  return MILL_OK;
}

int mill_output_write_whole(hid_t loc, const char *path, const char *name, hid_t type,
                            const void *buffer)
{
  MILL_AT_END(mill_h5_id_close) const hid_t dataset = H5Dopen2(loc, name, H5P_DEFAULT);
  if (dataset < 0 || H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer) < 0)
    return WRITE_ERROR(name);
  return MILL_OK;
}
