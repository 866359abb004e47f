# SPDX-License-Identifier: BSD-3-Clause
"""Are the errors right?  Pulls of fits of simulated surveys, by parameter and S/N.

usage: pulls_plot.py FIT.h5 TRUTH.fits [FIT.h5 TRUTH.fits ...] [options]

FIT.h5 is a result of `starmill fit`, TRUTH.fits the truth table that `starmill simulate`
left with the spectra; stars of several surveys count together.  The pull of a star is
(recovered - true) / error: where errors are right, pulls have a median of 0 and a width
of 1.  Prints a table (Markdown) and draws the histograms with unit Gaussians.

Counted are fitted stars that were simulated without a defect; for VSINI those that truly
rotate, by --min-vsini or, with --expected, by three errors or more.

A hull cuts the posterior of a star near one of its facets.  --away K leaves out stars
whose TRUE labels lie less than K errors inside a facet of the library's hulls.  To leave
out by what was fitted (its flags or distance) keeps stars that the noise carried away
from a facet and drops those that it carried there, and so makes a bias.  The errors of
the distance are those of --expected, the same stars simulated with --noiseless and
fitted from the truth, one for each FIT.h5 in their order: these do not depend on the
noise either.  Without it they are the fit's own.
"""

import argparse
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from survey_stats import (  # noqa: E402
    MIN_STARS, PARAMETERS, RESOLVED_KM_S, SN_BINS, Survey, SurveyError, bin_text, half_width, mad,
    opened, text,
)

FAR, OUTLIER = 3.0, 5.0  # errors: of a Gaussian 0.27 % and 6 in 10 million are farther
WIDEST = 5.0  # of the histograms
RESOLVED_ERRORS = 3.0  # v sin i above which it counts as resolved, in expected errors
# Standard errors of the median and of half the central 68.27 % of n Gaussian values, times
# sqrt(n): of quantiles p and 1 - p, sqrt(p (1 - p)) / density and so on.
MEDIAN_ERROR, WIDTH_ERROR = 1.253, 0.962


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\nusage")[0],
    )
    parser.add_argument("files", nargs="+", metavar="FIT.h5 TRUTH.fits")
    parser.add_argument("--figure", metavar="FILE.png", help="draw the histograms into this file")
    parser.add_argument("--away", metavar="K", type=float,
                        help="leave out stars with true labels less than K errors inside a hull")
    parser.add_argument("--library", metavar="LIB.h5", help="the library, for --away")
    parser.add_argument("--expected", metavar="FIT.h5", nargs="+",
                        help="fits of the same stars without noise, for the errors of --away")
    parser.add_argument("--min-vsini", metavar="KM_S", type=float, default=RESOLVED_KM_S,
                        help="true v sin i from which VSINI counts (default %(default)g)")
    return parser.parse_args()


class Hulls:
    """The hulls of a library (docs/use/formats.md), in the labels themselves."""

    def __init__(self, path):
        try:
            with opened(h5py.File, path) as file:
                labels = file["labels"]
                self.label = [dict(labels[f"label{i}"].attrs)
                              for i in range(labels.attrs["n_label"])]
                self.hull = [(hull["labels"][...], hull["facets"][...])
                             for hull in file["hulls"].values()]
        except KeyError as error:
            raise SurveyError(f"{path} is no library: {error.args[0]}") from error
        self.columns = [text(label["column"]) for label in self.label]

    def distance(self, labels, covariance):
        """Distance inside the nearest facet in errors, [n]; below 0 outside.

        labels [n][label]; covariance [n][par][par] of VRAD, VSINI and the labels.
        """
        mapped = np.array(labels, dtype=float)
        slope = np.ones_like(mapped)
        for i, label in enumerate(self.label):
            if label["mapping"] == 1:  # log10
                slope[:, i] = 1.0 / (np.log(10.0) * mapped[:, i])
                mapped[:, i] = np.log10(mapped[:, i])
            mapped[:, i] = (mapped[:, i] - label["mean"]) / label["std"]
            slope[:, i] /= label["std"]
        nearest = np.full(len(mapped), np.inf)
        for of, facets in self.hull:
            for facet in facets:
                inside = -(mapped[:, of] @ facet[:-1] + facet[-1])
                g = facet[:-1] * slope[:, of]
                at = 2 + np.asarray(of)
                sigma = np.sqrt(np.einsum("ni,nij,nj->n", g, covariance[:, at[:, None], at], g))
                with np.errstate(divide="ignore", invalid="ignore"):
                    nearest = np.fmin(nearest, np.where(sigma > 0, inside / sigma, np.inf))
        return nearest


