#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Abundances of the library elements.h5: their precision, simulated stars, stars of MILES.

    elements.py precision LIB.h5
    elements.py pulls LIB.h5 STARMILL DIR GRID.h5   fits spectra simulated from LIB.h5 and GRID.h5
    elements.py miles RESULT.h5 PICTURE.png         RESULT.h5: a fit of MILES with LIB.h5

GRID.h5 is a grid file of `library build`: models of plan "elements" not used to make LIB.h5.  For
pulls, make LIB.h5 from a library without correction by real spectra.  Prints Markdown tables.
"""

import os
import subprocess
import sys

import h5py
import matplotlib
import numpy as np
from scipy.ndimage import gaussian_filter1d

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402
from starmill.grids import plan  # noqa: E402
from starmill.products import drawing  # noqa: E402
from starmill.surveys import generic  # noqa: E402
from starmill.templates import emulate, grid_file, library_file  # noqa: E402
from survey_stats import half_width, table  # noqa: E402

# first and last wavelength, line-spread sigma, step (A); for 4MOST the sigma of the library, 0.5 A
SURVEYS = {"DESI": (3650, 9800, 0.75, 0.8), "LAMOST LRS": (3900, 9000, 1.15, 1.2),
           "4MOST LRS": (3750, 9450, 0.5, 0.25)}
STARS = {"Sun": (5777, 4.44, 0, 0), "K giant": (4750, 2.5, -0.2, 0.1),
         "turn-off, [Fe/H] -1.5": (6200, 4.1, -1.5, 0.3)}
IS_ALPHA = np.array([e[3] for e in plan.ELEMENTS])
CARDS = [e[0] for e in plan.ELEMENTS]
CONFIG = ("format: generic\nnpoly_per_1000aa: 9\nmodel_error: false\n"
          "arms: [{name: b, min: 4000, max: 5800}, {name: r, min: 5800, max: 8800}]\npriors:\n" +
          "".join("  - {param: %s, mean: %g, sigma: 0.3}\n" % (card.lower(), 0.1 * is_alpha)
                  for card, is_alpha in zip(CARDS, IS_ALPHA)))


def seen(flux, wave, survey):
    """Wavelengths and flux [n] of a survey's pixels."""
    first, last, sigma, step = SURVEYS[survey]
    fine = np.arange(first, last, 0.05)
    wide = gaussian_filter1d(np.interp(fine, wave, flux), np.sqrt(sigma ** 2 - 0.25) / 0.05 + 1e-6)
    every = round(step / 0.05)
    return fine[::every], wide[::every]


def precision(path):
    """Print the errors of abundances by Fisher information.  Pixels have noise and the library's
    model error.  All labels (with CONFIG's priors), velocity and continuum are free."""
    library = library_file.read(path)
    wave, arm = library.arm[0].wave_aa, library.arm[0]
    lines = []
    for survey in SURVEYS:
        for star, four in STARS.items():
            at = np.concatenate([four, four[3] * IS_ALPHA])  # alpha elements follow [alpha/Fe]
            x, flux = seen(emulate.flux(library, 0, at)[0], wave, survey)
            slopes = [np.gradient(flux, x) * x / 3e5]  # by velocity, then by each label
            for i, label in enumerate(library.label):
                step = 0.2 * label.scale * np.eye(len(at))[i]
                up, down = (seen(f, wave, survey)[1]
                            for f in emulate.flux(library, 0, [at + step, at - step]))
                slopes.append((up - down) / (2 * step[i]))
            n = int((x[-1] - x[0]) / 110)  # degree of the continuum: 9 functions per 1000 A
            smooth = np.polynomial.chebyshev.chebvander(np.linspace(-1, 1, len(x)), n).T
            common = arm.error.component * arm.error.sigma[:, None]  # known to 1 sigma
            common = [np.interp(x, wave, c) * flux for c in common]
            rows = np.vstack([slopes, smooth * flux, common])  # derivatives by all that is free
            # priors of the rows: velocity and four labels, abundances, continuum, model error
            prior = np.concatenate([np.zeros(5), np.full(len(CARDS), 0.3 ** -2), np.zeros(n + 1),
                                    np.ones(len(common))])
            for sn in 30, 50, 100:
                error = np.hypot(1 / sn, arm.white_error(x, SURVEYS[survey][3] / x)) * flux
                information = (rows / error ** 2) @ rows.T + np.diag(prior)
                scale = 1 / np.sqrt(np.diag(information))  # for a matrix that can be inverted
                covariance = np.linalg.inv(information * np.outer(scale, scale))
                found = np.sqrt(np.diag(covariance))[5:5 + len(CARDS)] * scale[5:5 + len(CARDS)]
                lines.append((survey, star, sn, *("%.2f" % e for e in found)))
    floors = ("%.2f" % label.floor for label in library.label[4:])
    table(("survey", "star", "S/N", *CARDS), [*lines, ("any", "least error", "", *floors)])


