/* SPDX-License-Identifier: BSD-3-Clause */
/** The jobs `starmill show`, `select`, `plot` and `report`: Python scripts shipped with the
 *  program. */
#ifndef MILL_LOOK_H
#define MILL_LOOK_H

#include "jobs/options/option_table.h"

/** argv[0] is the job's name.  On success the script replaces the process, so these return only the
 *  exit status of a failure, or of --help. */
int mill_job_show(int argc, char **argv);
int mill_job_select(int argc, char **argv);
int mill_job_plot(int argc, char **argv);
int mill_job_report(int argc, char **argv);

extern const mill_option_help mill_show_help, mill_select_help, mill_plot_help, mill_report_help;

#endif
