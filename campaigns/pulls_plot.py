# SPDX-License-Identifier: BSD-3-Clause
"""Are the errors right?  Pulls of fits of simulated surveys, by parameter and S/N.

usage: pulls_plot.py [--figure FILE.png] AWAY LIB.h5 FIT.h5 TRUTH.fits EXPECTED.h5 [...]

 FIT.h5       a result of `starmill fit`
 TRUTH.fits   the truth table that `starmill simulate` left with the spectra
 EXPECTED.h5  the same stars simulated with --noiseless and fitted from the truth
The pull of a star is (recovered - true) / error: if errors are right, pulls have a median of 0 and
a width of 1.  Stars of several surveys count together.  Prints a table (Markdown) and draws
histograms with unit Gaussians.

A star counts if it was fitted, and simulated without a defect.  For VSINI its true value must also
reach 40 km/s or three expected errors.  Stars are left out if their TRUE labels lie less than AWAY
expected errors inside a facet of the library's hulls, as facets cut posteriors.  A cut by fitted
labels or flags would make a bias: it would drop stars that noise carried to a facet, and keep stars
that noise carried away.
"""

import argparse
import sys

import h5py
import numpy as np

from survey_stats import (
    BINS, MIN_STARS, PARAMETERS, RESOLVED_KM_S, Failure, Survey, bin_text, half_width, text,
)

FAR = 3.0  # errors: of a Gaussian 0.27 % are farther
WIDEST = 5.0  # of the histograms
RESOLVED_ERRORS = 3.0  # v sin i counts as resolved above this many expected errors
# Standard errors, times sqrt(n), of the median of n Gaussian values, and of half the width of their
# central 68.27 %.  A quantile p has the standard error sqrt(p (1 - p) / n) / density.
MEDIAN_ERROR, WIDTH_ERROR = 1.253, 0.962


def distance(library, true, packed):
    """How far [n] true labels lie inside the nearest facet of the hulls, in errors (below 0:
    outside).  packed: COVAR [n][] of VRAD, VSINI and the labels, which gives the errors."""
    with h5py.File(library) as file:
        label = [dict(file[f"labels/label{i}"].attrs)
                 for i in range(file["labels"].attrs["n_label"])]
        hulls = [(hull["labels"][...], hull["facets"][...]) for hull in file["hulls"].values()]
    mapped = np.array([true[text(x["column"])] for x in label], dtype=float).T
    n_par = len(label) + 2
    row, column = np.triu_indices(n_par)
    covariance = np.empty((len(packed), n_par, n_par))
    covariance[:, row, column] = covariance[:, column, row] = packed
    slope = np.ones_like(mapped)
    for i, x in enumerate(label):
        if x["mapping"] == 1:  # log10
            slope[:, i] = 1.0 / (np.log(10.0) * mapped[:, i])
            mapped[:, i] = np.log10(mapped[:, i])
        mapped[:, i] = (mapped[:, i] - x["mean"]) / x["std"]
        slope[:, i] /= x["std"]
    nearest = np.full(len(mapped), np.inf)
    for of, facets in hulls:
        for facet in facets:
            inside = -(mapped[:, of] @ facet[:-1] + facet[-1])
            # error of `inside`: its gradient g by the labels, with the labels' covariance
            g, at = facet[:-1] * slope[:, of], 2 + np.asarray(of)
            sigma = np.sqrt(np.einsum("ni,nij,nj->n", g, covariance[:, at[:, None], at], g))
            with np.errstate(divide="ignore", invalid="ignore"):
                nearest = np.fmin(nearest, np.where(sigma > 0, inside / sigma, np.inf))
    return nearest


