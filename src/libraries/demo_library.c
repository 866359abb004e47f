#include "src/libraries/demo_library.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/math/hull.h"
#include "kernels/base/clock.h"
#include "src/libraries/library_make.h"
#include "src/libraries/smooth_median.h"
#include "src/line_model/line_model.h"
#include "src/system/random.h"

enum {
  N_ARM = 3,
  DEFAULT_COMPONENT_COARSE = 32,
  HELD_OUT_STREAM = 0x64656d6f /* "demo": this purpose of the random numbers */
};

/* Gaussian wings beyond this many sigma are left out: 6e-7 of the area. */
#define KERNEL_SIGMA 5.0

/* DESI's pixels (3600 to 5800, 5760 to 7620, 7520 to 9824 A) at +-3000 km/s.  Steps are in the line
   model's own: nothing is resampled.  They are as fine as it takes for a cubic spline between
   pixels to carry lines of 0.5 A sigma (docs/science/demo-library.md). */
static const struct {
  const char *name;
  double min_aa, max_aa;
  int n_step;
} arm_layout[N_ARM] = {{"b", 3550, 5860, 6}, {"r", 5700, 7700, 5}, {"z", 7430, 9930, 4}};

/* Nodes of each label: evenly spaced in the mapped label but for the shares by which they are
   closer at both ends, where cubic splines err most, and at the low end of Teff and log g, where
   spectra change fastest (node_position). Found by trial for the least error. */
static const struct {
  int n_node, n_node_coarse;
  double crowding, lean;
} axis_layout[MILL_LINE_N_LABEL] = {{14, 5, 0.1, 0.2}, /* Teff */
                                    {8, 4, 0.1, 0.3},  /* log g */
                                    {9, 4, 0.2, 0},    /* [Fe/H] */
                                    {4, 4, 0.2, 0}};   /* [alpha/Fe] */

void mill_demo_settings_init(mill_demo_settings *settings)
{
  memset(settings, 0, sizeof *settings);
  settings->n_thread = 1;
  settings->n_held_out = 60;
  settings->seed = 1;
  settings->n_guess = 50;
  settings->line_seed = 1;
}

static int check_settings(const mill_demo_settings *settings)
{
  if (settings->n_thread < 1)
    return MILL_ERROR(MILL_ERR_RANGE, "%d threads; at least one is needed", settings->n_thread);
  if (settings->n_component < 0 || settings->n_component > MILL_DEMO_MAX_COMPONENT)
    return MILL_ERROR(MILL_ERR_RANGE,
                      "%d principal components; 1 to %d are possible, 0 is the default",
                      settings->n_component, MILL_DEMO_MAX_COMPONENT);
  if (settings->n_held_out < 0 || settings->n_held_out > MILL_REPORT_MAX)
    return MILL_ERROR(MILL_ERR_RANGE, "%d held-out models; 0 to %d are possible",
                      settings->n_held_out, MILL_REPORT_MAX);
  if (!(settings->line_scatter >= 0 && settings->line_scatter <= MILL_DEMO_MAX_SCATTER))
    return MILL_ERROR(MILL_ERR_RANGE,
                      "a scatter of %g of the lines' strengths; 0 to %g are possible",
                      settings->line_scatter, MILL_DEMO_MAX_SCATTER);
  if (settings->n_guess < 1)
    return MILL_ERROR(MILL_ERR_RANGE, "%d templates for the initial guess; at least one is needed",
                      settings->n_guess);
  return MILL_OK;
}

/* ---- progress, and failures inside parallel loops ------------------------------------------ */

__attribute__((format(printf, 2, 3))) static void say(const mill_demo_settings *settings,
                                                      const char *format, ...)
{
  va_list arg;
  if (!settings->progress)
    return;
  va_start(arg, format);
  vfprintf(settings->progress, format, arg);
  va_end(arg);
  fflush(settings->progress);
}

/* Messages belong to threads: the first failure's is kept for the thread that returns it. */
static void failure_keep(mill_error_kept *kept, int code)
{
#pragma omp critical(mill_demo_failure)
  if (kept->code == MILL_OK)
    mill_error_save(code, kept);
}

