/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/report_fit.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "src/libraries/emulator.h"
#include "src/libraries/label_search.h"
#include "src/system/random.h"

enum {
  N_CONT = MILL_MODEL_ERROR_CONTINUUM,
  EDGE = 8, /* pixels at either end of an arm that take no part, so that templates can move */
  MAX_SHIFT = EDGE - 2,
  NOISE_STREAM = 0x72707274 /* "rprt": this purpose of the random numbers */
};

#define STEP 1e-4 /* of mapped labels, for derivatives */

#define SPEED_UNIT 100.0 /* km/s; steps of the search are at most one */

/* Data shared by all fits. */
typedef struct set {
  const mill_library *lib;
  size_t first[MILL_MAX_ARM + 1]; /* of an arm in the pixels of a fit, all arms together */
  double *basis[MILL_MAX_ARM];    /* [N_CONT][pixels] orthonormal */
  double *guess;                  /* [n_guess][pixels] ln flux without continuum */
} set;

/* One fit. */
typedef struct task {
  const set *s;
  int err;
  double sn;
  double *data;      /* [pixels] without continuum */
  double *residual;  /* [pixels] */
  double *slope;     /* [n_label + 1][pixels] */
  double *row;       /* [n_label + 1][longest arm] ln of the templates */
  mill_lanes *templ; /* [groups][longest arm] */
} task;

static size_t n_fit_pix(const set *s)
{
  return s->first[s->lib->n_arm];
}

static size_t arm_pix(const mill_library *lib, int a)
{
  return (size_t)lib->arm[a].n_pix - 2 * EDGE;
}

static void set_clear(set *s)
{
  for (int a = 0; a < MILL_MAX_ARM; a++)
    mill_free(s->basis[a]);
  mill_free(s->guess);
}

/* Legendre polynomials over n pixels, orthonormal. */
static int make_basis(int n, double *basis)
{
  double tau[N_CONT];
  const size_t pitch = (size_t)n;
  for (int p = 0; p < n; p++) {
    const double u = 2.0 * p / (n - 1) - 1;
    for (int k = 0; k < N_CONT; k++)
      basis[(size_t)k * pitch + (size_t)p] =
          k == 0   ? 1
          : k == 1 ? u
                   : ((2 * k - 1) * u * basis[(size_t)(k - 1) * pitch + (size_t)p] -
                      (k - 1) * basis[(size_t)(k - 2) * pitch + (size_t)p]) /
                         k;
  }
  lapack_int info = LAPACKE_dgeqrf(LAPACK_COL_MAJOR, n, N_CONT, basis, n, tau);
  if (info == 0)
    info = LAPACKE_dorgqr(LAPACK_COL_MAJOR, n, N_CONT, N_CONT, basis, n, tau);
  if (info != 0)
    return MILL_ERROR(MILL_ERR_MEMORY, "LAPACK's QR of the report's continuum ended with %d",
                      (int)info);
  return MILL_OK;
}

/* Take the continuum of every arm out of n_row rows [n_fit_pix]. */
static void remove_continuum(const set *s, int n_row, double *row)
{
  double share[N_CONT];
  for (int i = 0; i < n_row; i++)
    for (int a = 0; a < s->lib->n_arm; a++) {
      double *x = row + (size_t)i * n_fit_pix(s) + s->first[a];
      const int n = (int)(s->first[a + 1] - s->first[a]);
      cblas_dgemv(CblasRowMajor, CblasNoTrans, N_CONT, n, 1, s->basis[a], n, x, 1, 0, share, 1);
      cblas_dgemv(CblasRowMajor, CblasTrans, N_CONT, n, -1, s->basis[a], n, share, 1, 1, x, 1);
    }
}

static void task_clear(task *t)
{
  MILL_FREE(t->data, t->residual, t->slope, t->row, t->templ);
}

static int task_make(const set *s, task *t)
{
  size_t longest = 0;
  const size_t n_row = (size_t)s->lib->n_label + 1;
  const size_t n_group = (n_row + MILL_EMULATOR_LANE - 1) / MILL_EMULATOR_LANE;
  for (int a = 0; a < s->lib->n_arm; a++)
    longest = longest > (size_t)s->lib->arm[a].n_pix ? longest : (size_t)s->lib->arm[a].n_pix;
  memset(t, 0, sizeof *t);
  t->s = s;
  MILL_CHECK(MILL_ALLOC(n_fit_pix(s), &t->data));
  MILL_CHECK(MILL_ALLOC(n_fit_pix(s), &t->residual));
  MILL_CHECK(MILL_ALLOC(n_row * n_fit_pix(s), &t->slope));
  MILL_CHECK(MILL_ALLOC(n_row * longest, &t->row));
  return MILL_ALLOC(n_group * longest, &t->templ);
}

