/* SPDX-License-Identifier: BSD-3-Clause */
/** A folder with a configuration file, for tests of configurations. */
#ifndef MILL_CONFIG_FIXTURE_H
#define MILL_CONFIG_FIXTURE_H

#include "tests/test_folder.h"

#include "kernels/base/error.h"
#include "src/config/config.h"

static char path[300];

static inline int begin(void **state)
{
  snprintf(path, sizeof path, "%s", make_folder(state) == 0 ? in_folder("run.yaml") : "");
  return path[0] ? 0 : -1;
}

static inline void must_read(mill_config *config, const char *text)
{
  save_file(path, text, strlen(text));
  if (mill_config_read(config, path) != MILL_OK)
    fail_msg("'%s': %s", text, mill_error_message());
}

#endif
