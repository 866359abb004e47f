/* SPDX-License-Identifier: BSD-3-Clause */
/** Parts of doctor: its report on standard output, and the check of the output folder. */
#pragma once

#include "src/ranks/mpi_context.h"

/** Report of doctor; zero it before the first line. */
typedef struct mill_doctor_report {
  char topic[32];  /**< topic of the last line */
  int exit_status; /**< exit status of the first failure; 0: no failure */
  int n_failure, n_warning;
} mill_doctor_report;

/** Print a line.  key "ranks.count": the line "count" under the heading "ranks". */
void mill_doctor_say(mill_doctor_report *report, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** After a line print its problem and the remedy: a warning if exit_status is 0, else a failure. */
void mill_doctor_mark(mill_doctor_report *report, int exit_status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define mill_doctor_warn(report, ...) mill_doctor_mark(report, 0, __VA_ARGS__)
#define mill_doctor_fail              mill_doctor_mark

/** Use the folder as a run does: make, lock and rename a file; write one file from all ranks, and
 *  read it back on other ranks.  All files are in a temporary subfolder, removed at the end.
 *
 *  Collective; rank 0 reports.  If a check takes longer than limit_s, the program ends with exit
 *  status 4 and a line that names the check.  Returns failures of MPI and memory. */
int mill_doctor_output(const mill_mpi *mpi, const char *folder, unsigned limit_s,
                       mill_doctor_report *report);
