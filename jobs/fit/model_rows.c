/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/model_rows.h"

#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"

/* A segment of a star under way. */
typedef struct flight_segment {
  int exposure, arm, n_pix;
  double *wave_aa; /* [n_pix], owned; NULL where all models share the arm's wavelengths */
} flight_segment;

typedef struct mill_model_flight {
  int64_t row, model_row;
  int n_segment;
  flight_segment *segment; /* [n_segment], owned */
} flight;

static void clear_flight(flight *f)
{
  for (int i = 0; i < f->n_segment && f->segment; i++)
    mill_free(f->segment[i].wave_aa);
  mill_free(f->segment);
  memset(f, 0, sizeof *f);
}

int mill_model_rows_open(mill_model_rows *models, const mill_library *lib,
                         const mill_inputs *inputs, mill_result_file *result)
{
  *models = (mill_model_rows){.lib = lib, .inputs = inputs, .result = result};
  for (int a = 0; a < MILL_MAX_ARM; a++)
    models->n_pix = inputs->n_pix[a] > models->n_pix ? inputs->n_pix[a] : models->n_pix;
  MILL_CHECK(MILL_ALLOC(models->n_pix, &models->flux));
  return MILL_ALLOC(models->n_pix, &models->wave);
}

int mill_model_rows_remember(mill_model_rows *models, const mill_star *star, int64_t model_row)
{
  int err = MILL_OK;
  flight f = {.row = star->row, .model_row = model_row};
  MILL_TRY(MILL_GROW(&models->flight, &models->n_room, models->n_flight + 1));
  MILL_TRY(MILL_ALLOC(star->n_segment, &f.segment));
  for (; f.n_segment < star->n_segment; f.n_segment++) {
    const mill_raw_segment *from = &star->segment[f.n_segment];
    flight_segment *to = &f.segment[f.n_segment];
    *to = (flight_segment){.exposure = from->exposure, .arm = from->arm, .n_pix = from->n_pix};
    if (models->inputs->wave_aa[from->arm])
      continue;
    MILL_TRY(MILL_ALLOC(from->n_pix, &to->wave_aa));
    memcpy(to->wave_aa, from->wave_aa, (size_t)from->n_pix * sizeof(double));
  }
  models->flight[models->n_flight++] = f;
  memset(&f, 0, sizeof f);
done:
  clear_flight(&f);
  return err;
}

/* The row of the file for the arm and exposure of segment i: their spectra one after the other.
 * Gives the first segment after them. */
static int join_spectra(const mill_model_rows *models, const flight *f, int i,
                        const float *const *model, int *end)
{
  int n = 0;
  const flight_segment *first = &f->segment[i];
  const int n_row = models->inputs->n_pix[first->arm];
  for (; i < f->n_segment && f->segment[i].exposure == first->exposure &&
         f->segment[i].arm == first->arm;
       i++) {
    const flight_segment *s = &f->segment[i];
    if (n + s->n_pix > n_row)
      return MILL_ERROR(MILL_ERR_INTERNAL, "a model of row %lld has more than %d pixels in arm %s",
                        (long long)f->row, n_row, models->lib->arm[s->arm].name);
    memcpy(models->flux + n, model[i], (size_t)s->n_pix * sizeof(float));
    if (s->wave_aa)
      memcpy(models->wave + n, s->wave_aa, (size_t)s->n_pix * sizeof(double));
    n += s->n_pix;
  }
  for (; n < n_row; n++) {
    models->flux[n] = NAN;
    models->wave[n] = NAN;
  }
  *end = i;
  return MILL_OK;
}

int mill_model_rows_put(mill_model_rows *models, int64_t row, const float *const *model)
{
  int err = MILL_OK;
  int64_t at = 0;
  flight f = {0};
  while (at < models->n_flight && models->flight[at].row != row)
    at++;
  if (at == models->n_flight)
    MILL_FAIL(MILL_ERR_INTERNAL, "row %lld was finished but never taken", (long long)row);
  f = models->flight[at];
  models->flight[at] = models->flight[--models->n_flight];
  for (int i = 0, end = 0; model && i < f.n_segment; i = end) {
    const flight_segment *first = &f.segment[i];
    MILL_TRY(join_spectra(models, &f, i, model, &end));
    MILL_TRY(mill_result_put_model(models->result, first->arm, f.model_row + first->exposure,
                                   models->flux, first->wave_aa ? models->wave : NULL,
                                   models->inputs->n_pix[first->arm]));
  }
done:
  clear_flight(&f);
  return err;
}

void mill_model_rows_clear(mill_model_rows *models)
{
  for (int64_t i = 0; i < models->n_flight; i++)
    clear_flight(&models->flight[i]);
  MILL_FREE(models->flight, models->flux, models->wave);
  memset(models, 0, sizeof *models);
}
