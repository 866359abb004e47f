/* The line model: its pieces against published or independently computed values, and
 * the behaviour that stars are known for. */
#include "tests/mill_test.h"

#include <string.h>

#include "kernels/base/error.h"
#include "src/line_model/line_atmosphere.h"
#include "src/line_model/line_list.h"
#include "src/line_model/line_model.h"
#include "src/line_model/line_voigt.h"

static const double sun[4] = {5777.0, 4.44, 0.0, 0.0};

/** The full range, made once. */
static mill_line_model *model;
static int n_pix;

/** A star on the full range. */
typedef struct spectrum {
  double *flux, *cont;
} spectrum;

static spectrum star(double teff, double logg, double feh, double alpha)
{
  const double label[4] = {teff, logg, feh, alpha};
  spectrum s = {malloc((size_t)n_pix * sizeof(double)), malloc((size_t)n_pix * sizeof(double))};
  assert_non_null(s.flux);
  assert_non_null(s.cont);
  assert_int_equal(mill_line_model_flux(model, label, s.flux, s.cont), MILL_OK);
  return s;
}

static void spectrum_free(spectrum *s)
{
  free(s->flux);
  free(s->cont);
}

static int pixel_of(double wave_aa)
{
  return (int)lround((log(wave_aa) - mill_line_model_ln_wave0(model)) / MILL_LINE_LN_STEP);
}

/** Equivalent width between two wavelengths, A. */
static double width(const spectrum *s, double first_aa, double last_aa)
{
  double sum = 0.0;
  for (int i = pixel_of(first_aa); i <= pixel_of(last_aa); i++)
    sum += (1.0 - s->flux[i] / s->cont[i]) *
           exp(mill_line_model_ln_wave0(model) + i * MILL_LINE_LN_STEP) * MILL_LINE_LN_STEP;
  return sum;
}

/** Share of the continuum that lines take. */
static double blanketing(const spectrum *s, double first_aa, double last_aa)
{
  return width(s, first_aa, last_aa) / (last_aa - first_aa);
}

static double residual(const spectrum *s, double wave_aa)
{
  const int i = pixel_of(wave_aa);
  return s->flux[i] / s->cont[i];
}

static int setup(void **state)
{
  (void)state;
  const double ln0 = log(MILL_LINE_MIN_WAVE_AA);
  n_pix = (int)((log(MILL_LINE_MAX_WAVE_AA) - ln0) / MILL_LINE_LN_STEP);
  return mill_line_model_create(ln0, n_pix, &model);
}

static int teardown(void **state)
{
  (void)state;
  mill_line_model_destroy(model);
  return 0;
}

/* ---- Pieces ----------------------------------------------------------------- */

/* /usr/bin/python3: 2*h*c**2/l**5/expm1(h*c/(l*k*T)) with scipy.constants, in
 * erg/(s cm2 A sr); our constants have ten digits */
static void test_planck(void **state)
{
  (void)state;
  assert_close(mill_line_planck(5000.0, 5777.0), 2.635278e6, 1e0);
  assert_close(mill_line_planck(3400.0, 4000.0), 6.668645e4, 1e-1);
  assert_close(mill_line_planck(10100.0, 7500.0), 1.994531e6, 1e0);
}

/* Rational approximation and float32 against
 * [scipy.special.wofz(v + 1j*a).real for v in (0, .5, 1, 2, 3, 4, 6, 10)].
 * Tolerance: the promise of the header, 4e-6 / a below a = 0.03 and 1e-4 above. */
