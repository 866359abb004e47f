/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/library/grid_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/hdf5/hdf5_crash.h"
#include "io/library/library_parts.h"
#include "kernels/base/memory.h"
#include "src/system/order.h"

struct mill_grid_file {
  mill_h5_file h5;
  const mill_grid_info *info; /* borrowed */
};

#define GRID_FORMAT "starmill grid"
#define REFUSED(file, format, ...)                                                                 \
  MILL_REFUSED(file, format "; make the grid file again by starmill library build", ##__VA_ARGS__)
enum { GRID_VERSION = 1, GRID_AT = 48, MAX_SETTINGS = 65536 };

void mill_grid_info_clear(mill_grid_info *info)
{
  MILL_FREE(info->value, info->name, info->status);
  memset(info, 0, sizeof *info);
}

/* Set `at` to a path in the file: "arms/arm2/flux", or with an empty name "arms/arm2". */
static void grid_at(char at[GRID_AT], int arm, const char *name)
{
  snprintf(at, GRID_AT, "arms/arm%d%s%s", arm, *name ? "/" : "", name);
}

/* Read a dataset [n] of texts into out [n][size]; cut longer texts to size - 1 bytes. */
static int read_texts(const mill_h5_file *file, const char *name, int n, size_t size, char *out)
{
  size_t dim[1];
  MILL_AT_END(mill_h5_array_close) mill_h5_array array = {0};
  MILL_AT_END(mill_h5_id_close) hid_t memory = H5I_INVALID_HID;
  MILL_CHECK(mill_h5_shape(file, name, 1, dim));
  if (dim[0] != (size_t)n)
    return REFUSED(file, "dataset /%s has %zu texts, expected %d", name, dim[0], n);
  if (!mill_h5_array_open(file->id, name, &array))
    return REFUSED(file, "/%s cannot be opened: %s", name, mill_h5_reason());
  if (H5Tget_class(array.type) != H5T_STRING || H5Tis_variable_str(array.type) != 0)
    return REFUSED(file, "dataset /%s does not hold texts of fixed length", name);
  if ((memory = H5Tcopy(array.type)) < 0 || H5Tset_size(memory, size) < 0 ||
      H5Tset_strpad(memory, H5T_STR_NULLTERM) < 0 ||
      (n > 0 && H5Dread(array.id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0))
    return REFUSED(file, "dataset /%s cannot be read: %s", name, mill_h5_reason());
  for (size_t i = 0; i < (size_t)n; i++) {
    out[i * size + size - 1] = '\0';
    /* replace control characters, since names are printed */
    for (char *c = out + i * size; *c; c++)
      if ((unsigned char)*c < ' ' || *c == 127)
        *c = '?';
  }
  return MILL_OK;
}

static int read_labels(const mill_h5_file *file, mill_grid_info *info)
{
  size_t dim[1];
  MILL_CHECK(mill_h5_shape(file, "labels/name", 1, dim));
  if (dim[0] < 1 || dim[0] > MILL_MAX_LABEL)
    return REFUSED(file, "has %zu labels; this program takes 1 to %d", dim[0], MILL_MAX_LABEL);
  info->n_label = (int)dim[0];
  MILL_CHECK(read_texts(file, "labels/name", info->n_label, MILL_MAX_NAME, info->label[0]));
  for (int i = 0; i < info->n_label; i++)
    if (!info->label[i][0])
      return REFUSED(file, "label %d has no name", i);
  return MILL_OK;
}

static int read_models(const mill_h5_file *file, mill_grid_info *info)
{
  size_t dim[2];
  MILL_CHECK(mill_h5_shape(file, "models/label", 2, dim));
  if (dim[0] < 1 || dim[0] > MILL_GRID_MAX_MODEL || dim[1] != (size_t)info->n_label)
    return REFUSED(
        file,
        "dataset /models/label has the shape [%zu][%zu], expected 1 to %d models and %d labels",
        dim[0], dim[1], MILL_GRID_MAX_MODEL, info->n_label);
  info->n_model = (int)dim[0];
  MILL_CHECK(MILL_ALLOC(dim[0] * dim[1], &info->value));
  MILL_CHECK(MILL_ALLOC(dim[0], &info->name));
  MILL_CHECK(MILL_ALLOC(dim[0], &info->status));
  MILL_CHECK(mill_h5_read(file, "models/label", H5T_NATIVE_DOUBLE, 2, dim, info->value));
  MILL_CHECK(read_texts(file, "models/name", info->n_model, MILL_GRID_NAME, info->name[0]));
  MILL_CHECK(mill_h5_read(file, "models/status", H5T_NATIVE_UCHAR, 1, dim, info->status));
  for (int i = 0; i < info->n_model; i++) {
    if (info->status[i] > MILL_GRID_BAD)
      return REFUSED(file, "model %d (%s) has the status %d, expected 0 to 2", i, info->name[i],
                     info->status[i]);
    for (int l = 0; l < info->n_label && info->status[i] != MILL_GRID_BAD; l++)
      if (!isfinite(info->value[(size_t)i * dim[1] + (size_t)l]))
        return REFUSED(file, "label %s of model %d (%s) is not finite", info->label[l], i,
                       info->name[i]);
  }
  return MILL_OK;
}

static int read_arm(const mill_h5_file *file, int i_arm, int n_model, mill_grid_arm *arm)
{
  char at[GRID_AT];
  size_t dim[2];
  grid_at(at, i_arm, "");
  MILL_CHECK(mill_h5_read_attr_text(file, at, "name", arm->name, sizeof arm->name));
  MILL_CHECK(mill_h5_read_attr_double(file, at, "ln_wave0", &arm->ln_wave0));
  MILL_CHECK(mill_h5_read_attr_double(file, at, "ln_step", &arm->ln_step));
  MILL_CHECK(mill_h5_read_attr_int(file, at, "n_pix", &arm->n_pix));
  if (!arm->name[0] || arm->n_pix < MILL_LIBRARY_MIN_PIX || arm->n_pix > MILL_LIBRARY_MAX_PIX)
    return REFUSED(file, "arm %d (%s) has %d pixels, this program takes %d to %d", i_arm, arm->name,
                   arm->n_pix, MILL_LIBRARY_MIN_PIX, MILL_LIBRARY_MAX_PIX);
  const double end = arm->ln_wave0 + arm->n_pix * arm->ln_step;
  /* accept wavelengths of 10 A to 1 mm */
  if (!(arm->ln_step > 0) || !(arm->ln_wave0 > 2.3) || !(end < 16.2))
    return REFUSED(file, "arm %s has ln_wave0 %g, ln_step %g, expected 10 A to 1 mm, ascending",
                   arm->name, arm->ln_wave0, arm->ln_step);
  grid_at(at, i_arm, "flux");
  MILL_CHECK(mill_h5_shape(file, at, 2, dim));
  if (dim[0] != (size_t)n_model || dim[1] != (size_t)arm->n_pix)
    return REFUSED(file, "dataset /%s has the shape [%zu][%zu], expected [%d][%d]", at, dim[0],
                   dim[1], n_model, arm->n_pix);
  return MILL_OK;
}

static int read_format(const mill_h5_file *file)
{
  int version = 0;
  char format[64] = "";
  if (!mill_h5_has_attr(file, "/", "format"))
    return MILL_REFUSED(file, "is not a grid file; starmill library build makes one");
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "format", format, sizeof format));
  if (strcmp(format, GRID_FORMAT) != 0)
    return MILL_REFUSED(file, "is a %s, not a grid file; starmill library build makes one", format);
  MILL_CHECK(mill_h5_read_attr_int(file, "/", "version", &version));
  if (version != GRID_VERSION)
    return REFUSED(file, "has version %d; this program reads %d", version, GRID_VERSION);
  return MILL_OK;
}

