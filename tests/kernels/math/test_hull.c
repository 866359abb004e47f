/* SPDX-License-Identifier: BSD-3-Clause */
/* Hull distance against Qhull's facets (tests/reference), and label mapping. */
#include "tests/mill_test.h"

#include "kernels/math/hull.h"
#include "reference/blocks.h" /* made in the build folder by tests/reference/make_blocks.py */

/* the casts drop const only: mill_hull owns its facets elsewhere */
static void reference_hulls(mill_hull *hull)
{
  hull[0] = (mill_hull){.n_label = 2,
                        .label = {0, 1},
                        .n_facet = REF_HULL_N_FACET_01,
                        .facet = (double *)ref_hull_facet_01};
  hull[1] = (mill_hull){.n_label = 2,
                        .label = {2, 3},
                        .n_facet = REF_HULL_N_FACET_23,
                        .facet = (double *)ref_hull_facet_23};
}

MILL_TEST(distance_is_the_largest_facet_of_all_hulls)
{
  mill_hull hull[2];
  reference_hulls(hull);
  for (int i = 0; i < REF_HULL_N_POINT; i++)
    /* three products of numbers below 10 */
    assert_close(mill_hull_distance(2, hull, ref_hull_point + 4 * i), ref_hull_distance[i], 1e-14);
}

MILL_TEST(no_hull_has_no_outside)
{
  const double far[4] = {1e9, -1e9, 1e9, 0};
  assert_close(mill_hull_distance(0, NULL, far), 0, 0);
}

MILL_TEST(nan_labels_have_a_nan_distance)
{
  mill_hull hull[2];
  reference_hulls(hull);
  for (int l = 0; l < 4; l++) {
    double x[4] = {0, 0, 0, 0};
    x[l] = NAN;
    /* a comparison that NaN falls through would call this inside */
    assert_true(isnan(mill_hull_distance(2, hull, x)));
  }
}

MILL_TEST(labels_map_there_and_back)
{
  const mill_label label[2] = {{.mapping = MILL_MAP_LINEAR, .mean = -1.2, .std = 0.7},
                               {.mapping = MILL_MAP_LOG10, .mean = 3.74, .std = 0.07}};
  const double value[2] = {-2.31, 5432.1};
  assert_close(mill_label_map(&label[0], value[0]), (value[0] + 1.2) / 0.7, 1e-15);
  assert_close(mill_label_map(&label[1], value[1]), (log10(value[1]) - 3.74) / 0.07, 1e-13);
  for (int i = 0; i < 2; i++) {
    const mill_label *l = &label[i];
    assert_close(mill_label_unmap(l, mill_label_map(l, value[i])), value[i], 1e-13 * value[1]);
    const double h = 1e-4 * fabs(value[i]);
    const double difference =
        (mill_label_map(l, value[i] + h) - mill_label_map(l, value[i] - h)) / (2 * h);
    /* third derivative of the logarithm: h^2 / 3 value^2 */
    assert_close(mill_label_map_slope(l, value[i]), difference, 1e-8 * fabs(difference));
  }
}

MILL_TEST_MAIN(NULL, NULL)
