# SPDX-License-Identifier: BSD-3-Clause
"""Makes libraries/m.h5 from PyHammer's empirical spectra of K7 to M6 dwarfs.

usage: python3 -m starmill.templates.m_library [--starmill PROGRAM] PYHAMMER.fits.gz WORK OUT.h5

PYHAMMER holds an image of spectra on a log10 grid of vacuum wavelengths, and a table LABELS with
SPTYPE, FEH and N_COADD.  The type gives Teff; log g follows from Teff and is no label.  The
velocities of the templates are removed.  Each template is also fitted with a library made without
it; the scatter of these fitted labels is the floor of the labels' errors.
"""

import argparse
import os

import numpy as np
from astropy.io import fits
from astropy.table import Table
from scipy.ndimage import gaussian_filter1d
from scipy.signal import detrend

from starmill.cli.basics import Failure
from starmill.templates import library_file
from starmill.templates.real_library import Recipe, add_program, fit_spectra, write_attributes
from starmill.wavelength import C_KM_S, FWHM_PER_SIGMA

SOURCES = ("templates: PyHammer, Kesseli et al. 2017, ApJS 230, 16 (spectra of BOSS)",
           "Teff of types: Pecaut & Mamajek 2013, ApJS 208, 9, table of 2022-04-16")
# No later types: M giants, which have the bands of M7 and M8, would be fitted as dwarfs.
TEFF = {"K7": 4100, "M0": 3850, "M1": 3660, "M2": 3560, "M3": 3430, "M4": 3210, "M5": 3060,
        "M6": 2810}
RESOLVING_POWER, SN, FOLDS = 2000, 60, 5
FEH_ERR = 0.9  # dex, part of the floor: fits of MILES and LAMOST exceed published [Fe/H] by it
LINES_AA = 7701.09, 8185.51, 8197.08, 8544.44, 8664.52  # K I, Na I twice, Ca II twice; vacuum
# between telluric bands of O2 and H2O
RANGES_AA = (5000, 6860), (6970, 7160), (7350, 7580), (7720, 8120), (8180, 9200)


