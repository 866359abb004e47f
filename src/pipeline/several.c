/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/several.h"

#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/layout.h"
#include "kernels/base/memory.h"

enum { GROUP_SHARE = 2 /**< stars of a group for each slot */ };

static const double EDGE = 1.25; /**< factor on the misfit of a row with HULL */

/** A star of the group, with copies of its spectra. */
typedef struct guest {
  mill_star lent;            /**< the first member: as a library's pipeline has it */
  mill_star *star;           /**< the source's */
  mill_raw_segment *segment; /**< [cap_segment], owned */
  size_t cap_segment;
  char *pixels; /**< their arrays [cap_pixels], owned */
  size_t cap_pixels;
  double chisq[MILL_MAX_LIBRARY], tie; /**< of the guesses; the least of the libraries' */
  int last;                            /**< the last library that it is fitted with */
  mill_fit_result best;                /**< so far, with its models; NOT_DONE: none */
  float *model;                        /**< [cap_model], owned */
  size_t cap_model;
  mill_epoch_result *epoch; /**< [cap_epoch] of best, owned */
  size_t cap_epoch;
} guest;

/** What a library has of a run. */
typedef struct member {
  struct mill_several *of;
  int index, is_guessing; /**< it only guesses */
  mill_pipeline *pipeline;
  mill_fit_settings set;
  int label[MILL_MAX_LABEL]; /**< of its labels among the first's */
  int next;                  /**< star of the group */
  double start[MILL_MAX_PAR];
} member;

struct mill_several {
  const mill_library *lib;
  int n_lib, want_models;
  member member[MILL_MAX_LIBRARY];
  guest *group; /**< [n_room] */
  int n_room, n_guest;
  mill_star_model *model; /**< [cap_model] of the segments of a star */
  size_t cap_model;
  mill_result_sink sink;
  void *sink_context;
};

int mill_several_match(const mill_library *first, const mill_library *other, int *label)
{
  for (int l = 0; l < other->n_label; l++) {
    label[l] = mill_library_find_label(first, other->label[l].name);
    if (label[l] < 0)
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s has the label %s, which %s lacks: name first the library that has the "
                        "labels of all, or fit with one of them",
                        other->path, other->label[l].name, first->path);
  }
  int same = other->n_arm == first->n_arm;
  for (int a = 0; a < first->n_arm && same; a++)
    same = strcmp(first->arm[a].name, other->arm[a].name) == 0 &&
           (first->arm[a].template_sigma_aa < 0.0) == (other->arm[a].template_sigma_aa < 0.0);
  if (!same)
    return MILL_ERROR(
        MILL_ERR_CONFIG,
        "%s and %s have other arms, or only one is at the instrument's resolution: fit "
        "with one of them, or name ranges of both under arms",
        first->path, other->path);
  return MILL_OK;
}

int mill_several_held(int n_lib, int n_slot)
{
  return n_lib > 1 ? GROUP_SHARE * n_slot : n_slot;
}

/** Settings of a library's parameters from those of the first's. */
static void take_settings(const mill_fit_settings *first, int n_label, member *m)
{
  m->set = *first;
  for (int l = 0; l < n_label; l++) {
    const int to = MILL_PAR_LABEL0 + l, from = MILL_PAR_LABEL0 + m->label[l];
    m->set.fixed[to] = first->fixed[from];
    m->set.fixed_value[to] = first->fixed_value[from];
    m->set.prior_mean[to] = first->prior_mean[from];
    m->set.prior_sigma[to] = first->prior_sigma[from];
  }
}

