/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/pipeline.h"

#include "src/pipeline/pipeline_parts.h"
#include "src/system/log.h"

/** Divide p->all's slots among crews of one thread; a crew's lists are parts of p->all's lists. */
static int make_parts(mill_pipeline *p, int n_thread)
{
  const int n = n_thread < p->all.n_slot ? n_thread : p->all.n_slot;
  if (!p->backend->part || n < 2)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(n, &p->part));
  while (p->n_part < n) {
    const int i = p->n_part++, first = (int)((int64_t)p->all.n_slot * i / n);
    mill_crew *c = &p->part[i];
    *c = (mill_crew){.first = first,
                     .n_slot = (int)((int64_t)p->all.n_slot * (i + 1) / n) - first,
                     .list = p->all.list + first,
                     .done = p->all.done + first,
                     .row = p->all.row + first};
    for (int k = 0; k < p->n_lib; k++) {
      mill_member *m = &p->member[k];
      MILL_CHECK(
          mill_device_memory_take(&m->memory, sizeof m->model, &m->model, &c->seat[k].d_model));
      MILL_CHECK(p->backend->part(p->all.seat[k].device, i, &c->seat[k].device));
    }
  }
  return MILL_OK;
}

/** Add a library, on a device of its own. */
static int add_library(mill_pipeline *p, const mill_library *lib, const mill_fit_settings *settings,
                       int n_thread)
{
  mill_member *m = &p->member[p->n_lib];
  mill_seat *seat = &p->all.seat[p->n_lib];
  m->lib = lib;
  MILL_CHECK(mill_several_match(p->member[0].lib, lib, m->label));
  const mill_fit_settings set = mill_several_settings(settings, lib->n_label, m->label);
  MILL_CHECK(mill_device_model_check(lib, &set));
  MILL_CHECK(p->backend->open(n_thread, &seat->device));
  p->n_lib++; /* from now on mill_pipeline_destroy frees the member and closes the device */
  m->memory = (mill_device_memory){.backend = p->backend, .device = seat->device};
  MILL_CHECK(mill_guess_table_create(lib, &set, n_thread, &m->guess));
  MILL_CHECK(mill_device_model_load(lib, &set, &m->guess, n_thread, &m->memory, &m->model,
                                    &seat->d_model));
  return mill_waveset_cache_create(lib, &m->model.set, &m->guess, p->backend, seat->device,
                                   n_thread, &m->waveset);
}

int mill_pipeline_create(const mill_library *lib, int n_lib, const mill_fit_settings *settings,
                         const mill_backend *backend, int n_slot, int n_thread, int want_models,
                         mill_pipeline **out)
{
  MILL_AT_END(mill_pipeline_destroy_at) mill_pipeline *p = NULL;
  *out = NULL;
  if (n_slot < 1)
    return MILL_ERROR(MILL_ERR_RANGE, "%d stars at once; at least one is needed", n_slot);
  MILL_CHECK(MILL_ALLOC(1, &p));
  p->backend = backend;
  pthread_mutex_init(&p->mutex, NULL);
  p->all.n_slot = p->all.n_usable = n_slot;
  for (int k = 0; k < n_lib; k++)
    MILL_CHECK(add_library(p, &lib[k], settings, n_thread));
  MILL_CHECK(MILL_ALLOC(n_slot, &p->all.list));
  MILL_CHECK(MILL_ALLOC(n_slot, &p->all.done));
  MILL_CHECK(MILL_ALLOC(n_slot, &p->all.row));
  MILL_CHECK(make_parts(p, n_thread));
  if (n_lib > 1)
    MILL_CHECK(MILL_ALLOC(n_slot, &p->contest));
  if (settings->sample.max_eval > 0)
    MILL_CHECK(
        mill_alloc_bytes(mill_posterior_bytes(settings->sample.n_draw, p->member[0].model.n_deriv),
                         1, (void **)&p->posterior));
  MILL_CHECK(mill_slots_create(p->member, n_lib, n_slot, want_models, &p->slots));
  return MILL_GIVE(&p, out);
}

