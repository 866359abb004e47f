# SPDX-License-Identifier: BSD-3-Clause
"""Compare fits of the reference survey with rvspecfit's and with the truth.

usage: validate_survey.py [--data FOLDER] FIT.h5 [FIT.h5 ...]

FIT.h5 is a result of coadd-dev.fits.gz, fitted with the resolution matrix and a library imported
from emulator/nnrm_desi_{b,r,z}.h5.  FOLDER (default $STARMILL_TEST_DATA, else ../shared/data) holds
these emulators, sim/truth-dev.fits and sim/reference-rm.fits.

Prints tables in Markdown.  The exit status is 1 when a criterion fails:

- every star has a STATUS, and all of them are fitted
- -2 ln L is at most rvspecfit's + 0.5 for 97 % of the stars
- the robust scatter against the truth is at most 1.05 times rvspecfit's, for VRAD, TEFF, LOGG,
  FEH and ALPHAFE over all stars
- in each bin of S/N our scatter is not significantly wider than rvspecfit's: the 95 % interval of
  their ratio, by paired bootstrap, begins at 1 or below

Every criterion must hold for two robust scatters: "MAD", 1.4826 times the median absolute
deviation from the median; and "68 %", half the distance between the 15.865 and 84.135 percentiles,
which sees more of the wings.
"""

import argparse
import functools
import os
import sys

import h5py
import numpy as np
from astropy.io import fits as pyfits

from survey_stats import FITTED, SN_BINS, half_width, mad, table, text

PARAMETERS = ("VRAD", "TEFF", "LOGG", "FEH", "ALPHAFE")  # those with a criterion
UNITS = {"VRAD": "km/s", "VSINI": "km/s", "TEFF": "K"}
VSINI_BINS = ((0, 8), (8, 15), (15, 30), (30, 60), (60, 101))
SOLUTION = ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE")

MAX_EXCESS, MIN_FRACTION, MAX_RATIO = 0.5, 0.97, 1.05
N_BOOTSTRAP, SEED = 10000, 20261121


SCATTERS = {"MAD": mad, "68 %": half_width}


class Survey:
    """One result, the truth and rvspecfit's result, row by row in the truth's order."""

    def __init__(self, fit_path, data):
        self.truth = pyfits.getdata(os.path.join(data, "sim", "truth-dev.fits"), 1)
        self.reference = pyfits.getdata(os.path.join(data, "sim", "reference-rm.fits"), 1)
        ids = self.truth["TARGETID"]
        if not np.array_equal(ids, self.reference["TARGETID"]):
            raise ValueError("truth-dev.fits and reference-rm.fits are not of the same stars")
        with h5py.File(fit_path, "r") as file:
            fit = {k: v[...] for k, v in file["fits"].items() if isinstance(v, h5py.Dataset)}
            provenance = file["provenance"]
            self.config = provenance["CONFIG"][()].decode()
            self.device = text(provenance.attrs["DEVICE"])
            self.revision = text(provenance.attrs["REVISION"])
        where = {int(t): i for i, t in enumerate(fit["TARGETID"])}
        if len(where) != len(ids) or set(where) != {int(t) for t in ids}:
            raise ValueError(f"{fit_path} does not hold the {len(ids)} stars of truth-dev.fits")
        order = np.array([where[int(t)] for t in ids])
        self.fit = {k: v[order] for k, v in fit.items()}
        self.sn = np.asarray(self.truth["SN"], dtype=float)
        self.fitted = self.fit["STATUS"] == FITTED
        for name in SOLUTION + ("M2LL",):
            if not np.isfinite(self.fit[name][self.fitted]).all():
                raise ValueError(f"{fit_path}: {name} of a fitted star is not finite")

    def setting(self, key):
        """One key of the run's configuration, as text."""
        for line in self.config.splitlines():
            if line.startswith(key + ": "):
                return line[len(key) + 2 :]
        raise KeyError(key)

    def excess(self, column):
        """Our -2 ln L minus a column of rvspecfit's; NaN where not fitted."""
        return np.where(self.fitted, self.fit["M2LL"] - self.reference[column], np.nan)

    def delta(self, name, rows):
        """Ours and rvspecfit's minus true, [2][rows]."""
        true = self.truth[name][rows]
        return np.array([self.fit[name][rows] - true, self.reference[name][rows] - true])

    def bin(self, low, high):
        """Fitted stars of one S/N bin; the last bin includes its upper end."""
        last = high == SN_BINS[-1][1]
        return np.flatnonzero(self.fitted & (self.sn >= low) & ((self.sn < high) | last))


