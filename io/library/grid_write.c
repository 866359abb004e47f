/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/library/grid_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/library/grid_parts.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/ranks/mpi_context.h"
#include "src/system/version.h"

struct mill_grid_writer {
  hid_t file, status, why, why_type;
  hid_t flux[MILL_MAX_ARM], continuum[MILL_MAX_ARM];
  char *path;
  int n_model, n_arm, n_rank;
  int n_pix[MILL_MAX_ARM];
};

/* ---- the empty file ------------------------------------------------------------------------ */

static int write_texts(hid_t file, const char *path, const char *name, int n, size_t size,
                       const char *text, const char *description)
{
  int err = MILL_OK;
  const hid_t type = mill_ph5_text_type(size);
  MILL_TRY(mill_ph5_dataset(file, path, name, type, 1, n, 1, NULL, "", description));
  if (text)
    MILL_TRY(mill_ph5_write_whole(file, path, name, type, text));
done:
  MILL_H5_CLOSE(type);
  return err;
}

static int make_models(hid_t file, const char *path, const mill_grid_info *info)
{
  char label[MILL_MAX_LABEL][MILL_GRID_NAME] = {0};
  for (int i = 0; i < info->n_label; i++)
    snprintf(label[i], sizeof label[i], "%s", info->label[i]);
  MILL_CHECK(mill_ph5_group(file, path, "labels"));
  MILL_CHECK(write_texts(file, path, "labels/name", info->n_label, MILL_GRID_NAME, label[0],
                         "names of the labels"));
  MILL_CHECK(mill_ph5_group(file, path, "models"));
  MILL_CHECK(mill_ph5_dataset(file, path, "models/label", H5T_IEEE_F64LE, 2, info->n_model,
                              info->n_label, NULL, "", "labels of each model, in their units"));
  MILL_CHECK(mill_ph5_write_whole(file, path, "models/label", H5T_NATIVE_DOUBLE, info->value));
  MILL_CHECK(write_texts(file, path, "models/name", info->n_model, MILL_GRID_NAME, info->name[0],
                         "file or row that each model comes from"));
  MILL_CHECK(mill_ph5_dataset(file, path, "models/status", H5T_STD_I8LE, 1, info->n_model, 1, NULL,
                              "", "0 still to do, 1 good, 2 bad"));
  if (info->status)
    MILL_CHECK(mill_ph5_write_whole(file, path, "models/status", H5T_NATIVE_UCHAR, info->status));
  if (info->stamp) {
    MILL_CHECK(mill_ph5_dataset(file, path, "models/stamp", H5T_STD_U64LE, 1, info->n_model, 1,
                                NULL, "", "of the file that each model comes from; 0: not known"));
    MILL_CHECK(mill_ph5_write_whole(file, path, "models/stamp", H5T_NATIVE_UINT64, info->stamp));
  }
  return write_texts(file, path, "models/why", info->n_model, MILL_GRID_WHY,
                     info->why ? info->why[0] : NULL, "why a model is bad");
}

static int make_arm(hid_t file, const char *path, int n_model, int i_arm, const mill_grid_arm *arm,
                    const double *sigma)
{
  char at[MILL_GRID_AT];
  const mill_h5_file h5 = {file, MILL_ERR_OUTPUT, path};
  mill_grid_at(at, i_arm, "");
  MILL_CHECK(mill_ph5_group(file, path, at));
  MILL_CHECK(mill_h5_write_attr_text(&h5, at, "name", arm->name));
  MILL_CHECK(mill_h5_write_attr_double(&h5, at, "ln_wave0", arm->ln_wave0));
  MILL_CHECK(mill_h5_write_attr_double(&h5, at, "ln_step", arm->ln_step));
  MILL_CHECK(mill_h5_write_attr_int(&h5, at, "n_pix", arm->n_pix));
  MILL_CHECK(mill_h5_write_attr_double(&h5, at, "template_sigma_aa", arm->template_sigma_aa));
  MILL_CHECK(mill_h5_write_attr_text(&h5, at, "sigma_origin", arm->sigma_origin));
  mill_grid_at(at, i_arm, "sigma");
  if (sigma) {
    MILL_CHECK(mill_ph5_dataset(file, path, at, H5T_IEEE_F64LE, 1, arm->n_pix, 1, NULL, "Angstrom",
                                "Gaussian sigma of the spectra at each pixel"));
    MILL_CHECK(mill_ph5_write_whole(file, path, at, H5T_NATIVE_DOUBLE, sigma));
  }
  mill_grid_at(at, i_arm, "flux");
  MILL_CHECK(mill_ph5_dataset(file, path, at, H5T_IEEE_F32LE, 2, n_model, arm->n_pix, NULL, "",
                              "flux density, each model in its own unit"));
  mill_grid_at(at, i_arm, "continuum");
  if (arm->has_continuum)
    MILL_CHECK(mill_ph5_dataset(file, path, at, H5T_IEEE_F32LE, 2, n_model, arm->n_pix, NULL, "",
                                "continuum in the unit of the flux"));
  return MILL_OK;
}

