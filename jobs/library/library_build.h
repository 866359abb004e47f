/* SPDX-License-Identifier: BSD-3-Clause */
/** Command line of `starmill library build`: spectra with labels in, one grid file out, from which
 *  an emulator is made (docs/use/libraries.md, "A grid of models"). */
#ifndef MILL_LIBRARY_BUILD_H
#define MILL_LIBRARY_BUILD_H

#include "jobs/options/option_table.h"

extern const mill_option_table mill_library_build_table;

#endif
