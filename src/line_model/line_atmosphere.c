#include "src/line_model/line_atmosphere.h"

#include <math.h>

const mill_line_element mill_line_element_of[MILL_LINE_N_ELEMENT] = {
#include "src/line_model/line_elements.inc"
};

/* closest where most lines form */
const double mill_line_log_tau[MILL_LINE_N_LAYER] = {-5.0, -4.2, -3.5, -2.9, -2.4, -1.9, -1.5, -1.1,
                                                     -0.8, -0.5, -0.2, 0.1,  0.3,  0.5,  0.8,  1.1};

/* The structure is integrated on a finer grid, of which each layer is a point. */
enum { N_DEPTH = 67, N_ROSSELAND = 24, N_START = 40, N_CORRECT = 8, N_DONOR = 12 };
#define LOG_TAU_TOP      -5.5
#define LOG_TAU_STEP     0.1
#define ROSSELAND_MIN_AA 2000.0
#define ROSSELAND_MAX_AA 40000.0

/* elements that give electrons; the others are too rare or too tightly bound */
static const int donor_z[N_DONOR] = {1, 6, 11, 12, 13, 14, 16, 19, 20, 24, 26, 28};

#define THOMSON_CM2      6.6524587e-25
#define SAHA_CONST       2.4146830e15 /* (2 pi m_e k / h^2)^1.5, / cm3 K^1.5 */
#define H_MINUS_LIMIT_UM 1.6419
#define LAST_FIXED_Z     2 /* hydrogen and helium follow neither [Fe/H] nor [alpha/Fe] */

int mill_line_element_find(int z)
{
  for (int i = 0; i < MILL_LINE_N_ELEMENT; i++)
    if (mill_line_element_of[i].z == z)
      return i;
  return -1;
}

void mill_line_mix_init(double feh, double alpha, mill_line_mix *mix)
{
  mix->sum_number = mix->sum_mass = 0.0;
  for (int i = 0; i < MILL_LINE_N_ELEMENT; i++) {
    const mill_line_element *e = &mill_line_element_of[i];
    const int is_alpha =
        e->z == 8 || e->z == 12 || e->z == 14 || e->z == 16 || e->z == 20 || e->z == 22;
    const double dex = e->z <= LAST_FIXED_Z ? 0.0 : feh + (is_alpha ? alpha : 0.0);
    mix->number[i] = pow(10.0, e->abundance - 12.0 + dex);
    mix->sum_number += mix->number[i];
    mix->sum_mass += mix->number[i] * e->mass;
  }
}

double mill_line_partition(int i, int stage, double t)
{
  const mill_line_element *e = &mill_line_element_of[i];
  if (stage > 1)
    return e->part_second;
  const double x = log(t / 5000.0), *c = e->part[stage];
  return c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * c[4])));
}

double mill_line_saha(int i, int stage, double t)
{
  const double ln_u = mill_line_partition(i, stage + 1, t) - mill_line_partition(i, stage, t);
  return 2.0 * SAHA_CONST * t * sqrt(t) *
         exp(ln_u - mill_line_element_of[i].ion_ev[stage] / (MILL_LINE_K_EV * t));
}

/** Saha factors of the donors at one temperature: all that the solution needs. */
typedef struct donors {
  double number[N_DONOR], first[N_DONOR], second[N_DONOR];
} donors;

static void donors_init(const mill_line_mix *mix, double t, donors *d)
{
  for (int k = 0; k < N_DONOR; k++) {
    const int i = mill_line_element_find(donor_z[k]);
    d->number[k] = mix->number[i];
    d->first[k] = mill_line_saha(i, 0, t);
    d->second[k] = mill_line_saha(i, 1, t);
  }
}