static void test_voigt(void **state)
{
  (void)state;
  static const double v[8] = {0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 10.0};
  static const struct {
    float a;
    double h[8];
  } row[] = {{0.001f,
              {9.9887262e-01, 7.7815172e-01, 3.6796501e-01, 1.8547236e-02, 2.0197242e-04,
               3.9362081e-05, 1.6375340e-05, 5.7287175e-06}},
             {0.01f,
              {9.8881546e-01, 7.7234502e-01, 3.6870242e-01, 2.0620065e-02, 9.0883071e-04,
               3.9260442e-04, 1.6375290e-04, 5.7287116e-05}},
             {0.03f,
              {9.6702871e-01, 7.5966319e-01, 3.7013712e-01, 2.5151795e-02, 2.4780166e-03,
               1.1775073e-03, 4.9124654e-04, 1.7185992e-04}},
             {0.1f,
              {8.9645698e-01, 7.1758774e-01, 3.7317015e-01, 4.0201398e-02, 7.9426810e-03,
               3.9217521e-03, 1.6370278e-03, 5.7281236e-04}},
             {0.3f,
              {7.3459933e-01, 6.1485154e-01, 3.6938634e-01, 7.6395952e-02, 2.3094514e-02,
               1.1686930e-02, 4.8989689e-03, 1.7170131e-03}},
             {1.0f,
              {4.2758358e-01, 3.9123402e-01, 3.0474421e-01, 1.4023958e-01, 6.5317777e-02,
               3.6281456e-02, 1.5885128e-02, 5.6699426e-03}},
             {3.0f,
              {1.7900115e-01, 1.7510521e-01, 1.6426114e-01, 1.3075747e-01, 9.6402506e-02,
               6.9790962e-02, 3.8554597e-02, 1.5721779e-02}}};
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
    for (int k = 0; k < 8; k++) {
      const double a = row[i].a, reach = 6.0 + 4.0 * a; /* the model asks for no more */
      if (v[k] > reach)
        continue;
      const double tolerance = a < 0.03 ? 4e-6 / a : 1e-4;
      assert_close(mill_line_voigt(row[i].a, (float)v[k]) / row[i].h[k], 1.0, tolerance);
      assert_close(mill_line_voigt(row[i].a, (float)-v[k]) / row[i].h[k], 1.0, tolerance);
    }
}

/* McLaughlin et al. 2017 (J. Phys. B 50, 114001), R-matrix cross-sections in cm2; John's
 * fit, to older ones, is within 2 % of them away from the limit. */
static void test_h_minus_against_newer_cross_sections(void **state)
{
  (void)state;
  assert_close(mill_line_h_minus_bf(3500.0) / 1.965e-17, 1.0, 0.02);
  assert_close(mill_line_h_minus_bf(5000.0) / 2.911e-17, 1.0, 0.02);
  assert_close(mill_line_h_minus_bf(8500.0) / 3.951e-17, 1.0, 0.02);
  assert_close(mill_line_h_minus_bf(12000.0) / 2.853e-17, 1.0, 0.02);
  assert_close(mill_line_h_minus_bf(16500.0), 0.0, 0.0);
}

static void test_saha_and_partition_functions(void **state)
{
  (void)state;
  /* hydrogen at 5000 K with scipy.constants: (2 pi m k T / h^2)^1.5 exp(-13.5984 eV / kT);
   * the energy has six digits, the exponent is 32 */
  assert_close(mill_line_saha(0, 0, 5000.0) / 1.67776528e7, 1.0, 1e-4);
  /* partition functions at 5000 K of Barklem & Collet 2016, A&A 588, A96, table 8 */
  static const struct {
    int z;
    double neutral, ion;
  } u[] = {{6, 9.2, 5.9}, {12, 1.0, 2.0}, {20, 1.2, 2.2}, {22, 29.4, 55.4}, {26, 27.8, 43.4}};
  for (size_t i = 0; i < sizeof u / sizeof u[0]; i++) {
    const int row = mill_line_element_find(u[i].z);
    assert_close(exp(mill_line_partition(row, 0, 5000.0)), u[i].neutral, 0.06 * u[i].neutral);
    assert_close(exp(mill_line_partition(row, 1, 5000.0)), u[i].ion, 0.06 * u[i].ion);
  }
}

