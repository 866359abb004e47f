/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU backend: OpenMP threads over groups of slots.  Compiled once per instruction set
 * (MILL_ISA), and once for tests, where a block has several threads (fibers). */
#define MILL_PRECISION 32 /* of the guess; cpu_real.h has code for the precision of the run */

#include <string.h>

#include <omp.h>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/emulate.h"
#include "kernels/cpu/laps.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/star/blocks/sample_weigh.h"
#include "kernels/star/blocks/guess.h"
#include "kernels/star/blocks/peak.h"
#include "kernels/base/host_copy.h"
#include "kernels/base/nvtx.h"
#include "kernels/star/blocks/prepare.h"

#define answer_arm_f32 MILL_ISA_SYMBOL(mill_answer_arm_f32)
#define answer_arm_f64 MILL_ISA_SYMBOL(mill_answer_arm_f64)
#define resume_star    MILL_ISA_SYMBOL(mill_resume_star)
#define sample_ahead   MILL_ISA_SYMBOL(mill_look_ahead)
#define take_ahead     MILL_ISA_SYMBOL(mill_take_ahead)

struct mill_device {
  int n_thread;
  mill_lane *lane; /**< [n_thread] */
  int is_part;     /**< the lane is another device's */
  const mill_model *model;
  mill_slot *const *slot;
  /* slots of the last advance */
  mill_slot **active;
  int *index;
  int n_active;
  size_t cap_active, cap_index;
};

/** Return the stage of the fit (enum mill_phase) that a request's time is counted for. */
static int phase_of(const mill_slot *slot)
{
  if (slot->request == MILL_REQ_VALUES)
    return slot->n_vel > 1 ? MILL_PHASE_PROFILE : MILL_PHASE_SIMPLEX;
  return slot->request == MILL_REQ_MODELS ? MILL_PHASE_FINAL : MILL_PHASE_POLISH;
}

/** Does the phase measure errors at the solution? */
static int is_error_phase(int phase)
{
  return phase == MILL_PHASE_PROFILE || phase == MILL_PHASE_FINAL;
}

/** Arguments of one block's work, like those of a kernel on a GPU. */
typedef struct mill_task {
  const mill_model *m;
  mill_slot *slot;
  mill_workspace *work;
  int arm;
  mill_timing *timing;
} mill_task;

/** New slots that one thread starts together. */
typedef struct mill_start_task {
  const mill_model *m;
  int n;
  mill_slot **slot;     /**< [n] */
  mill_workspace *work; /**< [MILL_GROUP] */
  mill_timing *timing;
} mill_start_task;

/** Are n stars compared with the same templates? */
static int are_alike(int n, mill_slot *const *slot)
{
  for (int j = 1; j < n; j++) {
    if (slot[j]->n_segment != slot[0]->n_segment)
      return 0;
    for (int i = 0; i < slot[0]->n_segment; i++) {
      const mill_segment *x = &slot[0]->segment[i], *y = &slot[j]->segment[i];
      if (mill_guess_takes(x) != mill_guess_takes(y) || x->ws->templ != y->ws->templ)
        return 0;
    }
  }
  return 1;
}

/** Compute guess.chisq of all slots of t for MILL_GUESS_LANE templates, from template k0 on.
 *  Neighbouring stars with the same templates form groups.  A group loads a template once. */
static void match_stars(mill_block *b, const mill_start_task *t, int k0)
{
  enum { ALL = MILL_GUESS_STARS, HALF = ALL / 2 };
  float *sum[ALL];
  for (int j = 0; j < ALL; j++)
    sum[j] = (float *)t->work[j].grid;
  for (int i = 0, n; i < t->n; i += n) {
    /* group size n: ALL or HALF, if the next n stars share templates; else 1 */
    n = t->n - i >= ALL && are_alike(ALL, t->slot + i)     ? ALL
        : t->n - i >= HALF && are_alike(HALF, t->slot + i) ? HALF
                                                           : 1;
    if (n == ALL) /* constants as group sizes let the compiler unroll loops */
      mill_block_guess_matches(b, t->m, k0, ALL, t->slot + i, sum);
    else if (n == HALF)
      mill_block_guess_matches(b, t->m, k0, HALF, t->slot + i, sum);
    else
      mill_block_guess_match(b, t->m, k0, t->slot[i], t->work);
  }
}

