/* SPDX-License-Identifier: BSD-3-Clause */
/** Crossover: the size of work from which a GPU is faster than the CPU.  Measured by `starmill
 *  bench crossover`, used by `--backend auto`.
 *
 *  Stored in a text file of the user, one line for each kind of work, GPU and CPU:
 *  $STARMILL_CROSSOVER, else starmill/crossover in $XDG_CACHE_HOME or ~/.cache.  Without a
 *  measurement auto takes the CPU.
 */
#ifndef MILL_CROSSOVER_H
#define MILL_CROSSOVER_H

#include "kernels/base/common.h"

enum { MILL_CROSSOVER_PATH = 1024 };

enum mill_crossover_kind {
  MILL_CROSSOVER_FIT = 0, /**< size: stars of a rank */
  MILL_CROSSOVER_TRAIN,   /**< size: million operations of a rank in a training step */
  MILL_N_CROSSOVER_KIND
};

/** A measurement. */
typedef struct mill_crossover {
  enum mill_crossover_kind kind;
  int64_t from;      /**< size from which the GPU is faster; 0: never */
  int n_thread;      /**< threads on the CPU */
  char date[32];     /**< UTC, ISO 8601 */
  char revision[64]; /**< of the program */
  char gpu[64];      /**< name of the CUDA backend, "cuda NVIDIA H200 sm_90" */
  char cpu[128];     /**< model of the processor */
} mill_crossover;

/** Seconds for work of a size on CPU and GPU; negative: not measured. */
typedef struct mill_crossover_point {
  int64_t size;
  double cpu_s, gpu_s;
} mill_crossover_point;

/** The smallest size from which the GPU was faster at all points [n] measured on both (sizes
 *  ascend); 0 if it was not faster at the largest. */
int64_t mill_crossover_of(int n, const mill_crossover_point *point);

/** Should auto take the GPU for work of a size?  measured: NULL if nothing was measured. */
int mill_crossover_wants_gpu(const mill_crossover *measured, int64_t size);

/** Unit of a kind's sizes, for messages: "rows a rank". */
const char *mill_crossover_unit(enum mill_crossover_kind kind);

/** The command that measures it, for messages. */
#define MILL_CROSSOVER_COMMAND "starmill bench crossover --keep"

/** Path of the file.  MILL_ERR_CONFIG if none of the environment variables is set. */
int mill_crossover_path(char path[MILL_CROSSOVER_PATH]);

/** Find the line of a kind, GPU, CPU and number of threads.  *found 0: no such line, or no file.
 *  MILL_ERR_CONFIG names the file and line that cannot be read. */
int mill_crossover_find(const char *path, enum mill_crossover_kind kind, const char *gpu,
                        const char *cpu, int n_thread, mill_crossover *out, int *found);

/** Store a line, in place of an older one of the same kind, GPU, CPU and threads; makes the folder.
 *  The file is replaced as a whole.  MILL_ERR_OUTPUT names it. */
int mill_crossover_keep(const char *path, const mill_crossover *line);

#endif
