#include "src/pipeline/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/nvtx.h"
#include "kernels/star/polish.h"
#include "kernels/star/prepare.h"
#include "kernels/math/rotation.h"
#include "kernels/math/spline_filter.h"
#include "kernels/base/clock.h"
#include "src/pipeline/guess_table.h"
#include "src/system/log.h"
#include "src/pipeline/waveset_cache.h"

enum {
  /** Rounds between looks at which slots have become free, where the host waits for them */
  ROUNDS_PER_CALL = 4,
  /** ... and at most where it does not, as long as too few have become free. */
  ROUNDS_PER_LOOP = 64,
  /** Part of the slots that is worth a look, and that is filled between two looks. */
  SLOT_SHARE = 8
};

/** What a slot is filled with; its work space needs no filling. */
#define UPLOAD_BYTES offsetof(mill_slot, space)

/** Slots get their first memory in pieces of about so many bytes. */
#define SLAB_BYTES ((size_t)32 << 20)

/** What is uploaded with a segment at most (flux, inverse variance, mask, resolution or sigma),
 *  and with a star beside that. */
enum { SEGMENT_PIECES = 4, STAR_PIECES = 2 };

/** Arrays in device memory begin at multiples of this. */
#define ARRAY_BYTES 64

/** Device memory of a slot. */
typedef struct slot_memory {
  char *at;
  size_t cap;
  int is_own; /**< 0: it is a part of a piece that the pipeline owns */
} slot_memory;

enum { SEGMENTS, ARRAYS, N_SLOT_MEMORY };

/** A slot as the host knows it. */
typedef struct slot_entry {
  mill_slot *device;
  slot_memory memory[N_SLOT_MEMORY]; /**< its mill_segment, and all pixel arrays */
  mill_segment *segment;             /**< host mirror [cap_segment], owned */
  int *waveset;                      /**< ids of the sets that it holds [cap_segment], owned */
  int n_waveset;
  int *n_diag; /**< of the rows that each segment will have [cap_segment], owned */
  int cap_segment;
  size_t model_bytes; /**< of all segments' models together */
  int active;         /**< holds a star */
  int fresh;          /**< that has not been started */
  int finished;       /**< whose row waits to be handed over */
} slot_entry;

struct mill_pipeline {
  const mill_library *lib;
  const mill_backend *backend;
  mill_device *device;
  mill_model model; /**< host copy, its pointers are device memory */
  mill_model *d_model;
  int n_slot, want_models;
  int n_usable;      /**< slots that may take a star: n_slot, less when memory is full */
  int is_bound;      /**< the backend knows the model as it is */
  int has_remarked;  /**< the log has the backend's remark */
  int is_under_way;  /**< rounds are */
  mill_slot **bound; /**< [n_slot] device memory of all slots */
  mill_slot host;    /**< last downloaded or to be uploaded */
  slot_entry *slot;
  /* of a run */
  int *list;            /**< [n_slot] */
  int *done;            /**< [n_slot] slots whose rows wait to be handed over */
  mill_fit_result *row; /**< [n_slot] their rows */
  int n_done;
  mill_star waiting; /**< a star for which there was no memory */
  int is_waiting;
  mill_waveset_cache *waveset;
  mill_guess_table guess;
  float *lsf_aa; /**< of the star that is being loaded, all segments */
  size_t cap_lsf;
  mill_upload *piece; /**< of the star that is being loaded [cap_piece], owned */
  int n_piece, cap_piece;
  void **owned; /**< device memory of the model and of the slots */
  int n_owned, cap_owned;
  int n_fixed;        /**< the first ones of them; slots share the others */
  size_t owned_bytes; /**< of the model only */
  /* model download */
  float *model_flux;
  size_t cap_model_bytes;
  const float **model_row;
  int cap_model_row;
  double load_s, load_wall_s; /**< CPU and wall seconds of copying stars into slots */
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
  if (from) {
    p->owned_bytes += bytes;
    MILL_TRY(p->backend->upload(p->device, *out, from, bytes));
  }
done:
  return err;
}

/** One layer in panels, padded; the last one without its mean over pixels. */
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
  const int panel = MILL_PANEL_BYTES / (int)real;
  const size_t n_weight = (size_t)n_in * (size_t)pad;
  MILL_TRY(mill_alloc_bytes(n_weight + (size_t)pad, real, &host)); /* the bias at the end */
  for (int k = 0; k <= n_in; k++)
    for (int i = 0; i < n_out; i++) {
      const double w =
          (double)(k < n_in ? e->weight[l][(size_t)i * (size_t)n_in + (size_t)k] : e->bias[l][i]) -
          mean[k];
      const size_t at = k < n_in ? mill_weight_at(n_in, panel, k, i) : n_weight + (size_t)i;
      if (wide)
        ((double *)host)[at] = w;
      else
        ((float *)host)[at] = (float)w;
    }
  MILL_TRY(own(p, (n_weight + (size_t)pad) * real, host, &memory));
  layer->weight = memory;
  layer->bias = (const char *)memory + n_weight * real;
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

