# SPDX-License-Identifier: BSD-3-Clause
"""Templates of the initial guess."""

import numpy as np

from starmill.cli.basics import INPUT, USAGE, Failure
from starmill.templates.library_data import hull_distance

VSINI_KM_S = (0.0, 100.0)


def fill_range(library, low, high, n_guess):
    """Set n_guess quasi-random guess templates inside all hulls and between mapped labels low and
    high [n_label], by the additive recurrence of the generalised golden ratio."""
    n_label = library.n_label
    phi = np.roots([1] + [0] * (n_label - 1) + [-1, -1])
    alpha = phi[np.isreal(phi) & (phi.real > 1)].real[0] ** -np.arange(1.0, n_label + 1)
    found, n_try, most = [], 0, 1000000 + 1000 * n_guess
    while sum(map(len, found)) < n_guess:
        if n_try > most:
            raise Failure(USAGE, f"only {sum(map(len, found))} of {n_guess} templates for the "
                                 "initial guess were found inside the hulls, which fill too little "
                                 "of the labels' ranges")
        u = 0.5 + np.arange(n_try + 1, n_try + 10001)[:, np.newaxis] * alpha
        x = low + (high - low) * (u - np.floor(u))
        value = library.unmap(x)
        found.append(value[hull_distance(library, value) <= 0])
        n_try += len(value)
    library.guess_label = np.concatenate(found)[:n_guess]
    library.guess_vsini_km_s = np.array(VSINI_KM_S)


def spread(library, values, n_guess):
    """Choose up to n_guess guess templates among models at values [n][n_label]: the central one
    inside the hulls, then the farthest from all before.  Return which are outside the hulls."""
    mapped = library.map(values)
    outside = ~(hull_distance(library, values) <= 1e-10)
    if outside.all():
        raise Failure(INPUT, "no spectrum lies inside the hulls of its labels")
    free = np.where(outside, -1.0, np.inf)
    at = int(np.argmin(np.where(outside, np.inf, (mapped ** 2).sum(axis=1))))  # central model
    taken = []
    while len(taken) < min(n_guess, len(values)):
        taken.append(at)
        free = np.minimum(free, ((mapped - mapped[at]) ** 2).sum(axis=1))
        at = int(np.argmax(free))
        if free[at] <= 1e-12:  # the rest have labels of templates already chosen
            break
    library.guess_label = values[taken]
    library.guess_vsini_km_s = np.array(VSINI_KM_S)
    return outside
