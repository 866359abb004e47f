/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/grid_emulators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/components.h"
#include "src/libraries/label_lattice.h"
#include "src/libraries/library_make.h"
#include "src/libraries/rbf.h"
#include "src/libraries/spline_grid.h"
#include "src/system/blas_threads.h"
#include "src/system/order.h"
#include "src/system/random.h"

enum {
  DEFAULT_DEGREE = 2,
  DEFAULT_GUESS = 300,
  MIN_MODEL = 12,
  MAX_RADIAL = 20000,          /* models: the time goes with their third power */
  LEFT_OUT_STREAM = 0x6c656674 /* "left": this purpose of the random numbers */
};

void mill_grid_settings_init(mill_grid_settings *settings)
{
  memset(settings, 0, sizeof *settings);
  settings->degree = DEFAULT_DEGREE;
  settings->smoothing = MILL_GRID_SMOOTHING;
  settings->n_guess = DEFAULT_GUESS;
  settings->n_thread = 1;
}

static int check_settings(const mill_grid_settings *s)
{
  return mill_library_make_check(s->n_component, s->smoothing, s->n_guess, s->n_thread);
}

/* Data shared by the steps. */
typedef struct work {
  const mill_grid_settings *set;
  const mill_grid_models *models;
  double *mapped;              /* [n][n_label] */
  mill_label_lattice lattice;  /* not of radial functions */
  double *score[MILL_MAX_ARM]; /* [n][n_component] of mean square 1 */
} work;

static void work_clear(work *w)
{
  mill_free(w->mapped);
  mill_label_lattice_clear(&w->lattice);
  for (int a = 0; a < MILL_MAX_ARM; a++)
    mill_free(w->score[a]);
}

/* ---- components ----------------------------------------------------------------------------- */

/* Keep the first n components of a layer and of the scores [n_row][..]. */
static void keep_components(int n, size_t n_row, mill_emulator *e, double *score)
{
  const size_t before = (size_t)e->n_in[0], now = (size_t)n;
  for (size_t p = 0; p < (size_t)e->n_out[0]; p++)
    memmove(e->weight[0] + p * now, e->weight[0] + p * before, now * sizeof(float));
  for (size_t i = 0; i < n_row; i++)
    memmove(score + i * now, score + i * before, now * sizeof *score);
  e->n_in[0] = n;
}

/* How many components of a layer it takes to leave at most MILL_GRID_LEFT (rms) of every model,
   when all of them leave `rest`; and what they leave. */
static int count_components(const mill_emulator *e, size_t n_row, const double *score, double rest,
                            int *n, double *n_left)
{
  int err = MILL_OK;
  const size_t q = (size_t)e->n_in[0], n_pix = (size_t)e->n_out[0];
  double *power = NULL,
         *left = NULL; /* mean square of a pixel per score of 1; [q + 1] of a model */
  MILL_TRY(MILL_ALLOC(q, &power));
  MILL_TRY(MILL_ALLOC(q + 1, &left));
  for (size_t p = 0; p < n_pix; p++)
    for (size_t k = 0; k < q; k++)
      power[k] += pow((double)e->weight[0][p * q + k], 2) / (double)n_pix;
  for (size_t i = 0; i < n_row; i++) {
    double sum = rest * rest;
    for (size_t k = q; k-- > 0;) {
      sum += power[k] * score[i * q + k] * score[i * q + k];
      left[k] = fmax(left[k], sqrt(sum));
    }
  }
  *n = 1;
  while (*n < (int)q && left[*n] > MILL_GRID_LEFT)
    ++*n;
  *n_left = fmax(left[*n], rest);
done:
  MILL_FREE(power, left);
  return err;
}

/* The last layer of an arm with q components, or with as many as there can be, and the models'
   scores; *left: what they leave of the worst model. */
static int try_layer(work *w, mill_arm *arm, int i_arm, int q, double *left)
{
  int err = MILL_OK;
  mill_spectra_matrix m = {w->models->n, arm->n_pix, arm->n_pix, NULL};
  mill_emulator *e = &arm->emulator;
  if (q > mill_components_most(&m))
    q = mill_components_most(&m);
  mill_free(w->score[i_arm]);
  MILL_FREE(e->weight[0], e->bias[0]);
  w->score[i_arm] = NULL;
  e->weight[0] = e->bias[0] = NULL;
  MILL_TRY(MILL_ALLOC((size_t)w->models->n * (size_t)q, &w->score[i_arm]));
  MILL_TRY(MILL_ALLOC((size_t)w->models->n * (size_t)arm->n_pix, &m.x));
  MILL_TRY(w->models->read(w->models->from, i_arm, w->models->n, w->models->row, m.x));
  MILL_TRY(mill_components_layer(w->set->n_thread, &m, q, e, w->score[i_arm]));
  MILL_TRY(mill_components_left(w->set->n_thread, &m, e, w->score[i_arm], left));
done:
  mill_free(m.x);
  return err;
}

