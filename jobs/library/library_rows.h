/** Rows of options that several of the commands of `library` have. */
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

/** How `train` chooses templates and hulls; n_guess, hulls: members of type. */
#define MILL_TRAIN_GUESS_ROWS(type, n_guess, hulls)                                                \
  {"guess-templates", MILL_OPTION_COUNT, MILL_AT(type, n_guess),                                   \
   .min = 1,          .max = 10000,      .help = "templates of the initial guess (default 300)"},  \
  {                                                                                                \
    "hulls", MILL_OPTION_CHOICE, MILL_AT(type, hulls),                                             \
        .words = mill_train_hull_words,                                                            \
        .help = "within which fits stay: of every pair of labels, or one of all labels together, " \
                "by qhull"                                                                         \
  }

/** Where files with one spectrum keep it, and their wavelengths; type has a mill_labelled_options
 *  in.  shown: what --columns takes. */
#define MILL_LABELLED_FILE_ROWS(type, shown)                                                       \
  {"name-column", MILL_OPTION_PATH, MILL_AT(type, in.request.name_column), .argument = "NAME",     \
   .help = "its column with the files' names, with or without .fits (default FILE)"},              \
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
