/** The fit of one star as a state machine: each round answers one request.
 *
 *  guess -> (simplex) -> polish -> second start where asked -> velocity profile
 *  -> final evaluation -> result.  Serial code, run by one thread of a star's
 *  block after each round.
 */
#ifndef MILL_FIT_H
#define MILL_FIT_H

#include "kernels/polish.h"

/** Unit of the simplex's first steps, in typical uncertainties. */
#define MILL_SIMPLEX_STEP      3.0
#define MILL_SIMPLEX_TOLERANCE 0.01
/** Labels within this distance of a hull's facet are at the edge. */
#define MILL_HULL_EDGE 1e-3

/** The simplex's next point as a request.  v sin i beyond its limits is
 *  evaluated at the limit with a quadratic penalty, velocities off theirs count
 *  as useless. */
MILL_HD static inline void mill_simplex_propose(const mill_model *m, mill_slot *slot)
{
  const double *x = mill_nm_ask(&slot->nm);
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->nm_origin[j];
  for (int i = 0; i < slot->n_free; i++) {
    const int j = slot->free_par[i];
    slot->theta[j] += x[i] * slot->nm_scale[j];
  }
  slot->nm_off = 0.0;
  for (int j = 0; j < m->n_par; j++) {
    const double lo = mill_par_min(m, j), hi = mill_par_max(m, j), raw = slot->theta[j];
    slot->theta[j] = raw < lo ? lo : (raw > hi ? hi : raw);
    const double u = (raw - slot->theta[j]) / mill_par_scale(m, j);
    if (u != 0.0)
      slot->nm_off += j == MILL_PAR_VRAD ? MILL_OFF_LIMITS : 100.0 * u * u;
  }
  slot->request = MILL_REQ_VALUE;
}

MILL_HD static inline void mill_simplex_begin(const mill_model *m, mill_slot *slot,
                                              const double *theta, int stage)
{
  double x0[MILL_MAX_PAR], step[MILL_MAX_PAR], simplex[(MILL_MAX_PAR + 1) * MILL_MAX_PAR];
  for (int j = 0; j < m->n_par; j++) {
    slot->nm_origin[j] = theta[j];
    slot->nm_scale[j] = mill_par_scale(m, j);
  }
  for (int i = 0; i < slot->n_free; i++) {
    x0[i] = 0.0;
    step[i] = MILL_SIMPLEX_STEP;
  }
  mill_nm_simplex(slot->n_free, x0, step, simplex);
  mill_nm_options options = mill_nm_options_plain();
  options.f_tol = MILL_SIMPLEX_TOLERANCE;
  options.x_tol = MILL_SIMPLEX_TOLERANCE;
  const int left = m->set.max_eval - slot->result.n_eval;
  options.max_eval = stage == MILL_STAGE_SIMPLEX_SHORT ? m->set.n_simplex_round : m->set.max_eval;
  if (options.max_eval > left)
    options.max_eval = left < 1 ? 1 : left;
  if (stage == MILL_STAGE_SIMPLEX) {
    options.n_restart = 2;
    options.check_degenerate = 1;
  }
  mill_nm_start(&slot->nm, slot->n_free, simplex, &options);
  slot->stage = stage;
  mill_simplex_propose(m, slot);
}

/** First stage of one start. */
MILL_HD static inline void mill_start_begin(const mill_model *m, mill_slot *slot)
{
  const double *theta = slot->start[slot->i_start];
  slot->fell_back = 0;
  if (slot->n_free > 0 && m->set.optimizer == MILL_OPT_HYBRID && m->set.n_simplex_round > 0)
    mill_simplex_begin(m, slot, theta, MILL_STAGE_SIMPLEX_SHORT);
  else if (slot->n_free > 0 && m->set.optimizer == MILL_OPT_NELDER_MEAD)
    mill_simplex_begin(m, slot, theta, MILL_STAGE_SIMPLEX);
  else {
    slot->stage = MILL_STAGE_POLISH;
    mill_polish_begin(m, slot, theta);
  }
}

