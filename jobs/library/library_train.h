/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill library train`: a library from a grid file. */
#ifndef MILL_LIBRARY_TRAIN_H
#define MILL_LIBRARY_TRAIN_H

#include "src/ranks/mpi_context.h"

/** 1: run mill_library_train before the Python script, as networks are to be trained or the command
 *  line is wrong; 0: the script does it all.  argv[0] is the sub-command. */
int mill_library_trains(int argc, char **argv);

/** Train networks and hand them over (mill_trained_write), for mill_mpi_job.  Collective, with
 *  equal arguments; argv[0] is the sub-command. */
int mill_library_train(const mill_mpi *mpi, int argc, char **argv);

#endif
