/* SPDX-License-Identifier: BSD-3-Clause */
/* Set-ups of arms: those that come with the program, resolution between points, and what is
 * refused. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "src/config/arm_setup.h"

/* The arms of a text in a file; the file's name is that of the test. */
static int read_text(const char *text, mill_arm_setup *out)
{
  char path[] = "/tmp/mill-setup-XXXXXX";
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
  const int err = mill_arm_setup_read(path, out);
  unlink(path);
  return err;
}

MILL_TEST(points_and_numbers)
{
  mill_arm_setup setup;
  assert_ok(read_text("arms:\n"
                      "  - {name: b, min: 4000, max: 5000, ln_step: 1e-4, sigma: [[4200, 0.4], "
                      "[4400, 0.8], [4800, 0.6]]}\n"
                      "  - {name: r, min: 5000, max: 6000, ln_step: 1e-4, resolving_power: 3000, "
                      "at_instrument: true}\n"
                      "  - {name: z, min: 6000, max: 6001, ln_step: 1e-5}\n",
                      &setup));
  assert_int_equal(setup.n_arm, 3);
  const mill_setup_arm *b = &setup.arm[0], *r = &setup.arm[1], *z = &setup.arm[2];
  assert_close(mill_setup_arm_sigma(b, 4000), 0.4, 0);
  assert_close(mill_setup_arm_sigma(b, 4300), 0.6, 1e-15);
  assert_close(mill_setup_arm_sigma(b, 4500), 0.75, 1e-15);
  assert_close(mill_setup_arm_sigma(b, 4800), 0.6, 1e-15);
  assert_close(mill_setup_arm_sigma(b, 5000), 0.6, 0);
  assert_close(mill_setup_arm_sigma(r, 6000), 2 / 2.3548200450309493, 1e-15);
  assert_true(r->at_instrument && !b->at_instrument);
  assert_int_equal(z->kind, MILL_SETUP_NATIVE);
  /* the last pixel is at the end or beyond, by less than a pixel */
  for (int a = 0; a < 3; a++) {
    const mill_setup_arm *arm = &setup.arm[a];
    const double last = arm->min_aa * exp((mill_setup_arm_n_pix(arm) - 1) * arm->ln_step);
    assert_true(last >= arm->max_aa * (1 - 1e-9));
    assert_true(last < arm->max_aa * (1 + arm->ln_step));
  }
}

/* Those that come with the program: a sigma has at least 1.2 pixels (docs/use/libraries.md). */
MILL_TEST(shipped_setups)
{
  static const struct {
    const char *name;
    int n_arm;
  } shipped[] = {{"desi", 3},  {"sdss", 1},     {"lamost", 2},
                 {"weave", 2}, {"weave-hr", 3}, {"4most-lr", 3}};
  for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++) {
    char path[1024];
    mill_arm_setup setup;
    snprintf(path, sizeof path, "%s/config/templates/%s.yaml", MILL_SOURCE_DIR, shipped[i].name);
    assert_ok(mill_arm_setup_read(path, &setup));
    assert_int_equal(setup.n_arm, shipped[i].n_arm);
    for (int a = 0; a < setup.n_arm; a++) {
      const mill_setup_arm *arm = &setup.arm[a];
      assert_true(mill_setup_arm_sigma(arm, arm->max_aa) > 1.2 * arm->max_aa * arm->ln_step);
    }
  }
}

static void refused(const char *text, const char *word)
{
  mill_arm_setup setup;
  assert_fails(read_text(text, &setup), MILL_ERR_CONFIG, word);
}

#define ARM "arms:\n  - {name: b, min: 4000, max: 5000, ln_step: 1e-4, "

MILL_TEST(refusals)
{
  mill_arm_setup setup;
  refused("", "expected a key arms");
  refused("arms: []\n", "1 to 8 arms");
  refused("arm: []\n", ":1: 'arm': only the key arms");
  refused("arms: [\n", "not YAML");
  refused("arms: [[[[[[[[[[[[[[[[[[b]]]]]]]]]]]]]]]]]]\n", "nested");
  refused("arms: [b]\n", ":1: expected an arm");
  refused(ARM "sigmas: 1}\n", ":2: 'sigmas' is unknown");
  refused(ARM "sigma: 1, resolving_power: 2}\n", "one sigma or one resolving_power");
  refused(ARM "sigma: -1}\n", "sigma: expected a number above 0, got '-1'");
  refused(ARM "sigma: []}\n", "sigma: expected 1 to 64 points, got 0");
  refused(ARM "sigma: [[4000, 1], [4000, 2]]}\n", "must ascend");
  refused(ARM "sigma: [[4000, 1, 2]]}\n", "[wavelength, value]");
  refused(ARM "at_instrument: 3}\n", "true or false");
  refused(ARM "sigma: 1}\n  - {name: b, min: 1000, max: 2000, ln_step: 1e-4}\n",
          ":3: arm b appears twice");
  refused("arms: [{name: b, min: 5000, max: 4000, ln_step: 1e-4}]\n", "5000 to 4000 A: expected");
  refused("arms: [{name: b, min: 5000, max: 6000, ln_step: 1}]\n", "makes 0 pixels");
  refused("arms: [{name: b, min: 5000, max: 6000, ln_step: nan}]\n", "a number above 0");
  refused("arms: [{name: b, min: 5000, ln_step: 1e-4}]\n", "needs name, min, max");
  refused("arms: [{name: B-x, min: 5000, max: 6000, ln_step: 1e-4}]\n",
          "'B-x': expected small letters");
  assert_int_equal(mill_arm_setup_read("/nowhere/arms.yaml", &setup), MILL_ERR_CONFIG);
}

MILL_TEST_MAIN(NULL, NULL)
