# SPDX-License-Identifier: BSD-3-Clause
"""Hulls around models in mapped labels."""

import itertools

import numpy as np
from scipy.spatial import ConvexHull, KDTree, QhullError

from starmill.cli.basics import INPUT, Failure
from starmill.templates.library_data import MAX_FACET, MAX_HULL, Hull


def make_hulls(labels, mapped, kind="pairs"):
    """Return hulls of mapped labels [n][n_label]. kind "pairs": one hull per pair of labels;
    "dense": the same without isolated points; "whole": one hull of all labels."""
    n_label = len(labels)
    if n_label == 1:
        return [Hull(np.array([0]), np.array([[-1, mapped.min()], [1, -mapped.max()]]))]
    if kind == "whole" and n_label > 2:
        return [whole_hull(mapped)]
    if n_label * (n_label - 1) // 2 > MAX_HULL:
        raise Failure(INPUT, f"{n_label} labels have more pairs than the {MAX_HULL} hulls of a "
                             "library")
    hulls = []
    for pair in itertools.combinations(range(n_label), 2):
        x = mapped[:, pair]
        try:
            hulls.append(Hull(np.array(pair), facets(x[near(x)] if kind == "dense" else x)))
        except (QhullError, ValueError) as error:
            a, b = (labels[i].name for i in pair)
            raise Failure(INPUT, f"labels {a} and {b} are not independent: {len(x)} points of "
                                 "which no hull can be made: they lie on a line or "
                                 "apart") from error
    return hulls


def near(x):
    """Return which points [n][2] have neighbours; isolated ones would extend the hull."""
    if len(x) <= 3:
        return np.ones(len(x), bool)
    third = KDTree(x).query(x, 4)[0][:, 3]
    return third <= max(4 * np.median(third), 0.3)


def facets(x):
    """Return the facets of the points' hull, moved outward by rounding errors."""
    facet = np.unique(ConvexHull(x).equations, axis=0)
    for f in facet:
        f[-1] -= max(0.0, (x @ f[:-1] + f[-1]).max())
    return facet


def whole_hull(x):
    n, n_label = x.shape
    try:
        facet = facets(x)
    except QhullError as error:
        raise Failure(INPUT, f"no hull of {n_label} labels holds {n} models: they are too few or "
                             "lie in a plane") from error
    if len(facet) > MAX_FACET:
        raise Failure(INPUT, f"the hull of {n_label} labels of {n} models has {len(facet)} facets, "
                             f"at most {MAX_FACET}: use hulls of pairs")
    return Hull(np.arange(n_label), facet)
