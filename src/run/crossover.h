/* SPDX-License-Identifier: BSD-3-Clause */
/** Crossover: the size of work above which a GPU is faster than the CPU.  `starmill bench
 *  crossover` measures it, and `--backend auto` uses it.
 *
 *  A text file of the user stores one line per kind of work, GPU, CPU and number of threads.
 *  Its path is $STARMILL_CROSSOVER, else starmill/crossover in $XDG_CACHE_HOME or ~/.cache.
 *  Without a measurement auto takes the CPU. */
#pragma once

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
  int64_t from;      /**< least size at which the GPU is faster; 0: never */
  int n_thread;      /**< threads on the CPU */
  char date[32];     /**< UTC, ISO 8601 */
  char revision[64]; /**< git revision of the program */
  char gpu[64];      /**< name of the CUDA backend, "cuda NVIDIA H200 sm_90" */
  char cpu[128];     /**< model of the processor */
} mill_crossover;

/** Seconds for work of a size on CPU and GPU; negative: not measured. */
typedef struct mill_crossover_point {
  int64_t size;
  double cpu_s, gpu_s;
} mill_crossover_point;

/** Return the least size such that the GPU was faster there and at all larger sizes; 0: none.
 *  The sizes of points [n] ascend.  Points not measured on both CPU and GPU are skipped. */
int64_t mill_crossover_of(int n, const mill_crossover_point *point);

/** Should `--backend auto` take the GPU for work of this size?  measured NULL (unknown): no. */
int mill_crossover_wants_gpu(const mill_crossover *measured, int64_t size);

/** Return the unit of a kind's sizes, for messages: "rows a rank". */
const char *mill_crossover_unit(enum mill_crossover_kind kind);

/** The command that measures the crossover, for messages. */
#define MILL_CROSSOVER_COMMAND "starmill bench crossover --keep"

/** Set path to the file of crossovers.  MILL_ERR_CONFIG if no environment variable gives it. */
int mill_crossover_path(char path[MILL_CROSSOVER_PATH]);

/** Find the measurement of a kind of work, GPU, CPU and number of threads.  *found 0: no such
 *  line, or no file.  MILL_ERR_CONFIG names the file and line that cannot be read. */
int mill_crossover_find(const char *path, enum mill_crossover_kind kind, const char *gpu,
                        const char *cpu, int n_thread, mill_crossover *out, int *found);

/** Store a line in place of the line of the same kind, GPU, CPU and threads; make the folder.  The
 *  whole file is replaced at once.  MILL_ERR_OUTPUT names the file. */
int mill_crossover_keep(const char *path, const mill_crossover *line);
