/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/hdf5/hdf5_util.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "io/hdf5/hdf5_crash.h"
#include "kernels/base/memory.h"
#include "src/system/regular_file.h"

enum {
  MAX_DIM = MILL_MAX_GRID_AXIS + 1, /* most dimensions of a dataset: a grid's coefficients */
  MAX_PACKING = 1032                /* largest compression ratio of deflate */
};

/* Format and arguments of a message that names a dataset or attribute, then text. */
#define DATASET(text)   "%s: dataset /%s " text, file->path, name
#define ATTRIBUTE(text) "%s: attribute %s of %s " text, file->path, name, object

static herr_t take_innermost(unsigned n, const H5E_error2_t *entry, void *context)
{
  static const char before[] = "error message = '"; /* stands before the system's own reason */
  const char *of_system = entry->desc ? strstr(entry->desc, before) : NULL;
  const char *text = of_system ? of_system + sizeof before - 1 : entry->desc;
  if (n == 0 && text)
    snprintf(context, 256, "%.*s", of_system ? (int)strcspn(text, "'") : 255, text);
  return 0;
}

const char *mill_h5_reason(void)
{
  static _Thread_local char reason[256];
  snprintf(reason, sizeof reason, "HDF5 gives no reason");
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, reason);
  for (char *c = reason; *c; c++)
    if ((unsigned char)*c < ' ')
      *c = ' ';
  return reason;
}

/* Stop HDF5 from printing its error stack: our messages contain its reason. */
static void be_quiet(void)
{
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void mill_h5_close_ids(int n, const hid_t *id)
{
  for (int i = 0; i < n; i++)
    if (id[i] > 0) {
      H5Idec_ref(id[i]);
      mill_h5_forget(id[i]); /* a closed file is not to blame for a later crash */
    }
}

int mill_h5_array_open(hid_t loc, const char *name, mill_h5_array *array)
{
  *array = (mill_h5_array){0};
  return (array->id = H5Dopen2(loc, name, H5P_DEFAULT)) > 0 &&
         (array->type = H5Dget_type(array->id)) > 0 && (array->space = H5Dget_space(array->id)) > 0;
}

int mill_h5_array_open_attr(hid_t loc, const char *object, const char *name, mill_h5_array *array)
{
  *array = (mill_h5_array){0};
  return (array->id = H5Aopen_by_name(loc, object, name, H5P_DEFAULT, H5P_DEFAULT)) > 0 &&
         (array->type = H5Aget_type(array->id)) > 0 && (array->space = H5Aget_space(array->id)) > 0;
}

void mill_h5_array_close(mill_h5_array *array)
{
  MILL_H5_CLOSE(array->space, array->type, array->id);
  *array = (mill_h5_array){0};
}

/* Make access properties without a cache of raw data and, where HDF5 allows, without file locks. */
static int access_list(hid_t *access)
{
  be_quiet();
  *access = H5Pcreate(H5P_FILE_ACCESS);
  if (*access < 0 || H5Pset_sieve_buf_size(*access, 0) < 0
#if H5_VERSION_GE(1, 12, 1) || (H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 10 && H5_VERS_RELEASE >= 7)
      || H5Pset_file_locking(*access, 0, 1) < 0
#endif
  )
    return MILL_ERROR(MILL_ERR_INTERNAL, "HDF5 cannot prepare to open files: %s", mill_h5_reason());
  return MILL_OK;
}

int mill_h5_open_as(const char *path, unsigned flags, int code, hid_t *file)
{
  MILL_AT_END(mill_h5_id_close) hid_t access = H5I_INVALID_HID;
  *file = H5I_INVALID_HID;
  MILL_CHECK(access_list(&access));
  mill_h5_opening(path, code); /* if HDF5 crashes on the file, name it */
  *file = flags & H5F_ACC_TRUNC ? H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access)
                                : H5Fopen(path, flags, access);
  mill_h5_opened(*file);
  if (*file >= 0)
    return MILL_OK;
  MILL_CHECK(mill_check_descriptors(path, code));
  if (flags != H5F_ACC_RDONLY)
    return MILL_ERROR(code, "%s: cannot write the file: %s" MILL_H5_MAKE_ROOM, path,
                      mill_h5_reason());
  if (strstr(mill_h5_reason(), "flag values don't match"))
    return MILL_ERROR(code,
                      "%s: this process has the file open; close it first (in Python, close the "
                      "h5py.File, or read a result by starmill.Result)",
                      path);
  return MILL_ERROR(code, "%s: cannot be opened as HDF5, it may be truncated or damaged: %s", path,
                    mill_h5_reason());
}

