# SPDX-License-Identifier: BSD-3-Clause
"""Spectra from the emulators of a library, float64 throughout."""

import itertools

import numpy as np
from scipy.interpolate import BSpline
from scipy.spatial.distance import cdist

from starmill.templates.library_data import SplineGrid


def flux(library, i_arm, values):
    """Return the flux [n][n_pix] of an arm at labels values [n][n_label], in the labels' units."""
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
    """Return components [n][n_out] of splines or radial functions at mapped labels x."""
    if isinstance(part, SplineGrid):
        return grid_front(part, x)
    u = x / part.length
    basis = np.hstack([cdist(u, part.center / part.length) ** 3, monomials(u, part.degree)])
    return basis @ part.coef.astype(np.float64)


def monomials(u, degree):
    """Return the monomials 1, a, b, aa, ab, bb, aaa, ... of u [n][n_axis]."""
    return np.stack([np.prod(u[:, list(which)], axis=1) for n in range(degree + 1)
                     for which in itertools.combinations_with_replacement(range(u.shape[1]), n)],
                    axis=1)


def grid_basis(knot, degree, x):
    """Return the values [n][degree + 1] of the B-splines that may be non-zero at x [n], and the
    index [n] of the first.  Beyond the knots the splines continue linearly."""
    n_node = len(knot) - degree - 1
    inside = np.clip(x, knot[degree], knot[n_node])
    first = np.clip(np.searchsorted(knot, inside, side="right") - 1 - degree, 0,
                    n_node - degree - 1)
    spline = BSpline(knot, np.eye(n_node), degree)
    weight = spline(inside)
    beyond = np.flatnonzero(x != inside)
    if len(beyond):
        weight[beyond] += (spline.derivative()(inside[beyond])
                           * (x - inside)[beyond, np.newaxis])
    return np.take_along_axis(weight, first[:, np.newaxis] + np.arange(degree + 1), axis=1), first


def grid_front(part, x):
    basis = [grid_basis(knot, part.degree, x[:, i]) for i, knot in enumerate(part.knot)]
    out = np.empty((len(x), part.coef.shape[-1]))
    for i in range(len(x)):
        block = part.coef[tuple(slice(first[i], first[i] + part.degree + 1)
                                for _, first in basis)].astype(np.float64)
        for weight, _ in basis:
            block = np.tensordot(weight[i], block, axes=1)
        out[i] = block
    return out
