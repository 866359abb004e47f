#include "src/pipeline.h"

#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "kernels/continuum.h"
#include "kernels/error.h"
#include "kernels/polish.h"
#include "kernels/rotation.h"
#include "kernels/spline_filter.h"
#include "src/guess_table.h"

/** Rounds between looks at which slots have become free. */
enum { ROUNDS_PER_CALL = 4, FIRST_WAVESETS = 16 };

/** A wavelength set as the host knows it. */
typedef struct waveset_entry {
  int arm, n_pix;
  double *wave_aa;      /**< [n_pix], owned */
  mill_waveset host;    /**< its pointers are device memory, owned */
  mill_waveset *device; /**< owned */
} waveset_entry;

/** Solver for the template's own resolution, shared by segments. */
typedef struct deconv_entry {
  int n_diag;
  double sigma_pix;
  double *device; /**< [n_diag][n_diag], owned */
} deconv_entry;

/** A slot as the host knows it. */
typedef struct slot_entry {
  mill_slot *device;       /**< owned */
  mill_slot host;          /**< last downloaded or to be uploaded */
  mill_segment *segment;   /**< host mirror [cap_segment], owned */
  mill_segment *d_segment; /**< device [cap_segment], owned */
  int cap_segment;
  char *arena; /**< device memory of all pixel arrays, owned */
  size_t cap_arena;
  int active;
} slot_entry;

struct mill_pipeline {
  const mill_library *lib;
  const mill_backend *backend;
  mill_device *device;
  mill_model model; /**< host copy, its pointers are device memory */
  mill_model *d_model;
  int n_slot, want_models;
  slot_entry *slot;
  waveset_entry *waveset;
  int n_waveset, cap_waveset;
  deconv_entry *deconv;
  int n_deconv, cap_deconv;
  mill_guess_table guess;
  void **owned; /**< device memory of the model */
  int n_owned, cap_owned;
  /* model download */
  float *model_flux;
  size_t cap_model_flux;
  const float **model_row;
  int cap_model_row;
};

/** Device memory that lives as long as the pipeline. */
static int own(mill_pipeline *p, size_t bytes, const void *from, void **out)
{
  int err = MILL_OK;
  if (p->n_owned == p->cap_owned) {
    const int cap = p->cap_owned * 2 + 32;
    void **more = NULL;
    MILL_TRY(MILL_ALLOC(cap, &more));
    if (p->n_owned)
      memcpy(more, p->owned, (size_t)p->n_owned * sizeof *more);
    mill_free(p->owned);
    p->owned = more;
    p->cap_owned = cap;
  }
  MILL_TRY(p->backend->alloc(p->device, bytes, out));
  p->owned[p->n_owned++] = *out;
  if (from)
    MILL_TRY(p->backend->upload(p->device, *out, from, bytes));
done:
  return err;
}

/** One layer, transposed and padded; the last one without its mean over pixels. */
static int load_layer(mill_pipeline *p, const mill_emulator *e, int l, mill_model_arm *arm)
{
  int err = MILL_OK;
  void *host = NULL, *memory = NULL;
  double *mean = NULL;
  mill_layer *layer = &arm->layer[l];
  const int n_in = e->n_in[l], n_out = e->n_out[l], last = l == e->n_layer - 1;
  const int pad = (n_out + MILL_COLUMN_PAD - 1) / MILL_COLUMN_PAD * MILL_COLUMN_PAD;
  /* hidden layers are float64 in both precisions */
  const int wide = p->model.set.precision == MILL_FLOAT64 || !last;
  const size_t real = wide ? sizeof(double) : sizeof(float);
  layer->n_in = n_in;
  layer->n_out = n_out;
  layer->n_out_pad = pad;
  MILL_TRY(MILL_ALLOC(n_in + 1, &mean)); /* of the weights, and of the bias at the end */
  if (last)
    for (int i = 0; i < n_out; i++) {
      for (int k = 0; k < n_in; k++)
        mean[k] += (double)e->weight[l][(size_t)i * (size_t)n_in + (size_t)k] / (double)n_out;
      mean[n_in] += (double)e->bias[l][i] / (double)n_out;
    }
  /* row n_in is the bias */
  MILL_TRY(mill_alloc_bytes((size_t)(n_in + 1) * (size_t)pad, real, &host));
  for (int k = 0; k <= n_in; k++)
    for (int i = 0; i < n_out; i++) {
      const double w =
          (double)(k < n_in ? e->weight[l][(size_t)i * (size_t)n_in + (size_t)k] : e->bias[l][i]) -
          mean[k];
      const size_t at = (size_t)k * (size_t)pad + (size_t)i;
      if (wide)
        ((double *)host)[at] = w;
      else
        ((float *)host)[at] = (float)w;
    }
  MILL_TRY(own(p, (size_t)(n_in + 1) * (size_t)pad * real, host, &memory));
  layer->weight = memory;
  layer->bias = (const char *)memory + (size_t)n_in * (size_t)pad * real;
  if (last) {
    MILL_TRY(own(p, (size_t)n_in * sizeof *mean, mean, &memory));
    arm->mean_weight = memory;
    arm->mean_bias = mean[n_in];
  }
done:
  mill_free(host);
  mill_free(mean);
  return err;
}

