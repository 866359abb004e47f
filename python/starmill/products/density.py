# SPDX-License-Identifier: BSD-3-Clause
"""Kernel densities of stars, in a plane and over the sky: counts in small cells, smoothed by a
Gaussian whose widths along the axes follow Scott's rule, n^(-1/6)."""

import numpy as np
from astropy.wcs import WCS
from scipy.ndimage import gaussian_filter

from starmill.products.sky import unit_vectors
from starmill.products.survey import half_width

N_CELL = 240  # along the longer axis of a map
LEAST_WIDTH = 1.5  # least width of the kernel, cells; a narrower one would show the cells
REACH = 4  # widths at which the kernel ends
WIDE_DEG = 60  # stars farther than this from the survey's centre: draw the whole sky


def scott(values):
    """Return the kernel's width along one of two axes; outliers do not widen it."""
    spread = min(np.std(values, ddof=1), half_width(values) if len(values) > 4 else np.inf)
    return spread * len(values) ** (-1 / 6)


def plane(x, y, x_range, y_range, n_cell=N_CELL):
    """Return stars per unit of x and y at the centres of n_cell cells of each range: [y][x]."""
    cells, sigma, n_rim = [], [], []
    for values, (low, high) in ((y, y_range), (x, x_range)):
        step = (high - low) / n_cell
        width = max(scott(values) / step, LEAST_WIDTH)
        rim = int(np.ceil(REACH * width))  # cells beyond the map whose stars reach into it
        cells.append(np.linspace(low - rim * step, high + rim * step, n_cell + 2 * rim + 1))
        sigma.append(width)
        n_rim.append(rim)
    counts, _, _ = np.histogram2d(y, x, bins=cells)
    smooth = gaussian_filter(counts, sigma, mode="constant", truncate=REACH)
    area = (cells[0][1] - cells[0][0]) * (cells[1][1] - cells[1][0])
    return smooth[n_rim[0]:n_rim[0] + n_cell, n_rim[1]:n_rim[1] + n_cell] / area


def sky_frame(ra, dec, n_cell=N_CELL):
    """Return WCS and shape (cells) of an equal-area map around the stars, north up, east left:
    zenithal (ZEA), or of the whole sky Mollweide (MOL), cut in the widest gap of right
    ascension."""
    mean = unit_vectors(ra, dec).mean(axis=0)
    mean /= np.linalg.norm(mean) or 1.0
    centre = np.degrees([np.arctan2(mean[1], mean[0]), np.arcsin(np.clip(mean[2], -1, 1))])
    away = np.degrees(np.arccos(np.clip(unit_vectors(ra, dec) @ mean, -1, 1)).max())
    wcs = WCS(naxis=2)
    if away > WIDE_DEG:
        half = np.degrees(np.array([2 * np.sqrt(2), np.sqrt(2)]))  # of Mollweide's ellipse
        by_ra = np.sort(ra % 360)
        gap = np.diff(by_ra, append=by_ra[0] + 360)
        widest = np.argmax(gap)
        centre = ((by_ra[widest] + gap[widest] / 2 + 180) % 360, 0)
        wcs.wcs.ctype = ["RA---MOL", "DEC--MOL"]
    else:
        wcs.wcs.ctype = ["RA---ZEA", "DEC--ZEA"]
        wcs.wcs.crval, wcs.wcs.cdelt, wcs.wcs.crpix = centre, (-1, 1), (0, 0)
        half = 1.05 * np.abs(wcs.wcs_world2pix(ra, dec, 0)).max(axis=1)
        half = np.maximum(half, 0.01)
    step = 2 * half.max() / n_cell
    shape = tuple(int(n) for n in np.ceil(2 * half / step))
    wcs.wcs.crval, wcs.wcs.cdelt = centre, (-step, step)
    wcs.wcs.crpix = [(n + 1) / 2 for n in shape]
    return wcs, shape[::-1]


def sky(ra, dec, wcs, shape):
    """Return stars per square degree, [row][column] of the map; NaN beyond the sky, at whose edge
    the density is divided by the fraction of the kernel on the sky."""
    x, y = wcs.wcs_world2pix(ra, dec, 0)
    step = abs(wcs.wcs.cdelt[1])
    edges = [np.arange(n + 1) - 0.5 for n in shape]
    counts, _, _ = np.histogram2d(y, x, bins=edges)
    sigma = [max(scott(v), LEAST_WIDTH) for v in (y, x)]
    rows, columns = np.indices(shape)
    inside = np.isfinite(wcs.wcs_pix2world(columns.ravel(), rows.ravel(), 0)[0]).reshape(shape)
    how = dict(sigma=sigma, mode="constant", truncate=REACH)
    share = gaussian_filter(inside.astype(float), **how) if not inside.all() else 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        density = gaussian_filter(counts, **how) / share / step**2
    return np.where(inside, density, np.nan)