def fraction_below(excess, limit):
    """Share of all stars with an excess of at most limit; a star not fitted counts as above."""
    return float(np.mean(np.nan_to_num(excess, nan=np.inf) <= limit))


@functools.lru_cache(maxsize=None)
def resampled(scatter, dtype, data):
    """Return the scatter of each bootstrap draw of data: bytes, which lru_cache can hash."""
    values = np.frombuffer(data, dtype)
    draws = np.random.default_rng(SEED).integers(0, len(values), (N_BOOTSTRAP, len(values)))
    return scatter(values[draws])


def ratio_interval(delta, scatter):
    """Our scatter, rvspecfit's, their ratio, and its 95 % interval from resampled stars.

    Both programs see the same resampled stars, so noise that moves both results alike cancels in
    the ratio.
    """
    ours, theirs = (resampled(scatter, d.dtype.str, d.tobytes()) for d in delta)
    low, high = np.percentile(ours / theirs, [2.5, 97.5])
    ours, theirs = scatter(delta)
    return ours, theirs, ours / theirs, float(low), float(high)


def unit(name):
    return f"{name} ({UNITS[name]})" if name in UNITS else name


def print_likelihood(survey):
    rows = []
    for column, limit in (("M2LL_FIT", 0.5), ("M2LL_FIT", 0.01), ("M2LL_BEST", 0.1)):
        excess = survey.excess(column)
        n_good = int((excess <= limit).sum())
        rows.append((f"{column} + {limit:g}", f"{n_good} of {len(excess)}",
                     f"{100 * n_good / len(excess):.1f} %", f"{np.nanmax(excess):.4f}",
                     f"{np.nanmedian(excess):.4f}", f"{np.nanmin(excess):.4f}"))
    print("-2 ln L, ours minus the reference's:\n")
    table(("at most", "stars", "fraction", "largest", "median", "smallest"), rows)

    theirs = np.asarray(survey.reference["M2LL_FIT"] - survey.reference["M2LL_BEST"])
    print(f"rvspecfit's own is within 0.1 of M2LL_BEST for {int((theirs <= 0.1).sum())} of "
          f"{len(theirs)} stars, and above it by more than 5 for {int((theirs > 5).sum())}.\n")


def print_scatter(survey):
    rows = []
    for name in PARAMETERS:
        delta = survey.delta(name, survey.fitted)
        median = np.median(delta, axis=1)
        row = [unit(name), f"{median[0]:.3g}", f"{median[1]:.3g}"]
        for scatter in SCATTERS.values():
            ours, theirs = scatter(delta)
            row += [f"{ours:.4g}", f"{theirs:.4g}", f"{ours / theirs:.3f}"]
        rows.append(row)
    print(f"Fitted minus true over all {int(survey.fitted.sum())} fitted stars:\n")
    table(["", "median, ours", "rvspecfit's"]
          + [f"{s}, {who}" for s in SCATTERS for who in ("ours", "rvspecfit's", "ratio")], rows)


def pull(survey, name, rows):
    """Ours and rvspecfit's (fitted - true)/error where both have an error."""
    if name == "VSINI":  # rvspecfit gives no error of it
        errors = [survey.fit["VSINI_ERR"][rows]]
    else:
        errors = [survey.fit[name + "_ERR"][rows], survey.reference[name + "_ERR"][rows]]
    use = np.all([np.isfinite(e) & (e > 0) for e in errors], axis=0)
    return [d[use] / e[use] for d, e in zip(survey.delta(name, rows), errors)]


