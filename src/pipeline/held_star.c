/* SPDX-License-Identifier: BSD-3-Clause */
/* The held star: a star in the first slot, evaluated at points given by the caller.  A view is a
 * copy of the slot that evaluates one point, or several points that differ only in velocity. */

#include "kernels/star/logic/ask.h"
#include "src/pipeline/pipeline_parts.h"

enum {
  /** Most views, which are evaluated together. */
  MOST_VIEWS = 1024,
  /** Most velocities of a view.  With more, a short scan of velocities would leave threads idle. */
  MOST_VELOCITIES = 16
};
/** Memory limit of the views' velocities and answers. */
#define MOST_BYTES ((size_t)64 << 20)

void mill_held_clear(mill_held *h)
{
  mill_device_memory_clear(&h->memory);
  MILL_FREE((void *)h->view, h->head, h->piece, h->n_shared, h->segment, h->vel, h->answer);
  memset(h, 0, sizeof *h);
}

/** Allocate views (copies of the held star's slot) with room for n_segment segments. */
static int make_views(mill_pipeline *p, int n_segment)
{
  int err = MILL_OK;
  void *memory = NULL;
  mill_held *h = &p->held;
  if (h->n_view > 0 && n_segment <= h->n_segment)
    goto done;
  mill_held_clear(h);
  h->n_segment = n_segment;
  h->n_vel = (size_t)n_segment * MILL_N_PROFILE;
  h->n_answer = (size_t)n_segment * (size_t)mill_answer_pitch(&p->member[0].model);
  const size_t bytes = (h->n_vel + h->n_answer) * sizeof(double);
  const size_t n_fit = MOST_BYTES / (bytes + 1); /* + 1: bytes may be 0 */
  const size_t n = (size_t)fmax(1.0, fmin((double)n_fit, fmin(p->slots.n_slot, MOST_VIEWS)));
  MILL_TRY(MILL_ALLOC(n + 1, &h->piece)); /* + 1: the velocities of all views */
  MILL_TRY(MILL_ALLOC(n, &h->n_shared));
  MILL_TRY(MILL_ALLOC(n * VIEW_HEAD_BYTES, &h->head));
  MILL_TRY(mill_alloc_bytes(n, sizeof *h->view, (void **)&h->view));
  MILL_TRY(MILL_ALLOC(n_segment, &h->segment));
  MILL_TRY(MILL_ALLOC(n * h->n_vel, &h->vel));
  MILL_TRY(MILL_ALLOC(n * h->n_answer, &h->answer));
  h->memory.backend = p->backend;
  h->memory.device = p->all.seat[0].device;
  MILL_TRY(mill_device_memory_take(&h->memory, n * (sizeof(mill_slot) + bytes), NULL, &memory));
  for (size_t i = 0; i < n; i++)
    h->view[i] = (mill_slot *)memory + i;
  h->d_vel = (double *)(void *)((mill_slot *)memory + n);
  h->d_answer = h->d_vel + n * h->n_vel;
  h->n_view = (int)n;
done:
  if (err != MILL_OK)
    mill_held_clear(h);
  return err;
}

