/** Atmosphere and continuous opacity of the line model (docs/science/line-model.md).
 *
 *  FOR DEMONSTRATION AND TESTS, NOT FOR SCIENCE.  Internal to the line model; cgs
 *  units, temperatures in K, energies in eV.
 */
#ifndef MILL_LINE_ATMOSPHERE_H
#define MILL_LINE_ATMOSPHERE_H

enum {
  MILL_LINE_N_LAYER = 16,   /**< layers of the formal solution */
  MILL_LINE_N_ELEMENT = 51, /**< rows of src/line_model/line_elements.inc */
  MILL_LINE_N_H_EDGE = 8    /**< levels of hydrogen with an edge of their own */
};

#define MILL_LINE_K_ERG    1.380649e-16
#define MILL_LINE_K_EV     8.617333262e-5
#define MILL_LINE_H_ERG    6.62607015e-27
#define MILL_LINE_C_CM     2.99792458e10
#define MILL_LINE_M_U      1.66053907e-24
#define MILL_LINE_HC_K     1.438776877 /**< h c / k, cm K */
#define MILL_LINE_H_ION_EV 13.5984
#define MILL_LINE_H_LIMIT  911.7533 /**< limit of the Lyman series, vacuum A */

/** One row of src/line_model/line_elements.inc. */
typedef struct mill_line_element {
  int z;
  char symbol[4];
  double mass;        /**< atomic mass units */
  double abundance;   /**< solar log10 of the number per 10^12 hydrogen atoms */
  double ion_ev[2];   /**< energies of the first and second ionisation */
  double part[2][5];  /**< ln of the partition functions of atom and ion as
                           polynomials in ln(T / 5000 K) */
  double part_second; /**< ln of the one of the second ion, constant */
} mill_line_element;

extern const mill_line_element mill_line_element_of[MILL_LINE_N_ELEMENT];

/** Row of an element, -1 when there is none. */
int mill_line_element_find(int z);

/** What depends on the composition alone. */
typedef struct mill_line_mix {
  double number[MILL_LINE_N_ELEMENT]; /**< atoms per hydrogen atom */
  double sum_number, sum_mass;        /**< of number, of number x mass / u */
} mill_line_mix;

void mill_line_mix_init(double feh, double alpha, mill_line_mix *mix);

/** Gas of one temperature. */
typedef struct mill_line_gas {
  double t, p;     /**< K, dyn / cm2 */
  double n_e;      /**< electrons / cm3 */
  double n_nuclei; /**< hydrogen nuclei / cm3 */
  double n_h, n_p; /**< neutral hydrogen, protons / cm3 */
  double rho;      /**< g / cm3 */
} mill_line_gas;

/** ln of the partition function of stage 0, 1 or 2 of element row i. */
double mill_line_partition(int i, int stage, double t);

/** n(stage + 1) n_e / n(stage) of element row i, / cm3. */
double mill_line_saha(int i, int stage, double t);

/** Electron density and the rest from temperature and pressure. */
void mill_line_gas_solve(const mill_line_mix *mix, double t, double p, mill_line_gas *gas);

/** Numbers of element row i per cm3 in stages 0 and 1, divided by the partition function. */
void mill_line_gas_stage(const mill_line_mix *mix, const mill_line_gas *gas, int i, double *neutral,
                         double *ion);

/** CH molecules per cm3 divided by their partition function. */
double mill_line_gas_ch(const mill_line_mix *mix, const mill_line_gas *gas);

/** What depends on the wavelength alone in the continuous opacity. */
typedef struct mill_line_cont_wave {
  double wave_aa;
  double h_minus_bf;                       /**< cross-section, cm2 */
  double h_minus_ff[6];                    /**< John's sums over the wavelength, cm4 / dyn */
  double h_bf[MILL_LINE_N_H_EDGE + 1];     /**< n^2 x cross-section of level n, cm2 */
  double dissolve[MILL_LINE_N_H_EDGE + 1]; /**< n_eff^7.5 / 10^23.26 beyond the edge of
                                              level n; < 0 on its blue side */
  double rayleigh;                         /**< cm2 per neutral hydrogen atom */
} mill_line_cont_wave;

void mill_line_cont_wave_init(double wave_aa, mill_line_cont_wave *w);

/** Cross-section of H- for ionisation by light, cm2 (John 1988). */
double mill_line_h_minus_bf(double wave_aa);

/** Factors of the continuous opacity that depend on the gas alone. */
typedef struct mill_line_cont_gas {
  double h_minus_bf, h_minus_ff[6], h_bf[MILL_LINE_N_H_EDGE + 1], h_rest, h_free, thomson, n_h, n_e,
      t;
} mill_line_cont_gas;

void mill_line_cont_gas_init(const mill_line_gas *gas, mill_line_cont_gas *g);

/** Continuous opacity, / cm. */
double mill_line_cont_opacity(const mill_line_cont_wave *w, const mill_line_cont_gas *g);

/** Planck function, erg / (s cm2 A sr). */
double mill_line_planck(double wave_aa, double t);

/** A level n of hydrogen is alive with probability exp(-(n_e + NE) n^7.5 / 10^LOG): after
 *  Inglis & Teller's last line, log n_e = 23.26 - 7.5 log n, made smooth; NE ends the
 *  series where the lines of the model end. */
#define MILL_LINE_DISSOLVE_LOG 23.26
#define MILL_LINE_DISSOLVE_NE  2.5e13

/** Temperature at Rosseland optical depth tau. */
double mill_line_temperature(double teff, double tau);

/** A model atmosphere at the layers of the formal solution. */
typedef struct mill_line_atmosphere {
  mill_line_mix mix;
  mill_line_gas gas[MILL_LINE_N_LAYER];
  double kappa[MILL_LINE_N_LAYER]; /**< Rosseland mean, cm2 / g */
} mill_line_atmosphere;

/** log10 of the Rosseland optical depth of the layers. */
extern const double mill_line_log_tau[MILL_LINE_N_LAYER];

/** label as in line_model.h, inside its ranges. */
void mill_line_atmosphere_solve(const double *label, mill_line_atmosphere *out);

#endif
