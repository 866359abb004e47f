/* SPDX-License-Identifier: BSD-3-Clause */
/** Warnings about rows that cannot be fitted, each once per file and arm. */
#ifndef MILL_COMPLAINTS_H
#define MILL_COMPLAINTS_H

#include "io/stars/inputs.h"
#include "kernels/data/library.h"
#include "kernels/data/result.h"

/** Arms of a row that cannot be fitted, by reason; a bit for each arm. */
typedef struct mill_left_out {
  unsigned no_lsf, outside, odd_lsf, shifted;
  int beyond;               /**< a channel lies beyond all arms: */
  double first_aa, last_aa; /**< its range, of the last such one */
  /** where no spectrograph has such a sigma: it, its wavelength and the width of pixels */
  double sigma_aa, sigma_wave_aa, pixel_aa;
  double shift_pix; /**< by which a matrix moves light, of the last such arm */
  int i_file;       /**< of the catalog, of the last of them */
  char reason[512]; /**< why outside, of the last such arm */
} mill_left_out;

typedef struct mill_complaints {
  const mill_config *config;
  const mill_library *lib;
  const mill_inputs *inputs;
  int i_file; /**< file of the warnings so far; -1: none yet */
  unsigned told_no_lsf, told_outside, told_odd_lsf, told_shifted;
  int told_beyond;
} mill_complaints;

/** Warn about a row's arms, unless this file had the same warning. */
void mill_complain(mill_complaints *complaints, const mill_left_out *left);

/** Name the spectrum behind a NaN or infinity in a row. */
void mill_complain_nonfinite(const mill_inputs *inputs, const mill_fit_result *result);

#endif
