/* SPDX-License-Identifier: BSD-3-Clause */
/** Files of `starmill particles`: potentials, samples and the result. */
#pragma once

#include "io/files/lock_file.h"
#include "src/particles/particle_config.h"

/** Read a potential on a grid.  Its datasets are float64 or float32: U [n1][n2][n3], or with times
 *  U [n_time][n1][n2][n3] and TIME [n_time]; X1, X2 and X3, the evenly spaced points of each axis.
 *  U has as many axes as setup.  An axis gets periodic splines if it is periodic in setup and its
 *  points span one period.
 *
 *  setup  in/out  field is set; free it with mill_particle_free_field
 *
 *  MILL_ERR_CONFIG: another kind of file, or a value that is not a number. */
int mill_particle_read_field(const char *path, mill_particle_setup *setup);
void mill_particle_free_field(mill_particle_field *field);

/** Read samples X [setup->n_particle][setup->n_dim]; free *sample with mill_free.  MILL_ERR_CONFIG,
 *  also if a sample lies beyond the ends of an axis. */
int mill_particle_read_samples(const char *path, const mill_particle_setup *setup, double **sample);

enum mill_particle_status {
  MILL_PARTICLES_WAIT = 0,
  MILL_PARTICLES_DONE,
  MILL_PARTICLES_BAD_STEP /**< the step is too long, see mill_particle_result.bad_step */
};

/** The result file. */
typedef struct mill_particle_file mill_particle_file;

/** Take the lock of path, and create the file or continue one of the same identity.
 *
 *  identity            in   text of all settings and inputs that determine the results
 *  status [n_problem]  out  enum mill_particle_status; done problems are not repeated
 *
 *  MILL_ERR_OUTPUT, also if the file has another identity and overwrite is 0. */
int mill_particle_file_open(const char *path, int overwrite, const char *identity,
                            const mill_particle_config *config, unsigned char *status,
                            mill_particle_file **out);

/** Write the result of a problem, then its status.  MILL_ERR_OUTPUT. */
int mill_particle_file_write(mill_particle_file *file, int64_t i_problem,
                             const mill_particle_result *result);

/** Flush the problems written so far to disk.  MILL_ERR_OUTPUT. */
int mill_particle_file_flush(mill_particle_file *file);

/** Close the file and release the lock.  err: an earlier failure, after which nothing is flushed.
 *  Returns the first failure.  NULL is allowed. */
int mill_particle_file_close(mill_particle_file *file, int err);
