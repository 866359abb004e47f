/* SPDX-License-Identifier: BSD-3-Clause */
/** Option rows shared by commands of `library`. */
#ifndef MILL_LIBRARY_ROWS_H
#define MILL_LIBRARY_ROWS_H

#include "jobs/options/option_table.h"

/** --output and --overwrite of a command that writes a library. */
#define MILL_LIBRARY_OUTPUT_ROWS(type)                                                             \
  {"output", MILL_OPTION_TEXT, MILL_AT(type, output), .argument = "LIB.h5",                        \
   .help = "the library to write"},                                                                \
  {                                                                                                \
    "overwrite", MILL_OPTION_FLAG, MILL_AT(type, overwrite), .help = "replace LIB.h5 if it exists" \
  }

#endif
