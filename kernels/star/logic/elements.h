/* SPDX-License-Identifier: BSD-3-Clause */
/** Set the flags of labels that are elements, after the row is filled in. */
#pragma once

#include "kernels/star/logic/ask.h"

/** Flag POOR_LINES is set if the chi-square per pixel in an element's lines is above MISFIT, and
 *  above 1 by ERRORS standard deviations.  The flux's errors are first multiplied by err_scale. */
#define MILL_LINES_MISFIT 1.5
#define MILL_LINES_ERRORS 5.0

/** Is element l's error missing or above element_max_err, or would the error without the prior
 *  exceed the prior's sigma?  Variance without the prior: 1 / (1 / var - 1 / prior) + floor. */
MILL_HD static inline int mill_element_is_weak(const mill_model *m, const mill_slot *slot, int l)
{
  const mill_fit_result *r = &slot->result;
  const double sigma = mill_prior_sigma(m, slot, MILL_PAR_LABEL0 + l), e = r->label_err_formal[l];
  const double floor = mill_label_floor(m, l) * mill_label_floor(m, l);
  const double prior = sigma * sigma, var = e * e - floor;
  return !(e > 0.0 && r->label_err[l] <= m->set.element_max_err) ||
         (sigma > 0.0 && var * prior > (prior - floor) * (prior - var));
}

/** Is label l within MILL_HULL_EDGE of a facet that bounds it, or beyond? */
MILL_HD static inline int mill_label_at_edge(const mill_model *m, int l, const double *mapped)
{
  for (int h = 0; h < m->n_hull; h++)
    for (int f = 0; f < m->hull[h].n_facet; f++) {
      const mill_hull *hull = &m->hull[h];
      const double *normal = hull->facet + (size_t)f * (size_t)(hull->n_label + 1);
      for (int i = 0; i < hull->n_label; i++)
        if (hull->label[i] == l && normal[i] != 0.0 &&
            mill_facet_value(hull, f, mapped) > -MILL_HULL_EDGE)
          return 1;
    }
  return 0;
}

/** Is the misfit in element l's lines above what noise explains?  Not if these have no pixels. */
MILL_HD static inline int mill_lines_are_poor(const mill_model *m, const mill_slot *slot, int l)
{
  double sum[MILL_N_LINE_SUM] = {0.0};
  for (int i = 0; i < slot->n_segment; i++)
    for (int k = 0; k < MILL_N_LINE_SUM && mill_is_asked(slot, i); k++)
      sum[k] += mill_answer_of(m, slot, i)[MILL_ANSWER_TANGENTS + MILL_N_LINE_SUM * l + k];
  const double noise = slot->result.err_scale * slot->result.err_scale;
  const double n = sum[MILL_LINE_WEIGHT], error = sqrt(2.0 * sum[MILL_LINE_SQUARE]);
  return !(sum[MILL_LINE_CHISQ] <=
           noise * fmax(MILL_LINES_MISFIT * n, n + MILL_LINES_ERRORS * error));
}

/** Set the elements' flags; a fit of two stars does not set POOR_LINES. */
MILL_HD_CALLED static inline void mill_elements_flag(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  double mapped[MILL_MAX_LABEL];
  mill_map_labels(m, slot->best.end, mapped);
  for (int l = 0; l < m->n_label; l++) {
    r->label_flag[l] = 0;
    if (!m->label[l].is_element)
      continue;
    if (mill_element_is_weak(m, slot, l))
      r->label_flag[l] |= MILL_ELEMENT_WEAK;
    if (mill_label_at_edge(m, l, mapped))
      r->label_flag[l] |= MILL_ELEMENT_EDGE;
    if (!r->pair && mill_lines_are_poor(m, slot, l))
      r->label_flag[l] |= MILL_ELEMENT_LINES;
  }
}

/** Weigh a single star's residuals by each element's lines, and set the elements' flags. */
MILL_RESUMABLE(mill_elements_run)
{
  MILL_BEGIN;
  mill_go_to_best(m, slot);
  slot->weigh_lines = 1;
  mill_ask_point(m, slot);
  MILL_WAIT(MILL_REQ_TANGENTS);
  mill_answered(m, slot);
  slot->weigh_lines = 0;
  mill_elements_flag(m, slot);
  MILL_END;
}
