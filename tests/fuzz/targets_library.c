/* SPDX-License-Identifier: BSD-3-Clause */
/* A library that HDF5 reads without error, with contents that no program of ours wrote.  The input
 * is a list of changes to a good library, made through HDF5: HDF5 1.10.8 itself crashes on some
 * damaged files, before our checks run. */
#include <stdio.h>
#include <string.h>

#include <hdf5.h>

#include "kernels/base/error.h"
#include "tests/fuzz/targets.h"

enum { N_BASE = 3 }; /* of the corpus: a perceptron, a grid, radial functions */
enum { MAX_BYTES = 1 << 17, MAX_OBJECT = 64, MAX_CHANGE = 16, MAX_ELEMENT = 4096 };

typedef struct base {
  uint8_t bytes[MAX_BYTES];
  size_t n;
  int n_object;
  char object[MAX_OBJECT][64];
} base;

/* One change: 16 bytes of the input. */
typedef struct change {
  uint8_t kind, object, attribute, type;
  uint32_t size;
  uint64_t value;
} change;

static herr_t take_name(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
  base *b = context;
  (void)group;
  (void)info;
  if (b->n_object < MAX_OBJECT && strlen(name) < sizeof b->object[0])
    strcpy(b->object[b->n_object++], name);
  return 0;
}

static int read_base(int kind, base *b)
{
  char path[1024];
  int err = MILL_OK;
  snprintf(path, sizeof path, "%s/library/good-lib%d", MILL_FUZZ_CORPUS, kind);
  FILE *stream = fopen(path, "rb");
  b->n = stream ? fread(b->bytes, 1, MAX_BYTES, stream) : 0;
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  if (b->n == 0 || b->n == MAX_BYTES || file < 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "%s: no library of less than %d bytes", path, MAX_BYTES);
  strcpy(b->object[b->n_object++], "/");
  H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, take_name, b);
done:
  if (file >= 0)
    H5Fclose(file);
  if (stream)
    fclose(stream);
  return err;
}

static hid_t file_type(int type)
{
  static const int n_type = 5;
  const hid_t all[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, H5T_NATIVE_INT, H5T_NATIVE_INT64,
                       H5T_NATIVE_UCHAR};
  return all[type % n_type];
}

static double as_double(uint64_t bits)
{
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* An attribute gets another value, type or length. */
static void change_attribute(hid_t file, const char *name, const change *c)
{
  char attribute[64], text[300];
  const hid_t object = H5Oopen(file, name, H5P_DEFAULT);
  H5O_info_t info;
  if (object < 0)
    return;
  if (H5Oget_info(object, &info) >= 0 && info.num_attrs > 0 &&
      H5Aget_name_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, c->attribute % info.num_attrs,
                         attribute, sizeof attribute, H5P_DEFAULT) > 0) {
    const int is_text = c->type % 3 == 2;
    const hsize_t n = c->size % 8 == 7 ? 2 : 1;
    hid_t type = c->type % 3 == 0 ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE;
    if (is_text) {
      type = H5Tcopy(H5T_C_S1);
      H5Tset_size(type, 1 + c->size % (sizeof text - 1));
      for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(c->value >> (8 * (i % 8)));
    }
    const hid_t space = H5Screate_simple(1, &n, NULL);
    const uint64_t value[2] = {c->value, c->value};
    H5Adelete(object, attribute);
    const hid_t made = H5Acreate2(object, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (made >= 0) {
      H5Awrite(made, type, is_text ? (const void *)text : value);
      H5Aclose(made);
    }
    H5Sclose(space);
    if (is_text)
      H5Tclose(type);
  }
  H5Oclose(object);
}

/* A dataset gets another shape and type; a large one is never written. */
static void change_shape(hid_t file, const char *name, const change *c)
{
  static const uint32_t length[] = {0, 1, 2, 3, 4, 5, 8, 16, 17, 100, 1 << 16, 1 << 20, 1u << 31};
  static const hsize_t chunk[4] = {1, 1, 1, 1};
  static double data[MAX_ELEMENT];
  hsize_t dim[4];
  double n_element = 1.0;
  const int n_dim = 1 + (int)(c->size % 4);
  for (int i = 0; i < n_dim; i++) {
    dim[i] = length[(c->value >> (8 * i)) % (sizeof length / sizeof *length)];
    n_element *= (double)dim[i];
  }
  if (H5Ldelete(file, name, H5P_DEFAULT) < 0)
    return;
  const int is_small = n_element <= MAX_ELEMENT;
  const hid_t space = H5Screate_simple(n_dim, dim, NULL);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  if (!is_small)
    H5Pset_chunk(creation, n_dim, chunk);
  const hid_t dataset =
      H5Dcreate2(file, name, file_type(c->type), space, H5P_DEFAULT, creation, H5P_DEFAULT);
  if (dataset >= 0) {
    for (int i = 0; i < MAX_ELEMENT; i++)
      data[i] = (double)(c->value >> 32) * 1e-3 + i;
    if (is_small)
      H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    H5Dclose(dataset);
  }
  H5Pclose(creation);
  H5Sclose(space);
}

/* A dataset gets another value somewhere. */
static void change_value(hid_t file, const char *name, const change *c)
{
  static double data[MAX_ELEMENT];
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  if (dataset < 0)
    return;
  const hid_t space = H5Dget_space(dataset);
  const hssize_t n = H5Sget_simple_extent_npoints(space);
  if (n > 0 && n <= MAX_ELEMENT &&
      H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0) {
    data[c->size % (size_t)n] = c->type % 2 ? as_double(c->value) : (double)(int64_t)c->value;
    H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
  }
  H5Sclose(space);
  H5Dclose(dataset);
}

static void apply(hid_t file, const base *b, const change *c)
{
  const char *name = b->object[c->object % b->n_object];
  switch (c->kind % 8) {
  case 0:
  case 1:
  case 2:
    change_attribute(file, name, c);
    break;
  case 3:
    if (strcmp(name, "/") != 0 && c->type % 4 == 0)
      H5Ldelete(file, name, H5P_DEFAULT);
    break;
  case 4:
    if (H5Lexists(file, name, H5P_DEFAULT) > 0 && strcmp(name, "/") != 0)
      change_shape(file, name, c);
    break;
  default:
    change_value(file, name, c);
  }
}

int fuzz_values(const uint8_t *bytes, size_t n)
{
  static base bases[N_BASE];
  if (n == 0)
    return FUZZ_REFUSED;
  base *b = &bases[bytes[0] % N_BASE];
  static const int none[] = {-1};
  if (b->n == 0)
    fuzz_check_code("reading a library", read_base(bytes[0] % N_BASE, b), none);
  const char *path = fuzz_file(b->bytes, b->n);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  if (file < 0)
    return FUZZ_REFUSED;
  for (size_t i = 0; i < MAX_CHANGE && 1 + (i + 1) * sizeof(change) <= n; i++) {
    change c;
    memcpy(&c, bytes + 1 + i * sizeof c, sizeof c);
    apply(file, b, &c);
  }
  H5Fclose(file);
  return fuzz_read_library(path);
}
