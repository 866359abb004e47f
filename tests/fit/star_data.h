/** Stars of a DESI file for tests: reads rows and hands them out as segments. */
#ifndef STAR_DATA_H
#define STAR_DATA_H

#include <string.h>

#include "io/surveys/desi.h"
#include "kernels/base/error.h"
#include "src/pipeline/pipeline.h"

typedef struct star_data {
  mill_desi_file *file;
  int n_row;
  int n_arm;
  int n_pix[MILL_MAX_ARM], n_diag[MILL_MAX_ARM];
  const double *wave_aa[MILL_MAX_ARM];
  mill_desi_block block[MILL_MAX_ARM];
  int waveset[MILL_MAX_ARM];
} star_data;

static void star_data_close(star_data *d)
{
  for (int a = 0; a < d->n_arm; a++) {
    mill_free(d->block[a].flux);
    mill_free(d->block[a].ivar);
    mill_free(d->block[a].mask);
    mill_free(d->block[a].resolution);
  }
  mill_desi_close(d->file);
  memset(d, 0, sizeof *d);
}

/** All rows [0, n_row) of every arm that the file has. */
static int star_data_open(const char *path, const mill_library *lib, int n_row, star_data *d)
{
  int err = MILL_OK;
  int64_t *row = NULL;
  const mill_open_limits limits = {4096.0, NULL};
  memset(d, 0, sizeof *d);
  MILL_TRY(mill_desi_open(path, lib, &limits, &d->file));
  MILL_TRY(MILL_ALLOC(n_row, &row));
  for (int i = 0; i < n_row; i++)
    row[i] = i;
  d->n_row = n_row;
  d->n_arm = lib->n_arm;
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_desi_arm *arm = mill_desi_arm_info(d->file, a);
    const size_t n = (size_t)n_row * (size_t)arm->n_pix;
    d->n_pix[a] = arm->n_pix;
    d->n_diag[a] = arm->n_diag;
    d->wave_aa[a] = arm->wave_aa;
    if (n == 0)
      continue;
    MILL_TRY(MILL_ALLOC(n, &d->block[a].flux));
    MILL_TRY(MILL_ALLOC(n, &d->block[a].ivar));
    if (arm->has_mask)
      MILL_TRY(MILL_ALLOC(n, &d->block[a].mask));
    if (arm->n_diag)
      MILL_TRY(MILL_ALLOC(n * (size_t)arm->n_diag, &d->block[a].resolution));
    MILL_TRY(mill_desi_read(d->file, a, row, n_row, &d->block[a]));
  }
done:
  mill_free(row);
  if (err)
    star_data_close(d);
  return err;
}

/** Register the wavelengths with a pipeline. */
static int star_data_register(star_data *d, mill_pipeline *p)
{
  int err = MILL_OK;
  for (int a = 0; a < d->n_arm; a++)
    if (d->n_pix[a])
      MILL_TRY(mill_pipeline_waveset(p, a, d->n_pix[a], d->wave_aa[a], &d->waveset[a]));
done:
  return err;
}

/** Row i as a star; segment [n_arm] is the caller's. */
static void star_data_star(const star_data *d, int i, mill_raw_segment *segment, mill_star *star)
{
  int n = 0;
  for (int a = 0; a < d->n_arm; a++) {
    const size_t np = (size_t)d->n_pix[a], at = (size_t)i * np;
    if (np == 0)
      continue;
    mill_raw_segment *s = &segment[n++];
    memset(s, 0, sizeof *s);
    s->arm = a;
    s->waveset = d->waveset[a];
    s->n_pix = d->n_pix[a];
    s->n_diag = d->n_diag[a];
    s->flux = d->block[a].flux + at;
    s->ivar = d->block[a].ivar + at;
    s->mask = d->block[a].mask ? d->block[a].mask + at : NULL;
    s->resolution =
        d->block[a].resolution ? d->block[a].resolution + at * (size_t)d->n_diag[a] : NULL;
  }
  star->row = i;
  star->n_segment = n;
  star->segment = segment;
}

#endif
