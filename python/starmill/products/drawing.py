# SPDX-License-Identifier: BSD-3-Clause
"""Draws spectra for `starmill plot` and `report`."""

import io

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from starmill.cli.basics import printable

N_COLOUR = 256  # colours of the palette; it keeps files small
INK, DATA, PALE, BAD = "#4d4d4d", "#8c8c8c", "#bdbdbd", "#f6e7c8"
MODEL, RESIDUAL = "#d55e00", "#0072b2"  # Okabe and Ito, distinct for the colour-blind
STYLE = {"font.size": 10, "axes.linewidth": 0.7, "axes.titlesize": 10, "axes.spines.top": False,
         "axes.spines.right": False, "xtick.direction": "out", "ytick.direction": "out"}
MAX_RESIDUAL = 5.0  # errors; larger residuals are drawn at this value


def literal(words):
    """Escape a text for matplotlib, which reads text between dollars as mathematics."""
    return printable(words).replace("$", r"\$")


def png(figure, dpi):
    """Return a picture as the bytes of a PNG with a palette."""
    memory, small = io.BytesIO(), io.BytesIO()
    figure.savefig(memory, format="png", dpi=dpi)
    plt.close(figure)
    memory.seek(0)
    image = Image.open(memory).convert("RGB")
    # method 1 keeps rare colours; dithering would compress badly
    image.quantize(N_COLOUR, method=1, dither=0).save(small, format="png", optimize=True)
    return small.getvalue()


def binned(wave, flux, ivar, model, n):
    """Return wave, flux, ivar and model averaged over n pixels with weights ivar."""
    n_bin = len(wave) // n
    wave, flux, ivar, model = (v[: n_bin * n].reshape(n_bin, n) for v in (wave, flux, ivar, model))
    weight = ivar.sum(axis=1)
    safe = np.where(weight > 0, weight, 1.0)
    return (wave.mean(axis=1), (ivar * flux).sum(axis=1) / safe, weight,
            np.where(weight > 0, (ivar * model).sum(axis=1) / safe, model.mean(axis=1)))


def draw_panel(upper, lower, arms, limits, n):
    """Draw a wavelength range of a star in means of n pixels.  The axes `upper` get data and model,
    `lower` gets residuals.  arms: [(wavelength, flux, ivar, model)]; ivar 0: a bad pixel."""
    bottom, top = [], []
    for arm in arms:
        wave, flux, ivar, model = binned(*arm, n) if n > 1 else arm
        at = (wave >= limits[0]) & (wave <= limits[1])
        if not (ivar[at] > 0).any():
            continue
        wave, flux, ivar, model = wave[at], flux[at], ivar[at], model[at]
        flux = np.where(ivar > 0, flux, np.nan)
        residual = (flux - model) * np.sqrt(ivar)
        upper.plot(wave, flux, color=DATA, lw=1.3, drawstyle="steps-mid")
        # the continuum is unconstrained where no pixel is fitted
        upper.plot(wave, np.where(ivar > 0, model, np.nan), color=MODEL, lw=0.8)
        lower.plot(wave, np.clip(residual, -MAX_RESIDUAL, MAX_RESIDUAL), color=RESIDUAL, lw=0.6,
                   drawstyle="steps-mid")
        low, high = np.nanpercentile(flux, [0.3, 99.7])
        fitted = model[ivar > 0]
        bottom.append(np.nanmin([low, *fitted]))
        top.append(np.nanmax([high, *fitted]))
    if bottom:
        margin = 0.06 * (max(top) - min(bottom))
        upper.set_ylim(min(bottom) - margin, max(top) + margin)
    plt.setp((upper, lower), xlim=limits)
    upper.tick_params(labelbottom=False)
    upper.locator_params(axis="y", nbins=4)
    lower.axhline(0.0, color=MODEL, lw=0.8)
    lower.set(ylim=(-MAX_RESIDUAL, MAX_RESIDUAL), yticks=[-3, 0, 3])
