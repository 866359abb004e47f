/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill library train`: a library from a grid file. */
#ifndef MILL_LIBRARY_TRAIN_H
#define MILL_LIBRARY_TRAIN_H

/** 1: mill_job_library_train must run before the script, as networks are to be trained or the
 *  command line is wrong; 0: the script does it all.  argv[0] is the sub-command. */
int mill_library_trains(int argc, char **argv);

/** Train networks and hand them over (mill_trained_write).
 *  Collective over MPI_COMM_WORLD, with equal arguments; argv[0] is the sub-command.  Returns the
 *  exit status, the same on every rank, and has printed a failure. */
int mill_job_library_train(int argc, char **argv);

#endif