MILL_HD static inline void mill_fit_end(mill_slot *slot, int status)
{
  slot->result.status = status;
  if (status != MILL_STATUS_FITTED)
    slot->result.warn |= MILL_WARN_BAD_SPECTRUM;
  slot->stage = MILL_STAGE_DONE;
  slot->request = MILL_REQ_NONE;
}

/** After preparation: can this star be fitted?  Fills S/N and pixel counts. */
MILL_HD static inline int mill_fit_admit(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  int n_used = 0, n_dropped = 0;
  int64_t n_pix_all = 0, n_good = 0;
  double best_sn = -1e9;

  for (int a = 0; a < MILL_MAX_ARM; a++) {
    r->sn[a] = -1e9;
    r->n_pix[a] = 0;
  }
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    /* exposures of an arm: the best of them */
    if (s->sn > r->sn[s->arm])
      r->sn[s->arm] = s->sn;
    if (s->sn > best_sn)
      best_sn = s->sn;
    if (!s->used || s->n_good == 0)
      n_dropped++;
    if (!s->used)
      continue;
    n_used++;
    n_pix_all += s->n_pix;
    n_good += s->n_good;
    r->n_pix[s->arm] += s->n_good;
  }
  r->n_pix_tot = n_good;
  slot->hull_weight = 10.0 * (double)n_pix_all * (double)n_used;
  if (n_dropped > 0)
    r->info |= MILL_INFO_ARM_DROPPED;
  if (n_good == 0) {
    mill_fit_end(slot, MILL_STATUS_NO_ARM);
    return 0;
  }
  if (best_sn < m->set.min_sn) {
    mill_fit_end(slot, MILL_STATUS_LOW_SN);
    return 0;
  }
  if (!(best_sn < m->set.second_start_sn) && slot->n_start > 1)
    slot->n_start = 1;
  return 1;
}

/** After preparation and guess: the first request. */
MILL_HD static inline void mill_fit_begin(const mill_model *m, mill_slot *slot)
{
  slot->have_best = 0;
  slot->i_start = 0;
  slot->nonfinite = 0;
  slot->n_profile_round = 0;
  slot->n_free = 0;
  for (int j = 0; j < m->n_par; j++)
    if (!m->set.fixed[j])
      slot->free_par[slot->n_free++] = j;
  if (!mill_fit_admit(m, slot))
    return;
  if (slot->n_start < 1) {
    slot->result.warn |= MILL_WARN_NONFINITE;
    mill_fit_end(slot, MILL_STATUS_FIT_FAILED);
    return;
  }
  slot->result.vrad_guess_km_s = slot->start[0][MILL_PAR_VRAD];
  if (slot->n_start > 1)
    slot->result.info |= MILL_INFO_SECOND_START;
  mill_start_begin(m, slot);
}

MILL_HD static inline void mill_profile_request(const mill_model *m, mill_slot *slot)
{
  const double step = 0.5 * slot->profile_width;
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->best.theta[j];
  for (int i = 0; i < MILL_N_PROFILE; i++)
    slot->profile_vel[i] = slot->best.theta[MILL_PAR_VRAD] + (i - MILL_N_PROFILE / 2) * step;
  slot->stage = MILL_STAGE_PROFILE;
  slot->request = MILL_REQ_PROFILE;
}

MILL_HD static inline void mill_final_request(const mill_model *m, mill_slot *slot)
{
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->best.theta[j];
  slot->stage = MILL_STAGE_FINAL;
  slot->request = MILL_REQ_FINAL;
}