/** Knots and coefficients of an arm's grid. */
static int load_grid(mill_pipeline *p, const mill_spline_grid *from, mill_spline_grid *grid)
{
  int err = MILL_OK;
  size_t size = (size_t)from->n_out * sizeof *from->coef;
  void *memory = NULL;
  *grid = *from;
  for (int l = 0; l < from->n_axis; l++) {
    MILL_TRY(own(p, (size_t)(from->n_node[l] + 4) * sizeof(double), from->knot[l], &memory));
    grid->knot[l] = memory;
    size *= (size_t)from->n_node[l];
  }
  MILL_TRY(own(p, size, from->coef, &memory));
  grid->coef = memory;
done:
  return err;
}

static int load_model(mill_pipeline *p, const mill_fit_settings *settings)
{
  int err = MILL_OK;
  const mill_library *lib = p->lib;
  mill_model *m = &p->model;
  void *memory = NULL;
  m->n_label = lib->n_label;
  m->n_par = lib->n_label + MILL_PAR_LABEL0;
  m->n_arm = lib->n_arm;
  m->n_hull = lib->n_hull;
  m->set = *settings;
  memcpy(m->label, lib->label, sizeof m->label);
  memcpy(m->hull, lib->hull, sizeof m->hull);
  for (int h = 0; h < lib->n_hull; h++) {
    const mill_hull *hull = &lib->hull[h];
    MILL_TRY(own(p, (size_t)hull->n_facet * (size_t)(hull->n_label + 1) * sizeof(double),
                 hull->facet, &memory));
    m->hull[h].facet = memory;
  }
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_arm *from = &lib->arm[a];
    mill_model_arm *arm = &m->arm[a];
    arm->n_pix = from->n_pix;
    arm->n_pix_pad = (from->n_pix + MILL_COLUMN_PAD - 1) / MILL_COLUMN_PAD * MILL_COLUMN_PAD;
    arm->ln_wave0 = from->ln_wave0;
    arm->ln_step = from->ln_step;
    arm->log_flux = from->emulator.log_flux;
    arm->kind = from->emulator.kind;
    arm->n_layer = from->emulator.n_layer;
    if (from->n_pix < 4 * MILL_FIR_HALF)
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: arm %s has %d pixels, at least %d are needed", lib->path,
                from->name, from->n_pix, 4 * MILL_FIR_HALF);
    mill_spline_filter(arm);
    if (arm->kind == MILL_EMULATOR_GRID)
      MILL_TRY(load_grid(p, &from->emulator.grid, &arm->grid));
    for (int l = 0; l < arm->n_layer; l++)
      MILL_TRY(load_layer(p, &from->emulator, l, arm));
    if (arm->n_pix_pad > m->max_pix_pad)
      m->max_pix_pad = arm->n_pix_pad;
  }
  MILL_TRY(mill_guess_table_create(lib, settings, &p->guess));
  m->n_templ = p->guess.n_templ;
  m->guess_half = p->guess.half;
  m->guess_ln_step = p->guess.ln_step;
  m->n_guess_vsini = lib->n_guess_vsini;
  memcpy(m->guess_vsini, lib->guess_vsini_km_s, sizeof m->guess_vsini);
  MILL_TRY(own(p, (size_t)lib->n_guess * (size_t)lib->n_label * sizeof(double), lib->guess_label,
               &memory));
  m->guess_label = memory;
  MILL_TRY(own(p, sizeof *m, m, &memory));
  p->d_model = memory;
