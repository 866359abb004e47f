/** Synthetic spectra of stars from a small physical model (docs/science/line-model.md).
 *
 *  A plane-parallel grey atmosphere in hydrostatic equilibrium with Saha and
 *  Boltzmann populations, continuous opacity of H-, H and scattering, hydrogen
 *  lines, molecular CH and some thousands of metal lines.  FOR DEMONSTRATION AND
 *  TESTS, NOT FOR SCIENCE: real stars need real model atmospheres.
 *
 *  Range: Teff 4000 to 7500 K, log g 0.5 to 5 (cgs), [Fe/H] -3 to 0.5,
 *  [alpha/Fe] 0 to 0.4.  Smooth in all four labels (no switches), so that it can
 *  be interpolated.
 */
#ifndef MILL_LINE_MODEL_H
#define MILL_LINE_MODEL_H

#include <stdint.h>

enum { MILL_LINE_N_LABEL = 4 };

/** Order of the labels. */
enum mill_line_label { MILL_LINE_TEFF, MILL_LINE_LOGG, MILL_LINE_FEH, MILL_LINE_ALPHA };

/** Names, as in configuration files, ranges and units, in the order above. */
typedef struct mill_line_label_info {
  const char *name, *column, *unit;
  double min, max;
} mill_line_label_info;
extern const mill_line_label_info mill_line_label_info_of[MILL_LINE_N_LABEL];

/** Step of the model's own grid in ln wavelength (3.0 km/s), and its range in vacuum A. */
#define MILL_LINE_LN_STEP     1e-5
#define MILL_LINE_MIN_WAVE_AA 3400.0
#define MILL_LINE_MAX_WAVE_AA 10100.0

/** What depends on the wavelengths alone: line list, windows.  Read-only after
 *  creation, shared by threads. */
typedef struct mill_line_model mill_line_model;

/** For the n_pix wavelengths exp(ln_wave0 + i MILL_LINE_LN_STEP), vacuum A.
 *
 *  The flux is sampled there, not averaged, and weak lines are hardly wider than a step:
 *  spectra of two models agree pixel by pixel, and after a convolution, only where
 *  their pixels coincide.  So ln_wave0 should be a multiple of the step, as in the demo
 *  library and the simulator (docs/science/line-model.md); other values are taken as they are.
 *  MILL_ERR_RANGE outside the model's range or n_pix < 2, MILL_ERR_MEMORY. */
int mill_line_model_create(double ln_wave0, int n_pix, mill_line_model **out);
void mill_line_model_destroy(mill_line_model *model); /* NULL is allowed */

/** Make a model whose lines are wrong: the strength of each metal and molecular line times
 *  exp(scatter x), x standard normal, a function of the seed and the line alone.  Once, before
 *  the first spectrum. */
void mill_line_model_scatter(mill_line_model *model, double scatter, uint64_t seed);

int mill_line_model_n_pix(const mill_line_model *model);
double mill_line_model_ln_wave0(const mill_line_model *model);

/** Number of metal (atomic) lines and of molecular ones in the list. */
void mill_line_model_count(const mill_line_model *model, int *n_atomic, int *n_molecular);

/** Emergent surface flux of a star, intrinsic (no rotation, no instrument), float64.
 *
 *  label [4]        in   in the order of enum mill_line_label
 *  flux [n_pix]     out  erg / (s cm2 A)
 *  cont [n_pix]     out  the same without lines; may be NULL
 *
 *  Thread-safe.  MILL_ERR_RANGE outside the ranges or not finite,
 *  MILL_ERR_MEMORY; the output is then undefined. */
int mill_line_model_flux(const mill_line_model *model, const double *label, double *flux,
                         double *cont);

#endif