/** The gas holds together: charges, pressure, mass. */
static void test_gas(void **state)
{
  (void)state;
  static const double t[3] = {3500.0, 5000.0, 9000.0};
  mill_line_mix mix;
  mill_line_mix_init(-1.0, 0.4, &mix);
  /* [O/Fe] is an alpha element's, and so is the total: 8.69 - 1 + 0.4; iron 7.50 - 1 */
  assert_close(log10(mix.number[mill_line_element_find(8)]), -3.91, 1e-12);
  assert_close(log10(mix.number[mill_line_element_find(26)]), -5.50, 1e-12);
  assert_close(log10(mix.number[mill_line_element_find(2)]), -1.07, 1e-12);
  for (int k = 0; k < 3; k++) {
    mill_line_gas gas;
    mill_line_gas_solve(&mix, t[k], 1e5, &gas);
    double charge = 0.0, number = 0.0, mass = 0.0;
    for (int i = 0; i < MILL_LINE_N_ELEMENT; i++) {
      double neutral, ion;
      mill_line_gas_stage(&mix, &gas, i, &neutral, &ion);
      charge += ion * exp(mill_line_partition(i, 1, t[k]));
      number += gas.n_nuclei * mix.number[i];
      mass += gas.n_nuclei * mix.number[i] * mill_line_element_of[i].mass * 1.66053907e-24;
    }
    assert_close((number + gas.n_e) * 1.380649e-16 * t[k] / 1e5, 1.0, 1e-12);
    assert_close(gas.rho / mass, 1.0, 1e-12);
    /* titanium and rarer elements give no electrons to the solution; second ions count
     * twice there and not here; both are rare */
    assert_close(charge / gas.n_e, 1.0, 0.01);
    assert_close(gas.n_h + gas.n_p, gas.n_nuclei, 1e-9 * gas.n_nuclei);
  }
}

/* Barklem & Collet 2016: log10 of the equilibrium constants in Pa at 5000 K, 1.01177 (CO) and
 * 7.00347 (CH), and the partition function of CH, 2387.11. Ours are simpler: 0.1 dex. */
static void test_molecules(void **state)
{
  (void)state;
  const double t = 5000.0;
  mill_line_mix mix;
  mill_line_gas gas;
  mill_line_mix_init(0.0, 0.0, &mix);
  mill_line_gas_solve(&mix, t, 3e5, &gas);
  const int i_c = mill_line_element_find(6), i_o = mill_line_element_find(8);
  double c, c_ion;
  mill_line_gas_stage(&mix, &gas, i_c, &c, &c_ion);
  c *= exp(mill_line_partition(i_c, 0, t));
  c_ion *= exp(mill_line_partition(i_c, 1, t));
  const double co = gas.n_nuclei * mix.number[i_c] - c - c_ion;
  const double o_free = gas.n_nuclei * mix.number[i_o] - co;
  const double o = o_free / (1.0 + mill_line_saha(i_o, 0, t) / gas.n_e);
  const double pa = 0.1 * 1.380649e-16 * t; /* from / cm3 */
  assert_true(co > 0.05 * gas.n_nuclei * mix.number[i_c]);
  assert_close(log10(c * o / co * pa), 1.01177, 0.1);
  const double ch = mill_line_gas_ch(&mix, &gas) * 2387.11;
  assert_close(log10(c * gas.n_h / ch * pa), 7.00347, 0.1);
}

/** Hydrostatic equilibrium in the layers, and the Sun's pressure. */
static void test_atmosphere(void **state)
{
  (void)state;
  mill_line_atmosphere a;
  mill_line_atmosphere_solve(sun, &a);
  const double g = pow(10.0, sun[1]);
  for (int d = 5; d + 1 < MILL_LINE_N_LAYER; d++) {
    /* trapezoid of dp = g / kappa dtau in ln tau between layers 0.3 to 0.4 dex apart */
    const double t0 = pow(10.0, mill_line_log_tau[d]), t1 = pow(10.0, mill_line_log_tau[d + 1]);
    const double dp = 0.5 * g * (t0 / a.kappa[d] + t1 / a.kappa[d + 1]) * log(t1 / t0);
    assert_close((a.gas[d + 1].p - a.gas[d].p) / dp, 1.0, 0.1);
  }
  /* log p = 5.1 at tau = 1 in models of the Sun (Holweger & Mueller 1974; Kurucz), log P_e = 1.8 */
  const mill_line_gas *gas = &a.gas[11];
  assert_close(log10(gas->p), 5.1, 0.1);
  assert_close(log10(gas->n_e * MILL_LINE_K_ERG * gas->t), 1.8, 0.2);
}

