# SPDX-License-Identifier: BSD-3-Clause
"""Did any star end in a wrong minimum?  Several fits of one simulated survey compared.

usage: validate_basins.py TRUTH.fits FIT.h5 FIT.h5 [FIT.h5 ...]

TRUTH.fits is the truth table that `starmill simulate` left with the spectra, each FIT.h5 a
result of the same stars: of several optimizers, from the guess, and at least one from the
truth (`starmill fit --start TRUTH.fits`).  The lowest -2 ln L of all fits is a star's best
known.

Prints tables in Markdown: stars that are above the best known by more than 0.1 and by more
than 0.01, by S/N, labels and v sin i, and every star that is.  The exit status is 1 when
a fit is at most best known + 0.1 for less than 99.5 % of the stars, or when the fits do
not hold the same stars.
"""

import argparse
import os
import sys

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tools")]
from survey_stats import PARAMETERS, SN_BINS, Survey, SurveyError, opened, text  # noqa: E402
from validate_survey import table  # noqa: E402

LIMITS = (0.1, 0.01)  # of -2 ln L above the best known
MIN_FRACTION = 0.995  # of the stars within the first of them
GROUPS = (  # column of the truth or the S/N, its bins; the last includes its upper end
    ("S/N", "SN", SN_BINS),
    ("Teff / K", "TEFF", ((4000, 5000), (5000, 6000), (6000, 7500))),
    ("log g", "LOGG", ((0.5, 2), (2, 3.5), (3.5, 5))),
    ("[Fe/H]", "FEH", ((-3, -2), (-2, -1), (-1, 0.5))),
    ("v sin i / km/s", "VSINI", ((0, 10), (10, 40), (40, 100), (100, 500))),
)


class Fits:
    """The fits of one survey, star by star.

    names    what each fit is, as its configuration has it
    excess   -2 ln L above the best known, [fit][star]; infinite where not fitted
    surveys  the fits and the truth, rows in the same order
    """

    def __init__(self, truth_path, paths):
        self.surveys = [Survey(path, truth_path) for path in paths]
        first = self.surveys[0]
        for path, survey in zip(paths, self.surveys):
            if not np.array_equal(survey.fit["TARGETID"], first.fit["TARGETID"]):
                raise SurveyError(f"{path} does not hold the stars of {paths[0]}")
            if "M2LL" not in survey.fit:
                raise SurveyError(f"{path} has no column M2LL")
        self.names = [fit_name(path) for path in paths]
        stars = first.clean
        m2ll = np.array([np.where(s.fitted & np.isfinite(s.fit["M2LL"]), s.fit["M2LL"], np.inf)
                         for s in self.surveys])
        if not np.isfinite(m2ll).any(axis=0)[stars].all():
            raise SurveyError("a star has no solution in any of the fits")
        best = m2ll.min(axis=0)
        self.excess = np.where(stars, m2ll - np.where(stars, best, 0.0), 0.0)
        self.stars = stars

    def group(self, column, low, high, last):
        """Stars of a bin."""
        survey = self.surveys[0]
        value = survey.sn if column == "SN" else survey.true[column]
        return self.stars & (value >= low) & ((value <= high) if last else (value < high))


def fit_name(path):
    """optimizer, kind of rotation and start of a fit."""
    with opened(h5py.File, path) as file:
        config = text(file["provenance/CONFIG"][()])
    keys = dict(line.split(": ", 1) for line in config.splitlines() if ": " in line)
    try:
        words = [keys["optimizer"]]
        if keys["rotation_kernel"] != "spline":
            words.append(keys["rotation_kernel"])
    except KeyError as error:
        raise SurveyError(f"{path}: its configuration has no {error.args[0]}") from error
    if keys.get("start", '""') not in ('""', ""):
        words.append("from a table")
    return ", ".join(words)


def above(excess, limit):
    """Stars above a limit, as text."""
    n = int((excess > limit).sum())
    return f"{n} ({100.0 * n / len(excess):.2f} %)"


def print_groups(fits):
    columns = ["", "", "stars"]
    for name in fits.names:
        columns += [f"{name}: above +{limit:g}" for limit in LIMITS]
    rows = [["all", "", fits.stars]]
    for title, column, bins in GROUPS:
        rows += [[title, f"{low:g} to {high:g}", fits.group(column, low, high, high == bins[-1][1])]
                 for low, high in bins]
    shown = []
    for title, interval, at in rows:
        if at.any():
            shown.append([title, interval, int(at.sum())] +
                         [above(e[at], limit) for e in fits.excess for limit in LIMITS])
    print("Stars whose -2 ln L is above the lowest of all these fits by more than 0.1 and 0.01:\n")
    table(columns, shown)
    table(["", "largest excess", "fitted", "evaluations a star", "of them Jacobians"],
          [[name, f"{e[fits.stars].max():.4f}", int(s.fitted[fits.stars].sum()),
            f"{s.fit['NEVAL'][fits.stars].mean():.2f}", f"{s.fit['NJAC'][fits.stars].mean():.2f}"]
           for name, e, s in zip(fits.names, fits.excess, fits.surveys)])


def print_stars(fits):
    """Every star of which a fit is above the smaller limit, with all its solutions."""
    rows = []
    for i in np.flatnonzero((fits.excess > min(LIMITS)).any(axis=0)):
        about = [int(fits.surveys[0].fit["TARGETID"][i]), f"{fits.surveys[0].sn[i]:.1f}"]
        rows.append(about + ["truth", "", "", ""] +
                    [f"{fits.surveys[0].true[p.name][i]:.{p.digits + 2}f}" for p in PARAMETERS])
        for name, excess, survey in zip(fits.names, fits.excess, fits.surveys):
            fit = survey.fit
            rows.append(about + [name, f"{excess[i]:.4f}", int(fit["RVS_WARN"][i]),
                                 int(fit["FIT_INFO"][i])] +
                        [f"{fit[p.name][i]:.{p.digits + 2}f}" for p in PARAMETERS])
    if rows:
        print("Each of them:\n")
        table(["TARGETID", "S/N", "solution", "above the best", "RVS_WARN", "FIT_INFO"] +
              [p.name for p in PARAMETERS], rows)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\nusage")[0])
    parser.add_argument("truth", metavar="TRUTH.fits")
    parser.add_argument("fit", nargs="+", metavar="FIT.h5")
    options = parser.parse_args(arguments)
    try:
        if len(options.fit) < 2:
            raise SurveyError("at least two fits are needed to compare")
        fits = Fits(options.truth, options.fit)
    except SurveyError as error:
        sys.exit(f"{os.path.basename(__file__)}: {error}")
    print_groups(fits)
    print_stars(fits)
    failed = 0
    for name, excess in zip(fits.names, fits.excess):
        good = float(np.mean(excess[fits.stars] <= LIMITS[0]))
        if good < MIN_FRACTION:
            failed = 1
        print(f"{name}: {100.0 * good:.2f} % at most best known + {LIMITS[0]:g}"
              f"{'' if good >= MIN_FRACTION else f', NOT MET: {100.0 * MIN_FRACTION:g} %'}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