int mill_several_create(const mill_library *lib, int n_lib, const mill_fit_settings *settings,
                        const mill_backend *backend, int n_slot, int n_thread, int want_models,
                        mill_several **out)
{
  int err = MILL_OK;
  mill_several *s = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &s));
  *s = (mill_several){.lib = lib, .n_lib = n_lib, .want_models = want_models};
  /* together they take the memory of one */
  const int n_own = backend->kind == MILL_BACKEND_CPU || n_slot < n_lib ? n_slot : n_slot / n_lib;
  if (n_lib > 1) {
    s->n_room = mill_several_held(n_lib, n_slot);
    MILL_TRY(MILL_ALLOC(s->n_room, &s->group));
  }
  for (int k = 0; k < n_lib; k++) {
    member *m = &s->member[k];
    m->of = s;
    m->index = k;
    MILL_TRY(mill_several_match(lib, &lib[k], m->label));
    take_settings(settings, lib[k].n_label, m);
    MILL_TRY(mill_pipeline_create(&lib[k], &m->set, backend, n_own, n_thread, want_models,
                                  &m->pipeline));
  }
  *out = s;
  s = NULL;
done:
  mill_several_destroy(s);
  return err;
}

void mill_several_destroy(mill_several *s)
{
  if (!s)
    return;
  for (int k = 0; k < s->n_lib; k++)
    mill_pipeline_destroy(s->member[k].pipeline);
  for (int i = 0; i < s->n_room && s->group; i++)
    MILL_FREE(s->group[i].segment, s->group[i].pixels, s->group[i].model, s->group[i].epoch);
  MILL_FREE(s->group, s->model, s);
}

mill_pipeline *mill_several_pipeline(const mill_several *s)
{
  return s->member[0].pipeline;
}

void mill_several_memory(const mill_several *s, mill_pipeline_bytes *bytes)
{
  *bytes = (mill_pipeline_bytes){0};
  for (int k = 0; k < s->n_lib; k++) {
    mill_pipeline_bytes own;
    mill_pipeline_memory(s->member[k].pipeline, &own);
    bytes->model += own.model;
    bytes->slots += own.slots;
    bytes->wavesets += own.wavesets;
  }
}

/* ---- the group ---- */

/** Copy an array of n_byte to *to, which moves on, and point at the copy; NULL: there is none. */
static void move(const void **from, size_t n_byte, char **to)
{
  if (!*from)
    return;
  memcpy(*to, *from, n_byte);
  *from = *to;
  *to += mill_round_up(n_byte, sizeof(double));
}

static int copy_star(mill_star *star, guest *g)
{
  size_t n_byte = 0;
  MILL_CHECK(MILL_RENEW(&g->segment, &g->cap_segment, star->n_segment));
  for (int i = 0; i < star->n_segment; i++)
    n_byte += (size_t)star->segment[i].n_pix *
              (sizeof(double) + 4 * (4 + (size_t)star->segment[i].n_diag));
  MILL_CHECK(MILL_RENEW(&g->pixels, &g->cap_pixels, n_byte + 64 * (size_t)star->n_segment));
  char *at = g->pixels;
  for (int i = 0; i < star->n_segment; i++) {
    mill_raw_segment *s = &g->segment[i];
    *s = star->segment[i];
    const size_t n = (size_t)s->n_pix;
    move((const void **)&s->wave_aa, n * sizeof *s->wave_aa, &at);
    move((const void **)&s->flux, n * sizeof *s->flux, &at);
    move((const void **)&s->ivar, n * sizeof *s->ivar, &at);
    move((const void **)&s->mask, n * sizeof *s->mask, &at);
    move((const void **)&s->resolution, (size_t)s->n_diag * n * sizeof *s->resolution, &at);
    move((const void **)&s->sigma_aa, n * sizeof *s->sigma_aa, &at);
  }
  g->star = star;
  g->best.status = MILL_STATUS_NOT_DONE;
  g->tie = INFINITY;
  g->last = 0;
  for (int k = 0; k < MILL_MAX_LIBRARY; k++)
    g->chisq[k] = INFINITY;
  return MILL_OK;
}

static int collect_group(mill_several *s, mill_star_source source, void *context)
{
  mill_star *star;
  for (s->n_guest = 0; s->n_guest < s->n_room; s->n_guest++) {
    const int got = source(context, &star);
    if (got < 0)
      return -got;
    if (got == 0)
      break;
    MILL_CHECK(copy_star(star, &s->group[s->n_guest]));
  }
  return MILL_OK;
}