/* The last layer of an arm, with components by the settings. */
static int make_layer(work *w, mill_arm *arm, int i_arm, mill_grid_facts *facts)
{
  int q = 0;
  mill_emulator *e = &arm->emulator;
  double left = 0;
  if (w->set->way == MILL_WAY_LINEAR && w->set->n_component == 0) {
    MILL_CHECK(try_layer(w, arm, i_arm, 2 * MILL_GRID_COMPONENT, &left));
    if (left > MILL_GRID_LEFT && e->n_in[0] == 2 * MILL_GRID_COMPONENT)
      MILL_CHECK(try_layer(w, arm, i_arm, MILL_MAX_WIDTH, &left));
    MILL_CHECK(count_components(e, (size_t)w->models->n, w->score[i_arm], left, &q, &left));
    keep_components(q, (size_t)w->models->n, e, w->score[i_arm]);
  } else {
    q = w->set->n_component ? w->set->n_component : MILL_GRID_COMPONENT;
    MILL_CHECK(try_layer(w, arm, i_arm, q, &left));
  }
  facts->n_component[i_arm] = e->n_in[0];
  facts->left[i_arm] = left;
  return MILL_OK;
}

/* ---- the ways ------------------------------------------------------------------------------- */

/* Scores at all nodes of the grid, then functions through them. */
static int make_grid(const work *w, mill_emulator *e, const double *score)
{
  int err = MILL_OK;
  const mill_label_lattice *lattice = &w->lattice;
  const int linear = w->set->way == MILL_WAY_LINEAR;
  const size_t q = (size_t)e->n_in[0], n_all = (size_t)lattice->n_all;
  const double *const *node = (const double *const *)lattice->node;
  double *value = NULL;
  if (n_all * q > MILL_MAX_GRID_COEF)
    MILL_FAIL(MILL_ERR_INPUT,
              "a grid of %zu nodes and %zu components has more than %d numbers; "
              "give fewer --components",
              n_all, q, MILL_MAX_GRID_COEF);
  MILL_TRY(MILL_ALLOC(n_all * q, &value));
  for (size_t i = 0; i < n_all; i++)
    if (lattice->model[i] >= 0)
      memcpy(value + i * q, score + (size_t)lattice->model[i] * q, q * sizeof *value);
  MILL_TRY(mill_label_lattice_fill(lattice, !linear, e->n_in[0], value));
  e->kind = MILL_EMULATOR_GRID;
  if (linear)
    MILL_TRY(mill_spline_grid_linear(lattice->n_axis, lattice->n_node, node, e->n_in[0], value,
                                     &e->grid));
  else
    MILL_TRY(
        mill_spline_grid_fit(lattice->n_axis, lattice->n_node, node, e->n_in[0], value, &e->grid));
done:
  mill_free(value);
  return err;
}

/* The columns of one arm, from one on, of radial functions with those of all. */
static int take_columns(const mill_rbf *all, size_t from, int n_out, mill_rbf *rbf)
{
  const size_t n_row = (size_t)all->n_center + (size_t)all->n_poly, q = (size_t)n_out;
  const size_t n_number = (size_t)all->n_center * (size_t)all->n_axis;
  *rbf = *all;
  rbf->center = NULL;
  rbf->coef = NULL;
  rbf->n_out = n_out;
  MILL_CHECK(MILL_ALLOC(n_number, &rbf->center));
  memcpy(rbf->center, all->center, n_number * sizeof *rbf->center);
  MILL_CHECK(MILL_ALLOC(n_row * q, &rbf->coef));
  for (size_t i = 0; i < n_row; i++)
    memcpy(rbf->coef + i * q, all->coef + i * (size_t)all->n_out + from, q * sizeof *rbf->coef);
  return MILL_OK;
}

