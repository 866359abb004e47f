/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/flights.h"

#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"

/* A segment of a star under way. */
typedef struct flight_segment {
  int exposure, arm, n_pix;
  double *wave_aa; /* [n_pix], owned; NULL where all models share the arm's wavelengths */
} flight_segment;

typedef struct mill_flight_star {
  int64_t row, first_exposure;
  int n_segment, n_exposure;
  flight_segment *segment; /* [n_segment], owned */
  int *epoch;              /* [n_exposure], owned; NULL: without epochs */
} flight;

static void clear_flight(flight *f)
{
  for (int i = 0; i < f->n_segment && f->segment; i++)
    mill_free(f->segment[i].wave_aa);
  MILL_FREE(f->segment, f->epoch);
  memset(f, 0, sizeof *f);
}

int mill_flights_open(mill_flights *flights, const mill_library *lib, const mill_inputs *inputs,
                      mill_result_file *result, int with_models, int with_epochs)
{
  *flights = (mill_flights){.lib = lib,
                            .inputs = inputs,
                            .result = result,
                            .with_models = with_models,
                            .with_epochs = with_epochs};
  for (int a = 0; a < MILL_MAX_ARM && with_models; a++)
    flights->n_pix = inputs->n_pix[a] > flights->n_pix ? inputs->n_pix[a] : flights->n_pix;
  MILL_CHECK(MILL_ALLOC(flights->n_pix, &flights->flux));
  return MILL_ALLOC(flights->n_pix, &flights->wave);
}

static int remember_segments(const mill_flights *flights, const mill_star *star, flight *f)
{
  MILL_CHECK(MILL_ALLOC(star->n_segment, &f->segment));
  for (; f->n_segment < star->n_segment; f->n_segment++) {
    const mill_raw_segment *from = &star->segment[f->n_segment];
    flight_segment *to = &f->segment[f->n_segment];
    *to = (flight_segment){.exposure = from->exposure, .arm = from->arm, .n_pix = from->n_pix};
    if (flights->inputs->wave_aa[from->arm])
      continue;
    MILL_CHECK(MILL_ALLOC(from->n_pix, &to->wave_aa));
    memcpy(to->wave_aa, from->wave_aa, (size_t)from->n_pix * sizeof(double));
  }
  return MILL_OK;
}

int mill_flights_remember(mill_flights *flights, const mill_star *star, int64_t first_exposure,
                          int n_exposure, const int *epoch)
{
  int err = MILL_OK;
  flight f = {.row = star->row, .first_exposure = first_exposure, .n_exposure = n_exposure};
  MILL_TRY(MILL_GROW(&flights->flight, &flights->n_room, flights->n_flight + 1));
  if (flights->with_models)
    MILL_TRY(remember_segments(flights, star, &f));
  if (star->n_epoch > 0) {
    MILL_TRY(MILL_ALLOC(n_exposure, &f.epoch));
    memcpy(f.epoch, epoch, (size_t)n_exposure * sizeof *epoch);
  }
  flights->flight[flights->n_flight++] = f;
  memset(&f, 0, sizeof f);
done:
  clear_flight(&f);
  return err;
}

/* The row of the file for the arm and exposure of segment i: their spectra one after the other.
 * Gives the first segment after them. */
static int join_spectra(const mill_flights *flights, const flight *f, int i,
                        const float *const *model, int *end)
{
  int n = 0;
  const flight_segment *first = &f->segment[i];
  const int n_row = flights->inputs->n_pix[first->arm];
  for (; i < f->n_segment && f->segment[i].exposure == first->exposure &&
         f->segment[i].arm == first->arm;
       i++) {
    const flight_segment *s = &f->segment[i];
    if (n + s->n_pix > n_row)
      return MILL_ERROR(MILL_ERR_INTERNAL, "a model of row %lld has more than %d pixels in arm %s",
                        (long long)f->row, n_row, flights->lib->arm[s->arm].name);
    memcpy(flights->flux + n, model[i], (size_t)s->n_pix * sizeof(float));
    if (s->wave_aa)
      memcpy(flights->wave + n, s->wave_aa, (size_t)s->n_pix * sizeof(double));
    n += s->n_pix;
  }
  for (; n < n_row; n++) {
    flights->flux[n] = NAN;
    flights->wave[n] = NAN;
  }
  *end = i;
  return MILL_OK;
}

/* The rows of all exposures of a fitted star. */
static int put_epochs(mill_flights *flights, const flight *f, const mill_fit_result *row,
                      uint32_t *epoch_crc)
{
  const mill_epoch_result none = {NAN, NAN, NAN, NAN, -1e9, -1, MILL_EPOCH_NO_DATA};
  MILL_CHECK(MILL_GROW(&flights->epoch, &flights->n_epoch, f->n_exposure));
  for (int i = 0; i < f->n_exposure; i++)
    flights->epoch[i] = f->epoch[i] < 0 ? none : row->epoch[f->epoch[i]];
  return mill_result_put_epochs(flights->result, f->first_exposure, flights->epoch, f->n_exposure,
                                epoch_crc);
}

int mill_flights_put(mill_flights *flights, const mill_fit_result *row, const float *const *model,
                     uint32_t *epoch_crc)
{
  int err = MILL_OK;
  int64_t at = 0;
  flight f = {0};
  while (at < flights->n_flight && flights->flight[at].row != row->row)
    at++;
  if (at == flights->n_flight)
    MILL_FAIL(MILL_ERR_INTERNAL, "row %lld was finished but never taken", (long long)row->row);
  f = flights->flight[at];
  flights->flight[at] = flights->flight[--flights->n_flight];
  for (int i = 0, end = 0; model && flights->with_models && i < f.n_segment; i = end) {
    const flight_segment *first = &f.segment[i];
    MILL_TRY(join_spectra(flights, &f, i, model, &end));
    MILL_TRY(mill_result_put_model(flights->result, first->arm, f.first_exposure + first->exposure,
                                   flights->flux, first->wave_aa ? flights->wave : NULL,
                                   flights->inputs->n_pix[first->arm]));
  }
  if (row->epoch)
    MILL_TRY(put_epochs(flights, &f, row, epoch_crc));
done:
  clear_flight(&f);
  return err;
}

void mill_flights_clear(mill_flights *flights)
{
  for (int64_t i = 0; i < flights->n_flight; i++)
    clear_flight(&flights->flight[i]);
  MILL_FREE(flights->flight, flights->flux, flights->wave, flights->epoch);
  memset(flights, 0, sizeof *flights);
}
