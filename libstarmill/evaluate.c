/* SPDX-License-Identifier: BSD-3-Clause */
#include "libstarmill/handle.h"

#include "kernels/math/continuum.h"

/* ---- the likelihood ---- */

/* Convert derivatives in the fit's inner rotation parameter to derivatives in v sin i (km/s). */
static void to_vsini(const starmill_library *h, const double *theta, int n_par,
                     mill_evaluation *eval)
{
  const int j = MILL_PAR_VSINI, kind = h->set.rotation;
  const double inner = mill_vsini_inner(kind, theta[j]);
  const double slope = 1.0 / mill_vsini_outer_slope(kind, inner);
  eval->grad[j] *= slope;
  for (int k = 0; k < n_par; k++) {
    eval->hess[j * n_par + k] *= slope;
    eval->hess[k * n_par + j] *= slope;
  }
}

typedef struct loglike_out {
  double *m2ll, *penalty, *gradient, *curvature;
} loglike_out;

/* Evaluate -2 ln L at n points [n][n_par], all within the limits, with derivatives by v sin i. */
static int ask(starmill_library *h, int n, const double *theta, const loglike_out *out,
               mill_evaluation *eval)
{
  const int n_par = mill_n_par(h);
  const size_t n_gradient = (size_t)n_par, n_curvature = n_gradient * n_gradient;
  const int request = out->gradient || out->curvature ? MILL_REQ_TANGENTS : MILL_REQ_VALUES;
  MILL_CHECK(mill_pipeline_ask(h->pipeline, request, 0, n, theta, eval, out->penalty));
  for (int i = 0; i < n; i++) {
    out->m2ll[i] = eval[i].f;
    if (request == MILL_REQ_VALUES)
      continue;
    to_vsini(h, theta + (size_t)i * n_gradient, n_par, &eval[i]);
    if (out->gradient)
      memcpy(out->gradient + (size_t)i * n_gradient, eval[i].grad, n_gradient * sizeof(double));
    if (out->curvature)
      memcpy(out->curvature + (size_t)i * n_curvature, eval[i].hess, n_curvature * sizeof(double));
  }
  return MILL_OK;
}

static void fill(double value, size_t n, double *out)
{
  for (size_t i = 0; i < n && out; i++)
    out[i] = value;
}

static double *at(double *out, size_t i)
{
  return out ? out + i : NULL;
}

enum { MOST_POINTS = 1024 /* most points in one request to the pipeline */ };

/* Are the parameters theta [n_par] finite, and velocity and v sin i within their limits? */
static int is_within(const starmill_library *h, const double *theta)
{
  for (int j = 0; j < mill_n_par(h); j++)
    if (!isfinite(theta[j]))
      return 0;
  return theta[MILL_PAR_VRAD] >= h->set.min_vel_km_s &&
         theta[MILL_PAR_VRAD] <= h->set.max_vel_km_s &&
         theta[MILL_PAR_VSINI] >= h->set.min_vsini_km_s &&
         theta[MILL_PAR_VSINI] <= h->set.max_vsini_km_s;
}