static int failure_seen(const mill_error_kept *kept)
{
  int code;
#pragma omp critical(mill_demo_failure)
  code = kept->code;
  return code;
}

/* ---- frame: labels, hulls, arms ------------------------------------------------------------- */

/* Wavelengths are counted in the line model's steps from ln lambda = 0. */
static int arm_first(int arm)
{
  return (int)floor(log(arm_layout[arm].min_aa) / MILL_LINE_LN_STEP);
}

static int arm_n_pix(int arm)
{
  const double n_step = log(arm_layout[arm].max_aa) / MILL_LINE_LN_STEP - arm_first(arm);
  return (int)ceil(n_step / arm_layout[arm].n_step) + 1;
}

static void mapped_range(const mill_library *lib, double *x_min, double *x_max)
{
  for (int i = 0; i < lib->n_label; i++) {
    x_min[i] = mill_label_map(&lib->label[i], lib->label[i].min);
    x_max[i] = mill_label_map(&lib->label[i], lib->label[i].max);
  }
}

/* Mean and std are those of stars spread evenly over the mapped range. */
static void frame_labels(mill_library *lib)
{
  lib->n_label = MILL_LINE_N_LABEL;
  for (int i = 0; i < MILL_LINE_N_LABEL; i++) {
    const mill_line_label_info *info = &mill_line_label_info_of[i];
    mill_label *label = &lib->label[i];
    snprintf(label->name, sizeof label->name, "%s", info->name);
    mill_label_describe(label);
    label->mapping = i == MILL_LINE_TEFF ? MILL_MAP_LOG10 : MILL_MAP_LINEAR;
    label->min = info->min;
    label->max = info->max;
    label->std = 1; /* to map the range with mean 0 */
    const double low = mill_label_map(label, label->min), high = mill_label_map(label, label->max);
    label->mean = 0.5 * (low + high);
    label->std = (high - low) / sqrt(12);
  }
}

/* The box of two labels, with a corner cut where cut_from[2] and cut_to[2] (label units) are given:
   what lies to the right of the way from one to the other is outside. */
static int frame_hull(mill_library *lib, int label_a, int label_b, const double *cut_from,
                      const double *cut_to)
{
  double x_min[MILL_MAX_LABEL], x_max[MILL_MAX_LABEL];
  mill_hull *hull = &lib->hull[lib->n_hull++];
  const int label[2] = {label_a, label_b};
  hull->n_label = 2;
  hull->n_facet = cut_from ? 5 : 4;
  MILL_CHECK(MILL_ALLOC(hull->n_facet * 3, &hull->facet));
  mapped_range(lib, x_min, x_max);
  for (int i = 0; i < 2; i++) {
    double *low = hull->facet + 6 * i, *high = low + 3;
    hull->label[i] = label[i];
    low[i] = -1;
    low[2] = x_min[label[i]];
    high[i] = 1;
    high[2] = -x_max[label[i]];
  }
  if (cut_from) {
    double from[2], way[2];
    for (int i = 0; i < 2; i++) {
      from[i] = mill_label_map(&lib->label[label[i]], cut_from[i]);
      way[i] = mill_label_map(&lib->label[label[i]], cut_to[i]) - from[i];
    }
    const double length = hypot(way[0], way[1]);
    double *cut = hull->facet + 12;
    cut[0] = way[1] / length;
    cut[1] = -way[0] / length;
    cut[2] = -(cut[0] * from[0] + cut[1] * from[1]);
  }
  return MILL_OK;
}