/** A start has come to its end: keep the better point, go on. */
MILL_HD static inline void mill_start_end(const mill_model *m, mill_slot *slot, int converged)
{
  if (slot->polish.have && (!slot->have_best || slot->polish.at.f < slot->best.f)) {
    slot->best = slot->polish.at;
    slot->have_best = 1;
    slot->best_converged = converged;
    for (int j = 0; j < m->n_par; j++)
      slot->best_pinned[j] = slot->polish.pinned[j];
  }
  slot->i_start++;
  if (slot->i_start < slot->n_start) {
    mill_start_begin(m, slot);
    return;
  }
  if (!slot->have_best) {
    slot->result.warn |= MILL_WARN_NONFINITE;
    mill_fit_end(slot, MILL_STATUS_FIT_FAILED);
    return;
  }
  if (m->set.fixed[MILL_PAR_VRAD]) {
    mill_final_request(m, slot);
    return;
  }
  const double h = slot->best.hess[MILL_PAR_VRAD * m->n_par + MILL_PAR_VRAD];
  slot->profile_width = h > 0.0 ? 1.0 / sqrt(h) : 60.0;
  const double widest = 0.1 * (m->set.max_vel_km_s - m->set.min_vel_km_s);
  if (slot->profile_width > widest)
    slot->profile_width = widest;
  mill_profile_request(m, slot);
}

/** Moments of exp(-dF/2) over the velocities asked for; 0 when the grid does
 *  not resolve them and a new one was requested. */
MILL_HD static inline int mill_profile_digest(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  double least = INFINITY;
  for (int i = 0; i < MILL_N_PROFILE; i++) {
    const double v = slot->profile_vel[i];
    if (v < m->set.min_vel_km_s || v > m->set.max_vel_km_s || !isfinite(slot->eval.profile[i]))
      slot->eval.profile[i] = INFINITY;
    if (slot->eval.profile[i] < least)
      least = slot->eval.profile[i];
  }
  slot->n_profile_round++;
  if (!isfinite(least)) {
    slot->nonfinite = 1;
    return 1;
  }
  double sum = 0.0, mean = 0.0, m2 = 0.0, m3 = 0.0, m4 = 0.0;
  for (int i = 0; i < MILL_N_PROFILE; i++) {
    const double w = exp(-0.5 * (slot->eval.profile[i] - least));
    sum += w;
    mean += w * slot->profile_vel[i];
  }
  mean /= sum;
  for (int i = 0; i < MILL_N_PROFILE; i++) {
    const double w = exp(-0.5 * (slot->eval.profile[i] - least)) / sum;
    const double d = slot->profile_vel[i] - mean;
    m2 += w * d * d;
    m3 += w * d * d * d;
    m4 += w * d * d * d * d;
  }
  const double step = 0.5 * slot->profile_width, width = sqrt(m2);
  const double range = m->set.max_vel_km_s - m->set.min_vel_km_s;
  /* too coarse, or so wide that the window cuts it (unless it spans the limits) */
  const int coarse = width < 1.6 * step;
  const int cut = width > 2.6 * step && step * (MILL_N_PROFILE - 1) < 2.0 * range;
  if ((coarse || cut) && slot->n_profile_round < MILL_MAX_PROFILE_ROUND) {
    double next = width < 0.25 * step ? 0.25 * step : width;
    if (next > 0.1 * range)
      next = 0.1 * range;
    if (next != slot->profile_width) {
      slot->profile_width = next;
      mill_profile_request(m, slot);
      return 0;
    }
  }
  r->vrad_err_km_s = width;
  r->vrad_skew = m2 > 0.0 ? m3 / (m2 * width) : 0.0;
  r->vrad_kurt = m2 > 0.0 ? m4 / (m2 * m2) : 0.0;
  return 1;
}

/** Covariance of the free parameters that are not at their box, from the
 *  curvature without the hull term; 0 when it is not positive definite. */