/** E2 by the midpoint rule over the direction cosine. */
static double second_exponential_integral(double t)
{
  enum { N = 400 };
  double sum = 0.0;
  for (int i = 0; i < N; i++)
    sum += exp(-t * N / (i + 0.5));
  return sum / N;
}

/* The continuum of two rays and 16 layers against 2 pi int B E2 dt on a fine grid, in
 * float64: what the layers cost is at most 0.9 % here, and 2.4 % at 3500 A of the cool
 * star, where the Planck function is steepest. */
static void test_continuum_against_fine_quadrature(void **state)
{
  (void)state;
  enum { N_FINE = 3000 };
  static const double label[3][4] = {
      {5777.0, 4.44, 0.0, 0.0}, {4200.0, 1.0, -1.0, 0.2}, {7300.0, 4.0, 0.0, 0.0}};
  static const double wave[3] = {3500.0, 5000.0, 8000.0};
  for (int i = 0; i < 3; i++) {
    spectrum s = star(label[i][0], label[i][1], label[i][2], label[i][3]);
    mill_line_atmosphere a;
    mill_line_atmosphere_solve(label[i], &a);
    for (int w = 0; w < 3; w++) {
      double r[MILL_LINE_N_LAYER];
      mill_line_cont_wave at;
      mill_line_cont_wave_init(wave[w], &at);
      for (int d = 0; d < MILL_LINE_N_LAYER; d++) {
        mill_line_cont_gas g;
        mill_line_cont_gas_init(&a.gas[d], &g);
        r[d] = mill_line_cont_opacity(&at, &g) / (a.gas[d].rho * a.kappa[d]);
      }
      double t = r[0] * 1e-5, flux = M_PI * mill_line_planck(wave[w], a.gas[0].t) *
                                     (1.0 - 2.0 * 0.5 * (1.0 - 2.0 * t)); /* thin top */
      double last_tau = 1e-5, last_r = r[0];
      int d = 0;
      for (int k = 1; k <= N_FINE; k++) {
        const double log_tau = -5.0 + 6.1 * k / N_FINE, tau = pow(10.0, log_tau);
        while (d + 2 < MILL_LINE_N_LAYER && log_tau > mill_line_log_tau[d + 1])
          d++;
        const double f =
            (log_tau - mill_line_log_tau[d]) / (mill_line_log_tau[d + 1] - mill_line_log_tau[d]);
        const double r_here = r[d] + f * (r[d + 1] - r[d]);
        const double dt = 0.5 * (last_r + r_here) * (tau - last_tau);
        const double temp = mill_line_temperature(label[i][0], 0.5 * (tau + last_tau));
        flux += 2.0 * M_PI * mill_line_planck(wave[w], temp) *
                second_exponential_integral(t + 0.5 * dt) * dt;
        t += dt;
        last_tau = tau;
        last_r = r_here;
      }
      const double tolerance = label[i][0] < 5000.0 && wave[w] < 4000.0 ? 0.04 : 0.015;
      assert_close(s.cont[pixel_of(wave[w])] / flux, 1.0, tolerance);
    }
    spectrum_free(&s);
  }
}

/* ---- The stars -------------------------------------------------------------- */