def print_pulls(survey):
    inside = survey.fitted & (survey.fit["HULL_DIST"] == 0) & (survey.fit["RVS_WARN"] == 0)
    rows = []
    for name in PARAMETERS + ("VSINI",):
        for low, high in SN_BINS + ((SN_BINS[0][0], SN_BINS[-1][1]),):
            at = survey.bin(low, high)
            at = at[inside[at]]
            if name == "VSINI":  # resolved: below that it is one-sided
                at = at[survey.fit["VSINI"][at] > 20.0]
            pulls = pull(survey, name, at)
            if len(pulls[0]) < 5:
                continue
            row = [name, f"{low}–{high}", len(pulls[0])]
            for p in pulls:
                row += [f"{np.median(p):.2f}", f"{half_width(p):.2f}"]
            rows.append(row + ["", ""] * (2 - len(pulls)))
    print("Pulls, (fitted - true)/error, of stars without a warning; width: half of the central "
          "68 %; VSINI: fitted above 20 km/s:\n")
    table(("", "S/N", "stars", "median, ours", "width", "median, rvspecfit's", "width"), rows)


def print_vsini(survey):
    rows = []
    for low, high in VSINI_BINS:
        true = survey.truth["VSINI"]
        at = np.flatnonzero(survey.fitted & (true >= low) & (true < high))
        if not len(at):
            continue
        row = [f"{low}–{min(high, 100)}", len(at)]
        delta = survey.delta("VSINI", at)
        for who, d in zip((survey.fit, survey.reference), delta):
            row += [f"{np.median(d):.2f}", f"{half_width(d):.2f}",
                    f"{100 * np.mean(np.abs(who['VSINI'][at]) < 0.01):.0f} %"]
        rows.append(row)
    print("v sin i (km/s), fitted minus true:\n")
    table(("true v sin i", "stars", "median, ours", "68 %", "at 0", "median, rvspecfit's", "68 %",
           "at 0"), rows)


def criteria(survey):
    """The criteria as (name, what was found, whether it passes)."""
    found = []
    done = int((survey.fit["STATUS"] != 0).sum())
    n_fitted, n = int(survey.fitted.sum()), len(survey.fitted)
    found.append(("every star has a STATUS", f"{done} of {n}", done == n))
    found.append(("every star is fitted", f"{n_fitted} of {n}", n_fitted == n))
    good = fraction_below(survey.excess("M2LL_FIT"), MAX_EXCESS)
    found.append((f"-2 ln L at most rvspecfit's + {MAX_EXCESS:g} for {100 * MIN_FRACTION:.0f} %",
                  f"{100 * good:.1f} %", good >= MIN_FRACTION))
    for key, scatter in SCATTERS.items():
        for name in PARAMETERS:
            ours, theirs = scatter(survey.delta(name, survey.fitted))
            ratio = float(ours / theirs)
            found.append((f"{key} scatter of {name} at most {MAX_RATIO:g} of rvspecfit's",
                          f"{ratio:.3f}", ratio <= MAX_RATIO))
        for name in PARAMETERS:
            for low, high in SN_BINS:
                delta = survey.delta(name, survey.bin(low, high))
                _, _, ratio, below, above = ratio_interval(delta, scatter)
                found.append((f"{key} scatter of {name} at S/N {low}–{high} at most rvspecfit's",
                              f"{ratio:.3f} [{below:.3f}, {above:.3f}]", below <= 1.0))
    return found


def default_data():
    here = os.path.dirname(os.path.abspath(__file__))
    return os.environ.get("STARMILL_TEST_DATA") or os.path.join(here, "..", "..", "shared", "data")


def main(arguments):
    parser = argparse.ArgumentParser(description="Validate fits of the reference survey.")
    parser.add_argument("--data", default=default_data(), help="folder of the test data")
    parser.add_argument("fit", nargs="+", help="result file of coadd-dev.fits.gz")
    options = parser.parse_args(arguments)
    failed = 0
    for path in options.fit:
        try:
            survey = Survey(path, options.data)
        except (OSError, KeyError, ValueError) as error:
            sys.exit(f"validate_survey.py: {error}")
        print(f"### {survey.setting('optimizer')}\n")
        print(f"{path}: revision {survey.revision}, {survey.setting('precision')}, "
              f"{survey.device}.\n")
        print_likelihood(survey)
        print_scatter(survey)
        print_pulls(survey)
        print_vsini(survey)
        found = criteria(survey)
        bad = [line for line in found if not line[2]]
        failed += len(bad)
        print(f"Criteria: {len(found) - len(bad)} of {len(found)} met.")
        for name, value, _ in bad:
            print(f"NOT MET: {name}: {value}")
        print()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
