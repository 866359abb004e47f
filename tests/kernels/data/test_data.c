/* SPDX-License-Identifier: BSD-3-Clause */
/* What a library in memory knows about its labels, and why a star was not fitted. */
#include "tests/mill_test.h"

#include <string.h>

#include "kernels/data/library.h"
#include "kernels/data/result.h"

/* rvspecfit warns within 10 K and 0.01 dex of the ends of its range; other labels have no edges. */
MILL_TEST(edges_of_labels_are_those_of_rvspecfit)
{
  static const struct {
    const char *name;
    double min, max;
  } edge[] = {{"teff", 2310.0, 14990.0},
              {"logg", -0.49, 6.49},
              {"feh", -3.99, 0.99},
              {"alpha", 0.0, 0.0},
              {"", 0.0, 0.0}};
  for (size_t i = 0; i < sizeof edge / sizeof edge[0]; i++) {
    mill_label label = {.edge_min = 3.0, .edge_max = 4.0};
    snprintf(label.name, sizeof label.name, "%s", edge[i].name);
    mill_label_set_edges(&label);
    assert_close(label.edge_min, edge[i].min, 1e-15);
    assert_close(label.edge_max, edge[i].max, 1e-15);
  }
}

static mill_library lib = {.n_label = 3, .n_arm = 2};

MILL_TEST(only_reasons_not_to_fit_are_warnings)
{
  for (int status = 0; status < MILL_N_STATUS; status++) {
    mill_fit_result result;
    mill_fit_result_init(&result, &lib, 0, status);
    assert_int_equal(result.warn, status > MILL_STATUS_FITTED ? MILL_WARN_BAD_SPECTRUM : 0);
  }
}

MILL_TEST_MAIN(NULL, NULL)
