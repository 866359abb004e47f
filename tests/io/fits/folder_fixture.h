/* SPDX-License-Identifier: BSD-3-Clause */
/** A folder for each test, and the path of a file in it that the test may make. */
#ifndef MILL_FOLDER_FIXTURE_H
#define MILL_FOLDER_FIXTURE_H

#include "tests/io/fits/fits_maker.h"

static char folder[1024], path[1100];

static inline int make_folder(void **state)
{
  (void)state;
  maker_folder(folder, sizeof folder);
  snprintf(path, sizeof path, "%s/file.fits", folder);
  return 0;
}

static inline int remove_folder(void **state)
{
  (void)state;
  maker_remove_folder(folder);
  return 0;
}

#endif
