# SPDX-License-Identifier: BSD-3-Clause
"""Principal components of ln flux, as the last layer of an emulator."""

import numpy as np
from scipy.linalg import eigh, qr

SPARE = 16  # extra directions of the iteration, so that the last components kept converge too
N_ITERATION = 3
BLOCK = 128  # spectra at once


def most(x):
    """Return the largest number of components: subtracting the mean costs one dimension."""
    return min(x.shape) - 1


def leading(x, n_component):
    """Find the leading components of spectra x float32 [n][n_pix] by subspace iteration. x is lost.

    Return weight [n_pix][n_component] and bias [n_pix], both float32, scores [n][n_component] of
    mean square 1, and the largest rms residual (over pixels) of a spectrum."""
    n = len(x)
    bias = x.mean(axis=0, dtype=float).astype("f4")
    x -= bias
    n_direction = min(n_component + SPARE, most(x))
    start = x[np.arange(n_direction) * n // n_direction]
    direction = qr(start.T.astype(float), mode="economic")[0]
    for _ in range(N_ITERATION):
        score = x @ direction.astype("f4")
        direction = qr((x.T @ score).astype(float), mode="economic")[0]
    score = (x @ direction.astype("f4")).astype(float)
    variance, vector = eigh(score.T @ score / n)
    variance, vector = variance[::-1][:n_component], vector[:, ::-1][:, :n_component]
    # a component without variance would otherwise divide by 0
    rms = np.sqrt(np.maximum(variance, 1e-14 * variance[0]))
    weight, score = (direction @ (vector * rms)).astype("f4"), score @ (vector / rms)
    left = 0.0
    for first in range(0, n, BLOCK):
        rest = x[first:first + BLOCK] - score[first:first + BLOCK].astype("f4") @ weight.T
        left = max(left, np.sqrt((rest.astype(float) ** 2).mean(axis=1).max()))
    return weight, bias, score, left


def enough(weight, score, left, limit):
    """Return the least number of components whose rms residual is at most limit in every spectrum
    (all if none is), and this residual.  left: the residual of all components."""
    power = (weight.astype(float) ** 2).mean(axis=0) * score ** 2  # [n][n_component]
    rest = np.cumsum(power[:, ::-1], axis=1)[:, ::-1] + left ** 2  # without those from k on
    rest = np.append(np.sqrt(rest.max(axis=0)), left)
    n = next((k for k in range(1, len(rest)) if rest[k] <= limit), len(rest) - 1)
    return n, rest[n]
