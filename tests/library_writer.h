/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes a library of networks in memory to a file, for a test that opens it; the program's
 *  libraries are written by python/starmill/templates/library_file.py. */
#pragma once

#include "src/system/regular_file.h"
#include "io/hdf5/hdf5_util.h"
#include "io/library/library_file.h"
#include "kernels/base/memory.h"

static inline int writer_array(const mill_h5_file *file, const char *group, const char *name,
                               hid_t type, size_t n_row, size_t n_column, const void *data)
{
  const size_t dim[2] = {n_row, n_column};
  char at[192];
  snprintf(at, sizeof at, "%s/%s", group, name);
  return mill_h5_write(file, at, type, type, n_column > 0 ? 2 : 1, dim, data, "of a test");
}

static inline int writer_error(const mill_h5_file *file, const char *arm, size_t n_pix,
                               const mill_model_error *error)
{
  char at[96];
  const size_t n = (size_t)error->n_component;
  snprintf(at, sizeof at, "%s/model_error", arm);
  MILL_CHECK(mill_h5_write_group(file, at));
  MILL_CHECK(mill_h5_write_attr_double(file, at, "correlation", error->correlation));
  MILL_CHECK(writer_array(file, at, "fraction", H5T_NATIVE_FLOAT, n_pix, 0, error->fraction));
  if (n == 0)
    return MILL_OK;
  MILL_CHECK(writer_array(file, at, "sigmas", H5T_NATIVE_DOUBLE, n, 0, error->sigma));
  return writer_array(file, at, "components", H5T_NATIVE_FLOAT, n, n_pix, error->component);
}

static inline int writer_arm(const mill_h5_file *file, const char *arm, const mill_arm *a)
{
  const mill_emulator *e = &a->emulator;
  const struct {
    const char *name, *text;
  } text[] = {
      {"name", a->name},     {"setup", a->setup},       {"template_sigma_origin", a->sigma_origin},
      {"source", a->source}, {"revision", a->revision}, {"emulator", "mlp"},
      {"activation", "silu"}};
  char at[96];
  MILL_CHECK(mill_h5_write_group(file, arm));
  for (size_t i = 0; i < sizeof text / sizeof *text; i++)
    MILL_CHECK(mill_h5_write_attr_text(file, arm, text[i].name, text[i].text));
  MILL_CHECK(mill_h5_write_attr_double(file, arm, "ln_wave0", a->ln_wave0));
  MILL_CHECK(mill_h5_write_attr_double(file, arm, "ln_step", a->ln_step));
  MILL_CHECK(mill_h5_write_attr_double(file, arm, "template_sigma", a->template_sigma_aa));
  MILL_CHECK(mill_h5_write_attr_int(file, arm, "log_flux", e->log_flux));
  MILL_CHECK(mill_h5_write_attr_int(file, arm, "n_layer", e->n_layer));
  MILL_CHECK(
      writer_array(file, arm, "wavelength", H5T_NATIVE_DOUBLE, (size_t)a->n_pix, 0, a->wave_aa));
  for (int i = 0; i < e->n_layer; i++) {
    const size_t n_out = (size_t)e->n_out[i], n_in = (size_t)e->n_in[i];
    snprintf(at, sizeof at, "%s/layer%d", arm, i);
    MILL_CHECK(mill_h5_write_group(file, at));
    MILL_CHECK(writer_array(file, at, "weight", H5T_NATIVE_FLOAT, n_out, n_in, e->weight[i]));
    MILL_CHECK(writer_array(file, at, "bias", H5T_NATIVE_FLOAT, n_out, 0, e->bias[i]));
  }
  return a->error.fraction ? writer_error(file, arm, (size_t)a->n_pix, &a->error) : MILL_OK;
}

