/** `starmill fit`: spectra in, one table of stellar parameters out. */
#ifndef MILL_FIT_H
#define MILL_FIT_H

/** Run the job; argv[0] is "fit".  Collective over MPI_COMM_WORLD: initialises
 *  and finalizes MPI.  Returns the exit status, the same on every rank. */
int mill_job_fit(int argc, char **argv);

#endif
