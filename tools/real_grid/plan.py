# SPDX-License-Identifier: BSD-3-Clause
"""Which models a grid has, in which order, and which of them are done.

Needs nothing but Python, so that the tests need nothing either.
"""

import json
import math
import os
import re

# Labels of a model, in the order of every tuple here.
LABELS = ("teff", "logg", "feh", "alpha")
CARDS = ("TEFF", "LOGG", "FEH", "ALPHAFE")
TEFF = (4000.0, 7250.0)
LOGG_MAX = 5.0
FEH = (-2.5, 0.5)
ALPHA = (-0.1, 0.5)

# Lowest log g by effective temperature: below it radiation drives winds, and no
# hydrostatic atmosphere was published.
LOGG_MIN = ((4000.0, 0.5), (6000.0, 0.5), (6500.0, 1.0), (7000.0, 1.5), (7250.0, 2.0))

# Most stars are more metal-rich than this, and there lines change most with the labels.
FEH_DENSE, SHARE_SPARSE = -1.0, 0.35

# Giants hotter than this are rare, and their spectra change little: half as many of them.
TEFF_RARE, LOGG_RARE = 6000.0, 3.3

# Positive root of x^5 = x + 1: its negative powers are the steps of the additive
# recurrence with the lowest discrepancy known in four dimensions.
PLASTIC = 1.1673039782614187

N_CORNER = 16


def lowest_logg(teff):
    """Lowest log g of the grid at an effective temperature (K)."""
    for (t0, g0), (t1, g1) in zip(LOGG_MIN, LOGG_MIN[1:]):
        if teff <= t1:
            return g0 + (g1 - g0) * (teff - t0) / (t1 - t0)
    return LOGG_MIN[-1][1]


def labels_of(unit):
    """Labels at a point of the unit cube [0,1]^4, rounded as file names give them."""
    teff = round(TEFF[0] * (TEFF[1] / TEFF[0]) ** unit[0])
    low = lowest_logg(teff)
    logg = low + (LOGG_MAX - low) * unit[1]
    if unit[2] < SHARE_SPARSE:
        feh = FEH[0] + (FEH_DENSE - FEH[0]) * unit[2] / SHARE_SPARSE
    else:
        feh = FEH_DENSE + (FEH[1] - FEH_DENSE) * (unit[2] - SHARE_SPARSE) / (1 - SHARE_SPARSE)
    alpha = ALPHA[0] + (ALPHA[1] - ALPHA[0]) * unit[3]
    return (float(teff), round(logg, 2), round(feh, 2), round(alpha, 2))


def plan(n_model):
    """The first n_model labels of the grid; a longer plan begins with a shorter one.

    The 16 corners come first, since no emulator extrapolates well. Then points of
    an additive recurrence, which fill the volume evenly however many there are; one
    in four is moved to a face, so that the faces are not far from any model either.
    """
    out, seen = [], set()

    def add(labels):
        if labels not in seen and len(out) < n_model:
            seen.add(labels)
            out.append(labels)

    for corner in range(N_CORNER):
        add(labels_of([(corner >> i) & 1 for i in range(4)]))
    i = 0
    while len(out) < n_model:
        i += 1
        unit = [(0.5 + i * PLASTIC ** -(d + 1)) % 1.0 for d in range(4)]
        if i % 4 == 0:
            unit[i // 4 % 4] = float(i // 16 % 2)
        labels = labels_of(unit)
        rare = labels[0] > TEFF_RARE and labels[1] < LOGG_RARE
        if rare and (i * (math.sqrt(5) - 1) / 2) % 1.0 < 0.5:
            continue
        add(labels)
    return out


def microturbulence(teff, logg):
    """Microturbulence in km/s: a smooth function near what is measured in FGK stars.

    1.0 in the Sun, 1.4 at 6500 K on the main sequence, 1.3 in giants of the clump,
    1.7 at 4000 K and log g 1. The parabola in Teff has its minimum at 4667 K and is
    constant below.
    """
    t = max(teff - 5500.0, -2500.0 / 3.0)
    return round(max(0.7, 1.07 + 2.5e-4 * t + 1.5e-7 * t * t - 0.25 * (logg - 4.0)), 2)


def name_of(labels):
    """Name of a model's file, without its ending."""
    return "t%04d_g%+.2f_m%+.2f_a%+.2f" % labels


NAME = re.compile(r"t(\d{4})_g([+-]\d\.\d\d)_m([+-]\d\.\d\d)_a([+-]\d\.\d\d)$")


def labels_from(name):
    """Labels of a model from its name; None where it is not one."""
    match = NAME.match(name)
    return tuple(float(x) for x in match.groups()) if match else None


class Store:
    """The folder of finished models.

    NAME.fits is a good model, NAME.bad holds the reason of a bad one; both appear
    under their names only when they are complete. settings.json holds what all
    models of the folder have in common.
    """

    def __init__(self, folder, settings=None):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "settings.json")
        if settings is None:
            return
        if os.path.exists(path):
            with open(path) as f:
                there = json.load(f)
            differ = sorted(
                k for k in set(there) | set(settings) if there.get(k) != settings.get(k)
            )
            if differ:
                raise ValueError(
                    "%s was made with other settings (%s): use another folder for these"
                    % (folder, ", ".join(differ))
                )
        else:
            self.write(path, json.dumps(settings, indent=1, sort_keys=True) + "\n")

    @staticmethod
    def write(path, text):
        with open(path + ".part", "w") as f:
            f.write(text)
        os.replace(path + ".part", path)

    def path(self, name):
        return os.path.join(self.folder, name + ".fits")

    def state(self, name):
        """'done', 'bad' or 'to do'."""
        if os.path.exists(self.path(name)):
            return "done"
        return "bad" if os.path.exists(os.path.join(self.folder, name + ".bad")) else "to do"

    def why(self, name):
        with open(os.path.join(self.folder, name + ".bad")) as f:
            return f.read().strip()

    def mark_bad(self, name, why):
        self.write(os.path.join(self.folder, name + ".bad"), why.strip() + "\n")

    def keep(self, name, part):
        """Takes a complete file in; a model that was bad before is good now."""
        os.replace(part, self.path(name))
        bad = os.path.join(self.folder, name + ".bad")
        if os.path.exists(bad):
            os.remove(bad)

    def to_do(self, models, retry_bad=False):
        """Those of the models that are to be computed, in their order."""
        wanted = ("to do", "bad") if retry_bad else ("to do",)
        return [m for m in models if self.state(name_of(m)) in wanted]

    def counts(self, models):
        out = {"done": 0, "bad": 0, "to do": 0}
        for m in models:
            out[self.state(name_of(m))] += 1
        return out
