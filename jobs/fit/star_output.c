/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/star_output.h"

#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"

int mill_star_output_open(const mill_library *lib, const mill_inputs *inputs,
                          mill_result_file *result, mill_star_output *output)
{
  *output = (mill_star_output){.lib = lib, .inputs = inputs, .result = result};
  for (int a = 0; a < MILL_MAX_ARM; a++)
    output->n_pix = inputs->n_pix[a] > output->n_pix ? inputs->n_pix[a] : output->n_pix;
  MILL_CHECK(MILL_ALLOC(output->n_pix, &output->flux));
  return MILL_ALLOC(output->n_pix, &output->wave);
}

/* The row of the models' file for the arm and exposure of segment i: their spectra one after the
 * other.  *end: the first segment after them. */
static int put_model(mill_star_output *o, const mill_star *star, int i, int *end)
{
  int n = 0;
  const mill_raw_segment *first = &star->segment[i];
  const int n_row = o->inputs->n_pix[first->arm], has_own = !o->inputs->wave_aa[first->arm];
  for (; i < star->n_segment && star->segment[i].exposure == first->exposure &&
         star->segment[i].arm == first->arm;
       i++) {
    const size_t n_pix = (size_t)star->segment[i].n_pix;
    if (n + star->segment[i].n_pix > n_row)
      return MILL_ERROR(MILL_ERR_INTERNAL, "a model of row %lld has more than %d pixels in arm %s",
                        (long long)star->row, n_row, o->lib->arm[first->arm].name);
    memcpy(o->flux + n, star->model[i].flux, n_pix * sizeof *o->flux);
    if (has_own)
      memcpy(o->wave + n, star->model[i].wave_aa, n_pix * sizeof *o->wave);
    n += star->segment[i].n_pix;
  }
  for (; n < n_row; n++) {
    o->flux[n] = NAN;
    o->wave[n] = NAN;
  }
  *end = i;
  return mill_result_put_model(o->result, first->arm, star->first_exposure + first->exposure,
                               o->flux, has_own ? o->wave : NULL, n_row);
}

/* The rows of all exposures of a fitted star. */
static int put_epochs(mill_star_output *o, const mill_star *star)
{
  MILL_CHECK(MILL_GROW(&o->epoch, &o->epoch_room, star->n_exposure));
  for (int i = 0; i < star->n_exposure; i++)
    o->epoch[i] = (mill_epoch_result){NAN, NAN, NAN, NAN, -1e9, -1, MILL_EPOCH_NO_DATA};
  for (int i = 0; i < star->n_segment; i++)
    o->epoch[star->segment[i].exposure] = star->result->epoch[star->segment[i].epoch];
  return mill_result_put_epochs(o->result, star->first_exposure, o->epoch, star->n_exposure,
                                &star->result->epoch_crc);
}

int mill_star_output_put(mill_star_output *o, mill_star *star)
{
  /* the models go first: a row marked done must be complete */
  for (int i = 0; star->model && i < star->n_segment;)
    MILL_CHECK(put_model(o, star, i, &i));
  if (star->result->epoch)
    MILL_CHECK(put_epochs(o, star));
  return mill_result_put(o->result, star->result);
}

void mill_star_output_clear(mill_star_output *o)
{
  MILL_FREE(o->flux, o->wave, o->epoch);
  memset(o, 0, sizeof *o);
}
