/* What a library in memory knows about its labels. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "kernels/data/library.h"
#include "tests/mill_test.h"

static mill_label edges_of(const char *name)
{
  mill_label label = {.edge_min = 3.0, .edge_max = 4.0};
  snprintf(label.name, sizeof label.name, "%s", name);
  mill_label_set_edges(&label);
  return label;
}

/* rvspecfit warns within 10 K and 0.01 dex of the ends of its range. */
static void test_edges_are_those_of_rvspecfit(void **state)
{
  (void)state;
  const mill_label teff = edges_of("teff"), logg = edges_of("logg"), feh = edges_of("feh");
  assert_close(teff.edge_min, 2310.0, 0);
  assert_close(teff.edge_max, 14990.0, 0);
  assert_close(logg.edge_min, -0.49, 1e-15);
  assert_close(logg.edge_max, 6.49, 1e-15);
  assert_close(feh.edge_min, -3.99, 1e-15);
  assert_close(feh.edge_max, 0.99, 1e-15);
}

static void test_other_labels_have_no_edges(void **state)
{
  (void)state;
  const mill_label alpha = edges_of("alpha"), none = edges_of("");
  assert_close(alpha.edge_min, 0.0, 0);
  assert_close(alpha.edge_max, 0.0, 0);
  assert_close(none.edge_max, 0.0, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_edges_are_those_of_rvspecfit),
      cmocka_unit_test(test_other_labels_have_no_edges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
