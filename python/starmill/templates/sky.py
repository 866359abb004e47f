# SPDX-License-Identifier: BSD-3-Clause
"""`starmill library sky`: the residuals of sky subtraction, as principal components for the key
sky_components (docs/science/numerics.md, "Sky")."""

import io

import h5py
import numpy as np
from astropy.io import fits
from scipy.ndimage import median_filter

from starmill.cli.basics import INPUT, check_output, need, version, write_whole
from starmill.surveys.spectra import SpectraFile
from starmill.templates.spectra_fits import guarded

FORMAT = "starmill sky components"
LEAST_FIBRES = 8
CHANCE = 3.3  # of Tracy and Widom's distribution: noise exceeds it once in 1000
SMOOTH = 101  # pixels; components are smoothed except lines above LEAST_SIGMA of their noise
LEAST_SIGMA = 3
N_FILL = 5  # rounds that fill masked pixels by the components
OUTLIER = 5.0  # times the median chi-square: a fibre above it sees an object and is left out


def read(paths):
    """Return {arm: (wavelengths [n_pix], flux and ivar [n_fibre][n_pix])} of all sky fibres."""
    found = {}
    for path in paths:
        file = SpectraFile(path, "format: desi\n")
        with guarded(path), fits.open(path) as hdus:
            kind = np.char.strip(hdus["FIBERMAP"].data["OBJTYPE"].astype(str))
        for row in np.flatnonzero(kind == "SKY"):
            for c in file.channels(int(row), 0):
                wave, spectra = found.setdefault(c.name, (c.wave, []))
                need(np.array_equal(wave, c.wave), INPUT, f"{path}: arm {c.name} has other "
                     f"wavelengths than in {paths[0]}: make a separate SKY.h5")
                spectra.append((np.where(c.bad, 0, c.flux), c.ivar))
    return {arm: (wave, *np.array(spectra).transpose(1, 0, 2))
            for arm, (wave, spectra) in found.items()}


def components(flux, ivar, most):
    """Find up to `most` principal components (about zero) of residuals [n][n_pix] above the noise.
    Return the components [k][n_pix], each times its standard deviation; their rms [k] in units of
    the noise; and the number of fibres used.  Squared singular values are corrected for noise as by
    Baik & Silverstein (2006, J. Multivar. Anal. 97, 1382).  Noise alone rarely gives a square above
    most_noise (Johnstone 2001, Ann. Stat. 29, 295)."""
    alive = (ivar > 0).any(axis=1)
    flux, ivar = flux[alive], ivar[alive]
    if len(flux) < LEAST_FIBRES:
        return flux[:0], np.zeros(0), len(flux)
    chisq = (flux**2 * ivar).sum(axis=1) / (ivar > 0).sum(axis=1)
    use = chisq <= OUTLIER * np.median(chisq)
    flux, ivar, n = flux[use], ivar[use], use.sum()
    known = ivar > 0
    # unit noise in all fibres and pixels: Johnstone's threshold holds for equal variances
    fibre = np.ma.median(np.ma.masked_array(ivar, ~known), axis=1).filled(0)[:, None]
    root = np.sqrt(np.ma.median(np.ma.masked_array(ivar / fibre, ~known), axis=0).filled(0))
    x = np.where(known, flux * root * np.sqrt(fibre), 0)
    noise = (root**2 * fibre / np.where(known, ivar, np.inf)).sum() / known.sum()
    n_pix = known.sum() / n
    edge = np.sqrt(n) + np.sqrt(n_pix)
    most_noise = edge**2 + CHANCE * edge * (n**-0.5 + n_pix**-0.5)**(1 / 3)
    for _ in range(N_FILL):
        share, size, pattern = np.linalg.svd(x, full_matrices=False)
        keep = np.flatnonzero(size**2 > noise * most_noise)[:most]
        share, size, pattern = share[:, keep], size[keep], pattern[keep]
        x = np.where(known, x, x @ pattern.T @ pattern)
    excess = size**2 / noise - n - n_pix
    variance = noise * (excess + np.sqrt(excess**2 - 4 * n * n_pix)) / (2 * n)
    rows = np.sqrt(variance)[:, None] * pattern
    rows = np.divide(rows, root, out=np.zeros_like(rows), where=root > 0)
    # smooth the components, but keep the lines that exceed the noise
    smooth = median_filter(rows, (1, SMOOTH), mode="nearest")
    rows = np.where(np.abs(rows - smooth) * root > LEAST_SIGMA * np.sqrt(noise / n), rows, smooth)
    scale2 = (share**2 / fibre).sum(axis=0)  # mean square over fibres, in the file's unit
    return (rows * np.sqrt(scale2)[:, None],
            np.sqrt(variance * scale2 * np.median(fibre) / n_pix), n)


def main(options):
    paths, output = options.arguments, options.output
    check_output(output, options.overwrite, [("a file with sky fibres", path) for path in paths])
    arms, image, n_component = read(paths), io.BytesIO(), 0
    with h5py.File(image, "w") as file:
        file.attrs.update(format=FORMAT, format_version=1, written_by=version(options.program))
        for arm, (wave, flux, ivar) in arms.items():
            rows, rms, n = components(flux, ivar, options.components)
            print(f"arm {arm}: {len(rows)} components of {n} of {len(flux)} sky fibres"
                  + "".join(f", {x:.3f}" for x in rms) + (" of the noise" if len(rows) else ""))
            if len(rows):
                file[f"{arm}/wave"] = wave
                file[f"{arm}/components"] = rows.astype("f4")
            n_component += len(rows)
    need(n_component, INPUT, f"{paths[0]}: its sky fibres show nothing but noise, or are "
         f"fewer than {LEAST_FIBRES}: give more files")
    write_whole(output, [image.getbuffer()], options.overwrite)
