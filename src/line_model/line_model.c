#include "src/line_model/line_model.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/line_model/line_atmosphere.h"
#include "src/line_model/line_list.h"
#include "src/line_model/line_voigt.h"
#include "src/system/random.h"

const mill_line_label_info mill_line_label_info_of[MILL_LINE_N_LABEL] = {
    {"teff", "TEFF", "K", 4000.0, 7500.0},
    {"logg", "LOGG", "dex", 0.5, 5.0},
    {"feh", "FEH", "dex", -3.0, 0.5},
    {"alpha", "ALPHAFE", "dex", 0.0, 0.4},
};

/* One vector of layers is the unit of all work on lines: it fills whole registers. */
enum { N_LAYER = MILL_LINE_N_LAYER, WIDTH_LAYER = 11 /* log tau = 0.1 */ };
typedef struct layers {
  float v[N_LAYER];
} layers;

/* Continuum, source function and far wings of hydrogen live on nodes in ln wavelength,
 * linear in between; the pixels between two nodes are solved together. */
#define NODE_LN_STEP 2.5e-4
enum { N_BATCH = 28 }; /* >= pixels between two nodes, a multiple of 4 */

#define MAX_REACH_LN 0.03 /* metal lines */
#define MIN_OPACITY  3e-4 /* of the continuum: where lines are cut */

/* hydrogen: fine near the centre, on the nodes farther away */
#define H_NEAR_LN 0.01
#define H_FAR_LN  0.04
enum { H_MAX_UPPER = 24, H_MAX_LINE = 2 * H_MAX_UPPER };

enum { SCATTER_STREAM = 0x73636174 /* "scat": this purpose of the random numbers */ };

#define SQRT_PI        1.7724538509055160
#define LINE_CONST     0.02654008 /* pi e^2 / (m_e c), cm2 / s */
#define KM_S           1e5
#define HE_POLARISABLE 0.42 /* broadening by a helium atom relative to hydrogen */

/** A metal line, all that does not depend on the star. */
typedef struct line {
  double pixel;      /**< where its centre lies */
  float ln_strength; /**< ln(pi e^2 / (m_e c) gf wavelength / (sqrt(pi) c)), pixels */
  float low_k;       /**< lower level / k, K */
  float photon_k;    /**< h nu / k, K */
  float damp;        /**< wavelength / (4 pi c) in pixels: width -> a */
  float gamma_rad, gamma_stark, gamma_waals; /**< rad / s; the last two per particle at 10^4 K */
  int species, mass;                         /**< rows of the star's tables */
  int index;                                 /**< in the list of lines */
} line;

typedef struct hydrogen_line {
  int lower, upper;
  double wave_aa, f;
  double stark_aa;            /**< Stark coefficient, A per unit of the normal field */
  double self_a0, self_power; /**< cross-section at 10 km/s, a0^2, and its power of velocity */
} hydrogen_line;

struct mill_line_model {
  double ln_wave0;
  int n_pix, n_node, n_line, n_species, n_mass, n_hydrogen;
  long node0;                /**< the first node is at node0 x NODE_LN_STEP */
  int *first;                /**< [n_node] first pixel at or after a node */
  line *line;                /**< [n_line] */
  int *species;              /**< [n_species] code */
  int *mass;                 /**< [n_mass] element row, -1 for CH */
  mill_line_cont_wave *wave; /**< [n_node] */
  hydrogen_line hydrogen[H_MAX_LINE];
};

/** exp for x < 87, 2e-7 relative; 0 below -87. Without comparisons of floats, which
 *  would keep compilers from turning loops over it into vector instructions. */
static inline float exp_fast(float x)
{
  const float k = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* to the nearest integer */
  const float f = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * f + 1.3981999507e-3f;
  y = y * f + 8.3334519073e-3f;
  y = y * f + 4.1665795894e-2f;
  y = y * f + 1.6666665459e-1f;
  y = y * f + 5.0000001201e-1f;
  y = y * f * f + f + 1.0f;
  int32_t exponent = (int32_t)k + 127;
  exponent = exponent < 0 ? 0 : exponent;
  const int32_t bits = exponent * (1 << 23);
  float two_k;
  memcpy(&two_k, &bits, sizeof two_k);
  return y * two_k;
}

/* The hot loops once more for wider registers.  AVX2 without FMA: the same bits. */
#if defined(__x86_64__) && defined(__gnu_linux__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