done:
  return err;
}

static int check_settings(const mill_library *lib, const mill_fit_settings *s)
{
  int err = MILL_OK;
  if (s->n_cont < 1 || s->n_cont > MILL_MAX_CONT)
    MILL_FAIL(MILL_ERR_RANGE, "%d continuum functions; 1 to %d are possible", s->n_cont,
              MILL_MAX_CONT);
  if (lib->n_label < 1 || lib->n_label > MILL_MAX_LABEL || lib->n_arm < 1 ||
      lib->n_arm > MILL_MAX_ARM)
    MILL_FAIL(MILL_ERR_RANGE, "library with %d labels and %d arms", lib->n_label, lib->n_arm);
  if (!(s->min_vel_km_s < s->max_vel_km_s) || !(s->guess_vel_step_km_s > 0.0))
    MILL_FAIL(MILL_ERR_RANGE, "velocity limits %g to %g km/s in steps of %g", s->min_vel_km_s,
              s->max_vel_km_s, s->guess_vel_step_km_s);
  for (int a = 0; a < lib->n_arm; a++)
    if (s->max_vsini_km_s / (MILL_C_KM_S * lib->arm[a].ln_step) > (double)MILL_MAX_ROTATION)
      MILL_FAIL(MILL_ERR_RANGE,
                "max_vsini %g km/s spans more than %d grid points of arm %s; lower it",
                s->max_vsini_km_s, MILL_MAX_ROTATION, lib->arm[a].name);
done:
  return err;
}

int mill_pipeline_create(const mill_library *lib, const mill_fit_settings *settings,
                         const mill_backend *backend, int n_slot, int n_thread, int want_models,
                         mill_pipeline **out)
{
  int err = MILL_OK;
  mill_pipeline *p = NULL;
  *out = NULL;
  MILL_TRY(check_settings(lib, settings));
  if (n_slot < 1)
    MILL_FAIL(MILL_ERR_RANGE, "%d slots; at least one is needed", n_slot);
  MILL_TRY(MILL_ALLOC(1, &p));
  p->lib = lib;
  p->backend = backend;
  p->n_slot = n_slot;
  p->want_models = want_models;
  MILL_TRY(backend->open(n_thread, &p->device));
  MILL_TRY(load_model(p, settings));
  MILL_TRY(MILL_ALLOC(n_slot, &p->slot));
  for (int i = 0; i < n_slot; i++) {
    void *memory = NULL;
    MILL_TRY(backend->alloc(p->device, sizeof(mill_slot), &memory));
    p->slot[i].device = memory;
  }
  *out = p;
  p = NULL;
done:
  mill_pipeline_destroy(p);
  return err;
}

static void release(mill_pipeline *p, void *memory)
{
  if (memory)
    p->backend->release(p->device, memory);
}

static void waveset_clear(mill_pipeline *p, waveset_entry *w)
{
  mill_free(w->wave_aa);
  release(p, w->host.ln_wave);
  release(p, w->host.cont);
  release(p, w->host.masked);
  release(p, w->host.bin_first);
  release(p, w->host.templ);
  release(p, w->device);
  memset(w, 0, sizeof *w);
}