/** Prepare the pixels of new stars, match them with the templates and set their first requests. */
static void body_start(mill_block *b, void *arg)
{
  const mill_start_task *t = arg;
  double last = mill_wall_s();
  MILL_SERIAL(b)
  {
    mill_range_begin(MILL_RANGE_PREPARE);
  }
  for (int i = 0; i < t->n; i++)
    for (int s = 0; s < t->slot[i]->n_segment; s++)
      mill_block_prepare(b, t->m, &t->slot[i]->segment[s]);
  MILL_SERIAL(b)
  {
    t->timing->pixel_s[MILL_PHASE_PREPARE] += lap_s(&last);
    mill_range_end();
    mill_range_begin(MILL_RANGE_GUESS);
  }
  for (int i = 0; i < t->n; i++)
    mill_block_guess_data(b, t->m, t->slot[i], t->work);
  for (int k = 0; k < t->m->n_templ; k += MILL_GUESS_LANE)
    match_stars(b, t, k);
  for (int i = 0; i < t->n; i++) {
    mill_block_guess_starts(b, t->m, t->slot[i]);
    MILL_SERIAL(b)
    {
      resume_star(t->m, t->slot[i]);
    }
  }
  MILL_SERIAL(b)
  {
    t->timing->pixel_s[MILL_PHASE_GUESS] += lap_s(&last);
    mill_range_end();
  }
  MILL_BARRIER(b);
}

static void body_arm(mill_block *b, void *arg)
{
  const mill_task *t = arg;
  if (t->m->set.precision == MILL_FLOAT64)
    answer_arm_f64(b, t->m, t->slot, t->arm, t->work);
  else
    answer_arm_f32(b, t->m, t->slot, t->arm, t->work);
}

static void lane_clear(mill_lane *lane)
{
  MILL_FREE(lane->front[0], lane->front[1], lane->hidden[0], lane->hidden[1], lane->narrow[0],
            lane->narrow[1], lane->memory, lane->ahead);
  const mill_timing timing = lane->timing;
  memset(lane, 0, sizeof *lane);
  lane->timing = timing;
}

/** Resize a lane's buffers for the model, of whose sizes only max_seg_pix can change. */
static int lane_reserve(mill_lane *lane, const mill_model *m)
{
  int err = MILL_OK;
  if (lane->max_seg_pix >= m->max_seg_pix && lane->hidden[0])
    return MILL_OK;
  lane_clear(lane);
  /* each slot has its own templates; the slots use the other arrays one after another */
  const mill_array *array;
  const int n_array = mill_workspace_arrays(&array);
  size_t count[MILL_N_WORK_COUNT], size[MILL_N_WORK_REGION] = {0};
  mill_workspace_counts(m->n_deriv, mill_n_pixel_row(m), m->max_pix_pad, m->max_seg_pix,
                        m->set.precision, m->guess_n, count);
  /* give arrays that mill_workspace_counts leaves to the backend their largest sizes */
  count[MILL_COUNT_NORMAL] = MILL_MAX_CONT * MILL_MAX_CONT;
  count[MILL_COUNT_SOLVE] = MILL_MAX_CONT * (MILL_MAX_PAR + 3);
  count[MILL_COUNT_SUMS] = MILL_BLOCK_MAX_SUM;
  mill_lay_out(n_array, array, count, MILL_ARRAY_BYTES, size, NULL, 1, NULL, 0);
  for (int i = 0; i < 2; i++) {
    MILL_TRY(MILL_ALLOC((1 + MILL_MAX_LABEL) * MILL_ROW_PITCH, &lane->front[i]));
    MILL_TRY(MILL_ALLOC(MILL_BATCH_ROWS * MILL_ROW_PITCH, &lane->hidden[i]));
    MILL_TRY(MILL_ALLOC(MILL_BATCH_ROWS * MILL_ROW_PITCH, &lane->narrow[i]));
  }
  MILL_TRY(MILL_ALLOC(MILL_GROUP * size[MILL_WORK_GRID] + size[MILL_WORK_REST], &lane->memory));
  for (int i = 0; i < MILL_GROUP; i++) {
    size_t at[MILL_N_WORK_REGION] = {(size_t)i * size[MILL_WORK_GRID],
                                     MILL_GROUP * size[MILL_WORK_GRID]};
    mill_lay_out(n_array, array, count, MILL_ARRAY_BYTES, at, lane->memory, 1, &lane->work[i],
                 sizeof lane->work[i]);
  }
  if (m->set.sample.max_eval > 0)
    MILL_TRY(MILL_ALLOC(MILL_GROUP, &lane->ahead));
  lane->max_seg_pix = m->max_seg_pix;
done:
  if (err)
    lane_clear(lane);
  return err;
}

