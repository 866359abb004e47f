/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/device_model.h"

#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "kernels/star/blocks/spline_filter.h"

enum { TOGETHER = 16 }; /**< inputs that a thread averages at a time: one cache line of weights */

/** Memory limit of the emulator's output that is stored for guess templates. */
static const size_t STORE_BYTES = (size_t)64 << 20;

int mill_device_memory_take(mill_device_memory *memory, size_t bytes, const void *from, void *out)
{
  void **block = out;
  MILL_CHECK(MILL_GROW(&memory->block, &memory->n_room, memory->n_block + 1));
  MILL_CHECK(memory->backend->alloc(memory->device, bytes, block));
  memory->block[memory->n_block++] = *block;
  memory->bytes += bytes;
  return from ? memory->backend->upload(memory->device, *block, from, bytes) : MILL_OK;
}

void mill_device_memory_drop(mill_device_memory *memory)
{
  while (memory->n_block > 0)
    memory->backend->release(memory->device, memory->block[--memory->n_block]);
}

void mill_device_memory_clear(mill_device_memory *memory)
{
  mill_device_memory_drop(memory);
  mill_free((void *)memory->block);
  memory->block = NULL;
  memory->n_room = 0;
}

static int check_sample(const mill_sample_settings *s)
{
  if (s->max_eval == 0)
    return MILL_OK;
  if (s->max_eval < 2.0 * s->least_ess)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%d evaluations of a star (--max-evaluations) are too few for an effective "
                      "sample size of %g (--ess): give at least twice --ess",
                      s->max_eval, s->least_ess);
  if (s->n_draw < 0 || s->n_draw > MILL_MAX_DRAW || !(s->least_ess > 0.0))
    return MILL_ERROR(MILL_ERR_INTERNAL,
                      "--draws %d, --ess %g: expected 0 to %d draws per star and an effective "
                      "sample size above 0",
                      s->n_draw, s->least_ess, MILL_MAX_DRAW);
  return MILL_OK;
}

int mill_device_model_check(const mill_library *lib, const mill_fit_settings *s)
{
  MILL_CHECK(check_sample(&s->sample));
  if (s->n_cont < 1 || s->n_cont > MILL_MAX_CONT)
    return MILL_ERROR(MILL_ERR_CONFIG, "npoly is %d; expected 1 to %d continuum functions",
                      s->n_cont, MILL_MAX_CONT);
  if (lib->n_label < 1 || lib->n_label > MILL_MAX_LABEL || lib->n_arm < 1 ||
      lib->n_arm > MILL_MAX_ARM)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s has %d labels and %d arms; expected 1 to %d labels and 1 to %d arms",
                      lib->path, lib->n_label, lib->n_arm, MILL_MAX_LABEL, MILL_MAX_ARM);
  if (!(s->min_vel_km_s < s->max_vel_km_s) || !(s->guess_vel_step_km_s > 0.0))
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "velocity limits %g to %g km/s, steps of %g: expected min < max, a step above 0",
        s->min_vel_km_s, s->max_vel_km_s, s->guess_vel_step_km_s);
  if (s->velocity_offsets && !(s->velocity_offset_sigma_km_s > 0.0))
    return MILL_ERROR(MILL_ERR_CONFIG, "velocity_offset_sigma is %g km/s; give a number above 0",
                      s->velocity_offset_sigma_km_s);
  if (s->velocity_offsets && MILL_PAR_LABEL0 + lib->n_label + lib->n_arm - 1 > MILL_MAX_PAR)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%d labels and %d velocity offsets are more than %d parameters; give "
                      "velocity_offsets: false",
                      lib->n_label, lib->n_arm - 1, MILL_MAX_PAR - MILL_PAR_LABEL0);
  const int n_own = MILL_PAR_LABEL0 + lib->n_label;
  const int n_offset = s->velocity_offsets ? lib->n_arm - 1 : 0;
  if (s->binaries && (2 * n_own + 1 > MILL_MAX_PAR || n_own + lib->n_arm + n_offset > MILL_MAX_PAR))
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "%s: two stars of %d labels, %d flux ratios and %d velocity offsets have "
                      "more than %d parameters; give binaries: false or a library of fewer labels",
                      lib->path, lib->n_label, lib->n_arm, n_offset, MILL_MAX_PAR);
  /* npoly_per_1000aa: the number depends on the segment's width; assume the most */
  const int n_cont = s->n_cont_per_1000aa > 0.0 ? MILL_MAX_CONT : s->n_cont;
  for (int a = 0; a < lib->n_arm; a++) {
    const int n_error = (s->model_error ? lib->arm[a].error.n_component : 0) +
                        (s->lsf_width_error != 0.0 ? MILL_WIDTH_ROWS : 0) +
                        lib->arm[a].sky.n_component;
    const int n_deriv = s->binaries ? 2 * n_own + 1 : n_own;
    if (n_error > MILL_MAX_ERROR)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "arm %s has %d components of model error, line-spread width and sky; at "
                        "most %d are possible: give sky_components a file with fewer",
                        lib->arm[a].name, n_error, MILL_MAX_ERROR);
    if (n_error + n_cont + n_deriv > MILL_MAX_ROWS)
      return MILL_ERROR(
          MILL_ERR_CONFIG,
          "arm %s: %d components (of model error, line-spread width and sky), up to %d continuum "
          "functions and %d parameters are together more than %d; lower npoly, leave "
          "npoly_per_1000aa out, or give model_error: false",
          lib->arm[a].name, n_error, n_cont, n_deriv, MILL_MAX_ROWS);
  }
  for (int a = 0; a < lib->n_arm; a++) {
    const double r_pix = s->max_vsini_km_s / (MILL_C_KM_S * lib->arm[a].ln_step);
    /* the first condition keeps the half width within int */
    if (r_pix > MILL_MAX_ROTATION ||
        mill_rotation_half_width(s->rotation, r_pix) > MILL_MAX_ROTATION)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "max_vsini %g km/s spans more than %d grid points of arm %s; lower it",
                        s->max_vsini_km_s, MILL_MAX_ROTATION, lib->arm[a].name);
  }
  return MILL_OK;
}

