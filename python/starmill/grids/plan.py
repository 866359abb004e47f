# SPDX-License-Identifier: BSD-3-Clause
"""Which models a grid has, in which order, and which are done.
Imports only Python's own modules, so that its tests run anywhere."""

import collections
import contextlib
import json
import math
import os

from starmill.cli.basics import need
from starmill.grids import lines

CARDS = ("TEFF", "LOGG", "FEH", "ALPHAFE")  # of labels, in the order of all tuples of labels here
# Elements of plan "elements": FITS card of [X/Fe]; atomic number; solar abundance of Turbospectrum
# (Grevesse, Asplund & Sauval 2007); whether X is an alpha element; range of [X/Fe], or for an
# alpha element the range of [X/alpha].
ELEMENTS = (("CFE", 6, 8.39, False, (-0.6, 0.6)), ("NFE", 7, 7.78, False, (-0.4, 0.8)),
            ("NAFE", 11, 6.17, False, (-0.4, 0.6)), ("MGFE", 12, 7.53, True, (-0.4, 0.4)),
            ("SIFE", 14, 7.51, True, (-0.4, 0.4)), ("CAFE", 20, 6.31, True, (-0.4, 0.4)),
            ("TIFE", 22, 4.90, True, (-0.4, 0.4)), ("NIFE", 28, 6.23, False, (-0.4, 0.4)))
VMICRO_RANGE = (-0.4, 0.4)  # km/s, added to microturbulence() by plan "elements"


class Grid(collections.namedtuple("Grid", "name TEFF LOGG_MIN ALPHA SHARE_SPARSE RARE LIGHT PIECES "
                                          "STORED SIGMA_AA STEP_AA")):
    """The labels and wavelengths that a plan covers.

    LOGG_MIN      (Teff, lowest log g) points; no atmospheres of lower log g are published
    SHARE_SPARSE  share of the models with [Fe/H] below FEH_DENSE, where few stars are
    RARE          (Teff, log g); half of the models with higher Teff and lower log g are left out
    LIGHT         least and largest allowed share of a star's light in the stored wavelengths
    PIECES        what to compute: (first, last air wavelength, step (A), index in lines.PIECES)
    STORED        (first, last) vacuum wavelengths (A) of the ranges in a model's file
    SIGMA_AA      sigma (A) of the Gaussian that smooths the stored spectrum
    STEP_AA       step (A) of the stored spectrum; 5/8 SIGMA_AA loses nothing
    """
    LOGG_MAX = 5.0
    FEH = (-2.5, 0.5)
    FEH_DENSE = -1.0

    def lowest_logg(self, teff):
        for (t0, g0), (t1, g1) in zip(self.LOGG_MIN, self.LOGG_MIN[1:]):
            if teff <= t1:
                return g0 + (g1 - g0) * (teff - t0) / (t1 - t0)
        return self.LOGG_MIN[-1][1]

    def labels_of(self, unit):
        """Return the labels at a point of the unit cube [0,1]^4, rounded as in file names."""
        teff = round(self.TEFF[0] * (self.TEFF[1] / self.TEFF[0]) ** unit[0])
        low, share = self.lowest_logg(teff), self.SHARE_SPARSE
        logg = low + (self.LOGG_MAX - low) * unit[1]
        if unit[2] < share:
            feh = self.FEH[0] + (self.FEH_DENSE - self.FEH[0]) * unit[2] / share
        else:
            feh = self.FEH_DENSE + (self.FEH[1] - self.FEH_DENSE) * (unit[2] - share) / (1 - share)
        alpha = self.ALPHA[0] + (self.ALPHA[1] - self.ALPHA[0]) * unit[3]
        return (float(teff), round(logg, 2), round(feh, 2), round(alpha, 2))


PIECES = tuple((*piece, i) for i, piece in enumerate(lines.PIECES))
# Grid's fields STORED, SIGMA_AA and STEP_AA for DESI, SDSS, LAMOST and the low-resolution modes of
# WEAVE and 4MOST. The wavelength range has margins for velocities.
STORED = (((3540.0, 10010.0),), 0.2, 0.125)
FGK_LABELS = (
    (4000.0, 7250.0), ((4000.0, 0.5), (6000.0, 0.5), (6500.0, 1.0), (7000.0, 1.5), (7250.0, 2.0)),
    (-0.1, 0.5), 0.35, (6000.0, 3.3))
FGK = Grid("fgk", *FGK_LABELS, (0.25, 0.8), PIECES, *STORED)
# The windows (A) of spectrographs of R 5,000 to 25,000, and 1,000 km/s more at each end:
# 4MOST and WEAVE 3926-4355, 4900-5730, 6100-6860; LAMOST 4950-5350, 6300-6800; Gaia 8440-8710;
# GALAH 4713-4903, 5648-5873, 6478-6737, 7585-7887.
FGK_HR = Grid(
    "fgk-hr", *FGK_LABELS, (0.1, 0.5),
    ((3912.0, 4370.0, 0.03, 0), (4697.0, 5893.0, 0.03, 1), (6080.0, 6500.0, 0.03, 1),
     (6500.0, 6884.0, 0.03, 2), (7559.0, 7914.0, 0.03, 2), (8411.0, 8740.0, 0.03, 2)),
    ((3912.0, 4370.0), (4697.0, 5893.0), (6080.0, 6884.0), (7559.0, 7914.0), (8411.0, 8740.0)),
    0.04, 0.025)
