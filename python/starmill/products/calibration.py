# SPDX-License-Identifier: BSD-3-Clause
"""Calibrates errors by stars with several rows.  Finds for each parameter a factor, as a function
of S/N, and a floor, so that errors match the differences between a star's rows."""

import collections

import numpy as np
from scipy.optimize import minimize

from starmill.cli.basics import warn
from starmill.products.survey import Survey, half_width

LEAST, LEAST_FLOOR = 10, 30  # pairs; with fewer, no factor, or no floor
PER_KNOT, MOST_KNOTS = 100, 5  # pairs for each factor along S/N; most factors
LOW, HIGH = np.log(0.05), np.log(20)  # limits of ln factor
TAIL = 4.0  # degrees of freedom of Student's distribution: outliers have little weight
WORTH = 4.0  # a floor is kept if it lowers -2 ln L by more

# n: number of pairs.  A calibrated error is hypot(factor * error, floor); factor [n_knot] at knots
# in S/N.  before: robust width of difference / stated error.  after: the same, with each half of
# the pairs calibrated by the other half.  thirds: `after` of each third of the pairs, by S/N.
Calibration = collections.namedtuple("Calibration", "name n factor floor before after thirds")
# delta [n]: difference of a pair's two rows.  error, ln_sn [2][n]: of these rows
Pairs = collections.namedtuple("Pairs", "delta error ln_sn")


def scaled(pairs, knots, factor, floor):
    """Return the calibrated errors of the differences [n]."""
    rows = (np.interp(pairs.ln_sn, knots, factor) * pairs.error) ** 2 + floor**2
    return np.sqrt(rows.sum(axis=0))


def fitted(pairs, knots):
    """Return the most likely (factor, floor) of all pairs; NaN with too few."""
    n = len(pairs.delta)
    if n < LEAST or not half_width(pairs.delta) > 0:  # equal values would give error 0
        return np.full(len(knots), np.nan), np.nan
    unit = np.median(pairs.error)

    def m2ll(at):
        sigma = scaled(pairs, knots, np.exp(at[:-1]), at[-1] * unit)
        wings = (TAIL + 1) * np.log1p((pairs.delta / sigma) ** 2 / TAIL)  # Student's distribution
        return float(np.sum(2 * np.log(sigma) + wings))

    def least(floor, most):  # by a search from this floor
        width = np.log(half_width(pairs.delta / scaled(pairs, [0], [1], 0)) + 1e-9)
        return minimize(m2ll, [np.clip(width, LOW, HIGH)] * len(knots) + [floor],
                        bounds=[(LOW, HIGH)] * len(knots) + [(0, most)], method="L-BFGS-B")
    best = least(0.0, 0.0)
    if n >= LEAST_FLOOR:
        with_floor = min((least(floor, 1e3) for floor in (0.1, 1.0)), key=lambda found: found.fun)
        best = with_floor if with_floor.fun < best.fun - WORTH else best
    factor, floor = np.exp(best.x[:-1]), best.x[-1] * unit
    width = half_width(pairs.delta / scaled(pairs, knots, factor, floor))  # rescale it to 1
    return factor * width, floor * width


def calibrated(name, pairs, knots):
    """Return the Calibration of the parameter `name` from its Pairs."""
    use = np.isfinite(pairs.delta) & np.isfinite(pairs.error).all(axis=0)
    pairs, n = Pairs(*(array[..., use] for array in pairs)), int(use.sum())
    if n < PER_KNOT * len(knots):
        knots = np.mean(knots, keepdims=True)
    pull = np.full(n, np.nan)
    for half in (0, 1):  # calibrate it by the other half
        here, other = (Pairs(*(array[..., k::2] for array in pairs)) for k in (half, 1 - half))
        pull[half::2] = here.delta / scaled(here, knots, *fitted(other, knots))
    order = np.argsort(pairs.ln_sn.min(axis=0))
    return Calibration(name, n, *fitted(pairs, knots),
                       half_width(pairs.delta / scaled(pairs, [0], [1], 0)), half_width(pull),
                       [half_width(pull[part]) for part in np.array_split(order, 3)])


def of_result(result):
    """Return the factors' knots in S/N, and an open result's Calibration of each parameter."""
    r = Survey(result).repeats
    for words in r.unjoined:
        warn(f"--calibrate: {words}")
    ln_sn = np.log(np.maximum(r.sn, 1e-3))
    n = int(np.clip(r.n_pair // PER_KNOT, 1, MOST_KNOTS))
    knots = np.unique(np.percentile(ln_sn if r.n_pair else 0, 100 * (np.arange(n) + 0.5) / n))
    return np.exp(knots), [calibrated(p, Pairs(r.delta[p], r.errors[p], ln_sn), knots)
                           for p in result.parameters]


def write(fits, sn, calibrations):
    """Write the calibrations as attributes of the group /fits."""
    fits.attrs["CAL_PARAMETERS"] = np.array([c.name for c in calibrations], "S")
    fits.attrs["CAL_SN"] = sn
    fits.attrs["CAL_FACTOR"] = np.array([np.resize(c.factor, len(sn)) for c in calibrations])
    for key, of in {"FLOOR": "floor", "PAIRS": "n", "CHI_STATED": "before", "CHI": "after"}.items():
        fits.attrs[f"CAL_{key}"] = np.array([getattr(c, of) for c in calibrations])


def table(sn, calibrations):
    lines = ["error         pairs  chi stated  calibrated, thirds by S/N   floor      factor"
             + (" at S/N " + ", ".join(f"{x:.3g}" for x in sn)) * (len(sn) > 1)]
    for c in calibrations:
        chi = " ".join(f"{x:5.2f}" for x in (c.after, *c.thirds))
        lines.append(f"{c.name + '_ERR':12} {c.n:6}  {c.before:10.2f}  {chi:>25}   "
                     f"{c.floor:<9.4g}  {' '.join(f'{x:.3f}' for x in c.factor)}")
    return "\n".join(lines)