/** Upload a layer: its weights in padded panels (mill_weight_at), then its bias.
 *
 *  w [n_out][n_in]  weights
 *  bias [n_out]     NULL: zeros
 *  mean [n_in + 1]  subtracted from the weights of each input, and from the bias; NULL: 0
 *  wide             1: as double, 0: as float */
static int take_panels(mill_device_memory *memory, int n_thread, int n_in, int n_out,
                       const float *w, const float *bias, const double *mean, int wide,
                       mill_layer *layer)
{
  MILL_OWNED void *host = NULL;
  const int pad = (n_out + MILL_COLUMN_PAD - 1) / MILL_COLUMN_PAD * MILL_COLUMN_PAD;
  const size_t real = wide ? sizeof(double) : sizeof(float);
  const int panel = MILL_PANEL_BYTES / (int)real;
  const size_t n_weight = (size_t)n_in * (size_t)pad;
  layer->n_in = n_in;
  layer->n_out = n_out;
  layer->n_out_pad = pad;
  MILL_CHECK(mill_alloc_bytes(n_weight + (size_t)pad, real, &host));
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int i = 0; i < n_out; i++)
    for (int k = 0; k <= n_in; k++) { /* k = n_in: the bias */
      const float x = k < n_in ? w[(size_t)i * (size_t)n_in + (size_t)k] : (bias ? bias[i] : 0.0F);
      const double rest = (double)x - (mean ? mean[k] : 0.0);
      const size_t at = k < n_in ? mill_weight_at(n_in, panel, k, i) : n_weight + (size_t)i;
      if (wide)
        ((double *)host)[at] = rest;
      else
        ((float *)host)[at] = (float)rest;
    }
  MILL_CHECK(
      mill_device_memory_take(memory, (n_weight + (size_t)pad) * real, host, &layer->weight));
  layer->bias = (const char *)layer->weight + n_weight * real;
  return MILL_OK;
}

/** Upload layer l of an emulator.  Split the last layer into its mean over pixels, in float64, and
 *  the rest: float32 rounding then acts on the lines alone. */
