/** `starmill library train --emulator radial | splines | linear`: functions of the labels in the
 *  place of a network. */
#ifndef MILL_TRAIN_FUNCTIONS_H
#define MILL_TRAIN_FUNCTIONS_H

#include "jobs/options/option_table.h"
#include "src/libraries/grid_emulators.h"

/** Their options, for `starmill library --help`. */
extern const mill_option_table mill_train_functions_table;

/** Print what mill_grid_emulators_make said, and flush.
 *
 *  way  enum mill_grid_way */
void mill_print_grid_facts(int way, const mill_library *lib, const mill_grid_facts *facts);

/** Does the command line ask for one of them? */
int mill_train_functions_asked(int argc, char *const *argv);

/** argv[0] is the sub-command.  Called by one rank.  Prints to stdout.
 *  MILL_ERR_USAGE, or what reading, making and writing give. */
int mill_job_train_functions(int argc, char **argv);

#endif
