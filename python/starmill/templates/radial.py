# SPDX-License-Identifier: BSD-3-Clause
"""Radial functions |x|^3 and a polynomial that pass close to values at scattered labels: the
polyharmonic smoothing spline (docs/science/numerics.md, "Radial functions")."""

from math import comb

import numpy as np
from scipy.linalg import eigh, lapack, solve_triangular
from scipy.spatial.distance import cdist

from starmill.cli.basics import INPUT, USAGE, Failure, need
from starmill.templates.emulate import monomials

RANK_LIMIT = 1e-9  # a pivot below this times the first: the monomial depends on the others
SMOOTHINGS = 10.0 ** np.arange(-8, 4.5, 0.5)  # to choose from


class RadialFit:
    """Fit h = sum_i |x - x_i|^3 c_i + polynomial to values, with c orthogonal to the polynomials.
    It minimises sum_i weight_i (value_i - h(x_i))^2 + smooth c.K.c, K_ij = |x_i - x_j|^3.

    x       [n, n_label]  mapped labels; points may coincide
    length  [n_label]     unit of distance along each label
    weight  [n]           of the squared residuals, above 0
    value   [n, n_out]
    degree                of the polynomial; lower if the points do not determine it
    smooth                candidate smoothings: each output takes the largest for which the squared
                          leave-one-out residuals are near their least
    tolerance             how near, in standard errors
    same                  a RadialFit of the same points, lengths and weights, to reuse its work

    coef [n + n_poly, n_out]; smooth [n_out]; residual and left_out [n, n_out]: value minus the fit
    to all points, and to all points but this one.  Time grows as n^3, memory as n^2.
    """

    def __init__(self, x, length, weight, value, degree=2, smooth=SMOOTHINGS, tolerance=0.0,
                 same=None):
        root = np.sqrt(weight)[:, None]
        if same is None:
            self._decompose(x / length, root, degree)
        else:
            for name in ("degree", "_basis", "_eigen", "_pole", "_pole_k"):
                setattr(self, name, getattr(same, name))
        value = root * value
        projected = self._basis.T @ value
        self._choose(projected, np.atleast_1d(smooth), tolerance)
        gamma = self._basis @ (projected / (self._eigen[:, None] + self.smooth))
        beta = self._pole.T @ value - self._pole_k.T @ gamma
        self.coef = np.concatenate([root * gamma, beta])  # of |x|^3, then of the polynomial
        self.residual = self.smooth * gamma / root
        self.left_out /= root

    def _factor(self, u, root, degree):
        """Return the QR factors of the weighted monomials of the highest degree that the points
        determine; set self.degree."""
        n, n_label = u.shape
        for self.degree in range(degree, 0, -1):
            if comb(n_label + self.degree, n_label) + 1 >= n:
                continue
            qr, tau, _, _ = lapack.dgeqrf(np.asfortranarray(root * monomials(u, self.degree)))
            pivot = np.abs(np.diag(qr))
            if (pivot > RANK_LIMIT * pivot[0]).all():
                return qr, tau
        raise Failure(INPUT, "the points' labels lie in a plane or on a line, so a label follows "
                      "from the others: leave labels out or add points")

    def _decompose(self, u, root, degree):
        """Set what depends on points and weights only; root = sqrt(weight), m: number of monomials.

        _basis [n, n - m]      eigenvectors of the weighted kernel root K root in the space
                               orthogonal to the weighted monomials
        _eigen [n - m]         their eigenvalues
        _pole, _pole_k [n, m]  they give the monomials' coefficients from value and c of RadialFit:
                               _pole.T @ (root * value) - _pole_k.T @ (c / root)
        """
        qr, tau = self._factor(u, root, degree)
        n, m = qr.shape

        def times_q(side, trans, c):
            c = np.asfortranarray(c)
            return lapack.dormqr(side, trans, qr, tau, c, max(c.shape) * 64)[0]
        kernel = root * cdist(u, u) ** 3 * root.T
        self._pole = solve_triangular(qr[:m], times_q("L", "N", np.eye(n, m)).T).T
        self._pole_k = kernel @ self._pole
        kernel = times_q("R", "N", times_q("L", "T", kernel))
        # the projected |x|^3 has no negative eigenvalues but by rounding
        self._eigen, vector = eigh(kernel[m:, m:], driver="evd", overwrite_a=True,
                                   check_finite=False)
        self._eigen = np.maximum(self._eigen, 0)
        self._basis = times_q("L", "N", np.concatenate([np.zeros((m, n - m)), vector]))

    def _choose(self, projected, smooth, tolerance):
        """Choose self.smooth; set self.left_out, still multiplied by the roots of the weights."""
        factor = smooth / (self._eigen[:, None] + smooth)  # [n - m, n_smooth]
        free = np.maximum((self._basis**2) @ factor, np.finfo(float).tiny)  # 1 - H_ii
        total, error = np.empty((2, len(smooth), projected.shape[1]))

        def left_out(i):
            return self._basis @ (factor[:, i, None] * projected) / free[:, i, None]
        for i in range(len(smooth)):
            square = left_out(i) ** 2
            total[i] = square.sum(axis=0)
            error[i] = np.sqrt(((square - square.mean(axis=0)) ** 2).sum(axis=0))  # of total
        need(np.isfinite(total).all(), USAGE, "the smoothing cannot be chosen: give --smoothing")
        best = total.argmin(axis=0), np.arange(projected.shape[1])
        good = total <= total[best] + tolerance * error[best]
        self.smooth = np.where(good, smooth[:, None], 0).max(axis=0)
        self.left_out = np.empty((len(self._basis), projected.shape[1]))
        for i in range(len(smooth)):
            chosen = self.smooth == smooth[i]
            if chosen.any():
                self.left_out[:, chosen] = left_out(i)[:, chosen]