/** Newton's method for ln n_e: both sides of n_e = n_nuclei x charges per nucleus. */
static double solve_electrons(const mill_line_mix *mix, const donors *d, double n_total)
{
  double y = log(n_total) - 7.0;
  for (int it = 0; it < 60; it++) {
    const double n_e = exp(y), inv = 1.0 / n_e;
    double charge = 0.0, slope = 0.0;
    for (int k = 0; k < N_DONOR; k++) {
      const double x1 = d->first[k] * inv, x2 = x1 * d->second[k] * inv;
      const double f = 1.0 / (1.0 + x1 + x2), q = (x1 + 2.0 * x2) * f;
      charge += d->number[k] * q;
      slope -= d->number[k] * ((x1 + 4.0 * x2) * f - q * q); /* d charge / d ln n_e */
    }
    const double n_atom = n_total - n_e; /* > 0: y only comes from below, see the bound */
    const double g = log(n_atom * charge / mix->sum_number) - y;
    const double dg = slope / charge - n_e / n_atom - 1.0;
    const double y_new = fmin(y - g / dg, 0.5 * (y + log(n_total)));
    const double step = y_new - y;
    y = y_new;
    if (fabs(step) < 1e-13)
      break;
  }
  return exp(y);
}

static void gas_finish(const mill_line_mix *mix, double t, double p, double n_e, mill_line_gas *gas)
{
  gas->t = t;
  gas->p = p;
  gas->n_e = n_e;
  gas->n_nuclei = (p / (MILL_LINE_K_ERG * t) - n_e) / mix->sum_number;
  gas->n_h = gas->n_nuclei / (1.0 + mill_line_saha(0, 0, t) / n_e);
  gas->n_p = gas->n_nuclei - gas->n_h;
  gas->rho = gas->n_nuclei * mix->sum_mass * MILL_LINE_M_U;
}

void mill_line_gas_solve(const mill_line_mix *mix, double t, double p, mill_line_gas *gas)
{
  donors d;
  donors_init(mix, t, &d);
  gas_finish(mix, t, p, solve_electrons(mix, &d, p / (MILL_LINE_K_ERG * t)), gas);
}

/** Carbon bound in CO, per carbon and hydrogen nuclei: left over is n_c (1 - part). */
static double co_part(const mill_line_mix *mix, const mill_line_gas *gas)
{
  const double t = gas->t, kt_ev = MILL_LINE_K_EV * t;
  const int i_c = mill_line_element_find(6), i_o = mill_line_element_find(8);
  const double n_c = gas->n_nuclei * mix->number[i_c], n_o = gas->n_nuclei * mix->number[i_o];
  /* rotation and vibration of CO: B = 1.9225 / cm, omega = 2143.3 / cm */
  const double q = t / (MILL_LINE_HC_K * 1.9225) / (1.0 - exp(-MILL_LINE_HC_K * 2143.3 / t));
  const double mass = 12.01 * 16.00 / (12.01 + 16.00);
  /* SAHA_CONST is for the electron's mass, 1 / 1822.8885 u */
  const double k =
      SAHA_CONST * pow(mass * 1822.8885 * t, 1.5) *
      exp(mill_line_partition(i_c, 0, t) + mill_line_partition(i_o, 0, t) - 11.09 / kt_ev) / q;
  /* neutral atoms only take part; of C and O the ions are rare where CO forms */
  const double k_c = k * (1.0 + mill_line_saha(i_c, 0, t) / gas->n_e);
  const double k_all = k_c * (1.0 + mill_line_saha(i_o, 0, t) / gas->n_e);
  const double b = n_c + n_o + k_all;
  return 2.0 * n_o / (b + sqrt(b * b - 4.0 * n_c * n_o));
}

void mill_line_gas_stage(const mill_line_mix *mix, const mill_line_gas *gas, int i, double *neutral,
                         double *ion)
{
  const double t = gas->t;
  const double x1 = mill_line_saha(i, 0, t) / gas->n_e, x2 = mill_line_saha(i, 1, t) / gas->n_e;
  double n = gas->n_nuclei * mix->number[i];
  if (mill_line_element_of[i].z == 6)
    n *= 1.0 - co_part(mix, gas);
  const double n0 = n / (1.0 + x1 * (1.0 + x2));
  *neutral = n0 * exp(-mill_line_partition(i, 0, t));
  *ion = n0 * x1 * exp(-mill_line_partition(i, 1, t));
}

