/* SPDX-License-Identifier: BSD-3-Clause */
/** Rows of a DESI file as whole arms with their matrices. */
#ifndef MILL_TEST_DESI_ROWS_H
#define MILL_TEST_DESI_ROWS_H

#include <string.h>

#include "io/surveys/spectra.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

typedef struct desi_rows {
  mill_library *lib; /* arms of the caller's names that want a line-spread function */
  mill_config config;
  mill_spectra_settings settings;
  mill_spectra *spectra;
  mill_read_batch batch;
} desi_rows;

static inline void desi_rows_close(desi_rows *d)
{
  mill_read_batch_clear(&d->batch);
  mill_spectra_close(d->spectra);
  mill_config_clear(&d->config);
  mill_free(d->lib);
  memset(d, 0, sizeof *d);
}

/** Open with the arms' names of lib; *d is to be closed also after a failure. */
static inline int desi_rows_open(desi_rows *d, const char *path, const mill_library *lib)
{
  static const mill_format *const desi = &mill_format_desi;
  memset(d, 0, sizeof *d);
  mill_config_default(&d->config);
  d->config.select.fiberstatus_allowed = UINT64_MAX;
  MILL_CHECK(MILL_ALLOC(1, &d->lib));
  d->lib->n_arm = lib->n_arm;
  for (int a = 0; a < lib->n_arm; a++) {
    memcpy(d->lib->arm[a].name, lib->arm[a].name, sizeof lib->arm[a].name);
    d->settings.arm_wanted[a] = 1;
  }
  d->settings.lib = d->lib;
  d->settings.config = &d->config;
  d->settings.limits.gzip_limit_mib = MILL_GZIP_LIMIT_MIB;
  strcpy(d->config.format, "desi");
  return mill_spectra_open_as(path, &d->settings, &desi, 1, &d->spectra);
}

static inline int desi_rows_read(desi_rows *d, const int64_t *fits_row, int n)
{
  return mill_spectra_read(d->spectra, fits_row, n, &d->batch);
}

/** Row i of those that were read; NULL: the file lacks the arm. */
static inline const mill_raw_segment *desi_rows_of(const desi_rows *d, int i, int arm)
{
  for (int k = 0; k < d->batch.n_segment; k++)
    if (d->batch.segment[k].exposure == i && d->batch.segment[k].arm == arm)
      return &d->batch.segment[k];
  return NULL;
}

#endif
