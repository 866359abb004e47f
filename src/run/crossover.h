/* SPDX-License-Identifier: BSD-3-Clause */
/** Size from which a GPU is faster than this machine's CPU, as measured by `starmill bench
 *  crossover` and used by `--backend auto`.
 *
 *  Kept in a small text file of the user, one line for each kind of work, GPU and CPU:
 *  $STARMILL_CROSSOVER, else starmill/crossover in $XDG_CACHE_HOME or ~/.cache.  Nothing is
 *  built in: where nothing was measured, auto takes the CPU.
 */
#ifndef MILL_CROSSOVER_H
#define MILL_CROSSOVER_H

#include "kernels/base/common.h"

enum { MILL_CROSSOVER_PATH = 1024 };

enum mill_crossover_kind {
  MILL_CROSSOVER_FIT = 0, /**< by stars a rank */
  MILL_CROSSOVER_TRAIN,   /**< by millions of operations that a rank has in a step of a training */
  MILL_N_CROSSOVER_KIND
};

/** A measurement. */
typedef struct mill_crossover {
  enum mill_crossover_kind kind;
  int64_t from;      /**< size from which on the GPU is faster; 0: never */
  int n_thread;      /**< of the CPU */
  char date[32];     /**< UTC, ISO 8601 */
  char revision[64]; /**< of the program */
  char gpu[64];      /**< name of the CUDA backend, "cuda NVIDIA H200 sm_90" */
  char cpu[128];     /**< model of the processor */
} mill_crossover;

/** Seconds that work of a size took with each; negative: not measured. */
typedef struct mill_crossover_point {
  int64_t size;
  double cpu_s, gpu_s;
} mill_crossover_point;

/** The smallest size from which on the GPU was faster in all that were measured with both
 *  (ascending); 0 where it was not even in the largest. */
int64_t mill_crossover_of(int n, const mill_crossover_point *point);

/** 1 where auto takes the GPU for work of a size; measured NULL: nothing was. */
int mill_crossover_wants_gpu(const mill_crossover *measured, int64_t size);

/** Unit of a kind's sizes, for messages: "rows a rank". */
const char *mill_crossover_unit(enum mill_crossover_kind kind);

/** How it is measured, for messages. */
#define MILL_CROSSOVER_COMMAND "starmill bench crossover --keep"

/** Where the file is, if there is one.  MILL_ERR_CONFIG without any of the variables. */
int mill_crossover_path(char path[MILL_CROSSOVER_PATH]);

/** The line for this kind, GPU, CPU and number of threads.  *found 0: there is none, or no file.
 *  MILL_ERR_CONFIG names the file and line that cannot be read. */
int mill_crossover_find(const char *path, enum mill_crossover_kind kind, const char *gpu,
                        const char *cpu, int n_thread, mill_crossover *out, int *found);

/** Put a line into the file in place of an older one for the same; makes the folder.  The file
 *  is replaced as a whole.  MILL_ERR_OUTPUT names it. */
int mill_crossover_keep(const char *path, const mill_crossover *line);

#endif