/* Radial functions of all arms at once: what takes the time depends on the labels alone. */
static int make_radial(const work *w, mill_library *lib, mill_grid_facts *facts)
{
  int err = MILL_OK, n_out = 0;
  double *value = NULL, smooth[MILL_RBF_MAX_SMOOTH], length[MILL_MAX_GRID_AXIS];
  mill_rbf_fit *fit = NULL;
  mill_rbf all = {0};
  for (int a = 0; a < lib->n_arm; a++)
    n_out += lib->arm[a].emulator.n_in[0];
  if (n_out > MILL_MAX_WIDTH)
    MILL_FAIL(MILL_ERR_INPUT, "%d components in all arms, at most %d: give fewer --components",
              n_out, MILL_MAX_WIDTH);
  MILL_TRY(MILL_ALLOC((size_t)w->models->n * (size_t)n_out, &value));
  size_t from = 0;
  for (int a = 0; a < lib->n_arm; from += (size_t)lib->arm[a++].emulator.n_in[0]) {
    const size_t q = (size_t)lib->arm[a].emulator.n_in[0];
    for (size_t i = 0; i < (size_t)w->models->n; i++)
      memcpy(value + i * (size_t)n_out + from, w->score[a] + i * q, q * sizeof *value);
  }
  for (int l = 0; l < MILL_MAX_GRID_AXIS; l++)
    length[l] = 1;
  const mill_rbf_problem problem = {.n_axis = lib->n_label,
                                    .n_point = w->models->n,
                                    .n_out = n_out,
                                    .degree = w->set->degree,
                                    .n_smooth = mill_rbf_smoothings(w->set->smoothing, smooth),
                                    .x = w->mapped,
                                    .length = length,
                                    .value = value,
                                    .smooth = smooth,
                                    .tolerance = 0};
  MILL_TRY(mill_rbf_fit_create(&problem, &fit));
  MILL_TRY(mill_rbf_fit_export(fit, &all));
  facts->smooth_min = INFINITY;
  for (int k = 0; k < n_out; k++) {
    facts->smooth_min = fmin(facts->smooth_min, mill_rbf_fit_smooth(fit)[k]);
    facts->smooth_max = fmax(facts->smooth_max, mill_rbf_fit_smooth(fit)[k]);
  }
  from = 0;
  for (int a = 0; a < lib->n_arm; from += (size_t)lib->arm[a++].emulator.n_in[0]) {
    lib->arm[a].emulator.kind = MILL_EMULATOR_RBF;
    MILL_TRY(take_columns(&all, from, lib->arm[a].emulator.n_in[0], &lib->arm[a].emulator.rbf));
  }
done:
  mill_free(value);
  mill_rbf_fit_destroy(fit);
  mill_rbf_clear(&all);
  return err;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Labels, hulls and templates of the guess. */
static int make_frame(work *w, mill_library *lib)
{
  const mill_grid_models *models = w->models;
  const size_t n_value = (size_t)models->n * (size_t)lib->n_label;
  MILL_CHECK(MILL_ALLOC(n_value, &w->mapped));
  MILL_CHECK(mill_library_make_labels(models->n, models->value, lib, w->mapped));
  MILL_CHECK(mill_library_make_hulls(models->n, w->mapped, w->set->hulls, lib));
  return mill_library_spread_guess(models->n, models->value, w->mapped, NULL, w->set->n_guess, lib,
                                   NULL);
}

/* The grid that the models' labels are on, or none. */
static int make_lattice(work *w, const mill_library *lib, mill_grid_facts *facts)
{
  const int least = w->set->way == MILL_WAY_LINEAR ? 2 : 4;
  if (w->set->way == MILL_WAY_RADIAL)
    return MILL_OK;
  MILL_CHECK(mill_label_lattice_find(lib, w->models->n, w->mapped, w->models->name, &w->lattice));
  for (int l = 0; l < lib->n_label; l++) {
    facts->n_node[l] = w->lattice.n_node[l];
    if (w->lattice.n_node[l] < least)
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "label %s has %d values; splines need 4, --emulator linear 2 and radial none",
          lib->label[l].name, w->lattice.n_node[l]);
  }
  if (!w->set->fill_gaps)
    MILL_CHECK(mill_label_lattice_refuse_gaps(lib, &w->lattice));
  facts->n_filled = w->lattice.n_gap;
  return MILL_OK;
}

static int make(work *w, mill_library *lib, mill_grid_facts *facts)
{
  const mill_grid_models *models = w->models;
  MILL_CHECK(check_settings(w->set));
  if (lib->n_label < 1 || lib->n_label > MILL_MAX_GRID_AXIS)
    return MILL_ERROR(MILL_ERR_INPUT, "models with %d labels; this emulator takes 1 to %d",
                      lib->n_label, MILL_MAX_GRID_AXIS);
  if (models->n < MIN_MODEL)
    return MILL_ERROR(MILL_ERR_INPUT, "%d good models; a library needs at least %d", models->n,
                      MIN_MODEL);
  if (w->set->way == MILL_WAY_RADIAL && models->n > MAX_RADIAL)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%d models; radial functions take %d at most: use --emulator network, splines or linear",
        models->n, MAX_RADIAL);
  MILL_CHECK(make_frame(w, lib));
  MILL_CHECK(make_lattice(w, lib, facts));
  for (int a = 0; a < lib->n_arm; a++) {
    MILL_CHECK(make_layer(w, &lib->arm[a], a, facts));
    if (w->set->way == MILL_WAY_RADIAL)
      continue;
    MILL_CHECK(make_grid(w, &lib->arm[a].emulator, w->score[a]));
    mill_free(w->score[a]);
    w->score[a] = NULL;
  }
  if (w->set->way == MILL_WAY_RADIAL)
    MILL_CHECK(make_radial(w, lib, facts));
  return MILL_OK;
}