/* ---- one library's turn ---- */

/** Is the star fitted with library k, by the guesses of all? */
static int is_candidate(const guest *g, int k)
{
  return g->chisq[k] < INFINITY && g->chisq[k] <= g->tie;
}

/** A star of the group as the library's pipeline has it. */
static mill_star *lend_star(member *m, guest *g)
{
  mill_star *star = &g->lent;
  *star = *g->star;
  star->segment = g->segment;
  star->stays = 0;
  star->has_limit = m->is_guessing || m->index == 0;
  star->guess_limit = m->is_guessing ? -INFINITY : g->tie;
  for (int l = 0; l < m->of->lib[m->index].n_label; l++) {
    star->prior_mean[MILL_PAR_LABEL0 + l] = g->star->prior_mean[MILL_PAR_LABEL0 + m->label[l]];
    star->prior_sigma[MILL_PAR_LABEL0 + l] = g->star->prior_sigma[MILL_PAR_LABEL0 + m->label[l]];
  }
  if (!star->start)
    return star;
  memcpy(m->start, star->start, MILL_PAR_LABEL0 * sizeof *m->start);
  for (int l = 0; l < m->of->lib[m->index].n_label; l++)
    m->start[MILL_PAR_LABEL0 + l] = star->start[MILL_PAR_LABEL0 + m->label[l]];
  star->start = m->start;
  return star;
}

static int next_star(void *context, mill_star **star)
{
  member *m = context;
  while (m->next < m->of->n_guest) {
    guest *g = &m->of->group[m->next++];
    if (!m->is_guessing && m->index > 0 && !is_candidate(g, m->index))
      continue;
    *star = lend_star(m, g);
    return 1;
  }
  return 0;
}

/** A library's row as one of the first's labels: those that it lacks are missing, and have zeros in
 *  the covariance like fixed ones. */
static void take_row(const member *m, const mill_fit_result *from, mill_fit_result *to)
{
  const mill_library *first = m->of->lib, *own = first + m->index;
  const int n = first->n_label + 2, n_own = own->n_label + 2;
  int par[MILL_MAX_PAR] = {MILL_PAR_VRAD, MILL_PAR_VSINI};
  mill_fit_result none;
  *to = *from;
  to->library = (uint8_t)(from->status == MILL_STATUS_FITTED ? 1 + m->index : 0);
  if (m->index == 0 || from->status != MILL_STATUS_FITTED)
    return;
  mill_fit_result_init(&none, first, from->row, from->status);
  to->n_label = first->n_label;
  memcpy(to->label, none.label, sizeof to->label);
  memcpy(to->label_err, none.label_err, sizeof to->label_err);
  memcpy(to->label_err_formal, none.label_err_formal, sizeof to->label_err_formal);
  memcpy(to->pair_label, none.pair_label, sizeof to->pair_label);
  memcpy(to->pair_label_err, none.pair_label_err, sizeof to->pair_label_err);
  memset(to->covar, 0, sizeof to->covar);
  for (int l = 0; l < own->n_label; l++) {
    to->label[m->label[l]] = from->label[l];
    to->label_err[m->label[l]] = from->label_err[l];
    to->label_err_formal[m->label[l]] = from->label_err_formal[l];
    to->pair_label[m->label[l]] = from->pair_label[l];
    to->pair_label_err[m->label[l]] = from->pair_label_err[l];
    par[2 + l] = 2 + m->label[l];
  }
  for (int i = 0, k = 0; i < n_own; i++)
    for (int j = i; j < n_own; j++) {
      const int a = par[i] < par[j] ? par[i] : par[j], b = par[i] < par[j] ? par[j] : par[i];
      to->covar[a * n - a * (a - 1) / 2 + b - a] = from->covar[k++];
    }
}

/** What rows of libraries are compared by.  Templates that are nearer to real spectra fit a star
 *  beyond their labels as well as poorer ones that have its labels. */
