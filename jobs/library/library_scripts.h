/* SPDX-License-Identifier: BSD-3-Clause */
/** Command lines of `starmill library` but of train. */
#ifndef MILL_LIBRARY_SCRIPTS_H
#define MILL_LIBRARY_SCRIPTS_H

#include "jobs/scripts/script.h"

extern const mill_script mill_library_build, mill_library_import, mill_library_spectra,
    mill_library_correct, mill_library_error, mill_library_info;

#endif
