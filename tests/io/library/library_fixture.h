/* SPDX-License-Identifier: BSD-3-Clause */
/** A folder for each program, libraries to write and compare, and library files to change, for the
 *  tests of the library file. */
#ifndef MILL_LIBRARY_FIXTURE_H
#define MILL_LIBRARY_FIXTURE_H

#include "tests/test_folder.h"

#include <hdf5.h>

#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "tests/library_writer.h"
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

/* The digest is of all that a fit sees, to the bit (tests/reference/make_library_digest.py and
 * test_library_digest); names of origin are not in it. */
static inline void assert_same(const mill_library *a, const mill_library *b)
{
  char of_a[65], of_b[65];
  mill_library_digest(a, of_a);
  mill_library_digest(b, of_b);
  assert_string_equal(of_a, of_b);
  assert_string_equal(a->name, b->name);
  assert_int_equal(a->n_arm, b->n_arm);
  for (int i = 0; i < a->n_arm; i++) {
    assert_string_equal(a->arm[i].sigma_origin, b->arm[i].sigma_origin);
    assert_string_equal(a->arm[i].source, b->arm[i].source);
    assert_string_equal(a->arm[i].revision, b->arm[i].revision);
    assert_int_equal(a->arm[i].error.fraction != NULL, b->arm[i].error.fraction != NULL);
  }
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