static int cpu_open(int n_thread, mill_device **out)
{
  MILL_OWNED mill_device *d = NULL;
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &d));
  d->n_thread = n_thread < 1 ? 1 : n_thread;
  MILL_CHECK(MILL_ALLOC(d->n_thread, &d->lane));
  return MILL_GIVE(&d, out);
}

static int cpu_part(mill_device *whole, int i, mill_device **out)
{
  MILL_CHECK(MILL_ALLOC(1, out));
  **out = (mill_device){.n_thread = 1, .lane = &whole->lane[i], .is_part = 1};
  return MILL_OK;
}

static void cpu_close(mill_device *d)
{
  if (!d)
    return;
  for (int i = 0; i < d->n_thread && !d->is_part; i++)
    lane_clear(&d->lane[i]);
  if (!d->is_part)
    mill_free(d->lane);
  MILL_FREE((void *)d->active, d->index, d);
}

static int cpu_alloc(mill_device *d, size_t bytes, void **out)
{
  (void)d;
  return mill_alloc_raw(bytes, 1, out);
}

static void cpu_release(mill_device *d, void *memory)
{
  (void)d;
  mill_free(memory);
}

static int cpu_copy(mill_device *d, void *to, const void *from, size_t bytes)
{
  (void)d;
  if (to != from && bytes > 0)
    memcpy(to, from, bytes);
  return MILL_OK;
}

static int cpu_copy_all(mill_device *device, const mill_upload *piece, int n)
{
  (void)device;
  for (int i = 0; i < n; i++)
    mill_host_copy(&piece[i]);
  return MILL_OK;
}

static int cpu_zero(mill_device *d, void *to, size_t bytes)
{
  (void)d;
  memset(to, 0, bytes);
  return MILL_OK;
}

/** Resize the buffers of all threads' lanes for the model. */
static int reserve(mill_device *d, const mill_model *m)
{
  int failed = MILL_OK;
  /* a thread allocates its own lane, so that the memory is near the thread's core */
#pragma omp parallel for schedule(static, 1) num_threads(d->n_thread)
  for (int i = 0; i < d->n_thread; i++) {
    const int code = lane_reserve(&d->lane[i], m);
    if (code != MILL_OK) {
#pragma omp atomic write
      failed = code;
    }
  }
  if (failed != MILL_OK) /* the message is the failing thread's: give this thread one */
    return MILL_ERROR(failed, "no memory for the templates of %d threads%s", d->n_thread,
                      mill_memory_limit());
  return MILL_OK;
}

/** mill_backend.bind: resize the lanes for the model, and the list for n_slot active slots. */
static int cpu_bind(mill_device *d, const mill_model *model, const mill_model *d_model,
                    mill_slot *const *slot, int n_slot)
{
  (void)model; /* d_model is in host memory too */
  d->model = d_model;
  d->slot = slot;
  MILL_CHECK(reserve(d, d_model));
  if ((size_t)n_slot > d->cap_active)
    d->n_active = 0;
  MILL_CHECK(MILL_RENEW(&d->active, &d->cap_active, n_slot));
  return MILL_RENEW(&d->index, &d->cap_index, n_slot);
}

