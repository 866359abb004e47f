# SPDX-License-Identifier: BSD-3-Clause
"""Spectra from the emulators of a library, float64 throughout."""

import itertools

import numpy as np
from scipy.interpolate import BSpline
from scipy.spatial.distance import cdist

from starmill.templates.library_data import SplineGrid


def flux(library, i_arm, values):
    """Return the flux [n][n_pix] of an arm at labels `values` [n][n_label], in their units."""
    y = output(library, i_arm, values)
    return np.exp(y, out=y) if library.arm[i_arm].emulator.log_flux else y


def ln_flux(library, i_arm, values):
    y = output(library, i_arm, values)
    return y if library.arm[i_arm].emulator.log_flux else np.log(y)


def output(library, i_arm, values):
    """Return the output [n][n_pix] of the last layer; ln flux is clipped to +-300."""
    emulator = library.arm[i_arm].emulator
    x = library.map(np.atleast_2d(np.asarray(values, np.float64)))
    if emulator.front is not None:
        x = front(emulator.front, x)
    for i, (weight, bias) in enumerate(zip(emulator.weight, emulator.bias)):
        if i > 0:
            x = silu(x)
        x = x @ weight.T.astype(np.float64) + bias
    return np.clip(x, -300, 300, out=x) if emulator.log_flux else x


def silu(z):
    return z / (1 + np.exp(np.minimum(-z, 700)))


def front(part, x):
    """Return components [n][n_out] of splines or radial functions `part` at mapped labels x."""
    if isinstance(part, SplineGrid):
        return grid_front(part, x)
    u = x / part.length
    basis = np.hstack([cdist(u, part.center / part.length) ** 3, monomials(u, part.degree)])
    return basis @ part.coef.astype(np.float64)


def monomials(u, degree):
    """Return the monomials 1, a, b, aa, ab, bb, aaa, ... of u [n][n_axis]."""
    return np.stack([np.prod(u[:, list(which)], axis=1) for n in range(degree + 1) for which in
                     itertools.combinations_with_replacement(range(u.shape[1]), n)], axis=1)


def grid_basis(knot, degree, x):
    """Return the B-splines [n][n_node] at x [n]; beyond the knots they continue linearly."""
    n_node = len(knot) - degree - 1
    inside = np.clip(x, knot[degree], knot[n_node])
    spline = BSpline(knot, np.eye(n_node), degree)
    return spline(inside) + spline.derivative()(inside) * (x - inside)[:, np.newaxis]


def grid_front(part, x):
    basis = [grid_basis(knot, part.degree, x[:, i]) for i, knot in enumerate(part.knot)]
    out = np.empty((len(x), part.coef.shape[-1]))
    for i, weights in enumerate(zip(*basis)):
        used = [np.flatnonzero(weight) for weight in weights]
        block = part.coef[np.ix_(*used)].astype(np.float64)
        for weight, at in zip(weights, used):
            block = np.tensordot(weight[at], block, axes=1)
        out[i] = block
    return out
