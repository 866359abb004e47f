/* SPDX-License-Identifier: BSD-3-Clause */
/** Files of `starmill particles`: potentials, samples and the result. */
#pragma once

#include "io/files/lock_file.h"
#include "src/particles/particle_config.h"

/** Read a potential on a grid into setup->field; free it with mill_particle_free_field.
 *
 *  X1 [n1], X2 [n2], X3 [n3]  evenly spaced points of the setup->n_dim axes
 *  U [n1][n2][n3]             potential; U [n_time][n1][n2][n3] if the file has TIME [n_time]
 *
 *  An axis gets periodic splines if it is periodic in setup and its points span one period.
 *  MILL_ERR_CONFIG: another kind of file, or a value that is not a number. */
int mill_particle_read_field(const char *path, mill_particle_setup *setup);
void mill_particle_free_field(mill_particle_field *field);

/** Read samples X [setup->n_particle][setup->n_dim]; free *sample with mill_free.
 *  MILL_ERR_CONFIG: another kind of file, or a sample beyond the ends of an axis. */
int mill_particle_read_samples(const char *path, const mill_particle_setup *setup, double **sample);

enum mill_particle_status {
  MILL_PARTICLES_WAIT = 0,
  MILL_PARTICLES_DONE,
  MILL_PARTICLES_BAD_STEP /**< the time step is too long (mill_particle_result.bad_step) */
};

/** The result file. */
typedef struct mill_particle_file mill_particle_file;

/** Take the lock of path, and create the file or continue one of the same identity.  overwrite
 *  1: replace any other result of `starmill particles`, and a finished one of this identity.
 *
 *  identity            in   text of all settings and inputs that determine the results
 *  status [n_problem]  out  enum mill_particle_status; done problems are not repeated
 *
 *  MILL_ERR_OUTPUT: the file cannot be written, or has another identity and overwrite is 0. */
int mill_particle_file_open(const char *path, int overwrite, const char *identity,
                            const mill_particle_config *config, unsigned char *status,
                            mill_particle_file **out);

/** Write the result of a problem, without its status.  MILL_ERR_OUTPUT. */
int mill_particle_file_write(mill_particle_file *file, int64_t i_problem,
                             const mill_particle_result *result);

/** Write status [n_problem] once the results written so far are on the disk, where they stay after
 *  a power failure.  MILL_ERR_OUTPUT. */
int mill_particle_file_mark(mill_particle_file *file, const unsigned char *status);

/** Close the file and release its lock; NULL is allowed.
 *  err: an earlier failure, which is returned; then nothing is flushed. */
int mill_particle_file_close(mill_particle_file *file, int err);