int mill_h5_open_image(const void *image, size_t n_byte, const char *path, int code,
                       mill_h5_file *file)
{
  *file = (mill_h5_file){.id = H5I_INVALID_HID, .code = code, .path = path};
  be_quiet();
  MILL_AT_END(mill_h5_id_close) const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  if (access < 0 || H5Pset_fapl_core(access, (size_t)1 << 20, 0) < 0 || /* 0: not on disk */
      (image && H5Pset_file_image(access, (void *)(uintptr_t)image, n_byte) < 0))
    return MILL_ERROR(MILL_ERR_INTERNAL, "HDF5 made no file in memory: %s", mill_h5_reason());
  /* no file can have the name /dev/null/image; without an image, begin an empty file in memory */
  file->id = image ? H5Fopen("/dev/null/image", H5F_ACC_RDONLY, access)
                   : H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  if (file->id < 0)
    return MILL_ERROR(code, "%s: cannot be %s in memory: %s", path, image ? "opened" : "made",
                      mill_h5_reason());
  return MILL_OK;
}

int mill_h5_open(const char *path, int code, mill_h5_file *file)
{
  MILL_AT_END(mill_descriptor_close) int fd = -1;
  *file = (mill_h5_file){.id = H5I_INVALID_HID, .code = code, .path = path};
  be_quiet();
  MILL_CHECK(mill_regular_open(path, "an HDF5 file", code, &fd)); /* refuses pipes, folders */
  struct stat status;
  if (fstat(fd, &status) != 0)
    return MILL_ERROR(code, "%s: cannot be examined: %s", path, strerror(errno));
  if (status.st_size == 0)
    return MILL_ERROR(code, "%s: is empty", path);
  if (H5Fis_hdf5(path) <= 0) {
    MILL_CHECK(mill_check_descriptors(path, code));
    return MILL_ERROR(code, "%s: is not an HDF5 file", path);
  }
  return mill_h5_open_as(path, H5F_ACC_RDONLY, code, &file->id);
}

/* Check how a dataset is stored, without reading it. */
static int scan_dataset(const mill_h5_file *file, const char *name, hid_t dataset)
{
  MILL_AT_END(mill_h5_id_close) const hid_t creation = H5Dget_create_plist(dataset);
  if (creation < 0)
    return MILL_ERROR(file->code, DATASET("is damaged: %s"), mill_h5_reason());
  if (H5Pget_external_count(creation) != 0)
    return MILL_ERROR(
        file->code,
        DATASET("keeps its data in another file, which is refused; copy it with h5repack"));
  if (H5Pget_layout(creation) == H5D_VIRTUAL)
    return MILL_ERROR(
        file->code,
        DATASET("is virtual, made from other files, which is refused; copy it with h5repack"));
  const int n_filter = H5Pget_nfilters(creation);
  if (n_filter < 0)
    return MILL_ERROR(file->code, DATASET("is damaged: %s"), mill_h5_reason());
  for (int i = 0; i < n_filter; i++) {
    unsigned flags, config;
    size_t n_value = 0;
    const H5Z_filter_t filter =
        H5Pget_filter2(creation, (unsigned)i, &flags, &n_value, NULL, 0, NULL, &config);
    if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE &&
        filter != H5Z_FILTER_FLETCHER32)
      return MILL_ERROR(file->code,
                        DATASET("is stored with HDF5 filter %d; only deflate, shuffle and "
                                "fletcher32 are read, copy it with h5repack -f NONE"),
                        (int)filter);
  }
  return MILL_OK;
}

typedef struct scan_state {
  const mill_h5_file *file;
  int err;
} scan_state;

