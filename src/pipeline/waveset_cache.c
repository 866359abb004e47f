/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/waveset_cache.h"

#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/math/cells.h"
#include "src/stars/line_spread.h"

enum { NONE = -1 };

/** A continuum function that is below this value in a block of MILL_REACH_PIX pixels is left out of
 *  the block.  LEAST_CONT_WIDE is for templates in float64. */
static const float LEAST_CONT = 1e-12f, LEAST_CONT_WIDE = 1e-17f;

typedef struct entry {
  int arm, n_pix;
  int i_guess;          /**< index of its guess templates; NONE: none yet */
  double *wave_aa;      /**< [n_pix], owned */
  uint64_t wave_number; /**< wave_number of the last segment with these wavelengths */
  int n_hold;
  int64_t turn;       /**< number of the star that asked for it last */
  int64_t given_back; /**< n_given_back when its last hold was given back */
  size_t bytes;       /**< memory of host and backend */
  void *block;        /**< backend memory of the set and its arrays, owned */
  size_t size_block;
  struct solvers *solvers; /**< list, owned */
} entry;

/** Solvers for matrices of n_diag diagonals and a blur (mill_waveset_cache_deconv). */
typedef struct solvers {
  int n_diag;
  double blur_ln;
  mill_deconv deconv; /**< deconv.solve: backend memory, owned */
  struct solvers *next;
} solvers;

/** Guess templates of a range of bins. */
typedef struct guess_templates {
  mill_guess_range range;
  int n_user;  /**< wavelength sets that use them; 0: the entry is free */
  void *block; /**< backend memory, owned */
  size_t bytes;
} guess_templates;

struct mill_waveset_cache {
  const mill_library *lib;
  const mill_fit_settings *set;
  const mill_guess_table *guess;
  const mill_backend *backend;
  mill_device *device;
  int n_thread;
  entry *entry;   /**< [n_entry] */
  uint64_t *hash; /**< [n_entry] hash of an entry's wavelengths; 0: the entry is free */
  int n_entry;
  int64_t entry_room, hash_room;
  guess_templates *templates;
  int n_templates;
  int64_t n_templates_room;
  int64_t turn;         /**< number of the star being prepared */
  int64_t n_given_back; /**< sets that became idle so far */
  size_t limit;
  mill_waveset_stats stats;
  char *staging; /**< [cap_staging] a set before it is uploaded */
  size_t cap_staging;
  double *coef; /**< [cap_coef] coefficients of cells, before the cells' size is known */
  size_t cap_coef;
};

int mill_waveset_cache_create(const mill_library *lib, const mill_fit_settings *set,
                              const mill_guess_table *guess, const mill_backend *backend,
                              mill_device *device, int n_thread, mill_waveset_cache **out)
{
  MILL_CHECK(MILL_ALLOC(1, out));
  **out = (mill_waveset_cache){.lib = lib,
                               .set = set,
                               .guess = guess,
                               .backend = backend,
                               .device = device,
                               .n_thread = n_thread < 1 ? 1 : n_thread,
                               .limit = MILL_WAVESET_CACHE_BYTES};
  return MILL_OK;
}

static void free_memory(mill_waveset_cache *c, entry *e)
{
  guess_templates *t = e->i_guess != NONE ? &c->templates[e->i_guess] : NULL;
  if (t && --t->n_user == 0) {
    c->backend->release(c->device, t->block);
    c->stats.bytes -= t->bytes;
  }
  e->i_guess = NONE;
  mill_free(e->wave_aa);
  e->wave_aa = NULL;
  if (e->block)
    c->backend->release(c->device, e->block);
  e->block = NULL;
  while (e->solvers) {
    solvers *const s = e->solvers;
    e->solvers = s->next;
    c->backend->release(c->device, (void *)s->deconv.solve);
    mill_free(s);
  }
}

void mill_waveset_cache_destroy(mill_waveset_cache *c)
{
  if (!c)
    return;
  for (int i = 0; i < c->n_entry; i++)
    free_memory(c, &c->entry[i]);
  MILL_FREE(c->entry, c->hash, c->templates, c->staging, c->coef, c);
}