/* ---- What the wavelengths give ---------------------------------------------- */

/** Radiative width, Stark width per electron and van der Waals width per hydrogen
 *  atom at 10^4 K, full widths in rad / s. */
static void line_widths(const mill_line *in, int i_element, line *out)
{
  out->gamma_rad = (float)(0.2223e16 / ((double)in->wave_aa * in->wave_aa));
  if (in->species == MILL_LINE_CH) {
    out->gamma_stark = 0.0f;
    out->gamma_waals = 1e-8f;
    return;
  }
  const int charge = in->species % 100;
  const double z2 = (charge + 1.0) * (charge + 1.0);
  const double bind_low = fmax(mill_line_element_of[i_element].ion_ev[charge] - in->e_low_ev, 0.5);
  const double photon_ev = 1e8 * MILL_LINE_HC_K * MILL_LINE_K_EV / in->wave_aa;
  const double bind_up = fmax(bind_low - photon_ev, 0.5);
  const double n_eff2 = MILL_LINE_H_ION_EV * z2 / bind_up;
  /* Cowley 1971, Observatory 91, 139 */
  out->gamma_stark = (float)(1e-8 * n_eff2 * n_eff2 * sqrt(n_eff2) / z2);
  /* Unsoeld's approximation, as in Gray 2005, eq. 11.29, with C6 ~ z2 / binding^2 */
  const double c6 = z2 * (1.0 / (bind_up * bind_up) - 1.0 / (bind_low * bind_low));
  out->gamma_waals = (float)(in->log_gamma6 != 0.0f ? pow(10.0, in->log_gamma6)
                                                    : 1.35e-7 * pow(fmax(c6, 1e-3), 0.4));
}

/** Row of a value in a table that grows with it. */
static int intern(int value, int *table, int *n)
{
  for (int i = 0; i < *n; i++)
    if (table[i] == value)
      return i;
  table[*n] = value;
  return (*n)++;
}

static int add_lines(mill_line_model *model)
{
  MILL_CHECK(MILL_ALLOC(mill_line_list_n, &model->line));
  MILL_CHECK(MILL_ALLOC(2 * MILL_LINE_N_ELEMENT + 1, &model->species));
  MILL_CHECK(MILL_ALLOC(MILL_LINE_N_ELEMENT + 1, &model->mass));
  const double reach = MAX_REACH_LN / MILL_LINE_LN_STEP;
  for (int i = 0; i < mill_line_list_n; i++) {
    const mill_line *in = &mill_line_list[i];
    line out;
    out.index = i;
    out.pixel = (log((double)in->wave_aa) - model->ln_wave0) / MILL_LINE_LN_STEP;
    const int is_ch = in->species == MILL_LINE_CH;
    const int i_element = is_ch ? -1 : mill_line_element_find(in->species / 100);
    if (!is_ch && (i_element < 0 || in->species % 100 > 1))
      return MILL_ERROR(
          MILL_ERR_INTERNAL,
          "line list: species %d has no row in src/line_model/line_elements.inc; make the "
          "list again",
          in->species);
    if (out.pixel < -reach || out.pixel > model->n_pix - 1 + reach)
      continue;
    const double cm = in->wave_aa * 1e-8, pixel = MILL_LINE_C_CM * MILL_LINE_LN_STEP;
    out.ln_strength = (float)log(LINE_CONST * pow(10.0, in->log_gf) * cm / (SQRT_PI * pixel));
    out.low_k = (float)(in->e_low_ev / MILL_LINE_K_EV);
    out.photon_k = (float)(MILL_LINE_HC_K / cm);
    out.damp = (float)(cm / (4.0 * M_PI * pixel));
    line_widths(in, i_element, &out);
    out.species = intern(in->species, model->species, &model->n_species);
    out.mass = intern(i_element, model->mass, &model->n_mass);
    model->line[model->n_line++] = out;
  }
  return MILL_OK;
}