/* ln of the templates at mapped labels x, row 0, and at a STEP along each label, row [..][n_pix].
 */
static int eval_rows(task *t, int a, int n_row, const double *x)
{
  const mill_library *lib = t->s->lib;
  const size_t n_pix = (size_t)lib->arm[a].n_pix, n_label = (size_t)lib->n_label;
  double label[(MILL_MAX_LABEL + 1) * MILL_MAX_LABEL] = {0};
  for (size_t i = 0; i < (size_t)n_row; i++)
    for (size_t l = 0; l < n_label; l++)
      label[i * n_label + l] = mill_label_unmap(&lib->label[l], x[l] + (i == l + 1 ? STEP : 0));
  MILL_CHECK(mill_emulator_lanes(lib, a, n_row, label, 1, t->templ));
  for (int i = 0; i < n_row; i++)
    for (size_t p = 0; p < n_pix; p++) {
      const mill_lanes *at = t->templ + (size_t)(i / MILL_EMULATOR_LANE) * n_pix + p;
      const int lane = i % MILL_EMULATOR_LANE;
      t->row[(size_t)i * n_pix + p] = log(fmax(at->v[lane / 4][lane % 4], DBL_MIN));
    }
  return MILL_OK;
}

/* Weights of four pixels for a row that is moved by shift pixels to the red, by the cubic through
   them, and their slopes with the shift; the first of the four for pixel EDGE. */
static int shift_weights(double shift, double *w, double *slope)
{
  const double whole = floor(-shift), u = -shift - whole;
  w[0] = -u * (u - 1) * (u - 2) / 6;
  w[1] = (u + 1) * (u - 1) * (u - 2) / 2;
  w[2] = -(u + 1) * u * (u - 2) / 2;
  w[3] = (u + 1) * u * (u - 1) / 6;
  slope[0] = (3 * u * u - 6 * u + 2) / 6;
  slope[1] = -(3 * u * u - 4 * u - 1) / 2;
  slope[2] = (3 * u * u - 2 * u - 2) / 2;
  slope[3] = -(3 * u * u - 1) / 6;
  return EDGE + (int)whole - 1;
}

static void weigh_row(const double *from, size_t n, const double *w, double *out)
{
  for (size_t p = 0; p < n; p++)
    out[p] = w[0] * from[p] + w[1] * from[p + 1] + w[2] * from[p + 2] + w[3] * from[p + 3];
}

/* Sum of squares of the data minus the templates; x: mapped labels, then velocity / SPEED_UNIT. */
static double misfit(void *context, const double *x, double *normal, double *rhs)
{
  task *t = context;
  const set *s = t->s;
  const mill_library *lib = s->lib;
  const int n_label = lib->n_label, n_par = n_label + 1, n = (int)n_fit_pix(s);
  const size_t pitch = n_fit_pix(s);
  for (int a = 0; a < lib->n_arm; a++) {
    const double per_unit = SPEED_UNIT / MILL_C_KM_S / lib->arm[a].ln_step;
    const double shift = x[n_label] * per_unit;
    const size_t n_pix = (size_t)lib->arm[a].n_pix, at = s->first[a], n_arm = arm_pix(lib, a);
    if (!(fabs(shift) < MAX_SHIFT))
      return INFINITY;
    if (t->err == MILL_OK)
      t->err = eval_rows(t, a, n_label + 1, x);
    if (t->err != MILL_OK)
      return INFINITY;
    double w[4], by_shift[4];
    const double *row = t->row + shift_weights(shift, w, by_shift);
    double *speed = t->slope + (size_t)n_label * pitch + at;
    weigh_row(row, n_arm, w, t->residual + at);
    weigh_row(row, n_arm, by_shift, speed);
    cblas_dscal((int)n_arm, per_unit, speed, 1);
    for (int l = 0; l < n_label; l++) {
      double *slope = t->slope + (size_t)l * pitch + at;
      weigh_row(row + (size_t)(l + 1) * n_pix, n_arm, w, slope);
      for (size_t p = 0; p < n_arm; p++)
        slope[p] = (slope[p] - t->residual[at + p]) / STEP;
    }
  }
  cblas_dscal(n, -1, t->residual, 1);
  cblas_daxpy(n, 1, t->data, 1, t->residual, 1);
  remove_continuum(s, 1, t->residual);
  remove_continuum(s, n_par, t->slope);
  const double weight = t->sn * t->sn;
  for (int i = 0; i < n_par; i++) {
    rhs[i] = weight * cblas_ddot(n, t->slope + (size_t)i * pitch, 1, t->residual, 1);
    for (int j = 0; j < n_par; j++)
      normal[i * n_par + j] =
          weight * cblas_ddot(n, t->slope + (size_t)i * pitch, 1, t->slope + (size_t)j * pitch, 1);
  }
  return weight * cblas_ddot(n, t->residual, 1, t->residual, 1);
}

