/* SPDX-License-Identifier: BSD-3-Clause */
/** The grid file of a build: begun, continued, described. */
#ifndef MILL_BUILD_OUTPUT_H
#define MILL_BUILD_OUTPUT_H

#include "jobs/library/build_job.h"

/** job->settings from the options.  Collective; the same code on every rank. */
int mill_build_settings(mill_build_job *job, const char *normalise);

/** job->target and job->output.  Collective; the same code on every rank. */
int mill_build_name_output(mill_build_job *job);

/** Make the file, or take from the one that is there which models are done; *complete 1: all are.
 *  Collective; the same code on every rank. */
int mill_build_output(mill_build_job *job, int *complete);

/** Mark the file as complete, let it replace the file of --overwrite, and print its contents.
 *  MILL_ERR_INPUT when no model is good: then nothing is replaced.  One rank. */
int mill_build_finish(const mill_build_job *job, int was_complete, double wall_s);

/** Print the contents of a grid file, for `library info`.  MILL_ERR_INPUT. */
int mill_build_print(const char *path);

#endif
