/* SPDX-License-Identifier: BSD-3-Clause */
/** The slots of a pipeline: stars copied into the backend's memory, their models fetched back.
 *
 *  A slot keeps its memory from star to star, and gets more where a star needs it.  While it
 *  holds a star it holds that star's wavelength sets.  One thread uses the slots.
 */
#ifndef MILL_SLOTS_H
#define MILL_SLOTS_H

#include "kernels/backend.h"
#include "kernels/data/star.h"
#include "src/pipeline/device_memory.h"
#include "src/pipeline/waveset_cache.h"

/** Memory of the backend for all of a star: its models, its mill_segment, its mill_slot, what the
 *  host fills of its arrays, and the other arrays.  So the first two come back as one piece, the
 *  next two go up as one and the pixels as another. */
typedef struct mill_slot_memory {
  char *at;
  size_t cap; /**< bytes */
  int is_own; /**< 0: it is a part of a block that slots share */
} mill_slot_memory;

/** A slot's data for a segment. */
typedef struct mill_slot_plan {
  int waveset; /**< id of its wavelength set */
  int n_diag;  /**< diagonals of the rows that it will have */
} mill_slot_plan;

/** A slot as the host knows it. */
typedef struct mill_slot_entry {
  mill_slot_memory memory;
  mill_segment *segment; /**< host copy [cap_segment], owned */
  size_t cap_segment;
  mill_slot_plan *plan; /**< of each segment [cap_plan], owned */
  size_t cap_plan;
  mill_star *star;    /**< borrowed */
  int n_waveset;      /**< segments whose wavelength sets it holds */
  size_t model_bytes; /**< of all segments' models and the epochs together */
  mill_epoch *epoch;  /**< [n_epoch] in the backend's memory */
  int n_epoch;
  mill_posterior *posterior; /**< the star's, in the backend's memory; NULL: not wanted */
  int active;                /**< holds a star */
  int fresh;                 /**< that has not been started */
  int finished;              /**< whose row waits to be handed over */
} mill_slot_entry;

typedef struct mill_slots {
  const mill_library *lib;     /**< borrowed */
  const mill_model *model;     /**< host copy, borrowed */
  mill_waveset_cache *waveset; /**< borrowed */
  mill_device_memory memory;   /**< blocks that slots share */
  int n_slot, want_models;
  mill_slot_entry *entry; /**< [n_slot], owned */
  mill_slot **bound;      /**< [n_slot] the mill_slot themselves, NULL: not yet; owned */
  mill_slot host;         /**< last downloaded or to be uploaded */
  /* of the star that is being loaded */
  double blur_ln[MILL_MAX_ARM]; /**< of the star that is loaded, as in mill_segment */
  float *lsf_aa; /**< sigma between templates and its line-spread functions, all segments; owned */
  size_t cap_lsf;
  mill_upload *piece; /**< what is uploaded [cap_piece], owned */
  size_t cap_piece;
  int n_piece;
  /* of the stars whose models were fetched */
  char *fetched; /**< models and segments of each [cap_fetched], owned */
  size_t cap_fetched;
  mill_star_model *star_model; /**< [cap_star_model] of the segments of each, owned */
  size_t cap_star_model;
  mill_epoch_result *epoch; /**< [cap_epoch] of one star, owned */
  size_t cap_epoch;
} mill_slots;

/** Parts of the models to keep: the best fit, with MILL_MODELS_WITH_PARTS also its template and
 *  continuum coefficients. */
enum mill_want_models { MILL_MODELS_NONE = 0, MILL_MODELS_ONLY = 1, MILL_MODELS_WITH_PARTS = 2 };

/** Model of a segment at the parameters of its last final answer, in the memory of the slots. */
typedef struct mill_segment_model {
  int used; /**< 0: the segment was dropped, and there is nothing else */
  int n_pix, n_cont;
  const float *flux;       /**< [n_pix] of the input's unit */
  const float *templ_flux; /**< [n_pix] the template; NULL: parts were not wanted */
  const double *cont_coef; /**< [n_cont] of the continuum functions that multiply it; the same */
} mill_segment_model;

/** Slots without memory for stars yet; want_models: enum mill_want_models.  *slots is
 * zeroed and is to be cleared after a failure, too.  MILL_ERR_MEMORY. */
int mill_slots_create(const mill_library *lib, const mill_model *model, mill_waveset_cache *waveset,
                      const mill_backend *backend, mill_device *device, int n_slot, int want_models,
                      mill_slots *slots);
void mill_slots_clear(mill_slots *slots);

/** Copy a star, which is borrowed, into slot i_slot, whose mill_slot may move.  MILL_ERR_MEMORY where the backend has
 * none for it: the slot stays as it is.  MILL_ERR_RANGE (see mill_waveset_cache_get and
 * mill_waveset_cache_deconv), MILL_ERR_BACKEND.
 */
int mill_slots_load(mill_slots *slots, int i_slot, mill_star *star);

/** The slot may take another star. */
void mill_slots_free(mill_slots *slots, int i_slot);

/** How many of the n slots from first on hold a star. */
int mill_slots_count_active(const mill_slots *slots, int first, int n);

/** Best-fit models of the stars in n slots into slots->star_model, star by star, where they are
 * wanted, and their epochs; the device is waited for once. */
int mill_slots_fetch_models(mill_slots *slots, const int *i_slot, int n);

/** Model of a segment of the star in a slot, the only one fetched by mill_slots_fetch_models. */
void mill_slots_fetched(const mill_slots *slots, int i_slot, int i_segment,
                        mill_segment_model *model);

/** Epochs of the star in a slot, the i-th one of the last mill_slots_fetch_models, until the next
 * call; NULL: it has none. */
int mill_slots_fetched_epochs(mill_slots *slots, int i_slot, int i,
                              const mill_epoch_result **epoch);

/** Posterior of the star in a slot with its samples, copied to `to` [mill_posterior_bytes]. */
int mill_slots_fetch_posterior(mill_slots *slots, int i_slot, mill_posterior *to);

/** Free the memory that slots without a star own. */
void mill_slots_trim(mill_slots *slots);

/** Free the memory of all slots, none of which may hold a star; 0: there was none. */
int mill_slots_drop(mill_slots *slots);

/** Bytes of all slots and their stars. */
size_t mill_slots_bytes(const mill_slots *slots);

#endif
