# SPDX-License-Identifier: BSD-3-Clause
"""rvmod of an input: its best-fit models, an image per arm with a row for each exposure."""

import h5py
import numpy as np

from starmill.cli.basics import OUTPUT, Failure
from starmill.products.product import head
from starmill.products.rvtab import PIECE, copy_rows


def arms(models, n_exposure):
    """Return {arm: (wavelengths, fluxes)}, datasets [n_pix] or [n_exposure][n_pix]."""
    found = {}
    for name, arm in models.file["models"].items():
        if isinstance(arm, h5py.Group):
            found[name] = wave, flux = arm.get("wavelength"), arm.get("flux")
            if wave is None or flux is None or flux.ndim != 2 or len(flux) != n_exposure \
                    or wave.shape not in (flux.shape, flux.shape[1:]):
                raise Failure(OUTPUT, f"{models.file.filename} is damaged: the shapes of "
                                      f"models/{name}")
    return found


def runs(rows, most):
    """Yield slices of consecutive rows, at most `most` each; rows ascend."""
    ends = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1), len(rows)]
    for a, b in zip(ends[:-1], ends[1:]):
        for at in range(a, b, most):
            yield slice(int(rows[at]), int(rows[min(at + most, b) - 1]) + 1)


def image(product, name, dataset, kind, rows, unit=None):
    """Append an image.  kind: numpy's big-endian type; rows: of the dataset, None if it is one
    row."""
    n_pix = dataset.shape[-1]
    axes = (n_pix,) if rows is None else (n_pix, len(rows))
    header = head("IMAGE", *axes, bitpix=-8 * np.dtype(kind).itemsize)
    header["EXTNAME"] = name.upper()
    if unit:
        header["BUNIT"] = unit
    most = max(1, PIECE // max(1, n_pix * np.dtype(kind).itemsize))
    slices = [...] if rows is None else runs(rows, most)
    product.append(header, (dataset[at].astype(kind).tobytes() for at in slices))


def write(product, result, models, file, spectra):
    """Write the models of an input; spectra: one entry per exposure."""
    rows = spectra.exposure
    for name, (wave, flux) in arms(models, len(result.catalog["exposures/FILE"])).items():
        # a single row gets one-dimensional wavelengths, as in rvspecfit
        own = wave.ndim == 2 and len(rows) != 1
        image(product, f"{name}_WAVELENGTH", wave if own or wave.ndim == 1 else wave[rows[0]],
              ">f8", rows if own else None, ("Angstrom", "in vacuum"))
        image(product, f"{name}_MODEL", flux, ">f4", rows)
    if file is not None:
        copy_rows(product, file, "FIBERMAP", spectra.input)
