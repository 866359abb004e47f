/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "io/export/rvtab.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

enum { PIECE_BYTES = 16 << 20 };

typedef struct model_arm {
  char name[MILL_MAX_NAME]; /* of its group */
  int has_own;              /* wavelengths of each row */
  int64_t n_pix;
} model_arm;

struct mill_export_models {
  mill_h5_file file;
  int64_t n_row; /* model rows: exposures of the result */
  int n_arm;
  model_arm arm[MILL_MAX_ARM];
};

/* An arm, whose wavelengths and models have the shapes that they must have. */
static int take_arm(mill_export_models *models, const char *name)
{
  int err = MILL_OK;
  char path[sizeof models->arm->name + 32];
  size_t dim[2] = {0, 0}, n_pix = 0;
  mill_h5_array wave = {0};
  if (models->n_arm == MILL_MAX_ARM || strlen(name) >= sizeof models->arm->name)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: /models/%s", models->file.path, name);
  model_arm *arm = &models->arm[models->n_arm++];
  memcpy(arm->name, name, strlen(name) + 1);
  snprintf(path, sizeof path, "models/%s/flux", arm->name);
  MILL_TRY(mill_h5_shape(&models->file, path, 2, dim));
  arm->n_pix = (int64_t)dim[1];
  snprintf(path, sizeof path, "models/%s/wavelength", arm->name);
  if (!mill_h5_array_open(models->file.id, path, &wave))
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: /%s: %s", models->file.path, path, mill_h5_reason());
  arm->has_own = H5Sget_simple_extent_ndims(wave.space) == 2;
  if (!arm->has_own)
    MILL_TRY(mill_h5_shape(&models->file, path, 1, &n_pix));
  if ((int64_t)dim[0] != models->n_row || (!arm->has_own && n_pix != dim[1]))
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: the shape of /%s", models->file.path, path);
done:
  mill_h5_array_close(&wave);
  return err;
}

static int find_arms(mill_export_models *models)
{
  int err = MILL_OK;
  H5G_info_t info;
  const hid_t group = H5Gopen2(models->file.id, "models", H5P_DEFAULT);
  if (group < 0 || H5Gget_info(group, &info) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: /models: %s", models->file.path, mill_h5_reason());
  for (hsize_t i = 0; i < info.nlinks; i++) {
    char name[MILL_MAX_NAME + 1] = "";
    const ssize_t n = H5Lget_name_by_idx(group, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i, name,
                                         sizeof name, H5P_DEFAULT);
    const ssize_t n_found = n >= 0 ? n
                                   : H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i,
                                                        name, sizeof name, H5P_DEFAULT);
    const hid_t object = n_found > 0 ? H5Oopen(group, name, H5P_DEFAULT) : H5I_INVALID_HID;
    const int is_arm = object > 0 && H5Iget_type(object) == H5I_GROUP;
    MILL_H5_CLOSE(object);
    if (is_arm)
      MILL_TRY(take_arm(models, name));
  }
done:
  MILL_H5_CLOSE(group);
  return err;
}

int mill_export_models_open(const mill_export_source *source, const char *path,
                            mill_export_models **out)
{
  int err = MILL_OK;
  char format[64] = "", run_id[64] = "";
  size_t n_row = 0, n_exposure = 0;
  mill_export_models *models = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &models));
  models->file.id = H5I_INVALID_HID;
  MILL_TRY(mill_h5_open(path, MILL_ERR_USAGE, &models->file));
  MILL_TRY(mill_h5_scan(&models->file));
  if (!mill_h5_has_attr(&models->file, "/", "FORMAT") ||
      mill_h5_read_attr_text(&models->file, "/", "FORMAT", format, sizeof format) != MILL_OK ||
      strcmp(format, "starmill models") != 0)
    MILL_FAIL(MILL_ERR_USAGE, "--models %s: holds no models of starmill fit", path);
  MILL_TRY(mill_h5_read_attr_text(&models->file, "/", "RUN_ID", run_id, sizeof run_id));
  if (strcmp(run_id, source->run_id) != 0)
    MILL_FAIL(MILL_ERR_USAGE, "--models %s: holds the models of another result than %s", path,
              source->table.path);
  MILL_TRY(mill_h5_shape(&models->file, "models/fits_row", 1, &n_row));
  MILL_TRY(mill_h5_shape(&source->table.file, "catalog/exposures/FILE", 1, &n_exposure));
  if (n_row != n_exposure)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: %zu model rows for %zu exposures", path, n_row,
              n_exposure);
  models->n_row = (int64_t)n_row;
  MILL_TRY(find_arms(models));
  *out = models;
  models = NULL;