static int make_all(hid_t file, const char *path, const mill_grid_info *info,
                    const double *const *sigma, const char *settings)
{
  char program[128];
  const mill_h5_file h5 = {file, MILL_ERR_OUTPUT, path};
  snprintf(program, sizeof program, "starmill %s (%s)", mill_version(), mill_version_revision());
  MILL_CHECK(mill_h5_write_attr_text(&h5, "/", "format", MILL_GRID_FORMAT));
  MILL_CHECK(mill_h5_write_attr_int(&h5, "/", "version", MILL_GRID_VERSION));
  MILL_CHECK(mill_h5_write_attr_int(&h5, "/", "complete", 0));
  MILL_CHECK(mill_h5_write_attr_text(&h5, "/", "generator", program));
  MILL_CHECK(mill_h5_write_attr_text(&h5, "/", "settings", settings));
  MILL_CHECK(make_models(file, path, info));
  MILL_CHECK(mill_ph5_group(file, path, "arms"));
  for (int a = 0; a < info->n_arm; a++)
    MILL_CHECK(make_arm(file, path, info->n_model, a, &info->arm[a], sigma ? sigma[a] : NULL));
  return MILL_OK;
}

int mill_grid_create(const char *path, const mill_grid_info *info, const double *const *sigma,
                     const char *settings)
{
  int err = MILL_OK, made = 0;
  char *temporary = NULL;
  hid_t file = H5I_INVALID_HID;
  int64_t n_byte = 1 << 16;
  for (int a = 0; a < info->n_arm; a++)
    n_byte += (int64_t)info->n_model * info->arm[a].n_pix * 4 * (1 + info->arm[a].has_continuum);
  n_byte += (int64_t)info->n_model * (MILL_GRID_NAME + MILL_GRID_WHY + 9 + 8 * info->n_label);
  MILL_TRY(MILL_ALLOC(strlen(path) + 32, &temporary));
  sprintf(temporary, "%s.tmp-%ld", path, (long)getpid());
  made = 1;
  MILL_TRY(mill_ph5_create(temporary, n_byte, &file));
  err = make_all(file, temporary, info, sigma, settings);
  MILL_TRY(mill_ph5_end(temporary, &file, 1, err));
  MILL_TRY(mill_ph5_rename(temporary, path));
done:
  if (err != MILL_OK && made)
    unlink(temporary);
  mill_free(temporary);
  return err;
}

/* ---- its rows ------------------------------------------------------------------------------ */

int mill_grid_writer_open(const char *path, const mill_grid_info *info, MPI_Comm comm,
                          mill_grid_writer **out)
{
  int err = MILL_OK;
  char at[MILL_GRID_AT];
  mill_grid_writer *writer = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &writer));
  writer->file = H5I_INVALID_HID;
  MILL_MPI(MPI_Comm_size(comm, &writer->n_rank));
  MILL_TRY(MILL_ALLOC(strlen(path) + 1, &writer->path));
  memcpy(writer->path, path, strlen(path));
  writer->n_model = info->n_model;
  writer->n_arm = info->n_arm;
  writer->why_type = mill_ph5_text_type(MILL_GRID_WHY);
  MILL_TRY(mill_ph5_open(writer->path, H5F_ACC_RDWR, comm, &writer->file));
  for (int a = 0; a < info->n_arm; a++) {
    writer->n_pix[a] = info->arm[a].n_pix;
    mill_grid_at(at, a, "flux");
    MILL_TRY(mill_ph5_open_dataset(writer->file, path, at, H5T_NATIVE_FLOAT, 2, info->n_model,
                                   info->arm[a].n_pix, &writer->flux[a]));
    mill_grid_at(at, a, "continuum");
    if (info->arm[a].has_continuum)
      MILL_TRY(mill_ph5_open_dataset(writer->file, path, at, H5T_NATIVE_FLOAT, 2, info->n_model,
                                     info->arm[a].n_pix, &writer->continuum[a]));
  }
  MILL_TRY(mill_ph5_open_dataset(writer->file, path, "models/status", H5T_NATIVE_SCHAR, 1,
                                 info->n_model, 1, &writer->status));
  MILL_TRY(mill_ph5_open_dataset(writer->file, path, "models/why", writer->why_type, 1,
                                 info->n_model, 1, &writer->why));
  *out = writer;
  writer = NULL;
done:
  if (writer)
    err = mill_grid_writer_close(writer, err);
  return err;
}