# Further labels: [X/Fe] of ELEMENTS, then the microturbulence (km/s).
FGK_ELEMENTS = Grid("elements", *FGK_LABELS, (0.25, 0.8), PIECES, *STORED)
# LOGG_MIN is the lowest log g of ATLAS9, but at least 2.  Hot stars have wide lines: wavelength
# steps above those of PIECES change a spectrum by only 0.03 % (rms, at 9200 K).
OBA = Grid(
    "oba", (7000.0, 15000.0), ((7000.0, 2.0), (11250.0, 2.0), (11750.0, 2.5), (15000.0, 2.5)),
    (0.0, 0.4), 0.3, (7000.0, 3.0), (0.15, 0.8), tuple(
        (first, last, step, i) for (first, last, _, i), step in zip(PIECES, (0.05, 0.05, 0.1))),
    *STORED)
GRIDS = {grid.name: grid for grid in (FGK, FGK_HR, FGK_ELEMENTS, OBA)}
# Real root of x^5 = x + 1. Its negative powers are the steps, one per label, of a quasi-random
# sequence of points: x_i = 0.5 + i step, modulo 1.
PLASTIC = 1.1673039782614187
# The square roots of these primes are the steps along the abundances and the microturbulence.
PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37)


def plan(n_model, grid=FGK):
    """Return the first n_model labels of the grid; a longer plan begins with a shorter one.
    The 16 corners of the volume come first, since no emulator extrapolates well. A quasi-random
    sequence follows, since any number of its points fills the volume evenly. Every fourth of these
    points is moved to a face of the volume."""
    out, seen = [], set()

    def add(labels):
        if labels not in seen and len(out) < n_model:
            seen.add(labels)
            out.append(labels + abundances(labels, len(seen)) if grid is FGK_ELEMENTS else labels)
    for corner in range(16):
        add(grid.labels_of([(corner >> i) & 1 for i in range(4)]))
    i = 0
    while len(out) < n_model:
        i += 1
        unit = [(0.5 + i * PLASTIC ** -(d + 1)) % 1.0 for d in range(4)]
        if i % 4 == 0:
            unit[i // 4 % 4] = float(i // 16 % 2)
        labels = grid.labels_of(unit)
        rare = labels[0] > grid.RARE[0] and labels[1] < grid.RARE[1]
        if not rare or (i * (math.sqrt(5) - 1) / 2) % 1.0 >= 0.5:  # half of these giants
            add(labels)
    return out


def abundances(labels, i):
    """Return [X/Fe] of ELEMENTS and the microturbulence (km/s) of model i of plan "elements"."""
    teff, logg, _, alpha = labels
    ranges = [e[4] for e in ELEMENTS] + [VMICRO_RANGE]
    means = [alpha * e[3] for e in ELEMENTS] + [microturbulence(teff, logg)]
    return tuple(round(mean + low + (high - low) * ((0.5 + i * math.sqrt(prime)) % 1.0), 2)
                 for prime, mean, (low, high) in zip(PRIMES, means, ranges))


def microturbulence(teff, logg):
    """Return the microturbulence (km/s), a smooth function close to measured values.
    It is 1.0 in the Sun, 1.3 in clump giants, and 1.4 at 6500 K on the main sequence. It is
    constant up to 4667 K, rises to a maximum of 2.3 at 8250 K, and falls to 1.0 at 12000 K."""
    t = min(max(teff - 5500.0, -2500.0 / 3.0), 1750.0)
    xi = 1.07 + 2.5e-4 * t + 1.5e-7 * t * t
    up = min(max((teff - 7250.0) / 1000.0, 0.0), 1.0)
    xi += 0.775 * (up - 0.5 * up * up)
    down = min(max((teff - 8250.0) / 3750.0, 0.0), 1.0)
    xi += (1.0 - xi) * down * down * (3.0 - 2.0 * down)
    return round(max(0.7, xi - 0.25 * (logg - 4.0)), 2)


def name_of(labels):
    """Return the name of a model's file, without extension."""
    return "t%04d_g%+.2f_m%+.2f_a%+.2f" % labels[:4]


class Store:
    """The folder of finished models: NAME.fits is a good model, NAME.bad says why a model is bad.
    A file gets its name when it is complete.  settings.json holds the settings of all models."""

    def __init__(self, folder, settings=None):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        path = self.path("settings", ".json")
        if settings is not None and not os.path.exists(path):
            self.write(path, json.dumps(settings, indent=1, sort_keys=True) + "\n")
        elif settings is not None:
            with open(path) as f:
                there = json.load(f)
            differ = sorted(k for k in {**there, **settings} if there.get(k) != settings.get(k))
            need(not differ, ValueError, "%s was made with other settings (%s): use another folder"
                 % (folder, ", ".join(differ)))

    @staticmethod
    def write(path, text):
        with open(path + ".part", "w") as f:
            f.write(text)
        os.replace(path + ".part", path)

    def path(self, name, end=".fits"):
        return os.path.join(self.folder, name + end)

    def state(self, name):
        """Return 'done', 'bad' or 'to do'."""
        if os.path.exists(self.path(name)):
            return "done"
        return "bad" if os.path.exists(self.path(name, ".bad")) else "to do"

    def why(self, name):
        with open(self.path(name, ".bad")) as f:
            return f.read().strip()

    def mark_bad(self, name, why):
        self.write(self.path(name, ".bad"), why.strip() + "\n")

    def keep(self, name, part):
        """Move a complete file into the folder; remove an old .bad of this model."""
        os.replace(part, self.path(name))
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path(name, ".bad"))

    def to_do(self, models, retry_bad=False):
        """Return the models still to compute (with retry_bad also the bad ones), in order."""
        wanted = ("to do", "bad") if retry_bad else ("to do",)
        return [m for m in models if self.state(name_of(m)) in wanted]

    def counts(self, models):
        states = [self.state(name_of(m)) for m in models]
        return {state: states.count(state) for state in ("done", "bad", "to do")}
