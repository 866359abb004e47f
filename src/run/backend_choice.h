/* SPDX-License-Identifier: BSD-3-Clause */
/** Choice of a run's backend, the same on all ranks, and of each rank's GPU. */
#pragma once

#include "src/run/crossover.h"
#include "src/ranks/mpi_context.h"

/** Values of --backend in jobs without cuda+cpu, in the order of mill_backend_words. */
enum mill_backend_word { MILL_WORD_AUTO = 0, MILL_WORD_CPU, MILL_WORD_CUDA };
extern const char *const mill_backend_words[]; /**< ends with NULL */

/** Backend: ranks that have a GPU fit on the GPU, the other ranks on the CPU. */
#define MILL_BACKEND_MIXED "cuda+cpu"
#define MILL_BACKEND_AND   " + " /**< separates the names of both backends in a result */

/** Choose a GPU, or a share of a GPU, for every rank's CUDA backend (kernels/cuda/device_choice.h),
 *  and check that it works.  Logs once if ranks share GPUs.
 *
 *  may_be_mixed  1: the error message also proposes cuda+cpu
 *
 *  Collective; returns the same code on every rank, with the message of a rank that gets no GPU:
 *  MILL_ERR_CONFIG, MILL_ERR_BACKEND (also for GPUs of several kinds), MILL_ERR_MEMORY or _MPI. */
int mill_backend_place(const mill_mpi *mpi, int may_be_mixed);

/** Give each GPU to the first rank of its node that sees the GPU; the other ranks get none.  It is
 *  an error if no rank sees a GPU, or if a visible GPU does not work.
 *
 *  has_gpu  out  1: this rank has a GPU
 *
 *  Collective; fails as mill_backend_place does. */
int mill_backend_place_some(const mill_mpi *mpi, int *has_gpu);

/** Find the stored crossover for this process's first GPU and n_thread threads.
 *
 *  found  out  0: not found; why [size] gets the reason.  line->gpu gets the GPU's name; it is
 *              empty if there is no GPU or no file of crossovers
 *
 *  Creates no CUDA context.  MILL_ERR_CONFIG if the file cannot be read. */
int mill_backend_crossover(enum mill_crossover_kind kind, int n_thread, mill_crossover *line,
                           int *found, char *why, size_t size);

/** Resolve the backend `auto`, and log the reason.  A continued run keeps its backend.  A new run
 *  takes "cuda" if every rank gets a GPU and a rank's part of the work reaches the crossover
 *  (src/run/crossover.h) of this GPU, CPU and number of threads; else "cpu".
 *
 *  output   path of the result file or the training's checkpoint, for messages
 *  device   rank 0: device name in the result or checkpoint to continue; NULL: a new run
 *  size     work of all ranks: rows of a fit, or million operations of a training step
 *  choice   out  "cpu", "cuda" or "cuda+cpu"; with "cuda" each rank has its GPU, with "cpu" no rank
 *                holds GPU memory
 *  has_gpu  out  1: this rank has a GPU; NULL, for a plan: only return the choice to try
 *
 *  Collective; MILL_ERR_MPI.  If a run was begun on a GPU and there is none: MILL_ERR_OUTPUT,
 *  MILL_ERR_BACKEND or MILL_ERR_MEMORY. */
int mill_backend_settle(const mill_mpi *mpi, enum mill_crossover_kind kind, const char *output,
                        const char *device, int64_t size, int n_thread, const char **choice,
                        int *has_gpu);
