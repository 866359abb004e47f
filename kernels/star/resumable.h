/* SPDX-License-Identifier: BSD-3-Clause */
/** Resumable functions: straight text that stops at a question and goes on with its answer.
 *
 *      MILL_RESUMABLE(mill_simplex_run)
 *      {
 *        MILL_BEGIN;
 *        do {
 *          mill_simplex_propose(m, slot);
 *          MILL_ASK(MILL_REQ_VALUES);  // returns; the next call goes on behind it
 *        } while (mill_simplex_tell(m, slot));
 *        MILL_END;
 *      }
 *
 *  Each has the model m, the star's slot, and *at, the line where it waits; the lines of the
 *  functions that it calls come after it.  So a slot in a device's memory knows where its star is,
 *  and one thread serves thousands of them.  After A. Dunkels et al. (2006), "Protothreads",
 *  SenSys.
 *
 *  Nothing declared in such a function outlives MILL_ASK (kernels/star/logic/ask.h) or MILL_CALL,
 *  which may stand in loops and conditions, but not in a switch, and once a line.  Places are 0
 *  before the first call.
 */
#ifndef MILL_RESUMABLE_H
#define MILL_RESUMABLE_H

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

/** End early. */
#define MILL_RETURN                                                                                \
  do {                                                                                             \
    *at = 0;                                                                                       \
    return MILL_HAS_ENDED;                                                                         \
  } while (0)

/** Leave a request in the slot until its answer is there. */
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

#endif
