/* SPDX-License-Identifier: BSD-3-Clause */
/** Doppler shift, relativistic, as rvspecfit has it. */
#pragma once

#include "kernels/base/common.h"

/** ln(rest wavelength / observed wavelength) of a source receding at vel_km_s:
 *  the template is evaluated at wave_obs * sqrt((1 - beta) / (1 + beta)).  |vel_km_s| < c. */
MILL_HD static inline double mill_doppler_ln(double vel_km_s)
{
  return -atanh(vel_km_s / MILL_C_KM_S);
}

/** d mill_doppler_ln / d(velocity), per km/s. */
MILL_HD static inline double mill_doppler_ln_slope(double vel_km_s)
{
  const double beta = vel_km_s / MILL_C_KM_S;
  return -1.0 / (MILL_C_KM_S * (1.0 - beta * beta));
}