void mill_waveset_cache_add_stats(const mill_waveset_cache *c, mill_waveset_stats *sum)
{
  sum->n_set += c->stats.n_set;
  sum->n_held += c->stats.n_held;
  sum->bytes += c->stats.bytes;
  sum->n_made += c->stats.n_made;
  sum->n_evicted += c->stats.n_evicted;
  sum->make_s += c->stats.make_s;
}

/* ---- finding ------------------------------------------------------------------------------ */

/** Return a hash of wavelengths, never 0.  Its four chains are computed in parallel by the CPU. */
static uint64_t hash_of(int arm, int n_pix, const double *wave_aa)
{
  static const uint64_t odd = 0x9E3779B97F4A7C15u;
  uint64_t h[4] = {(uint64_t)arm, (uint64_t)n_pix, 1, 2};
  for (int i = 0; i < n_pix; i++) {
    uint64_t bits;
    memcpy(&bits, &wave_aa[i], sizeof bits);
    uint64_t *lane = &h[i & 3];
    *lane = (*lane ^ bits) * odd;
    *lane ^= *lane >> 29;
  }
  uint64_t all = 0;
  for (int k = 0; k < 4; k++) {
    all = (all ^ h[k]) * odd;
    all ^= all >> 32;
  }
  return all | 1;
}

/** Find the entry with the segment's wave_number, arm and number of pixels; NONE: none. */
static int find_number(const mill_waveset_cache *c, const mill_raw_segment *s)
{
  for (int id = 0; id < c->n_entry && s->wave_number != 0; id++) {
    const entry *e = &c->entry[id];
    if (c->hash[id] != 0 && e->wave_number == s->wave_number && e->arm == s->arm &&
        e->n_pix == s->n_pix)
      return id;
  }
  return NONE;
}

/** Find the entry with the segment's wavelengths; NONE: none. */
static int find(const mill_waveset_cache *c, uint64_t hash, const mill_raw_segment *s)
{
  for (int id = 0; id < c->n_entry; id++) {
    const entry *e = &c->entry[id];
    if (c->hash[id] == hash && e->arm == s->arm && e->n_pix == s->n_pix &&
        memcmp(e->wave_aa, s->wave_aa, (size_t)s->n_pix * sizeof *s->wave_aa) == 0)
      return id;
  }
  return NONE;
}

/* ---- idle sets ------------------------------------------------------------------------------ */

/** If n_byte more exceed the limit, return the set to free: the set idle for longest, but no set of
 *  the star being prepared.  NONE: memory suffices, or no set can be freed. */
static int leaving(const mill_waveset_cache *c, size_t n_byte)
{
  int first = NONE;
  if (c->stats.bytes + n_byte <= c->limit)
    return NONE;
  for (int id = 0; id < c->n_entry; id++) {
    const entry *e = &c->entry[id];
    if (c->hash[id] != 0 && e->n_hold == 0 && e->turn != c->turn &&
        (first == NONE || e->given_back < c->entry[first].given_back))
      first = id;
  }
  return first;
}

static void evict(mill_waveset_cache *c, int id)
{
  c->stats.bytes -= c->entry[id].bytes;
  c->stats.n_set--;
  c->stats.n_evicted++;
  free_memory(c, &c->entry[id]);
  c->hash[id] = 0;
}

static void trim(mill_waveset_cache *c)
{
  for (int id; (id = leaving(c, 0)) != NONE;)
    evict(c, id);
}

/** Free idle sets until a new entry fits into the limit.  The new entry takes over a freed
 *  set's block that is about as large, since allocating takes as long as filling. */
static void make_room(mill_waveset_cache *c, entry *fresh)
{
  for (int id; (id = leaving(c, fresh->bytes)) != NONE;) {
    entry *e = &c->entry[id];
    if (!fresh->block && e->size_block >= fresh->size_block &&
        e->size_block / 2 <= fresh->size_block) {
      fresh->bytes += e->size_block - fresh->size_block;
      fresh->size_block = e->size_block;
      fresh->block = e->block;
      e->block = NULL;
    }
    evict(c, id);
  }
}

void mill_waveset_cache_limit(mill_waveset_cache *c, size_t bytes)
{
  c->limit = bytes;
  trim(c);
}