static void add_hydrogen(mill_line_model *model)
{
  /* absorption oscillator strengths of levels 2 and 3, from level + 1 up (Gordon 1929) */
  static const double f[2][22] = {
      {0.64075,    0.11932,    0.04467,    0.022093,   0.012705,   0.0080356,
       0.0054289,  0.0038506,  0.0028354,  0.002151,   0.0016719,  0.0013262,
       0.0010702,  0.00087645, 0.00072701, 0.00060986, 0.00051669, 0.00044164,
       0.00038051, 0.00033019, 0.0002884,  0.00025339},
      {0.8421,     0.15058,    0.05584,    0.027685,   0.016036,   0.010234,
       0.0069797,  0.0049964,  0.0037115,  0.0028388,  0.0022236,  0.0017763,
       0.0014428,  0.0011887,  0.00099158, 0.00083612, 0.00071181, 0.00061115,
       0.00052875, 0.00046062, 0.00040378, 0.0}};
  /* Stark coefficients of the first three lines; the rest by the formula */
  static const double stark[2][3] = {{0.0090190, 0.0177200, 0.0250700},
                                     {0.1001000, 0.1710000, 0.2230000}};
  /* Barklem, Piskunov & O'Mara 2000, A&A 355, L5: H alpha, beta, gamma */
  static const double self[3][2] = {{1180.0, 0.677}, {2320.0, 0.455}, {4208.0, 0.380}};
  for (int lower = 2; lower <= 3; lower++)
    for (int upper = lower + 1; upper <= H_MAX_UPPER; upper++) {
      hydrogen_line h = {.lower = lower, .upper = upper};
      const double n2 = (double)lower * lower, m2 = (double)upper * upper;
      h.wave_aa = MILL_LINE_H_LIMIT / (1.0 / n2 - 1.0 / m2);
      const double x = (log(h.wave_aa) - model->ln_wave0) / MILL_LINE_LN_STEP;
      const double reach = H_FAR_LN / MILL_LINE_LN_STEP + N_BATCH;
      if (x < -reach || x > model->n_pix - 1 + reach)
        continue;
      const int step = upper - lower;
      h.f = f[lower - 2][step - 1];
      h.stark_aa = step <= 3 ? stark[lower - 2][step - 1]
                             : 5.5e-5 * n2 * n2 * m2 * m2 / (m2 - n2) / (1.0 + 0.13 / step);
      const int i_self = upper < 5 ? upper - 3 : 2;
      h.self_a0 = self[i_self][0];
      h.self_power = self[i_self][1];
      model->hydrogen[model->n_hydrogen++] = h;
    }
}

int mill_line_model_create(double ln_wave0, int n_pix, mill_line_model **out)
{
  int err = MILL_OK;
  mill_line_model *model = NULL;
  *out = NULL;
  const double slack = 1e-9, last = ln_wave0 + (n_pix - 1) * MILL_LINE_LN_STEP;
  if (!(n_pix >= 2 && ln_wave0 >= log(MILL_LINE_MIN_WAVE_AA) - slack &&
        last <= log(MILL_LINE_MAX_WAVE_AA) + slack))
    MILL_FAIL(MILL_ERR_RANGE,
              "line model: %d pixels from ln wavelength %.6g are not inside %.0f to %.0f A", n_pix,
              ln_wave0, MILL_LINE_MIN_WAVE_AA, MILL_LINE_MAX_WAVE_AA);
  MILL_TRY(MILL_ALLOC(1, &model));
  model->ln_wave0 = ln_wave0;
  model->n_pix = n_pix;
  model->node0 = (long)floor(ln_wave0 / NODE_LN_STEP);
  model->n_node = (int)((long)floor(last / NODE_LN_STEP) - model->node0) + 2;
  MILL_TRY(MILL_ALLOC(model->n_node, &model->first));
  MILL_TRY(MILL_ALLOC(model->n_node, &model->wave));
  int pixel = 0;
  for (int k = 0; k < model->n_node; k++) {
    const double ln_wave = (double)(model->node0 + k) * NODE_LN_STEP;
    while (pixel < n_pix && ln_wave0 + pixel * MILL_LINE_LN_STEP < ln_wave)
      pixel++;
    model->first[k] = pixel;
    mill_line_cont_wave_init(exp(ln_wave), &model->wave[k]);
  }
  model->first[model->n_node - 1] = n_pix; /* the last pixel may lie on the last node but one */
  MILL_TRY(add_lines(model));
  add_hydrogen(model);
  *out = model;
  model = NULL;
done:
  mill_line_model_destroy(model);
  return err;
}