/* Evaluate successive points within the limits together.  Outside, m2ll is inf, derivatives NaN. */
static int loglike(starmill_library *h, const starmill_star *star, int n, const double *theta,
                   const loglike_out *out)
{
  const size_t n_par = (size_t)mill_n_par(h);
  MILL_OWNED mill_evaluation *eval = NULL;
  MILL_OWNED double *unwanted = NULL;
  if (n < 0 || (n > 0 && (!theta || !out->m2ll)))
    return MILL_ERROR(MILL_ERR_USAGE, "n is %d%s", n,
                      n > 0 ? ", but theta or m2ll is NULL" : "; give 0 points or more");
  MILL_CHECK(MILL_ALLOC(n < MOST_POINTS ? n : MOST_POINTS, &eval));
  if (!out->penalty)
    MILL_CHECK(MILL_ALLOC(n, &unwanted));
  double *penalty = out->penalty ? out->penalty : unwanted;
  MILL_CHECK(mill_star_hold(h, star));
  for (int i = 0, k = 0; i < n; i += k) {
    const size_t p = (size_t)i;
    const loglike_out to = {out->m2ll + p, penalty + p, at(out->gradient, p * n_par),
                            at(out->curvature, p * n_par * n_par)};
    for (k = 0; i + k < n && k < MOST_POINTS; k++) /* count points within the limits */
      if (!is_within(h, theta + (p + (size_t)k) * n_par))
        break;
    if (k > 0) {
      MILL_CHECK(ask(h, k, theta + p * n_par, &to, eval));
      continue;
    }
    fill(INFINITY, 1, to.m2ll);
    fill(0.0, 1, to.penalty);
    fill(NAN, n_par, to.gradient);
    fill(NAN, n_par * n_par, to.curvature);
    k = 1; /* the point beyond the limits */
  }
  return MILL_OK;
}

int starmill_minus2loglike(starmill_library *library, const starmill_star *star, int n,
                           const double *theta, double *m2ll, double *penalty, double *gradient,
                           double *curvature, starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, star);
  const loglike_out out = {m2ll, penalty, gradient, curvature};
  MILL_LOCKED(&library->mutex);
  return mill_tell(loglike(library, star, n, theta, &out), error);
}

static int check_within(const starmill_library *h, const double *theta)
{
  const mill_fit_settings *set = &h->set;
  if (!is_within(h, theta))
    return MILL_ERROR(MILL_ERR_RANGE,
                      "a parameter is not finite or beyond its limits: velocity %g to %g km/s "
                      "(min_vel, max_vel), v sin i %g to %g km/s (min_vsini, max_vsini)",
                      set->min_vel_km_s, set->max_vel_km_s, set->min_vsini_km_s,
                      set->max_vsini_km_s);
  return MILL_OK;
}

/* Load the star again with the model error at theta (NULL: none).  After a failure undo this. */
int starmill_fix_model_error(starmill_library *library, starmill_star *star, const double *theta,
                             starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, star);
  MILL_LOCKED(&library->mutex);
  const starmill_star before = *star;
  int err = theta ? check_within(library, theta) : MILL_OK;
  if (err != MILL_OK)
    return mill_tell(err, error);
  star->is_fixed = theta != NULL;
  if (theta)
    memcpy(star->fixed_at, theta, (size_t)mill_n_par(library) * sizeof *theta);
  library->held = 0; /* so that the star is loaded again */
  err = mill_star_hold(library, star);
  if (err != MILL_OK)
    *star = before;
  return mill_tell(err, error);
}

/* ---- models ---- */

struct starmill_model {
  double m2ll, penalty;
  int n_arm, n_piece;
  starmill_model_arm arm[MILL_MAX_ARM];
  size_t n_pix;
  starmill_piece *piece; /* [n_piece], pointing into the arrays below */
  double *coefficient;
  double *wave; /* [2][n_pix] wave, continuum */
  float *flux;  /* [4][n_pix] flux, template_flux, data, ivar */
};

void starmill_model_free(starmill_model *model)
{
  if (!model)
    return;
  MILL_FREE(model->piece, model->coefficient, model->wave, model->flux, model);
}

MILL_CLOSER(starmill_model, starmill_model_free)