double mill_line_gas_ch(const mill_line_mix *mix, const mill_line_gas *gas)
{
  const double t = gas->t;
  double c, ion;
  mill_line_gas_stage(mix, gas, mill_line_element_find(6), &c, &ion);
  const double mass = 12.01 * 1.008 / (12.01 + 1.008);
  return c * 0.5 * gas->n_h * exp(3.465 / (MILL_LINE_K_EV * t)) /
         (SAHA_CONST * pow(mass * 1822.8885 * t, 1.5));
}

double mill_line_h_minus_bf(double wave_aa)
{
  /* John 1988, A&A 193, 189, eqs. 4 and 5 */
  static const double c[6] = {152.519, 49.534, -118.858, 92.536, -34.194, 4.982};
  const double um = wave_aa * 1e-4, d = 1.0 / um - 1.0 / H_MINUS_LIMIT_UM;
  if (d <= 0.0)
    return 0.0;
  const double x = sqrt(d);
  const double f = c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * (c[4] + x * c[5]))));
  return 1e-18 * um * um * um * d * x * f;
}

/** John 1988, eq. 6 and table 3: sums over the wavelength of each power of theta. */
static void h_minus_ff(double wave_aa, double *sum)
{
  static const double blue[6][6] = {{518.1021, -734.8666, 1021.1775, -479.0721, 93.1373, -6.4285},
                                    {473.2636, 1443.4137, -1977.3395, 922.3575, -178.9275, 12.3600},
                                    {-482.2089, -737.1616, 1096.8827, -521.1341, 101.7963, -7.0571},
                                    {115.5291, 169.6374, -245.6490, 114.2430, -21.9972, 1.5097},
                                    {0.0, 0.0, 0.0, 0.0, 0.0, 0.0},
                                    {0.0, 0.0, 0.0, 0.0, 0.0, 0.0}};
  static const double red[6][6] = {
      {0.0, 0.0, 0.0, 0.0, 0.0, 0.0},
      {2483.3460, 285.8270, -2054.2910, 2827.7760, -1341.5370, 208.9520},
      {-3449.8890, -1158.3820, 8746.5230, -11485.6320, 5303.6090, -812.9390},
      {2200.0400, 2427.7190, -13651.1050, 16755.5240, -7510.4940, 1132.7380},
      {-696.2710, -1841.4000, 8624.9700, -10051.5300, 4400.0670, -655.0200},
      {88.2830, 444.5170, -1863.8640, 2095.2880, -901.7880, 132.9850}};
  const double um = wave_aa * 1e-4;
  const double(*a)[6] = um < 0.3645 ? blue : red;
  for (int n = 0; n < 6; n++)
    sum[n] = 1e-29 * (um * um * a[n][0] + a[n][1] +
                      (a[n][2] + (a[n][3] + (a[n][4] + a[n][5] / um) / um) / um) / um);
}

void mill_line_cont_wave_init(double wave_aa, mill_line_cont_wave *w)
{
  /* Gaunt factors at the edges of levels 2 to 8; level 1 takes no light here */
  static const double gaunt[MILL_LINE_N_H_EDGE + 1] = {0.0,  0.0,  0.88, 0.91, 0.92,
                                                       0.93, 0.94, 0.95, 0.95};
  w->wave_aa = wave_aa;
  w->h_minus_bf = mill_line_h_minus_bf(wave_aa);
  h_minus_ff(wave_aa, w->h_minus_ff);
  const double ratio = wave_aa / MILL_LINE_H_LIMIT;
  w->h_bf[0] = 7.91e-18 * ratio * ratio * ratio; /* level n: / n^3, for n^2 atoms */
  w->h_bf[1] = w->dissolve[0] = w->dissolve[1] = 0.0;
  for (int n = 2; n <= MILL_LINE_N_H_EDGE; n++) {
    w->h_bf[n] = gaunt[n] * w->h_bf[0] / ((double)n * n * n);
    const double above = 1.0 / ((double)n * n) - 1.0 / ratio; /* 1 / n_eff^2 */
    w->dissolve[n] = above > 0.0 ? pow(above, -3.75) / pow(10.0, MILL_LINE_DISSOLVE_LOG) : -1.0;
  }
  const double i2 = 1.0 / (wave_aa * wave_aa), i4 = i2 * i2;
  w->rayleigh = i4 * (5.799e-13 + i2 * (1.422e-6 + i2 * 2.784));
}