/** mill_backend.start: a thread starts up to MILL_GROUP slots together. */
static int cpu_start(mill_device *d, const int *index, int n)
{
  const int together = (int)fmin((n + d->n_thread - 1) / d->n_thread, MILL_GROUP);
#pragma omp parallel for schedule(dynamic, 1) num_threads(d->n_thread)
  for (int first = 0; first < n; first += together) {
    mill_lane *lane = &d->lane[omp_get_thread_num()];
    mill_slot *slot[MILL_GROUP];
    const int n_slot = n - first < together ? n - first : together;
    for (int i = 0; i < n_slot; i++)
      slot[i] = d->slot[index[first + i]];
    mill_start_task task = {d->model, n_slot, slot, &lane->work[0], &lane->timing};
    mill_laps laps;
    laps_begin(&laps, &lane->timing);
    mill_block_run(body_start, &task);
    laps_end(&laps, &lane->timing);
  }
  return MILL_OK;
}

/** Split the emulator's time among the phases of its slots, by rows. */
static void count_emulator(const mill_model *m, int n_slot, mill_slot *const *slot, double spent_s,
                           mill_timing *timing)
{
  int n_row[MILL_N_PHASE] = {0}, n_all = 0;
  for (int s = 0; s < n_slot; s++) {
    const int n = 1 + n_tangent_of(m, slot[s]);
    n_row[phase_of(slot[s])] += n;
    n_all += n;
  }
  for (int p = 0; p < MILL_N_PHASE; p++)
    timing->emulate_s[p] += spent_s * n_row[p] / n_all;
}

/** Answer one slot's request in one arm.  part: a copy of the model, to be cut by cut_arm. */
static void answer_slot(const mill_model *m, int arm, mill_slot *slot, const mill_workspace *work,
                        mill_model *part, mill_timing *timing, double *last)
{
  mill_workspace own = *work;
  mill_task task = {part, slot, &own, arm, timing};
  cut_arm(m, arm, 1, &slot, part);
  own.grid = (char *)own.grid + (size_t)part->arm[arm].first * real_bytes(m);
  mill_range_begin(is_error_phase(phase_of(slot)) ? MILL_RANGE_ERRORS : MILL_RANGE_LIKELIHOOD);
  mill_block_run(body_arm, &task);
  mill_range_end();
  timing->pixel_s[phase_of(slot)] += lap_s(last);
}

/** Answer slots in an arm: at once if a slot's template exists, else in batches.  A batch's
 *  likelihoods follow its templates, while these are in cache.  A slot with stored > 0 starts at a
 *  guess template, which the first such slot stores for the others. */
static void answer_arm(const mill_model *m, int arm, int n, mill_slot *const *active,
                       mill_lane *lane, double *last)
{
  mill_timing *timing = &lane->timing;
  mill_model part = *m; /* cut anew to the pixels of each slot or batch */
  int i = 0;
  while (i < n) {
    mill_slot *batch[MILL_GROUP];
    int n_batch = 0, n_row = 0;
    for (; i < n; i++) {
      if (!mill_slot_wants(active[i], arm))
        continue;
      if (active[i]->stored > 0 ? stored_is_there(m, arm, active[i], &part)
                                : mill_template_there(m, active[i])) {
        answer_slot(m, arm, active[i], &lane->work[0], &part, timing, last);
        continue;
      }
      const int more = 1 + n_tangent_of(m, active[i]);
      if (n_row + more > MILL_BATCH_ROWS)
        break;
      if (active[i]->stored > 0)
        stored_begin(m, arm, active[i]);
      batch[n_batch++] = active[i];
      n_row += more;
    }
    if (n_batch == 0)
      return;
    mill_range_begin(MILL_RANGE_EMULATE);
    cut_arm(m, arm, n_batch, batch, &part);
    emulate(&part, arm, n_batch, batch, lane);
    for (int s = 0; s < n_batch; s++)
      if (batch[s]->stored > 0)
        stored_end(m, arm, batch[s], &part, &lane->work[s]);
    mill_range_end();
    count_emulator(m, n_batch, batch, lap_s(last), timing);
    for (int s = 0; s < n_batch; s++)
      answer_slot(m, arm, batch[s], &lane->work[s], &part, timing, last);
  }
}