MILL_HD static inline int mill_fit_covariance(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  const int np = m->n_par;
  int idx[MILL_MAX_PAR], n = 0;
  for (int j = 0; j < np; j++)
    if (!m->set.fixed[j] && !slot->best_pinned[j])
      idx[n++] = j;
  double a[MILL_MAX_PAR * MILL_MAX_PAR], inv[MILL_MAX_PAR * MILL_MAX_PAR];
  for (int i = 0; i < MILL_MAX_COVAR; i++)
    r->covar[i] = 0.0;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      a[i * n + k] = slot->best.hess[idx[i] * np + idx[k]];
  if (n > 0 && mill_cholesky(n, a, n) != 0)
    return 0;
  if (n > 0)
    mill_cholesky_inverse(n, a, n, inv, n);
  double sigma[MILL_MAX_PAR];
  for (int j = 0; j < np; j++)
    sigma[j] = 0.0;
  for (int i = 0; i < n; i++) {
    sigma[idx[i]] = sqrt(inv[i * n + i]);
    for (int k = i; k < n; k++) {
      const int p = idx[i], q = idx[k];
      r->covar[p * np - p * (p - 1) / 2 + (q - p)] = inv[i * n + k];
    }
  }
  for (int l = 0; l < m->n_label; l++)
    r->label_err[l] = sigma[MILL_PAR_LABEL0 + l];
  r->vsini_err_km_s = sigma[MILL_PAR_VSINI];
  if (slot->best_pinned[MILL_PAR_VSINI] && !m->set.fixed[MILL_PAR_VSINI]) {
    /* at its lower limit F rises linearly: where it has risen by 1 */
    const double g = slot->best.grad[MILL_PAR_VSINI];
    const double h = slot->best.hess[MILL_PAR_VSINI * np + MILL_PAR_VSINI];
    const double slope = fabs(g);
    r->vsini_err_km_s = h > 0.0 ? (sqrt(slope * slope + 4.0 * h) - slope) / (2.0 * h)
                                : (slope > 0.0 ? 1.0 / slope : (double)NAN);
    if (slot->best.theta[MILL_PAR_VSINI] <= m->set.min_vsini_km_s)
      r->info |= MILL_INFO_VSINI_ZERO;
  }
  return 1;
}

/** rvspecfit's edges of its parameter range: bit 8 of RVS_WARN. */
MILL_HD static inline int mill_label_at_edge(const mill_label *label, double x)
{
  const char *n = label->name;
  if (n[0] == 't' && n[1] == 'e' && n[2] == 'f' && n[3] == 'f')
    return x < 2300.0 + 10.0 || x > 15000.0 - 10.0;
  if (n[0] == 'f' && n[1] == 'e' && n[2] == 'h')
    return x < -4.0 + 0.01 || x > 1.0 - 0.01;
  if (n[0] == 'l' && n[1] == 'o' && n[2] == 'g' && n[3] == 'g')
    return x < -0.5 + 0.01 || x > 6.5 - 0.01;
  return 0;
}

