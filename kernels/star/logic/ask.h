/* SPDX-License-Identifier: BSD-3-Clause */
/** Ask the device for F (-2 ln L) of a star's segments, and sum their answers.
 *
 *  A point asks for F at slot->theta.  Curves ask for F at several velocities of the star, of each
 *  arm or of each epoch.  The sums run arm by arm, so that they do not depend on the device. */
#pragma once

#include "kernels/star/logic/parameters.h"
#include "kernels/star/resumable.h"

/** Begin a question of n_vel velocities per segment; no arm is asked yet. */
MILL_HD static inline void mill_ask_begin(mill_slot *slot, int n_vel)
{
  slot->n_vel = n_vel;
  slot->arms = slot->data_only = 0;
}

/** Set velocity k of a segment, km/s; NaN: it is not asked. */
MILL_HD static inline void mill_ask_velocity(mill_slot *slot, int i_segment, int k, double vel_km_s)
{
  mill_velocities_of(slot, i_segment)[k] = vel_km_s;
  if (vel_km_s == vel_km_s)
    slot->arms |= 1 << slot->segment[i_segment].arm;
}

/** Ask for F of all segments at slot->theta; with a leading arm, only of this arm's segments. */
MILL_HD_CALLED static inline void mill_ask_point(const mill_model *m, mill_slot *slot)
{
  mill_ask_begin(slot, 1);
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    const int is_asked = s->used && (slot->lead.arm == 0 || slot->lead.arm == 1 + s->arm);
    const double v = mill_velocity_of(m, slot, s, MILL_OF_STAR, slot->theta[MILL_PAR_VRAD]);
    mill_ask_velocity(slot, i, 0, is_asked ? v : (double)NAN);
  }
}

/** Sum the segments' F into slot->eval.f.  If tangents were asked for, also sum gradient and
 *  curvature: for one star into slot->eval, for two stars into slot->space. */
MILL_HD_CALLED static inline void mill_take_point(const mill_model *m, mill_slot *slot)
{
  mill_eval *e = &slot->eval;
  const int of_pair = slot->pair.is_fitted, n = m->n_par + (of_pair ? mill_pair_n(m) : 0);
  double *grad = of_pair ? slot->space.joint_grad : e->grad;
  double *hess = of_pair ? slot->space.joint : e->hess;
  const int has_tangents = slot->request == MILL_REQ_TANGENTS;
  e->f = 0.0;
  for (int j = 0; j < n && has_tangents; j++) {
    grad[j] = 0.0;
    for (int k = 0; k < n; k++)
      hess[j * n + k] = 0.0;
  }
  for (int a = 0; a < m->n_arm; a++) /* sum arm by arm, whatever the segments' order */
    for (int i = 0; i < slot->n_segment; i++) {
      const double *answer = mill_answer_of(m, slot, i), v = mill_velocities_of(slot, i)[0];
      if (slot->segment[i].arm != a || v != v) /* NaN: not asked */
        continue;
      e->f += answer[MILL_ANSWER_F];
      if (has_tangents)
        mill_map_add(m, &slot->segment[i], answer, n, grad, hess);
    }
}

/** Sum one of the answers to MILL_REQ_MODELS over the used segments of an arm (-1: of all arms). */
MILL_HD_CALLED static inline double mill_sum_models(const mill_model *m, const mill_slot *slot,
                                                    int arm, enum mill_answer_place place)
{
  double sum = 0.0;
  for (int a = 0; a < m->n_arm; a++)
    for (int i = 0; i < slot->n_segment; i++)
      if (slot->segment[i].arm == a && (arm < 0 || arm == a) && slot->segment[i].used)
        sum += mill_answer_of(m, slot, i)[place];
  return sum;
}

/** The curve that a segment's F is added to. */
MILL_HD static inline mill_curve *mill_curve_of(mill_slot *slot, enum mill_group group,
                                                const mill_segment *s)
{
  return group == MILL_OF_STAR   ? &slot->profile.curve
         : group == MILL_OF_ARMS ? &slot->arm[s->arm]
                                 : &slot->epoch[s->epoch].curve;
}

/** Velocity i of a curve, km/s. */
MILL_HD static inline double mill_curve_velocity(const mill_curve *c, int i)
{
  return c->centre + (i - c->n / 2) * c->step;
}

/** Ask for F at the velocities of each curve of a group, with slot->theta's other parameters.
 *  Beyond the velocity limits F is infinite. */