void mill_line_model_scatter(mill_line_model *model, double scatter, uint64_t seed)
{
  for (int i = 0; i < model->n_line; i++) {
    mill_random random;
    mill_random_begin(&random, seed, (uint64_t)model->line[i].index, SCATTER_STREAM);
    model->line[i].ln_strength += (float)(scatter * mill_random_normal(&random));
  }
}

void mill_line_model_destroy(mill_line_model *model)
{
  if (!model)
    return;
  MILL_FREE(model->first, model->line, model->species, model->mass, model->wave, model);
}

int mill_line_model_n_pix(const mill_line_model *model)
{
  return model->n_pix;
}

double mill_line_model_ln_wave0(const mill_line_model *model)
{
  return model->ln_wave0;
}

void mill_line_model_count(const mill_line_model *model, int *n_atomic, int *n_molecular)
{
  (void)model; /* every model has the whole list */
  *n_molecular = 0;
  for (int i = 0; i < mill_line_list_n; i++)
    *n_molecular += mill_line_list[i].species == MILL_LINE_CH;
  *n_atomic = mill_line_list_n - *n_molecular;
}

/* ---- What the star gives ---------------------------------------------------- */

/** Tables of one star.  Opacities are in units of the Rosseland mean of the layer,
 *  widths in pixels. */
typedef struct star {
  mill_line_atmosphere atmosphere;
  layers inv_t, n_e, n_perturb;    /**< 1 / K; / cm3 with the temperature factor of the width */
  layers weight;                   /**< of a layer in the depth of a weak line */
  layers *ln_number;               /**< [n_species] ln(number / partition function / rho kappa) */
  layers *doppler, *inv_doppler;   /**< [n_mass] */
  layers *node_cont, *node_planck; /**< [n_node] */
  layers *pixel;                   /**< [n_pix] opacity of lines */
  /* optical depth of an interval: below[d] x opacity above + above[d + 1] x opacity below */
  float above[N_LAYER], below[N_LAYER], top;
} star;

/** Optical depth between layers, for an opacity that is linear in ln tau. */
static void depth_weights(star *s)
{
  double tau[N_LAYER];
  for (int d = 0; d < N_LAYER; d++)
    tau[d] = pow(10.0, mill_line_log_tau[d]);
  s->top = (float)tau[0];
  s->above[0] = s->below[N_LAYER - 1] = 0.0f;
  for (int d = 0; d + 1 < N_LAYER; d++) {
    const double h = log(tau[d + 1] / tau[d]), all = tau[d + 1] - tau[d];
    const double lower = tau[d + 1] - all / h; /* tau [(h - 1) e^h + 1] / h */
    s->above[d + 1] = (float)lower;
    s->below[d] = (float)(all - lower);
  }
  for (int d = 0; d < N_LAYER; d++)
    s->weight.v[d] = (float)((s->above[d] + s->below[d] + (d == 0 ? s->top : 0.0f)) * exp(-tau[d]));
}

/** Microturbulence, cm / s. */
static double microturbulence(const double *label)
{
  return (2.5 - 0.2 * label[MILL_LINE_LOGG]) * KM_S;
}

static void star_tables(const mill_line_model *model, const double *label, star *s)
{
  const mill_line_atmosphere *atm = &s->atmosphere;
  const double xi = microturbulence(label);
  const int he = mill_line_element_find(2);
  for (int d = 0; d < N_LAYER; d++) {
    const mill_line_gas *gas = &atm->gas[d];
    const double norm = gas->rho * atm->kappa[d];
    s->inv_t.v[d] = (float)(1.0 / gas->t);
    s->n_e.v[d] = (float)(gas->n_e * pow(gas->t / 1e4, 1.0 / 6.0));
    s->n_perturb.v[d] = (float)((gas->n_h + HE_POLARISABLE * gas->n_nuclei * atm->mix.number[he]) *
                                pow(gas->t / 1e4, 0.35));
    for (int i = 0; i < model->n_species; i++) {
      const int code = model->species[i];
      double n[2];
      if (code == MILL_LINE_CH)
        n[0] = mill_line_gas_ch(&atm->mix, gas);
      else
        mill_line_gas_stage(&atm->mix, gas, mill_line_element_find(code / 100), &n[0], &n[1]);
      s->ln_number[i].v[d] = (float)log(n[code == MILL_LINE_CH ? 0 : code % 100] / norm);
    }
    for (int i = 0; i < model->n_mass; i++) {
      const double mass = model->mass[i] < 0 ? 13.018 : mill_line_element_of[model->mass[i]].mass;
      const double v2 = 2.0 * MILL_LINE_K_ERG * gas->t / (mass * MILL_LINE_M_U) + xi * xi;
      s->doppler[i].v[d] = (float)(sqrt(v2) / (MILL_LINE_C_CM * MILL_LINE_LN_STEP));
      s->inv_doppler[i].v[d] = 1.0f / s->doppler[i].v[d];
    }
  }
}