void mill_line_cont_gas_init(const mill_line_gas *gas, mill_line_cont_gas *g)
{
  const double t = gas->t, theta = 5040.0 / t;
  const double p_e = gas->n_e * MILL_LINE_K_ERG * t;
  const double kt_ev = MILL_LINE_K_EV * t, chi = MILL_LINE_H_ION_EV;
  g->t = t;
  g->n_h = gas->n_h;
  g->n_e = gas->n_e;
  g->thomson = THOMSON_CM2 * gas->n_e;
  /* John, eq. 3; the factor for stimulated emission comes with the wavelength */
  g->h_minus_bf =
      gas->n_h * p_e * 0.750 * pow(t, -2.5) * exp(1e4 * MILL_LINE_HC_K / (H_MINUS_LIMIT_UM * t));
  for (int n = 0; n < 6; n++)
    g->h_minus_ff[n] = gas->n_h * p_e * pow(theta, 0.5 * (n + 2));
  for (int n = 2; n <= MILL_LINE_N_H_EDGE; n++)
    g->h_bf[n] = gas->n_h * exp(-chi * (1.0 - 1.0 / ((double)n * n)) / kt_ev);
  g->h_bf[0] = g->h_bf[1] = 0.0;
  /* levels beyond the last one as an integral over n, and free-free transitions */
  const double last = MILL_LINE_N_H_EDGE + 0.5;
  const double beyond = kt_ev / (2.0 * chi) * (exp(chi / (last * last * kt_ev)) - 1.0);
  g->h_rest = gas->n_h * exp(-chi / kt_ev) * beyond;
  g->h_free = kt_ev / (2.0 * chi) * gas->n_p * gas->n_e / (SAHA_CONST * t * sqrt(t));
}

double mill_line_cont_opacity(const mill_line_cont_wave *w, const mill_line_cont_gas *g)
{
  const double boltz = exp(-1e8 * MILL_LINE_HC_K / (w->wave_aa * g->t));
  double h = w->h_bf[0] * (g->h_rest + g->h_free);
  for (int n = 2; n <= MILL_LINE_N_H_EDGE; n++) {
    const double x = w->dissolve[n];
    const double part = x < 0.0 ? 1.0 : 1.0 - exp(-(g->n_e + MILL_LINE_DISSOLVE_NE) * x);
    h += w->h_bf[n] * g->h_bf[n] * part;
  }
  double ff = 0.0;
  for (int n = 0; n < 6; n++)
    ff += w->h_minus_ff[n] * g->h_minus_ff[n];
  return (w->h_minus_bf * g->h_minus_bf + h) * (1.0 - boltz) + ff + g->n_h * w->rayleigh +
         g->thomson;
}

double mill_line_planck(double wave_aa, double t)
{
  const double cm = wave_aa * 1e-8;
  return 2e-8 * MILL_LINE_H_ERG * MILL_LINE_C_CM * MILL_LINE_C_CM /
         (cm * cm * cm * cm * cm * expm1(MILL_LINE_HC_K / (cm * t)));
}

double mill_line_temperature(double teff, double tau)
{
  /* as if grey, with a Hopf function that lines warm below tau = 0.3, as in the Sun, and a
   * surface that they cool */
  const double q = 1.05 - 0.45 / (1.0 + pow(tau / 0.3, 1.2));
  const double cool = 1.0 - 0.1 / (1.0 + pow(tau / 0.0005, 0.7));
  return teff * cool * sqrt(sqrt(0.75 * (tau + q)));
}

/** Sums of the Rosseland mean at one temperature: opacity without what the
 *  densities give, so that the iterations over the pressure need no exponentials. */
typedef struct rosseland {
  double weight[N_ROSSELAND], h_minus[N_ROSSELAND], h[N_ROSSELAND], free[N_ROSSELAND];
} rosseland;