/** The Sun: measured strengths of its lines, within what a grey LTE model can do. */
static void test_sun(void **state)
{
  (void)state;
  spectrum s = star(sun[0], sun[1], sun[2], sun[3]);
  /* Moore, Minnaert & Houtgast 1966, NBS Monograph 61, in A */
  assert_close(width(&s, 5896.7, 5898.5), 0.564, 0.08);    /* Na D1 */
  assert_close(width(&s, 5173.0, 5175.3), 1.26, 0.25);     /* Mg b2 */
  assert_close(width(&s, 6544.6, 6584.6), 4.0, 1.2);       /* H alpha */
  assert_close(width(&s, 8533.0, 8556.0), 3.67, 1.0);      /* Ca II triplet */
  assert_close(width(&s, 6254.03, 6254.53), 0.120, 0.035); /* Fe I */
  assert_close(width(&s, 6201.77, 6202.27), 0.073, 0.025); /* Fe I */
  assert_true(residual(&s, 3934.78) < 0.15);               /* Ca II K, measured 0.08 */
  assert_true(residual(&s, 3937.0) < 0.4);                 /* and its wings */
  assert_true(blanketing(&s, 4300.0, 4316.0) > 0.4);       /* the G band */
  /* fewer lines to the red */
  double last = 1.0;
  static const double from[4] = {3500.0, 4400.0, 6000.0, 7600.0};
  for (int i = 0; i < 4; i++) {
    const double share = blanketing(&s, from[i], from[i] + 400.0);
    assert_true(share < 0.8 * last);
    assert_true(share > 0.005);
    last = share;
  }
  /* the flux is a star's: absolute continuum at 5000 A of the Sun near 1e7 erg/(s cm2 A),
   * and absorption only; float32 sums of 16 layers leave 1e-6 */
  assert_close(s.cont[pixel_of(5000.0)], 1e7, 2e6);
  for (int i = 0; i < n_pix; i++)
    assert_true(s.flux[i] > 0.0 && s.flux[i] < s.cont[i] * (1.0 + 1e-5));
  spectrum_free(&s);
}

/** Trends, each with about half of the measured difference as the limit; the measured
 *  value stands behind. */
static void test_trends(void **state)
{
  (void)state;
  spectrum hot = star(7500.0, 4.0, 0.0, 0.0), hot_giant = star(7500.0, 2.0, 0.0, 0.0);
  spectrum warm = star(6500.0, 4.0, 0.0, 0.0), sunlike = star(5500.0, 4.0, 0.0, 0.0);
  spectrum cool = star(4500.0, 4.5, 0.0, 0.0), cool_giant = star(4500.0, 1.5, 0.0, 0.0);
  spectrum poor = star(5500.0, 4.0, -3.0, 0.0), alpha = star(5500.0, 4.0, 0.0, 0.4);

  /* Balmer and Paschen lines grow to 7500 K, and their wings with pressure */
  assert_true(width(&warm, 6544.6, 6584.6) > 1.4 * width(&sunlike, 6544.6, 6584.6)); /* 1.79 */
  assert_true(width(&hot, 6544.6, 6584.6) > 1.25 * width(&warm, 6544.6, 6584.6));    /* 1.53 */
  assert_true(width(&hot, 8840.0, 8890.0) > 3.0 * width(&sunlike, 8840.0, 8890.0));  /* 5.0 */
  assert_true(residual(&hot_giant, 4875.0) > residual(&hot, 4875.0) + 0.03);         /* 0.06 */

  /* the Balmer jump of hot stars is deeper at low gravity and fades to the Sun's type */
  const double jump_hot = hot.cont[pixel_of(4200.0)] / hot.cont[pixel_of(3550.0)];
  const double jump_giant = hot_giant.cont[pixel_of(4200.0)] / hot_giant.cont[pixel_of(3550.0)];
  const double jump_sunlike = sunlike.cont[pixel_of(4200.0)] / sunlike.cont[pixel_of(3550.0)];
  assert_true(jump_giant > 1.3 * jump_hot);    /* 1.65 */
  assert_true(jump_hot > 1.35 * jump_sunlike); /* 1.68 */
  /* the Paschen jump, on the slope of the continuum, too: 0.995 and 0.905 */
  assert_true(hot_giant.cont[pixel_of(8600.0)] / hot_giant.cont[pixel_of(8150.0)] >
              hot.cont[pixel_of(8600.0)] / hot.cont[pixel_of(8150.0)] + 0.045);

  /* metals vanish at -3, but not their strongest lines */
  assert_true(blanketing(&poor, 4400.0, 5400.0) <
              0.1 * blanketing(&sunlike, 4400.0, 5400.0)); /* 0.054 */
  assert_true(width(&poor, 6254.03, 6254.53) < 0.015);     /* 0.007 A */
  assert_true(residual(&poor, 3934.78) < 0.15);            /* 0.07 */

  /* alpha elements alone: Mg b and the Ca triplet, not iron */
  assert_true(width(&alpha, 5173.0, 5175.3) > 1.05 * width(&sunlike, 5173.0, 5175.3)); /* 1.10 */
  assert_true(width(&alpha, 8533.0, 8556.0) > 1.09 * width(&sunlike, 8533.0, 8556.0)); /* 1.18 */
  assert_true(width(&alpha, 6254.03, 6254.53) < width(&sunlike, 6254.03, 6254.53));    /* 0.97 */

  /* ionised lines grow with low gravity (Fe II 6434.5, 6458.2), wings of neutral ones with high (Mg
   * b, Na D, Ca I 4228) */
  assert_true(width(&cool_giant, 6433.9, 6434.9) > 3.0 * width(&cool, 6433.9, 6434.9));  /* 6.7 */
  assert_true(width(&cool_giant, 6457.8, 6458.6) > 3.0 * width(&cool, 6457.8, 6458.6));  /* 5.8 */
  assert_true(width(&cool, 5160.0, 5195.0) > 1.3 * width(&cool_giant, 5160.0, 5195.0));  /* 1.59 */
  assert_true(width(&cool, 5880.0, 5905.0) > 1.9 * width(&cool_giant, 5880.0, 5905.0));  /* 2.8 */
  assert_true(width(&cool, 4220.0, 4236.0) > 1.25 * width(&cool_giant, 4220.0, 4236.0)); /* 1.49 */

  /* neutral lines and the G band grow to the cool end */
  assert_true(width(&cool, 6254.03, 6254.53) > 1.2 * width(&sunlike, 6254.03, 6254.53)); /* 1.45 */
  assert_true(blanketing(&sunlike, 4300.0, 4316.0) >
              1.4 * blanketing(&warm, 4300.0, 4316.0)); /* 1.84 */
  assert_true(blanketing(&warm, 4300.0, 4316.0) > 1.4 * blanketing(&hot, 4300.0, 4316.0)); /* 1.8 */

  spectrum *all[] = {&hot, &hot_giant, &warm, &sunlike, &cool, &cool_giant, &poor, &alpha};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    spectrum_free(all[i]);
}

