/* SPDX-License-Identifier: BSD-3-Clause */
/** Can a run write in this folder? */
#ifndef MILL_DOCTOR_OUTPUT_H
#define MILL_DOCTOR_OUTPUT_H

#include "jobs/doctor/doctor_report.h"
#include "src/ranks/mpi_context.h"

/** Check the folder the way a run uses it: a file made, locked and renamed, and an HDF5 file
 *  written by all ranks together and read back by others.  All files are made in a temporary
 *  subfolder and removed.
 *
 *  Collective; rank 0 reports.  A check that takes longer than limit_s ends the program with exit
 *  status 4 and one line that names it.  MILL_ERR_MPI. */
int mill_doctor_output(const mill_mpi *mpi, const char *folder, unsigned limit_s,
                       mill_doctor_report *report);

#endif
