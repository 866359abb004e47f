/* The line list (src/line_model/line_list.inc): form, ranges, and the lines that a survey knows by
 * name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "src/line_model/line_list.h"
#include "src/line_model/line_model.h"
#include "tests/mill_test.h"

/* Levels and log gf of the NIST Atomic Spectra Database (Kramida et al., physics.nist.gov/asd).
 * The vacuum wavelength is the inverse of the difference of the levels, so that the list's
 * conversion from air is tested against something that has never been in air.  Lithium: isotope 7
 * (Sansonetti et al. 1995, Phys. Rev. A 52, 2682). */
static const struct {
  const char *name;
  int species;
  double low_cm, high_cm; /* level energies, cm-1 */
  double log_gf;
} known[] = {
    {"Ca II K 3933", 2001, 0.0, 25414.40, 0.135},
    {"Ca II H 3968", 2001, 0.0, 25191.51, -0.18},
    {"Ca II 8498", 2001, 13650.19, 25414.40, -1.416},
    {"Ca II 8542", 2001, 13710.88, 25414.40, -0.463},
    {"Ca II 8662", 2001, 13650.19, 25191.51, -0.723},
    {"Mg b 5167", 1200, 21850.405, 41197.403, -0.870},
    {"Mg b 5173", 1200, 21870.464, 41197.403, -0.393},
    {"Mg b 5184", 1200, 21911.178, 41197.403, -0.167},
    {"Mg I 8807", 1200, 35051.264, 46403.065, -0.134},
    {"Na D 5890", 1100, 0.0, 16973.366, 0.108},
    {"Na D 5896", 1100, 0.0, 16956.170, -0.194},
    {"Ca I 4227", 2000, 0.0, 23652.304, 0.244},
    {"Sr II 4078", 3801, 0.0, 24516.65, 0.15},
    {"Sr II 4215", 3801, 0.0, 23715.19, -0.17},
    {"Ba II 4554", 5601, 0.0, 21952.404, 0.14},
    {"Ba II 4934", 5601, 0.0, 20261.561, -0.16},
    {"Ba II 6142", 5601, 5674.807, 21952.404, -0.032},
    {"K I 7665", 1900, 0.0, 13042.896, 0.149},
    {"K I 7699", 1900, 0.0, 12985.186, -0.154},
    {"Al I 3944", 1300, 0.0, 25347.756, -0.635},
    {"Al I 3961", 1300, 112.061, 25347.756, -0.333},
    {"Li I 6708", 300, 0.0, 14903.983, 0.00},
    {"Li I 6708", 300, 0.0, 14903.648, -0.30},
    {"O I 7772", 800, 73768.200, 86631.454, 0.369},
    {"O I 7774", 800, 73768.200, 86627.778, 0.223},
    {"O I 7775", 800, 73768.200, 86625.757, 0.002},
    {"Fe I 3720", 2600, 0.0, 26874.550, -0.432},
    {"Fe I 4046", 2600, 11976.239, 36686.174, 0.280},
    {"Fe I 5270", 2600, 6928.268, 25899.989, -1.321},
    {"Cr I 5204", 2400, 7593.148, 26801.901, -0.19},
    {"Cr I 5206", 2400, 7593.148, 26796.269, 0.02},
    {"Cr I 5208", 2400, 7593.148, 26787.464, 0.17},
    {"Mn I 4031", 2500, 0.0, 24802.25, -0.47},
    {"Si I 3906", 1400, 15394.370, 40991.884, -1.04},
    {"Ti II 3759", 2201, 4897.65, 31490.82, 0.28},
};

static const mill_line *find(int species, double wave_aa, double e_low_ev, double tol_aa)
{
  for (int i = 0; i < mill_line_list_n; i++) {
    const mill_line *line = &mill_line_list[i];
    if (line->species == species && fabs((double)line->wave_aa - wave_aa) <= tol_aa &&
        fabs((double)line->e_low_ev - e_low_ev) <= 0.01)
      return line;
  }
  return NULL;
}

/* 0.02 A, half a pixel of the model, is far more than the errors of these laboratory wavelengths;
 * a list left in air would be off by 1 A and more. */
static void test_lines_known_by_name(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    const double wave_aa = 1e8 / (known[i].high_cm - known[i].low_cm);
    const double e_low_ev = known[i].low_cm / 8065.544;
    const mill_line *line = find(known[i].species, wave_aa, e_low_ev, 0.02);
    if (line == NULL)
      fail_msg("%s is not in the list at %.3f A, %.3f eV", known[i].name, wave_aa, e_low_ev);
    /* 0.1 dex: what NIST's and the list's own sources (other laboratories) differ by here. */
    if (!(fabs((double)line->log_gf - known[i].log_gf) < 0.1))
      fail_msg("%s: log gf %g, published %g", known[i].name, (double)line->log_gf, known[i].log_gf);
  }
}

/* Barklem et al. 2000, A&AS 142, 467, and their predecessors in MNRAS: the wings of these lines
 * are what surface gravity is read from. */
