/* SPDX-License-Identifier: BSD-3-Clause */
/** The slots of a pipeline: stars are copied into the backend's memory, and models fetched back.
 *
 *  A slot keeps its memory from star to star, and gets more if needed.  Libraries fit its star in
 *  turns; the slot holds the star's wavelength sets for all of them.  One thread at a time. */
#pragma once

#include "src/pipeline/device_model.h"
#include "src/pipeline/waveset_cache.h"

/** A library of a pipeline, on a device of its own. */
typedef struct mill_member {
  const mill_library *lib;   /**< borrowed */
  int label[MILL_MAX_LABEL]; /**< index of each of its labels among the first library's */
  mill_guess_table guess;
  mill_model model;            /**< host copy; its pointers are device memory */
  int n_change;                /**< version of the model */
  mill_device_memory memory;   /**< blocks of the model */
  mill_waveset_cache *waveset; /**< wavelength sets with this library's guess templates */
} mill_member;

/** Backend memory of a slot, in this order: models, mill_segments, mill_slot, pixels, line-spread
 *  functions for each library, other arrays.  Arrays next to each other are copied as one piece. */
typedef struct mill_slot_memory {
  char *at;
  size_t cap; /**< bytes */
  int is_own; /**< 0: a part of a block that slots share */
} mill_slot_memory;

/** Data of a slot for each segment and library. */
typedef struct mill_slot_plan {
  int waveset; /**< id of its wavelength set */
  int n_diag;  /**< diagonals of its resolution rows */
} mill_slot_plan;

/** A slot as the host knows it. */
typedef struct mill_slot_entry {
  mill_slot_memory memory;
  mill_segment *segment; /**< host copy [cap_segment], owned */
  size_t cap_segment;
  mill_slot_plan *plan; /**< [n_lib][n_segment], owned */
  size_t cap_plan;
  mill_star *star;          /**< borrowed */
  int n_segment, n_waveset; /**< segments; wavelength sets held, in the order of plan */
  int library;              /**< index of the library that fits the star now */
  double blur_ln[MILL_MAX_LIBRARY][MILL_MAX_ARM]; /**< as in mill_segment */
  int info[MILL_MAX_LIBRARY];                     /**< bits of FIT_INFO */
  size_t model_bytes;               /**< bytes of all segments' models and the epochs */
  size_t raw_at, lsf_at, device_at; /**< offsets of pixels, sigmas, other arrays in its memory */
  size_t lsf_bytes;                 /**< bytes of the line-spread functions for a library */
  mill_epoch *epoch;                /**< [n_epoch] in the backend's memory */
  int n_epoch;
  mill_posterior *posterior; /**< the star's posterior, in the backend's memory; NULL: not wanted */
  int active;                /**< holds a star */
  int fresh;                 /**< its star has not been started */
  int finished;              /**< its star's row waits to be handed over */
} mill_slot_entry;

/** Models and epochs fetched of some stars, owned. */
typedef struct mill_fetched {
  char *copy; /**< [cap_copy] models and segments */
  size_t cap_copy;
  mill_star_model *model; /**< [cap_model] models of the segments */
  size_t cap_model;
  mill_epoch_result *epoch; /**< [cap_epoch] */
  size_t cap_epoch;
} mill_fetched;

void mill_fetched_clear(mill_fetched *fetched);

typedef struct mill_slots {
  const mill_member *member; /**< [n_lib] borrowed */
  int n_lib;
  mill_device_memory memory; /**< blocks shared by slots, on the last library's device */
  int n_slot, want_models;
  mill_slot_entry *entry; /**< [n_slot], owned */
  mill_slot **bound;      /**< [n_slot] addresses in the backend's memory, NULL: none yet; owned */
  mill_slot host;         /**< host copy of a slot: the last downloaded, or the next to upload */
  /* work space for the star that is being loaded */
  char *lsf; /**< [n_lib][lsf_bytes] extra sigmas of mill_lsf_plan_sigma, owned */
  size_t cap_lsf;
  mill_upload *piece; /**< [cap_piece] pieces of the upload, owned */
  size_t cap_piece;
  int n_piece;
  mill_fetched fetched;
} mill_slots;

/** Models to keep: none; the best fit; the best fit, its template and continuum coefficients. */
enum mill_want_models { MILL_MODELS_NONE = 0, MILL_MODELS_ONLY = 1, MILL_MODELS_WITH_PARTS = 2 };

/** A segment's fetched model; arrays belong to the slots. */
typedef struct mill_segment_model {
  int used; /**< 0: the segment was dropped; the rest is unset */
  int n_pix, n_cont;
  const float *flux;       /**< [n_pix] unit of the input */
  const float *templ_flux; /**< [n_pix] template; NULL: parts were not wanted */
  const double *cont_coef; /**< [n_cont] coefficients of the continuum; NULL: not wanted */
} mill_segment_model;

/** Make slots, which get memory with their first stars.  want_models: enum mill_want_models.  Zero
 *  *slots before, and clear it also after a failure.  MILL_ERR_MEMORY. */
int mill_slots_create(const mill_member *member, int n_lib, int n_slot, int want_models,
                      mill_slots *slots);
void mill_slots_clear(mill_slots *slots);

/** Copy a borrowed star into the free slot i_slot.  The slot's address, slots->bound [i_slot], may
 *  change.  The star's first turn is with the last library.  With several libraries this turn ends
 *  after the guess.
 *
 *  MILL_ERR_MEMORY if the backend has no memory for the star: the slot stays free.
 *  MILL_ERR_RANGE (mill_waveset_cache_get, mill_waveset_cache_deconv), MILL_ERR_BACKEND. */
int mill_slots_load(mill_slots *slots, int i_slot, mill_star *star);

/** Give a slot's star to another library, which fits only if its guess has chi-square <= limit. */
int mill_slots_turn(mill_slots *slots, int i_slot, int library, double limit);

/** Free a slot for another star. */
void mill_slots_free(mill_slots *slots, int i_slot);

/** Download models (if wanted) and epochs of the fitted stars in slots i_slot [n], in one go; set
 *  star->model and star->result->epoch, which are valid until the next call. */
int mill_slots_fetch(mill_slots *slots, const int *i_slot, int n);

/** Give a segment's model; the last mill_slots_fetch must have fetched this star alone. */
void mill_slots_fetched(const mill_slots *slots, int i_slot, int i_segment,
                        mill_segment_model *model);

/** Copy a star's posterior with its samples to `to` [mill_posterior_bytes]. */
int mill_slots_fetch_posterior(mill_slots *slots, int i_slot, mill_posterior *to);

/** Free memory owned by slots without a star. */
void mill_slots_trim(mill_slots *slots);

/** Free the memory of all slots; no slot may hold a star.  Returns 0 if no slot had memory. */
int mill_slots_drop(mill_slots *slots);
