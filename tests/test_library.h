/* SPDX-License-Identifier: BSD-3-Clause */
/** A small made-up library for tests that need one but no particular stars.
 *
 *  It has 3 or 4 labels (teff, logg, feh, alpha; teff mapped by log10), in box-shaped hulls over
 *  labels (0, 1) and (2) or (2, 3).  Arms b, r, z have some hundred pixels of ln flux, with smooth
 *  lines that depend on the labels. */
#pragma once

#include <stdio.h>

#include <lapacke.h>

#include "kernels/base/memory.h"
#include "kernels/math/rbf.h"
#include "src/pipeline/emulator.h"

/* xorshift64*: the same numbers on every machine, in [-1, 1) */
static inline double test_library_random(uint64_t *state)
{
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return (double)((*state * 0x2545F4914F6CDD1Dull) >> 11) / 4503599627370496.0 - 1;
}

/** The label's value at a mapped coordinate: the inverse of mill_label_map. */
static inline double test_label_unmap(const mill_label *label, double mapped)
{
  const double x = mapped * label->std + label->mean;
  return label->mapping == MILL_MAP_LOG10 ? pow(10.0, x) : x;
}

static inline int test_library_box(int n_label, int first, mill_hull *hull)
{
  int err = MILL_OK;
  const int n_col = n_label + 1;
  hull->n_label = n_label;
  hull->n_facet = 2 * n_label;
  MILL_TRY(MILL_ALLOC(hull->n_facet * n_col, &hull->facet));
  for (int i = 0; i < n_label; i++) {
    hull->label[i] = first + i;
    for (int side = 0; side < 2; side++) {
      double *facet = hull->facet + (2 * i + side) * n_col;
      facet[i] = side ? 1 : -1;
      facet[n_label] = -1.6;
    }
  }
done:
  return err;
}

static inline int test_library_arm(int n_label, int i_arm, uint64_t *state, mill_arm *arm)
{
  static const double start_aa[] = {4000, 5900, 7600};
  int err = MILL_OK;
  mill_emulator *net = &arm->emulator;
  snprintf(arm->setup, sizeof arm->setup, "test_%c", arm->name[0]);
  snprintf(arm->sigma_origin, sizeof arm->sigma_origin, "made up");
  arm->n_pix = 400 + 37 * i_arm;
  arm->ln_wave0 = log(start_aa[i_arm]);
  arm->ln_step = 8e-5;
  arm->template_sigma_aa = 0.5;
  MILL_TRY(MILL_ALLOC(arm->n_pix, &arm->wave_aa));
  for (int i = 0; i < arm->n_pix; i++)
    arm->wave_aa[i] = exp(arm->ln_wave0 + i * arm->ln_step);
  const int width[] = {n_label, 12, 9, arm->n_pix};
  net->log_flux = 1;
  net->n_layer = 3;
  for (int k = 0; k < net->n_layer; k++) {
    const int n_in = net->n_in[k] = width[k], n_out = net->n_out[k] = width[k + 1];
    MILL_TRY(MILL_ALLOC(n_in * n_out, &net->weight[k]));
    MILL_TRY(MILL_ALLOC(n_out, &net->bias[k]));
    if (k < net->n_layer - 1) {
      for (int i = 0; i < n_in * n_out; i++)
        net->weight[k][i] = (float)(1.5 * test_library_random(state) / sqrt(n_in));
      for (int i = 0; i < n_out; i++)
        net->bias[k][i] = (float)(0.5 * test_library_random(state));
      continue;
    }
    /* each last neuron brings absorption lines of its own, 3 pixels wide */
    for (int j = 0; j < n_in; j++)
      for (int i_line = 0; i_line < 6; i_line++) {
        const double centre = 0.5 * (1 + test_library_random(state)) * (n_out - 1);
        const double depth = 0.1 * (1 + test_library_random(state));
        for (int i = 0; i < n_out; i++)
          net->weight[k][i * n_in + j] -= (float)(depth * exp(-0.5 * pow((i - centre) / 3, 2)));
      }
  }
done:
  return err;
}

