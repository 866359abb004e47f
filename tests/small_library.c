/* SPDX-License-Identifier: BSD-3-Clause */
/* small_library SHIPPED.h5 SMALL.h5: a library for tests, quick to read and to fit with.
 *
 * The shipped library cut into DESI's arms: every second pixel, a sixth of the templates of the
 * initial guess, no model error, and wavelengths stretched by 2 %, so that it covers DESI's pixels
 * at all velocities.  Lines are then at other places; but the tests' stars are simulated from this
 * library. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/library_make.h"
#include "src/mock/mock_survey.h"

enum { THIN = 2, THIN_GUESS = 6 };
#define FIRST_AA 3560.0
#define LAST_AA  9900.0

static int stretch(mill_arm *arm)
{
  arm->ln_wave0 = log(FIRST_AA);
  arm->ln_step = log(LAST_AA / FIRST_AA) / (arm->n_pix - 1);
  mill_free(arm->wave_aa);
  arm->wave_aa = NULL;
  return mill_arm_make_waves(arm);
}

static int thin_arm(mill_arm *arm)
{
  const int last = arm->emulator.n_layer - 1, n = (arm->n_pix + THIN - 1) / THIN;
  const size_t n_in = (size_t)arm->emulator.n_in[last];
  for (int i = 0; i < n; i++) {
    memcpy(arm->emulator.weight[last] + (size_t)i * n_in,
           arm->emulator.weight[last] + (size_t)(i * THIN) * n_in, n_in * sizeof(float));
    arm->emulator.bias[last][i] = arm->emulator.bias[last][i * THIN];
  }
  arm->n_pix = arm->emulator.n_out[last] = n;
  arm->ln_step *= THIN;
  mill_model_error_clear(&arm->error);
  mill_free(arm->wave_aa);
  arm->wave_aa = NULL;
  return mill_arm_make_waves(arm);
}

int main(int argc, char **argv)
{
  int err = MILL_OK;
  mill_library *lib = NULL;
  if (argc != 3) {
    fprintf(stderr, "usage: small_library SHIPPED.h5 SMALL.h5\n");
    return 2;
  }
  MILL_TRY(MILL_ALLOC(1, &lib));
  MILL_TRY(mill_library_read(argv[1], lib));
  MILL_TRY(stretch(&lib->arm[0]));
  MILL_TRY(mill_mock_cut_arms(lib));
  for (int a = 0; a < lib->n_arm; a++)
    MILL_TRY(thin_arm(&lib->arm[a]));
  lib->n_guess /= THIN_GUESS;
  for (int i = 0; i < lib->n_guess; i++)
    memcpy(lib->guess_label + i * lib->n_label, lib->guess_label + i * THIN_GUESS * lib->n_label,
           (size_t)lib->n_label * sizeof *lib->guess_label);
  snprintf(lib->name, sizeof lib->name, "small library of the tests");
  MILL_TRY(mill_library_write(argv[2], lib, 1));
done:
  if (err != MILL_OK)
    fprintf(stderr, "small_library: %s\n", mill_error_message());
  mill_library_clear(lib);
  mill_free(lib);
  return err == MILL_OK ? 0 : 1;
}