/** Extend the list of n active slots by copies, to MILL_GROUP entries at most: emulators are
 *  fastest with full batches.  The copies of a slot request its next posterior samples, in order.
 *  of [n] out: index of each entry's slot.  Returns the new n. */
static int look_ahead(const mill_model *m, mill_lane *lane, int n, mill_slot **active, int *of)
{
  const int n_slot = n;
  /* last[i]: entry of the last copy of slot i; -1: the slot has no more samples */
  int more = lane->ahead != NULL, last[MILL_GROUP], n_copy = 0;
  for (int i = 0; i < n_slot; i++)
    last[i] = of[i] = i;
  while (more) {
    more = 0;
    for (int i = 0; i < n_slot && n < MILL_GROUP; i++) {
      mill_slot *copy = &lane->ahead[n_copy];
      if (last[i] < 0)
        continue;
      memcpy(copy, active[last[i]], MILL_SLOT_COPY_BYTES);
      last[i] = sample_ahead(m, copy) ? n : -1;
      if (last[i] < 0)
        continue;
      n_copy++;
      of[n] = i;
      active[n++] = copy;
      more = 1;
    }
  }
  return n;
}

/** Answer a request that needs no template. */
static void body_look(mill_block *b, void *arg)
{
  const mill_task *t = arg;
  if (t->slot->request == MILL_REQ_PEAK)
    mill_block_peak(b, t->m, t->slot, t->work);
  else
    mill_block_points_look(b, t->m, t->slot);
}

/** Make n_round rounds of one group of slots, or fewer if no slot has a request left. */
static void group_rounds(const mill_model *m, mill_slot *const *group, int n_group, int n_round,
                         mill_lane *lane)
{
  double last = mill_wall_s();
  for (int i_round = 0; i_round < n_round; i_round++) {
    mill_slot *active[MILL_GROUP];
    int n = 0, of[MILL_GROUP];
    for (int i = 0; i < n_group; i++)
      if (group[i]->request != MILL_REQ_NONE)
        active[n++] = group[i];
    if (n == 0)
      return;
    mill_range_begin(MILL_RANGE_ROUND);
    n = look_ahead(m, lane, n, active, of); /* adds copies of slots that draw samples */
    for (int a = 0; a < m->n_arm; a++)
      answer_arm(m, a, n, active, lane, &last);
    for (int i = 0; i < n; i++) {
      mill_slot *slot = active[of[i]];
      mill_task task = {m, slot, &lane->work[0], 0, &lane->timing};
      if (slot->request == MILL_REQ_PEAK || slot->request == MILL_REQ_WEIGH)
        mill_block_run(body_look, &task); /* answer_arm skips these: they need no template */
      const int phase = phase_of(slot);
      if (slot != active[i]) /* a copy: move its sample and answer to the slot */
        take_ahead(m, slot, active[i]);
      if (slot->request == MILL_REQ_TANGENTS)
        lane->timing.n_jacobian[phase]++;
      else
        lane->timing.n_value[phase]++;
      mill_range_begin(is_error_phase(phase) ? MILL_RANGE_ERRORS : MILL_RANGE_POLISH);
      resume_star(m, slot);
      mill_range_end();
      lane->timing.pixel_s[phase] += lap_s(&last);
    }
    mill_range_end();
  }
}

/** mill_backend.advance: a thread makes all rounds of a group of slots. */
static int cpu_advance(mill_device *d, const int *index, int n, int n_want, int max_round)
{
  (void)n_want; /* a group is done with its rounds before the next one begins */
  for (int i = 0; i < n; i++) {
    d->index[i] = index[i];
    d->active[i] = d->slot[index[i]];
  }
  d->n_active = n;
  /* few slots: smaller groups, so that every thread has one */
  const int share = (n + d->n_thread - 1) / d->n_thread;
  const int group = (int)fmax(1, fmin(share, MILL_GROUP));
  const int n_group = (n + group - 1) / group;
#pragma omp parallel for schedule(dynamic, 1) num_threads(d->n_thread)
  for (int g = 0; g < n_group; g++) {
    const int first = g * group, len = n - first < group ? n - first : group;
    mill_lane *lane = &d->lane[omp_get_thread_num()];
    mill_laps laps;
    laps_begin(&laps, &lane->timing);
    group_rounds(d->model, d->active + first, len, max_round, lane);
    laps_end(&laps, &lane->timing);
  }
  return MILL_OK;
}