/** Give lib n_label (up to 4) labels with units and ranges, and the names of n_arm (up to 3)
 *  arms. */
static inline void test_library_name(int n_label, int n_arm, mill_library *lib)
{
  static const mill_label label[] = {
      {"teff", "TEFF", "K", MILL_MAP_LOG10, 3.74, 0.07, 4300, 7000, 60, 0, 0, 0, 0},
      {"logg", "LOGG", "log(cm s**-2)", MILL_MAP_LINEAR, 2.9, 1.4, 0.7, 5.1, 0.15, 0, 0, 0, 0},
      {"feh", "FEH", "dex", MILL_MAP_LINEAR, -1.25, 1.1, -3, 0.5, 0.1, 0, 0, 0, 0},
      {"alpha", "ALPHAFE", "dex", MILL_MAP_LINEAR, 0.2, 0.16, -0.05, 0.45, 0.05, 0, 0, 0, 0}};
  lib->n_label = n_label;
  memcpy(lib->label, label, (size_t)n_label * sizeof *label);
  lib->n_arm = n_arm;
  for (int i = 0; i < n_arm; i++)
    snprintf(lib->arm[i].name, sizeof lib->arm[i].name, "%c", "brz"[i]);
}

/** Make a library of n_label (3 or 4) labels and n_arm (1 to 3) arms.  lib must be zeroed before
 *  and cleared with mill_library_clear; lib->hash is left empty. */
static inline int test_library_make(int n_label, int n_arm, uint64_t seed, mill_library *lib)
{
  int err = MILL_OK;
  uint64_t state = seed * 2 + 1;
  snprintf(lib->name, sizeof lib->name, "made up for a test");
  test_library_name(n_label, n_arm, lib);
  lib->n_hull = 2;
  MILL_TRY(test_library_box(2, 0, &lib->hull[0]));
  MILL_TRY(test_library_box(n_label - 2, 2, &lib->hull[1]));
  for (int i = 0; i < n_arm; i++)
    MILL_TRY(test_library_arm(n_label, i, &state, &lib->arm[i]));
  lib->n_guess = 20;
  MILL_TRY(MILL_ALLOC(lib->n_guess * n_label, &lib->guess_label));
  for (int i = 0; i < lib->n_guess * n_label; i++) {
    const mill_label *l = &lib->label[i % n_label];
    const double p = l->mean + 1.5 * test_library_random(&state) * l->std;
    lib->guess_label[i] = l->mapping == MILL_MAP_LOG10 ? pow(10, p) : p;
  }
  lib->n_guess_vsini = 2;
  lib->guess_vsini_km_s[1] = 100;
done:
  if (err != MILL_OK)
    mill_library_clear(lib);
  return err;
}

/** Add neurons to the networks, to sizes that no tile divides.  The new neurons change templates a
 *  hundredth as much as the others. */
static inline int test_library_widen(uint64_t seed, mill_library *lib)
{
  int err = MILL_OK;
  enum { N_FIRST = 45, N_LAST = 71 };
  uint64_t state = seed;
  for (int a = 0; a < lib->n_arm; a++) {
    mill_emulator *net = &lib->arm[a].emulator;
    const int width[] = {net->n_in[0], N_FIRST, N_LAST, lib->arm[a].n_pix};
    for (int k = 0; k < net->n_layer; k++) {
      const int n_in = width[k], n_out = width[k + 1], last = k == net->n_layer - 1;
      const double scale = last ? 1e-3 : 1.5 / sqrt(n_in);
      float *weight = NULL, *bias = NULL;
      MILL_TRY(MILL_ALLOC(n_in * n_out, &weight));
      MILL_TRY(MILL_ALLOC(n_out, &bias));
      for (int i = 0; i < n_out; i++) {
        const int old = i < net->n_out[k];
        bias[i] = old ? net->bias[k][i] : (float)(0.5 * test_library_random(&state));
        for (int j = 0; j < n_in; j++)
          weight[i * n_in + j] = old && j < net->n_in[k]
                                     ? net->weight[k][i * net->n_in[k] + j]
                                     : (float)(scale * test_library_random(&state));
      }
      mill_free(net->weight[k]);
      mill_free(net->bias[k]);
      net->weight[k] = weight;
      net->bias[k] = bias;
    }
    for (int k = 0; k < net->n_layer; k++) {
      net->n_in[k] = width[k];
      net->n_out[k] = width[k + 1];
    }
  }
done:
  return err;
}

