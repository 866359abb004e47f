/* SPDX-License-Identifier: BSD-3-Clause */
/** A library of a pipeline: in the form of its backend, on a device of its own. */
#ifndef MILL_MEMBER_H
#define MILL_MEMBER_H

#include "src/pipeline/device_model.h"
#include "src/pipeline/waveset_cache.h"

typedef struct mill_member {
  const mill_library *lib;   /**< borrowed */
  int label[MILL_MAX_LABEL]; /**< index of each of its labels among the first library's */
  mill_guess_table guess;
  mill_model model;            /**< host copy, its pointers are device memory */
  int n_change;                /**< version of the model */
  mill_device_memory memory;   /**< of the model; its device is the library's */
  mill_waveset_cache *waveset; /**< sets with the library's templates of the guess */
} mill_member;

#endif
