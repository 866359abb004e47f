# SPDX-License-Identifier: BSD-3-Clause
"""Draws figures of a star for notebooks, with the code of `starmill plot`."""

import matplotlib.pyplot as plt
import numpy as np

from starmill.interchange import errors
from starmill.products.drawing import INK, STYLE
from starmill.products.models import open_models
from starmill.products.plot import A_LINE, draw_arms, draw_star
from starmill.products.result import SYMBOL, number, symbol
from starmill.surveys.spectra import Arm, Inputs, arms_with_error, weighted


def drawn(draw, *arguments):
    """Draw a figure and close it for matplotlib: a notebook would show an open one twice."""
    with errors(), plt.rc_context(STYLE):
        figure = draw(*arguments)
    plt.close(figure)
    return figure


def draw_row(result, row, options, limits):
    """Draw a row of a result.  options: models, library and program, as in products/models.py."""
    def draw():
        fitted = open_models(result, [row], options)
        return draw_star(result, row, Inputs(result, options.library), fitted, limits)
    return drawn(draw)


def draw_pieces(library, theta, pieces, limits):
    """Draw a star's pieces (starmill.Piece) of the exposure with the highest S/N, with parameters
    theta."""
    if not any(piece.ivar.any() for piece in pieces):
        raise ValueError("the star has no usable pixel")
    strength = {piece.exposure: 0.0 for piece in pieces}
    for piece in pieces:
        strength[piece.exposure] += float(np.nansum(piece.data ** 2 * piece.ivar))
    best = max(strength, key=strength.get)
    error = {} if library.config.get("model_error") is False else \
        arms_with_error(library.arms, library.path, [library.hash])
    arms = [weighted(Arm(p.arm, p.wave, p.data.astype(float), p.ivar.astype(float), p.ivar == 0,
                         p.flux.astype(float)), library.config.get("sigma_floor", 0.3), theta[0],
                     error) for p in pieces if p.exposure == best]
    figure = drawn(draw_arms, sorted(arms, key=lambda arm: arm.wave[0]), "", theta[0], limits)
    words = [f"{symbol(p.column)} {number(value, SYMBOL.get(p.column, ('', 3))[1])} "
             f"{'dex' if p.unit.startswith('log(') else p.unit}"
             for p, value in zip(library.parameters, theta)]
    figure.text(0.05, 1 - 0.32 / figure.get_figheight(), "\n".join(
        ",   ".join(words[i:i + A_LINE]) for i in range(0, len(words), A_LINE)), va="baseline",
                color=INK)
    return figure