static int load_layer(mill_device_memory *memory, int n_thread, const mill_emulator *e, int l,
                      int precision, mill_model_arm *arm)
{
  MILL_OWNED double *mean = NULL;
  mill_layer *layer = &arm->layer[l], thin;
  const int n_in = e->n_in[l], n_out = e->n_out[l], last = l == e->n_layer - 1;
  MILL_CHECK(MILL_ALLOC(n_in + 1, &mean)); /* of the weights, then the bias; 0 in hidden layers */
  if (last) {
#pragma omp parallel for schedule(static) num_threads(n_thread)
    for (int first = 0; first < n_in; first += TOGETHER) {
      const int end = first + TOGETHER < n_in ? first + TOGETHER : n_in;
      for (int i = 0; i < n_out; i++)
        for (int k = first; k < end; k++)
          mean[k] += (double)e->weight[l][(size_t)i * (size_t)n_in + (size_t)k] / (double)n_out;
    }
    for (int i = 0; i < n_out; i++)
      mean[n_in] += (double)e->bias[l][i] / (double)n_out;
  }
  /* a hidden layer's weights are float64; for derivatives a CPU uses a float32 copy, `narrow` */
  MILL_CHECK(take_panels(memory, n_thread, n_in, n_out, e->weight[l], e->bias[l], mean,
                         precision == MILL_FLOAT64 || !last, layer));
  if (!last && precision == MILL_FLOAT32 && memory->backend->kind == MILL_BACKEND_CPU) {
    MILL_CHECK(take_panels(memory, n_thread, n_in, n_out, e->weight[l], NULL, NULL, 0, &thin));
    layer->narrow = thin.weight;
  }
  if (last) {
    MILL_CHECK(
        mill_device_memory_take(memory, (size_t)n_in * sizeof *mean, mean, &arm->mean_weight));
    arm->mean_bias = mean[n_in];
  }
  return MILL_OK;
}

/** Upload the spline grid of an emulator; the pointers of *grid are device memory. */
static int load_grid(mill_device_memory *memory, const mill_spline_grid *from,
                     mill_spline_grid *grid)
{
  size_t size = (size_t)from->n_out * sizeof *from->coef;
  *grid = *from;
  for (int l = 0; l < from->n_axis; l++) {
    MILL_CHECK(mill_device_memory_take(
        memory, (size_t)(from->n_node[l] + mill_spline_grid_order(from)) * sizeof(double),
        from->knot[l], &grid->knot[l]));
    size *= (size_t)from->n_node[l];
  }
  return mill_device_memory_take(memory, size, from->coef, &grid->coef);
}

/** Upload the radial basis functions of an emulator; the pointers of *rbf are device memory. */
static int load_rbf(mill_device_memory *memory, const mill_rbf *from, mill_rbf *rbf)
{
  const size_t n_center = (size_t)from->n_center, n_row = n_center + (size_t)from->n_poly;
  *rbf = *from;
  MILL_CHECK(mill_device_memory_take(memory, n_center * (size_t)from->n_axis * sizeof(double),
                                     from->center, &rbf->center));
  return mill_device_memory_take(memory, n_row * (size_t)from->n_out * sizeof *from->coef,
                                 from->coef, &rbf->coef);
}

/** Upload the model error of an arm; rows of components are padded like templates. */
static int load_error(mill_device_memory *memory, const mill_model_error *from, int n_pix,
                      mill_model_error *error)
{
  MILL_OWNED float *row = NULL;
  const size_t n = (size_t)mill_error_points(from, n_pix);
  const size_t pad = mill_round_up(n, MILL_COLUMN_PAD);
  *error = *from;
  error->pitch = (int)pad;
  MILL_CHECK(mill_device_memory_take(memory, n * sizeof *row, from->fraction, &error->fraction));
  error->component = NULL;
  if (from->n_component > 0) {
    MILL_CHECK(MILL_ALLOC((size_t)from->n_component * pad, &row));
    for (size_t j = 0; j < (size_t)from->n_component; j++)
      memcpy(row + j * pad, from->component + j * n, n * sizeof *row);
    MILL_CHECK(mill_device_memory_take(memory, (size_t)from->n_component * pad * sizeof *row, row,
                                       &error->component));
  }
  return MILL_OK;
}