int mill_pipeline_hold(mill_pipeline *p, const mill_star *star, mill_fit_result *prepared)
{
  int err = MILL_OK;
  const int i_slot = 0; /* the held star takes the first slot */
  const mill_backend *be = p->backend;
  mill_held *h = &p->held;
  mill_slot *host = &p->slots.host;
  mill_device *device = p->all.seat[0].device;
  mill_pipeline_drop(p);
  mill_pipeline_begin_star(p);
  MILL_TRY(make_views(p, star->n_segment));
  mill_pipeline_fit_pixels(p, star);
  h->star = *star;
  MILL_TRY(mill_slots_load(&p->slots, i_slot, &h->star));
  h->is_there = 1;
  MILL_TRY(mill_pipeline_bind(p, &p->all, p->slots.bound, p->slots.n_slot));
  MILL_TRY(be->start(device, &i_slot, 1));
  MILL_TRY(be->wait(device));
  MILL_TRY(be->download(device, host, p->slots.bound[i_slot], MILL_SLOT_COPY_BYTES));
  h->d_segment = host->segment;
  MILL_TRY(
      be->download(device, h->segment, h->d_segment, (size_t)host->n_segment * sizeof *h->segment));
  *prepared = host->result;
  h->is_ready = host->request != MILL_REQ_NONE; /* else the star cannot be evaluated */
  h->n_copied = 0;
  host->is_held = 1;
  host->n_epoch = 0; /* one velocity for all exposures */
  /* views, copies of host, have no memory for a template */
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

/** Return how many of n points, from the first on, one view can evaluate together: points that
 *  differ in velocity only, element 0.  On a GPU return 1: several velocities together would change
 *  the last bits.  A point beyond the velocity limits is evaluated alone, as in fits. */
static int n_alike(const mill_pipeline *p, int request, int n, const double *theta)
{
  const size_t n_par = (size_t)p->member[0].model.n_par;
  const mill_fit_settings *set = &p->member[0].model.set;
  if (request != MILL_REQ_VALUES || p->backend->kind != MILL_BACKEND_CPU)
    return 1;
  int k = 0;
  for (; k < n && k < MOST_VELOCITIES; k++) {
    const double *at = theta + (size_t)k * n_par, v = at[MILL_PAR_VRAD];
    const int is_within = v >= set->min_vel_km_s && v <= set->max_vel_km_s;
    if (!is_within || memcmp(at + 1, theta + 1, (n_par - 1) * sizeof *at) != 0)
      break;
  }
  return k > 1 ? k : 1;
}

/** Let the host's slot have the velocities and answers of view i from point k on; return it. */
static mill_slot *view_of(mill_pipeline *p, int i, int k)
{
  const mill_held *h = &p->held;
  mill_slot *host = &p->slots.host;
  host->segment = h->segment;
  host->vel = h->vel + (size_t)i * h->n_vel + k;
  host->answer = h->answer + (size_t)i * h->n_answer + k;
  return host;
}

/** Evaluate n views (top of file) and fetch their answers.  View i takes the next n_shared[i]
 *  points of theta, which differ in their velocities only.  A view's first use for a star uploads
 *  the whole slot; each use uploads the slot's head, which has the request. */
static int ask_views(mill_pipeline *p, int request, int n, const double *theta)
{
  int n_done;
  const mill_backend *be = p->backend;
  const mill_model *m = &p->member[0].model;
  mill_held *h = &p->held;
  mill_slot *host = &p->slots.host;
  mill_device *device = p->all.seat[0].device;
  const size_t n_par = (size_t)m->n_par;
  host->segment = h->d_segment;
  for (; h->n_copied < n; h->n_copied++)
    MILL_CHECK(be->upload(device, h->view[h->n_copied], host, MILL_SLOT_COPY_BYTES));
  for (int i = 0; i < n; i++) {
    char *head = h->head + (size_t)i * VIEW_HEAD_BYTES;
    for (int k = h->n_shared[i] - 1; k >= 0; k--) { /* backwards: the first theta stays in host */
      memcpy(host->theta, theta + (size_t)k * n_par, n_par * sizeof *theta);
      mill_ask_point(m, view_of(p, i, k));
    }
    host->request = request;
    host->n_vel = h->n_shared[i];
    host->vel = h->d_vel + (size_t)i * h->n_vel;
    host->answer = h->d_answer + (size_t)i * h->n_answer;
    memcpy(head, host, VIEW_HEAD_BYTES);
    h->piece[i] = (mill_upload){h->view[i], head, VIEW_HEAD_BYTES, 0};
    p->all.list[i] = i;
    theta += (size_t)h->n_shared[i] * n_par;
  }
  h->piece[n] = (mill_upload){h->d_vel, h->vel, (size_t)n * h->n_vel * sizeof *h->vel, 0};
  MILL_CHECK(be->upload_all(device, h->piece, n + 1));
  MILL_CHECK(mill_pipeline_bind(p, &p->all, h->view, h->n_view));
  MILL_CHECK(be->advance(device, p->all.list, n, n, 1));
  MILL_CHECK(be->collect(device, p->all.done, p->all.row, &n_done));
  return be->download(device, h->answer, h->d_answer, (size_t)n * h->n_answer * sizeof *h->answer);
}

/** Turn the answer of the host's slot into an evaluation. */
static void take_answer(const mill_model *m, mill_slot *slot, mill_evaluation *to)
{
  mill_take_point(m, slot);
  *to = (mill_evaluation){.f = slot->eval.f};
  memcpy(to->grad, slot->eval.grad, sizeof to->grad);
  memcpy(to->hess, slot->eval.hess, sizeof to->hess);
  for (int a = 0; a < m->n_arm && slot->request == MILL_REQ_MODELS; a++) {
    to->chisq[a] = mill_sum_models(m, slot, a, MILL_ANSWER_CHISQ);
    to->chisq_c[a] = mill_sum_models(m, slot, a, MILL_ANSWER_CHISQ_C);
    to->negative += mill_sum_models(m, slot, a, MILL_ANSWER_NEGATIVE);
  }
}

/* Evaluate n_point points in passes.  In each pass n views, which are copies of the star's slot,
 * evaluate the points [first, end). */
int mill_pipeline_ask(mill_pipeline *p, int request, int fix_error, int n_point,
                      const double *theta, mill_evaluation *eval, double *penalty)
{
  mill_held *h = &p->held;
  /* the penalty, computed on the host, needs a model with hulls in host memory */
  mill_model m = p->member[0].model;
  memcpy(m.hull, p->member[0].lib->hull, sizeof m.hull);
  if (!h->is_ready)
    return MILL_BUG("a likelihood was asked for before a star was prepared");
  mill_evaluation *next = eval;
  for (int first = 0, end = 0; first < n_point; first = end) {
    const int fixes = fix_error && first == 0;
    /* models and a fixed model error go into memory that all views share: one view at a time */
    const int n_most = request == MILL_REQ_MODELS || fixes ? 1 : h->n_view;
    int n = 0;
    while (n < n_most && end < n_point) {
      h->n_shared[n] = n_alike(p, request, n_point - end, theta + (size_t)end * (size_t)m.n_par);
      end += h->n_shared[n++];
    }
    p->slots.host.fix_error = fixes;
    MILL_CHECK(ask_views(p, request, n, theta + (size_t)first * (size_t)m.n_par));
    for (int i = 0; i < n; i++)
      for (int k = 0; k < h->n_shared[i]; k++)
        take_answer(&m, view_of(p, i, k), next++);
  }
  for (int i = 0; i < n_point; i++)
    penalty[i] = mill_penalty(&m, &p->slots.host, theta + (size_t)i * (size_t)m.n_par);
  return MILL_OK;
}

int mill_pipeline_models(mill_pipeline *p)
{
  return mill_slots_fetch(&p->slots, &(int){0}, 1);
}

void mill_pipeline_model(const mill_pipeline *p, int i_segment, mill_segment_model *model)
{
  mill_slots_fetched(&p->slots, 0, i_segment, model);
}

int mill_pipeline_good(const mill_pipeline *p, int i_segment, unsigned char *good)
{
  const mill_segment *s = &p->held.segment[i_segment];
  return p->backend->download(p->all.seat[0].device, good, s->good, (size_t)s->n_pix);
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