void mill_pipeline_destroy(mill_pipeline *p)
{
  if (!p)
    return;
  if (p->device) {
    for (int i = 0; p->slot && i < p->n_slot; i++) {
      release(p, p->slot[i].device);
      release(p, p->slot[i].d_segment);
      release(p, p->slot[i].arena);
      mill_free(p->slot[i].segment);
    }
    for (int i = 0; i < p->n_waveset; i++)
      waveset_clear(p, &p->waveset[i]);
    for (int i = 0; i < p->n_deconv; i++)
      release(p, p->deconv[i].device);
    for (int i = 0; i < p->n_owned; i++)
      release(p, p->owned[i]);
    p->backend->close(p->device);
  }
  mill_guess_table_clear(&p->guess);
  mill_free(p->slot);
  mill_free(p->waveset);
  mill_free(p->deconv);
  mill_free(p->owned);
  mill_free(p->model_flux);
  mill_free((void *)p->model_row);
  mill_free(p);
}

/** Put a copy of host data on the device. */
static int send(mill_pipeline *p, size_t bytes, const void *from, void **out)
{
  int err = MILL_OK;
  MILL_TRY(p->backend->alloc(p->device, bytes, out));
  MILL_TRY(p->backend->upload(p->device, *out, from, bytes));
done:
  return err;
}

static int check_waves(const mill_pipeline *p, int arm, int n_pix, const double *wave_aa)
{
  int err = MILL_OK;
  const mill_model *m = &p->model;
  const char *name = p->lib->arm[arm].name;
  if (n_pix < 2 * m->set.n_cont)
    MILL_FAIL(MILL_ERR_RANGE, "arm %s has %d pixels, too few for %d continuum functions", name,
              n_pix, m->set.n_cont);
  for (int i = 0; i < n_pix; i++)
    if (!isfinite(wave_aa[i]) || wave_aa[i] <= 0.0 || (i > 0 && !(wave_aa[i] > wave_aa[i - 1])))
      MILL_FAIL(MILL_ERR_RANGE, "wavelengths of arm %s are not ascending at pixel %d", name, i);
  const double least = p->lib->arm[arm].wave_aa[0];
  const double most = p->lib->arm[arm].wave_aa[p->lib->arm[arm].n_pix - 1];
  const double blue = wave_aa[0] * exp(-atanh(m->set.max_vel_km_s / MILL_C_KM_S));
  const double red = wave_aa[n_pix - 1] * exp(-atanh(m->set.min_vel_km_s / MILL_C_KM_S));
  if (blue < least || red >= most)
    MILL_FAIL(MILL_ERR_RANGE,
              "arm %s reaches %.1f to %.1f A at the velocity limits, the library's templates "
              "%.1f to %.1f A; narrow min_vel and max_vel or use another library",
              name, blue, red, least, most);
done:
  return err;
}

static int find_waveset(const mill_pipeline *p, int arm, int n_pix, const double *wave_aa)
{
  for (int i = 0; i < p->n_waveset; i++)
    if (p->waveset[i].arm == arm && p->waveset[i].n_pix == n_pix &&
        memcmp(p->waveset[i].wave_aa, wave_aa, (size_t)n_pix * sizeof *wave_aa) == 0)
      return i;
  return -1;
}