static int frame_arms(mill_library *lib)
{
  lib->n_arm = N_ARM;
  for (int a = 0; a < N_ARM; a++) {
    mill_arm *arm = &lib->arm[a];
    snprintf(arm->name, sizeof arm->name, "%s", arm_layout[a].name);
    snprintf(arm->setup, sizeof arm->setup, "demo_%s", arm_layout[a].name);
    snprintf(arm->sigma_origin, sizeof arm->sigma_origin,
             "the line model was convolved with this Gaussian");
    snprintf(arm->source, sizeof arm->source, "starmill library demo");
    arm->template_sigma_aa = MILL_DEMO_SIGMA_AA;
    arm->n_pix = arm_n_pix(a);
    arm->ln_wave0 = arm_first(a) * MILL_LINE_LN_STEP;
    arm->ln_step = arm_layout[a].n_step * MILL_LINE_LN_STEP;
    MILL_CHECK(mill_arm_make_waves(arm));
  }
  return MILL_OK;
}

int mill_demo_library_frame(mill_library *lib)
{
  int err = MILL_OK;
  static const double cool[2] = MILL_DEMO_CUT_FROM, hot[2] = MILL_DEMO_CUT_TO;
  snprintf(lib->name, sizeof lib->name,
           "demo: a small line model, for demonstration and tests, not for science");
  frame_labels(lib);
  MILL_TRY(frame_hull(lib, MILL_LINE_TEFF, MILL_LINE_LOGG, cool, hot));
  MILL_TRY(frame_hull(lib, MILL_LINE_FEH, MILL_LINE_ALPHA, NULL, NULL));
  MILL_TRY(frame_arms(lib));
done:
  if (err != MILL_OK)
    mill_library_clear(lib);
  return err;
}

/* ---- templates ------------------------------------------------------------------------------ */

struct mill_demo_templates {
  mill_line_model *model;
  int arm_n_pix[N_ARM];
  int n_pix; /* of all arms */
  /* A Gaussian constant in A varies along a grid in ln lambda: each pixel has its own weights. */
  int *first;     /* [n_pix] pixel of the model that takes the first weight */
  size_t *at;     /* [n_pix + 1] into weight */
  double *weight; /* sum 1 for each pixel */
};

/* Steps of the model from wave_aa to the end of the kernel on one side. */
static int kernel_reach(double wave_aa, int side)
{
  const double reach = fabs(log1p(side * KERNEL_SIGMA * MILL_DEMO_SIGMA_AA / wave_aa));
  return (int)ceil(reach / MILL_LINE_LN_STEP);
}

static double step_wave(int k)
{
  return exp(k * MILL_LINE_LN_STEP);
}

/* The model's pixel i spans an interval proportional to its wavelength. */
static void fill_kernel(int k_pix, int k_first, int n_tap, double *weight)
{
  const double wave_aa = step_wave(k_pix);
  double sum = 0;
  for (int i = 0; i < n_tap; i++) {
    const double tap_aa = step_wave(k_first + i), z = (tap_aa - wave_aa) / MILL_DEMO_SIGMA_AA;
    weight[i] = tap_aa * exp(-0.5 * z * z);
    sum += weight[i];
  }
  for (int i = 0; i < n_tap; i++)
    weight[i] /= sum;
}

int mill_demo_templates_create(mill_demo_templates **out)
{
  int err = MILL_OK;
  mill_demo_templates *t = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &t));
  int k_min = INT32_MAX, k_max = 0;
  for (int a = 0; a < N_ARM; a++) {
    const int first = arm_first(a), n = arm_n_pix(a);
    const int last = first + (n - 1) * arm_layout[a].n_step;
    const int low = first - kernel_reach(step_wave(first), -1);
    const int high = last + kernel_reach(step_wave(last), 1);
    k_min = low < k_min ? low : k_min;
    k_max = high > k_max ? high : k_max;
    t->arm_n_pix[a] = n;
    t->n_pix += n;
  }
  MILL_TRY(mill_line_model_create(k_min * MILL_LINE_LN_STEP, k_max - k_min + 1, &t->model));
  MILL_TRY(MILL_ALLOC(t->n_pix, &t->first));
  MILL_TRY(MILL_ALLOC(t->n_pix + 1, &t->at));
  for (int pass = 0; pass < 2; pass++) { /* sizes, then weights */
    for (int a = 0, p = 0; a < N_ARM; a++)
      for (int i = 0; i < t->arm_n_pix[a]; i++, p++) {
        const int k = arm_first(a) + i * arm_layout[a].n_step;
        const int left = kernel_reach(step_wave(k), -1);
        const int n_tap = left + 1 + kernel_reach(step_wave(k), 1);
        if (pass == 0) {
          t->first[p] = k - left - k_min;
          t->at[p + 1] = t->at[p] + (size_t)n_tap;
        } else {
          fill_kernel(k, k - left, n_tap, t->weight + t->at[p]);
        }
      }
    if (pass == 0)
      MILL_TRY(MILL_ALLOC(t->at[t->n_pix], &t->weight));
  }
  *out = t;
  t = NULL;
