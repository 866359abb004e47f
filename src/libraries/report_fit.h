/* SPDX-License-Identifier: BSD-3-Clause */
/** Labels and velocity of left-out spectra, fitted by a library (of library_report.c). */
#ifndef MILL_REPORT_FIT_H
#define MILL_REPORT_FIT_H

#include "src/libraries/library_report.h"

/** One spectrum at one S/N: labels in their units, then velocity in km/s. */
typedef struct mill_report_fit {
  int good; /**< 1: both fits ended at finite labels with errors */
  double truth[MILL_MAX_LABEL + 1], found[MILL_MAX_LABEL + 1], sigma[MILL_MAX_LABEL + 1];
  double own_found[MILL_MAX_LABEL + 1]; /**< of the emulator's own spectrum with the same noise */
} mill_report_fit;

/** Fit spectra kept [n] of `in` at every S/N, out [MILL_REPORT_N_SN][n].  MILL_ERR_MEMORY. */
int mill_report_fits(const mill_library *lib, const mill_model_set *in, int n, const int *kept,
                     int n_thread, mill_report_fit *out);

#endif
