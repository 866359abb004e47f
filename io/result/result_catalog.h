/* SPDX-License-Identifier: BSD-3-Clause */
/** The stars of a result: /catalog and /fits/TARGETID. */
#ifndef MILL_RESULT_CATALOG_H
#define MILL_RESULT_CATALOG_H

#include <hdf5.h>

#include "io/result/result_file.h"
#include "src/ranks/mpi_context.h"

/** Write this rank's share, in blocks of bounded size.  Collective.
 *  first_exposure [n_file]: number of the first exposure of each file; watch: of the watchdog
 *  (src/system/watchdog.h), renewed at every block.
 *  MILL_ERR_STOPPED when the job is to stop or a file has changed; MILL_ERR_OUTPUT, MILL_ERR_MPI,
 *  MILL_ERR_MEMORY, or what info->load gives. */
int mill_result_catalog_write(hid_t file, const char *path, const mill_run_info *info,
                              const mill_mpi *mpi, const int64_t *first_exposure,
                              int64_t n_exposure, int watch);

#endif
