/** A folder for each program, libraries to write and compare, and library files to change, for the
 *  tests of the library file. */
#ifndef MILL_LIBRARY_FIXTURE_H
#define MILL_LIBRARY_FIXTURE_H

#include "tests/test_folder.h"

#include <dirent.h>

#include <hdf5.h>

#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "tests/test_library.h"

static inline mill_library *new_library(void)
{
  mill_library *lib = NULL;
  assert_int_equal(MILL_ALLOC(1, &lib), MILL_OK);
  return lib;
}

static inline void free_library(mill_library *lib)
{
  mill_library_clear(lib);
  mill_free(lib);
}

static inline void make(int n_label, int n_arm, mill_library *lib)
{
  assert_int_equal(test_library_make(n_label, n_arm, 7, lib), MILL_OK);
}

/* Arm b with an emulator of a kind, the others with networks. */
static inline void make_kind(int n_label, int n_arm, int kind, mill_library *lib)
{
  make(n_label, n_arm, lib);
  lib->n_arm = 1;
  assert_ok(test_library_to(lib, kind));
  lib->n_arm = n_arm;
}

static inline void expect_refused(const char *path, const char *text)
{
  mill_library *lib = new_library();
  mill_error_clear();
  const int err = mill_library_read(path, lib);
  if (err != MILL_ERR_LIBRARY)
    fail_msg("%s: code %d (%s) instead of a refusal with \"%s\"", path, err, mill_error_message(),
             text);
  assert_says(text);
  assert_says(path);
  /* left cleared */
  assert_int_equal(lib->n_label, 0);
  assert_null(lib->arm[0].wave_aa);
  free_library(lib);
}

static inline void assert_same_grid(const mill_spline_grid *a, const mill_spline_grid *b)
{
  size_t size = (size_t)a->n_out;
  assert_int_equal(a->n_axis, b->n_axis);
  assert_int_equal(a->n_out, b->n_out);
  assert_memory_equal(a->n_node, b->n_node, sizeof a->n_node);
  for (int i = 0; i < a->n_axis; i++) {
    assert_memory_equal(a->knot[i], b->knot[i],
                        (size_t)(a->n_node[i] + mill_spline_grid_order(a)) * sizeof(double));
    size *= (size_t)a->n_node[i];
  }
  if (a->n_axis > 0)
    assert_memory_equal(a->coef, b->coef, size * sizeof *a->coef);
  else
    assert_null(b->coef);
}

static inline void assert_same_rbf(const mill_rbf *a, const mill_rbf *b)
{
  assert_int_equal(a->n_axis, b->n_axis);
  assert_int_equal(a->n_center, b->n_center);
  assert_int_equal(a->degree, b->degree);
  assert_int_equal(a->n_poly, b->n_poly);
  assert_int_equal(a->n_out, b->n_out);
  if (a->n_axis == 0)
    return;
  assert_memory_equal(a->length, b->length, (size_t)a->n_axis * sizeof(double));
  assert_memory_equal(a->center, b->center, (size_t)(a->n_center * a->n_axis) * sizeof(double));
  assert_memory_equal(a->coef, b->coef,
                      (size_t)((a->n_center + a->n_poly) * a->n_out) * sizeof(float));
}

