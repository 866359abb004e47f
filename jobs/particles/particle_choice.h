/** What `particles` and `bench particles` compute on. */
#ifndef MILL_PARTICLE_CHOICE_H
#define MILL_PARTICLE_CHOICE_H

#include "kernels/particles/particles.h"
#include "src/ranks/mpi_context.h"

/** The words of --backend of particles, in the order of the words. */
enum mill_particle_backend { MILL_PARTICLES_CPU = 0, MILL_PARTICLES_CUDA, MILL_PARTICLES_AUTO };
extern const char *const mill_particle_backend_words[]; /**< ends with NULL */

/** The engine of the CPU or of this rank's GPU, which every rank gets (jobs/fit/backend_choice.h);
 *  auto: the GPU's where every rank gets one, else the CPU's, and why is logged.
 *
 *  is_gpu  out
 *  Collective; the same code on every rank: MILL_ERR_CONFIG, MILL_ERR_BACKEND, MILL_ERR_MEMORY or
 *  MILL_ERR_MPI. */
int mill_particle_find_ops(const mill_mpi *mpi, int backend, const mill_particle_ops **ops,
                           int *is_gpu);

#endif
