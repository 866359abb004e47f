/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill library train --emulator radial | splines | linear`: functions of the labels instead
 *  of a network. */
#ifndef MILL_TRAIN_FUNCTIONS_H
#define MILL_TRAIN_FUNCTIONS_H

#include "jobs/library/train_options.h"
#include "src/libraries/grid_emulators.h"

/** Print the report of mill_grid_emulators_make, and flush.
 *
 *  way  enum mill_grid_way */
void mill_print_grid_facts(int way, const mill_library *lib, const mill_grid_facts *facts);

/** By one rank.  Prints to stdout.  Fails as reading, making and writing do. */
int mill_train_functions(mill_train_options *options);

#endif
