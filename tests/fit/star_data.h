/** Stars of a DESI file for tests: reads rows and hands them out as segments. */
#ifndef STAR_DATA_H
#define STAR_DATA_H

#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/pipeline/pipeline.h"
#include "tests/io/surveys/desi_rows.h"

typedef struct star_data {
  desi_rows rows;
  int n_row, n_arm;
  int n_pix[MILL_MAX_ARM];
  const double *wave_aa[MILL_MAX_ARM];
  int waveset[MILL_MAX_ARM];
} star_data;

static void star_data_close(star_data *d)
{
  desi_rows_close(&d->rows);
}

/** All rows [0, n_row) of every arm that the file has. */
static int star_data_open(const char *path, const mill_library *lib, int n_row, star_data *d)
{
  int err = MILL_OK;
  int64_t *row = NULL;
  memset(d, 0, sizeof *d);
  MILL_TRY(desi_rows_open(&d->rows, path, lib));
  MILL_TRY(MILL_ALLOC(n_row, &row));
  for (int i = 0; i < n_row; i++)
    row[i] = i;
  MILL_TRY(desi_rows_read(&d->rows, row, n_row));
  d->n_row = n_row;
  d->n_arm = lib->n_arm;
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_raw_segment *s = desi_rows_of(&d->rows, 0, a);
    d->n_pix[a] = s ? s->n_pix : 0;
    d->wave_aa[a] = s ? s->wave_aa : NULL;
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
  star->row = i;
  star->n_segment = 0;
  star->segment = segment;
  for (int a = 0; a < d->n_arm; a++) {
    const mill_raw_segment *s = desi_rows_of(&d->rows, i, a);
    if (!s)
      continue;
    segment[star->n_segment] = *s;
    segment[star->n_segment].waveset = d->waveset[a];
    segment[star->n_segment++].exposure = 0;
  }
}

#endif