static inline int writer_label(const mill_h5_file *file, const char *at, const mill_label *l)
{
  const struct {
    const char *name;
    double value;
  } number[] = {{"mean", l->mean}, {"std", l->std},     {"min", l->min},
                {"max", l->max},   {"scale", l->scale}, {"floor", l->floor}};
  MILL_CHECK(mill_h5_write_group(file, at));
  MILL_CHECK(mill_h5_write_attr_text(file, at, "name", l->name));
  MILL_CHECK(mill_h5_write_attr_text(file, at, "column", l->column));
  MILL_CHECK(mill_h5_write_attr_text(file, at, "unit", l->unit));
  MILL_CHECK(mill_h5_write_attr_int(file, at, "mapping", l->mapping));
  for (size_t i = 0; i < sizeof number / sizeof *number; i++)
    MILL_CHECK(mill_h5_write_attr_double(file, at, number[i].name, number[i].value));
  return MILL_OK;
}

static inline int writer_contents(const mill_h5_file *file, const mill_library *lib)
{
  const struct {
    const char *group, *count;
    int n;
  } group[] = {{"labels", "n_label", lib->n_label},
               {"hulls", "n_hull", lib->n_hull},
               {"arms", "n_arm", lib->n_arm}};
  char at[64], hash[65];
  mill_library_digest(lib, hash);
  MILL_CHECK(mill_h5_write_attr_text(file, "/", "format", "starmill library"));
  MILL_CHECK(mill_h5_write_attr_int(file, "/", "format_version", MILL_LIBRARY_FORMAT));
  MILL_CHECK(mill_h5_write_attr_text(file, "/", "name", lib->name));
  MILL_CHECK(mill_h5_write_attr_text(file, "/", "hash", hash));
  for (size_t i = 0; i < 3; i++) {
    MILL_CHECK(mill_h5_write_group(file, group[i].group));
    MILL_CHECK(mill_h5_write_attr_int(file, group[i].group, group[i].count, group[i].n));
  }
  for (int i = 0; i < lib->n_label; i++) {
    snprintf(at, sizeof at, "labels/label%d", i);
    MILL_CHECK(writer_label(file, at, &lib->label[i]));
  }
  for (int i = 0; i < lib->n_hull; i++) {
    const mill_hull *hull = &lib->hull[i];
    snprintf(at, sizeof at, "hulls/hull%d", i);
    MILL_CHECK(mill_h5_write_group(file, at));
    MILL_CHECK(
        writer_array(file, at, "labels", H5T_NATIVE_INT, (size_t)hull->n_label, 0, hull->label));
    MILL_CHECK(writer_array(file, at, "facets", H5T_NATIVE_DOUBLE, (size_t)hull->n_facet,
                            (size_t)hull->n_label + 1, hull->facet));
  }
  for (int i = 0; i < lib->n_arm; i++) {
    snprintf(at, sizeof at, "arms/arm%d", i);
    MILL_CHECK(writer_arm(file, at, &lib->arm[i]));
  }
  MILL_CHECK(mill_h5_write_group(file, "guess"));
  MILL_CHECK(writer_array(file, "guess", "labels", H5T_NATIVE_DOUBLE, (size_t)lib->n_guess,
                          (size_t)lib->n_label, lib->guess_label));
  return writer_array(file, "guess", "vsini", H5T_NATIVE_DOUBLE, (size_t)lib->n_guess_vsini, 0,
                      lib->guess_vsini_km_s);
}

/** A file that is there is replaced. */
static inline int test_library_write(const char *path, const mill_library *lib)
{
  int err = MILL_OK;
  char temporary[1200];
  void *image = NULL;
  size_t n_byte = 0;
  mill_h5_file file = {.id = H5I_INVALID_HID};
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  MILL_TRY(mill_h5_open_image(NULL, 0, temporary, MILL_ERR_OUTPUT, &file));
  MILL_TRY(writer_contents(&file, lib));
  MILL_TRY(mill_h5_get_image(&file, &image, &n_byte));
  MILL_TRY(mill_whole_file_write(path, temporary, 1, image, n_byte));
done:
  mill_h5_close(&file);
  mill_free(image);
  return err;
}
