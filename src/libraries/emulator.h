/* SPDX-License-Identifier: BSD-3-Clause */
/** Spectra from an arm's emulator on the host, float64 throughout with the weights cast up. */
#ifndef MILL_EMULATOR_H
#define MILL_EMULATOR_H

#include "kernels/data/library.h"

/** Spectra side by side, in registers of four. */
enum { MILL_EMULATOR_LANE = 8 };
typedef double mill_four __attribute__((vector_size(32)));
typedef struct mill_lanes {
  mill_four v[MILL_EMULATOR_LANE / 4];
} mill_lanes;

/** The version of a function for this processor, of those that a file has made with LANES_NAME:
 *  name_any, and name_avx2 with wider registers but no fused products, which gives the same bits.
 */
#if defined(__x86_64__)
#define MILL_LANES_BEST(name) (__builtin_cpu_supports("avx2") ? name##_avx2 : name##_any)
#else
#define MILL_LANES_BEST(name) name##_any
#endif

/** Spectra of an arm at n sets of labels.
 *
 *  label [n][n_label]     in
 *  flux [n_group][n_pix]  out  groups of MILL_EMULATOR_LANE spectra; 0 or 1 beyond the n-th
 *
 *  n_thread OpenMP threads; the result does not depend on their number.  MILL_ERR_MEMORY. */
int mill_emulator_lanes(const mill_library *lib, int arm, int n, const double *label, int n_thread,
                        mill_lanes *flux);

#endif
