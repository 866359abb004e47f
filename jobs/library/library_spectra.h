/* SPDX-License-Identifier: BSD-3-Clause */
/** Command lines of `starmill library spectra`, `library correct` and `library model-error`. */
#ifndef MILL_LIBRARY_SPECTRA_H
#define MILL_LIBRARY_SPECTRA_H

#include "jobs/scripts/script.h"

extern const mill_option_table mill_library_spectra_table, mill_library_error_table,
    mill_library_correct_table;
extern const mill_script mill_library_spectra, mill_library_error, mill_library_correct;

#endif