static void rosseland_init(const mill_line_cont_wave *wave, double t, rosseland *r)
{
  const mill_line_gas unit = {.t = t, .n_h = 1.0, .n_e = 1.0, .n_p = 1.0};
  mill_line_cont_gas g;
  mill_line_cont_gas_init(&unit, &g);
  double sum = 0.0;
  for (int k = 0; k < N_ROSSELAND; k++) {
    const mill_line_cont_wave *w = &wave[k];
    const double u = 1e8 * MILL_LINE_HC_K / (w->wave_aa * t), boltz = exp(-u);
    double h = w->h_bf[0] * g.h_rest, ff = 0.0;
    for (int n = 2; n <= MILL_LINE_N_H_EDGE; n++)
      if (w->dissolve[n] < 0.0)
        h += w->h_bf[n] * g.h_bf[n];
    for (int n = 0; n < 6; n++)
      ff += w->h_minus_ff[n] * g.h_minus_ff[n];
    r->h_minus[k] = w->h_minus_bf * g.h_minus_bf * (1.0 - boltz) + ff;
    r->h[k] = h * (1.0 - boltz) + w->rayleigh;
    r->free[k] = w->h_bf[0] * g.h_free * (1.0 - boltz);
    /* dB / dT times the wavelength, the nodes being equally spaced in its logarithm */
    r->weight[k] = u * u * u * u * u * boltz / ((1.0 - boltz) * (1.0 - boltz));
    sum += r->weight[k];
  }
  for (int k = 0; k < N_ROSSELAND; k++)
    r->weight[k] /= sum;
}

/** Rosseland mean opacity, cm2 / g. */
static double rosseland_mean(const rosseland *r, const mill_line_gas *gas)
{
  const double h_minus = gas->n_h * gas->n_e, free = gas->n_p * gas->n_e;
  const double thomson = THOMSON_CM2 * gas->n_e;
  double sum = 0.0;
  for (int k = 0; k < N_ROSSELAND; k++)
    sum +=
        r->weight[k] / (h_minus * r->h_minus[k] + gas->n_h * r->h[k] + free * r->free[k] + thomson);
  return 1.0 / (sum * gas->rho);
}

void mill_line_atmosphere_solve(const double *label, mill_line_atmosphere *out)
{
  const double teff = label[0], g = pow(10.0, label[1]);
  mill_line_mix_init(label[2], label[3], &out->mix);
  mill_line_cont_wave wave[N_ROSSELAND];
  for (int k = 0; k < N_ROSSELAND; k++)
    mill_line_cont_wave_init(ROSSELAND_MIN_AA *
                                 pow(ROSSELAND_MAX_AA / ROSSELAND_MIN_AA, k / (N_ROSSELAND - 1.0)),
                             &wave[k]);

  const double h = LOG_TAU_STEP * log(10.0);
  double ln_p = 0.0, slope = 0.0; /* slope: d ln p / d ln tau = g tau / (kappa p) */
  int i_layer = 0;
  for (int k = 0; k < N_DEPTH; k++) {
    const double log_tau = LOG_TAU_TOP + LOG_TAU_STEP * k, tau = pow(10.0, log_tau);
    const double t = mill_line_temperature(teff, tau);
    donors d;
    rosseland r;
    donors_init(&out->mix, t, &d);
    rosseland_init(wave, t, &r);
    const double ln_p_last = ln_p, slope_last = slope;
    double kappa = 0.0;
    mill_line_gas gas;
    ln_p = k == 0 ? log(g * tau / 0.01) : ln_p_last + h * slope_last;
    for (int it = 0; it < (k == 0 ? N_START : N_CORRECT); it++) {
      const double p = exp(ln_p);
      gas_finish(&out->mix, t, p, solve_electrons(&out->mix, &d, p / (MILL_LINE_K_ERG * t)), &gas);
      kappa = rosseland_mean(&r, &gas);
      slope = g * tau / (kappa * p);
      /* at the top p = g tau / kappa; below, the trapezoidal rule */
      ln_p = k == 0 ? ln_p + 0.5 * log(slope) : ln_p_last + 0.5 * h * (slope_last + slope);
    }
    if (i_layer < MILL_LINE_N_LAYER && fabs(log_tau - mill_line_log_tau[i_layer]) < 1e-6) {
      out->gas[i_layer] = gas;
      out->kappa[i_layer] = kappa;
      i_layer++;
    }
  }
}
