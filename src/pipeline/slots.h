/* SPDX-License-Identifier: BSD-3-Clause */
/** The slots of a pipeline: stars copied into the backend's memory, their models fetched back.
 *
 *  A slot keeps its memory from star to star, and gets more where a star needs it.  While it
 *  holds a star it holds that star's wavelength sets, of all libraries.  A star is copied once; the
 *  libraries take it one after the other from where it is.  One thread uses the slots.
 */
#ifndef MILL_SLOTS_H
#define MILL_SLOTS_H

#include "kernels/backend.h"
#include "kernels/data/star.h"
#include "src/pipeline/device_model.h"
#include "src/pipeline/waveset_cache.h"

/** A library of a pipeline, on a device of its own. */
typedef struct mill_member {
  const mill_library *lib;   /**< borrowed */
  int label[MILL_MAX_LABEL]; /**< index of each of its labels among the first library's */
  mill_guess_table guess;
  mill_model model;            /**< host copy; its pointers are device memory */
  int n_change;                /**< version of the model */
  mill_device_memory memory;   /**< of the model */
  mill_waveset_cache *waveset; /**< wavelength sets with this library's guess templates */
} mill_member;

/** Memory of the backend for all of a star: its models, its mill_segment, its mill_slot, its
 *  pixels, its line-spread functions for each library, and the other arrays.  So the first two
 *  come back as one piece, segments and slot go up as one, the pixels as another. */
typedef struct mill_slot_memory {
  char *at;
  size_t cap; /**< bytes */
  int is_own; /**< 0: it is a part of a block that slots share */
} mill_slot_memory;

/** A slot's data for a segment and a library. */
typedef struct mill_slot_plan {
  int waveset; /**< id of its wavelength set */
  int n_diag;  /**< diagonals of the rows that it will have */
} mill_slot_plan;

/** A slot as the host knows it. */
typedef struct mill_slot_entry {
  mill_slot_memory memory;
  mill_segment *segment; /**< host copy [cap_segment], owned */
  size_t cap_segment;
  mill_slot_plan *plan; /**< [n_lib][n_segment], owned */
  size_t cap_plan;
  mill_star *star;          /**< borrowed */
  int n_segment, n_waveset; /**< segments; wavelength sets that it holds, in the order of plan */
  int library;              /**< whose turn it is */
  double blur_ln[MILL_MAX_LIBRARY][MILL_MAX_ARM]; /**< as in mill_segment */
  int info[MILL_MAX_LIBRARY];                     /**< bits of FIT_INFO */
  size_t model_bytes;               /**< of all segments' models and the epochs together */
  size_t raw_at, lsf_at, device_at; /**< places in its memory */
  size_t lsf_bytes;                 /**< of the line-spread functions for a library */
  mill_epoch *epoch;                /**< [n_epoch] in the backend's memory */
  int n_epoch;
  mill_posterior *posterior; /**< the star's, in the backend's memory; NULL: not wanted */
  int active;                /**< holds a star */
  int fresh;                 /**< that has not been started */
  int finished;              /**< whose row waits to be handed over */
} mill_slot_entry;

/** What was fetched of some stars, owned. */
typedef struct mill_fetched {
  char *copy; /**< [cap_copy] models and segments */
  size_t cap_copy;
  mill_star_model *model; /**< [cap_model] of the segments */
  size_t cap_model;
  mill_epoch_result *epoch; /**< [cap_epoch] */
  size_t cap_epoch;
} mill_fetched;

void mill_fetched_clear(mill_fetched *fetched);

typedef struct mill_slots {
  const mill_member *member; /**< [n_lib] borrowed */
  int n_lib;
  mill_device_memory memory; /**< blocks that slots share, on the last library's device */
  int n_slot, want_models;
  mill_slot_entry *entry; /**< [n_slot], owned */
  mill_slot **bound;      /**< [n_slot] the mill_slot themselves, NULL: not yet; owned */
  mill_slot host;         /**< last downloaded or to be uploaded */
  /* of the star that is being loaded */
  char *lsf; /**< [n_lib][lsf_bytes] sigmas between templates and line-spread functions, owned */
  size_t cap_lsf;
  mill_upload *piece; /**< what is uploaded [cap_piece], owned */
  size_t cap_piece;
  int n_piece;
  mill_fetched fetched;
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
int mill_slots_create(const mill_member *member, int n_lib, int n_slot, int want_models,
                      mill_slots *slots);
void mill_slots_clear(mill_slots *slots);

/** Copy a star, which is borrowed, into slot i_slot, whose mill_slot may move.  The last library
 *  has the first turn; where there are others, it only guesses.  MILL_ERR_MEMORY where the backend
 *  has none for the star: the slot stays as it is.  MILL_ERR_RANGE (see mill_waveset_cache_get and
 *  mill_waveset_cache_deconv), MILL_ERR_BACKEND. */
int mill_slots_load(mill_slots *slots, int i_slot, mill_star *star);

/** Describe the star in a slot to another library, whose turn it is.  limit: only fitted where the
 *  guess's chi-square is at most that. */
int mill_slots_turn(mill_slots *slots, int i_slot, int library, double limit);

/** The slot may take another star. */
void mill_slots_free(mill_slots *slots, int i_slot);

/** How many of the n slots from first on hold a star. */
int mill_slots_count_active(const mill_slots *slots, int first, int n);

/** Fetch the best-fit models, where they are wanted, and the epochs of the fitted stars in n slots:
 *  their star->model and star->result->epoch, until the next call.  The device is waited for
 *  once. */
int mill_slots_fetch(mill_slots *slots, const int *i_slot, int n);

/** Model of a segment of the star in a slot, the only one of the last mill_slots_fetch. */
void mill_slots_fetched(const mill_slots *slots, int i_slot, int i_segment,
                        mill_segment_model *model);

/** Posterior of the star in a slot with its samples, copied to `to` [mill_posterior_bytes]. */
int mill_slots_fetch_posterior(mill_slots *slots, int i_slot, mill_posterior *to);

/** Free the memory that slots without a star own. */
void mill_slots_trim(mill_slots *slots);

/** Free the memory of all slots, none of which may hold a star; 0: there was none. */
int mill_slots_drop(mill_slots *slots);

/** Bytes of all slots and their stars. */
size_t mill_slots_bytes(const mill_slots *slots);

#endif