int mill_pipeline_waveset(mill_pipeline *p, int arm, int n_pix, const double *wave_aa, int *id)
{
  int err = MILL_OK;
  mill_model *m = &p->model;
  const int nk = m->set.n_cont;
  double *ln_wave = NULL;
  float *cont = NULL, *templ = NULL;
  unsigned char *masked = NULL;
  int *bin_first = NULL;
  waveset_entry fresh;
  void *memory = NULL;
  memset(&fresh, 0, sizeof fresh);

  *id = find_waveset(p, arm, n_pix, wave_aa);
  if (*id >= 0)
    return MILL_OK;
  MILL_TRY(check_waves(p, arm, n_pix, wave_aa));
  if (p->n_waveset == p->cap_waveset) {
    const int cap = p->cap_waveset ? 2 * p->cap_waveset : FIRST_WAVESETS;
    waveset_entry *more = NULL;
    MILL_TRY(MILL_ALLOC(cap, &more));
    if (p->n_waveset)
      memcpy(more, p->waveset, (size_t)p->n_waveset * sizeof *more);
    mill_free(p->waveset);
    p->waveset = more;
    p->cap_waveset = cap;
  }
  MILL_TRY(MILL_ALLOC(n_pix, &fresh.wave_aa));
  memcpy(fresh.wave_aa, wave_aa, (size_t)n_pix * sizeof *wave_aa);
  MILL_TRY(MILL_ALLOC(n_pix, &ln_wave));
  MILL_TRY(MILL_ALLOC((size_t)nk * (size_t)n_pix, &cont));
  MILL_TRY(MILL_ALLOC(n_pix, &masked));
  for (int i = 0; i < n_pix; i++) {
    const double x = 2.0 * (wave_aa[i] - wave_aa[0]) / (wave_aa[n_pix - 1] - wave_aa[0]) - 1.0;
    ln_wave[i] = log(wave_aa[i]);
    for (int k = 0; k < nk; k++)
      cont[(size_t)k * (size_t)n_pix + (size_t)i] =
          (float)mill_continuum(m->set.continuum, nk, k, x);
    for (int r = 0; r < m->set.n_wave_mask; r++)
      if (wave_aa[i] > m->set.wave_mask[r].min_aa && wave_aa[i] < m->set.wave_mask[r].max_aa)
        masked[i] = 1;
  }
  mill_waveset *w = &fresh.host;
  fresh.arm = w->arm = arm;
  fresh.n_pix = w->n_pix = n_pix;
  w->n_cont = nk;
  w->pixel_aa = wave_aa[1] - wave_aa[0];
  MILL_TRY(mill_guess_table_bins(&p->guess, p->lib, &m->set, arm, n_pix, wave_aa, &w->n_bin,
                                 &bin_first, &templ));
  MILL_TRY(send(p, (size_t)n_pix * sizeof *ln_wave, ln_wave, &memory));
  w->ln_wave = memory;
  MILL_TRY(send(p, (size_t)nk * (size_t)n_pix * sizeof *cont, cont, &memory));
  w->cont = memory;
  MILL_TRY(send(p, (size_t)n_pix, masked, &memory));
  w->masked = memory;
  MILL_TRY(send(p, ((size_t)w->n_bin + 1) * sizeof *bin_first, bin_first, &memory));
  w->bin_first = memory;
  MILL_TRY(send(
      p, (size_t)p->guess.n_templ * ((size_t)w->n_bin + 2 * (size_t)p->guess.half) * sizeof *templ,
      templ, &memory));
  w->templ = memory;
  MILL_TRY(send(p, sizeof *w, w, &memory));
  fresh.device = memory;
  if (n_pix > m->max_seg_pix) {
    m->max_seg_pix = n_pix;
    MILL_TRY(p->backend->upload(p->device, p->d_model, m, sizeof *m));
  }
  *id = p->n_waveset;
  p->waveset[p->n_waveset++] = fresh;
  memset(&fresh, 0, sizeof fresh);
done:
  waveset_clear(p, &fresh);
  mill_free(ln_wave);
  mill_free(cont);
  mill_free(masked);
  mill_free(bin_first);
  mill_free(templ);
  return err;
}

/** Inverse of the Gaussian that the template carries, on n_diag pixels:
 *  G_ij = exp(-(i-j)^2 / 2 s^2) / (s sqrt(2 pi)), s in pixels (data/README). */