/* Outputs of net's hidden layers at mapped labels x, to out [1024]. */
static inline void test_library_hidden(const mill_emulator *net, const double *x, double *out)
{
  double in[MILL_MAX_WIDTH];
  memcpy(in, x, (size_t)net->n_in[0] * sizeof *x);
  for (int k = 0; k < net->n_layer - 1; k++) {
    for (int i = 0; i < net->n_out[k]; i++) {
      double sum = (double)net->bias[k][i];
      for (int j = 0; j < net->n_in[k]; j++)
        sum += (double)net->weight[k][i * net->n_in[k] + j] * in[j];
      out[i] = sum / (1 + exp(-sum));
    }
    memcpy(in, out, (size_t)net->n_out[k] * sizeof *in);
  }
}

/* Keep net's last layer, but free its hidden layers: a front of another kind replaces them. */
static inline void test_library_keep_last(mill_emulator *net, int kind)
{
  const int last = net->n_layer - 1;
  net->kind = kind;
  for (int k = 0; k < last; k++) {
    mill_free(net->weight[k]);
    mill_free(net->bias[k]);
  }
  net->weight[0] = net->weight[last];
  net->bias[0] = net->bias[last];
  net->n_in[0] = net->n_in[last];
  net->n_out[0] = net->n_out[last];
  for (int k = 1; k <= last; k++) {
    net->weight[k] = net->bias[k] = NULL;
    net->n_in[k] = net->n_out[k] = 0;
  }
  net->n_layer = 1;
}

/** Replace the hidden layers of every arm by a grid of splines that approximates them.  Each label
 *  has four to seven functions; their uneven knots reach from -1.5 to 1.5, less far than the hulls.
 *  A coefficient is the layers' value at the mean of three knots (Schoenberg). */
static inline int test_library_to_grid(mill_library *lib)
{
  int err = MILL_OK;
  for (int a = 0; a < lib->n_arm; a++) {
    mill_emulator *net = &lib->arm[a].emulator;
    mill_spline_grid *grid = &net->grid;
    const int n_out = net->n_in[net->n_layer - 1];
    double hidden[MILL_MAX_WIDTH];
    size_t n_point = 1;
    grid->n_axis = lib->n_label;
    grid->n_out = n_out;
    for (int l = 0; l < lib->n_label; l++) {
      const int n = grid->n_node[l] = 4 + (l + a) % 4;
      MILL_TRY(MILL_ALLOC(n + 4, &grid->knot[l]));
      for (int i = 0; i < n + 4; i++) {
        const double u = fmin(fmax(2.0 * (i - 3) / (n - 3) - 1, -1), 1);
        grid->knot[l][i] = 1.5 * u + 0.1 * (1 - u * u);
      }
      n_point *= (size_t)n;
    }
    MILL_TRY(MILL_ALLOC(n_point * (size_t)n_out, &grid->coef));
    for (size_t p = 0; p < n_point; p++) {
      double x[MILL_MAX_GRID_AXIS];
      size_t rest = p;
      for (int l = lib->n_label - 1; l >= 0; l--) {
        const double *knot = grid->knot[l] + rest % (size_t)grid->n_node[l];
        x[l] = (knot[1] + knot[2] + knot[3]) / 3;
        rest /= (size_t)grid->n_node[l];
      }
      test_library_hidden(net, x, hidden);
      for (int k = 0; k < n_out; k++)
        grid->coef[p * (size_t)n_out + (size_t)k] = (float)hidden[k];
    }
    test_library_keep_last(net, MILL_EMULATOR_GRID);
  }
done:
  return err;
}

