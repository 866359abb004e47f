/* SPDX-License-Identifier: BSD-3-Clause */
/** SDSS and BOSS: spec-PLATE-MJD-FIBER files, the coadd or single exposures.
 *
 *  mill_format_sdss is declared in io/surveys/spectra.h; here is what tests and
 *  messages need to know of it.  docs/use/input.md has the rules. */
#ifndef MILL_SDSS_H
#define MILL_SDSS_H

/** Pixels with one of these SPPIXMASK bits are bad, whatever their ivar.
 *  Of the fibre: what makes its trace, flat or wavelengths worthless.  Of the pixel:
 *  rejected, without sky or dominated by it, or calibrated by next to nothing.
 *  NODATA is left out: SDSS asks since DR9 to go by ivar = 0 instead. */
#define MILL_SDSS_BITS(X)                                                                          \
  X(NOPLUG, 0)                                                                                     \
  X(BADTRACE, 1)                                                                                   \
  X(BADFLAT, 2)                                                                                    \
  X(BADARC, 3)                                                                                     \
  X(MANYBADCOLUMNS, 4)                                                                             \
  X(MANYREJECTED, 5)                                                                               \
  X(FULLREJECT, 18)                                                                                \
  X(NOSKY, 22)                                                                                     \
  X(BRIGHTSKY, 23)                                                                                 \
  X(COMBINEREJ, 25)                                                                                \
  X(BADFLUXFACTOR, 26)                                                                             \
  X(BADSKYCHI, 27)                                                                                 \
  X(REDMONSTER, 28)

#define MILL_SDSS_ENUM(name, bit) MILL_SDSS_##name = 1 << (bit),
#define MILL_SDSS_OR(name, bit)   MILL_SDSS_##name |
enum {
  MILL_SDSS_BITS(MILL_SDSS_ENUM) MILL_SDSS_BAD = MILL_SDSS_BITS(MILL_SDSS_OR) 0,
  /** set by the reader, SPPIXMASK has no such bit: wdisp is no width there */
  MILL_SDSS_NO_WDISP = 1 << 30
};
#undef MILL_SDSS_ENUM
#undef MILL_SDSS_OR

/** Largest wdisp, in pixels, that can be true: 10 pixels are a resolving power of 185. */
#define MILL_SDSS_MAX_WDISP 10.0

#endif