static int find_deconv(mill_pipeline *p, int n_diag, double sigma_pix, const double **out)
{
  int err = MILL_OK;
  double *g = NULL;
  void *memory = NULL;
  for (int i = 0; i < p->n_deconv; i++)
    if (p->deconv[i].n_diag == n_diag && p->deconv[i].sigma_pix == sigma_pix) {
      *out = p->deconv[i].device;
      return MILL_OK;
    }
  if (p->n_deconv == p->cap_deconv) {
    const int cap = 2 * p->cap_deconv + 8;
    deconv_entry *more = NULL;
    MILL_TRY(MILL_ALLOC(cap, &more));
    if (p->n_deconv)
      memcpy(more, p->deconv, (size_t)p->n_deconv * sizeof *more);
    mill_free(p->deconv);
    p->deconv = more;
    p->cap_deconv = cap;
  }
  MILL_TRY(MILL_ALLOC(n_diag * n_diag, &g));
  for (int i = 0; i < n_diag; i++)
    for (int j = 0; j < n_diag; j++) {
      const double u = (double)(i - j) / sigma_pix;
      g[i * n_diag + j] = exp(-0.5 * u * u) / (sigma_pix * sqrt(2.0 * 3.14159265358979323846));
    }
  lapack_int pivot[MILL_MAX_DIAG];
  if (LAPACKE_dgetrf(LAPACK_ROW_MAJOR, n_diag, n_diag, g, n_diag, pivot) != 0 ||
      LAPACKE_dgetri(LAPACK_ROW_MAJOR, n_diag, g, n_diag, pivot) != 0)
    MILL_FAIL(MILL_ERR_RANGE,
              "the template's resolution (sigma %g pixels) cannot be taken out of a matrix of %d "
              "diagonals",
              sigma_pix, n_diag);
  MILL_TRY(send(p, (size_t)n_diag * (size_t)n_diag * sizeof *g, g, &memory));
  p->deconv[p->n_deconv].n_diag = n_diag;
  p->deconv[p->n_deconv].sigma_pix = sigma_pix;
  p->deconv[p->n_deconv++].device = memory;
  *out = memory;
done:
  mill_free(g);
  return err;
}

static size_t take(size_t *at, size_t bytes)
{
  const size_t here = *at;
  *at += (bytes + 63) / 64 * 64;
  return here;
}

/** Is this segment's resolution matrix used? */
static int with_matrix(const mill_pipeline *p, const mill_raw_segment *raw)
{
  return raw->resolution && raw->n_diag > 0 && p->model.set.resolution != MILL_RES_NONE &&
         p->lib->arm[raw->arm].template_sigma_aa >= 0.0;
}