static void star_nodes(const mill_line_model *model, star *s)
{
  for (int d = 0; d < N_LAYER; d++) {
    const mill_line_gas *gas = &s->atmosphere.gas[d];
    const double norm = 1.0 / (gas->rho * s->atmosphere.kappa[d]);
    mill_line_cont_gas g;
    mill_line_cont_gas_init(gas, &g);
    for (int k = 0; k < model->n_node; k++) {
      s->node_cont[k].v[d] = (float)(norm * mill_line_cont_opacity(&model->wave[k], &g));
      s->node_planck[k].v[d] = (float)mill_line_planck(model->wave[k].wave_aa, gas->t);
    }
  }
}

/* ---- Hydrogen lines --------------------------------------------------------- */

/** Profile of a hydrogen line in the layers, x in pixels:
 *  stark / (|x|^2.5 + b^2.5) + lorentz / (x^2 + b^2) + gauss exp(-x^2 inv_width2). */
typedef struct hydrogen_profile {
  layers b2, b25, stark, lorentz, gauss, inv_width2;
  float gauss_reach; /**< beyond it the Gaussian is nothing */
} hydrogen_profile;

static void hydrogen_init(const hydrogen_line *h, const star *s, double xi, hydrogen_profile *p)
{
  const double n2 = (double)h->lower * h->lower;
  const double cm = h->wave_aa * 1e-8;
  double widest = 0.0;
  for (int d = 0; d < N_LAYER; d++) {
    const mill_line_gas *gas = &s->atmosphere.gas[d];
    const double t = gas->t;
    const double level =
        gas->n_h * n2 * exp(-MILL_LINE_H_ION_EV * (1.0 - 1.0 / n2) / (MILL_LINE_K_EV * t));
    const double alive = exp(-(gas->n_e + MILL_LINE_DISSOLVE_NE) * pow(h->upper, 7.5) /
                             pow(10.0, MILL_LINE_DISSOLVE_LOG));
    const double all = LINE_CONST * h->f * level * alive * (1.0 - exp(-MILL_LINE_HC_K / (cm * t))) *
                       cm / (MILL_LINE_C_CM * MILL_LINE_LN_STEP) /
                       (gas->rho * s->atmosphere.kappa[d]);
    /* widths in pixels */
    const double stark = 2.5047 * h->stark_aa * 1.25e-9 * pow(gas->n_e, 2.0 / 3.0) /
                         (h->wave_aa * MILL_LINE_LN_STEP);
    const double v_mean = sqrt(8.0 * MILL_LINE_K_ERG * t / (M_PI * 0.504 * MILL_LINE_M_U));
    const double v_ratio = v_mean / 1e6, a0_2 = 2.8002852e-17;
    const double self = gas->n_h * pow(4.0 / M_PI, 0.5 * h->self_power) *
                        tgamma(2.0 - 0.5 * h->self_power) * v_mean * h->self_a0 * a0_2 *
                        pow(v_ratio, -h->self_power);
    const double lorentz = (self + 3e8) * cm / (2.0 * M_PI * MILL_LINE_C_CM * MILL_LINE_LN_STEP);
    const double width = sqrt(2.0 * MILL_LINE_K_ERG * t / (1.008 * MILL_LINE_M_U) + xi * xi) /
                         (MILL_LINE_C_CM * MILL_LINE_LN_STEP);
    /* a sum of widths keeps the parts of both wings together below one */
    const double b = stark + lorentz + width;
    const double part = stark / b * sqrt(stark / b) + lorentz / b;
    p->b2.v[d] = (float)(b * b);
    p->b25.v[d] = (float)(b * b * sqrt(b));
    p->stark.v[d] = (float)(all * 0.378413 * stark * sqrt(stark));
    p->lorentz.v[d] = (float)(all * lorentz / M_PI);
    p->gauss.v[d] = (float)(all * (1.0 - part) / (SQRT_PI * width));
    p->inv_width2.v[d] = (float)(1.0 / (width * width));
    widest = fmax(widest, width);
  }
  p->gauss_reach = (float)(6.0 * widest);
}