/* Fail unless a link is hard and leads to a group or to a dataset that is safe to read. */
static int scan_object(const mill_h5_file *file, hid_t group, const char *name, H5L_type_t link)
{
  if (link != H5L_TYPE_HARD)
    return MILL_ERROR(
        file->code, "%s: /%s is %s link, which is refused; the file must contain everything itself",
        file->path, name,
        link == H5L_TYPE_EXTERNAL ? "an external"
        : link == H5L_TYPE_SOFT   ? "a soft"
                                  : "an unknown");
  MILL_AT_END(mill_h5_id_close) const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
  if (object < 0)
    return MILL_ERROR(file->code, "%s: /%s is damaged: %s", file->path, name, mill_h5_reason());
  const H5I_type_t type = H5Iget_type(object);
  if (type == H5I_DATASET)
    return scan_dataset(file, name, object);
  if (type != H5I_GROUP)
    return MILL_ERROR(file->code, "%s: /%s is neither a group nor a dataset; remove it", file->path,
                      name);
  return MILL_OK;
}

static herr_t scan_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
  scan_state *state = context;
  state->err = scan_object(state->file, group, name, info->type);
  return state->err != MILL_OK;
}

int mill_h5_scan(const mill_h5_file *file)
{
  scan_state state = {file, MILL_OK};
  /* forbid plug-ins, since a damaged header may hide a filter from the scan */
  H5PLset_loading_state(0);
  const herr_t rc = H5Lvisit(file->id, H5_INDEX_NAME, H5_ITER_NATIVE, scan_link, &state);
  if (state.err != MILL_OK)
    return state.err;
  if (rc < 0)
    return MILL_ERROR(file->code, "%s: its groups are damaged: %s", file->path, mill_h5_reason());
  return MILL_OK;
}

int mill_h5_get_image(const mill_h5_file *file, void **image, size_t *n_byte)
{
  MILL_OWNED void *made = NULL;
  *image = NULL;
  *n_byte = 0;
  const ssize_t n =
      H5Fflush(file->id, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(file->id, NULL, 0);
  if (n > 0)
    MILL_CHECK(mill_alloc_bytes((size_t)n, 1, &made));
  if (n <= 0 || H5Fget_file_image(file->id, made, (size_t)n) != n)
    return MILL_ERROR(file->code, "%s: cannot be made in memory: %s", file->path, mill_h5_reason());
  *n_byte = (size_t)n;
  return MILL_GIVE(&made, image);
}

void mill_h5_close(mill_h5_file *file)
{
  if (file->id >= 0)
    H5Fclose(file->id);
  mill_h5_forget(file->id);
  file->id = H5I_INVALID_HID;
}

int mill_h5_check_output(const char *path)
{
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  struct stat status;
  be_quiet();
  if (stat(path, &status) == 0 && S_ISREG(status.st_mode) && H5Fis_hdf5(path) > 0 &&
      mill_h5_open(path, MILL_ERR_OUTPUT, &file) == MILL_OK && mill_h5_scan(&file) != MILL_OK)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s; move it away, or fit again with --overwrite",
                      mill_error_message());
  return MILL_OK;
}

int mill_h5_exists(const mill_h5_file *file, const char *name)
{
  char part[256];
  const size_t n = strlen(name);
  if (n >= sizeof part)
    return 0;
  /* check a/b/c by a, a/b and a/b/c: H5Lexists fails if a group on the way is missing */
  for (size_t i = 1; i <= n; i++) {
    if (name[i] != '/' && name[i] != '\0')
      continue;
    memcpy(part, name, i);
    part[i] = '\0';
    if (H5Lexists(file->id, part, H5P_DEFAULT) <= 0)
      return 0;
  }
  return 1;
}

/* Open a dataset that must have n_dim dimensions; the caller closes it. */
static int open_dataset(const mill_h5_file *file, const char *name, int n_dim, size_t *dim,
                        mill_h5_array *array)
{
  hsize_t extent[H5S_MAX_RANK];
  *array = (mill_h5_array){0};
  if (!mill_h5_exists(file, name))
    return MILL_ERROR(file->code, DATASET("is missing"));
  if (!mill_h5_array_open(file->id, name, array))
    return MILL_ERROR(file->code, "%s: /%s cannot be opened as a dataset: %s", file->path, name,
                      mill_h5_reason());
  const int n_found = H5Sget_simple_extent_dims(array->space, extent, NULL);
  if (n_found != n_dim || n_dim > MAX_DIM)
    return MILL_ERROR(file->code, DATASET("has %d dimensions, expected %d"), n_found, n_dim);
  for (int i = 0; i < n_dim; i++) {
    if (extent[i] > INT_MAX)
      return MILL_ERROR(file->code, DATASET("has a dimension of %llu, more than %d"),
                        (unsigned long long)extent[i], INT_MAX);
    dim[i] = (size_t)extent[i];
  }
  return MILL_OK;
}