/** Centers and coefficients of an arm's radial functions. */
static int load_rbf(mill_pipeline *p, const mill_rbf *from, mill_rbf *rbf)
{
  int err = MILL_OK;
  const size_t n_center = (size_t)from->n_center, n_row = n_center + (size_t)from->n_poly;
  void *memory = NULL;
  *rbf = *from;
  MILL_TRY(own(p, n_center * (size_t)from->n_axis * sizeof(double), from->center, &memory));
  rbf->center = memory;
  MILL_TRY(own(p, n_row * (size_t)from->n_out * sizeof *from->coef, from->coef, &memory));
  rbf->coef = memory;
done:
  return err;
}

static int load_model(mill_pipeline *p, const mill_fit_settings *settings, int n_thread)
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
  for (int l = 0; l < m->n_label; l++)
    mill_label_set_edges(&m->label[l]);
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
    if (from->n_pix < 4 * MILL_SPLINE_END)
      MILL_FAIL(MILL_ERR_LIBRARY, "%s: arm %s has %d pixels, at least %d are needed", lib->path,
                from->name, from->n_pix, 4 * MILL_SPLINE_END);
    mill_spline_filter(arm);
    if (arm->kind == MILL_EMULATOR_GRID)
      MILL_TRY(load_grid(p, &from->emulator.grid, &arm->grid));
    if (arm->kind == MILL_EMULATOR_RBF)
      MILL_TRY(load_rbf(p, &from->emulator.rbf, &arm->rbf));
    for (int l = 0; l < arm->n_layer; l++)
      MILL_TRY(load_layer(p, &from->emulator, l, arm));
    if (arm->n_pix_pad > m->max_pix_pad)
      m->max_pix_pad = arm->n_pix_pad;
  }
  MILL_TRY(mill_guess_table_create(lib, settings, n_thread, &p->guess));
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
    /* the first test keeps a half width within int */
    if (s->max_vsini_km_s / (MILL_C_KM_S * lib->arm[a].ln_step) > (double)MILL_MAX_ROTATION ||
        mill_rotation_half_width(s->rotation,
                                 s->max_vsini_km_s / (MILL_C_KM_S * lib->arm[a].ln_step)) >
            MILL_MAX_ROTATION)
      MILL_FAIL(MILL_ERR_RANGE,
                "max_vsini %g km/s spans more than %d grid points of arm %s; lower it",
                s->max_vsini_km_s, MILL_MAX_ROTATION, lib->arm[a].name);
done:
  return err;
}

/** Bytes up to where the next array may begin. */
static size_t array_bytes(size_t bytes)
{
  return (bytes + ARRAY_BYTES - 1) / ARRAY_BYTES * ARRAY_BYTES;
}