/** Everything known: the row. */
MILL_HD static inline void mill_fit_finish(const mill_model *m, mill_slot *slot, double f)
{
  mill_fit_result *r = &slot->result;
  const double *theta = slot->best.theta;
  double mapped[MILL_MAX_LABEL];
  r->vrad_km_s = theta[MILL_PAR_VRAD];
  r->vsini_km_s = theta[MILL_PAR_VSINI];
  for (int l = 0; l < m->n_label; l++)
    r->label[l] = theta[MILL_PAR_LABEL0 + l];
  r->m2ll = f;
  mill_map_labels(m, theta, mapped);
  r->hull_dist = mill_hull_distance(m->n_hull, m->hull, mapped);
  r->chisq_tot = 0.0;
  r->chisq_c_tot = 0.0;
  for (int a = 0; a < m->n_arm; a++) {
    if (r->n_pix[a] == 0)
      continue;
    r->chisq[a] = slot->eval.chisq[a];
    r->chisq_c[a] = slot->eval.chisq_c[a];
    r->chisq_tot += r->chisq[a];
    r->chisq_c_tot += r->chisq_c[a];
  }
  if (!mill_fit_covariance(m, slot))
    r->warn |= MILL_WARN_BAD_HESSIAN;
  if (m->set.fixed[MILL_PAR_VRAD]) {
    r->vrad_err_km_s = 0.0;
    r->vrad_skew = 0.0;
    r->vrad_kurt = 0.0;
  }
  if (!(r->chisq_c_tot - r->chisq_tot >= 50.0))
    r->warn |= MILL_WARN_CHISQ;
  if (r->vrad_km_s < m->set.min_vel_km_s + 5.0 || r->vrad_km_s > m->set.max_vel_km_s - 5.0)
    r->warn |= MILL_WARN_VEL_LIMIT;
  if (!(r->vrad_err_km_s <= 100.0))
    r->warn |= MILL_WARN_VEL_ERR;
  if (r->vsini_km_s > 100.0)
    r->warn |= MILL_WARN_VSINI;
  for (int l = 0; l < m->n_label; l++)
    if (mill_label_at_edge(&m->label[l], r->label[l]))
      r->warn |= MILL_WARN_LABEL_EDGE;
  /* at a facet the penalty leaves a star on either side, by 1e-6 or so */
  if (mill_hull_signed(m->n_hull, m->hull, mapped) > -MILL_HULL_EDGE)
    r->warn |= MILL_WARN_HULL;
  if (slot->eval.negative > 100.0)
    r->warn |= MILL_WARN_NEGATIVE;
  if (slot->eval.max_resid2 > 100.0 && slot->eval.max_resid2 > 0.25 * r->chisq_tot)
    r->warn |= MILL_WARN_OUTLIER;
  if (r->chisq_tot > 10.0 * (double)r->n_pix_tot)
    r->warn |= MILL_WARN_POOR_FIT;
  if (!slot->best_converged)
    r->warn |= MILL_WARN_NOT_CONVERGED;
  if (slot->nonfinite || !isfinite(f) || !isfinite(r->chisq_tot))
    r->warn |= MILL_WARN_NONFINITE;
  mill_fit_end(slot, isfinite(f) ? MILL_STATUS_FITTED : MILL_STATUS_FIT_FAILED);
}

/** Digest slot->eval, the answer to slot->request, and make the next request. */
MILL_HD static inline void mill_fit_digest(const mill_model *m, mill_slot *slot)
{
  double f = slot->eval.f;
  slot->result.n_eval++;
  if (slot->request == MILL_REQ_JACOBIAN)
    slot->result.n_jac++;

  switch (slot->stage) {
  case MILL_STAGE_SIMPLEX_SHORT:
  case MILL_STAGE_SIMPLEX: {
    f += mill_penalty(m, slot, slot->theta) + slot->nm_off;
    if (mill_nm_tell(&slot->nm, f) == MILL_NM_GO) {
      mill_simplex_propose(m, slot);
      return;
    }
    double best;
    const double *x = mill_nm_best(&slot->nm, &best);
    double theta[MILL_MAX_PAR];
    for (int j = 0; j < m->n_par; j++)
      theta[j] = slot->nm_origin[j];
    for (int i = 0; i < slot->n_free; i++)
      theta[slot->free_par[i]] += x[i] * slot->nm_scale[slot->free_par[i]];
    if (slot->stage == MILL_STAGE_SIMPLEX)
      slot->fell_back = 1; /* nothing further to fall back to */
    slot->stage = MILL_STAGE_POLISH;
    mill_polish_begin(m, slot, theta);
    return;
  }
  case MILL_STAGE_POLISH: {
    f += mill_penalty(m, slot, slot->theta);
    const int outcome = mill_polish_tell(m, slot, f);
    if (outcome == MILL_POLISH_GO)
      return;
    if (outcome == MILL_POLISH_FAILED && !slot->fell_back && slot->n_free > 0) {
      slot->result.info |= MILL_INFO_FALLBACK;
      mill_simplex_begin(m, slot,
                         slot->polish.have ? slot->polish.at.theta : slot->start[slot->i_start],
                         MILL_STAGE_SIMPLEX);
      return;
    }
    mill_start_end(m, slot, outcome == MILL_POLISH_CONVERGED);
    return;
  }
  case MILL_STAGE_PROFILE:
    if (mill_profile_digest(m, slot))
      mill_final_request(m, slot);
    return;
  case MILL_STAGE_FINAL:
    mill_fit_finish(m, slot, f + mill_penalty(m, slot, slot->theta));
    return;
  default:
    return;
  }
}

#endif
