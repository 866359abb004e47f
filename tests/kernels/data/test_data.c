/* SPDX-License-Identifier: BSD-3-Clause */
/* What a library in memory knows about its labels, and the row of a star that was not fitted. */
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

MILL_TEST(values_that_do_not_exist_are_missing)
{
  mill_fit_result result;
  memset(&result, 0x5a, sizeof result);
  mill_fit_result_init(&result, &lib, 17, MILL_STATUS_UNREADABLE);
  assert_int_equal(result.row, 17);
  assert_int_equal(result.status, MILL_STATUS_UNREADABLE);
  assert_int_equal(result.n_label, 3);
  const mill_fit_result *r = &result;
  const double missing[] = {r->vrad_km_s,
                            r->vrad_err_km_s,
                            r->vrad_skew,
                            r->vrad_kurt,
                            r->vsini_km_s,
                            r->vsini_err_km_s,
                            r->vrad_guess_km_s,
                            r->m2ll,
                            r->hull_dist,
                            r->chisq_tot,
                            r->chisq_c_tot,
                            r->label[0],
                            r->label[2],
                            r->label_err[2],
                            r->chisq[1],
                            r->chisq_c[1],
                            r->covar[0],
                            r->covar[14],
                            r->rchisq_tot,
                            r->rchisq[1],
                            r->err_scale,
                            r->stiff[1],
                            r->vrad_arm_km_s[1],
                            r->vrad_err_formal_km_s,
                            r->vsini_err_formal_km_s,
                            r->label_err_formal[2],
                            r->vrad_arm_err_km_s[1]};
  for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++)
    assert_true(isnan(missing[i]));
  assert_close(result.sn[0], -1e9, 0);
  assert_close(result.sn[1], -1e9, 0);
  assert_int_equal(result.n_pix_tot, 0);
  assert_int_equal(result.n_pix[1], 0);
  assert_int_equal(result.n_eval, 0);
  /* what the library lacks stays zero, so that equal rows are equal bytes */
  assert_close(result.label[3], 0, 0);
  assert_close(result.covar[15], 0, 0);
  assert_close(result.sn[2], 0, 0);
}

MILL_TEST(only_reasons_not_to_fit_are_warnings)
{
  for (int status = 0; status < MILL_N_STATUS; status++) {
    mill_fit_result result;
    mill_fit_result_init(&result, &lib, 0, status);
    assert_int_equal(result.warn, status > MILL_STATUS_FITTED ? MILL_WARN_BAD_SPECTRUM : 0);
  }
}

MILL_TEST_MAIN(NULL, NULL)