/** Load an arm: wavelength grid, spline filter, emulator, model error. */
static int load_arm(mill_device_memory *memory, int n_thread, const mill_library *lib,
                    const mill_arm *from, const mill_fit_settings *set, mill_model_arm *arm)
{
  const mill_emulator *e = &from->emulator;
  arm->n_pix = from->n_pix;
  arm->n_pix_pad = (int)mill_round_up((size_t)from->n_pix, MILL_COLUMN_PAD);
  arm->ln_wave0 = from->ln_wave0;
  arm->ln_step = from->ln_step;
  arm->log_flux = e->log_flux;
  arm->template_sigma_aa = from->template_sigma_aa;
  arm->kind = e->kind;
  arm->n_layer = e->n_layer;
  arm->n_sky = from->sky.n_component;
  if (from->n_pix < 4 * MILL_SPLINE_END)
    return MILL_ERROR(MILL_ERR_LIBRARY, "%s: arm %s has %d pixels, at least %d are needed",
                      lib->path, from->name, from->n_pix, 4 * MILL_SPLINE_END);
  mill_spline_filter(arm);
  if (arm->kind == MILL_EMULATOR_GRID)
    MILL_CHECK(load_grid(memory, &e->grid, &arm->grid));
  if (arm->kind == MILL_EMULATOR_RBF)
    MILL_CHECK(load_rbf(memory, &e->rbf, &arm->rbf));
  if (set->model_error && from->error.fraction)
    MILL_CHECK(load_error(memory, &from->error, arm->n_pix, &arm->error));
  for (int l = 0; l < arm->n_layer; l++)
    MILL_CHECK(load_layer(memory, n_thread, e, l, set->precision, arm));
  return MILL_OK;
}

/** Load a model without the emulator's stored output. */
static int load_model(const mill_library *lib, const mill_fit_settings *settings,
                      const mill_guess_table *guess, int n_thread, mill_device_memory *memory,
                      mill_model *m)
{
  m->n_label = lib->n_label;
  m->n_deriv = lib->n_label + MILL_PAR_LABEL0;
  m->n_par = m->n_deriv + (settings->velocity_offsets ? lib->n_arm - 1 : 0);
  m->n_arm = lib->n_arm;
  m->n_hull = lib->n_hull;
  m->set = *settings;
  memcpy(m->label, lib->label, sizeof m->label);
  for (int l = 0; l < m->n_label; l++) {
    mill_label_set_edges(&m->label[l]);
    m->label[l].is_element = mill_label_is_element(&m->label[l]);
    m->has_element |= m->label[l].is_element;
  }
  memcpy(m->hull, lib->hull, sizeof m->hull);
  for (int h = 0; h < lib->n_hull; h++) {
    const mill_hull *hull = &lib->hull[h];
    for (int i = 0; i < hull->n_label; i++) /* an element's hull has one or two labels */
      m->hull[h].of_element |= hull->n_label <= 2 && m->label[hull->label[i]].is_element;
    const size_t n = (size_t)hull->n_facet * (size_t)(hull->n_label + 1);
    MILL_CHECK(
        mill_device_memory_take(memory, n * sizeof *hull->facet, hull->facet, &m->hull[h].facet));
  }
  for (int a = 0; a < lib->n_arm; a++) {
    MILL_CHECK(load_arm(memory, n_thread, lib, &lib->arm[a], settings, &m->arm[a]));
    if (m->arm[a].n_pix_pad > m->max_pix_pad)
      m->max_pix_pad = m->arm[a].n_pix_pad;
  }
  m->n_templ = guess->n_templ;
  m->guess_half = guess->half;
  m->guess_ln_step = guess->ln_step;
  m->guess_n = guess->n_fourier;
  MILL_CHECK(mill_device_memory_take(memory, (size_t)guess->n_fourier * sizeof *guess->root,
                                     guess->root, &m->guess_root));
  m->n_guess_vsini = lib->n_guess_vsini;
  memcpy(m->guess_vsini, lib->guess_vsini_km_s, sizeof m->guess_vsini);
  const size_t n_guess = (size_t)lib->n_guess * (size_t)lib->n_label;
  MILL_CHECK(mill_device_memory_take(memory, n_guess * sizeof *lib->guess_label, lib->guess_label,
                                     &m->guess_label));
  MILL_OWNED double *mapped = NULL;
  MILL_CHECK(MILL_ALLOC(n_guess, &mapped));
  for (size_t i = 0; i < n_guess; i++)
    mapped[i] = mill_label_map(&lib->label[i % (size_t)lib->n_label], lib->guess_label[i]);
  return mill_device_memory_take(memory, n_guess * sizeof *mapped, mapped, &m->guess_mapped);
}