/* Copy segment i and its model to piece i, whose pixels begin at `first` in the model's arrays. */
static int copy_piece(const starmill_library *h, const starmill_star *star, int i, size_t first,
                      starmill_model *m)
{
  mill_segment_model from;
  MILL_OWNED unsigned char *good = NULL;
  const mill_raw_segment *p = &star->segment[i];
  mill_pipeline_model(h->pipeline, i, &from);
  const int n = from.n_pix, nk = from.n_cont;
  double *coefficient = m->coefficient + (ptrdiff_t)i * MILL_MAX_CONT;
  double *wave = m->wave + first, *continuum = wave + m->n_pix; /* after the pieces' wave */
  float *flux = m->flux + first, *templ = flux + m->n_pix, *data = templ + m->n_pix;
  float *ivar = data + m->n_pix; /* after flux, templ and data of all pieces */
  MILL_CHECK(MILL_ALLOC(n, &good));
  MILL_CHECK(mill_pipeline_good(h->pipeline, i, good));
  /* i_spectrum, i_arm, exposure, first, n_pix, used, n_continuum, then the arrays */
  m->piece[i] =
      (starmill_piece){p->channel, p->arm,    p->exposure, p->first, n,    from.used, nk,
                       wave,       continuum, flux,        templ,    data, ivar,      coefficient};
  memcpy(wave, p->wave_aa, (size_t)n * sizeof *wave);
  memcpy(data, p->flux, (size_t)n * sizeof *data);
  for (int k = 0; k < nk; k++)
    coefficient[k] = from.used ? from.cont_coef[k] : (double)NAN;
  for (int q = 0; q < n; q++) {
    const double x = 2.0 * (wave[q] - wave[0]) / (wave[n - 1] - wave[0]) - 1.0; /* -1 to 1 */
    for (int k = 0; k < nk; k++)
      continuum[q] += coefficient[k] * mill_continuum(h->set.continuum, nk, k, x); /* from 0 */
    flux[q] = from.used ? from.flux[q] : NAN;
    templ[q] = from.used ? from.templ_flux[q] : NAN;
    ivar[q] = from.used && good[q] ? p->ivar[q] : 0.0f;
  }
  return MILL_OK;
}

/* Allocate the model's arrays, filled with zeros, for all pieces of the star; copy the pieces. */
static int copy_pieces(const starmill_library *h, const starmill_star *star, starmill_model *m)
{
  size_t first = 0;
  const int n = star->n_segment;
  for (int i = 0; i < n; i++)
    m->n_pix += (size_t)star->segment[i].n_pix;
  MILL_CHECK(MILL_ALLOC(n, &m->piece));
  MILL_CHECK(MILL_ALLOC(n * MILL_MAX_CONT, &m->coefficient));
  MILL_CHECK(MILL_ALLOC(2 * m->n_pix, &m->wave)); /* wave, continuum */
  MILL_CHECK(MILL_ALLOC(4 * m->n_pix, &m->flux)); /* flux, template_flux, data, ivar */
  for (int i = 0; i < n; i++) {
    MILL_CHECK(copy_piece(h, star, i, first, m));
    first += (size_t)star->segment[i].n_pix;
  }
  m->n_piece = n;
  return MILL_OK;
}

/* Evaluate the model at theta, and copy its arms and pieces to *model. */
static int make_model(starmill_library *h, const starmill_star *star, const double *theta,
                      starmill_model **model)
{
  mill_evaluation eval;
  MILL_AT_END(starmill_model_free_at) starmill_model *m = NULL;
  MILL_CHECK(MILL_ALLOC(1, &m));
  MILL_CHECK(check_within(h, theta));
  MILL_CHECK(mill_star_hold(h, star));
  MILL_CHECK(mill_pipeline_ask(h->pipeline, MILL_REQ_MODELS, 0, 1, theta, &eval, &m->penalty));
  MILL_CHECK(mill_pipeline_models(h->pipeline));
  MILL_CHECK(copy_pieces(h, star, m));
  m->m2ll = eval.f;
  m->n_arm = h->lib.n_arm;
  for (int a = 0; a < m->n_arm; a++)
    m->arm[a] = (starmill_model_arm){.chisq = eval.chisq[a],
                                     .chisq_c = eval.chisq_c[a],
                                     .sn = h->prepared.sn[a],
                                     .n_pix = h->prepared.n_pix[a]};
  return MILL_GIVE(&m, model);
}

