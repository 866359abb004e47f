/* SPDX-License-Identifier: BSD-3-Clause */
/** Files of `starmill particles`: potentials and samples that it reads, the result that it writes.
 */
#ifndef MILL_PARTICLE_FILE_H
#define MILL_PARTICLE_FILE_H

#include "io/files/lock_file.h"
#include "src/particles/particle_config.h"

/** A potential: U [n_time][n1][n2]..., or without times, with the places of its points X1 [n1], X2,
 *  X3, evenly spaced, and TIME [n_time]; all float64 or float32.  An axis that is periodic in setup
 *  and whose points make one period has periodic splines.
 *
 *  setup  in, out  field, whose time and coef are for mill_particle_free_field
 *  MILL_ERR_CONFIG for a file that is no such thing or has a value that is no number. */
int mill_particle_read_field(const char *path, mill_particle_setup *setup);
void mill_particle_free_field(mill_particle_field *field);

/** Samples X [setup->n_particle][setup->n_dim]; for mill_free.  MILL_ERR_CONFIG, also for one
 * beyond the ends of its axis. */
int mill_particle_read_samples(const char *path, const mill_particle_setup *setup, double **sample);

enum mill_particle_status {
  MILL_PARTICLES_WAIT = 0,
  MILL_PARTICLES_DONE,
  MILL_PARTICLES_BAD_STEP /**< mill_particle_result.bad_step */
};

/** The result of one process. */
typedef struct mill_particle_file mill_particle_file;

/** Take the lock of path; make the file, or go on with one that the same identity has made.
 *
 *  identity  text of everything that determines its numbers
 *  status [n_problem]  out  enum mill_particle_status; problems that are done are not repeated
 *
 *  MILL_ERR_OUTPUT, also where another identity has made what is there, without overwrite. */
int mill_particle_file_open(const char *path, int overwrite, const char *identity,
                            const mill_particle_config *config, unsigned char *status,
                            mill_particle_file **out);

/** Write the result of a problem, and to the disk that it is done.  MILL_ERR_OUTPUT. */
int mill_particle_file_write(mill_particle_file *file, int64_t i_problem,
                             const mill_particle_result *result);

/** The problems written so far reach the disk.  MILL_ERR_OUTPUT. */
int mill_particle_file_flush(mill_particle_file *file);

/** Close and release the lock; err: the job has failed, so that what is open is given up.  The
 *  first failure.  NULL is allowed. */
int mill_particle_file_close(mill_particle_file *file, int err);

#endif
