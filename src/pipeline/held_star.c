/* SPDX-License-Identifier: BSD-3-Clause */
/* A star that stays in the first slot and is evaluated at points that the caller gives. */
#include <string.h>

#include "kernels/base/memory.h"
#include "kernels/star/logic/parameters.h"
#include "src/pipeline/pipeline_parts.h"

enum {
  /** Points of a held star that are evaluated together. */
  MOST_VIEWS = 1024,
  /** Velocities that share a template: few enough that threads get a share of a short scan. */
  MOST_VELOCITIES = 16
};

void mill_held_clear(mill_held *h)
{
  MILL_FREE((void *)h->view, h->head, h->piece, h->eval, h->n_shared);
  memset(h, 0, sizeof *h);
}

/** Copies of the held star's slot, which share its segments and are asked at different points.  In
 *  the backend's memory, made for the first star. */
static int make_views(mill_pipeline *p)
{
  int err = MILL_OK;
  void *memory = NULL;
  mill_held *h = &p->held;
  const int n = p->slots.n_slot < MOST_VIEWS ? p->slots.n_slot : MOST_VIEWS;
  if (h->n_view > 0)
    goto done;
  MILL_TRY(MILL_ALLOC(n, &h->piece));
  MILL_TRY(MILL_ALLOC(n, &h->eval));
  MILL_TRY(MILL_ALLOC(n, &h->n_shared));
  MILL_TRY(MILL_ALLOC((size_t)n * VIEW_HEAD_BYTES, &h->head));
  MILL_TRY(mill_alloc_bytes((size_t)n, sizeof *h->view, (void **)&h->view));
  MILL_TRY(
      mill_device_memory_take(&p->member[0].memory, (size_t)n * sizeof(mill_slot), NULL, &memory));
  for (int i = 0; i < n; i++)
    h->view[i] = (mill_slot *)memory + i;
  h->n_view = n;
done:
  if (err != MILL_OK)
    mill_held_clear(h);
  return err;
}

int mill_pipeline_hold(mill_pipeline *p, const mill_star *star, mill_fit_result *prepared)
{
  int err = MILL_OK;
  const int first = 0;
  const mill_backend *be = p->backend;
  mill_held *h = &p->held;
  mill_slot *host = &p->slots.host;
  mill_pipeline_drop(p);
  MILL_TRY(make_views(p));
  mill_pipeline_fit_pixels(p, star);
  h->star = *star;
  MILL_TRY(mill_slots_load(&p->slots, first, &h->star));
  h->is_there = 1;
  MILL_TRY(mill_pipeline_bind(p, &p->all, p->slots.bound, p->slots.n_slot));
  MILL_TRY(be->start(p->all.seat[0].device, &first, 1));
  MILL_TRY(be->wait(p->all.seat[0].device));
  MILL_TRY(be->download(p->all.seat[0].device, host, p->slots.bound[first], MILL_SLOT_COPY_BYTES));
  *prepared = host->result;
  h->is_ready = host->request != MILL_REQ_NONE;
  h->n_copied = 0;
  host->is_held = 1;
  /* views have no room for a template of their own */
  host->kept.flux = NULL;
  host->lead.arm = host->stored = 0;
done:
  if (err != MILL_OK)
    mill_pipeline_drop(p);
  return err;
}

void mill_pipeline_drop(mill_pipeline *p)
{
  if (p->held.is_there)
    mill_slots_free(&p->slots, 0);
  p->held.is_there = p->held.is_ready = 0;
}

/** Points, of n, that one view answers: those that differ from the first in velocity alone take its
 *  template.  One by one on a GPU, where a profile's velocities have other sums than a value. */
static int n_alike(const mill_pipeline *p, int request, int n, const double *theta)
{
  const size_t n_par = (size_t)p->member[0].model.n_par;
  const mill_fit_settings *set = &p->member[0].model.set;
  int k = 0;
  if (request != MILL_REQ_VALUE || p->backend->kind != MILL_BACKEND_CPU)
    return 1;
  for (; k < n && k < MOST_VELOCITIES; k++) {
    const double *at = theta + (size_t)k * n_par, v = at[MILL_PAR_VRAD];
    if (memcmp(at + 1, theta + 1, (n_par - 1) * sizeof *at) != 0 || !(v >= set->min_vel_km_s) ||
        !(v <= set->max_vel_km_s))
      break;
  }
  return k > 1 ? k : 1;
}