void mill_pipeline_destroy(mill_pipeline *p)
{
  if (!p)
    return;
  mill_slots_clear(&p->slots);
  mill_held_clear(&p->held);
  for (int k = 0; k < p->n_lib; k++) {
    mill_member *m = &p->member[k];
    mill_waveset_cache_destroy(m->waveset);
    mill_device_memory_clear(&m->memory);
    mill_guess_table_clear(&m->guess);
    for (int i = 0; i < p->n_part; i++)
      p->backend->close(p->part[i].seat[k].device);
    p->backend->close(p->all.seat[k].device);
  }
  for (int i = 0; i < p->all.n_slot && p->contest; i++)
    mill_fetched_clear(&p->contest[i].kept);
  pthread_mutex_destroy(&p->mutex);
  MILL_FREE(p->all.list, p->all.done, p->all.row, p->part, p->contest, p->posterior, p);
}

void mill_pipeline_begin_star(mill_pipeline *p)
{
  for (int k = 0; k < p->n_lib; k++)
    mill_waveset_cache_next(p->member[k].waveset);
}

int mill_pipeline_accepts(mill_pipeline *p, const mill_raw_segment *segment)
{
  int id;
  for (int k = 0; k < p->n_lib; k++) {
    mill_waveset_cache *c = p->member[k].waveset;
    MILL_CHECK(mill_waveset_cache_get(c, segment, &id));
    mill_waveset_cache_release(c, id);
  }
  return MILL_OK;
}

/* Raise max_seg_pix to the pixels of the star's longest segment. */
void mill_pipeline_fit_pixels(mill_pipeline *p, const mill_star *star)
{
  int most = 0;
  for (int i = 0; i < star->n_segment; i++)
    most = star->segment[i].n_pix > most ? star->segment[i].n_pix : most;
  for (int k = 0; k < p->n_lib; k++) {
    mill_member *m = &p->member[k];
    if (mill_row_pitch(most) <= m->model.max_seg_pix)
      continue;
    m->model.max_seg_pix = mill_row_pitch(most); /* devices learn it between rounds */
    m->n_change++;
  }
}

void mill_pipeline_waveset_stats(const mill_pipeline *p, mill_waveset_stats *stats)
{
  *stats = (mill_waveset_stats){0};
  for (int k = 0; k < p->n_lib; k++)
    mill_waveset_cache_add_stats(p->member[k].waveset, stats);
}

int mill_pipeline_constrain(mill_pipeline *p, const mill_fit_settings *settings)
{
  mill_fit_settings *set = &p->member[0].model.set;
  MILL_CHECK(mill_device_model_check(p->member[0].lib, settings));
  memcpy(set->fixed, settings->fixed, sizeof set->fixed);
  memcpy(set->fixed_value, settings->fixed_value, sizeof set->fixed_value);
  memcpy(set->prior_mean, settings->prior_mean, sizeof set->prior_mean);
  memcpy(set->prior_sigma, settings->prior_sigma, sizeof set->prior_sigma);
  p->member[0].n_change++;
  return MILL_OK;
}

int mill_pipeline_bind(mill_pipeline *p, mill_crew *c, mill_slot *const *slot, int n)
{
  const mill_backend *be = p->backend;
  for (int k = 0; k < p->n_lib; k++) {
    const mill_member *m = &p->member[k];
    mill_seat *seat = &c->seat[k];
    if (seat->bound == slot && seat->n_change == m->n_change)
      continue;
    seat->bound = NULL;
    MILL_CHECK(be->upload(seat->device, seat->d_model, &m->model, sizeof m->model));
    MILL_CHECK(be->bind(seat->device, &m->model, seat->d_model, slot, n));
    seat->bound = slot;
    seat->n_change = m->n_change;
    const char *remark = be->remark ? be->remark(seat->device) : NULL;
    if (remark && !seat->has_remarked)
      mill_log_warning("%s: %s", be->name, remark);
    seat->has_remarked = remark != NULL;
  }
  return MILL_OK;
}

void mill_pipeline_timing(const mill_pipeline *p, mill_timing *total)
{
  memset(total, 0, sizeof *total);
  for (int k = 0; k < p->n_lib && p->backend->timing; k++)
    p->backend->timing(p->all.seat[k].device, total);
}

void mill_pipeline_memory(const mill_pipeline *p, mill_pipeline_bytes *bytes)
{
  mill_waveset_stats sets;
  mill_pipeline_waveset_stats(p, &sets);
  *bytes = (mill_pipeline_bytes){.wavesets = sets.bytes};
  for (int i = 0; i < p->slots.n_slot; i++)
    bytes->slots += p->slots.entry[i].memory.cap;
  for (int k = 0; k < p->n_lib; k++)
    bytes->model += p->member[k].memory.bytes;
}

double mill_pipeline_load_s(const mill_pipeline *p)
{
  return p->load_s;
}