int starmill_model_create(starmill_library *library, const starmill_star *star, const double *theta,
                          starmill_model **model, starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, star, theta, model);
  MILL_LOCKED(&library->mutex);
  return mill_tell(make_model(library, star, theta, model), error);
}

double starmill_model_m2ll(const starmill_model *model)
{
  return model ? model->m2ll : (double)NAN;
}

double starmill_model_penalty(const starmill_model *model)
{
  return model ? model->penalty : (double)NAN;
}

int starmill_model_get_arm(const starmill_model *model, int i_arm, starmill_model_arm *arm,
                           starmill_error *error)
{
  MILL_REFUSE_NULL(error, model, arm);
  const int err = mill_check_index("arm", i_arm, model->n_arm);
  if (err == MILL_OK)
    *arm = model->arm[i_arm];
  return mill_tell(err, error);
}

int starmill_model_get_piece(const starmill_model *model, int i_piece, starmill_piece *piece,
                             starmill_error *error)
{
  MILL_REFUSE_NULL(error, model, piece);
  const int err = mill_check_index("piece", i_piece, model->n_piece);
  if (err == MILL_OK)
    *piece = model->piece[i_piece];
  return mill_tell(err, error);
}

/* ---- templates ---- */

/* Evaluate the template at a spectrum's pixels: copy it from the model of a temporary star with
 * these pixels and an S/N above the key minsn.  Pixels in no segment become NaN. */
static int make_template(starmill_library *h, const starmill_spectrum *spectrum,
                         const double *theta, float *flux)
{
  MILL_OWNED float *level = NULL;
  MILL_AT_END(mill_star_drop_at) starmill_star *star = NULL;
  MILL_AT_END(starmill_model_free_at) starmill_model *model = NULL;
  if (spectrum->n_pix < 1)
    return MILL_ERROR(MILL_ERR_USAGE, "a template needs 1 pixel or more, got %d", spectrum->n_pix);
  MILL_CHECK(MILL_ALLOC(spectrum->n_pix, &level));
  for (int i = 0; i < spectrum->n_pix; i++) /* flux = ivar = x gives the S/N x^1.5 */
    level[i] = (float)fmax(1.0, 2.0 * h->set.min_sn);
  starmill_spectrum flat = *spectrum;
  flat.flux = flat.ivar = level;
  flat.mask = NULL;
  flat.systematic = NULL;
  flat.exposure = 0;
  MILL_CHECK(mill_star_make(h, &flat, 1, &star));
  const int code = make_model(h, star, theta, &model);
  mill_pipeline_drop(h->pipeline); /* also after a failure, as this function frees the star */
  h->held = 0;
  MILL_CHECK(code);
  for (int i = 0; i < spectrum->n_pix; i++)
    flux[i] = NAN;
  for (int i = 0; i < model->n_piece; i++) {
    const starmill_piece *p = &model->piece[i];
    memcpy(flux + p->first, p->template_flux, (size_t)p->n_pix * sizeof *flux);
  }
  return MILL_OK;
}

int starmill_template(starmill_library *library, const starmill_spectrum *spectrum,
                      const double *theta, float *flux, starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, spectrum, theta, flux);
  MILL_LOCKED(&library->mutex);
  return mill_tell(make_template(library, spectrum, theta, flux), error);
}

/* ---- the initial guess ---- */

int starmill_guess(starmill_library *library, const starmill_star *star, int n_most, double *theta,
                   double *chisq, int *n, starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, star, theta, chisq, n);
  MILL_LOCKED(&library->mutex);
  const int err = n_most < 1
                      ? MILL_ERROR(MILL_ERR_USAGE, "expected 1 guess or more, got %d", n_most)
                      : mill_star_hold(library, star);
  if (err == MILL_OK)
    *n = mill_pipeline_guesses(library->pipeline, n_most, theta, chisq);
  return mill_tell(err, error);
}
