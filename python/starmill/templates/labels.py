# SPDX-License-Identifier: BSD-3-Clause
"""What a library takes from the labels of its models: descriptions of labels, hulls around the
models, and the labels of the templates of the initial guess."""

import itertools
import math
import re

import numpy as np
from scipy.spatial import ConvexHull, KDTree, QhullError

from starmill.cli.basics import INPUT, USAGE, Failure, need
from starmill.templates.library_data import MAX_FACET, MAX_HULL, Hull, Label, inside_hulls

# column, unit and typical uncertainty of the labels of synthetic spectra
KNOWN = {"teff": ("TEFF", "K", 60.0), "logg": ("LOGG", "log(cm s**-2)", 0.15),
         "feh": ("FEH", "dex", 0.1), "alpha": ("ALPHAFE", "dex", 0.05)}
LEAST_TEFF = 300.0  # of the hottest model, K


def describe(name):
    """Return a Label of that name; scale 0 if the name is not in KNOWN."""
    column, unit, scale = KNOWN.get(name, (re.sub("[^A-Z0-9]", "_", name.upper()), "", 0.0))
    return Label(name, column, unit, scale=scale)


def make_labels(names, values):
    """Return (labels, mapped labels [n][n_label]) of models with values [n][n_label]."""
    labels = [measure(describe(name), values[:, i]) for i, name in enumerate(names)]
    return labels, np.stack([label.map(values[:, i]) for i, label in enumerate(labels)], axis=1)


def measure(label, value):
    """Set mapping, range, mean, std and scale of a label from values [n]; return the label."""
    label.min, label.max = float(value.min()), float(value.max())
    label.mapping = int(label.name == "teff")
    need(not label.mapping or label.min > 0 and label.max >= LEAST_TEFF, INPUT,
         f"label teff is {label.min:g} to {label.max:g}, expected K, above 0")
    x = label.map(value)
    label.mean = math.fsum(x) / len(x)
    label.std = math.sqrt(math.fsum((x - label.mean) ** 2) / len(x))
    need(label.std > 1e-9 * (1 + abs(label.mean)), INPUT, f"label {label.name} is {label.min:g} in "
         f"all {len(value)} spectra in use; leave it out (--labels) or keep a wider range")
    if not label.scale > 0:
        label.scale = 0.1 * (label.max - label.min) / math.sqrt(12)
    return label


def make_hulls(labels, mapped, kind="pairs"):
    """Return the hulls around mapped labels [n][n_label].  kind "pairs": one hull per pair of
    labels; "dense": the same without isolated points; "whole": one hull in all labels."""
    n_label = len(labels)
    if n_label == 1:
        return [Hull(np.array([0]), np.array([[-1, mapped.min()], [1, -mapped.max()]]))]
    if kind == "whole" and n_label > 2:
        return [whole_hull(mapped)]
    need(n_label * (n_label - 1) // 2 <= MAX_HULL, INPUT, f"{n_label} labels are too many: "
         f"each pair of labels has a hull, and a library has at most {MAX_HULL}; give fewer labels")
    hulls = []
    for pair in itertools.combinations(range(n_label), 2):
        x = mapped[:, pair]
        try:
            hulls.append(Hull(np.array(pair), facets(x[near(x)] if kind == "dense" else x)))
        except (QhullError, ValueError) as error:
            a, b = (labels[i].name for i in pair)
            raise Failure(INPUT, f"labels {a} and {b} have no hull: most of their {len(x)} points "
                                 "lie on a line; give more models or fewer labels") from error
    return hulls


def near(x):
    """Return which points [n][2] have neighbours; isolated ones would extend the hull."""
    if len(x) <= 3:
        return np.ones(len(x), bool)
    third = KDTree(x).query(x, 4)[0][:, 3]
    return third <= max(4 * np.median(third), 0.3)


def facets(x):
    """Return the facets of the hull of points x, moved outward until no point is outside."""
    facet = np.unique(ConvexHull(x).equations, axis=0)
    for f in facet:
        f[-1] -= max(0.0, (x @ f[:-1] + f[-1]).max())
    return facet


def whole_hull(x):
    n, n_label = x.shape
    try:
        facet = facets(x)
    except QhullError as error:
        raise Failure(INPUT, f"{n} models span no hull in {n_label} labels: give more, or leave "
                             "out a label that follows from the others") from error
    need(len(facet) <= MAX_FACET, INPUT, f"the hull of {n_label} labels of {n} models has "
         f"{len(facet)} facets, more than {MAX_FACET}: use --hulls pairs")
    return Hull(np.arange(n_label), facet)


def fill_range(library, low, high, n_guess):
    """Set the labels of n_guess templates of the initial guess: points of a quasi-random sequence
    (additive recurrence) inside all hulls and between the mapped labels low and high [n_label]."""
    n_label = library.n_label
    # the root above 1 of x^(n_label + 1) = x + 1, as PLASTIC of grids/plan.py
    phi = np.roots([1] + [0] * (n_label - 1) + [-1, -1])
    alpha = phi[np.isreal(phi) & (phi.real > 1)].real[0] ** -np.arange(1.0, n_label + 1)
    found, n_try, most = [], 0, 1000000 + 1000 * n_guess
    while sum(map(len, found)) < n_guess:
        need(n_try <= most, USAGE,
             f"only {sum(map(len, found))} of {n_guess} templates for the initial guess were found "
             "inside the hulls, which are small; give fewer --guess-templates")
        u = 0.5 + np.arange(n_try + 1, n_try + 10001)[:, np.newaxis] * alpha
        value = library.unmap(low + (high - low) * (u - np.floor(u)))
        found.append(value[inside_hulls(library, value)])
        n_try += len(value)
    library.guess_label = np.concatenate(found)[:n_guess]


def spread(library, values, n_guess):
    """Set library.guess_label to up to n_guess rows of values [n][n_label]: the central model,
    then each time the farthest from those taken.  Return a mask [n] of models outside the hulls."""
    mapped = library.map(values)
    outside = ~inside_hulls(library, values)
    need(not outside.all(), INPUT, "no spectrum has labels inside the hulls; give more spectra")
    free = np.where(outside, -1.0, np.inf)  # squared distance to the nearest model chosen
    at = int(np.argmin(np.where(outside, np.inf, (mapped ** 2).sum(axis=1))))  # central model
    taken = []
    while len(taken) < min(n_guess, len(values)):
        taken.append(at)
        free = np.minimum(free, ((mapped - mapped[at]) ** 2).sum(axis=1))
        at = int(np.argmax(free))
        if free[at] <= 1e-12:  # the rest have labels of templates already chosen
            break
    library.guess_label = values[taken]
    return outside