/** mill_backend.collect: slots without a request have finished.  It ends the advance. */
static int cpu_collect(mill_device *d, int *index, mill_fit_result *result, int *n_finished)
{
  int n = 0;
  mill_range_begin(MILL_RANGE_DOWNLOAD);
  for (int i = 0; i < d->n_active; i++)
    if (d->active[i]->request == MILL_REQ_NONE) {
      index[n] = d->index[i];
      result[n++] = d->active[i]->result;
    }
  mill_range_end();
  *n_finished = n;
  d->n_active = 0;
  return MILL_OK;
}

/** mill_backend.store: all threads emulate equally many batches of templates with tangents. */
static int cpu_store(mill_device *d, const mill_model *m, int arm, float *rows, double *mean)
{
  /* n_batch: the least multiple of n_thread whose batches have at most `most` templates each */
  const int most = (int)fmin(MILL_BATCH_ROWS / (1 + m->n_label), MILL_GROUP);
  const int n_least = (m->n_stored + most - 1) / most;
  const int n_batch = (n_least + d->n_thread - 1) / d->n_thread * d->n_thread;
  const int each = (m->n_stored + n_batch - 1) / n_batch;
  MILL_OWNED mill_slot *star = NULL;
  MILL_CHECK(reserve(d, m));
  MILL_CHECK(MILL_ALLOC(m->n_stored, &star));
#pragma omp parallel for schedule(static) num_threads(d->n_thread)
  for (int first = 0; first < m->n_stored; first += each) {
    const int left = m->n_stored - first, n = left < each ? left : each;
    mill_lane *lane = &d->lane[omp_get_thread_num()];
    mill_slot *slot[MILL_GROUP];
    for (int s = 0; s < n; s++) {
      slot[s] = &star[first + s];
      slot[s]->request = MILL_REQ_TANGENTS;
      for (int l = 0; l < m->n_label; l++)
        slot[s]->theta[MILL_PAR_LABEL0 + l] =
            m->guess_label[(size_t)(first + s) * (size_t)m->n_label + (size_t)l];
    }
    emulate(m, arm, n, slot, lane);
    for (int s = 0; s < n; s++)
      store_template(m, arm, first + s, &lane->work[s], rows, mean);
  }
  return MILL_OK;
}

static int cpu_wait(mill_device *d)
{
  (void)d;
  return MILL_OK;
}

static void cpu_timing(mill_device *d, mill_timing *total)
{
  for (int i = 0; i < d->n_thread; i++) {
    const mill_timing *lane = &d->lane[i].timing;
    for (int p = 0; p < MILL_N_PHASE; p++) {
      total->emulate_s[p] += lane->emulate_s[p];
      total->pixel_s[p] += lane->pixel_s[p];
      total->n_value[p] += lane->n_value[p];
      total->n_jacobian[p] += lane->n_jacobian[p];
    }
  }
}

const mill_backend MILL_ISA_SYMBOL(mill_backend_cpu) = {
    .name = "cpu " MILL_ISA_NAME,
    .kind = MILL_BACKEND_CPU,
    .open = cpu_open,
    .close = cpu_close,
    .part = cpu_part,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_copy,
    .upload_all = cpu_copy_all,
    .zero = cpu_zero,
    .download = cpu_copy,
    .download_all = cpu_copy_all,
    .bind = cpu_bind,
    .start = cpu_start,
    .advance = cpu_advance,
    .collect = cpu_collect,
    .wait = cpu_wait,
    .timing = cpu_timing,
    .store = cpu_store,
};