static int read_info(const mill_h5_file *file, mill_grid_info *info)
{
  char at[GRID_AT];
  MILL_CHECK(read_format(file));
  MILL_CHECK(mill_h5_scan(file));
  MILL_CHECK(read_labels(file, info));
  MILL_CHECK(read_models(file, info));
  /* read arms/arm0, arms/arm1 and so on, up to the first that is missing */
  for (grid_at(at, 0, ""); mill_h5_exists(file, at); grid_at(at, info->n_arm, "")) {
    if (info->n_arm == MILL_MAX_ARM)
      return REFUSED(file, "has more than %d arms", MILL_MAX_ARM);
    MILL_CHECK(read_arm(file, info->n_arm, info->n_model, &info->arm[info->n_arm]));
    info->n_arm++;
  }
  if (info->n_arm == 0)
    return REFUSED(file, "has no arm");
  return MILL_OK;
}

MILL_CLOSER(mill_grid_file, mill_grid_close)

int mill_grid_open(const char *path, mill_grid_file **out, mill_grid_info *info)
{
  MILL_AT_END(mill_grid_close_at) mill_grid_file *file = NULL;
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &file));
  file->info = info;
  MILL_CHECK(mill_h5_open(path, MILL_ERR_INPUT, &file->h5));
  MILL_CHECK(read_info(&file->h5, info));
  return MILL_GIVE(&file, out);
}

