/** `starmill library train --emulator radial | splines | linear`: functions of the labels in the
 *  place of a network. */
#ifndef MILL_TRAIN_FUNCTIONS_H
#define MILL_TRAIN_FUNCTIONS_H

#include "jobs/options/option_table.h"

/** Their options, for `starmill library --help`. */
extern const mill_option_table mill_train_functions_table;

/** Does the command line ask for one of them? */
int mill_train_functions_asked(int argc, char *const *argv);

/** argv[0] is the sub-command.  Called by one rank.  Prints to stdout.
 *  MILL_ERR_USAGE, or what reading, making and writing give. */
int mill_job_train_functions(int argc, char **argv);

#endif
