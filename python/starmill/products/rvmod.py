# SPDX-License-Identifier: BSD-3-Clause
"""`starmill export --to rvmod`: best-fit models of an input, an image per arm, a row per
exposure."""

import numpy as np

from starmill.products.product import head
from starmill.products.rvtab import PIECE, copy_rows


def runs(rows, most):
    """Yield slices of consecutive rows, at most `most` each; rows ascend."""
    ends = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1), len(rows)]
    for a, b in zip(ends[:-1], ends[1:]):
        for at in range(a, b, most):
            yield slice(int(rows[at]), int(rows[min(at + most, b) - 1]) + 1)


def image(product, name, dataset, kind, rows, unit=None):
    """Append an image.  kind: numpy's big-endian type; rows: of the dataset, None if one row."""
    n_pix = dataset.shape[-1]
    axes = (n_pix,) if rows is None else (n_pix, len(rows))
    header = head("IMAGE", *axes, bitpix=-8 * np.dtype(kind).itemsize)
    header["EXTNAME"] = name.upper()
    if unit:
        header["BUNIT"] = unit
    most = max(1, PIECE // max(1, n_pix * np.dtype(kind).itemsize))
    slices = [...] if rows is None else runs(rows, most)
    product.append(header, (dataset[at].astype(kind).tobytes() for at in slices))


def write(product, models, file, spectra):
    """Write the models of an input; spectra: one entry per exposure."""
    rows = spectra.exposure
    for name, (wave, flux) in models.arms.items():
        # a single row gets one-dimensional wavelengths, as in rvspecfit
        own = wave.ndim == 2 and len(rows) != 1
        image(product, f"{name}_WAVELENGTH", wave if own or wave.ndim == 1 else wave[rows[0]],
              ">f8", rows if own else None, ("Angstrom", "in vacuum"))
        image(product, f"{name}_MODEL", flux, ">f4", rows)
    if file is not None:
        copy_rows(product, file, "FIBERMAP", spectra.input)
