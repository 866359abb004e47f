/* SPDX-License-Identifier: BSD-3-Clause */
/** Warnings about arms that cannot be fitted or look wrong, each once per file and arm. */
#pragma once

#include "io/stars/inputs.h"
#include "kernels/data/library.h"
#include "kernels/data/result.h"

/** Why an arm of a row is left out of the fit, or is suspect. */
enum mill_complaint {
  MILL_NO_LSF,  /**< left out: no line-spread function, and the library needs one */
  MILL_OUTSIDE, /**< left out: outside the library's wavelengths */
  MILL_BEYOND,  /**< left out: a channel outside all arms (always bit 0) */
  MILL_ODD_LSF, /**< suspect: implausible sigma for a spectrograph */
  MILL_SHIFTED, /**< suspect: the resolution matrix moves light */
  MILL_N_COMPLAINT
};
/** The arms of a row that are left out or suspect, by reason. */
typedef struct mill_left_out {
  unsigned arms[MILL_N_COMPLAINT]; /**< a bit for each arm */
  int i_file;                      /**< index of the row's file */
  /* details of the last arm with a reason: */
  double first_aa, last_aa; /**< BEYOND: the channel's wavelength range */
  /** ODD_LSF: sigma, wavelength where it is measured, pixel width there */
  double sigma_aa, sigma_wave_aa, pixel_aa;
  double shift_pix; /**< SHIFTED: shift of light by the matrix, pixels */
  char reason[512]; /**< OUTSIDE: message of the pipeline */
} mill_left_out;

typedef struct mill_complaints {
  const mill_config *config;
  const mill_library *lib;
  const mill_inputs *inputs;
  int i_file;                      /**< file of the latest warning; -1: none yet */
  unsigned told[MILL_N_COMPLAINT]; /**< arms of that file already warned about, a bit for each */
} mill_complaints;

/** Warn about a row's arms, unless this file and arm had the same warning before. */
void mill_complain(mill_complaints *complaints, const mill_left_out *left);

/** Warn of a NaN or infinity in a row's fit, and name the row and its file. */
void mill_complain_nonfinite(const mill_inputs *inputs, const mill_fit_result *result);
