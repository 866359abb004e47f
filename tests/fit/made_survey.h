/* SPDX-License-Identifier: BSD-3-Clause */
/** Library and settings of a program whose stars all come from one library.  The includer defines
 *  N_LABEL and N_ARM, the numbers of labels and arms. */
#pragma once

#include "tests/fit/made_star.h"

enum { N_PAR = 2 + N_LABEL };

static mill_library lib;
static mill_fit_settings set;

static MILL_FIXTURE(set_up)
{
  memset(&lib, 0, sizeof lib);
  assert_ok(test_library_make(N_LABEL, N_ARM, 5, &lib));
  made_settings(&lib, &set);
  return 0;
}

static MILL_FIXTURE(tear_down)
{
  mill_library_clear(&lib);
  return 0;
}
