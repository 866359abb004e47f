/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/data/result.h"

#include <string.h>

void mill_fit_result_clear_labels(mill_fit_result *result, int n_label)
{
  result->n_label = n_label;
  for (int l = 0; l < n_label; l++) {
    result->label[l] = result->label_err[l] = result->label_err_formal[l] = NAN;
    result->pair_label[l] = result->pair_label_err[l] = NAN;
    result->label_flag[l] = MILL_ELEMENT_NONE;
  }
}

void mill_fit_result_init(mill_fit_result *result, const mill_library *lib, int64_t row, int status)
{
  const int n_par = lib->n_label + 2;
  memset(result, 0, sizeof *result);
  result->row = row;
  result->status = status;
  mill_fit_result_clear_labels(result, lib->n_label);
  if (status != MILL_STATUS_NOT_DONE && status != MILL_STATUS_FITTED)
    result->warn = MILL_WARN_BAD_SPECTRUM;
  result->vrad_km_s = result->vrad_err_km_s = result->vrad_err_formal_km_s = NAN;
  result->vrad_skew = result->vrad_kurt = result->vrad_guess_km_s = NAN;
  result->vsini_km_s = result->vsini_err_km_s = result->vsini_err_formal_km_s = NAN;
  for (int i = 0; i < n_par * (n_par + 1) / 2; i++)
    result->covar[i] = NAN;
  result->vrad_arms_pval = result->vrad_chi2 = result->vrad_pval = result->vrad_range_km_s = NAN;
  result->pair_peak = result->pair_gain = NAN;
  result->pair_vrad_km_s = result->pair_vrad_err_km_s = NAN;
  result->pair_vsini_km_s = result->pair_vsini_err_km_s = NAN;
  result->m2ll = result->excess = result->err_scale = result->hull_dist = NAN;
  result->guess_chisq = result->guess_tie = INFINITY; /* no guess */
  result->chisq_tot = result->chisq_c_tot = result->rchisq_tot = NAN;
  result->chisq_data = result->chisq_c_data = result->chisq_noise = NAN;
  for (int a = 0; a < lib->n_arm; a++) {
    result->chisq[a] = result->chisq_c[a] = result->rchisq[a] = result->stiff[a] = NAN;
    result->vrad_arm_km_s[a] = result->vrad_arm_err_km_s[a] = NAN;
    result->vrad_offset_km_s[a] = result->vrad_offset_err_km_s[a] = NAN;
    result->flux_ratio[a] = result->flux_ratio_err[a] = NAN;
    result->sn[a] = -1e9; /* missing, as in rvspecfit */
  }
}