static double standing(const mill_fit_result *row)
{
  return row->warn & MILL_WARN_HULL && row->excess > 0.0 ? EDGE * row->excess : row->excess;
}

/** Is a row better than the best so far? */
static int is_better(const mill_fit_result *row, const mill_fit_result *best)
{
  if (best->status == MILL_STATUS_NOT_DONE || row->status != MILL_STATUS_FITTED)
    return best->status == MILL_STATUS_NOT_DONE;
  return best->status != MILL_STATUS_FITTED || standing(row) < standing(best);
}

/** Keep a row with its models and epochs, which are borrowed. */
static int keep(guest *g, const mill_fit_result *row)
{
  size_t n = 0;
  const mill_star_model *model = g->lent.model;
  g->best = *row;
  for (int i = 0; i < g->lent.n_segment && model; i++)
    n += (size_t)g->segment[i].n_pix;
  MILL_CHECK(MILL_RENEW(&g->model, &g->cap_model, n));
  if (row->epoch) {
    const size_t n_epoch = (size_t)g->lent.n_epoch;
    MILL_CHECK(MILL_RENEW(&g->epoch, &g->cap_epoch, n_epoch));
    memcpy(g->epoch, row->epoch, n_epoch * sizeof *g->epoch);
    g->best.epoch = g->epoch;
  }
  float *to = g->model;
  for (int i = 0; i < g->lent.n_segment && model; i++) {
    memcpy(to, model[i].flux, (size_t)g->segment[i].n_pix * sizeof *to);
    to += g->segment[i].n_pix;
  }
  return MILL_OK;
}

/** Hand over the best row of a star. */
static int hand_over(mill_several *s, guest *g)
{
  const float *at = g->model;
  const int has_models = s->want_models && g->best.status == MILL_STATUS_FITTED;
  MILL_CHECK(MILL_RENEW(&s->model, &s->cap_model, g->lent.n_segment));
  for (int i = 0; i < g->lent.n_segment && has_models; i++) {
    s->model[i] = (mill_star_model){at, g->segment[i].wave_aa};
    at += g->segment[i].n_pix;
  }
  g->star->result = &g->best;
  g->star->model = has_models ? s->model : NULL;
  return s->sink(s->sink_context, g->star);
}

static int take_result(void *context, mill_star *star)
{
  member *m = context;
  mill_several *s = m->of;
  guest *g = (guest *)star;
  const mill_fit_result *result = star->result;
  g->chisq[m->index] = result->guess_chisq;
  g->tie = fmin(g->tie, result->guess_tie);
  if (m->is_guessing)
    return MILL_OK;
  if (m->index == 0)
    for (int k = 1; k < s->n_lib; k++)
      g->last = is_candidate(g, k) ? k : g->last;
  mill_fit_result row;
  take_row(m, result, &row);
  if (result->status != MILL_STATUS_NOT_DONE && is_better(&row, &g->best))
    MILL_CHECK(keep(g, &row));
  return m->index == g->last ? hand_over(s, g) : MILL_OK;
}

static int take_turn(member *m, int is_guessing)
{
  m->is_guessing = is_guessing;
  m->next = 0;
  return mill_pipeline_run(m->pipeline, next_star, m, take_result, m);
}

int mill_several_run(mill_several *s, mill_star_source source, void *source_context,
                     mill_result_sink sink, void *sink_context)
{
  if (s->n_lib == 1)
    return mill_pipeline_run(s->member[0].pipeline, source, source_context, sink, sink_context);
  s->sink = sink;
  s->sink_context = sink_context;
  do {
    MILL_CHECK(collect_group(s, source, source_context));
    for (int k = s->n_lib - 1; k > 0; k--)
      MILL_CHECK(take_turn(&s->member[k], 1));
    for (int k = 0; k < s->n_lib; k++)
      MILL_CHECK(take_turn(&s->member[k], 0));
  } while (s->n_guest == s->n_room);
  return MILL_OK;
}
