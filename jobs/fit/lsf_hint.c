/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/lsf_hint.h"

#include <stdio.h>

#include "kernels/base/error.h"
#include "kernels/star/blocks/prepare.h"
#include "src/stars/line_spread.h"
#include "src/system/log.h"
#include "src/config/arms.h"

/* Segments of a rank, for a look takes as long as filling a slot. */
enum { MOST_SEEN = 1000 };

void mill_narrow_note(mill_narrow_widths *widths, const mill_library *lib,
                      const mill_raw_segment *segment)
{
  const double most = MILL_LSF_NARROW * lib->arm[segment->arm].template_sigma_aa;
  if (!(most > 0.0) || widths->n_seen == MOST_SEEN)
    return;
  widths->n_seen++;
  const double sigma = mill_lsf_width(segment);
  if (!(sigma < most))
    return;
  widths->n[segment->arm]++;
  widths->sum_aa[segment->arm] += sigma;
}

void mill_width_note(mill_width_use *use, const mill_config *config, const mill_library *lib,
                     const mill_raw_segment *segment)
{
  const mill_arm_choice choice = mill_config_arm(config, lib->arm[segment->arm].name);
  if (!mill_arm_has_width(&choice))
    return;
  const int is_used = segment->sigma_aa && !segment->has_own_lsf;
  use->n_used += is_used;
  use->n_unused += !is_used;
}

int mill_width_hint(const mill_mpi *mpi, const mill_config *config, const mill_width_use *mine)
{
  const int64_t n_mine[2] = {mine->n_used, mine->n_unused};
  int64_t n[2] = {0};
  MILL_CHECK_MPI(MPI_Reduce(n_mine, n, 2, MPI_INT64_T, MPI_SUM, 0, mpi->comm));
  if (mpi->rank == 0 && n[0] == 0 && n[1] > 0)
    mill_log_warning("resolving_power and fwhm are not used: %s",
                     config->lsf == MILL_LSF_OFF
                         ? "lsf is off"
                         : "the spectra have line-spread functions of their "
                           "own, or the templates their resolution (lsf: "
                           "resolving_power goes before the former)");
  return MILL_OK;
}

int mill_narrow_hint(const mill_mpi *mpi, const mill_library *lib, const mill_narrow_widths *mine,
                     int64_t n_narrow, int64_t n_fitted)
{
  mill_narrow_widths all = {.n_seen = 0};
  char arms[MILL_MAX_ARM * (MILL_MAX_NAME + 64)] = "";
  size_t n = 0;
  MILL_CHECK_MPI(MPI_Reduce(mine->n, all.n, MILL_MAX_ARM, MPI_DOUBLE, MPI_SUM, 0, mpi->comm));
  MILL_CHECK_MPI(
      MPI_Reduce(mine->sum_aa, all.sum_aa, MILL_MAX_ARM, MPI_DOUBLE, MPI_SUM, 0, mpi->comm));
  if (mpi->rank != 0 || 2 * n_narrow <= n_fitted)
    return MILL_OK;
  for (int a = 0; a < lib->n_arm; a++)
    if (all.n[a] > 0)
      n += (size_t)snprintf(arms + n, sizeof arms - n, "%sarm %s: sigma %.3g A against %.3g A",
                            n > 0 ? "; " : "", lib->arm[a].name, lib->arm[a].template_sigma_aa,
                            all.sum_aa[a] / all.n[a]);
  if (n > 0)
    mill_log_warning("%lld of %lld fitted rows have LSF_NARROW: the templates are broader than the "
                     "line-spread function of the spectra (%s in its narrowest tenth): template "
                     "lines are too shallow; use a library of higher resolution",
                     (long long)n_narrow, (long long)n_fitted, arms);
  return MILL_OK;
}
