/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill particles`: clouds of particles that drift and diffuse, and their densities. */
#ifndef MILL_JOB_PARTICLES_H
#define MILL_JOB_PARTICLES_H

#include "jobs/options/option_table.h"

/** Exit status; argv[0] is the job's name. */
int mill_job_particles(int argc, char **argv);

extern const mill_option_help mill_particles_help;

#endif