void mill_waveset_cache_next(mill_waveset_cache *c)
{
  c->turn++;
  trim(c);
}

void mill_waveset_cache_release(mill_waveset_cache *c, int id)
{
  entry *e = &c->entry[id];
  if (--e->n_hold > 0)
    return;
  c->stats.n_held--;
  e->given_back = ++c->n_given_back;
  trim(c);
}

mill_waveset_view mill_waveset_cache_view(const mill_waveset_cache *c, int id)
{
  const entry *e = &c->entry[id];
  return (mill_waveset_view){.n_pix = e->n_pix,
                             .n_block = c->templates[e->i_guess].range.n_block,
                             .wave_aa = e->wave_aa,
                             .device = e->block};
}

/* ---- making -------------------------------------------------------------------------------- */

/** Refuse wavelengths that are too few, not ascending, or beyond the arm at an allowed velocity. */
static int check_waves(const mill_waveset_cache *c, int arm, int n_pix, const double *wave_aa)
{
  const mill_arm *from = &c->lib->arm[arm];
  if (n_pix < 2 * c->set->n_cont)
    return MILL_ERROR(MILL_ERR_RANGE,
                      "npoly: %d needs %d pixels in arm %s, but the spectrum has %d; lower npoly",
                      c->set->n_cont, 2 * c->set->n_cont, from->name, n_pix);
  for (int i = 0; i < n_pix; i++)
    if (!isfinite(wave_aa[i]) || wave_aa[i] <= 0.0 || (i > 0 && !(wave_aa[i] > wave_aa[i - 1])))
      return MILL_ERROR(MILL_ERR_RANGE,
                        "arm %s: wavelength %d is %g: wavelengths must be above 0 and ascend",
                        from->name, i, wave_aa[i]);
  const double least = from->wave_aa[0], most = from->wave_aa[from->n_pix - 1];
  /* rest wavelengths of the spectrum's ends at the velocity limits */
  const double blue = wave_aa[0] * exp(-atanh(c->set->max_vel_km_s / MILL_C_KM_S));
  const double red = wave_aa[n_pix - 1] * exp(-atanh(c->set->min_vel_km_s / MILL_C_KM_S));
  if (blue < least || red >= most)
    return MILL_ERROR(
        MILL_ERR_RANGE,
        "the spectrum in arm %s needs templates from %.1f to %.1f A at the velocity limits, the "
        "library has %.1f to %.1f A; narrow min_vel and max_vel or use another library",
        from->name, blue, red, least, most);
  return MILL_OK;
}

/** Find or make the guess templates of a set. */
static int take_templates(mill_waveset_cache *c, entry *e)
{
  int err = MILL_OK, vacant = NONE;
  void *block = NULL;
  const mill_guess_range range =
      mill_guess_table_range(c->guess, c->set, e->arm, e->n_pix, e->wave_aa);
  const size_t size = mill_guess_table_numbers(c->guess, &range) * sizeof(float);
  for (int i = 0; i < c->n_templates; i++) {
    const mill_guess_range *has = &c->templates[i].range;
    if (c->templates[i].n_user > 0 && has->arm == range.arm && has->n_cont == range.n_cont &&
        has->n_bin == range.n_bin && has->n_block == range.n_block && has->bin0 == range.bin0) {
      c->templates[i].n_user++;
      e->i_guess = i;
      goto done;
    }
    if (c->templates[i].n_user == 0)
      vacant = i;
  }
  MILL_TRY(MILL_GROW(&c->templates, &c->n_templates_room, c->n_templates + 1));
  MILL_TRY(MILL_RENEW(&c->staging, &c->cap_staging, size));
  MILL_TRY(mill_guess_table_fill(c->guess, c->lib, c->set, &range, c->n_thread,
                                 (float *)(void *)c->staging));
  MILL_TRY(c->backend->alloc(c->device, size, &block));
  MILL_TRY(c->backend->upload(c->device, block, c->staging, size));
  if (vacant == NONE)
    vacant = c->n_templates++;
  c->templates[vacant] =
      (guess_templates){.range = range, .n_user = 1, .block = block, .bytes = size};
  c->stats.bytes += size;
  e->i_guess = vacant;
  block = NULL;
done:
  if (block)
    c->backend->release(c->device, block);
  return err;
}

