/* SPDX-License-Identifier: BSD-3-Clause */
/** A folder with a configuration file, and reading and comparing of configurations, for their tests. */
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

static inline int read_text(mill_config *config, const char *text)
{
  save_file(path, text, strlen(text));
  return mill_config_read(config, path);
}

static inline void must_read(mill_config *config, const char *text)
{
  if (read_text(config, text) != MILL_OK)
    fail_msg("'%s': %s", text, mill_error_message());
}

static inline void assert_same(const mill_config *a, const mill_config *b)
{
  mill_config x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  assert_int_equal(x.select.n_target_id, y.select.n_target_id);
  if (x.select.n_target_id > 0)
    assert_memory_equal(x.select.target_id, y.select.target_id,
                        x.select.n_target_id * sizeof *x.select.target_id);
  x.select.target_id = y.select.target_id = NULL;
  assert_memory_equal(&x, &y, sizeof x); /* bit for bit, -0 and infinities too */
}

#endif