done:
  mill_demo_templates_destroy(t);
  return err;
}

/* Templates of a run's settings. */
static int create_templates(const mill_demo_settings *settings, mill_demo_templates **out)
{
  MILL_CHECK(mill_demo_templates_create(out));
  if (settings->line_scatter > 0)
    mill_line_model_scatter((*out)->model, settings->line_scatter, settings->line_seed);
  return MILL_OK;
}

void mill_demo_templates_destroy(mill_demo_templates *templates)
{
  if (!templates)
    return;
  mill_line_model_destroy(templates->model);
  MILL_FREE(templates->first, templates->at, templates->weight, templates);
}

static void convolve(const mill_demo_templates *t, const double *fine, double *out)
{
  for (int p = 0; p < t->n_pix; p++) {
    const double *x = fine + t->first[p], *w = t->weight + t->at[p];
    const size_t n_tap = t->at[p + 1] - t->at[p];
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n_tap; i++)
      sum += w[i] * x[i];
    out[p] = sum;
  }
}

int mill_demo_templates_eval(const mill_demo_templates *templates, const double *label,
                             double *flux, double *cont)
{
  int err = MILL_OK;
  const mill_demo_templates *t = templates;
  const size_t n_fine = (size_t)mill_line_model_n_pix(t->model);
  double *fine = NULL, *fine_cont = NULL, *ln_flux = NULL;
  MILL_TRY(MILL_ALLOC(n_fine, &fine));
  if (cont)
    MILL_TRY(MILL_ALLOC(n_fine, &fine_cont));
  MILL_TRY(MILL_ALLOC(t->n_pix, &ln_flux));
  MILL_TRY(mill_line_model_flux(t->model, label, fine, fine_cont));
  convolve(t, fine, flux);
  if (cont)
    convolve(t, fine_cont, cont);
  for (int p = 0; p < t->n_pix; p++) {
    ln_flux[p] = log(flux[p]);
    if (!isfinite(ln_flux[p]))
      MILL_FAIL(MILL_ERR_RANGE,
                "the line model's flux is %g at Teff %g, log g %g, [Fe/H] %g, [alpha/Fe] %g",
                flux[p], label[MILL_LINE_TEFF], label[MILL_LINE_LOGG], label[MILL_LINE_FEH],
                label[MILL_LINE_ALPHA]);
  }
  for (int a = 0, p0 = 0; a < N_ARM; p0 += t->arm_n_pix[a++]) {
    const double level =
        exp(mill_smooth_median((size_t)t->arm_n_pix[a], ln_flux + p0, MILL_DEMO_MEDIAN_WIDTH));
    for (int p = p0; p < p0 + t->arm_n_pix[a]; p++) {
      flux[p] /= level;
      if (cont)
        cont[p] /= level;
    }
  }
done:
  MILL_FREE(fine, fine_cont, ln_flux);
  return err;
}

/* ---- models --------------------------------------------------------------------------------- */

/* Of model i of a set, whose labels are known: ln flux, or with continua flux and continuum.
   work [2][n_pix] */