/** Find the largest cells of pixels in which polynomials can replace the continuum functions.  Fill
 *  c->coef and power (kernels/math/cells.h).  *cell: pixels of a cell; 0: no cells, as on a GPU. */
static int fit_cells(mill_waveset_cache *c, int n_cont, int n_pix, const double *wave_aa,
                     double *power, int *cell)
{
  const size_t most = (size_t)mill_cell_count(n_pix, MILL_CELL_LEAST) * MILL_CELL_COEF;
  *cell = 0;
  if (c->backend->kind != MILL_BACKEND_CPU)
    return MILL_OK;
  MILL_CHECK(MILL_RENEW(&c->coef, &c->cap_coef, most * (size_t)mill_cell_pitch(n_cont)));
  /* extrapolation of the last cell needs three pixels */
  for (*cell = n_pix < 3 ? 0 : MILL_CELL_MOST; *cell >= MILL_CELL_LEAST; *cell /= 2) {
    mill_cell_powers(*cell, power);
    if (mill_cell_fit(c->set->continuum, n_cont, n_pix, wave_aa, *cell, power, c->coef))
      return MILL_OK;
  }
  *cell = 0;
  return MILL_OK;
}

/** Fill continuum functions cont [n_cont][mill_row_pitch] at MILL_REACH_PIX pixels from `first` on.
 *  reach [2]: range [low, end) of functions whose absolute value exceeds LEAST_CONT (float64:
 *  LEAST_CONT_WIDE) at one of these pixels; none below MILL_BROAD_CONT. */
static void fill_unit(const mill_fit_settings *set, int n_cont, int n_pix, const double *wave_aa,
                      int first, float *cont, unsigned char *reach)
{
  const float least = set->precision == MILL_FLOAT64 ? LEAST_CONT_WIDE : LEAST_CONT;
  const int len = n_pix - first < MILL_REACH_PIX ? n_pix - first : MILL_REACH_PIX;
  double x[MILL_REACH_PIX], y[MILL_REACH_PIX];
  for (int i = 0; i < len; i++)
    x[i] = 2.0 * (wave_aa[first + i] - wave_aa[0]) / (wave_aa[n_pix - 1] - wave_aa[0]) - 1.0;
  reach[0] = (unsigned char)n_cont; /* an empty range so far */
  reach[1] = 0;
  for (int k = 0; k < n_cont; k++) {
    float *to = cont + (size_t)k * (size_t)mill_row_pitch(n_pix) + first;
    int is_large = 0;
    mill_continuum_row(set->continuum, n_cont, k, len, x, y);
    for (int i = 0; i < len; i++) {
      to[i] = (float)y[i];
      is_large |= fabsf(to[i]) > least;
    }
    if (k < MILL_BROAD_CONT || !is_large)
      continue;
    reach[0] = k < reach[0] ? (unsigned char)k : reach[0];
    reach[1] = (unsigned char)(k + 1);
  }
}

/** Interpolate the sky's components to row [n_component][mill_row_pitch]; 0 beyond their range. */
static void fill_sky(const mill_sky *sky, int n_pix, const double *wave_aa, float *row)
{
  const size_t pitch = (size_t)mill_row_pitch(n_pix);
  for (int i = 0, k = 0; i < n_pix && sky->n_component > 0; i++) {
    while (k < sky->n_pix - 2 && sky->wave_aa[k + 1] <= wave_aa[i])
      k++;
    const double u = (wave_aa[i] - sky->wave_aa[k]) / (sky->wave_aa[k + 1] - sky->wave_aa[k]);
    const float *left = sky->component + k;
    for (int j = 0; j < sky->n_component; j++, left += sky->n_pix)
      row[(size_t)j * pitch + (size_t)i] =
          u < 0.0 || u > 1.0 ? 0.0f : (float)((1.0 - u) * (double)left[0] + u * (double)left[1]);
  }
}