def lowest(values, step):
    """Return the x of the minimum of values [n] at x = 0, +-step, ..., refined by a parabola."""
    i = np.clip(np.argmin(values), 1, len(values) - 2)
    a, b, c = values[i - 1:i + 2]
    return step * (i - len(values) // 2 + 0.5 * (a - c) / (a - 2 * b + c))


def relative_velocities(flat, near, ln_wave):
    """Return the velocity [n] (km/s) of each spectrum i relative to a mean in which spectrum j
    has the weight near[i, j].  flat [n, n_pix]: ln flux without continuum."""
    wave, v = np.exp(ln_wave), np.zeros(len(flat))
    use = np.any([(wave > low) & (wave < high) for low, high in RANGES_AA], axis=0)
    shifted = ln_wave[use] - np.arange(-80, 81, 4)[:, None] / C_KM_S
    for _ in range(6):  # the means sharpen as velocities improve
        rest = np.array([np.interp(ln_wave + x / C_KM_S, ln_wave, y) for x, y in zip(v, flat)])
        for i, mean in enumerate(near @ rest / near.sum(axis=1)[:, None]):
            trial = np.interp(shifted, ln_wave, mean)
            v[i] += 0.7 * lowest(-trial @ rest[i][use] / np.linalg.norm(trial, axis=1), 4)
    return v


def line_velocity(wave, flux):
    """Return the mean velocity of the atomic lines, each fitted by a Gaussian on a slope."""
    out = []
    for line in LINES_AA:
        use = abs(wave - line) < 12
        away = wave[use] / line - 1 - np.arange(-60, 61, 2)[:, None] / C_KM_S
        trial = detrend(np.exp(-0.5 * (away * RESOLVING_POWER * FWHM_PER_SIGMA) ** 2))
        out.append(lowest(trial @ flux[use] / np.linalg.norm(trial, axis=1), 2))
    return np.mean(out)


def read_at_rest(path):
    """Return ln wavelengths, spectra shifted to rest, and the table of their labels."""
    with fits.open(path) as hdus:
        table, head = Table(hdus["LABELS"].data), hdus[0].header
        table["TEFF"] = [float(TEFF.get(t.strip(), np.nan)) for t in table["SPTYPE"]]
        use = np.isfinite(table["TEFF"] + table["FEH"]) & (table["N_COADD"] > 1)
        flux, table = hdus[0].data[use].astype(float), table[use]
    ln_wave = np.log(10) * (head["CRVAL1"] + head["CD1_1"] * np.arange(flux.shape[1]))
    log = np.log(np.maximum(flux, 0.02 * np.median(flux, axis=1)[:, None]))
    kind, feh = np.unique(table["TEFF"], return_inverse=True)[1], np.array(table["FEH"], float)
    near = (abs(kind[:, None] - kind) < 2) & (abs(feh[:, None] - feh) < 0.6)  # similar stars
    near = near * np.minimum(table["N_COADD"], 20.0)  # noisy templates weigh less in a mean
    np.fill_diagonal(near, 0)
    v = relative_velocities(log - gaussian_filter1d(log, 60, axis=1), near, ln_wave)

    def moved(v):
        return np.array([np.interp(ln_wave + x / C_KM_S, ln_wave, y) for x, y in zip(v, flux)])
    zero = [line_velocity(np.exp(ln_wave), y) for y in moved(v)[table["N_COADD"] > 20]]
    print("velocities of %d templates: rms %.1f km/s, zero point %.1f +- %.1f km/s" % (
        len(v), v.std(), np.median(zero), np.std(zero) / np.sqrt(len(zero))))
    return ln_wave, moved(v + np.median(zero)), table


def make(recipe, path, ln_wave, flux, table):
    """Make the library path.h5 of spectra; return its path."""
    image, log = fits.PrimaryHDU(flux.astype("f4")), ln_wave / np.log(10)
    image.header.update({"CRVAL1": log[0], "CD1_1": log[1] - log[0], "CRPIX1": 1, "DC-FLAG": 1,
                         "VACUUM": True})
    fits.HDUList([image, fits.BinTableHDU(table, name="LABELS")]).writeto(path + ".fits",
                                                                          overwrite=True)
    recipe.run("library", "spectra", "--output", path + ".h5", "--overwrite", "--labels",
               "teff=TEFF,feh=FEH", "--range", "3650,9900", "--resolving-power", RESOLVING_POWER,
               "--components", 12, "--model-error", 4, "--left-out", 0, path + ".fits")
    return path + ".h5"


def fit(recipe, path, library, ln_wave, flux):
    """Fit the spectra with a library; return VRAD, TEFF and FEH [n, 3]."""
    wave = np.exp(ln_wave)
    spectra = [{"NAME": str(i), "TARGETID": i, "WAVELENGTH": wave, "FLUX": y,
                "IVAR": np.full(len(y), (SN / np.median(y)) ** 2),
                "LSF_SIGMA": wave / RESOLVING_POWER / FWHM_PER_SIGMA} for i, y in enumerate(flux)]
    gaps = [[a[1], b[0]] for a, b in zip(RANGES_AA, RANGES_AA[1:])]
    fits_of = fit_spectra(recipe, path, library, spectra, "vacuum", "wave_mask: %s\narms: [{name: "
                          "b, min: 4000, max: 6000}, {name: r, min: 6000, max: 9200}]\n" % gaps)
    return np.stack([fits_of[name] for name in ("VRAD", "TEFF", "FEH")], 1)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    for name in ("pyhammer", "work", "out"):
        parser.add_argument(name)
    add_program(parser)
    args = parser.parse_args()
    recipe, name = Recipe(args.starmill), os.path.join(args.work, "left-out")
    os.makedirs(args.work, exist_ok=True)
    ln_wave, flux, table = read_at_rest(args.pyhammer)
    library = library_file.read(make(recipe, os.path.join(args.work, "m"), ln_wave, flux, table))
    commands = list(recipe.commands)
    away = np.stack([np.zeros(len(table)), table["TEFF"], table["FEH"]], 1)
    for k in range(FOLDS):
        out = np.arange(len(table)) % FOLDS == k
        without = make(recipe, os.path.join(args.work, "without"), ln_wave, flux[~out], table[~out])
        away[out] -= fit(recipe, name, without, ln_wave, flux[out])
    scatter = 1.4826 * np.median(abs(away), axis=0)
    print("templates left out: %.1f km/s, %.0f K, %.2f dex" % tuple(scatter))
    for label, floor in zip(library.label, (scatter[1], np.hypot(scatter[2], FEH_ERR))):
        label.floor = float(floor)
    library_file.write(args.out, library, True, args.starmill)
    recipe.commands = commands
    write_attributes(args.out, recipe, "m (PyHammer)", len(table), SOURCES)


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError, Failure) as error:
        raise SystemExit("m-library: %s" % error)
