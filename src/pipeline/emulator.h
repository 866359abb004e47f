/* SPDX-License-Identifier: BSD-3-Clause */
/** Spectra from an arm's emulator on the host; all arithmetic in float64. */
#pragma once

#include "kernels/cpu/lanes.h"

/** Compute spectra of an arm at n sets of labels by its emulator.
 *
 *  label [n][n_label]     in
 *  flux [n_group][n_pix]  out  groups of MILL_LANE spectra; unused lanes: 0, or 1 if log_flux
 *
 *  n_thread OpenMP threads; the result does not depend on their number.  MILL_ERR_MEMORY. */
int mill_emulator_lanes(const mill_library *lib, int arm, int n, const double *label, int n_thread,
                        mill_lanes *flux);