static inline void assert_same(const mill_library *a, const mill_library *b)
{
  assert_string_equal(a->name, b->name);
  assert_int_equal(a->n_label, b->n_label);
  assert_memory_equal(a->label, b->label, sizeof a->label);
  assert_int_equal(a->n_hull, b->n_hull);
  for (int i = 0; i < a->n_hull; i++) {
    const mill_hull *h = &a->hull[i];
    assert_int_equal(h->n_label, b->hull[i].n_label);
    assert_int_equal(h->n_facet, b->hull[i].n_facet);
    assert_memory_equal(h->label, b->hull[i].label, sizeof h->label);
    assert_memory_equal(h->facet, b->hull[i].facet,
                        (size_t)(h->n_facet * (h->n_label + 1)) * sizeof *h->facet);
  }
  assert_int_equal(a->n_arm, b->n_arm);
  for (int i = 0; i < a->n_arm; i++) {
    const mill_arm *p = &a->arm[i], *q = &b->arm[i];
    assert_string_equal(p->name, q->name);
    assert_string_equal(p->setup, q->setup);
    assert_string_equal(p->sigma_origin, q->sigma_origin);
    assert_string_equal(p->source, q->source);
    assert_string_equal(p->revision, q->revision);
    assert_int_equal(p->n_pix, q->n_pix);
    assert_memory_equal(&p->ln_wave0, &q->ln_wave0, sizeof(double));
    assert_memory_equal(&p->ln_step, &q->ln_step, sizeof(double));
    assert_memory_equal(&p->template_sigma_aa, &q->template_sigma_aa, sizeof(double));
    assert_memory_equal(p->wave_aa, q->wave_aa, (size_t)p->n_pix * sizeof(double));
    assert_int_equal(p->error.n_component, q->error.n_component);
    assert_int_equal(p->error.fraction != NULL, q->error.fraction != NULL);
    if (p->error.fraction) {
      const size_t n_error = (size_t)p->error.n_component;
      assert_memory_equal(&p->error.correlation, &q->error.correlation, sizeof(double));
      assert_memory_equal(p->error.fraction, q->error.fraction, (size_t)p->n_pix * sizeof(float));
      assert_memory_equal(p->error.sigma, q->error.sigma, n_error * sizeof(double));
      if (n_error > 0)
        assert_memory_equal(p->error.component, q->error.component,
                            n_error * (size_t)p->n_pix * sizeof(float));
    }
    const mill_emulator *m = &p->emulator, *n = &q->emulator;
    assert_int_equal(m->log_flux, n->log_flux);
    assert_int_equal(m->kind, n->kind);
    assert_int_equal(m->grid.linear, n->grid.linear);
    assert_same_grid(&m->grid, &n->grid);
    assert_same_rbf(&m->rbf, &n->rbf);
    assert_int_equal(m->n_layer, n->n_layer);
    assert_memory_equal(m->n_in, n->n_in, sizeof m->n_in);
    assert_memory_equal(m->n_out, n->n_out, sizeof m->n_out);
    for (int j = 0; j < m->n_layer; j++) {
      assert_memory_equal(m->weight[j], n->weight[j],
                          (size_t)(m->n_in[j] * m->n_out[j]) * sizeof(float));
      assert_memory_equal(m->bias[j], n->bias[j], (size_t)m->n_out[j] * sizeof(float));
    }
  }
  assert_int_equal(a->n_guess, b->n_guess);
  assert_memory_equal(a->guess_label, b->guess_label,
                      (size_t)(a->n_guess * a->n_label) * sizeof(double));
  assert_int_equal(a->n_guess_vsini, b->n_guess_vsini);
  assert_memory_equal(a->guess_vsini_km_s, b->guess_vsini_km_s, sizeof a->guess_vsini_km_s);
}

/* ---- changing a file ------------------------------------------------------------------------- */

static inline hid_t open_file(const char *path)
{
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(file >= 0);
  return file;
}

static inline void set_attr(hid_t file, const char *object, const char *name, hid_t type,
                            const void *value)
{
  if (H5Aexists_by_name(file, object, name, H5P_DEFAULT) > 0)
    assert_true(H5Adelete_by_name(file, object, name, H5P_DEFAULT) >= 0);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attr =
      H5Acreate_by_name(file, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(attr >= 0 && H5Awrite(attr, type, value) >= 0);
  H5Aclose(attr);
  H5Sclose(space);
}

static inline void set_attr_int(hid_t file, const char *object, const char *name, int value)
{
  set_attr(file, object, name, H5T_NATIVE_INT, &value);
}

/* Add delta to one element of a dataset of double numbers (as HDF5 converts them). */
static inline void nudge(hid_t file, const char *name, size_t i_element, double delta)
{
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset);
  assert_true(dataset >= 0 && space >= 0);
  const size_t n = (size_t)H5Sget_simple_extent_npoints(space);
  double *data = calloc(n, sizeof *data);
  assert_non_null(data);
  assert_true(i_element < n);
  assert_true(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  data[i_element] += delta;
  assert_true(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  free(data);
  H5Sclose(space);
  H5Dclose(dataset);
}

#endif