int mill_pipeline_create(const mill_library *lib, const mill_fit_settings *settings,
                         const mill_backend *backend, int n_slot, int n_thread, int want_models,
                         mill_pipeline **out)
{
  int err = MILL_OK;
  mill_pipeline *p = NULL;
  void *memory = NULL;
  const size_t slot_bytes = array_bytes(sizeof(mill_slot));
  *out = NULL;
  MILL_TRY(check_settings(lib, settings));
  if (n_slot < 1)
    MILL_FAIL(MILL_ERR_RANGE, "%d slots; at least one is needed", n_slot);
  MILL_TRY(MILL_ALLOC(1, &p));
  p->lib = lib;
  p->backend = backend;
  p->n_slot = n_slot;
  p->n_usable = n_slot;
  p->want_models = want_models;
  MILL_TRY(backend->open(n_thread, &p->device));
  MILL_TRY(load_model(p, settings, n_thread));
  MILL_TRY(mill_waveset_cache_create(lib, &p->model.set, &p->guess, backend, p->device, n_thread,
                                     &p->waveset));
  MILL_TRY(MILL_ALLOC(n_slot, &p->slot));
  MILL_TRY(MILL_ALLOC(n_slot, &p->list));
  MILL_TRY(MILL_ALLOC(n_slot, &p->done));
  MILL_TRY(MILL_ALLOC(n_slot, &p->row));
  MILL_TRY(mill_alloc_bytes((size_t)n_slot, sizeof *p->bound, (void **)&p->bound));
  err = own(p, (size_t)n_slot * slot_bytes, NULL, &memory);
  if (err == MILL_ERR_MEMORY)
    MILL_FAIL(err, "slots: no memory for %d of them, %.1f GB before a star has come; give fewer",
              n_slot, 1e-9 * (double)n_slot * (double)slot_bytes);
  MILL_TRY(err);
  for (int i = 0; i < n_slot; i++) {
    p->slot[i].device = (mill_slot *)(void *)((char *)memory + (size_t)i * slot_bytes);
    p->bound[i] = p->slot[i].device;
  }
  p->n_fixed = p->n_owned;
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

/** Give memory back that is not a part of a piece. */
static void drop_own(mill_pipeline *p, slot_memory *memory)
{
  if (!memory->is_own)
    return;
  release(p, memory->at);
  *memory = (slot_memory){0};
}

void mill_pipeline_destroy(mill_pipeline *p)
{
  if (!p)
    return;
  if (p->device) {
    for (int i = 0; p->slot && i < p->n_slot; i++) {
      for (int k = 0; k < N_SLOT_MEMORY; k++)
        drop_own(p, &p->slot[i].memory[k]);
      mill_free(p->slot[i].segment);
      mill_free(p->slot[i].waveset);
      mill_free(p->slot[i].n_diag);
    }
    mill_waveset_cache_destroy(p->waveset);
    for (int i = 0; i < p->n_owned; i++)
      release(p, p->owned[i]);
    p->backend->close(p->device);
  }
  mill_guess_table_clear(&p->guess);
  mill_free(p->slot);
  mill_free(p->list);
  mill_free(p->done);
  mill_free(p->row);
  mill_free((void *)p->bound);
  mill_free(p->lsf_aa);
  mill_free(p->piece);
  mill_free(p->owned);
  mill_free(p->model_flux);
  mill_free((void *)p->model_row);
  mill_free(p);
}

int mill_pipeline_waveset(mill_pipeline *p, int arm, int n_pix, const double *wave_aa, int *id)
{
  int err = MILL_OK;
  mill_model *m = &p->model;
  if (arm < 0 || arm >= m->n_arm)
    MILL_FAIL(MILL_ERR_INTERNAL, "arm %d of a library with %d arms", arm, m->n_arm);
  MILL_TRY(mill_waveset_cache_get(p->waveset, arm, n_pix, wave_aa, id));
  if (n_pix > m->max_seg_pix) {
    /* the device learns it when no round is under way */
    m->max_seg_pix = n_pix;
    p->is_bound = 0;
  }
done:
  return err;
}

void mill_pipeline_waveset_release(mill_pipeline *p, int id)
{
  if (id >= 0)
    mill_waveset_cache_release(p->waveset, id);
}

void mill_pipeline_waveset_hold(mill_pipeline *p, int id)
{
  mill_waveset_cache_hold(p->waveset, id);
}

void mill_pipeline_waveset_limit(mill_pipeline *p, size_t bytes)
{
  mill_waveset_cache_limit(p->waveset, bytes);
}

void mill_pipeline_waveset_stats(const mill_pipeline *p, mill_waveset_stats *stats)
{
  mill_waveset_cache_stats(p->waveset, stats);
}

static size_t take(size_t *at, size_t bytes)
{
  const size_t here = *at;
  *at += array_bytes(bytes);
  return here;
}

/** Does the run take templates to the instrument's resolution in this arm? */
static int convolves(const mill_pipeline *p, int arm)
{
  return p->model.set.resolution != MILL_RES_NONE && p->lib->arm[arm].template_sigma_aa >= 0.0;
}

/** Is this segment's resolution matrix used? */
static int with_matrix(const mill_pipeline *p, const mill_raw_segment *raw)
{
  return raw->resolution && raw->n_diag > 0 && convolves(p, raw->arm);
}

/** Is this segment's sigma used? */
static int with_sigma(const mill_pipeline *p, const mill_raw_segment *raw)
{
  return raw->sigma_aa && !with_matrix(p, raw) && convolves(p, raw->arm);
}

/** What templates lack of a segment's line-spread function, and how many diagonals
 *  that takes (0: they lack nothing); bits of FIT_INFO. */
static void plan_sigma(const mill_pipeline *p, const mill_raw_segment *raw, const double *wave_aa,
                       float *lsf_aa, int *n_diag, int *info)
{
  const double templ = p->lib->arm[raw->arm].template_sigma_aa;
  const int n = raw->n_pix;
  int half = 0, n_unusable = 0, n_narrow = 0;
  for (int i = 0; i < n; i++) {
    const double sigma = (double)raw->sigma_aa[i];
    lsf_aa[i] = NAN;
    if (!(sigma > 0.0) || !isfinite(sigma)) {
      n_unusable++;
      continue;
    }
    if (sigma <= templ) {
      n_narrow += sigma < MILL_LSF_NARROW * templ;
      lsf_aa[i] = 0.0f;
      continue;
    }
    const double lack = sqrt(sigma * sigma - templ * templ);
    const int i_left = i > 0 ? i - 1 : 0, i_right = i < n - 1 ? i + 1 : n - 1;
    const double pixel = (wave_aa[i_right] - wave_aa[i_left]) / (double)(i_right - i_left);
    const double reach = MILL_LSF_REACH * lack / pixel;
    if (reach > (double)(MILL_MAX_DIAG / 2)) {
      n_unusable++;
      continue;
    }
    /* half of the kernel is off the arm */
    if (i < 2 || i >= n - 2 || wave_aa[i] - MILL_LSF_EDGE * lack < wave_aa[0] ||
        wave_aa[i] + MILL_LSF_EDGE * lack > wave_aa[n - 1])
      continue;
    lsf_aa[i] = (float)lack;
    const int needed = reach > 2.0 ? (int)ceil(reach) : 2;
    half = needed > half ? needed : half;
  }
  *n_diag = half > 0 ? 2 * half + 1 : 0;
  if ((double)n_unusable >= MILL_LSF_SIZEABLE * (double)n)
    *info |= MILL_INFO_LSF_UNUSABLE;
  if ((double)n_narrow >= MILL_LSF_SIZEABLE * (double)n)
    *info |= MILL_INFO_LSF_NARROW;
}

/** At least n_byte bytes of a slot's memory.  Slots that have none yet get theirs together: large
 *  blocks lie in large pages.  What a slot has stays its own where there is no memory for more. */
static int reserve_memory(mill_pipeline *p, slot_entry *e, int which, size_t n_byte)
{
  int err = MILL_OK;
  void *memory = NULL;
  slot_memory *mine = &e->memory[which];
  n_byte = array_bytes(n_byte);
  if (n_byte <= mine->cap)
    goto done;
  if (mine->at) {
    MILL_TRY(p->backend->alloc(p->device, n_byte, &memory));
    drop_own(p, mine);
    *mine = (slot_memory){memory, n_byte, 1};
    goto done;
  }
  size_t n = 1;
  const slot_entry *end = p->slot + p->n_slot;
  while (e + n < end && !e[n].memory[which].at && (n + 1) * n_byte <= SLAB_BYTES)
    n++;
  for (;; n /= 2) { /* less where there is no memory for so many */
    err = own(p, n * n_byte, NULL, &memory);
    if (err != MILL_ERR_MEMORY || n == 1)
      break;
  }
  MILL_TRY(err);
  for (size_t i = 0; i < n; i++)
    e[i].memory[which] = (slot_memory){(char *)memory + i * n_byte, n_byte, 0};
done:
  return err;
}

/** Something that goes to the device with the star that is being loaded. */
static void add_piece(mill_pipeline *p, void *to, const void *from, size_t bytes)
{
  p->piece[p->n_piece++] = (mill_upload){to, from, bytes};
}

/** Room for the segments of a star in a slot, for its line-spread functions and for the list of
 *  what is uploaded. */
static int reserve_segments(mill_pipeline *p, slot_entry *e, const mill_star *star)
{
  int err = MILL_OK;
  size_t n_lsf = 0;
  const int n_piece = SEGMENT_PIECES * star->n_segment + STAR_PIECES;
  if (n_piece > p->cap_piece) {
    mill_free(p->piece);
    p->piece = NULL;
    p->cap_piece = 0;
    MILL_TRY(MILL_ALLOC(n_piece, &p->piece));
    p->cap_piece = n_piece;
  }
  for (int i = 0; i < star->n_segment; i++)
    n_lsf += star->segment[i].sigma_aa ? (size_t)star->segment[i].n_pix : 0;
  if (n_lsf > p->cap_lsf) {
    mill_free(p->lsf_aa);
    p->lsf_aa = NULL;
    p->cap_lsf = 0;
    MILL_TRY(MILL_ALLOC(n_lsf, &p->lsf_aa));
    p->cap_lsf = n_lsf;
  }
  MILL_TRY(reserve_memory(p, e, SEGMENTS, (size_t)star->n_segment * sizeof(mill_segment)));
  if (star->n_segment <= e->cap_segment)
    goto done;
  mill_free(e->segment);
  mill_free(e->waveset);
  mill_free(e->n_diag);
  e->segment = NULL;
  e->waveset = NULL;
  e->n_diag = NULL;
  e->cap_segment = 0;
  MILL_TRY(MILL_ALLOC(star->n_segment, &e->segment));
  MILL_TRY(MILL_ALLOC(star->n_segment, &e->waveset));
  MILL_TRY(MILL_ALLOC(star->n_segment, &e->n_diag));
  e->cap_segment = star->n_segment;
done:
  return err;
}

/** Check the segments of a star and plan their line-spread functions. */
static int plan_star(mill_pipeline *p, slot_entry *e, const mill_star *star, int *info)
{
  int err = MILL_OK;
  float *lsf_aa = p->lsf_aa;
  for (int i = 0; i < star->n_segment; i++) {
    const mill_raw_segment *raw = &star->segment[i];
    mill_waveset_view ws;
    if (!mill_waveset_cache_view(p->waveset, raw->waveset, &ws) || ws.n_pix != raw->n_pix ||
        ws.arm != raw->arm || raw->n_diag > MILL_MAX_DIAG)
      MILL_FAIL(MILL_ERR_INTERNAL, "segment %d of row %lld does not fit its wavelength set", i,
                (long long)star->row);
    e->n_diag[i] = with_matrix(p, raw) ? raw->n_diag : 0;
    if (with_sigma(p, raw)) {
      plan_sigma(p, raw, ws.wave_aa, lsf_aa, &e->n_diag[i], info);
      lsf_aa += raw->n_pix;
    }
  }
done:
  return err;
}

/** Copy a star into a slot, which then holds its wavelength sets. */
static int load_slot(mill_pipeline *p, slot_entry *e, const mill_star *star)
{
  int err = MILL_OK;
  const mill_backend *be = p->backend;
  const mill_model *m = &p->model;
  int info = 0;
  MILL_TRY(reserve_segments(p, e, star));
  MILL_TRY(plan_star(p, e, star, &info));
  p->n_piece = 0;
  /* first pass measures, second places */
  int max_bin = 1;
  size_t n_raw = 0, n_model = 0;
  char *arena = NULL;
  for (int pass = 0; pass < 2; pass++) {
    /* what is uploaded lies together, before the rest, and so goes as one copy; so do the models,
     * which come back as one */
    size_t up = 0, back = n_raw, at = n_raw + n_model;
    const float *planned = p->lsf_aa;
    for (int i = 0; i < star->n_segment; i++) {
      const mill_raw_segment *raw = &star->segment[i];
      mill_waveset_view ws;
      mill_waveset_cache_view(p->waveset, raw->waveset, &ws);
      const size_t n = (size_t)raw->n_pix, nd = (size_t)e->n_diag[i];
      const int matrix = with_matrix(p, raw), sigma = with_sigma(p, raw);
      if (ws.n_bin > max_bin)
        max_bin = ws.n_bin;
      const size_t flux = take(&up, n * 4), ivar = take(&up, n * 4), mask = take(&up, n * 4);
      const size_t raw_res = take(&up, matrix ? nd * n * 4 : 0), res = take(&at, nd * n * 4);
      const size_t lsf = take(&up, sigma ? n * 4 : 0);
      const size_t d = take(&at, n * 4), is = take(&at, n * 4), good = take(&at, n);
      const size_t base = take(&at, n * 8);
      const size_t scratch = take(&at, n * 4), model = take(&back, p->want_models ? n * 4 : 0);
      if (pass == 0)
        continue;
      mill_segment *s = &e->segment[i];
      memset(s, 0, sizeof *s);
      s->arm = raw->arm;
      s->n_pix = raw->n_pix;
      s->n_diag = (int)nd;
      s->ws = ws.device;
      s->raw_flux = (float *)(void *)(arena + flux);
      s->raw_ivar = (float *)(void *)(arena + ivar);
      s->raw_mask = (int32_t *)(void *)(arena + mask);
      s->d = (float *)(void *)(arena + d);
      s->is = (float *)(void *)(arena + is);
      s->good = (unsigned char *)(arena + good);
      s->base = (double *)(void *)(arena + base);
      s->scratch = (float *)(void *)(arena + scratch);
      if (p->want_models)
        s->model = (float *)(void *)(arena + model);
      add_piece(p, s->raw_flux, raw->flux, n * 4);
      add_piece(p, s->raw_ivar, raw->ivar, n * 4);
      add_piece(p, s->raw_mask, raw->mask, n * 4); /* none: zeros */
      if (nd > 0)
        s->res = (float *)(void *)(arena + res);
      if (matrix) {
        s->raw_res = (float *)(void *)(arena + raw_res);
        add_piece(p, s->raw_res, raw->resolution, nd * n * 4);
        if (p->lib->arm[raw->arm].template_sigma_aa > 0.0)
          MILL_TRY(mill_waveset_cache_deconv(p->waveset, raw->waveset, raw->n_diag, &s->deconv));
      }
      if (sigma) {
        s->lsf_aa = (float *)(void *)(arena + lsf);
        add_piece(p, s->lsf_aa, planned, n * 4);
        planned += n;
      }
    }
    const size_t chisq = (size_t)m->n_templ * (2 * (size_t)m->guess_half + 1) * sizeof(double);
    const size_t wn = take(&at, (size_t)max_bin * 4), w = take(&at, (size_t)max_bin * 4);
    const size_t guess = take(&at, chisq);
    if (pass == 0) {
      n_raw = up;
      n_model = e->model_bytes = back;
      MILL_TRY(reserve_memory(p, e, ARRAYS, up + back + at));
      arena = e->memory[ARRAYS].at;
      /* not all of it will be written: arms may be dropped */
      if (n_model > 0)
        MILL_TRY(be->zero(p->device, arena + n_raw, n_model));
      continue;
    }
    memset(&p->host, 0, UPLOAD_BYTES);
    p->host.n_segment = star->n_segment;
    p->host.segment = (mill_segment *)(void *)e->memory[SEGMENTS].at;
    p->host.bin_wn = (float *)(void *)(arena + wn);
    p->host.bin_w = (float *)(void *)(arena + w);
    p->host.guess_chisq = (double *)(void *)(arena + guess);
    if (star->start) {
      p->host.has_given = 1;
      memcpy(p->host.given, star->start, (size_t)m->n_par * sizeof *star->start);
    }
    mill_fit_result_init(&p->host.result, p->lib, star->row, MILL_STATUS_NOT_DONE);
    p->host.result.info |= info;
  }
  add_piece(p, e->memory[SEGMENTS].at, e->segment, (size_t)star->n_segment * sizeof(mill_segment));
  add_piece(p, e->device, &p->host, UPLOAD_BYTES);
  MILL_TRY(be->upload_all(p->device, p->piece, p->n_piece));
  for (int i = 0; i < star->n_segment; i++) {
    e->waveset[i] = star->segment[i].waveset;
    mill_waveset_cache_hold(p->waveset, e->waveset[i]);
  }
  e->n_waveset = star->n_segment;
  e->active = 1;
  e->fresh = 1;
done:
  return err;
}

/** The slot may take another star. */
static void free_slot(mill_pipeline *p, slot_entry *e)
{
  for (int i = 0; i < e->n_waveset; i++)
    mill_waveset_cache_release(p->waveset, e->waveset[i]);
  e->n_waveset = 0;
  e->active = 0;
  e->fresh = 0;
  e->finished = 0;
}

/** Best-fit models of a finished slot into p->model_row. */
static int fetch_models(mill_pipeline *p, const slot_entry *e)
{
  int err = MILL_OK;
  const int n_segment = e->n_waveset;
  const mill_segment *first = &e->segment[0];
  MILL_TRY(p->backend->download(p->device, e->segment, e->memory[SEGMENTS].at,
                                (size_t)n_segment * sizeof(mill_segment)));
  if (e->model_bytes > p->cap_model_bytes) {
    mill_free(p->model_flux);
    p->model_flux = NULL;
    p->cap_model_bytes = 0;
    MILL_TRY(MILL_ALLOC(e->model_bytes / sizeof *p->model_flux, &p->model_flux));
    p->cap_model_bytes = e->model_bytes;
  }
  if (n_segment > p->cap_model_row) {
    mill_free((void *)p->model_row);
    p->model_row = NULL;
    p->cap_model_row = 0;
    MILL_TRY(mill_alloc_bytes((size_t)n_segment, sizeof *p->model_row, (void **)&p->model_row));
    p->cap_model_row = n_segment;
  }
  MILL_TRY(p->backend->download(p->device, p->model_flux, first->model, e->model_bytes));
  for (int i = 0; i < n_segment; i++) {
    const mill_segment *s = &e->segment[i];
    float *at = p->model_flux + (s->model - first->model);
    p->model_row[i] = at;
    for (int k = 0; k < s->n_pix && !s->used; k++)
      at[k] = NAN;
  }
done:
  return err;
}

/** Tell the backend the model and the slots where it does not know them. */
static int bind_slots(mill_pipeline *p)
{
  int err = MILL_OK;
  if (p->is_bound)
    goto done;
  MILL_TRY(p->backend->upload(p->device, p->d_model, &p->model, sizeof p->model));
  MILL_TRY(p->backend->bind(p->device, &p->model, p->d_model, p->bound, p->n_slot));
  p->is_bound = 1;
  const char *remark = p->backend->remark ? p->backend->remark(p->device) : NULL;
  if (remark && !p->has_remarked)
    mill_log_warning("%s: %s", p->backend->name, remark);
  p->has_remarked = remark != NULL;
done:
  return err;
}

int mill_pipeline_evaluate(mill_pipeline *p, const mill_star *star, int request, int n_point,
                           const double *theta, mill_eval *eval, mill_fit_result *prepared)
{
  int err = MILL_OK;
  const int first = 0;
  slot_entry *e = &p->slot[first];
  const mill_backend *be = p->backend;
  /* a copy whose hulls are the host's, for the penalty */
  mill_model m = p->model;
  memcpy(m.hull, p->lib->hull, sizeof m.hull);
  MILL_TRY(load_slot(p, e, star));
  MILL_TRY(bind_slots(p));
  MILL_TRY(be->start(p->device, &first, 1));
  MILL_TRY(be->wait(p->device));
  MILL_TRY(be->download(p->device, &p->host, e->device, UPLOAD_BYTES));
  *prepared = p->host.result;
  if (p->host.stage == MILL_STAGE_DONE)
    goto done;
  for (int i = 0; i < n_point; i++) {
    int n_done;
    /* a stage that the state machine leaves alone */
    p->host.stage = MILL_STAGE_EMPTY;
    p->host.request = request;
    memcpy(p->host.theta, theta + (size_t)i * (size_t)m.n_par, (size_t)m.n_par * sizeof *theta);
    MILL_TRY(be->upload(p->device, e->device, &p->host, UPLOAD_BYTES));
    MILL_TRY(be->advance(p->device, &first, 1, 1, 1));
    MILL_TRY(be->collect(p->device, p->done, p->row, &n_done));
    MILL_TRY(be->download(p->device, &p->host, e->device, UPLOAD_BYTES));
    eval[i] = p->host.eval;
    eval[i].f += mill_penalty(&m, &p->host, p->host.theta);
  }
done:
  free_slot(p, e);
  return err;
}

/* ---- a run ---- */

static int count_busy(const mill_pipeline *p)
{
  int n = 0;
  for (int i = 0; i < p->n_slot; i++)
    n += p->slot[i].active;
  return n;
}

/** There is no memory for another star: go on with half of the slots that are filled. */
static int fewer_slots(mill_pipeline *p)
{
  int err = MILL_OK;
  const int n_busy = count_busy(p);
  if (n_busy == 0)
    MILL_FAIL(MILL_ERR_MEMORY, "not even one star fits into the memory of %s", p->backend->name);
  p->n_usable = n_busy / 2 > 1 ? n_busy / 2 : 1;
  mill_log_warning("memory of %s is full with %d stars: going on with %d slots", p->backend->name,
                   n_busy, p->n_usable);
  for (int i = 0; i < p->n_slot; i++)
    if (!p->slot[i].active)
      drop_own(p, &p->slot[i].memory[ARRAYS]);
done:
  return err;
}

/** Give back the memory of all slots, none of which holds a star; 0: there is none. */
static int drop_all(mill_pipeline *p)
{
  int n = 0;
  for (int i = 0; i < p->n_slot; i++)
    for (int k = 0; k < N_SLOT_MEMORY; k++) {
      n += k == ARRAYS && p->slot[i].memory[k].at;
      drop_own(p, &p->slot[i].memory[k]);
      p->slot[i].memory[k] = (slot_memory){0};
    }
  while (p->n_owned > p->n_fixed)
    release(p, p->owned[--p->n_owned]);
  return n > 0;
}

/** There is no memory for a star in slot e: take the free slot with the most, or, where no slot
 *  has a star, all that they have kept. */
static int load_elsewhere(mill_pipeline *p, slot_entry *e, const mill_star *star, int n_busy)
{
  int err = MILL_ERR_MEMORY;
  slot_entry *best = e;
  for (int i = 0; i < p->n_slot; i++)
    if (!p->slot[i].active && p->slot[i].memory[ARRAYS].cap > best->memory[ARRAYS].cap)
      best = &p->slot[i];
  if (best != e)
    err = load_slot(p, best, star);
  if (err == MILL_ERR_MEMORY && n_busy == 0 && drop_all(p))
    err = load_slot(p, e, star);
  return err;
}

/** A source of stars, and whether it has more. */
typedef struct star_stream {
  mill_star_source source;
  void *context;
  int more;
} star_stream;

/** The next star, or the one for which there was no memory; 0: none. */
static int next_star(mill_pipeline *p, star_stream *from, mill_star *star, int *got)
{
  int err = MILL_OK;
  *got = p->is_waiting;
  if (p->is_waiting) {
    *star = p->waiting;
    goto done;
  }
  if (!from->more)
    goto done;
  memset(star, 0, sizeof *star);
  *got = from->source(from->context, star);
  if (*got < 0)
    err = -*got;
  else if (*got == 0)
    from->more = 0;
done:
  return err;
}

/** Fill free slots with stars, at most n_most. */
static int fill(mill_pipeline *p, star_stream *from, int n_most)
{
  int err = MILL_OK;
  int n_busy = count_busy(p), n_filled = 0;
  for (int i = 0; i < p->n_slot && n_busy < p->n_usable && n_filled < n_most; i++) {
    slot_entry *e = &p->slot[i];
    mill_star star;
    int got;
    if (e->active)
      continue;
    MILL_TRY(next_star(p, from, &star, &got));
    if (!got)
      break;
    /* work space first: stars take what is left of the memory */
    if (!p->is_under_way)
      MILL_TRY(bind_slots(p));
    const double before_s = mill_thread_cpu_s(), before_wall_s = mill_wall_s();
    mill_range_begin(MILL_RANGE_UPLOAD);
    err = load_slot(p, e, &star);
    if (err == MILL_ERR_MEMORY)
      err = load_elsewhere(p, e, &star, n_busy);
    mill_range_end();
    p->load_s += mill_thread_cpu_s() - before_s;
    p->load_wall_s += mill_wall_s() - before_wall_s;
    p->is_waiting = err == MILL_ERR_MEMORY;
    if (p->is_waiting) {
      p->waiting = star;
      err = MILL_OK;
      MILL_TRY(fewer_slots(p));
      break;
    }
    MILL_TRY(err);
    n_busy++;
    n_filled++;
  }
done:
  return err;
}

/** Start fresh stars and ask for rounds over all. */
static int launch(mill_pipeline *p, int more, int *n_active)
{
  int err = MILL_OK;
  const mill_backend *be = p->backend;
  int n_fresh = 0, n = 0;
  for (int i = 0; i < p->n_slot; i++)
    if (p->slot[i].active && p->slot[i].fresh)
      p->list[n_fresh++] = i;
  if (n_fresh > 0) {
    MILL_TRY(bind_slots(p));
    MILL_TRY(be->start(p->device, p->list, n_fresh));
  }
  for (int i = 0; i < p->n_slot; i++)
    if (p->slot[i].active && !p->slot[i].finished) {
      p->slot[i].fresh = 0;
      p->list[n++] = i;
    }
  *n_active = n;
  if (n == 0)
    goto done;
  if (!be->overlaps) {
    MILL_TRY(be->advance(p->device, p->list, n, n, ROUNDS_PER_CALL));
    goto done;
  }
  /* at the end of the stars there is nothing to fill slots with */
  const int share = n / SLOT_SHARE > 1 ? n / SLOT_SHARE : 1;
  MILL_TRY(be->advance(p->device, p->list, n, more ? share : n, ROUNDS_PER_LOOP));
  p->is_under_way = 1;
done:
  return err;
}

/** Hand over the rows that have been collected, and free their slots. */
static int deliver(mill_pipeline *p, mill_result_sink sink, void *context)
{
  int err = MILL_OK;
  int i = 0;
  for (; i < p->n_done; i++) {
    slot_entry *e = &p->slot[p->done[i]];
    const float *const *model = NULL;
    if (p->want_models && p->row[i].status == MILL_STATUS_FITTED) {
      mill_range_begin(MILL_RANGE_DOWNLOAD);
      err = fetch_models(p, e);
      mill_range_end();
      MILL_TRY(err);
      model = p->model_row;
    }
    free_slot(p, e);
    MILL_TRY(sink(context, &p->row[i], model));
  }
done:
  /* what could not be handed over is not tried again */
  p->n_done = 0;
  return err;
}

/** The rounds have failed: hand over what had finished before.  The first failure counts. */
static void deliver_last(mill_pipeline *p, mill_result_sink sink, void *context)
{
  for (int i = 0; i < p->n_done && !p->want_models; i++)
    if (sink(context, &p->row[i], NULL) != MILL_OK)
      break;
  p->n_done = 0;
}

int mill_pipeline_run(mill_pipeline *p, mill_star_source source, void *source_context,
                      mill_result_sink sink, void *sink_context)
{
  int err = MILL_OK;
  star_stream from = {source, source_context, 1};
  const mill_backend *be = p->backend;
  /* where host and device work at the same time, a part of the slots is filled at a time */
  const int share = p->n_slot / SLOT_SHARE > 1 ? p->n_slot / SLOT_SHARE : 1;
  const int n_most = be->overlaps ? share : p->n_slot;
  char message[1024];
  p->n_usable = p->n_slot; /* other stars may take less memory */
  p->n_done = 0;
  p->is_waiting = 0;
  p->is_under_way = 0;
  MILL_TRY(fill(p, &from, n_most));
  for (;;) {
    int n_active;
    MILL_TRY(launch(p, from.more || p->is_waiting, &n_active));
    if (be->overlaps) { /* while the rounds are under way */
      MILL_TRY(deliver(p, sink, sink_context));
      MILL_TRY(fill(p, &from, n_most));
    }
    if (n_active == 0 && count_busy(p) == 0)
      break;
    if (n_active == 0)
      continue;
    MILL_TRY(be->collect(p->device, p->done, p->row, &p->n_done));
    p->is_under_way = 0;
    for (int i = 0; i < p->n_done; i++)
      p->slot[p->done[i]].finished = 1;
    if (!be->overlaps) {
      MILL_TRY(deliver(p, sink, sink_context));
      MILL_TRY(fill(p, &from, n_most));
    }
  }
done:
  /* what follows may fail too, for the same reason; the first failure counts */
  snprintf(message, sizeof message, "%s", mill_error_message());
  deliver_last(p, sink, sink_context);
  for (int i = 0; i < p->n_slot; i++)
    free_slot(p, &p->slot[i]);
  if (err && strcmp(message, mill_error_message()) != 0)
    mill_error_set(err, __FILE__, __LINE__, "%s", message);
  return err;
}

void mill_pipeline_timing(const mill_pipeline *p, mill_timing *total)
{
  memset(total, 0, sizeof *total);
  if (p->backend->timing)
    p->backend->timing(p->device, total);
}

void mill_pipeline_memory(const mill_pipeline *p, mill_pipeline_bytes *bytes)
{
  mill_waveset_stats sets;
  mill_waveset_cache_stats(p->waveset, &sets);
  *bytes = (mill_pipeline_bytes){.model = p->owned_bytes, .wavesets = sets.bytes};
  bytes->slots = (size_t)p->n_slot * array_bytes(sizeof(mill_slot));
  for (int i = 0; i < p->n_slot; i++)
    for (int k = 0; k < N_SLOT_MEMORY; k++)
      bytes->slots += p->slot[i].memory[k].cap;
}

int mill_pipeline_slots(const mill_pipeline *p)
{
  return p->n_usable;
}

double mill_pipeline_load_s(const mill_pipeline *p)
{
  return p->load_s;
}

double mill_pipeline_load_wall_s(const mill_pipeline *p)
{
  return p->load_wall_s;
}