/** Read a grid of cubic splines as a linear one: coefficients become values at even nodes. */
static inline void test_library_to_linear(mill_spline_grid *grid)
{
  grid->linear = 1;
  for (int l = 0; l < grid->n_axis; l++)
    for (int i = 0; i < grid->n_node[l] + 2; i++) {
      const int at = i < 1 ? 0 : (i > grid->n_node[l] ? grid->n_node[l] - 1 : i - 1);
      grid->knot[l][i] = 3.0 * at / (grid->n_node[l] - 1) - 1.5;
    }
}

/* Interpolate net's hidden layers between rbf's centers by radial functions and a polynomial.  The
 * caller gives zeros for work: matrix [n][n] and value [n][n_out], n = n_center + n_poly. */
static inline int test_library_solve_rbf(const mill_emulator *net, const mill_rbf *rbf,
                                         double *matrix, double *value)
{
  const int n_axis = rbf->n_axis, n = rbf->n_center + rbf->n_poly;
  lapack_int pivot[256];
  for (int i = 0; i < rbf->n_center; i++) {
    const double *x = rbf->center + i * n_axis;
    double u[MILL_MAX_GRID_AXIS], slope[MILL_MAX_GRID_AXIS], hidden[MILL_MAX_WIDTH];
    int exponent[MILL_MAX_GRID_AXIS] = {0};
    for (int l = 0; l < n_axis; l++)
      u[l] = x[l] / rbf->length[l];
    for (int j = 0; j < rbf->n_center; j++) {
      double r2 = 0;
      for (int l = 0; l < n_axis; l++)
        r2 += pow(u[l] - rbf->center[j * n_axis + l] / rbf->length[l], 2);
      matrix[i * n + j] = pow(r2, 1.5);
    }
    for (int j = rbf->n_center; j < n; j++) {
      matrix[i * n + j] = matrix[j * n + i] = mill_rbf_monomial(n_axis, exponent, u, slope);
      mill_rbf_next_monomial(n_axis, exponent);
    }
    test_library_hidden(net, x, hidden);
    memcpy(value + i * rbf->n_out, hidden, (size_t)rbf->n_out * sizeof *value);
  }
  return LAPACKE_dgesv(LAPACK_ROW_MAJOR, n, rbf->n_out, matrix, n, pivot, value, rbf->n_out) == 0
             ? MILL_OK
             : MILL_ERROR(MILL_ERR_INTERNAL, "no radial functions");
}

/** Replace the hidden layers of every arm by radial functions that interpolate them at scattered
 *  points, as far as the hulls reach, with a polynomial of the labels (degree 1 to 3). */
static inline int test_library_to_rbf(mill_library *lib)
{
  enum { N_POINT = 70 };
  static const double length[MILL_MAX_GRID_AXIS] = {1.3, 0.8, 1, 1, 1, 1};
  int err = MILL_OK;
  uint64_t state = 4711;
  double *value = NULL, *matrix = NULL;
  for (int a = 0; a < lib->n_arm; a++) {
    mill_emulator *net = &lib->arm[a].emulator;
    mill_rbf *rbf = &net->rbf;
    rbf->n_axis = lib->n_label;
    rbf->n_center = N_POINT;
    rbf->degree = 1 + a % 3;
    rbf->n_poly = mill_rbf_n_poly(rbf->n_axis, rbf->degree);
    rbf->n_out = net->n_in[net->n_layer - 1];
    memcpy(rbf->length, length, (size_t)rbf->n_axis * sizeof *length);
    const int n = N_POINT + rbf->n_poly;
    MILL_TRY(MILL_ALLOC(N_POINT * rbf->n_axis, &rbf->center));
    MILL_TRY(MILL_ALLOC(n * rbf->n_out, &rbf->coef));
    MILL_TRY(MILL_ALLOC(n * rbf->n_out, &value));
    MILL_TRY(MILL_ALLOC(n * n, &matrix));
    for (int i = 0; i < N_POINT * rbf->n_axis; i++)
      rbf->center[i] = 1.6 * test_library_random(&state);
    MILL_TRY(test_library_solve_rbf(net, rbf, matrix, value));
    for (int i = 0; i < n * rbf->n_out; i++)
      rbf->coef[i] = (float)value[i];
    test_library_keep_last(net, MILL_EMULATOR_RBF);
    MILL_FREE(value, matrix);
    value = matrix = NULL;
  }
done:
  MILL_FREE(value, matrix);
  return err;
}