static int fill_model(const mill_demo_templates *t, int i, double *work, mill_model_set *set)
{
  double *flux = work, *cont = set->continuum[0] ? work + t->n_pix : NULL;
  MILL_CHECK(mill_demo_templates_eval(t, set->label + i * MILL_LINE_N_LABEL, flux, cont));
  for (int a = 0; a < N_ARM; a++) {
    const size_t n = (size_t)t->arm_n_pix[a], at = (size_t)i * n;
    for (size_t p = 0; p < n; p++) {
      set->flux[a][at + p] = (float)(cont ? flux[p] : log(flux[p]));
      if (cont)
        set->continuum[a][at + p] = (float)cont[p];
    }
    flux += n;
    cont = cont ? cont + n : NULL;
  }
  return MILL_OK;
}

static int fill_models(const mill_demo_templates *t, int n_thread, mill_model_set *set)
{
  mill_error_kept kept = {.code = MILL_OK};
#pragma omp parallel num_threads(n_thread)
  {
    double *work = NULL;
    int err = MILL_ALLOC(2 * t->n_pix, &work);
#pragma omp for schedule(dynamic, 1)
    for (int i = 0; i < set->n; i++) {
      if (err == MILL_OK && failure_seen(&kept) == MILL_OK)
        err = fill_model(t, i, work, set);
    }
    if (err != MILL_OK)
      failure_keep(&kept, err);
    mill_free(work);
  }
  return mill_error_restore(&kept);
}

/* Of node i of n in the range 0 to 1. */
static double node_position(int label, int i, int n)
{
  const double u = (double)i / (n - 1);
  return u - axis_layout[label].crowding / (2 * M_PI) * sin(2 * M_PI * u) -
         axis_layout[label].lean * u * (1 - u);
}

/* The nodes, the last label running fastest, for the ln flux of each. */
typedef struct demo_nodes {
  const mill_library *lib;
  mill_model_set set;
  double *mapped; /* [n][MILL_LINE_N_LABEL] */
} demo_nodes;

static void nodes_clear(demo_nodes *nodes)
{
  mill_model_set_clear(&nodes->set);
  mill_free(nodes->mapped);
}

static int nodes_init(const mill_library *lib, int coarse, demo_nodes *nodes)
{
  int n_all = 1, n_node[MILL_LINE_N_LABEL];
  double x_min[MILL_MAX_LABEL], x_max[MILL_MAX_LABEL];
  nodes->lib = lib;
  mapped_range(lib, x_min, x_max);
  for (int l = 0; l < MILL_LINE_N_LABEL; l++) {
    n_node[l] = coarse ? axis_layout[l].n_node_coarse : axis_layout[l].n_node;
    n_all *= n_node[l];
  }
  MILL_CHECK(mill_model_set_alloc(n_all, lib, NULL, &nodes->set));
  MILL_CHECK(MILL_ALLOC(n_all * MILL_LINE_N_LABEL, &nodes->mapped));
  for (int i = 0; i < n_all; i++) {
    snprintf(nodes->set.name[i], sizeof nodes->set.name[i], "node %d", i);
    for (int l = MILL_LINE_N_LABEL - 1, rest = i; l >= 0; rest /= n_node[l--]) {
      const mill_label *label = &lib->label[l];
      const int at = i * MILL_LINE_N_LABEL + l;
      const double x =
          x_min[l] + (x_max[l] - x_min[l]) * node_position(l, rest % n_node[l], n_node[l]);
      nodes->mapped[at] = x;
      /* mapping there and back may end a rounding error outside the line model's range */
      nodes->set.label[at] = fmin(fmax(mill_label_unmap(label, x), label->min), label->max);
    }
  }
  return MILL_OK;
}

/* All nodes: read of mill_grid_models. */
static int read_nodes(void *from, int arm, int n, const int *row, float *ln_flux)
{
  const demo_nodes *nodes = from;
  (void)row;
  memcpy(ln_flux, nodes->set.flux[arm],
         (size_t)n * (size_t)nodes->lib->arm[arm].n_pix * sizeof *ln_flux);
  return MILL_OK;
}

