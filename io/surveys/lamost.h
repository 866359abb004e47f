/** LAMOST low-resolution files: the COADD table of DR8 and later, or the image of
 *  five rows of the releases before.
 *
 *  mill_format_lamost is declared in io/surveys/spectra.h; docs/use/input.md has the rules. */
#ifndef MILL_LAMOST_H
#define MILL_LAMOST_H

/** Rows of the image that the older releases have, and columns of COADD: names as
 *  the table has them. */
enum mill_lamost_row {
  MILL_LAMOST_FLUX,
  MILL_LAMOST_IVAR,
  MILL_LAMOST_WAVELENGTH,
  MILL_LAMOST_ANDMASK,
  MILL_LAMOST_ORMASK,
  MILL_LAMOST_N_ROW
};

#endif
