/* SPDX-License-Identifier: BSD-3-Clause */
/** Macros for resumable functions: each stops at a request and goes on with its answer, as a
 *  protothread (Dunkels et al. 2006, SenSys).
 *
 *      MILL_RESUMABLE(mill_search)
 *      {
 *        MILL_BEGIN;
 *        do {
 *          mill_search_propose(m, slot);
 *          MILL_ASK(MILL_REQ_VALUES);  // returns; the next call goes on after this line
 *        } while (mill_search_tell(m, slot));
 *        MILL_END;
 *      }
 *
 *  A function receives the model m, the star's slot, and at.  at[0] is the line where the function
 *  waits, 0 before the first call.  at[1], at[2] ... are the lines where called functions wait.
 *  The slot thus records how far its star is, and one thread serves thousands of stars.
 *
 *  Local variables are lost at MILL_ASK (kernels/star/logic/ask.h) and MILL_CALL.  Both macros may
 *  stand in loops and conditions, but not in a switch or twice on a line. */
#pragma once

#include "kernels/star/slot.h"

enum mill_resumed { MILL_HAS_ENDED = 0, MILL_IS_ASKING };

#define MILL_RESUMABLE(name)                                                                       \
  MILL_HD_CALLED static inline enum mill_resumed name(const mill_model *m, mill_slot *slot, int *at)

#ifdef __cplusplus
#define MILL_FALL_THROUGH [[fallthrough]]
#else
#define MILL_FALL_THROUGH __attribute__((fallthrough))
#endif

#define MILL_BEGIN                                                                                 \
  switch (*at) {                                                                                   \
  default:

#define MILL_END                                                                                   \
  }                                                                                                \
  MILL_RETURN

/** End the function early. */
#define MILL_RETURN                                                                                \
  do {                                                                                             \
    *at = 0;                                                                                       \
    return MILL_HAS_ENDED;                                                                         \
  } while (0)

/** Leave a request in the slot; the next call goes on here with the answer. */
#define MILL_WAIT(kind)                                                                            \
  do {                                                                                             \
    slot->request = (kind);                                                                        \
    *at = __LINE__;                                                                                \
    return MILL_IS_ASKING;                                                                         \
  case __LINE__:;                                                                                  \
  } while (0)

/** Run another resumable function to its end. */
#define MILL_CALL(name)                                                                            \
  do {                                                                                             \
    *at = __LINE__;                                                                                \
    MILL_FALL_THROUGH;                                                                             \
  case __LINE__:                                                                                   \
    if (name(m, slot, at + 1) == MILL_IS_ASKING)                                                   \
      return MILL_IS_ASKING;                                                                       \
  } while (0)