/* Labels of the template of the initial guess that is most like the data. */
static void start(const task *t, double *x)
{
  const set *s = t->s;
  const mill_library *lib = s->lib;
  const size_t pitch = n_fit_pix(s), n_label = (size_t)lib->n_label;
  double least = INFINITY;
  int best = 0;
  for (int i = 0; i < lib->n_guess; i++) {
    const double *guess = s->guess + (size_t)i * pitch;
    double sum = 0;
    for (size_t p = 0; p < pitch; p++)
      sum += (t->data[p] - guess[p]) * (t->data[p] - guess[p]);
    if (sum < least) {
      least = sum;
      best = i;
    }
  }
  for (size_t l = 0; l < n_label; l++)
    x[l] = mill_label_map(&lib->label[l], lib->guess_label[(size_t)best * n_label + l]);
  x[n_label] = 0;
}

/* Labels and velocity in their units, and their errors; 0: not finite. */
static int take_result(const mill_library *lib, const double *x, double *normal, double *found,
                       double *sigma)
{
  const int n_par = lib->n_label + 1;
  if (LAPACKE_dpotrf(LAPACK_ROW_MAJOR, 'L', n_par, normal, n_par) != 0 ||
      LAPACKE_dpotri(LAPACK_ROW_MAJOR, 'L', n_par, normal, n_par) != 0)
    return 0;
  int good = 1;
  for (int i = 0; i < n_par; i++) {
    const int is_label = i < lib->n_label;
    found[i] = is_label ? mill_label_unmap(&lib->label[i], x[i]) : SPEED_UNIT * x[i];
    const double unit = is_label ? 1 / mill_label_map_slope(&lib->label[i], found[i]) : SPEED_UNIT;
    sigma[i] = unit * sqrt(normal[i * n_par + i]);
    good &= isfinite(found[i]) && isfinite(sigma[i]) && sigma[i] > 0;
  }
  return good;
}

/* Both fits of one spectrum at one S/N, with the same noise; x: where the first begins. */
static int fit_pair(task *t, const double *flux, const double *own, const double *noise, double *x,
                    mill_report_fit *out)
{
  double normal[MILL_LABEL_SEARCH_MAX * MILL_LABEL_SEARCH_MAX], other[MILL_MAX_LABEL + 1];
  double own_x[MILL_LABEL_SEARCH_MAX];
  const mill_library *lib = t->s->lib;
  const int n_par = lib->n_label + 1;
  const size_t n = n_fit_pix(t->s);
  for (int l = 0; l < lib->n_label; l++)
    own_x[l] = mill_label_map(&lib->label[l], out->truth[l]);
  own_x[lib->n_label] = 0;
  for (size_t p = 0; p < n; p++)
    t->data[p] = flux[p] + noise[p] / t->sn;
  remove_continuum(t->s, 1, t->data);
  if (!(fabs(x[0]) < INFINITY))
    start(t, x);
  mill_label_search(n_par, misfit, t, x, normal);
  out->good = take_result(lib, x, normal, out->found, out->sigma);
  for (size_t p = 0; p < n; p++)
    t->data[p] = own[p] + noise[p] / t->sn;
  remove_continuum(t->s, 1, t->data);
  mill_label_search(n_par, misfit, t, own_x, normal);
  out->good &= take_result(lib, own_x, normal, out->own_found, other);
  return t->err;
}