/* A curve of growth: ten times the metals make weak lines ten times as strong (nine here:
 * more electrons, more H-) and saturated ones hardly twice. */
static void test_curve_of_growth(void **state)
{
  (void)state;
  spectrum low = star(6000.0, 4.0, -2.0, 0.0), high = star(6000.0, 4.0, -1.0, 0.0);
  const double weak = width(&high, 6084.14, 6084.64) / width(&low, 6084.14, 6084.64);
  const double saturated = width(&high, 5896.7, 5898.5) / width(&low, 5896.7, 5898.5);
  const double damped = width(&high, 3925.0, 3945.0) / width(&low, 3925.0, 3945.0);
  assert_true(weak > 5.0 && weak < 10.5);
  assert_true(saturated > 1.2 && saturated < 2.6);
  assert_true(damped > 1.6 && damped < 4.0);
  spectrum_free(&low);
  spectrum_free(&high);
}

/** Root mean square of the second difference of ln flux for a step of one label. */
static double second_difference(const double *label, int axis, double step)
{
  double shifted[3][4];
  for (int k = 0; k < 3; k++) {
    memcpy(shifted[k], label, sizeof shifted[k]);
    shifted[k][axis] += (k - 1) * step;
  }
  spectrum s[3];
  for (int k = 0; k < 3; k++)
    s[k] = star(shifted[k][0], shifted[k][1], shifted[k][2], shifted[k][3]);
  double sum = 0.0;
  for (int i = 0; i < n_pix; i++) {
    const double d = log(s[0].flux[i]) - 2.0 * log(s[1].flux[i]) + log(s[2].flux[i]);
    sum += d * d;
  }
  for (int k = 0; k < 3; k++)
    spectrum_free(&s[k]);
  return sqrt(sum / n_pix);
}