/* Evenly distributed in mapped labels inside the hulls; a function of seed and index alone. */
static void held_out_label(const mill_library *lib, uint64_t seed, int index, double *label)
{
  double x_min[MILL_MAX_LABEL], x_max[MILL_MAX_LABEL], x[MILL_MAX_LABEL];
  mill_random r;
  mapped_range(lib, x_min, x_max);
  mill_random_begin(&r, seed, (uint64_t)index, HELD_OUT_STREAM);
  do {
    for (int l = 0; l < lib->n_label; l++) {
      x[l] = x_min[l] + (x_max[l] - x_min[l]) * mill_random_uniform(&r);
      label[l] =
          fmin(fmax(mill_label_unmap(&lib->label[l], x[l]), lib->label[l].min), lib->label[l].max);
    }
  } while (mill_hull_distance(lib->n_hull, lib->hull, x) > 0);
}

int mill_demo_held_out(const mill_demo_settings *settings, const mill_library *lib,
                       mill_model_set *set)
{
  int err = MILL_OK;
  static const int has_continuum[N_ARM] = {1, 1, 1};
  mill_demo_templates *t = NULL;
  MILL_TRY(check_settings(settings));
  MILL_TRY(create_templates(settings, &t));
  MILL_TRY(mill_model_set_alloc(settings->n_held_out, lib, has_continuum, set));
  for (int i = 0; i < set->n; i++) {
    snprintf(set->name[i], sizeof set->name[i], "held-out model %d", i);
    held_out_label(lib, settings->seed, i, set->label + i * MILL_LINE_N_LABEL);
  }
  MILL_TRY(fill_models(t, settings->n_thread, set));
done:
  mill_demo_templates_destroy(t);
  return err;
}

/* ---- all of it ------------------------------------------------------------------------------ */

int mill_demo_library_build(const mill_demo_settings *settings, mill_library *lib,
                            mill_grid_facts *facts)
{
  int err = MILL_OK;
  demo_nodes nodes = {0};
  mill_demo_templates *t = NULL;
  double x_min[MILL_MAX_LABEL], x_max[MILL_MAX_LABEL];
  const mill_grid_settings grid = {.way = MILL_WAY_SPLINES,
                                   .n_component = settings->n_component ? settings->n_component
                                                  : settings->coarse    ? DEFAULT_COMPONENT_COARSE
                                                                        : MILL_GRID_COMPONENT,
                                   .n_guess = settings->n_guess,
                                   .n_thread = settings->n_thread};
  const double start_s = mill_wall_s();
  MILL_TRY(check_settings(settings));
  MILL_TRY(mill_demo_library_frame(lib));
  mapped_range(lib, x_min, x_max);
  MILL_TRY(mill_library_make_guess(settings->n_guess, x_min, x_max, lib));
  for (int a = 0; a < lib->n_arm; a++)
    snprintf(lib->arm[a].revision, sizeof lib->arm[a].revision, "demo1%s",
             settings->coarse ? "-coarse" : "");
  if (settings->line_scatter > 0)
    snprintf(lib->name, sizeof lib->name,
             "demo with wrong lines: strengths scattered by %g, seed %llu; for tests",
             settings->line_scatter, (unsigned long long)settings->line_seed);
  MILL_TRY(create_templates(settings, &t));
  MILL_TRY(nodes_init(lib, settings->coarse, &nodes));
  say(settings, "computing %d spectra with the line model on %d thread%s\n", nodes.set.n,
      settings->n_thread, settings->n_thread == 1 ? "" : "s");
  MILL_TRY(fill_models(t, settings->n_thread, &nodes.set));
  say(settings, "%.1f s; finding their principal components, fitting splines to them\n",
      mill_wall_s() - start_s);
  const mill_grid_models models = {.n = nodes.set.n,
                                   .value = nodes.set.label,
                                   .mapped = nodes.mapped,
                                   .name = (const char(*)[64])nodes.set.name,
                                   .read = read_nodes,
                                   .from = &nodes};
  MILL_TRY(mill_grid_emulators_make(&grid, &models, lib, facts));
done:
  nodes_clear(&nodes);
  mill_demo_templates_destroy(t);
  if (err != MILL_OK)
    mill_library_clear(lib);
  return err;
}
