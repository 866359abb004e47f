/* SPDX-License-Identifier: BSD-3-Clause */
/** Choice of a run's backend and of each rank's GPU: made once, the same on every rank. */
#ifndef MILL_BACKEND_CHOICE_H
#define MILL_BACKEND_CHOICE_H

#include "src/run/crossover.h"
#include "src/ranks/mpi_context.h"

/** Values of a --backend that is the same for all ranks, in the order of its words. */
enum mill_backend_word { MILL_WORD_AUTO = 0, MILL_WORD_CPU, MILL_WORD_CUDA };
extern const char *const mill_backend_words[]; /**< ends with NULL */

/** The backend on which ranks with a GPU and ranks without one fit together. */
#define MILL_BACKEND_MIXED "cuda+cpu"
#define MILL_BACKEND_AND   " + " /**< between the names of both in a result */

/** Give every rank a GPU of its node, or a share of one, and make sure that it can be used; the
 *  CUDA backend then takes it (kernels/cuda/device_choice.h).  When ranks share GPUs this is
 *  logged once.
 *
 *  may_be_mixed  1: the error mentions the backend of mixed ranks Collective; the same code on
 *  every rank: MILL_ERR_CONFIG, MILL_ERR_BACKEND (also where GPUs are of different kinds) or
 *  MILL_ERR_MEMORY with the message of a rank that has none, MILL_ERR_MPI. */
int mill_backend_place(const mill_mpi *mpi, int may_be_mixed);

/** Give every GPU to one rank of its node, the first that finds it; the other ranks have none.  One
 *  rank of the run at least has one.  A GPU that a rank finds and cannot use is a failure.
 *
 *  has_gpu  out: this rank has one
 *  Collective, and fails as mill_backend_place does. */
int mill_backend_place_some(const mill_mpi *mpi, int *has_gpu);

/** The crossover that was measured here for this process's first GPU and n_thread threads.
 *  kind: enum mill_crossover_kind.
 *
 *  found  out: 0: there is none, and why [size] says so; line->gpu is then the GPU that was
 *         looked for, empty where there is none or no file
 *  Makes no context.  MILL_ERR_CONFIG where the file cannot be read. */
int mill_backend_crossover(enum mill_crossover_kind kind, int n_thread, mill_crossover *line,
                           int *found, char *why, size_t size);

/** Meaning of `auto`: "cuda" where the crossover that was measured for this GPU, CPU and number of
 *  threads (src/run/crossover.h) is reached by a rank's part of the work and every rank gets a GPU,
 *  else "cpu".  A continued run keeps its backend, "cuda+cpu" too.  The reason is logged.
 *
 *  kind    enum mill_crossover_kind
 *  output  the result file, or a training's checkpoint, for messages
 *  device  of the result or checkpoint that is continued, on rank 0; NULL: a new one is begun
 *  size    of the work of all ranks: rows of the run, or as the kind says
 *  choice  out: "cpu", "cuda" or "cuda+cpu"; after "cuda" every rank has its GPU, after "cpu" none
 *          holds any memory of one
 *  has_gpu out: this rank has a GPU
 *  Collective; MILL_ERR_MPI, and where a result that was begun on a GPU finds none
 *  MILL_ERR_OUTPUT, MILL_ERR_BACKEND or MILL_ERR_MEMORY. */
int mill_backend_settle(const mill_mpi *mpi, enum mill_crossover_kind kind, const char *output,
                        const char *device, int64_t size, int n_thread, const char **choice,
                        int *has_gpu);

/** The backend that a fit would request, for a plan: uses no GPU. */
int mill_backend_wish(const mill_mpi *mpi, const char *output, const char *device, int64_t n_row,
                      int n_thread, const char **choice);

#endif
