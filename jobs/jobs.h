/* SPDX-License-Identifier: BSD-3-Clause */
/** The jobs started in C.  argv[0] is the job's name; a job returns the program's exit status. */
#pragma once

#include <stdio.h>

#include "jobs/options/option_table.h"

int mill_job_fit(int argc, char **argv);
int mill_job_sample(int argc, char **argv);
int mill_job_library(int argc, char **argv); /**< `train`; Python has the other sub-commands */
int mill_job_particles(int argc, char **argv);
int mill_job_doctor(int argc, char **argv);
int mill_job_bench(int argc, char **argv);

extern const mill_option_help mill_fit_help, mill_sample_help, mill_library_train_help,
    mill_particles_help, mill_doctor_help, mill_bench_help;

/** Print versions of program and libraries, without MPI_Init.  MILL_ERR_MPI, MILL_ERR_OUTPUT. */
int mill_version_print(FILE *out);