/* All fits of one spectrum; space [3][n_fit_pix]. */
static int fit_spectrum(task *t, const mill_model_set *in, int i, int n, int i_out, double *space,
                        mill_report_fit *out)
{
  const mill_library *lib = t->s->lib;
  const size_t pitch = n_fit_pix(t->s), n_label = (size_t)lib->n_label;
  double *flux = space, *own = flux + pitch, *noise = own + pitch, x[MILL_LABEL_SEARCH_MAX];
  double truth[MILL_MAX_LABEL];
  mill_random random;
  mill_random_begin(&random, 1, (uint64_t)i, NOISE_STREAM);
  for (size_t p = 0; p < pitch; p++)
    noise[p] = mill_random_normal(&random);
  for (size_t l = 0; l < n_label; l++)
    truth[l] = mill_label_map(&lib->label[l], in->label[(size_t)i * n_label + l]);
  for (int a = 0; a < lib->n_arm; a++) {
    const float *from = in->flux[a] + (size_t)i * (size_t)lib->arm[a].n_pix + EDGE;
    MILL_CHECK(eval_rows(t, a, 1, truth));
    for (size_t p = 0; p < arm_pix(lib, a); p++) {
      flux[t->s->first[a] + p] = log((double)from[p]);
      own[t->s->first[a] + p] = t->row[EDGE + p];
    }
  }
  x[0] = INFINITY; /* from the guess; at the next S/N from what was found */
  for (int s = 0; s < MILL_REPORT_N_SN; s++) {
    mill_report_fit *to = out + (size_t)s * (size_t)n + i_out;
    memcpy(to->truth, in->label + (size_t)i * n_label, n_label * sizeof *to->truth);
    t->sn = mill_report_sn[s];
    MILL_CHECK(fit_pair(t, flux, own, noise, x, to));
    if (!to->good)
      x[0] = INFINITY;
  }
  return MILL_OK;
}

/* ln of the templates of the initial guess in an arm. */
static int eval_guess(const mill_library *lib, int a, int n_thread, set *s)
{
  int err = MILL_OK;
  const size_t n_pix = (size_t)lib->arm[a].n_pix;
  const int n_group = (lib->n_guess + MILL_EMULATOR_LANE - 1) / MILL_EMULATOR_LANE;
  mill_lanes *templ = NULL;
  MILL_TRY(MILL_ALLOC((size_t)n_group * n_pix, &templ));
  MILL_TRY(mill_emulator_lanes(lib, a, lib->n_guess, lib->guess_label, n_thread, templ));
  for (int i = 0; i < lib->n_guess; i++) {
    const mill_lanes *from = templ + (size_t)(i / MILL_EMULATOR_LANE) * n_pix + EDGE;
    const int lane = i % MILL_EMULATOR_LANE;
    double *to = s->guess + (size_t)i * n_fit_pix(s) + s->first[a];
    for (size_t p = 0; p < arm_pix(lib, a); p++)
      to[p] = log(fmax(from[p].v[lane / 4][lane % 4], DBL_MIN));
  }
done:
  mill_free(templ);
  return err;
}

/* Continuum functions, and the templates of the initial guess. */
static int set_make(const mill_library *lib, int n_thread, set *s)
{
  s->lib = lib;
  for (int a = 0; a < lib->n_arm; a++) {
    if (lib->arm[a].n_pix < 2 * EDGE + 4 * N_CONT)
      return MILL_ERROR(MILL_ERR_INPUT,
                        "arm %s has %d pixels, too few to measure how well labels are found",
                        lib->arm[a].name, lib->arm[a].n_pix);
    s->first[a + 1] = s->first[a] + arm_pix(lib, a);
    MILL_CHECK(MILL_ALLOC(N_CONT * arm_pix(lib, a), &s->basis[a]));
    MILL_CHECK(make_basis((int)arm_pix(lib, a), s->basis[a]));
  }
  MILL_CHECK(MILL_ALLOC((size_t)lib->n_guess * n_fit_pix(s), &s->guess));
  for (int a = 0; a < lib->n_arm; a++)
    MILL_CHECK(eval_guess(lib, a, n_thread, s));
  remove_continuum(s, lib->n_guess, s->guess);
  return MILL_OK;
}

int mill_report_fits(const mill_library *lib, const mill_model_set *in, int n, const int *kept,
                     int n_thread, mill_report_fit *out)
{
  int err = MILL_OK, failed = MILL_OK;
  set s = {0};
  MILL_TRY(set_make(lib, n_thread, &s));
#pragma omp parallel num_threads(n_thread)
  {
    task t = {0};
    double *space = NULL;
    int code = task_make(&s, &t);
    if (code == MILL_OK)
      code = MILL_ALLOC(3 * n_fit_pix(&s), &space);
#pragma omp for schedule(dynamic, 1)
    for (int i = 0; i < n; i++)
      if (code == MILL_OK)
        code = fit_spectrum(&t, in, kept[i], n, i, space, out);
    if (code != MILL_OK) {
#pragma omp atomic write
      failed = code;
    }
    mill_free(space);
    task_clear(&t);
  }
  if (failed != MILL_OK) /* memory is all that can be missing */
    MILL_FAIL(failed, "no memory to measure how well labels are found");
done:
  set_clear(&s);
  return err;
}
