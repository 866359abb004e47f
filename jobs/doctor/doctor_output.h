/* SPDX-License-Identifier: BSD-3-Clause */
/** Check of the output folder. */
#ifndef MILL_DOCTOR_OUTPUT_H
#define MILL_DOCTOR_OUTPUT_H

#include "jobs/doctor/doctor_report.h"
#include "src/ranks/mpi_context.h"

/** Use the folder as a run does: make, lock and rename a file; write one file from all ranks, and
 *  read it back on other ranks.  All files lie in a temporary subfolder, which is removed.
 *
 *  Collective; rank 0 reports.  If a check takes longer than limit_s, the program ends with exit
 *  status 4 and one line that names the check.  MILL_ERR_MPI. */
int mill_doctor_output(const mill_mpi *mpi, const char *folder, unsigned limit_s,
                       mill_doctor_report *report);

#endif