/** Add weight x the profile at x pixels. */
static inline void hydrogen_add(const hydrogen_profile *p, float x, float weight, layers *out)
{
  const float x2 = x * x, x25 = x2 * sqrtf(fabsf(x));
  for (int d = 0; d < N_LAYER; d++)
    out->v[d] +=
        weight * (p->stark.v[d] / (x25 + p->b25.v[d]) + p->lorentz.v[d] / (x2 + p->b2.v[d]));
  if (x2 < p->gauss_reach * p->gauss_reach)
    for (int d = 0; d < N_LAYER; d++)
      out->v[d] += weight * p->gauss.v[d] * exp_fast(-x2 * p->inv_width2.v[d]);
}

/** 1 inside, 0 at the end of a window, y = (distance / reach)^2. */
static inline float window(float y)
{
  const float y2 = y * y, u = 1.0f - y2 * y2;
  return u * u;
}

WIDE static void add_hydrogen_lines(const mill_line_model *model, const double *label, star *s)
{
  const double xi = microturbulence(label);
  const double near = H_NEAR_LN / MILL_LINE_LN_STEP, far = H_FAR_LN / MILL_LINE_LN_STEP;
  const double node_step = NODE_LN_STEP / MILL_LINE_LN_STEP;
  for (int i = 0; i < model->n_hydrogen; i++) {
    const hydrogen_line *h = &model->hydrogen[i];
    hydrogen_profile p;
    hydrogen_init(h, s, xi, &p);
    const double centre = (log(h->wave_aa) - model->ln_wave0) / MILL_LINE_LN_STEP;
    const double origin = (double)model->node0 * NODE_LN_STEP - model->ln_wave0;
    const double node_centre = centre / node_step - origin / NODE_LN_STEP;
    const int k0 = (int)fmax(ceil(node_centre - far / node_step), 0.0);
    const int k1 = (int)fmin(floor(node_centre + far / node_step), model->n_node - 1.0);
    for (int k = k0; k <= k1; k++) {
      const double x = (k - node_centre) * node_step, y = x * x / (far * far);
      const double u = x * x / (near * near);
      const double part = u < 1.0 ? 1.0 - (1.0 - u) * (1.0 - u) : 1.0;
      hydrogen_add(&p, (float)x, (float)part * window((float)y), &s->node_cont[k]);
    }
    const int p0 = (int)fmax(ceil(centre - near), 0.0);
    const int p1 = (int)fmin(floor(centre + near), model->n_pix - 1.0);
    for (int k = p0; k <= p1; k++) {
      const double x = k - centre, u = x * x / (near * near);
      hydrogen_add(&p, (float)x, (float)((1.0 - u) * (1.0 - u)), &s->pixel[k]);
    }
  }
}

/* ---- Metal lines ------------------------------------------------------------ */