/** Copy a star into a slot. */
static int load_slot(mill_pipeline *p, slot_entry *e, const mill_star *star)
{
  int err = MILL_OK;
  const mill_backend *be = p->backend;
  const mill_model *m = &p->model;
  void *memory = NULL;
  if (star->n_segment > e->cap_segment) {
    mill_free(e->segment);
    e->segment = NULL;
    release(p, e->d_segment);
    e->d_segment = NULL;
    e->cap_segment = 0;
    MILL_TRY(MILL_ALLOC(star->n_segment, &e->segment));
    MILL_TRY(be->alloc(p->device, (size_t)star->n_segment * sizeof(mill_segment), &memory));
    e->d_segment = memory;
    e->cap_segment = star->n_segment;
  }
  /* first pass measures, second places */
  int max_bin = 1;
  for (int pass = 0; pass < 2; pass++) {
    size_t at = 0;
    for (int i = 0; i < star->n_segment; i++) {
      const mill_raw_segment *raw = &star->segment[i];
      if (raw->arm < 0 || raw->arm >= m->n_arm || raw->waveset < 0 ||
          raw->waveset >= p->n_waveset || p->waveset[raw->waveset].n_pix != raw->n_pix ||
          p->waveset[raw->waveset].arm != raw->arm || raw->n_diag > MILL_MAX_DIAG)
        MILL_FAIL(MILL_ERR_INTERNAL, "segment %d of row %lld does not fit its wavelength set", i,
                  (long long)star->row);
      const waveset_entry *ws = &p->waveset[raw->waveset];
      const size_t n = (size_t)raw->n_pix;
      const int matrix = with_matrix(p, raw);
      const size_t nd = matrix ? (size_t)raw->n_diag : 0;
      if (ws->host.n_bin > max_bin)
        max_bin = ws->host.n_bin;
      const size_t flux = take(&at, n * 4), ivar = take(&at, n * 4), mask = take(&at, n * 4);
      const size_t raw_res = take(&at, nd * n * 4), res = take(&at, nd * n * 4);
      const size_t d = take(&at, n * 4), is = take(&at, n * 4), good = take(&at, n);
      const size_t base = take(&at, n * 8);
      const size_t scratch = take(&at, n * 4), model = take(&at, p->want_models ? n * 4 : 0);
      if (pass == 0)
        continue;
      mill_segment *s = &e->segment[i];
      memset(s, 0, sizeof *s);
      s->arm = raw->arm;
      s->n_pix = raw->n_pix;
      s->n_diag = (int)nd;
      s->ws = ws->device;
      s->raw_flux = (float *)(void *)(e->arena + flux);
      s->raw_ivar = (float *)(void *)(e->arena + ivar);
      s->raw_mask = (int32_t *)(void *)(e->arena + mask);
      s->d = (float *)(void *)(e->arena + d);
      s->is = (float *)(void *)(e->arena + is);
      s->good = (unsigned char *)(e->arena + good);
      s->base = (double *)(void *)(e->arena + base);
      s->scratch = (float *)(void *)(e->arena + scratch);
      if (p->want_models)
        s->model = (float *)(void *)(e->arena + model);
      MILL_TRY(be->upload(p->device, s->raw_flux, raw->flux, n * 4));
      MILL_TRY(be->upload(p->device, s->raw_ivar, raw->ivar, n * 4));
      if (raw->mask)
        MILL_TRY(be->upload(p->device, s->raw_mask, raw->mask, n * 4));
      else
        MILL_TRY(be->zero(p->device, s->raw_mask, n * 4));
      if (matrix) {
        s->raw_res = (float *)(void *)(e->arena + raw_res);
        s->res = (float *)(void *)(e->arena + res);
        MILL_TRY(be->upload(p->device, s->raw_res, raw->resolution, nd * n * 4));
        const double sigma = p->lib->arm[raw->arm].template_sigma_aa;
        if (sigma > 0.0)
          MILL_TRY(find_deconv(p, raw->n_diag, sigma / ws->host.pixel_aa, &s->deconv));
      }
    }
    const size_t chisq = (size_t)m->n_templ * (2 * (size_t)m->guess_half + 1) * sizeof(double);
    const size_t wn = take(&at, (size_t)max_bin * 4), w = take(&at, (size_t)max_bin * 4);
    const size_t guess = take(&at, chisq);
    if (pass == 0) {
      if (at > e->cap_arena) {
        release(p, e->arena);
        e->arena = NULL;
        e->cap_arena = 0;
        MILL_TRY(be->alloc(p->device, at, &memory));
        e->arena = memory;
        e->cap_arena = at;
      }
      continue;
    }
    memset(&e->host, 0, sizeof e->host);
    e->host.n_segment = star->n_segment;
    e->host.segment = e->d_segment;
    e->host.bin_wn = (float *)(void *)(e->arena + wn);
    e->host.bin_w = (float *)(void *)(e->arena + w);
    e->host.guess_chisq = (double *)(void *)(e->arena + guess);
    mill_fit_result_init(&e->host.result, p->lib, star->row, MILL_STATUS_NOT_DONE);
  }
  MILL_TRY(be->upload(p->device, e->d_segment, e->segment,
                      (size_t)star->n_segment * sizeof(mill_segment)));
  MILL_TRY(be->upload(p->device, e->device, &e->host, sizeof e->host));
  e->active = 1;
done:
  return err;
}

/** Best-fit models of a finished slot into p->model_row. */
static int fetch_models(mill_pipeline *p, const slot_entry *e)
{
  int err = MILL_OK;
  const int n_segment = e->host.n_segment;
  size_t n = 0;
  MILL_TRY(p->backend->download(p->device, e->segment, e->d_segment,
                                (size_t)n_segment * sizeof(mill_segment)));
  for (int i = 0; i < n_segment; i++)
    n += (size_t)e->segment[i].n_pix;
  if (n > p->cap_model_flux) {
    mill_free(p->model_flux);
    p->model_flux = NULL;
    p->cap_model_flux = 0;
    MILL_TRY(MILL_ALLOC(n, &p->model_flux));
    p->cap_model_flux = n;
  }
  if (n_segment > p->cap_model_row) {
    mill_free((void *)p->model_row);
    p->model_row = NULL;
    p->cap_model_row = 0;
    MILL_TRY(mill_alloc_bytes((size_t)n_segment, sizeof *p->model_row, (void **)&p->model_row));
    p->cap_model_row = n_segment;
  }
  float *at = p->model_flux;
  for (int i = 0; i < n_segment; i++) {
    const mill_segment *s = &e->segment[i];
    p->model_row[i] = at;
    if (s->used)
      MILL_TRY(p->backend->download(p->device, at, s->model, (size_t)s->n_pix * sizeof *at));
    else
      for (int k = 0; k < s->n_pix; k++)
        at[k] = NAN;
    at += s->n_pix;
  }
done:
  return err;
}

