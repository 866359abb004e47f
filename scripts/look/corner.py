# SPDX-License-Identifier: BSD-3-Clause
"""`starmill plot --corner`: the posterior of a star, its samples beside the Gaussian of its fit."""

import os

import numpy as np

from basics import USAGE, Failure
from look.drawing import DATA, INK, MODEL, literal, plt
from look.result import FITTED, number, symbol

PANEL = 1.75  # inches
REACH = 4  # standard deviations that are drawn


def matrix(triangle, n):
    """The symmetric matrix of which a row of /fits has the upper triangle."""
    full = np.zeros((n, n))
    full[np.triu_indices(n)] = triangle
    return full + np.triu(full, 1).T


def ellipse(covariance, n_sigma):
    """Points [2, n] of the curve n_sigma away from 0."""
    value, vector = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, 100)
    return n_sigma * vector @ (np.sqrt(np.maximum(value, 0))[:, None]
                               * np.array([np.cos(angle), np.sin(angle)]))


def draw_corner(result, row):
    """A page: marginal densities on the diagonal, samples of two parameters below it."""
    for name, needs in (("POST_DENSITY", "starmill sample"), ("POST_DRAWS", "sample --draws N")):
        if name not in result.fits:
            raise Failure(USAGE, f"{result.path} has no {name}: --corner needs a result of {needs}")
    values, n_all = result.row(row), len(result.parameters)
    draws = np.reshape(values["POST_DRAWS"], (-1, n_all))
    density = np.reshape(values["POST_DENSITY"], (n_all, -1))
    free = [j for j in range(n_all) if np.isfinite(density[j]).all()]
    if values["STATUS"] != FITTED or not free:
        raise Failure(USAGE, f"{result.path}: row {row} was not sampled")
    at = np.array([values[p] for p in result.parameters])
    covariance = matrix(values["COVAR"], n_all)
    mean, sigma = values["POST_MEAN"], np.sqrt(np.diag(matrix(values["POST_COVAR"], n_all)))
    low = np.maximum(values["POST_DENSITY_LOW"], mean - REACH * sigma)
    high = np.minimum(values["POST_DENSITY_HIGH"], mean + REACH * sigma)
    n = len(free)
    figure, grid = plt.subplots(n, n, squeeze=False, figsize=(PANEL * n + 1.2, PANEL * n + 1.4))
    for i, p in enumerate(free):
        for k, q in enumerate(free):
            axes = grid[i, k]
            axes.set_visible(k <= i)
            axes.set_xlim(low[q], high[q])
            axes.locator_params(nbins=3)
            if k < i:
                axes.set_ylim(low[p], high[p])
                axes.plot(draws[:, q], draws[:, p], ".", color=DATA, ms=2, rasterized=True)
                for n_sigma in (1, 2):
                    x, y = ellipse(covariance[np.ix_([q, p], [q, p])], n_sigma)
                    axes.plot(at[q] + x, at[p] + y, color=MODEL, lw=1)
            if i == n - 1:
                unit = result.unit(result.parameters[q])
                axes.set_xlabel(symbol(result.parameters[q]) + (f" ({unit})" if unit else ""))
            if k > 0 or i == 0:
                axes.set_yticklabels([])
            elif i > 0:
                axes.set_ylabel(symbol(result.parameters[p]))
        x = np.linspace(values["POST_DENSITY_LOW"][p], values["POST_DENSITY_HIGH"][p],
                        density.shape[1])
        grid[i, i].fill_between(x, density[p], color=DATA, lw=0)
        error = np.sqrt(covariance[p, p])
        if error > 0:
            grid[i, i].plot(x, np.exp(-0.5 * ((x - at[p]) / error) ** 2)
                            / (error * np.sqrt(2 * np.pi)), color=MODEL, lw=1)
        grid[i, i].set_ylim(0)
        grid[i, i].set_yticks([])
        middle, below, above = (values[f"POST_P{c}"][p] for c in ("50", "16", "84"))
        digits = max(0, min(4, 1 - int(np.floor(np.log10(max(above - below, 1e-9) / 2)))))
        grid[i, i].set_title(f"{number(middle, digits)} +{number(above - middle, digits)} "
                             f"−{number(middle - below, digits)}", color=INK, fontsize=9)
    flags = ", ".join(result.words(values["POST_FLAG"], result.posteriors)) or "none"
    name = values["OBJECT"] or values["IDENTIFIER"] or str(values["TARGETID"])
    figure.suptitle(f"{literal(name)},  row {row} of {literal(os.path.basename(result.path))}\n"
                    f"POST_FLAG: {flags}\ngrey: posterior, orange: the fit's Gaussian",
                    x=0.98, ha="right", fontsize=10, color=INK)
    return figure