/* Without kinks the second difference falls with the square of the step: 25 for a fifth of it.
 * A kink (a switch) would give 5, a jump 1.  Float32 noise of 1e-6 allows no smaller steps. */
static void test_smooth_in_labels(void **state)
{
  (void)state;
  static const double label[2][4] = {{4620.0, 2.13, -0.37, 0.21}, {6910.0, 3.87, -1.41, 0.11}};
  static const double step[4] = {50.0, 0.1, 0.1, 0.1};
  for (int i = 0; i < 2; i++)
    for (int axis = 0; axis < 4; axis++) {
      const double wide = second_difference(label[i], axis, step[axis]);
      const double narrow = second_difference(label[i], axis, 0.2 * step[axis]);
      assert_true(wide > 25e-6); /* well above the noise */
      assert_close(wide / narrow, 25.0, 2.0);
    }
}

/* ---- The interface ---------------------------------------------------------- */

/** A model of a part of the range has the same pixels, far wings and all. */
static void test_part_of_the_range(void **state)
{
  (void)state;
  const int first = pixel_of(4850.0), n = 5000;
  mill_line_model *part = NULL;
  assert_int_equal(
      mill_line_model_create(mill_line_model_ln_wave0(model) + first * MILL_LINE_LN_STEP, n, &part),
      MILL_OK);
  assert_int_equal(mill_line_model_n_pix(part), n);
  const double label[4] = {4300.0, 4.8, 0.3, 0.1};
  spectrum s = star(label[0], label[1], label[2], label[3]);
  double *flux = malloc((size_t)n * sizeof *flux);
  assert_non_null(flux);
  assert_int_equal(mill_line_model_flux(part, label, flux, NULL), MILL_OK);
  for (int i = 0; i < n; i++) /* lines lie at 1e-7 pixels elsewhere: float32 rounds otherwise */
    assert_close(flux[i] / s.flux[first + i], 1.0, 2e-5);
  free(flux);
  spectrum_free(&s);
  mill_line_model_destroy(part);
}

static void test_ranges(void **state)
{
  (void)state;
  mill_line_model *bad = NULL;
  const double ln0 = log(MILL_LINE_MIN_WAVE_AA);
  assert_int_equal(mill_line_model_create(log(3399.0), 100, &bad), MILL_ERR_RANGE);
  assert_null(bad);
  assert_int_equal(mill_line_model_create(ln0, 1, &bad), MILL_ERR_RANGE);
  assert_int_equal(mill_line_model_create(ln0, n_pix + 2, &bad), MILL_ERR_RANGE);
  assert_int_equal(mill_line_model_create(NAN, 100, &bad), MILL_ERR_RANGE);
  mill_line_model_destroy(NULL);

  mill_line_model *small = NULL;
  assert_int_equal(mill_line_model_create(log(5000.0), 100, &small), MILL_OK);
  double flux[100], cont[100];
  for (int axis = 0; axis < 4; axis++) {
    const mill_line_label_info *info = &mill_line_label_info_of[axis];
    const double outside[4] = {info->min - 1e-6, info->max + 1e-6, NAN, INFINITY};
    for (int k = 0; k < 4; k++) {
      double label[4];
      memcpy(label, sun, sizeof label);
      label[axis] = outside[k];
      assert_int_equal(mill_line_model_flux(small, label, flux, cont), MILL_ERR_RANGE);
      assert_non_null(strstr(mill_error_message(), info->name));
    }
  }
  /* every corner of the range is a star */
  for (int corner = 0; corner < 16; corner++) {
    double label[4];
    for (int axis = 0; axis < 4; axis++)
      label[axis] = corner >> axis & 1 ? mill_line_label_info_of[axis].max
                                       : mill_line_label_info_of[axis].min;
    assert_int_equal(mill_line_model_flux(small, label, flux, cont), MILL_OK);
    for (int i = 0; i < 100; i++)
      assert_true(flux[i] > 0.0 && cont[i] >= flux[i] * (1.0 - 1e-5) && isfinite(cont[i]));
  }
  mill_line_model_destroy(small);
}