/** Make a wavelength set in one block of backend memory, and its guess templates in another. */
static int make(mill_waveset_cache *c, entry *e)
{
  const mill_fit_settings *set = c->set;
  const mill_sky *sky = &c->lib->arm[e->arm].sky;
  const int n_pix = e->n_pix;
  const double *wave_aa = e->wave_aa;
  const int nk = mill_continuum_count(set, n_pix, wave_aa[n_pix - 1] - wave_aa[0]);
  const size_t n = (size_t)n_pix, pitch = (size_t)mill_row_pitch(n_pix);
  double power[MILL_CELL_MOMENTS * MILL_CELL_MOST];
  int cell;
  MILL_CHECK(fit_cells(c, nk, n_pix, wave_aa, power, &cell));
  const size_t n_coef =
      cell > 0 ? (size_t)mill_cell_count(n_pix, cell) * MILL_CELL_COEF * (size_t)mill_cell_pitch(nk)
               : 0;
  size_t size = 0;
  MILL_CHECK(take_templates(c, e));
  const mill_guess_range *range = &c->templates[e->i_guess].range;
  mill_take(&size, sizeof(mill_waveset));
  const size_t at_ln = mill_take(&size, n * sizeof(double));
  const size_t at_cont = mill_take(&size, (size_t)nk * pitch * sizeof(float));
  const size_t at_reach = mill_take(&size, 2 * (n / MILL_REACH_PIX + 1));
  const size_t at_coef = mill_take(&size, n_coef * sizeof(double));
  const size_t at_power = mill_take(&size, sizeof power);
  const size_t at_sky = mill_take(&size, (size_t)sky->n_component * pitch * sizeof(float));
  const size_t at_masked = mill_take(&size, n);
  const size_t at_first = mill_take(&size, ((size_t)range->n_bin + 1) * sizeof(int));
  e->size_block = size;
  e->bytes = size + n * sizeof *wave_aa;
  make_room(c, e);
  MILL_CHECK(MILL_RENEW(&c->staging, &c->cap_staging, size));
  char *host = c->staging;
  double *ln_wave = (double *)(void *)(host + at_ln);
  float *cont = (float *)(void *)(host + at_cont);
  unsigned char *masked = (unsigned char *)(host + at_masked);
  unsigned char *reach = (unsigned char *)(host + at_reach);
#pragma omp parallel for schedule(static) num_threads(c->n_thread)
  for (int u = 0; u <= (n_pix - 1) / MILL_REACH_PIX; u++)
    fill_unit(set, nk, n_pix, wave_aa, u * MILL_REACH_PIX, cont, reach + 2 * u);
#pragma omp parallel for schedule(static) num_threads(c->n_thread)
  for (int i = 0; i < n_pix; i++) {
    ln_wave[i] = log(wave_aa[i]);
    masked[i] = (unsigned char)mill_wave_masked(set, wave_aa[i]);
  }
  fill_sky(sky, n_pix, wave_aa, (float *)(void *)(host + at_sky));
  if (n_coef > 0)
    memcpy(host + at_coef, c->coef, n_coef * sizeof(double));
  memcpy(host + at_power, power, sizeof power);
  mill_guess_table_bins(c->guess, range, n_pix, wave_aa, (int *)(void *)(host + at_first));
  if (!e->block)
    MILL_CHECK(c->backend->alloc(c->device, size, &e->block));
  char *device = e->block;
  const mill_waveset w = {.arm = e->arm,
                          .n_pix = n_pix,
                          .n_cont = nk,
                          .ln_wave = (double *)(void *)(device + at_ln),
                          .cont = (float *)(void *)(device + at_cont),
                          .reach = (unsigned char *)(device + at_reach),
                          .cell = cell,
                          .cell_coef = (double *)(void *)(device + at_coef),
                          .cell_power = (double *)(void *)(device + at_power),
                          .sky = (float *)(void *)(device + at_sky),
                          .masked = (unsigned char *)(device + at_masked),
                          .n_bin = range->n_used,
                          .n_block = range->n_block,
                          .bin_first = (int *)(void *)(device + at_first),
                          .templ = c->templates[e->i_guess].block};
  memcpy(host, &w, sizeof w);
  return c->backend->upload(c->device, e->block, host, size);
}

