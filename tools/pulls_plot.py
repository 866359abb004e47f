"""Are the errors right?  Pulls of a fit of a simulated survey, by parameter and S/N.

usage: pulls_plot.py FIT.h5 TRUTH.fits [options]

FIT.h5 is a result of `starmill fit`, TRUTH.fits the truth table that `starmill simulate`
left with the spectra.  The pull of a star is (recovered - true) / error: where errors are
right, pulls have a median of 0 and a width of 1.  Prints a table (Markdown) and draws the
histograms with unit Gaussians.

Counted are fitted stars that were simulated without a defect; for VSINI those that truly
rotate and whose fit is not at the lower limit, where the error is an upper limit.
"""

import argparse
import sys

import h5py
import numpy as np

from survey_stats import (
    MIN_STARS, PARAMETERS, RESOLVED_KM_S, Survey, SurveyError, bin_text, names_of, opened,
)
from validate_survey import SN_BINS, half_width

OUTLIER = 5.0  # errors: of a Gaussian 6 in 10 million are farther
WIDEST = 5.0  # of the histograms
UNRESOLVED = "VSINI_UNRESOLVED"
# Standard errors of the median and of half the central 68.27 % of n Gaussian values, times
# sqrt(n): of quantiles p and 1 - p, sqrt(p (1 - p)) / density and so on.
MEDIAN_ERROR, WIDTH_ERROR = 1.253, 0.962


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\nusage")[0],
        epilog="NAMES are names of flags joined by commas (HULL,VSINI), or all.",
    )
    parser.add_argument("fit", metavar="FIT.h5")
    parser.add_argument("truth", metavar="TRUTH.fits")
    parser.add_argument("--figure", metavar="FILE.png", help="draw the histograms into this file")
    parser.add_argument("--leave-out-warn", metavar="NAMES", default="",
                        help="leave out rows with one of these bits of RVS_WARN")
    parser.add_argument("--leave-out-info", metavar="NAMES", default="",
                        help="leave out rows with one of these bits of FIT_INFO")
    parser.add_argument("--bins", metavar="A,B,...",
                        default=",".join([f"{low}" for low, _ in SN_BINS] + [f"{SN_BINS[-1][1]}"]),
                        help="edges of the bins of S/N (default %(default)s)")
    parser.add_argument("--min-vsini", metavar="KM_S", type=float, default=RESOLVED_KM_S,
                        help="true v sin i from which VSINI counts (default %(default)g)")
    return parser.parse_args()


def bits_of(names, known, option):
    """The bits of flags by name; known: {bit: name}."""
    if names == "all":
        return sum(known)
    bit_of = {name: bit for bit, name in known.items()}
    bits = 0
    for name in filter(None, names.split(",")):
        if name not in bit_of:
            raise SurveyError(f"{option}: there is no flag {name}; there are {', '.join(bit_of)}")
        bits |= bit_of[name]
    return bits


class Pulls:
    """Pulls of the rows that count, by parameter and bin."""

    def __init__(self, options):
        self.survey = Survey(options.fit, options.truth)
        with opened(h5py.File, options.fit) as file:
            infos = names_of(file["fits/FIT_INFO"], "BITS")
        warn = bits_of(options.leave_out_warn, self.survey.warnings, "--leave-out-warn")
        info = bits_of(options.leave_out_info, infos, "--leave-out-info")
        try:
            edges = [float(edge) for edge in options.bins.split(",")]
        except ValueError as error:
            raise SurveyError(f"--bins takes numbers joined by commas, not {options.bins}") from error
        if len(edges) < 2 or sorted(set(edges)) != edges:
            raise SurveyError(f"--bins takes two or more ascending edges, not {options.bins}")
        fit = self.survey.fit
        usable = self.survey.fitted & self.survey.clean
        self.counted = usable & (fit["RVS_WARN"] & warn == 0) & (fit["FIT_INFO"] & info == 0)
        self.n_left_out = int(usable.sum() - self.counted.sum())
        if not self.counted.any():
            raise SurveyError(f"no star of {options.fit} is left: {self.n_left_out} have one of "
                              "the flags to leave out")
        at_limit = bits_of(UNRESOLVED, infos, options.fit)
        self.resolved = ((self.survey.true["VSINI"] >= options.min_vsini) &
                         (fit["FIT_INFO"] & at_limit == 0))
        inside = [(low, high) for low, high in zip(edges, edges[1:])
                  if self.rows(None, low, high).any()]
        self.bins = inside + [(0.0, np.inf)]

    def rows(self, name, low, high):
        """Rows with low <= S/N < high that count, for a parameter or (None) at all."""
        sn = self.survey.sn
        at = self.counted & (sn >= low) & (sn < high)
        return at & self.resolved if name == "VSINI" else at

    def pulls(self, name, low, high):
        """Of the rows with an error: a parameter at a limit, or fixed, has none."""
        at = self.rows(name, low, high)
        error = self.survey.fit[name + "_ERR"][at]
        good = np.isfinite(error) & (error > 0)
        return self.survey.delta(name)[at][good] / error[good]


def print_table(pulls):
    print("| parameter | S/N | stars | median | width | outliers |\n|---|---|---|---|---|---|")
    for p in PARAMETERS:
        for low, high in pulls.bins:
            pull = pulls.pulls(p.name, low, high)
            n = len(pull)
            if n < MIN_STARS:
                print(f"| {p.name} | {bin_text(low, high)} | {n} | - | - | - |")
                continue
            width, root = half_width(pull), np.sqrt(n)
            print(f"| {p.name} | {bin_text(low, high)} | {n} "
                  f"| {round(np.median(pull), 2) + 0.0:+.2f} ± {MEDIAN_ERROR * width / root:.2f} "
                  f"| {width:.2f} ± {WIDTH_ERROR * width / root:.2f} "
                  f"| {int((np.abs(pull) > OUTLIER).sum())} |")
    print(f"\nPull: (recovered - true)/error; width: half of the central 68.27 %; outliers: "
          f"beyond {OUTLIER:g} errors.")
    print("S/N: expected median of the pixels of arm r; all: of whatever S/N.")
    if pulls.n_left_out:
        print(f"Left out for their flags: {pulls.n_left_out} stars.")


def draw(pulls, path):
    from demo_plot import DATA, INK, MODEL, STYLE, plt, save

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
                    axis.text(0.03, 0.97, f"{round(np.median(pull), 2) + 0.0:+.2f}\n{half_width(pull):.2f}",
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