MILL_HD_CALLED static inline void mill_ask_curves(const mill_model *m, mill_slot *slot,
                                                  enum mill_group group)
{
  int n_vel = 1;
  for (int i = 0; i < slot->n_segment; i++) {
    const int n = mill_curve_of(slot, group, &slot->segment[i])->n;
    n_vel = n > n_vel ? n : n_vel;
  }
  mill_ask_begin(slot, n_vel);
  slot->data_only = group == MILL_OF_EPOCHS; /* without the model error, which all epochs share */
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    mill_curve *c = mill_curve_of(slot, group, s);
    for (int k = 0; k < n_vel; k++) {
      const double v = mill_curve_velocity(c, k);
      const int is_known = k == c->n / 2 && c->f_centre == c->f_centre;
      const int is_within = v >= m->set.min_vel_km_s && v <= m->set.max_vel_km_s;
      const int is_asked = s->used && k < c->n && !is_known && is_within;
      mill_ask_velocity(slot, i, k,
                        is_asked ? mill_velocity_of(m, slot, s, group, v) : (double)NAN);
      const double unknown = is_within ? 0.0 : (double)INFINITY; /* mill_take_curves adds to it */
      if (k < c->n)
        c->f[k] = is_known ? c->f_centre : unknown;
    }
  }
}

/** Add the segments' F to their curves, which mill_ask_curves has cleared; for the star's curve
 *  also sum F into the arms' curves. */
MILL_HD_CALLED static inline void mill_take_curves(const mill_model *m, mill_slot *slot,
                                                   enum mill_group group)
{
  for (int a = 0; a < m->n_arm; a++) { /* sum arm by arm, whatever the segments' order */
    for (int k = 0; k < slot->n_vel && group == MILL_OF_STAR; k++)
      slot->arm[a].f[k] = 0.0;
    for (int i = 0; i < slot->n_segment; i++) {
      const double *v = mill_velocities_of(slot, i), *f = mill_answer_of(m, slot, i);
      mill_curve *c = mill_curve_of(slot, group, &slot->segment[i]);
      if (slot->segment[i].arm != a)
        continue;
      for (int k = 0; k < slot->n_vel; k++)
        if (v[k] == v[k]) { /* NaN: not asked */
          c->f[k] += f[MILL_ANSWER_F + k];
          if (group == MILL_OF_STAR)
            slot->arm[a].f[k] += f[MILL_ANSWER_F + k];
        }
    }
  }
}

/** Count an answered question.  Record the parameters of a template that was kept (slot->kept).
 *  Record whether a Jacobian recomputed the model error, and in which start. */
MILL_HD_CALLED static inline void mill_answered(const mill_model *m, mill_slot *slot)
{
  slot->result.n_eval++;
  slot->stored = 0; /* only a start's first Jacobian has stored rows (mill_template_find) */
  if (mill_template_keeps(slot)) {
    slot->kept.has = 1;
    for (int j = 0; j < m->n_par; j++)
      slot->kept.theta[j] = slot->theta[j];
  }
  if (slot->request == MILL_REQ_TANGENTS) {
    slot->result.n_jac++;
    slot->error_is_here = slot->fix_error;
    if (slot->fix_error) {
      slot->error_start = slot->starts.i;
      for (int j = 0; j < m->n_par; j++)
        slot->error_theta[j] = slot->theta[j];
      for (int i = 0; i < slot->n_epoch; i++)
        slot->epoch[i].error_shift = slot->epoch[i].shift[0];
    }
    slot->fix_error = 0;
  }
}

/** Ask for values, tangents or models at slot->theta; the sums go to slot->eval. */
#define MILL_ASK(kind)                                                                             \
  do {                                                                                             \
    mill_ask_point(m, slot);                                                                       \
    MILL_WAIT(kind);                                                                               \
    mill_answered(m, slot);                                                                        \
    mill_take_point(m, slot);                                                                      \
  } while (0)

/** Ask for F along the curves of a group (enum mill_group) about slot->theta. */
#define MILL_ASK_CURVES(group)                                                                     \
  do {                                                                                             \
    mill_ask_curves(m, slot, group);                                                               \
    MILL_WAIT(MILL_REQ_VALUES);                                                                    \
    mill_answered(m, slot);                                                                        \
    mill_take_curves(m, slot, group);                                                              \
  } while (0)
