/** `starmill library spectra`: a library from labelled spectra. */
#ifndef MILL_JOB_LIBRARY_SPECTRA_H
#define MILL_JOB_LIBRARY_SPECTRA_H

/** Its part of `starmill library --help`. */
extern const char mill_library_spectra_usage[];

/** argv[0] is the sub-command.  Called by one rank.  Prints to stdout.
 *  MILL_ERR_USAGE, or what reading, building and writing give. */
int mill_job_library_spectra(int argc, char **argv);

#endif
