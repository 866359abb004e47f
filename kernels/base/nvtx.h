/* SPDX-License-Identifier: BSD-3-Clause */
/** Named ranges on the timeline of a profiler, NVIDIA Nsight Systems (docs/develop/performance.md).
 *
 *  Without a profiler a range costs two tests of a variable.  A thread ends the ranges that it
 *  began, in reverse order. */
#pragma once

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

/** What each range covers:
 *
 *  read        reader thread: a batch of stars from files
 *  prepare     pixels of a fresh star (on a GPU: within guess)
 *  upload      host: a star from the reader into its slot
 *  guess       initial guess of fresh stars
 *  round       one round; with a CUDA graph, one launch of many rounds
 *  emulate     templates of one arm, within a round
 *  likelihood  likelihood of one arm, within a round
 *  polish      choice of each star's next question, within a round
 *  errors      on a CPU: velocity profile and last evaluation, within a round
 *  download    host: finished rows and models
 *  write       I/O thread: a collective write */
#define MILL_RANGE_LIST(X)                                                                         \
  X(MILL_RANGE_READ, "read")                                                                       \
  X(MILL_RANGE_PREPARE, "prepare")                                                                 \
  X(MILL_RANGE_UPLOAD, "upload")                                                                   \
  X(MILL_RANGE_GUESS, "guess")                                                                     \
  X(MILL_RANGE_ROUND, "round")                                                                     \
  X(MILL_RANGE_EMULATE, "emulate")                                                                 \
  X(MILL_RANGE_LIKELIHOOD, "likelihood")                                                           \
  X(MILL_RANGE_POLISH, "polish")                                                                   \
  X(MILL_RANGE_ERRORS, "errors")                                                                   \
  X(MILL_RANGE_DOWNLOAD, "download")                                                               \
  X(MILL_RANGE_WRITE, "write")
#define MILL_RANGE_ENUM(symbol, name) symbol,
enum mill_range { MILL_RANGE_LIST(MILL_RANGE_ENUM) MILL_N_RANGE };
#undef MILL_RANGE_ENUM

/** 1: a profiler listens.  mill_nvtx_start sets it; the inline functions below test it. */
extern int mill_nvtx_listens;

/** Connect to a profiler, before other threads start.  Without this call there are no ranges. */
void mill_nvtx_start(void);

/** Name the calling thread on the timeline. */
void mill_nvtx_name_thread(const char *name);

/* for the inline functions */
void mill_nvtx_push(int range);
void mill_nvtx_pop(void);

/** Begin a range (enum mill_range). */
static inline void mill_range_begin(int range)
{
  if (mill_nvtx_listens)
    mill_nvtx_push(range);
}

/** End the range that this thread began last. */
static inline void mill_range_end(void)
{
  if (mill_nvtx_listens)
    mill_nvtx_pop();
}

MILL_EXTERN_C_END