/** Store the emulator's output at the guess templates.  For a GPU, the CPU computes it now.  On a
 *  CPU only make room: a fit that needs the output of a template computes and stores it. */
static int load_stored(const mill_library *lib, const mill_fit_settings *settings,
                       const mill_guess_table *guess, int n_thread, mill_device_memory *memory,
                       mill_model *m)
{
  int err = MILL_OK;
  const int is_cpu = memory->backend->store != NULL; /* GPUs have no function `store` */
  const mill_backend *cpu = is_cpu ? memory->backend : mill_backend_cpu(NULL);
  mill_device_memory cpu_memory = {.backend = cpu};
  mill_model on_host;
  MILL_OWNED float *row = NULL; /* NULL on a CPU: room is made, and nothing copied */
  MILL_OWNED double *mean = NULL;
  size_t each = 0; /* bytes of a template's emulator output */
  for (int a = 0; a < m->n_arm; a++)
    each += (size_t)(1 + m->n_label) * (size_t)m->arm[a].n_pix_pad * sizeof(float);
  if (settings->precision == MILL_FLOAT32 && cpu)
    m->n_stored = (int)fmin(lib->n_guess, (double)(STORE_BYTES / each));
  if (m->n_stored == 0)
    goto done;
  const size_t n = (size_t)m->n_stored * (size_t)(1 + m->n_label);
  if (!is_cpu) {
    memset(&on_host, 0, sizeof on_host);
    MILL_TRY(cpu->open(n_thread, &cpu_memory.device));
    MILL_TRY(load_model(lib, settings, guess, n_thread, &cpu_memory, &on_host));
    on_host.n_stored = m->n_stored;
    MILL_TRY(MILL_ALLOC(n * (size_t)m->max_pix_pad, &row));
    MILL_TRY(MILL_ALLOC(n, &mean));
  }
  for (int a = 0; a < m->n_arm; a++) {
    const size_t size = n * (size_t)m->arm[a].n_pix_pad * sizeof *row;
    if (!is_cpu)
      MILL_TRY(cpu->store(cpu_memory.device, &on_host, a, row, mean));
    MILL_TRY(mill_device_memory_take(memory, size, row, &m->arm[a].stored));
    MILL_TRY(mill_device_memory_take(memory, n * sizeof *mean, mean, &m->arm[a].stored_mean));
    if (is_cpu) {
      const size_t own = (size_t)m->n_stored * sizeof *m->arm[a].stored_own;
      MILL_TRY(mill_device_memory_take(memory, own, NULL, &m->arm[a].stored_own));
      MILL_TRY(memory->backend->zero(memory->device, m->arm[a].stored_own, own));
    }
  }
done:
  mill_device_memory_clear(&cpu_memory);
  if (cpu_memory.device)
    cpu->close(cpu_memory.device);
  return err;
}

int mill_device_model_load(const mill_library *lib, const mill_fit_settings *settings,
                           const mill_guess_table *guess, int n_thread, mill_device_memory *memory,
                           mill_model *model, mill_model **d_model)
{
  MILL_CHECK(load_model(lib, settings, guess, n_thread, memory, model));
  MILL_CHECK(load_stored(lib, settings, guess, n_thread, memory, model));
  return mill_device_memory_take(memory, sizeof *model, model, d_model);
}