int mill_grid_emulators_make(const mill_grid_settings *settings, const mill_grid_models *models,
                             mill_library *lib, mill_grid_facts *facts)
{
  int err = MILL_OK, n_blas = 0;
  work w = {.set = settings, .models = models};
  memset(facts, 0, sizeof *facts);
  MILL_TRY(mill_blas_begin(settings->n_thread, &n_blas));
  MILL_TRY(make(&w, lib, facts));
done:
  mill_blas_end(n_blas);
  work_clear(&w);
  if (err != MILL_OK)
    mill_library_clear(lib);
  return err;
}

/* ---- models to leave out -------------------------------------------------------------------- */

/* Is no label of model i the least or the largest of all, where there are values between? */
static int is_between(const mill_grid_models *models, const mill_library *lib, int i)
{
  const size_t n_label = (size_t)lib->n_label;
  for (size_t l = 0; l < n_label; l++) {
    const double x = models->value[(size_t)i * n_label + l];
    double low = INFINITY, high = -INFINITY;
    int n_between = 0;
    for (size_t j = 0; j < (size_t)models->n; j++) {
      low = fmin(low, models->value[j * n_label + l]);
      high = fmax(high, models->value[j * n_label + l]);
    }
    for (size_t j = 0; j < (size_t)models->n; j++)
      n_between += models->value[j * n_label + l] > low && models->value[j * n_label + l] < high;
    if (n_between > 0 && !(x > low && x < high))
      return 0;
  }
  return 1;
}

static int is_free(const mill_label_lattice *lattice, int i_node, const unsigned char *out)
{
  for (int l = 0; l < lattice->n_axis; l++)
    for (int step = -1; step <= 1; step += 2) {
      const int next = mill_label_lattice_next(lattice, i_node, l, step);
      if (next >= 0 && lattice->model[next] >= 0 && out[lattice->model[next]])
        return 0;
    }
  return 1;
}

int mill_grid_choose_left_out(int way, const mill_grid_models *models, const mill_library *lib,
                              int n_wanted, uint64_t seed, unsigned char *out, int *n_out)
{
  int err = MILL_OK;
  mill_weighed *order = NULL;
  int *node = NULL;
  double *mapped = NULL;
  mill_library *labels = NULL;
  mill_label_lattice lattice = {0};
  const size_t n = (size_t)models->n;
  *n_out = 0;
  memset(out, 0, n);
  MILL_TRY(MILL_ALLOC(n, &order));
  MILL_TRY(MILL_ALLOC(n, &node));
  MILL_TRY(MILL_ALLOC(n * (size_t)lib->n_label, &mapped));
  if (way != MILL_WAY_RADIAL) {
    MILL_TRY(MILL_ALLOC(1, &labels));
    labels->n_label = lib->n_label;
    memcpy(labels->label, lib->label, sizeof lib->label);
    MILL_TRY(mill_library_make_labels(models->n, models->value, labels, mapped));
    MILL_TRY(mill_label_lattice_find(labels, models->n, mapped, models->name, &lattice));
    for (int i = 0; i < lattice.n_all; i++)
      if (lattice.model[i] >= 0)
        node[lattice.model[i]] = i;
  }
  for (int i = 0; i < models->n; i++) {
    mill_random r;
    mill_random_begin(&r, seed, (uint64_t)i, LEFT_OUT_STREAM);
    order[i] = (mill_weighed){mill_random_uniform(&r), i};
  }
  qsort(order, n, sizeof *order, mill_by_weight);
  for (size_t j = 0; j < n && *n_out < n_wanted; j++) {
    const int i = order[j].place;
    const int fits = way == MILL_WAY_RADIAL ? is_between(models, lib, i)
                                            : mill_label_lattice_is_inner(&lattice, node[i]) &&
                                                  is_free(&lattice, node[i], out);
    out[i] = (unsigned char)fits;
    *n_out += fits;
  }
done:
  MILL_FREE(order, node, mapped, labels);
  mill_label_lattice_clear(&lattice);
  return err;
}