WIDE static void add_line(const line *l, int n_pix, const star *s, layers *pixel)
{
  const layers *number = &s->ln_number[l->species];
  const layers inv = s->inv_doppler[l->mass], doppler = s->doppler[l->mass];
  layers strength, a;
  float core = 0.0f, wing = 0.0f;
  for (int d = 0; d < N_LAYER; d++) {
    const float it = s->inv_t.v[d];
    strength.v[d] = exp_fast(l->ln_strength + number->v[d] - l->low_k * it) *
                    (1.0f - exp_fast(-l->photon_k * it)) * inv.v[d];
    const float gamma =
        l->gamma_rad + l->gamma_stark * s->n_e.v[d] + l->gamma_waals * s->n_perturb.v[d];
    a.v[d] = gamma * l->damp * inv.v[d];
  }
  for (int d = 0; d < N_LAYER; d++) {
    core += s->weight.v[d] * strength.v[d];
    wing += s->weight.v[d] * strength.v[d] * a.v[d] * doppler.v[d] * doppler.v[d];
  }
  /* where the opacity falls below MIN_OPACITY, smooth in everything */
  const double width2 = 1.3 * doppler.v[WIDTH_LAYER] * doppler.v[WIDTH_LAYER];
  double reach2 = width2 * log1p(core / MIN_OPACITY) + wing / (SQRT_PI * MIN_OPACITY);
  const double max2 = (MAX_REACH_LN / MILL_LINE_LN_STEP) * (MAX_REACH_LN / MILL_LINE_LN_STEP);
  reach2 = reach2 / (1.0 + reach2 / max2);
  const double reach = sqrt(reach2);
  const int i0 = (int)fmax(ceil(l->pixel - reach), 0.0);
  const int i1 = (int)fmin(floor(l->pixel + reach), n_pix - 1.0);
  if (i0 > i1)
    return;

  /* far from the centre three terms of the asymptotic series do */
  float far = 0.0f;
  layers c1, c2, c3;
  for (int d = 0; d < N_LAYER; d++) {
    const float w2 = doppler.v[d] * doppler.v[d], a2 = a.v[d] * a.v[d];
    c1.v[d] = strength.v[d] * a.v[d] * w2 * (float)(1.0 / SQRT_PI);
    c2.v[d] = c1.v[d] * w2 * (1.5f - a2);
    c3.v[d] = c1.v[d] * w2 * w2 * (3.75f + a2 * (a2 - 5.0f));
    const float f = doppler.v[d] * (6.0f + 4.0f * a.v[d]);
    far = f > far ? f : far;
  }
  const float inv_reach2 = (float)(1.0 / reach2);
  for (int i = i0; i <= i1; i++) {
    const float x = (float)(i - l->pixel), x2 = x * x, cut = window(x2 * inv_reach2);
    layers *out = &pixel[i];
    if (x > far || x < -far) {
      const float q = 1.0f / x2, w = cut * q;
      for (int d = 0; d < N_LAYER; d++)
        out->v[d] += w * (c1.v[d] + q * (c2.v[d] + q * c3.v[d]));
    } else {
      for (int d = 0; d < N_LAYER; d++)
        out->v[d] += cut * strength.v[d] * mill_line_voigt(a.v[d], x * inv.v[d]);
    }
  }
}

/* ---- Radiation -------------------------------------------------------------- */

/** Flux of a batch from opacities and source functions, layer by layer: two rays, and
 *  along each I = S(top) + sum dS <exp(-t)>, the mean after Simpson with t linear in S. */
WIDE static void emergent(const star *s, float opacity[N_LAYER][N_BATCH],
                          float source[N_LAYER][N_BATCH], double *flux)
{
  const double root6 = sqrt(6.0);
  const float half_sec[2] = {(float)(5.0 / (6.0 - root6)), (float)(5.0 / (6.0 + root6))};
  const float weight[2] = {(float)(2.0 * M_PI * (0.25 - root6 / 36.0)),
                           (float)(2.0 * M_PI * (0.25 + root6 / 36.0))};
  float depth[N_BATCH], last[2][N_BATCH], sum[2][N_BATCH];
  for (int i = 0; i < N_BATCH; i++) {
    depth[i] = opacity[0][i] * s->top;
    for (int k = 0; k < 2; k++) {
      last[k][i] = exp_fast(-depth[i] * half_sec[k]);
      sum[k][i] = 0.0f;
    }
  }
  for (int d = 1; d < N_LAYER; d++) {
    const float below = s->below[d - 1], above = s->above[d];
    for (int i = 0; i < N_BATCH; i++)
      depth[i] += below * opacity[d - 1][i] + above * opacity[d][i];
    for (int k = 0; k < 2; k++)
      for (int i = 0; i < N_BATCH; i++) {
        const float e = exp_fast(-depth[i] * half_sec[k]), p = last[k][i];
        sum[k][i] += (source[d][i] - source[d - 1][i]) * (p * p + 4.0f * p * e + e * e);
        last[k][i] = e;
      }
  }
  for (int i = 0; i < N_BATCH; i++)
    flux[i] = (weight[0] + weight[1]) * source[0][i] +
              (weight[0] * sum[0][i] + weight[1] * sum[1][i]) * (1.0f / 6.0f);
}

/** Pixels between nodes k and k + 1 from quantities on the nodes. */
static inline double node_part(const mill_line_model *model, int k, int i_pix)
{
  const double ln_wave = model->ln_wave0 + i_pix * MILL_LINE_LN_STEP;
  return ln_wave / NODE_LN_STEP - (double)(model->node0 + k);
}