def pulls_of(fit, truth, expected, library, away):
    """Return S/N and {parameter: pulls} of clean stars at least `away` errors inside the hulls.
    Pulls are NaN without an error, and for VSINI if the true v sin i is not resolved."""
    survey, noiseless = Survey(fit, truth), Survey(expected, truth)
    row_of = {int(target): row for row, target in enumerate(noiseless.fit["TARGETID"])}
    rows = [row_of[int(target)] for target in survey.fit["TARGETID"]]
    error = noiseless.fit["VSINI_ERR"][rows]
    far = distance(library, survey.true, noiseless.fit["COVAR"][rows]) >= away
    use = survey.fitted & survey.clean & far
    pull = {}
    for p in PARAMETERS:
        with np.errstate(divide="ignore", invalid="ignore"):
            x = survey.delta(p.name) / survey.fit[p.name + "_ERR"]
        pull[p.name] = np.where(np.isfinite(x), x, np.nan)[use]  # a fixed parameter has no error
    slow = survey.true["VSINI"] < np.fmin(RESOLVED_KM_S, RESOLVED_ERRORS * error)
    pull["VSINI"][slow[use]] = np.nan
    return survey.sn[use], pull


def chosen(sn, pull, low, high):
    x = pull[(sn >= low) & (sn < high)]
    return x[np.isfinite(x)]


def print_table(sn, pull, bins):
    print(f"{len(sn)} stars\n\n| parameter | S/N | stars | median | width, 68 % | beyond {FAR:g} "
          "errors |\n|" + "---|" * 6)
    for name, all_pulls in pull.items():
        for low, high in bins:
            x = chosen(sn, all_pulls, low, high)
            if len(x) >= MIN_STARS:
                width, root = half_width(x), np.sqrt(len(x))
                print(f"| {name} | {bin_text(low, high)} | {len(x)} "
                      f"| {np.median(x):+.2f} ± {MEDIAN_ERROR * width / root:.2f} "
                      f"| {width:.2f} ± {WIDTH_ERROR * width / root:.2f} "
                      f"| {int((np.abs(x) > FAR).sum())} |")


def draw(sn, pull, bins, path):
    from demo_plot import save  # which finds how spectra are drawn, too
    from starmill.products.drawing import DATA, MODEL, STYLE, plt

    edges = np.linspace(-WIDEST, WIDEST, 41)
    at = np.linspace(-WIDEST, WIDEST, 201)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(len(PARAMETERS), len(bins), sharex=True, sharey=True,
                                    squeeze=False, layout="constrained",
                                    figsize=(1.2 + 1.95 * len(bins), 8.6))
        for p, line in zip(PARAMETERS, axes):
            for (low, high), axis in zip(bins, line):
                x = chosen(sn, pull[p.name], low, high)
                if len(x) >= MIN_STARS:
                    # pulls beyond the ends go into the outer bins, so that none is hidden
                    axis.hist(np.clip(x, -WIDEST, WIDEST), edges, density=True, color=DATA)
                    axis.plot(at, np.exp(-0.5 * at**2) / np.sqrt(2.0 * np.pi), color=MODEL)
                    axis.text(0.03, 0.97, f"{np.median(x):+.2f}\n{half_width(x):.2f}", va="top",
                              transform=axis.transAxes, fontsize=8)
                axis.text(0.97, 0.97, f"{len(x)}", transform=axis.transAxes, va="top", ha="right",
                          fontsize=8)
                axis.set_yticks([])
                if p is PARAMETERS[0]:
                    axis.set_title("S/N " + bin_text(low, high))
            line[0].set_ylabel(p.symbol)
        figure.supxlabel("(recovered − true) / error      in each panel: median, width; stars",
                         fontsize=9)
        save(figure, path)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--figure")
    parser.add_argument("away", type=float)
    parser.add_argument("library")
    parser.add_argument("files", nargs="+")
    o = parser.parse_args()
    try:
        found = [pulls_of(*o.files[i:i + 3], o.library, o.away)
                 for i in range(0, len(o.files), 3)]
    except Failure as error:
        sys.exit(f"pulls_plot.py: {error}")
    sn = np.concatenate([part[0] for part in found])
    pull = {p.name: np.concatenate([part[1][p.name] for part in found]) for p in PARAMETERS}
    bins = [b for b in BINS if ((sn >= b[0]) & (sn < b[1])).any()] + [(0.0, np.inf)]
    print_table(sn, pull, bins)
    if o.figure:
        draw(sn, pull, bins, o.figure)


if __name__ == "__main__":
    main()
