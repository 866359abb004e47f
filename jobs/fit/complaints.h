/* SPDX-License-Identifier: BSD-3-Clause */
/** Warnings about arms that cannot be fitted or look wrong; each warning once per file and arm. */
#ifndef MILL_COMPLAINTS_H
#define MILL_COMPLAINTS_H

#include "io/stars/inputs.h"
#include "kernels/data/library.h"
#include "kernels/data/result.h"

/** Why an arm of a row is left out, or is suspect. */
enum mill_complaint {
  MILL_NO_LSF,  /**< left out: no line-spread function, and the library needs one */
  MILL_OUTSIDE, /**< left out: outside the library's wavelengths */
  MILL_BEYOND,  /**< left out: a channel outside all arms (bit 0) */
  MILL_ODD_LSF, /**< suspect: no spectrograph has such a sigma */
  MILL_SHIFTED, /**< suspect: the resolution matrix moves light */
  MILL_N_COMPLAINT
};
/** The arms of a row that are left out or suspect. */
typedef struct mill_left_out {
  unsigned arms[MILL_N_COMPLAINT]; /**< a bit for each arm */
  int i_file;                      /**< index of their file */
  /* of the last arm of a kind */
  double first_aa, last_aa;                 /**< BEYOND: the channel's range */
  double sigma_aa, sigma_wave_aa, pixel_aa; /**< ODD_LSF: sigma, its wavelength, pixel width */
  double shift_pix;                         /**< SHIFTED: shift in pixels */
  char reason[512];                         /**< OUTSIDE: why */
} mill_left_out;

typedef struct mill_complaints {
  const mill_config *config;
  const mill_library *lib;
  const mill_inputs *inputs;
  int i_file;                      /**< file of the latest warning; -1: none yet */
  unsigned told[MILL_N_COMPLAINT]; /**< a bit for each arm already warned about, in that file */
} mill_complaints;

/** Warn about a row's arms that this file had no such warning for. */
void mill_complain(mill_complaints *complaints, const mill_left_out *left);

/** Warn of a NaN or infinity in a row, and name its file and row. */
void mill_complain_nonfinite(const mill_inputs *inputs, const mill_fit_result *result);

#endif
