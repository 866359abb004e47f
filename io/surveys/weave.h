/** WEAVE L1: row-stacked spectra of single exposures and of stacks, MOS and IFU alike.
 *
 *  mill_format_weave is declared in io/surveys/spectra.h; here is what tests and messages
 *  need to know of it.  docs/use/input.md has the rules.
 *
 *  flux = DATA SENSFUNC and ivar = IVAR / SENSFUNC^2; where SENSFUNC is no positive
 *  number the flux is left as DATA has it and ivar is 0. */
#ifndef MILL_WEAVE_H
#define MILL_WEAVE_H

/** A SENSFUNC of physical units (erg / s / cm2 / A a count) would bring 1 / flux^2 to the
 *  end of float32: where it stays below MILL_WEAVE_PHYSICAL everywhere in the first row that
 *  has one, fluxes of the file are counted in units of 1 / MILL_WEAVE_SCALE. */
#define MILL_WEAVE_PHYSICAL 1e-10
#define MILL_WEAVE_SCALE    1e17

#endif