/** Continuum flux on the nodes, linear in between. */
static void solve_continuum(const mill_line_model *model, const star *s, double *node_flux,
                            double *cont)
{
  float opacity[N_LAYER][N_BATCH], source[N_LAYER][N_BATCH];
  double flux[N_BATCH];
  for (int k0 = 0; k0 < model->n_node; k0 += N_BATCH) {
    const int n = k0 + N_BATCH <= model->n_node ? N_BATCH : model->n_node - k0;
    for (int i = 0; i < N_BATCH; i++)
      for (int d = 0; d < N_LAYER; d++) {
        const int k = k0 + (i < n ? i : n - 1);
        opacity[d][i] = s->node_cont[k].v[d];
        source[d][i] = s->node_planck[k].v[d];
      }
    emergent(s, opacity, source, flux);
    memcpy(node_flux + k0, flux, (size_t)n * sizeof *flux);
  }
  for (int k = 0; k + 1 < model->n_node; k++)
    for (int i = model->first[k]; i < model->first[k + 1]; i++) {
      const double f = node_part(model, k, i);
      cont[i] = (1.0 - f) * node_flux[k] + f * node_flux[k + 1];
    }
}

static void solve_pixels(const mill_line_model *model, const star *s, double *out)
{
  float opacity[N_LAYER][N_BATCH], source[N_LAYER][N_BATCH], part[N_BATCH];
  double flux[N_BATCH];
  for (int k = 0; k + 1 < model->n_node; k++) {
    const int i0 = model->first[k], n = model->first[k + 1] - i0;
    if (n == 0)
      continue;
    for (int i = 0; i < N_BATCH; i++) {
      const int i_pix = i0 + (i < n ? i : n - 1); /* fill up with the last one */
      part[i] = (float)node_part(model, k, i_pix);
      for (int d = 0; d < N_LAYER; d++)
        opacity[d][i] = s->pixel[i_pix].v[d];
    }
    const layers *c0 = &s->node_cont[k], *c1 = c0 + 1, *b0 = &s->node_planck[k], *b1 = b0 + 1;
    for (int d = 0; d < N_LAYER; d++) {
      const float dc = c1->v[d] - c0->v[d], db = b1->v[d] - b0->v[d];
      for (int i = 0; i < N_BATCH; i++) {
        opacity[d][i] += c0->v[d] + part[i] * dc;
        source[d][i] = b0->v[d] + part[i] * db;
      }
    }
    emergent(s, opacity, source, flux);
    memcpy(out + i0, flux, (size_t)n * sizeof *flux);
  }
}

int mill_line_model_flux(const mill_line_model *model, const double *label, double *flux,
                         double *cont)
{
  int err = MILL_OK;
  star s = {.ln_number = NULL};
  double *node_flux = NULL;
  for (int i = 0; i < MILL_LINE_N_LABEL; i++) {
    const mill_line_label_info *info = &mill_line_label_info_of[i];
    if (!(label[i] >= info->min && label[i] <= info->max))
      MILL_FAIL(MILL_ERR_RANGE, "line model: %s = %g is outside %g to %g %s", info->name, label[i],
                info->min, info->max, info->unit);
  }
  MILL_TRY(MILL_ALLOC(model->n_species, &s.ln_number));
  MILL_TRY(MILL_ALLOC(model->n_mass, &s.doppler));
  MILL_TRY(MILL_ALLOC(model->n_mass, &s.inv_doppler));
  MILL_TRY(MILL_ALLOC(model->n_node, &s.node_cont));
  MILL_TRY(MILL_ALLOC(model->n_node, &s.node_planck));
  MILL_TRY(MILL_ALLOC(model->n_pix, &s.pixel));
  MILL_TRY(MILL_ALLOC(model->n_node, &node_flux));
  mill_line_atmosphere_solve(label, &s.atmosphere);
  depth_weights(&s);
  star_tables(model, label, &s);
  star_nodes(model, &s);
  if (cont)
    solve_continuum(model, &s, node_flux, cont);
  add_hydrogen_lines(model, label, &s);
  for (int i = 0; i < model->n_line; i++)
    add_line(&model->line[i], model->n_pix, &s, s.pixel);
  solve_pixels(model, &s, flux);
done:
  MILL_FREE(s.ln_number, s.doppler, s.inv_doppler, s.node_cont, s.node_planck, s.pixel, node_flux);
  return err;
}
