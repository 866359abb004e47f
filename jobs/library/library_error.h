/* SPDX-License-Identifier: BSD-3-Clause */
/** starmill library model-error: measure the model error of a library's templates. */
#ifndef MILL_LIBRARY_ERROR_H
#define MILL_LIBRARY_ERROR_H

#include "jobs/options/option_table.h"
#include "src/libraries/model_error.h"

extern const mill_option_table mill_library_error_table;

/** Run it on one process; argv[0] is the sub-command. */
int mill_job_library_error(int argc, char **argv);

/** A line about a measured model error. */
void mill_library_print_error(const char *arm, const mill_model_error *error,
                              const mill_model_error_report *report);

#endif
