/* SPDX-License-Identifier: BSD-3-Clause */
/** Particles on a GPU: the engine of kernels/particles/particles.h. */
#ifndef MILL_PARTICLES_CUDA_H
#define MILL_PARTICLES_CUDA_H

#include "kernels/particles/particles.h"

MILL_EXTERN_C_BEGIN

/** The engine, once the GPU of this rank (mill_gpu_assign; without it the first one) has been
 *  opened; NULL with *err: MILL_ERR_CONFIG where there is none, MILL_ERR_BACKEND.
 *
 *  Its evolve copies all problems of a call to the device at once and all results back at once if
 *  they fit the GPU's memory, else in groups.  MILL_ERR_MEMORY, with advice, if a single problem
 *  does not fit.  The bits depend on the kind of GPU alone. */
const mill_particle_ops *mill_particle_ops_cuda(int *err);

MILL_EXTERN_C_END

#endif