int mill_h5_shape(const mill_h5_file *file, const char *name, int n_dim, size_t *dim)
{
  MILL_AT_END(mill_h5_array_close) mill_h5_array array = {0};
  hsize_t file_bytes = 0;
  MILL_CHECK(open_dataset(file, name, n_dim, dim, &array));
  if (H5Fget_filesize(file->id, &file_bytes) < 0)
    return MILL_ERROR(file->code, DATASET("is damaged: %s"), mill_h5_reason());
  size_t n_byte = H5Tget_size(array.type);
  for (int i = 0; i < n_dim; i++)
    if (__builtin_mul_overflow(n_byte, dim[i], &n_byte))
      n_byte = SIZE_MAX; /* a later dimension of 0 still gives 0 */
  /* A damaged shape could take all memory: refuse one that the file's bytes cannot unpack to. */
  if (n_byte / MAX_PACKING > file_bytes)
    return MILL_ERROR(file->code,
                      DATASET("claims %zu bytes, more than the file's %llu bytes can hold, even "
                              "compressed; the dataset is damaged or was never written"),
                      n_byte, (unsigned long long)file_bytes);
  return MILL_OK;
}

int mill_h5_read(const mill_h5_file *file, const char *name, hid_t mem_type, int n_dim,
                 const size_t *dim, void *data)
{
  MILL_AT_END(mill_h5_array_close) mill_h5_array array = {0};
  size_t found[MAX_DIM] = {0}, n = 1;
  MILL_CHECK(open_dataset(file, name, n_dim, found, &array));
  for (int i = 0; i < n_dim; i++) {
    if (found[i] != dim[i])
      return MILL_ERROR(file->code, DATASET("has %zu elements along dimension %d, expected %zu"),
                        found[i], i, dim[i]);
    n *= dim[i];
  }
  const H5T_class_t wanted = H5Tget_class(mem_type);
  const size_t n_byte = H5Tget_size(array.type);
  if (H5Tget_class(array.type) != wanted)
    return MILL_ERROR(file->code, DATASET("does not hold %s: write it as %s%zu"),
                      wanted == H5T_FLOAT ? "floating-point numbers" : "integers",
                      wanted == H5T_FLOAT ? "float" : "int", 8 * H5Tget_size(mem_type));
  /* HDF5 converts integers of other sizes; wider reals are refused, since it would round them */
  const size_t most = wanted == H5T_FLOAT ? H5Tget_size(mem_type) : MILL_H5_MAX_NUMBER;
  if (n_byte > most)
    return MILL_ERROR(file->code, DATASET("holds %zu-byte numbers, expected %zu bytes"), n_byte,
                      H5Tget_size(mem_type));
  if (n == 0)
    return MILL_OK;
  if (H5Dget_storage_size(array.id) == 0)
    return MILL_ERROR(file->code, DATASET("was never written"));
  if (H5Dread(array.id, mem_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
    return MILL_ERROR(file->code, DATASET("cannot be read: %s"), mill_h5_reason());
  return MILL_OK;
}

int mill_h5_read_new(const mill_h5_file *file, const char *name, hid_t mem_type, int n_dim,
                     const size_t *dim, void *out)
{
  size_t n = 1;
  for (int i = 0; i < n_dim; i++)
    n *= dim[i];
  MILL_CHECK(mill_alloc_bytes(n, H5Tget_size(mem_type), out));
  return mill_h5_read(file, name, mem_type, n_dim, dim, *(void **)out);
}

int mill_h5_has_attr(const mill_h5_file *file, const char *object, const char *name)
{
  return H5Aexists_by_name(file->id, object, name, H5P_DEFAULT) > 0;
}

/* Open a scalar attribute; the caller closes it. */
static int open_attr(const mill_h5_file *file, const char *object, const char *name,
                     mill_h5_array *attr)
{
  *attr = (mill_h5_array){0};
  if (object[0] != '/' && !mill_h5_exists(file, object))
    return MILL_ERROR(file->code, "%s: group /%s is missing", file->path, object);
  if (!mill_h5_has_attr(file, object, name))
    return MILL_ERROR(file->code, ATTRIBUTE("is missing"));
  if (!mill_h5_array_open_attr(file->id, object, name, attr))
    return MILL_ERROR(file->code, ATTRIBUTE("cannot be opened: %s"), mill_h5_reason());
  if (H5Sget_simple_extent_npoints(attr->space) != 1)
    return MILL_ERROR(file->code, ATTRIBUTE("is not a single value"));
  return MILL_OK;
}

static int read_attr(const mill_h5_file *file, const char *object, const char *name, hid_t attr,
                     hid_t mem_type, void *value)
{
  if (H5Aread(attr, mem_type, value) < 0)
    return MILL_ERROR(file->code, ATTRIBUTE("cannot be read: %s"), mill_h5_reason());
  return MILL_OK;
}

/* Read one number, stored as an integer or as the class `other`. */
static int read_number(const mill_h5_file *file, const char *object, const char *name,
                       H5T_class_t other, hid_t mem_type, void *out)
{
  MILL_AT_END(mill_h5_array_close) mill_h5_array attr = {0};
  MILL_CHECK(open_attr(file, object, name, &attr));
  const H5T_class_t found = H5Tget_class(attr.type);
  if ((found != H5T_INTEGER && found != other) || H5Tget_size(attr.type) > MILL_H5_MAX_NUMBER)
    return MILL_ERROR(file->code, ATTRIBUTE("is not %s"),
                      other == H5T_FLOAT ? "a number" : "an integer");
  return read_attr(file, object, name, attr.id, mem_type, out);
}

int mill_h5_read_attr_int(const mill_h5_file *file, const char *object, const char *name, int *out)
{
  long long value = 0;
  MILL_CHECK(read_number(file, object, name, H5T_ENUM, H5T_NATIVE_LLONG, &value));
  if (value < INT_MIN || value > INT_MAX)
    return MILL_ERROR(file->code, ATTRIBUTE("is %lld, expected %d to %d"), value, INT_MIN, INT_MAX);
  *out = (int)value;
  return MILL_OK;
}

int mill_h5_read_attr_double(const mill_h5_file *file, const char *object, const char *name,
                             double *out)
{
  return read_number(file, object, name, H5T_FLOAT, H5T_NATIVE_DOUBLE, out);
}

MILL_CLOSER(char, H5free_memory)

int mill_h5_read_attr_text(const mill_h5_file *file, const char *object, const char *name,
                           char *out, size_t size)
{
  MILL_AT_END(mill_h5_array_close) mill_h5_array attr = {0};
  MILL_AT_END(mill_h5_id_close) hid_t mem_type = H5I_INVALID_HID;
  MILL_AT_END(H5free_memory_at) char *variable = NULL;
  MILL_OWNED char *fixed = NULL;
  const char *text = "";
  MILL_CHECK(open_attr(file, object, name, &attr));
  if (H5Tget_class(attr.type) != H5T_STRING)
    return MILL_ERROR(file->code, ATTRIBUTE("is not a text"));
  if (H5Tis_variable_str(attr.type) > 0) {
    /* HDF5 does not convert character sets, so use the file's own */
    mem_type = H5Tcopy(H5T_C_S1);
    if (mem_type < 0 || H5Tset_size(mem_type, H5T_VARIABLE) < 0 ||
        H5Tset_cset(mem_type, H5Tget_cset(attr.type)) < 0)
      return MILL_ERROR(MILL_ERR_INTERNAL, "HDF5 made no text type: %s", mill_h5_reason());
    MILL_CHECK(read_attr(file, object, name, attr.id, mem_type, &variable));
    text = variable ? variable : "";
  } else {
    const size_t n = H5Tget_size(attr.type);
    if (n > 65536)
      return MILL_ERROR(file->code, ATTRIBUTE("has %zu bytes, more than 65536"), n);
    MILL_CHECK(MILL_ALLOC(n + 1, &fixed));
    MILL_CHECK(read_attr(file, object, name, attr.id, attr.type, fixed));
    if (H5Tget_strpad(attr.type) == H5T_STR_SPACEPAD)
      for (size_t i = n; i > 0 && fixed[i - 1] == ' '; i--)
        fixed[i - 1] = '\0';
    text = fixed;
  }
  if (strlen(text) >= size)
    return MILL_ERROR(file->code, ATTRIBUTE("is longer than %zu bytes"), size - 1);
  snprintf(out, size, "%s", text);
  return MILL_OK;
}

hid_t mill_h5_text_type(size_t n_byte)
{
  const hid_t type = H5Tcopy(H5T_C_S1);
  /* HDF5 has no text of 0 bytes */
  if (type < 0 ||
      (H5Tset_size(type, n_byte > 0 ? n_byte : 1) >= 0 &&
       H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0))
    return type;
  H5Tclose(type);
  return H5I_INVALID_HID;
}

int mill_h5_write_group(const mill_h5_file *file, const char *name)
{
  const hid_t group = H5Gcreate2(file->id, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  if (group < 0 || H5Gclose(group) < 0)
    return MILL_ERROR(file->code, "%s: group %s cannot be made: %s%s", file->path, name,
                      mill_h5_reason(), file->code == MILL_ERR_OUTPUT ? MILL_H5_MAKE_ROOM : "");
  return MILL_OK;
}

int mill_h5_write(const mill_h5_file *file, const char *name, hid_t file_type, hid_t mem_type,
                  int n_dim, const size_t *dim, const void *data, const char *description)
{
  hsize_t extent[MAX_DIM] = {0};
  for (int i = 0; i < n_dim && i < MAX_DIM; i++)
    extent[i] = dim[i];
  MILL_AT_END(mill_h5_id_close)
  const hid_t space = H5Screate_simple(n_dim, extent, NULL),
              creation = H5Pcreate(H5P_DATASET_CREATE);
  /* omit times, so that equal content gives equal bytes */
  if (space < 0 || creation < 0 || H5Pset_obj_track_times(creation, 0) < 0)
    return MILL_ERROR(MILL_ERR_INTERNAL, "HDF5 made no dataspace: %s", mill_h5_reason());
  MILL_AT_END(mill_h5_id_close)
  const hid_t dataset =
      H5Dcreate2(file->id, name, file_type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  if (dataset < 0 || H5Dwrite(dataset, mem_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
    return MILL_ERROR(file->code, "%s: dataset %s cannot be written: %s", file->path, name,
                      mill_h5_reason());
  return mill_h5_write_attr_text(file, name, "description", description);
}

int mill_h5_write_attr(const mill_h5_file *file, const char *object, const char *name,
                       hid_t file_type, hid_t mem_type, int n_value, const void *value)
{
  const hsize_t dim = (hsize_t)n_value;
  MILL_AT_END(mill_h5_id_close)
  const hid_t space = n_value > 0 ? H5Screate_simple(1, &dim, NULL) : H5Screate(H5S_SCALAR);
  if (space < 0 || file_type < 0)
    return MILL_ERROR(MILL_ERR_INTERNAL, "HDF5 made no dataspace or type: %s", mill_h5_reason());
  MILL_AT_END(mill_h5_id_close)
  const hid_t attr = H5Acreate_by_name(file->id, object, name, file_type, space, H5P_DEFAULT,
                                       H5P_DEFAULT, H5P_DEFAULT);
  if (attr < 0 || H5Awrite(attr, mem_type, value) < 0)
    return MILL_ERROR(file->code, "%s: cannot write attribute %s of %s: %s%s", file->path, name,
                      object, mill_h5_reason(),
                      file->code == MILL_ERR_OUTPUT ? MILL_H5_MAKE_ROOM : "");
  return MILL_OK;
}

int mill_h5_write_attr_int(const mill_h5_file *file, const char *object, const char *name,
                           int value)
{
  return mill_h5_write_attr(file, object, name, H5T_STD_I32LE, H5T_NATIVE_INT, 0, &value);
}

int mill_h5_write_attr_double(const mill_h5_file *file, const char *object, const char *name,
                              double value)
{
  return mill_h5_write_attr(file, object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 0, &value);
}

int mill_h5_write_attr_text(const mill_h5_file *file, const char *object, const char *name,
                            const char *value)
{
  MILL_AT_END(mill_h5_id_close) const hid_t type = mill_h5_text_type(strlen(value));
  return mill_h5_write_attr(file, object, name, type, type, 0, value);
}