void mill_grid_close(mill_grid_file *file)
{
  if (!file)
    return;
  mill_h5_close(&file->h5);
  mill_free(file);
}

static int check_flux(const mill_grid_file *file, const char *at, int model, int n_pix,
                      const float *flux)
{
  for (int i = 0; i < n_pix && file->info->status[model] == MILL_GRID_GOOD; i++)
    if (!(flux[i] > 0 && flux[i] <= 3e38F))
      return REFUSED(&file->h5, "/%s is %g at pixel %d of model %d, but good models are above 0",
                     at, (double)flux[i], i, model);
  return MILL_OK;
}

/* For each i read spectrum row[i].key into out [row[i].place][n_pix]; adjacent spectra at once. */
static int read_rows(const mill_grid_file *file, const char *at, int n_pix, int n,
                     const mill_keyed *row, float *out)
{
  MILL_AT_END(mill_h5_array_close) mill_h5_array array = {0};
  if (!mill_h5_array_open(file->h5.id, at, &array))
    return REFUSED(&file->h5, "/%s cannot be opened: %s", at, mill_h5_reason());
  if (H5Tget_class(array.type) != H5T_FLOAT || H5Tget_size(array.type) > 8)
    return REFUSED(&file->h5, "/%s holds no floating-point numbers", at);
  for (int i = 0, k; i < n; i += k) {
    k = 1; /* number of rows that are adjacent, in file and memory */
    while (i + k < n && row[i + k].key == row[i].key + k && row[i + k].place == row[i].place + k)
      k++;
    const hsize_t start[2] = {(hsize_t)row[i].key, 0}, count[2] = {(hsize_t)k, (hsize_t)n_pix};
    float *to = out + (size_t)row[i].place * (size_t)n_pix;
    MILL_AT_END(mill_h5_id_close) const hid_t memory = H5Screate_simple(2, count, NULL);
    if (memory < 0 ||
        H5Sselect_hyperslab(array.space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
        H5Dread(array.id, H5T_NATIVE_FLOAT, memory, array.space, H5P_DEFAULT, to) < 0)
      return REFUSED(&file->h5, "/%s cannot be read: %s", at, mill_h5_reason());
    for (int j = 0; j < k; j++)
      MILL_CHECK(check_flux(file, at, (int)row[i + j].key, n_pix, to + (size_t)j * (size_t)n_pix));
  }
  return MILL_OK;
}

int mill_grid_read(const mill_grid_file *file, int arm, int n, const int *model, float *flux)
{
  char at[GRID_AT];
  MILL_OWNED mill_keyed *row = NULL;
  if (arm < 0 || arm >= file->info->n_arm)
    return MILL_ERROR(MILL_ERR_RANGE, "%s: has no arm %d", file->h5.path, arm);
  MILL_CHECK(MILL_ALLOC(n, &row));
  for (int i = 0; i < n; i++) {
    if (model[i] < 0 || model[i] >= file->info->n_model)
      return MILL_ERROR(MILL_ERR_RANGE, "%s: has no model %d", file->h5.path, model[i]);
    row[i] = (mill_keyed){model[i], i};
  }
  qsort(row, (size_t)n, sizeof *row, mill_by_key);
  grid_at(at, arm, "flux");
  /* only a crash during read_rows prints this file's name (io/hdf5/hdf5_crash.h) */
  mill_h5_opening(file->h5.path, file->h5.code);
  mill_h5_opened(file->h5.id);
  const int err = read_rows(file, at, file->info->arm[arm].n_pix, n, row, flux);
  mill_h5_forget(file->h5.id);
  return err;
}

int mill_grid_read_settings(const mill_grid_file *file, char **settings)
{
  size_t size = 0;
  mill_h5_array array;
  MILL_OWNED char *text = NULL;
  *settings = NULL;
  const int open = mill_h5_array_open_attr(file->h5.id, "/", "settings", &array);
  if (open)
    size = H5Tis_variable_str(array.type) > 0 ? MAX_SETTINGS : H5Tget_size(array.type);
  mill_h5_array_close(&array);
  if (!open || size == 0 || size > MAX_SETTINGS)
    return REFUSED(&file->h5, "has no attribute settings");
  MILL_CHECK(MILL_ALLOC(size + 1, &text));
  MILL_CHECK(mill_h5_read_attr_text(&file->h5, "/", "settings", text, size + 1));
  return MILL_GIVE(&text, settings);
}