def covariances(packed, n_label):
    """COVAR [n][] as full matrices."""
    n_par = n_label + 2
    if packed.shape[1] != n_par * (n_par + 1) // 2:
        raise SurveyError(f"COVAR is not that of {n_label} labels: another library")
    full = np.empty((len(packed), n_par, n_par))
    row, column = np.triu_indices(n_par)
    full[:, row, column] = full[:, column, row] = packed
    return full


class Pulls:
    """Pulls of the rows that count, by parameter and bin."""

    def __init__(self, options):
        if len(options.files) % 2:
            raise SurveyError("a truth table is needed for each fit")
        surveys = [Survey(fit, truth) for fit, truth in
                   zip(options.files[::2], options.files[1::2])]
        expected = self.read_expected(options, surveys)
        self.counted = np.concatenate([s.fitted & s.clean for s in surveys])
        if not self.counted.any():
            raise SurveyError(f"no star of {options.files[0]} is fitted and without a defect")
        self.sn = np.concatenate([s.sn for s in surveys])
        self.error, self.delta = (
            {p.name: np.concatenate([of(s, p.name) for s in surveys]) for p in PARAMETERS}
            for of in (lambda s, name: s.fit[name + "_ERR"], Survey.delta))

        true = np.concatenate([s.true["VSINI"] for s in surveys])
        self.resolved = true >= options.min_vsini
        if expected:
            error = np.concatenate([fit["VSINI_ERR"] for fit in expected])
            self.resolved |= true >= RESOLVED_ERRORS * error
        self.away, self.n_near = options.away, 0
        if options.away is not None:
            hulls = Hulls(options.library)
            n_label = len(hulls.columns)
            near = np.concatenate([
                ~(hulls.distance(np.array([s.true[c] for c in hulls.columns]).T,
                                 covariances(fit["COVAR"], n_label)) >= options.away)
                for s, fit in zip(surveys, expected or [s.fit for s in surveys])])
            self.n_near = int((self.counted & near).sum())
            self.counted &= ~near
            if not self.counted.any():
                raise SurveyError(f"no star is {options.away:g} errors inside the hulls")

        edges = [low for low, _ in SN_BINS] + [SN_BINS[-1][1]]
        inside = [(low, high) for low, high in zip(edges, edges[1:])
                  if self.rows(None, low, high).any()]
        self.bins = inside + [(0.0, np.inf)]

    @staticmethod
    def read_expected(options, surveys):
        """Columns of the fits without noise, in the order of the surveys' rows."""
        if (options.away is None) != (options.library is None):
            raise SurveyError("--away and --library go together")
        if options.expected is None:
            return None
        if len(options.expected) != len(surveys):
            raise SurveyError(f"--expected takes {len(surveys)} files, one for each fit")
        found = []
        for survey, path in zip(surveys, options.expected):
            with opened(h5py.File, path) as file:
                fit = {name: column[...] for name, column in file["fits"].items()}
            row_of = {int(target): row for row, target in enumerate(fit["TARGETID"])}
            rows = [row_of.get(int(target)) for target in survey.fit["TARGETID"]]
            if None in rows:
                lacking = survey.fit["TARGETID"][rows.index(None)]
                raise SurveyError(f"{path} lacks TARGETID {lacking}")
            found.append({name: fit[name][rows] for name in ("COVAR", "VSINI_ERR")})
        return found

    def rows(self, name, low, high):
        """Rows with low <= S/N < high that count, for a parameter or (None) at all."""
        at = self.counted & (self.sn >= low) & (self.sn < high)
        return at & self.resolved if name == "VSINI" else at

    def pulls(self, name, low, high):
        """Of the rows with an error: a fixed parameter has none."""
        at = self.rows(name, low, high)
        error = self.error[name][at]
        good = np.isfinite(error) & (error > 0)
        return self.delta[name][at][good] / error[good]


