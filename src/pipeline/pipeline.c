/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/pipeline.h"

#include <string.h>

#include "kernels/base/memory.h"
#include "src/pipeline/pipeline_parts.h"
#include "src/system/log.h"

/** Crews of single threads, whose lists are parts of the lists of all. */
static int make_parts(mill_pipeline *p, int n_thread)
{
  const int n = n_thread < p->all.n_slot ? n_thread : p->all.n_slot;
  if (!p->backend->part || n < 2)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(n, &p->part));
  for (; p->n_part < n; p->n_part++) {
    mill_crew *c = &p->part[p->n_part];
    void *block = NULL;
    const int first = (int)((int64_t)p->all.n_slot * p->n_part / n);
    *c = (mill_crew){.first = first,
                     .n_slot = (int)((int64_t)p->all.n_slot * (p->n_part + 1) / n) - first,
                     .list = p->all.list + first,
                     .done = p->all.done + first,
                     .row = p->all.row + first};
    MILL_CHECK(mill_device_memory_take(&p->model_memory, sizeof p->model, &p->model, &block));
    c->d_model = block;
    MILL_CHECK(p->backend->part(p->all.device, p->n_part, &c->device));
  }
  return MILL_OK;
}

int mill_pipeline_create(const mill_library *lib, const mill_fit_settings *settings,
                         const mill_backend *backend, int n_slot, int n_thread, int want_models,
                         mill_pipeline **out)
{
  int err = MILL_OK;
  mill_pipeline *p = NULL;
  *out = NULL;
  MILL_TRY(mill_device_model_check(lib, settings));
  if (n_slot < 1)
    MILL_FAIL(MILL_ERR_RANGE, "%d slots; at least one is needed", n_slot);
  MILL_TRY(MILL_ALLOC(1, &p));
  p->lib = lib;
  p->backend = backend;
  pthread_mutex_init(&p->mutex, NULL);
  p->all.n_slot = p->all.n_usable = n_slot;
  MILL_TRY(backend->open(n_thread, &p->all.device));
  p->model_memory = (mill_device_memory){.backend = backend, .device = p->all.device};
  MILL_TRY(mill_guess_table_create(lib, settings, n_thread, &p->guess));
  MILL_TRY(mill_device_model_load(lib, settings, &p->guess, n_thread, &p->model_memory, &p->model,
                                  &p->all.d_model));
  MILL_TRY(mill_waveset_cache_create(lib, &p->model.set, &p->guess, backend, p->all.device,
                                     n_thread, &p->waveset));
  MILL_TRY(MILL_ALLOC(n_slot, &p->all.list));
  MILL_TRY(MILL_ALLOC(n_slot, &p->all.done));
  MILL_TRY(MILL_ALLOC(n_slot, &p->all.row));
  MILL_TRY(make_parts(p, n_thread));
  if (settings->sample.max_eval > 0)
    MILL_TRY(mill_alloc_bytes(mill_posterior_bytes(settings->sample.n_draw, p->model.n_deriv), 1,
                              (void **)&p->posterior));
  MILL_TRY(mill_slots_create(lib, &p->model, p->waveset, backend, p->all.device, n_slot,
                             want_models, &p->slots));
  *out = p;
  p = NULL;
done:
  mill_pipeline_destroy(p);
  return err;
}

void mill_pipeline_destroy(mill_pipeline *p)
{
  if (!p)
    return;
  if (p->all.device) {
    mill_slots_clear(&p->slots);
    mill_waveset_cache_destroy(p->waveset);
    mill_device_memory_clear(&p->model_memory);
    for (int i = 0; i < p->n_part; i++)
      p->backend->close(p->part[i].device);
    p->backend->close(p->all.device);
  }
  mill_held_clear(&p->held);
  mill_guess_table_clear(&p->guess);
  pthread_mutex_destroy(&p->mutex);
  MILL_FREE(p->all.list, p->all.done, p->all.row, p->part, p->posterior, p);
}

int mill_pipeline_accepts(mill_pipeline *p, const mill_raw_segment *segment)
{
  int id;
  MILL_CHECK(
      mill_waveset_cache_get(p->waveset, segment->arm, segment->n_pix, segment->wave_aa, &id));
  mill_waveset_cache_release(p->waveset, id);
  return MILL_OK;
}

void mill_pipeline_fit_pixels(mill_pipeline *p, const mill_star *star)
{
  for (int i = 0; i < star->n_segment; i++) {
    const int pitch = mill_row_pitch(star->segment[i].n_pix);
    if (pitch <= p->model.max_seg_pix)
      continue;
    p->model.max_seg_pix = pitch; /* devices learn it between rounds */
    p->n_change++;
  }
}

void mill_pipeline_waveset_limit(mill_pipeline *p, size_t bytes)
{
  mill_waveset_cache_limit(p->waveset, bytes);
}

void mill_pipeline_waveset_stats(const mill_pipeline *p, mill_waveset_stats *stats)
{
  mill_waveset_cache_stats(p->waveset, stats);
}

int mill_pipeline_constrain(mill_pipeline *p, const mill_fit_settings *settings)
{
  mill_fit_settings *set = &p->model.set;
  MILL_CHECK(mill_device_model_check(p->lib, settings));
  memcpy(set->fixed, settings->fixed, sizeof set->fixed);
  memcpy(set->fixed_value, settings->fixed_value, sizeof set->fixed_value);
  memcpy(set->prior_mean, settings->prior_mean, sizeof set->prior_mean);
  memcpy(set->prior_sigma, settings->prior_sigma, sizeof set->prior_sigma);
  p->n_change++;
  return MILL_OK;
}

int mill_pipeline_bind(mill_pipeline *p, mill_crew *c, mill_slot *const *slot, int n)
{
  if (c->bound == slot && c->n_change == p->n_change)
    return MILL_OK;
  c->bound = NULL;
  MILL_CHECK(p->backend->upload(c->device, c->d_model, &p->model, sizeof p->model));
  MILL_CHECK(p->backend->bind(c->device, &p->model, c->d_model, slot, n));
  c->bound = slot;
  c->n_change = p->n_change;
  const char *remark = p->backend->remark ? p->backend->remark(c->device) : NULL;
  if (remark && !p->has_remarked)
    mill_log_warning("%s: %s", p->backend->name, remark);
  p->has_remarked = remark != NULL;
  return MILL_OK;
}

void mill_pipeline_timing(const mill_pipeline *p, mill_timing *total)
{
  memset(total, 0, sizeof *total);
  if (p->backend->timing)
    p->backend->timing(p->all.device, total);
}

void mill_pipeline_memory(const mill_pipeline *p, mill_pipeline_bytes *bytes)
{
  mill_waveset_stats sets;
  mill_waveset_cache_stats(p->waveset, &sets);
  *bytes = (mill_pipeline_bytes){.model = p->model_memory.uploaded,
                                 .slots = mill_slots_bytes(&p->slots),
                                 .wavesets = sets.bytes};
}

int mill_pipeline_slots(const mill_pipeline *p)
{
  return p->all.n_usable;
}

double mill_pipeline_load_s(const mill_pipeline *p)
{
  return p->load_s;
}