static void test_count(void **state)
{
  (void)state;
  int n_atomic, n_molecular;
  mill_line_model_count(model, &n_atomic, &n_molecular);
  assert_int_equal(n_atomic + n_molecular, mill_line_list_n);
  assert_true(n_atomic >= 3000);
  assert_true(n_molecular >= 100);
}

/** Two threads at once give the bits of one. */
static void test_threads(void **state)
{
  (void)state;
  enum { N_STAR = 4 };
  static const double label[N_STAR][4] = {{5777.0, 4.44, 0.0, 0.0},
                                          {4100.0, 1.2, -0.7, 0.3},
                                          {7200.0, 3.9, -1.5, 0.1},
                                          {4800.0, 4.7, 0.4, 0.0}};
  spectrum alone[N_STAR];
  double *flux[N_STAR];
  int err[N_STAR];
  for (int i = 0; i < N_STAR; i++) {
    alone[i] = star(label[i][0], label[i][1], label[i][2], label[i][3]);
    flux[i] = malloc((size_t)n_pix * sizeof *flux[i]);
    assert_non_null(flux[i]);
  }
#pragma omp parallel for num_threads(2) schedule(static, 1)
  for (int i = 0; i < N_STAR; i++)
    err[i] = mill_line_model_flux(model, label[i], flux[i], NULL);
  for (int i = 0; i < N_STAR; i++) {
    assert_int_equal(err[i], MILL_OK);
    assert_memory_equal(flux[i], alone[i].flux, (size_t)n_pix * sizeof *flux[i]);
    free(flux[i]);
    spectrum_free(&alone[i]);
  }
}

/* Lines are scattered one by one, the same wherever a model begins; the continuum stays. */
static void test_scattered_lines_are_those_of_the_seed(void **state)
{
  (void)state;
  enum { N_FINE = 4000, SHIFT = 500 };
  static double plain[N_FINE], wrong[N_FINE], other[N_FINE], cont[2][N_FINE];
  static const double label[MILL_LINE_N_LABEL] = {5000, 4, -0.5, 0.1};
  const double start = floor(log(5100.0) / MILL_LINE_LN_STEP) * MILL_LINE_LN_STEP;
  double largest = 0;
  for (int i = 0; i < 3; i++) {
    mill_line_model *scattered = NULL;
    const double from = i == 2 ? start + SHIFT * MILL_LINE_LN_STEP : start;
    assert_int_equal(mill_line_model_create(from, N_FINE, &scattered), MILL_OK);
    if (i > 0)
      mill_line_model_scatter(scattered, 0.2, 5);
    double *out = i == 0 ? plain : (i == 1 ? wrong : other);
    assert_int_equal(mill_line_model_flux(scattered, label, out, cont[i > 0]), MILL_OK);
    if (i == 1)
      for (int p = 0; p < N_FINE; p++) {
        assert_close(cont[1][p], cont[0][p], 0);
        largest = fmax(largest, fabs(wrong[p] - plain[p]) / cont[0][p]);
      }
    mill_line_model_destroy(scattered);
  }
  /* a line of half the continuum changes by a tenth of itself or so */
  assert_true(largest > 0.01 && largest < 0.3);
  for (int p = SHIFT; p < N_FINE; p++) /* the positions of lines in float64 round differently */
    assert_close(other[p - SHIFT] / wrong[p], 1, 1e-4);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scattered_lines_are_those_of_the_seed),
      cmocka_unit_test(test_planck),
      cmocka_unit_test(test_voigt),
      cmocka_unit_test(test_h_minus_against_newer_cross_sections),
      cmocka_unit_test(test_saha_and_partition_functions),
      cmocka_unit_test(test_gas),
      cmocka_unit_test(test_molecules),
      cmocka_unit_test(test_atmosphere),
      cmocka_unit_test(test_continuum_against_fine_quadrature),
      cmocka_unit_test(test_sun),
      cmocka_unit_test(test_trends),
      cmocka_unit_test(test_curve_of_growth),
      cmocka_unit_test(test_smooth_in_labels),
      cmocka_unit_test(test_part_of_the_range),
      cmocka_unit_test(test_ranges),
      cmocka_unit_test(test_count),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
