/** What `starmill --version` prints. */
#ifndef MILL_JOBS_VERSION_H
#define MILL_JOBS_VERSION_H

#include <stdio.h>

/** Print version, revision, compiler and the libraries as they are at run
 *  time.  Works before MPI_Init and without it.  MILL_ERR_OUTPUT. */
int mill_version_print(FILE *out);

#endif