/* A dataset's rows; arms have rows of other lengths. */
static int write_rows(const mill_grid_writer *writer, hid_t dataset, const char *name, hid_t type,
                      int n_dim, int n_value, const int64_t *row, int n, const void *data)
{
  mill_ph5_rows rows = {H5I_INVALID_HID, H5I_INVALID_HID};
  const int failed = mill_ph5_select(writer->path, n_dim, writer->n_model, n_value, row, n, &rows);
  /* called also after that failed: the other ranks wait for this one in it */
  const int err = mill_ph5_write(dataset, writer->path, name, type, &rows, data);
  mill_ph5_unselect(&rows);
  return failed != MILL_OK ? failed : err;
}

/* The first of two failures. */
static int first_of(int before, int now)
{
  return before != MILL_OK ? before : now;
}

int mill_grid_write(mill_grid_writer *writer, int n, const int *model, const float *const *flux,
                    const float *const *continuum, const unsigned char *status,
                    const char (*why)[MILL_GRID_WHY])
{
  int64_t *row = NULL;
  /* a rank that fails takes part in all that follows, with no rows */
  int err = MILL_ALLOC(n, &row);
  if (err != MILL_OK)
    n = 0;
  for (int i = 0; i < n; i++)
    row[i] = model[i];
  for (int a = 0; a < writer->n_arm; a++) {
    err = first_of(err, write_rows(writer, writer->flux[a], "flux", H5T_NATIVE_FLOAT, 2,
                                   writer->n_pix[a], row, n, flux[a]));
    if (writer->continuum[a] > 0)
      err = first_of(err, write_rows(writer, writer->continuum[a], "continuum", H5T_NATIVE_FLOAT, 2,
                                     writer->n_pix[a], row, n, continuum[a]));
  }
  if (err != MILL_OK)
    n = 0; /* what has not been written gets no status */
  err = first_of(err, write_rows(writer, writer->why, "why", writer->why_type, 1, 1, row, n, why));
  if (err != MILL_OK)
    n = 0;
  err = first_of(
      err, write_rows(writer, writer->status, "status", H5T_NATIVE_UCHAR, 1, 1, row, n, status));
  mill_free(row);
  return err;
}

int mill_grid_writer_close(mill_grid_writer *writer, int err)
{
  if (!writer)
    return err;
  for (int a = 0; a < writer->n_arm; a++)
    MILL_H5_CLOSE(writer->flux[a], writer->continuum[a]);
  MILL_H5_CLOSE(writer->status, writer->why, writer->why_type);
  if (writer->file >= 0)
    err = mill_ph5_end(writer->path, &writer->file, writer->n_rank, err);
  MILL_FREE(writer->path, writer);
  return err;
}

/* Is no model still to do? */
static int mark(hid_t file, const char *path, int32_t complete)
{
  int err = MILL_OK;
  const hid_t attr = H5Aopen(file, "complete", H5P_DEFAULT);
  if (attr < 0 || H5Awrite(attr, H5T_NATIVE_INT32, &complete) < 0 ||
      H5Fflush(file, H5F_SCOPE_GLOBAL) < 0)
    err = MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be marked as %s: %s", path,
                     complete ? "complete" : "not complete", mill_h5_reason());
  MILL_H5_CLOSE(attr);
  return err;
}

/* The status last: the file is valid after a kill. */
static int write_again(hid_t file, const char *path, const mill_grid_info *info)
{
  int err = MILL_OK;
  const hid_t why = mill_ph5_text_type(MILL_GRID_WHY);
  MILL_TRY(mark(file, path, 0));
  MILL_TRY(mill_ph5_write_whole(file, path, "models/label", H5T_NATIVE_DOUBLE, info->value));
  if (info->stamp && H5Lexists(file, "models/stamp", H5P_DEFAULT) > 0)
    MILL_TRY(mill_ph5_write_whole(file, path, "models/stamp", H5T_NATIVE_UINT64, info->stamp));
  MILL_TRY(mill_ph5_write_whole(file, path, "models/why", why, info->why));
  MILL_TRY(mill_ph5_write_whole(file, path, "models/status", H5T_NATIVE_UCHAR, info->status));
done:
  MILL_H5_CLOSE(why);
  return err;
}

int mill_grid_revise(const char *path, const mill_grid_info *info)
{
  int err = MILL_OK;
  hid_t file = H5I_INVALID_HID;
  MILL_TRY(mill_ph5_open(path, H5F_ACC_RDWR, MPI_COMM_SELF, &file));
  err = write_again(file, path, info);
  MILL_TRY(mill_ph5_end(path, &file, 1, err));
done:
  return err;
}

int mill_grid_finish(const char *path)
{
  int err = MILL_OK;
  hid_t file = H5I_INVALID_HID;
  MILL_TRY(mill_ph5_open(path, H5F_ACC_RDWR, MPI_COMM_SELF, &file));
  err = mark(file, path, 1);
  MILL_TRY(mill_ph5_end(path, &file, 1, err));
done:
  return err;
}
