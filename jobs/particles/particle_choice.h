/* SPDX-License-Identifier: BSD-3-Clause */
/** Choice of the device of `particles` and `bench`. */
#ifndef MILL_PARTICLE_CHOICE_H
#define MILL_PARTICLE_CHOICE_H

#include "kernels/particles/particles.h"
#include "src/ranks/mpi_context.h"

/** The engine of the CPU or of this rank's GPU, which every rank gets (src/run/backend_choice.h);
 *  auto: the GPU's where every rank gets one, else the CPU's, and why is logged.
 *
 *  backend  enum mill_backend_word (src/run/backend_choice.h)
 *  is_gpu   out
 *  Collective; the same code on every rank: MILL_ERR_CONFIG, MILL_ERR_BACKEND, MILL_ERR_MEMORY or
 *  MILL_ERR_MPI. */
int mill_particle_find_ops(const mill_mpi *mpi, int backend, const mill_particle_ops **ops,
                           int *is_gpu);

#endif
