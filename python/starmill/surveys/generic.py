# SPDX-License-Identifier: BSD-3-Clause
"""Put spectra of any origin into starmill's generic layout (docs/use/formats.md, "Generic input").

usage: make_generic.py --medium vacuum|air [--frame FRAME] [--unit UNIT] OUT.fits TABLE...

Each TABLE is a text file of one spectrum: wavelength, flux, error and, if there is a
fourth column, the Gaussian sigma of the line-spread function in the wavelength's unit.
Its name without the ending is the star's name.  From Python, write() takes arrays.
"""

import argparse
import os

import numpy as np
from astropy.io import fits


def vectors(name, spectra, code, unit=None):
    """A column of one vector a row, each as long as its spectrum."""
    rows = np.empty(len(spectra), object)
    for i, s in enumerate(spectra):
        rows[i] = np.asarray(s[name], {"D": "f8", "E": "f4", "K": "i8"}[code])
    return fits.Column(name, f"P{code}()", unit, array=rows)


def write(path, spectra, medium, frame=None, unit="Angstrom"):
    """Write spectra, a list of dictionaries with the layout's column names as keys:
    NAME, WAVELENGTH, FLUX, IVAR or ERROR and, in all of them or none, MASK, LSF_SIGMA,
    TARGETID, RA, DEC, MJD, ARM, EXPOSURE.  unit is that of wavelengths and LSF_SIGMA.
    """
    has = spectra[0].keys()
    columns = [vectors("WAVELENGTH", spectra, "D", unit)]
    columns += [vectors(k, spectra, code) for k, code in (
        ("FLUX", "E"), ("IVAR", "D"), ("ERROR", "E"), ("MASK", "K")) if k in has]
    columns += [vectors("LSF_SIGMA", spectra, "E", unit)] if "LSF_SIGMA" in has else []
    for name in ("NAME", "ARM"):
        if name in has:
            text = np.array([s[name] for s in spectra])
            columns.append(fits.Column(name, f"{max(map(len, text))}A", array=text))
    for name, code in (("TARGETID", "K"), ("RA", "D"), ("DEC", "D"), ("MJD", "D"),
                       ("EXPOSURE", "J")):
        if name in has:
            columns.append(fits.Column(name, code, array=np.array([s[name] for s in spectra])))
    table = fits.BinTableHDU.from_columns(columns, name="SPECTRA")
    table.header["MEDIUM"] = medium
    if frame:
        table.header["FRAME"] = frame
    table.writeto(path, overwrite=True)


def read_text(path):
    """One spectrum of a text file."""
    column = np.loadtxt(path, unpack=True, ndmin=2, encoding="utf-8-sig")
    if len(column) not in (3, 4):
        raise SystemExit(f"{path}: {len(column)} columns, not wavelength, flux, error, [sigma]")
    keys = ("WAVELENGTH", "FLUX", "ERROR", "LSF_SIGMA")
    return dict(zip(keys, column), NAME=os.path.splitext(os.path.basename(path))[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--medium", choices=("vacuum", "air"), required=True)
    parser.add_argument("--frame", choices=("barycentric", "heliocentric", "topocentric"))
    parser.add_argument("--unit", choices=("Angstrom", "nm", "um"), default="Angstrom")
    parser.add_argument("output")
    parser.add_argument("table", nargs="+")
    options = parser.parse_args()
    spectra = [read_text(path) for path in options.table]
    if len({len(s) for s in spectra}) > 1:
        raise SystemExit("some of the tables have a column of sigma and others have not")
    write(options.output, spectra, options.medium, options.frame, options.unit)


if __name__ == "__main__":
    main()
