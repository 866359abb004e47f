/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill simulate`: a mock survey in DESI coadd layout with a truth table. */
#ifndef MILL_SIMULATE_H
#define MILL_SIMULATE_H

#include "jobs/options/option_table.h"

/** Run the job; argv[0] is "simulate".  Collective over MPI_COMM_WORLD: initialises
 *  and finalizes MPI.  Returns the exit status, the same on every rank. */
int mill_job_simulate(int argc, char **argv);

extern const mill_option_help mill_simulate_help;

#endif