def pulls(path, starmill, folder, grid_path):
    """Print fitted - true abundances of S/N 50 spectra, made by the library and by the grid."""
    library, grid = library_file.read(path), grid_file.open_grid(grid_path)
    rows = grid.good(True)
    true, random = grid.values[rows, :12], np.random.default_rng(1)
    wave, floor = library.arm[0].wave_aa, np.array([label.floor for label in library.label[4:]])
    with open(os.path.join(folder, "pulls.yaml"), "w") as f:
        f.write(CONFIG)
    sets = ("own", emulate.flux(library, 0, true)), ("models", grid.flux(0, rows))
    lines = []
    for survey in "DESI", "LAMOST LRS":
        for what, fluxes in sets:
            spectra = []
            for i, flux in enumerate(fluxes):
                x, y = seen(flux, wave, survey)
                sigma = np.sqrt(y * np.median(y)) / 50
                spectra.append({"NAME": str(i), "TARGETID": i, "WAVELENGTH": x, "IVAR": sigma ** -2,
                                "FLUX": random.normal(y, sigma),
                                "LSF_SIGMA": np.full(len(x), SURVEYS[survey][2])})
            generic.write(os.path.join(folder, "pulls.fits"), spectra, "vacuum")
            out = os.path.join(folder, "pulls.h5")
            subprocess.run([starmill, "fit", "--quiet", "--overwrite", "--threads", "1",
                            "--library", path, "--config", os.path.join(folder, "pulls.yaml"),
                            "--output", out, os.path.join(folder, "pulls.fits")], check=True)
            with h5py.File(out) as f:
                at, good = f["catalog/TARGETID"][...], f["fits/RVS_WARN"][...] == 0
                found, error = (np.array([f["fits/" + c + end][...] for c in CARDS]).T[good]
                                for end in ("", "_ERR"))
            off = found - true[at[good], 4:]
            # scatter beyond the stated errors: a floor for the label's error
            least = [np.sqrt(max(half_width(y) ** 2 - np.median(e) ** 2, 0))
                     for y, e in zip(off.T, error.T)]
            error = np.hypot(error, floor * (what == "models"))
            lines += [(survey, f"{what}, {good.sum()}", "bias, dex",
                       *("%+.2f" % bias for bias in np.median(off, axis=0))),
                      ("", "", "scatter, dex", *("%.2f" % half_width(y) for y in off.T)),
                      ("", "", "least error, dex", *("%.3f" % e for e in least)),
                      ("", "", "pulls", *("%.1f" % half_width(y) for y in (off / error).T))]
    table(("survey", "spectra", "", *CARDS), lines)


def miles(path, picture):
    """Draw [X/Fe] of stars below 6500 K without WEAK or EDGE; print median and scatter by [Fe/H]."""
    with h5py.File(path) as f:
        fits = f["fits"]
        good = (fits["RVS_WARN"][...] == 0) & (fits["TEFF"][...] < 6500)
        feh, found = fits["FEH"][...][good], [fits[c][...][good] for c in CARDS]
        use = [(fits[c + "_FLAG"][...][good] & 6) == 0 for c in CARDS]
    edges = (-2.5, -2, -1.5, -1, -0.6, -0.3, 0, 0.5)
    bins = [(feh >= low) & (feh < high) for low, high in zip(edges, edges[1:])]
    table(("[Fe/H]", "stars", *CARDS), [
        (f"{low} to {high}", bin_.sum(),
         *("%+.2f ± %.2f" % (np.median(y[bin_]), half_width(y[bin_])) for y in found))
        for low, high, bin_ in zip(edges, edges[1:], bins)])
    with plt.rc_context(drawing.STYLE):
        figure, axes = plt.subplots(2, 4, figsize=(9, 4), sharex=True, sharey=True)
        for axis, card, y, usable in zip(axes.flat, CARDS, found, use):
            axis.axhline(0, color=drawing.INK, linewidth=0.5)
            axis.plot(feh[usable], y[usable], ".", color=drawing.DATA, markersize=2)
            axis.plot([np.median(feh[b]) for b in bins], [np.median(y[b]) for b in bins], "o-",
                      color=drawing.MODEL, markersize=4)
            axis.set_ylim(-0.8, 0.8)
            axis.set_title(f"[{card[:-2].capitalize()}/Fe]")
        figure.supxlabel("[Fe/H]")
        figure.tight_layout()
        with open(picture, "wb") as f:
            f.write(drawing.png(figure, 100))


if __name__ == "__main__":
    {"precision": precision, "pulls": pulls, "miles": miles}[sys.argv[1]](*sys.argv[2:])
