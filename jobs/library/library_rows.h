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

/** Columns of files with one spectrum, and their wavelengths; type has a member
 *  mill_labelled_options in.  shown: what --columns takes. */
#define MILL_LABELLED_FILE_ROWS(type, shown)                                                       \
  {"name-column", MILL_OPTION_PATH, MILL_AT(type, in.request.name_column), .argument = "NAME",     \
   .help = "column of the table with the files' names, with or without .fits (default FILE)"},     \
      {"columns",                                                                                  \
       MILL_OPTION_OTHER,                                                                          \
       MILL_AT(type, in),                                                                          \
       .take = mill_take_columns,                                                                  \
       .argument = shown,                                                                          \
       .help = "columns of files with one spectrum in a table (default: an image)"},               \
  {                                                                                                \
    "wave-file", MILL_OPTION_TEXT, MILL_AT(type, in.request.wave_file),                            \
        .argument = "FILE", .help = "image with the wavelengths of all spectra, Angstrom"          \
  }
#define MILL_LABELLED_WAVE_ROWS(type)                                                              \
  {"wave",                                                                                         \
   MILL_OPTION_OTHER,                                                                              \
   MILL_AT(type, in),                                                                              \
   .take = mill_take_wave,                                                                         \
   .argument = "FIRST,STEP",                                                                       \
   .help = "wavelengths in Angstrom (default: from the header)"},                                  \
  {                                                                                                \
    "log-wave", MILL_OPTION_OTHER, MILL_AT(type, in),                                              \
        .take = mill_take_wave, .argument = "FIRST,STEP", .help = "the same, log10 of Angstrom"    \
  }

#endif