/** Give the first arm splines and the second radial functions.  The others keep their networks. */
static inline int test_library_to_mixed(mill_library *lib)
{
  int err = MILL_OK;
  for (int a = 0; a < 2 && a < lib->n_arm; a++) {
    mill_library *alone = NULL;
    MILL_TRY(MILL_ALLOC(1, &alone));
    alone->n_label = lib->n_label;
    alone->n_arm = 1;
    alone->arm[0] = lib->arm[a];
    err = a == 0 ? test_library_to_grid(alone) : test_library_to_rbf(alone);
    lib->arm[a] = alone->arm[0];
    mill_free(alone);
    if (err != MILL_OK)
      break;
  }
done:
  return err;
}

/** A model error for every arm: waves of several periods as components. */
static inline int test_library_add_error(int n_component, mill_library *lib)
{
  int err = MILL_OK;
  for (int a = 0; a < lib->n_arm; a++) {
    mill_model_error *error = &lib->arm[a].error;
    const size_t n = (size_t)lib->arm[a].n_pix;
    MILL_TRY(MILL_ALLOC(n, &error->fraction));
    for (size_t i = 0; i < n; i++)
      error->fraction[i] = (float)(0.004 + 0.002 * sin(0.05 * (double)i));
    error->correlation = 2.5;
    error->n_component = n_component;
    if (n_component == 0)
      continue;
    MILL_TRY(MILL_ALLOC((size_t)n_component * n, &error->component));
    for (int j = 0; j < n_component; j++) {
      error->sigma[j] = 0.01 / (1 + j);
      for (size_t i = 0; i < n; i++)
        error->component[(size_t)j * n + i] =
            (float)sin(6.283185307179586 * ((double)i / (9 + 4 * j) + 0.13 * j));
    }
  }
done:
  return err;
}

/** Add two sky components, one of lines and one continuum, at 50 to 80 % of each arm's pixels. */
static inline int test_library_add_sky(mill_library *lib)
{
  enum { N = 40 };
  int err = MILL_OK;
  for (int a = 0; a < lib->n_arm; a++) {
    mill_arm *arm = &lib->arm[a];
    mill_sky *sky = &arm->sky;
    const double first = arm->wave_aa[arm->n_pix / 2], last = arm->wave_aa[arm->n_pix * 8 / 10];
    MILL_TRY(MILL_ALLOC(N, &sky->wave_aa));
    MILL_TRY(MILL_ALLOC(2 * N, &sky->component));
    sky->n_component = 2;
    sky->n_pix = N;
    for (int k = 0; k < N; k++) {
      sky->wave_aa[k] = first + (last - first) * k / (N - 1);
      sky->component[k] = k % 3 == 0 ? 0.5f : 0.0f;
      sky->component[N + k] = 1.0f + 0.1f * (float)(k % 7);
    }
  }
done:
  return err;
}

/** The library with emulators of a kind, MILL_EMULATOR_MLP as it is made. */
static inline int test_library_to(mill_library *lib, int kind)
{
  return kind == MILL_EMULATOR_GRID
             ? test_library_to_grid(lib)
             : (kind == MILL_EMULATOR_RBF ? test_library_to_rbf(lib) : MILL_OK);
}

/** Spectrum of an arm at labels [n_label], as the initial guess makes it: flux [n_pix]. */
static inline int test_emulator_eval(const mill_library *lib, int arm, const double *label,
                                     double *flux)
{
  int err = MILL_OK;
  const int n_pix = lib->arm[arm].n_pix;
  mill_lanes *all = NULL;
  MILL_TRY(MILL_ALLOC(n_pix, &all));
  MILL_TRY(mill_emulator_lanes(lib, arm, 1, label, 1, all));
  for (int i = 0; i < n_pix; i++)
    flux[i] = all[i].v[0][0];
done:
  mill_free(all);
  return err;
}