done:
  mill_export_models_close(models);
  return err;
}

void mill_export_models_close(mill_export_models *models)
{
  if (!models)
    return;
  mill_h5_close(&models->file);
  mill_free(models);
}

/* ---- the product ---- */

/* Wavelengths or models of an arm as an image: rows [n], or with one axis the first of them. */
static int write_image(const mill_export_models *models, const model_arm *arm, int is_wave,
                       int n_dim, int64_t n, const int64_t *row, const mill_product *product)
{
  int err = MILL_OK, status = 0;
  char path[MILL_MAX_NAME + 32], name[MILL_MAX_NAME + 16];
  const char *const file = models->file.path;
  const int has_rows = !is_wave || arm->has_own; /* of the dataset */
  const int64_t n_image = n_dim == 2 ? n : 1, row_bytes = arm->n_pix * (is_wave ? 8 : 4);
  const int64_t n_most = row_bytes > 0 && row_bytes < PIECE_BYTES ? PIECE_BYTES / row_bytes : 1;
  LONGLONG axis[2] = {arm->n_pix, n};
  void *pixel = NULL;
  hid_t dataset = H5I_INVALID_HID;
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  snprintf(path, sizeof path, "models/%s/%s", arm->name, is_wave ? "wavelength" : "flux");
  snprintf(name, sizeof name, "%s_%s", arm->name, is_wave ? "WAVELENGTH" : "MODEL");
  for (char *c = name; *c; c++)
    *c = (char)toupper((unsigned char)*c);
  fits_create_imgll(product->fits, is_wave ? DOUBLE_IMG : FLOAT_IMG, n_dim, axis, &status);
  fits_write_key_str(product->fits, "EXTNAME", name, NULL, &status);
  if (is_wave)
    fits_write_key_str(product->fits, "BUNIT", "Angstrom", "in vacuum", &status);
  MILL_TRY_PRODUCT(product, status);
  MILL_TRY(mill_ph5_open_dataset(models->file.id, file, path,
                                 is_wave ? H5T_IEEE_F64LE : H5T_IEEE_F32LE, has_rows ? 2 : 1,
                                 has_rows ? models->n_row : arm->n_pix, arm->n_pix, &dataset));
  MILL_TRY(mill_alloc_raw((size_t)n_most, (size_t)row_bytes, &pixel));
  for (int64_t at = 0; at < n_image && arm->n_pix > 0; at += n_most) {
    const int64_t n_now = n_image - at < n_most ? n_image - at : n_most;
    MILL_TRY(mill_export_go_on());
    MILL_TRY(has_rows ? mill_ph5_select(file, 2, models->n_row, arm->n_pix, row + at, n_now, &rows)
                      : mill_ph5_select_range(file, 1, arm->n_pix, 1, 0, arm->n_pix, &rows));
    MILL_TRY(mill_ph5_read(dataset, file, path, is_wave ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT,
                           &rows, pixel));
    mill_ph5_unselect(&rows);
    fits_write_img(product->fits, is_wave ? TDOUBLE : TFLOAT, at * arm->n_pix + 1,
                   n_now * arm->n_pix, pixel, &status);
    MILL_TRY_PRODUCT(product, status);
  }
done:
  mill_ph5_unselect(&rows);
  MILL_H5_CLOSE(dataset);
  mill_free(pixel);
  return err;
}

int mill_rvmod_write(const mill_export_models *models, mill_fits_file *input,
                     const mill_carried *carried, const mill_product *product)
{
  int i_map = -1;
  const int64_t n = carried->n;
  for (int a = 0; a < models->n_arm; a++) {
    const model_arm *arm = &models->arm[a];
    /* one row has one set of wavelengths, as rvspecfit writes it */
    const int n_dim = arm->has_own && n != 1 ? 2 : 1;
    MILL_CHECK(write_image(models, arm, 1, n_dim, n, carried->exposure, product));
    MILL_CHECK(write_image(models, arm, 0, 2, n, carried->exposure, product));
  }
  if (!input)
    return MILL_OK;
  MILL_CHECK(mill_fits_file_find(input, "FIBERMAP", &i_map));
  return mill_carried_rows(input, i_map, n, carried->fits_row, product);
}
