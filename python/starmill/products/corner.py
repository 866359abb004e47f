# SPDX-License-Identifier: BSD-3-Clause
"""Draws a star's posterior and the Gaussian of its fit, for `starmill plot --corner` and the
report."""

import os

import numpy as np

from starmill.cli.basics import USAGE, Failure, need
from starmill.interchange import symmetric
from starmill.products.drawing import DATA, INK, MODEL, literal, plt
from starmill.products.result import number, symbol

PANEL = 1.6  # inches
REACH = 4  # standard deviations shown on each side


def draw_ellipses(axes, x, y, covariance, colour):
    """Draw the ellipses of one and two standard deviations about (x, y)."""
    value, vector = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, 100)
    dx, dy = vector * np.sqrt(np.maximum(value, 0)) @ np.array([np.cos(angle), np.sin(angle)])
    for n_sigma in (1, 2):
        axes.plot(x + n_sigma * dx, y + n_sigma * dy, color=colour, lw=1)


def corner(result, row):
    """Draw a corner plot: marginal densities on the diagonal; below it samples, or ellipses of the
    covariance if --draws kept no samples.  Return None if the star was not sampled."""
    values, n_all = result.row(row), len(result.parameters)
    density = np.reshape(values["POST_DENSITY"], (n_all, -1))
    free = [j for j in range(n_all) if np.isfinite(density[j]).all()]
    if not free:
        return None
    draws = np.reshape(values["POST_DRAWS"], (-1, n_all)) if "POST_DRAWS" in values else None
    at = np.array([values[p] for p in result.parameters])
    fitted = symmetric(values["COVAR"], n_all)
    mean, sampled = values["POST_MEAN"], symmetric(values["POST_COVAR"], n_all)
    reach = REACH * np.sqrt(np.diag(sampled))
    low = np.maximum(values["POST_DENSITY_LOW"], mean - reach)
    high = np.minimum(values["POST_DENSITY_HIGH"], mean + reach)
    n = len(free)
    figure, grid = plt.subplots(n, n, squeeze=False, layout="none",
                                figsize=(PANEL * n + 1.2, PANEL * n + 1.4))
    for i, p in enumerate(free):
        for k, q in enumerate(free):
            axes = grid[i, k]
            axes.set_visible(k <= i)
            axes.set_xlim(low[q], high[q])
            axes.locator_params(nbins=3)
            axes.tick_params(labelsize=8, labelleft=k == 0 and i > 0, labelbottom=i == n - 1)
            if k < i:
                axes.set_ylim(low[p], high[p])
                pair = np.ix_([q, p], [q, p])
                if draws is not None:
                    axes.plot(draws[:, q], draws[:, p], ".", color=DATA, ms=2, rasterized=True)
                else:
                    draw_ellipses(axes, mean[q], mean[p], sampled[pair], DATA)
                draw_ellipses(axes, at[q], at[p], fitted[pair], MODEL)
            if i == n - 1:
                unit = result.unit(result.parameters[q])
                unit = f" ({unit})" if unit and not unit.startswith("log(") else ""
                axes.set_xlabel(symbol(result.parameters[q]) + unit)
            if k == 0 and i > 0:
                axes.set_ylabel(symbol(result.parameters[p]))
        x = np.linspace(values["POST_DENSITY_LOW"][p], values["POST_DENSITY_HIGH"][p],
                        density.shape[1])
        grid[i, i].fill_between(x, density[p], color=DATA, lw=0)
        error = np.sqrt(fitted[p, p])
        if error > 0:
            grid[i, i].plot(x, np.exp(-0.5 * ((x - at[p]) / error) ** 2)
                            / (error * np.sqrt(2 * np.pi)), color=MODEL, lw=1)
        grid[i, i].set_ylim(0)
        grid[i, i].set_yticks([])
        below, middle, above = (values[f"POST_P{c}"][p] for c in (16, 50, 84))
        digits = int(np.clip(1 - np.floor(np.log10(max(above - below, 1e-9) / 2)), 0, 4))
        grid[i, i].set_title(f"{number(middle, digits)} +{number(above - middle, digits)} "
                             f"−{number(middle - below, digits)}", color=INK, fontsize=9)
    return figure


def draw_corner(result, row):
    """Draw the corner plot of a row, with a title."""
    if "POST_DENSITY" not in result.fits:
        raise Failure(USAGE, f"{result.path}: --corner needs a result of starmill sample")
    figure = corner(result, row)
    need(figure, USAGE, f"{result.path}: row {row} was not sampled")
    values = result.row(row)
    flags = ", ".join(result.words(values["POST_FLAG"], result.posteriors)) or "none"
    name = values["OBJECT"] or values["IDENTIFIER"]
    figure.suptitle(f"{literal(name)},  row {row} of {literal(os.path.basename(result.path))}\n"
                    f"POST_FLAG: {flags}\ngrey: posterior, orange: the fit's Gaussian",
                    x=0.98, ha="right", fontsize=10, color=INK)
    return figure
