/* SPDX-License-Identifier: BSD-3-Clause */
/** Resumable functions: straight text that stops at a question and goes on with its answer.
 *
 *      MILL_RESUMABLE(mill_descend, const mill_model *m, mill_slot *slot, mill_descent *f)
 *      {
 *        MILL_BEGIN(f);
 *        do {
 *          MILL_ASK(f, m, slot, MILL_REQ_JACOBIAN);  // returns; the next call goes on behind it
 *        } while (take_step(m, slot));
 *        MILL_END(f);
 *      }
 *
 *  A function keeps its place in a frame, which holds the frames of the functions that it calls.  So
 *  a slot in a device's memory remembers where its star is, and one thread serves thousands of them.
 *  After A. Dunkels et al. (2006), "Protothreads", SenSys.
 *
 *  Nothing declared in such a function outlives MILL_ASK or MILL_CALL, which may stand in loops and
 *  conditions, but not in a switch, and once a line.  A frame is zero before its function begins and
 *  after its end.
 */
#ifndef MILL_RESUMABLE_H
#define MILL_RESUMABLE_H

#include "kernels/base/common.h"

enum mill_resumed { MILL_HAS_ENDED = 0, MILL_IS_ASKING };

#define MILL_RESUMABLE(name, ...) MILL_HD_CALLED static inline enum mill_resumed name(__VA_ARGS__)

#ifdef __cplusplus
#define MILL_FALL_THROUGH [[fallthrough]]
#else
#define MILL_FALL_THROUGH __attribute__((fallthrough))
#endif

#define MILL_BEGIN(f)                                                                              \
  switch ((f)->place) {                                                                            \
  default:

#define MILL_END(f)                                                                                \
  }                                                                                                \
  MILL_RETURN(f)

/** End early. */
#define MILL_RETURN(f)                                                                             \
  do {                                                                                             \
    (f)->place = 0;                                                                                \
    return MILL_HAS_ENDED;                                                                         \
  } while (0)

/** Leave a request in the slot until its answer is there. */
#define MILL_WAIT(f, slot, kind)                                                                   \
  do {                                                                                             \
    (slot)->request = (kind);                                                                      \
    (f)->place = __LINE__;                                                                         \
    return MILL_IS_ASKING;                                                                         \
  case __LINE__:;                                                                                  \
  } while (0)

/** Run another resumable function to its end. */
#define MILL_CALL(f, call)                                                                         \
  do {                                                                                             \
    (f)->place = __LINE__;                                                                         \
    MILL_FALL_THROUGH;                                                                             \
  case __LINE__:                                                                                   \
    if ((call) == MILL_IS_ASKING)                                                                  \
      return MILL_IS_ASKING;                                                                       \
  } while (0)

#endif
