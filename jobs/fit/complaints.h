/* SPDX-License-Identifier: BSD-3-Clause */
/** Warnings about rows that cannot be fitted, each once per file and arm. */
#ifndef MILL_COMPLAINTS_H
#define MILL_COMPLAINTS_H

#include "io/stars/inputs.h"
#include "kernels/data/library.h"
#include "kernels/data/result.h"

/** Why arms of a row cannot be fitted, or are suspect. */
enum mill_complaint {
  MILL_NO_LSF,  /**< no line-spread function, which the library needs */
  MILL_OUTSIDE, /**< outside the library */
  MILL_BEYOND,  /**< a channel lies beyond all arms: bit 0 */
  MILL_ODD_LSF, /**< no spectrograph has such a sigma */
  MILL_SHIFTED, /**< the resolution matrix moves light */
  MILL_N_COMPLAINT
};
/** Such arms of a row. */
typedef struct mill_left_out {
  unsigned arms[MILL_N_COMPLAINT]; /**< a bit for each arm */
  int i_file;                      /**< of the catalog, of the last of them */
  /* of the last arm of a kind */
  double first_aa, last_aa;                 /**< BEYOND: the channel's range */
  double sigma_aa, sigma_wave_aa, pixel_aa; /**< ODD_LSF: where, and the width of pixels */
  double shift_pix;                         /**< SHIFTED: by how much */
  char reason[512];                         /**< OUTSIDE: why */
} mill_left_out;

typedef struct mill_complaints {
  const mill_config *config;
  const mill_library *lib;
  const mill_inputs *inputs;
  int i_file;                      /**< file of the warnings so far; -1: none yet */
  unsigned told[MILL_N_COMPLAINT]; /**< of which arms */
} mill_complaints;

/** Warn about a row's arms, unless this file had the same warning. */
void mill_complain(mill_complaints *complaints, const mill_left_out *left);

/** Name the spectrum behind a NaN or infinity in a row. */
void mill_complain_nonfinite(const mill_inputs *inputs, const mill_fit_result *result);

#endif