static void test_broadening_of_strong_lines(void **state)
{
  (void)state;
  static const struct {
    int species;
    double wave_aa, e_low_ev, log_gamma6;
  } strong[] = {
      {2001, 3934.777, 0.000, -7.76},  {2001, 8544.438, 1.700, -7.68},
      {1200, 5185.048, 2.717, -7.27},  {1100, 5891.583, 0.000, -7.53},
      {2000, 4227.918, 0.000, -7.562}, {2600, 5271.004, 0.859, -7.76},
  };
  for (size_t i = 0; i < sizeof strong / sizeof strong[0]; i++) {
    const mill_line *line = find(strong[i].species, strong[i].wave_aa, strong[i].e_low_ev, 0.02);
    assert_non_null(line);
    assert_close(line->log_gamma6, strong[i].log_gamma6, 0.01);
  }
}

static void test_rows(void **state)
{
  (void)state;
  for (int i = 0; i < mill_line_list_n; i++) {
    const mill_line *line = &mill_line_list[i];
    const double wave_aa = (double)line->wave_aa;
    const int z = line->species / 100, charge = line->species % 100;
    const int is_ch = line->species == MILL_LINE_CH;
    if (!(wave_aa > MILL_LINE_MIN_WAVE_AA - 5.0 && wave_aa < MILL_LINE_MAX_WAVE_AA + 5.0))
      fail_msg("row %d: %g A", i, wave_aa);
    if (i > 0 && !(line->wave_aa >= line[-1].wave_aa))
      fail_msg("row %d: %g A after %g A", i, wave_aa, (double)line[-1].wave_aa);
    if (!is_ch && (z < 3 || z > 63 || charge > 1))
      fail_msg("row %d: species %d", i, line->species);
    /* The lower level lies below the ionisation of its atom, 24.6 eV at the most, and it must be
     * populated in a star of 7500 K; CH falls apart at 3.47 eV. */
    if (!(line->e_low_ev >= 0.0f && line->e_low_ev < (is_ch ? 3.47f : 12.0f)))
      fail_msg("row %d: excitation %g eV", i, (double)line->e_low_ev);
    /* CH: an oscillator strength of 0.005 (0,0 band of A-X) shared among branches, times 2 J + 1 of
     * at most 80; some copies of its list have lines up to 1. */
    if (!(line->log_gf > -11.0f && line->log_gf < (is_ch ? -0.4f : 2.0f)))
      fail_msg("row %d: log gf %g", i, (double)line->log_gf);
    if (!(line->log_gamma6 == 0.0f || (line->log_gamma6 > -9.0f && line->log_gamma6 < -5.0f)))
      fail_msg("row %d: log gamma6 %g", i, (double)line->log_gamma6);
  }
}

/* A transition that stood in two of the sources must not count twice: same species and lower level
 * within the rounding of their energies (0.005 eV), closer than the wavelengths' (0.005 A).
 * CH is left out, whose rotational lines really fall that close. */
static void test_no_line_twice(void **state)
{
  (void)state;
  for (int i = 0; i < mill_line_list_n; i++) {
    const mill_line *a = &mill_line_list[i];
    for (int j = i + 1; j < mill_line_list_n; j++) {
      const mill_line *b = &mill_line_list[j];
      if ((double)b->wave_aa - (double)a->wave_aa > 0.005)
        break;
      const int same_level = fabs((double)a->e_low_ev - (double)b->e_low_ev) < 0.005;
      const int same_row = a->wave_aa == b->wave_aa && a->e_low_ev == b->e_low_ev;
      if (a->species == b->species && (a->species == MILL_LINE_CH ? same_row : same_level))
        fail_msg("rows %d and %d: species %d at %.3f and %.3f A", i, j, a->species,
                 (double)a->wave_aa, (double)b->wave_aa);
    }
  }
}

static int count(int species, double min_aa, double max_aa)
{
  int n = 0;
  for (int i = 0; i < mill_line_list_n; i++)
    n += (species == 0 || mill_line_list[i].species == species) &&
         (double)mill_line_list[i].wave_aa >= min_aa && (double)mill_line_list[i].wave_aa < max_aa;
  return n;
}

static void test_coverage(void **state)
{
  (void)state;
  const int n_ch = count(MILL_LINE_CH, 0.0, 1e5);
  assert_in_range(mill_line_list_n - n_ch, 4000, 12000);
  /* The G band, and no CH where there is none (its A-X and B-X systems end before 5000 A). */
  assert_true(count(MILL_LINE_CH, 4280.0, 4330.0) >= 50);
  assert_int_equal(count(MILL_LINE_CH, 5000.0, 1e5), 0);
  /* No hole where the sources' files meet (every 1000 A): the solar spectrum has more lines than
   * these per 100 A everywhere (Moore et al. 1966, NBS Monograph 61). */
  for (double wave_aa = MILL_LINE_MIN_WAVE_AA; wave_aa < 10100.0; wave_aa += 100.0)
    if (count(0, wave_aa, wave_aa + 100.0) < 5)
      fail_msg("%d lines from %g A to %g A", count(0, wave_aa, wave_aa + 100.0), wave_aa,
               wave_aa + 100.0);
  /* What iron and alpha abundances are read from. */
  assert_true(count(2600, 0.0, 1e5) > 2000);
  assert_true(count(2601, 0.0, 1e5) > 50);
  assert_true(count(2200, 0.0, 1e5) > 100);
  assert_true(count(2000, 0.0, 1e5) > 50);
  assert_true(count(1200, 0.0, 1e5) > 20);
  assert_true(count(1400, 0.0, 1e5) > 50);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lines_known_by_name),
      cmocka_unit_test(test_broadening_of_strong_lines),
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_no_line_twice),
      cmocka_unit_test(test_coverage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