int mill_waveset_cache_get(mill_waveset_cache *c, const mill_raw_segment *segment, int *id)
{
  const int arm = segment->arm, n_pix = segment->n_pix;
  const double *wave_aa = segment->wave_aa;
  uint64_t hash = 0;
  int known = find_number(c, segment);
  if (known == NONE) {
    hash = hash_of(arm, n_pix, wave_aa);
    known = find(c, hash, segment);
  }
  if (known != NONE) {
    c->stats.n_held += c->entry[known].n_hold++ == 0; /* sets in use */
    c->entry[known].turn = c->turn;
    c->entry[known].wave_number = segment->wave_number;
    *id = known;
    return MILL_OK;
  }
  int err = MILL_OK;
  entry fresh = {.arm = arm,
                 .n_pix = n_pix,
                 .i_guess = NONE,
                 .wave_number = segment->wave_number,
                 .n_hold = 1,
                 .turn = c->turn};
  const double begin_s = mill_thread_cpu_s();
  MILL_TRY(check_waves(c, arm, n_pix, wave_aa));
  MILL_TRY(MILL_GROW(&c->entry, &c->entry_room, c->n_entry + 1));
  MILL_TRY(MILL_GROW(&c->hash, &c->hash_room, c->n_entry + 1));
  MILL_TRY(MILL_ALLOC(n_pix, &fresh.wave_aa));
  memcpy(fresh.wave_aa, wave_aa, (size_t)n_pix * sizeof *wave_aa);
  MILL_TRY(make(c, &fresh));
  /* the first freed number (hash 0), or a new one */
  for (*id = 0; *id < c->n_entry && c->hash[*id] != 0;)
    ++*id;
  c->n_entry += *id == c->n_entry;
  c->entry[*id] = fresh;
  c->hash[*id] = hash;
  c->stats.n_set++;
  c->stats.n_held++;
  c->stats.n_made++;
  c->stats.bytes += fresh.bytes;
  c->stats.make_s += mill_thread_cpu_s() - begin_s;
  fresh = (entry){.i_guess = NONE}; /* its memory is the cache's */
done:
  free_memory(c, &fresh);
  return err;
}

/** Make the solvers of `made` in backend memory; made->deconv.solve stays NULL after a failure. */
static int make_solvers(mill_waveset_cache *c, entry *e, solvers *made)
{
  int err = MILL_OK;
  MILL_OWNED double *solve = NULL;
  void *memory = NULL;
  size_t n_solve, bytes;
  mill_deconv *plan = &made->deconv;
  MILL_TRY(mill_lsf_make_solvers(made->n_diag, e->n_pix, e->wave_aa,
                                 c->lib->arm[e->arm].template_sigma_aa, made->blur_ln, plan, &solve,
                                 &n_solve, &bytes));
  MILL_TRY(c->backend->alloc(c->device, bytes, &memory));
  MILL_TRY(c->backend->upload(c->device, memory, solve, bytes));
  plan->solve = memory;
  /* of several solvers: each pixel's fractional solver index follows the solvers */
  plan->at = bytes > n_solve * sizeof *solve ? (const float *)(plan->solve + n_solve) : NULL;
  memory = NULL;
  e->bytes += bytes;
  c->stats.bytes += bytes;
done:
  if (memory)
    c->backend->release(c->device, memory);
  return err;
}

int mill_waveset_cache_deconv(mill_waveset_cache *c, int id, int n_diag, double blur_ln,
                              mill_deconv *out)
{
  entry *e = &c->entry[id];
  const solvers *s = e->solvers;
  while (s && (s->n_diag != n_diag || s->blur_ln != blur_ln))
    s = s->next;
  if (!s) {
    MILL_OWNED solvers *made = NULL;
    MILL_CHECK(MILL_ALLOC(1, &made));
    *made = (solvers){.n_diag = n_diag, .blur_ln = blur_ln, .next = e->solvers};
    MILL_CHECK(make_solvers(c, e, made));
    s = made;
    MILL_CHECK(MILL_GIVE(&made, &e->solvers));
  }
  *out = s->deconv;
  return MILL_OK;
}
