/** The generic layout: spectra of any origin, many stars a file, as docs/formats.md
 *  describes it ("Generic input"); tools/make_generic.py writes it.
 *
 *  mill_format_generic is declared in io/surveys/spectra.h; here is what tests and messages
 *  need to know of it. */
#ifndef MILL_GENERIC_H
#define MILL_GENERIC_H

/** Name of the channel of a row without ARM. */
#define MILL_GENERIC_CHANNEL "spectrum"

#endif