int mill_pipeline_evaluate(mill_pipeline *p, const mill_star *star, int request, int n_point,
                           const double *theta, mill_eval *eval, mill_fit_result *prepared)
{
  int err = MILL_OK;
  slot_entry *e = &p->slot[0];
  const mill_backend *be = p->backend;
  /* a copy whose hulls are the host's, for the penalty */
  mill_model m = p->model;
  memcpy(m.hull, p->lib->hull, sizeof m.hull);
  MILL_TRY(load_slot(p, e, star));
  e->active = 0;
  MILL_TRY(be->start(p->device, p->d_model, &e->device, 1));
  MILL_TRY(be->download(p->device, &e->host, e->device, sizeof e->host));
  *prepared = e->host.result;
  if (e->host.stage == MILL_STAGE_DONE)
    goto done;
  for (int i = 0; i < n_point; i++) {
    /* a stage that the state machine leaves alone */
    e->host.stage = MILL_STAGE_EMPTY;
    e->host.request = request;
    memcpy(e->host.theta, theta + (size_t)i * (size_t)m.n_par, (size_t)m.n_par * sizeof *theta);
    MILL_TRY(be->upload(p->device, e->device, &e->host, sizeof e->host));
    MILL_TRY(be->round(p->device, p->d_model, &e->device, 1, 1));
    MILL_TRY(be->download(p->device, &e->host, e->device, sizeof e->host));
    eval[i] = e->host.eval;
    eval[i].f += mill_penalty(&m, &e->host, e->host.theta);
  }
done:
  return err;
}

int mill_pipeline_run(mill_pipeline *p, mill_star_source source, void *source_context,
                      mill_result_sink sink, void *sink_context)
{
  int err = MILL_OK;
  int more = 1;
  mill_slot **list = NULL;
  MILL_TRY(mill_alloc_bytes((size_t)p->n_slot, sizeof *list, (void **)&list));
  for (;;) {
    int n_fresh = 0;
    for (int i = 0; i < p->n_slot && more; i++) {
      slot_entry *e = &p->slot[i];
      if (e->active)
        continue;
      mill_star star;
      memset(&star, 0, sizeof star);
      const int got = source(source_context, &star);
      if (got < 0) {
        err = -got;
        goto done;
      }
      if (got == 0) {
        more = 0;
        break;
      }
      MILL_TRY(load_slot(p, e, &star));
      list[n_fresh++] = e->device;
    }
    if (n_fresh > 0)
      MILL_TRY(p->backend->start(p->device, p->d_model, list, n_fresh));
    int n_active = 0;
    for (int i = 0; i < p->n_slot; i++)
      if (p->slot[i].active)
        list[n_active++] = p->slot[i].device;
    if (n_active == 0)
      break;
    MILL_TRY(p->backend->round(p->device, p->d_model, list, n_active, ROUNDS_PER_CALL));
    for (int i = 0; i < p->n_slot; i++) {
      slot_entry *e = &p->slot[i];
      if (!e->active)
        continue;
      MILL_TRY(p->backend->download(p->device, &e->host, e->device, sizeof e->host));
      if (e->host.stage != MILL_STAGE_DONE)
        continue;
      const float *const *model = NULL;
      if (p->want_models && e->host.result.status == MILL_STATUS_FITTED) {
        MILL_TRY(fetch_models(p, e));
        model = p->model_row;
      }
      e->active = 0;
      MILL_TRY(sink(sink_context, &e->host.result, model));
    }
  }
done:
  for (int i = 0; i < p->n_slot; i++)
    p->slot[i].active = 0;
  mill_free(list);
  return err;
}