/** Ask n views at the points that they answer. */
static int ask_views(mill_pipeline *p, int request, int n, const double *theta)
{
  int n_done;
  const mill_backend *be = p->backend;
  mill_held *h = &p->held;
  mill_slot *host = &p->slots.host;
  const size_t n_par = (size_t)p->member[0].model.n_par;
  for (; h->n_copied < n; h->n_copied++)
    MILL_CHECK(be->upload(p->all.seat[0].device, h->view[h->n_copied], host, MILL_SLOT_COPY_BYTES));
  for (int i = 0; i < n; i++) {
    char *head = h->head + (size_t)i * VIEW_HEAD_BYTES;
    host->request = h->n_shared[i] > 1 ? MILL_REQ_PROFILE : request;
    memcpy(host->theta, theta, n_par * sizeof *theta);
    for (int k = 0; k < MILL_N_PROFILE; k++)
      host->profile.vel[k] =
          k < h->n_shared[i] ? theta[(size_t)k * n_par + MILL_PAR_VRAD] : (double)INFINITY;
    memcpy(head, host, VIEW_HEAD_BYTES);
    h->piece[i] = (mill_upload){h->view[i], head, VIEW_HEAD_BYTES, 0};
    p->all.list[i] = i;
    theta += (size_t)h->n_shared[i] * n_par;
  }
  MILL_CHECK(be->upload_all(p->all.seat[0].device, h->piece, n));
  MILL_CHECK(mill_pipeline_bind(p, &p->all, h->view, h->n_view));
  MILL_CHECK(be->advance(p->all.seat[0].device, p->all.list, n, n, 1));
  MILL_CHECK(be->collect(p->all.seat[0].device, p->all.done, p->all.row, &n_done));
  for (int i = 0; i < n; i++)
    h->piece[i] = (mill_upload){&h->eval[i], &h->view[i]->eval, sizeof h->eval[i], 0};
  MILL_CHECK(be->download_all(p->all.seat[0].device, h->piece, n));
  return MILL_OK;
}

/** The answers of n views by point; returns what follows the last. */
static mill_eval *take_answers(const mill_held *h, int n, mill_eval *eval)
{
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < h->n_shared[i]; k++) {
      eval[k] = h->eval[i];
      if (h->n_shared[i] > 1)
        eval[k].f = h->eval[i].profile[k];
    }
    eval += h->n_shared[i];
  }
  return eval;
}

int mill_pipeline_ask(mill_pipeline *p, int request, int fix_error, int n_point,
                      const double *theta, mill_eval *eval, double *penalty)
{
  mill_held *h = &p->held;
  /* a copy whose hulls are the host's, for the penalty */
  mill_model m = p->member[0].model;
  memcpy(m.hull, p->member[0].lib->hull, sizeof m.hull);
  if (!h->is_ready)
    return MILL_ERROR(MILL_ERR_INTERNAL, "the slots hold no star that can be evaluated");
  mill_eval *next = eval;
  for (int first = 0, n_asked; first < n_point; first += n_asked) {
    const int fixes = fix_error && first == 0;
    /* the other written members belong to the star */
    const int most = request == MILL_REQ_FINAL || fixes ? 1 : h->n_view;
    const double *at = theta + (size_t)first * (size_t)m.n_par;
    int n = 0;
    for (n_asked = 0; n < most && first + n_asked < n_point; n_asked += h->n_shared[n++])
      h->n_shared[n] =
          n_alike(p, request, n_point - first - n_asked, at + (size_t)n_asked * (size_t)m.n_par);
    p->slots.host.fix_error = fixes;
    MILL_CHECK(ask_views(p, request, n, at));
    next = take_answers(h, n, next);
  }
  for (int i = 0; i < n_point; i++)
    penalty[i] = mill_penalty(&m, &p->slots.host, theta + (size_t)i * (size_t)m.n_par);
  return MILL_OK;
}

int mill_pipeline_models(mill_pipeline *p)
{
  const int first = 0;
  return mill_slots_fetch(&p->slots, &first, 1);
}

void mill_pipeline_model(const mill_pipeline *p, int i_segment, mill_segment_model *model)
{
  mill_slots_fetched(&p->slots, 0, i_segment, model);
}

int mill_pipeline_guesses(const mill_pipeline *p, int n_most, double *theta, double *chisq)
{
  const mill_slot *host = &p->slots.host;
  const size_t n_par = (size_t)p->member[0].model.n_par;
  const int n = host->starts.n < n_most ? host->starts.n : n_most;
  for (int i = 0; i < n; i++) {
    memcpy(theta + (size_t)i * n_par, host->starts.theta[i], n_par * sizeof *theta);
    chisq[i] = host->starts.chisq[i];
  }
  return n;
}

int mill_pipeline_evaluate(mill_pipeline *p, const mill_star *star, int request, int n_point,
                           const double *theta, mill_eval *eval, mill_fit_result *prepared)
{
  int err = MILL_OK;
  double *penalty = NULL;
  MILL_TRY(MILL_ALLOC(n_point, &penalty));
  MILL_TRY(mill_pipeline_hold(p, star, prepared));
  if (!p->held.is_ready)
    goto done;
  MILL_TRY(mill_pipeline_ask(p, request, p->slots.host.fix_error, n_point, theta, eval, penalty));
  for (int i = 0; i < n_point; i++)
    eval[i].f += penalty[i];
done:
  mill_free(penalty);
  mill_pipeline_drop(p);
  return err;
}
