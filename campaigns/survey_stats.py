# SPDX-License-Identifier: BSD-3-Clause
"""Compares fitted with true values of a simulated survey, for the campaigns' tables and pictures.

A fit (docs/use/formats.md) is read with the truth table of `starmill simulate`
(docs/science/simulator.md), and the truth is put into the order of the fit's rows.
"""

import collections
import os
import sys

import numpy as np
from astropy.io import fits as pyfits

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
from starmill.cli.basics import INPUT, Failure  # noqa: E402
from starmill.products.result import FITTED, Result, text  # noqa: E402

SN_BINS = ((5, 10), (10, 20), (20, 40), (40, 100))  # only the last includes its upper end


def mad(delta, axis=-1):
    """1.4826 times the median absolute deviation: sigma of a Gaussian."""
    centre = np.median(delta, axis=axis, keepdims=True)
    return 1.4826 * np.median(np.abs(delta - centre), axis=axis)


def half_width(delta, axis=-1):
    """Half the width of the central 68.27 %: sigma of a Gaussian."""
    low, high = np.percentile(delta, [15.865, 84.135], axis=axis)
    return 0.5 * (high - low)


def table(columns, rows):
    """Print a table in Markdown."""
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row) + " |")
    print()


# name of the column, how it is written in a picture, unit, digits that are worth printing
Parameter = collections.namedtuple("Parameter", "name symbol unit digits")
PARAMETERS = (
    Parameter("VRAD", "radial velocity", "km/s", 2),
    Parameter("TEFF", "$T_{\\rm eff}$", "K", 0),
    Parameter("LOGG", "$\\log g$", "dex", 2),
    Parameter("FEH", "[Fe/H]", "dex", 2),
    Parameter("ALPHAFE", "[$\\alpha$/Fe]", "dex", 2),
    Parameter("VSINI", "$v\\,\\sin i$", "km/s", 1),
)
BINS = ((0, SN_BINS[0][0]),) + SN_BINS + ((SN_BINS[-1][1], np.inf),)  # without their upper end
CLEAN = "star"  # KIND of a row without a defect
RESOLVED_KM_S = 40.0  # from this true v sin i on, errors of v sin i are expected to be Gaussian
MIN_STARS = 5  # fewer have no percentiles to speak of

Statistics = collections.namedtuple("Statistics", "n median scatter error pull")


class Survey:
    """A fit and its truth.

     result   the fit;  fit: columns of its /fits by name, [row]
     true     columns of the truth by name, [row of the fit]
     truth    the whole truth table, also rows that the fit has not selected
     fitted   has a solution;  clean: simulated without a defect
     good     fitted, clean and without a warning: what statistics count
    """

    def __init__(self, fit_path, truth_path):
        self.result = Result(fit_path)
        self.fit = {name: column[...] for name, column in self.result.fits.items()}
        try:
            with pyfits.open(truth_path) as file:
                self.truth = np.array(file["TRUTH"].data)
        except (OSError, KeyError) as error:
            raise Failure(INPUT, f"{truth_path} cannot be read as a truth table: {error}") from error
        parameters = tuple(p.name for p in PARAMETERS)
        for where, names, path in ((self.fit, parameters, fit_path),
                                   (self.truth.dtype.names, ("KIND", "SN", *parameters), truth_path)):
            for name in names:
                if name not in where:
                    raise Failure(INPUT, f"{path} has no column {name}")
        row_of = {int(target): row for row, target in enumerate(self.truth["TARGETID"])}
        missing = [int(t) for t in self.fit["TARGETID"] if int(t) not in row_of]
        if missing:
            raise Failure(INPUT, f"{truth_path} has no truth for TARGETID {missing[0]} of {fit_path}: "
                          "they are not of the same survey")
        rows = np.array([row_of[int(t)] for t in self.fit["TARGETID"]])
        self.true = {name: self.truth[name][rows] for name in self.truth.dtype.names}
        self.sn = np.asarray(self.true["SN"], dtype=float)
        self.kind = np.array([text(k).strip() for k in self.true["KIND"]])
        self.fitted = self.fit["STATUS"] == FITTED
        if not self.fitted.any():
            raise Failure(INPUT, f"{fit_path} holds no fitted star")
        self.clean = self.kind == CLEAN
        self.good = self.fitted & self.clean & (self.fit["RVS_WARN"] == 0)

    def delta(self, name):
        """Recovered minus true, NaN where there is no fit."""
        return self.fit[name] - self.true[name]

    def counted(self, name):
        """Rows that the statistics of a parameter count."""
        if name == "VSINI":
            return self.good & (self.true["VSINI"] >= RESOLVED_KM_S)
        return self.good

    def statistics(self, name, low=0.0, high=np.inf):
        """Statistics of fitted minus true values of one parameter, for stars of low <= S/N < high.

        scatter: half the width of the central 68.27 % of delta; pull: the same of delta / error;
        error: the median stated error.  All are NaN for fewer stars than MIN_STARS.
        """
        at = self.counted(name) & (self.sn >= low) & (self.sn < high)
        n = int(at.sum())
        if n < MIN_STARS:
            return Statistics(n, np.nan, np.nan, np.nan, np.nan)
        delta, error = self.delta(name)[at], self.fit[name + "_ERR"][at]
        return Statistics(n, *map(float, (np.median(delta), half_width(delta), np.median(error),
                                          half_width(delta / error))))

    def warning_names(self, row):
        return [name for bit, (name, _) in self.result.warnings.items()
                if self.fit["RVS_WARN"][row] & bit]


def bin_text(low, high):
    """5-10, and < 5 and >= 100 at the ends."""
    if high == np.inf:
        return "all" if low == 0 else f">= {low:g}"
    return f"< {high:g}" if low == 0 else f"{low:g}-{high:g}"
