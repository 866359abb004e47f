# SPDX-License-Identifier: BSD-3-Clause
"""Tables of spectra in the generic layout (docs/use/formats.md, "Generic input")."""

import numpy as np
from astropy.io import fits


def vectors(name, spectra, code, unit=None):
    """Return a column of vectors of variable length, one per spectrum.  code: FITS type."""
    rows = np.empty(len(spectra), object)
    for i, s in enumerate(spectra):
        rows[i] = np.asarray(s[name], {"D": "f8", "E": "f4", "K": "i8"}[code])
    return fits.Column(name, f"P{code}()", unit, array=rows)


def write(path, spectra, medium, frame=None, unit="Angstrom"):
    """Write spectra [{column: value}].  All need the same columns, at least NAME, WAVELENGTH, FLUX
    and IVAR or ERROR.  unit: of WAVELENGTH and LSF_SIGMA."""
    has = spectra[0].keys()
    columns = [vectors(name, spectra, code, own) for name, code, own in (
        ("WAVELENGTH", "D", unit), ("FLUX", "E", None), ("IVAR", "D", None), ("ERROR", "E", None),
        ("MASK", "K", None), ("LSF_SIGMA", "E", unit)) if name in has]
    for name in ("NAME", "ARM"):
        if name in has:
            text = np.array([s[name] for s in spectra])
            columns.append(fits.Column(name, f"{max(map(len, text))}A", array=text))
    for name, code in (("TARGETID", "K"), ("RA", "D"), ("DEC", "D"), ("MJD", "D"),
                       ("EXPOSURE", "J"), ("FLUX_SCALE", "D"), ("ERROR_ESTIMATED", "L")):
        if name in has:
            columns.append(fits.Column(name, code, array=np.array([s[name] for s in spectra])))
    table = fits.BinTableHDU.from_columns(columns, name="SPECTRA")
    table.header["MEDIUM"] = medium
    if frame:
        table.header["FRAME"] = frame
    table.writeto(path, overwrite=True)