def print_table(pulls):
    print("| parameter | S/N | stars | median | mean | width, 68 % | width, MAD "
          f"| standard deviation | beyond {FAR:g} | {OUTLIER:g} errors |\n|" + "---|" * 10)
    for p in PARAMETERS:
        for low, high in pulls.bins:
            pull = pulls.pulls(p.name, low, high)
            n = len(pull)
            if n < MIN_STARS:
                print(f"| {p.name} | {bin_text(low, high)} | {n} |" + " - |" * 7)
                continue
            width, root = half_width(pull), np.sqrt(n)
            print(f"| {p.name} | {bin_text(low, high)} | {n} "
                  f"| {signed(np.median(pull))} ± {MEDIAN_ERROR * width / root:.2f} "
                  f"| {signed(np.mean(pull))} "
                  f"| {width:.2f} ± {WIDTH_ERROR * width / root:.2f} "
                  f"| {mad(pull):.2f} | {np.std(pull):.2f} "
                  f"| {int((np.abs(pull) > FAR).sum())} | {int((np.abs(pull) > OUTLIER).sum())} |")
    print(f"\nPull: (recovered - true)/error; width: half of the central 68.27 %, and 1.4826 times "
          "the median absolute deviation; the standard deviation holds all outliers.")
    print("S/N: expected median of the pixels of arm r; all: of whatever S/N.")
    if pulls.away is not None:
        print(f"Left out because the truth is less than {pulls.away:g} errors inside the hulls: "
              f"{pulls.n_near} stars.")


def signed(value):
    return f"{round(float(value), 2) + 0.0:+.2f}"


def draw(pulls, path):
    from demo_plot import save  # which finds how spectra are drawn, too
    from drawing import DATA, INK, MODEL, STYLE, plt

    edges = np.linspace(-WIDEST, WIDEST, 41)
    x = np.linspace(-WIDEST, WIDEST, 201)
    gauss = np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    n_column = len(pulls.bins)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(len(PARAMETERS), n_column, sharex=True, sharey=True,
                                    squeeze=False, layout="constrained",
                                    figsize=(1.2 + 1.95 * n_column, 8.6))
        for i, p in enumerate(PARAMETERS):
            for (low, high), axis in zip(pulls.bins, axes[i]):
                pull = pulls.pulls(p.name, low, high)
                if len(pull) >= MIN_STARS:
                    # beyond the ends counts as at the ends, so that nothing is hidden
                    at = np.clip(pull, -WIDEST, WIDEST)
                    weight = np.full(len(at), 1.0 / (len(at) * (edges[1] - edges[0])))
                    axis.hist(at, edges, weights=weight, color=DATA)
                    axis.plot(x, gauss, color=MODEL, linewidth=1.2)
                    axis.text(0.03, 0.97, f"{signed(np.median(pull))}\n{half_width(pull):.2f}",
                              transform=axis.transAxes, va="top", fontsize=8, color=INK)
                axis.text(0.97, 0.97, f"{len(pull)}", transform=axis.transAxes, va="top",
                          ha="right", fontsize=8, color=INK)
                axis.set_yticks([])
                axis.spines["left"].set_visible(False)
                if i == 0:
                    axis.set_title("all S/N" if high == np.inf else f"S/N {bin_text(low, high)}")
            axes[i][0].set_ylabel(p.symbol)
        figure.supxlabel("(recovered − true) / error      in each panel: median, width; stars",
                         fontsize=9)
        save(figure, path)


def main():
    options = arguments()
    try:
        pulls = Pulls(options)
        print_table(pulls)
        if options.figure:
            draw(pulls, options.figure)
    except SurveyError as error:
        sys.exit(f"pulls_plot.py: {error}")


if __name__ == "__main__":
    main()
