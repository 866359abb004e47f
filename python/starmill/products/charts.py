# SPDX-License-Identifier: BSD-3-Clause
"""The charts of a report: functions that return a PNG, or None without a row to draw."""

import numpy as np
from astropy.visualization.wcsaxes.frame import EllipticalFrame, RectangularFrame
from astropy.wcs import WCS
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator
from scipy.ndimage import gaussian_filter

from starmill.products.drawing import INK, MODEL, PALE, RESIDUAL, literal, plt, png
from starmill.products.result import number, symbol, text
from starmill.products.sky import has_place, unit_vectors
from starmill.products.survey import half_width

DPI = 150
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", "#000000")
MANY = 4000  # points above which a map counts rows in cells
FEW_DECADES = 12  # ratio of an axis' ends: below, numbers between decades are labelled too
FEW, LEAST_DENSITY = 3, 2000  # stars: below FEW no map, below LEAST_DENSITY points
PAD = 0.04  # distance of a map and its colour bar, over the map's width
FAINT = 300  # a density map shows densities above peak / FAINT
# kernel densities: counts in cells, smoothed by a Gaussian whose widths follow Scott's rule
N_CELL = 240  # cells along the longer axis of a map
LEAST_WIDTH = 1.5  # least width of the kernel, cells; a narrower one would show the cells
REACH = 4  # the kernel ends at this many widths from its centre
WIDE_DEG = 60  # draw the whole sky if a star is farther than this from the survey's centre


def spread(values, low=0.5, high=99.5):
    """Return axis limits: percentiles low and high, with a margin."""
    values = values[np.isfinite(values)]
    a, b = np.percentile(values, [low, high])
    margin = 0.05 * (b - a) or 0.5
    return a - margin, b + margin


def n_bin(values, most):
    """Return a number of bins, about twice the root of the number of values."""
    return int(np.clip(2 * np.sqrt(len(values)), 12, most))


def logarithmic(axis, low, high):
    """Label a logarithmic axis with plain numbers: decades, and between few decades more."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("{x:g}" if high / low < FEW_DECADES else "")
    if high / low < FEW_DECADES:
        axis.set_minor_locator(LogLocator(subs=(1.5, 2, 3, 5, 7)))


def histogram(axes, values, edges, colour, label):
    """Draw a histogram as steps; values beyond the edges count in the outermost bins."""
    values = values[np.isfinite(values)]
    if len(values):
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        axes.stairs(counts, edges, color=colour, lw=1.4, label=label)
        axes.yaxis.get_major_locator().set_params(integer=True)


def quality(survey):
    """Draw histograms of S/N and reduced chi-square of fitted rows, by arm."""
    arms, s = survey.result.arms, survey.sample
    if not survey.fitted.any():
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 2.9))
    for axes, name, label in ((left, "SN_", "S/N per pixel"),
                              (right, "RCHISQ_", "reduced chi-square")):
        values = {a: s[name + a][survey.fitted & (s["NPIX_" + a] > 0)] for a in arms}
        known = np.concatenate([v[np.isfinite(v) & (v > 0)] for v in values.values()])
        low, high = np.percentile(known, [0.2, 99.5]) * (0.9, 1.1) if len(known) else (0.5, 2.0)
        edges = np.geomspace(low, high, n_bin(known, 60) + 1)
        for arm, colour in zip(arms, COLOURS):
            histogram(axes, values[arm], edges, colour, f"arm {arm.lower()}")
        axes.set(xscale="log", xlabel=label, xlim=(low, high))
        logarithmic(axes.xaxis, low, high)
        axes.margins(y=0.18)
        axes.legend(frameon=False, fontsize=9, ncol=len(values), loc="upper right")
    right.axvline(1.0, color=INK, lw=0.8, ls=":")
    left.set_ylabel("fitted rows")
    return png(figure, DPI)


def errors(survey):
    """Draw each parameter's stated error against S/N, with its running median."""
    result, s = survey.result, survey.sample
    if not (survey.good & (survey.sn > 0)).any():
        return None
    figure, grid = panels(len(result.parameters), 2.5)
    for axes, p in zip(grid, result.parameters):
        error = s[p + "_ERR"]
        at = survey.good & (error > 0) & (survey.sn > 0) & np.isfinite(error)
        x, y = survey.sn[at], error[at]
        if len(x) > MANY:
            axes.hexbin(x, y, gridsize=45, xscale="log", yscale="log", bins="log", cmap="Blues",
                        mincnt=1, linewidths=0)
        else:
            axes.plot(x, y, ".", color=PALE, ms=3)
        if len(x) > 40:
            bins = np.array_split(np.argsort(x), min(12, len(x) // 10))
            axes.plot([np.median(x[b]) for b in bins], [np.median(y[b]) for b in bins], "o-",
                      color=MODEL, ms=3, lw=1.2)
        unit = result.shown_unit(p)
        axes.set(xscale="log", yscale="log", xlabel="S/N per pixel",
                 title=f"error of {symbol(p)}" + (f" ({unit})" if unit else ""))
        if not len(x):  # a fixed parameter
            axes.set(xscale="linear", yscale="linear", xticks=[], yticks=[])
            continue
        logarithmic(axes.xaxis, x.min(), x.max())
        logarithmic(axes.yaxis, y.min(), y.max())
    return png(figure, DPI)


def points(axes, x, y, colour=None, limits=None, **how):
    """Draw points.  If there are more than MANY, draw cells instead: they show the median of
    `colour` or, without it, the number of points."""
    if len(x) > MANY:
        how = dict(mincnt=1, cmap="viridis", norm=LogNorm(1)) if colour is None else how
        return axes.hexbin(x, y, C=colour, reduce_C_function=np.median, gridsize=60, linewidths=0,
                           extent=limits, **how)
    return axes.scatter(x, y, c=RESIDUAL if colour is None else colour, s=12, linewidths=0, **how)


def shade(axes, values, label, pad=PAD, **how):
    """Draw a density on a logarithmic scale with a colour bar, white below peak / FAINT."""
    top = np.nanmax(values)
    shown = np.where(values > top / FAINT, values, np.nan)
    image = axes.imshow(shown, origin="lower", cmap="viridis", interpolation="nearest",
                        norm=LogNorm(top / FAINT, top), **how)
    axes.figure.colorbar(image, ax=axes, label=label, pad=pad)


def scott(values):
    """Return the kernel's width along one axis of a plane, by Scott's rule; ignore outliers."""
    return np.fmin(np.std(values, ddof=1), half_width(values)) * len(values) ** (-1 / 6)


def plane_density(x, y, x_range, y_range, n_cell=N_CELL):
    """Return the smoothed density of stars, per unit of x and y, in n_cell^2 cells [y][x]."""
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
    """Return WCS and shape (cells) of an equal-area map of the stars, north up, east left.  The map
    is zenithal (ZEA) around the stars.  Stars far apart get a Mollweide map (MOL) of the whole sky,
    cut in the widest gap of right ascension."""
    mean = unit_vectors(ra, dec).mean(axis=0)
    mean /= np.linalg.norm(mean) or 1.0
    centre = np.degrees([np.arctan2(mean[1], mean[0]), np.arcsin(np.clip(mean[2], -1, 1))])
    widest_deg = np.degrees(np.arccos(np.clip(unit_vectors(ra, dec) @ mean, -1, 1)).max())
    wcs = WCS(naxis=2)
    if widest_deg > WIDE_DEG:
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


def sky_density(ra, dec, wcs, shape):
    """Return stars per square degree, [row][column] of the map, NaN off the sky.  Near the map's
    edge the kernel is normalised to its part on the sky."""
    x, y = wcs.wcs_world2pix(ra, dec, 0)
    step = abs(wcs.wcs.cdelt[1])
    counts, _, _ = np.histogram2d(y, x, bins=[np.arange(n + 1) - 0.5 for n in shape])
    sigma = [max(scott(v), LEAST_WIDTH) for v in (y, x)]
    rows, columns = np.indices(shape)
    inside = np.isfinite(wcs.wcs_pix2world(columns.ravel(), rows.ravel(), 0)[0]).reshape(shape)
    how = dict(sigma=sigma, mode="constant", truncate=REACH)
    share = gaussian_filter(inside.astype(float), **how) if not inside.all() else 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        density = gaussian_filter(counts, **how) / share / step**2
    return np.where(inside, density, np.nan)


def kiel_axes(axes, x, y):
    axes.set(xlim=x[::-1], ylim=y[::-1], xlabel="$T_{\\rm eff}$ (K)", ylabel="$\\log g$ (dex)")


def kiel_density(axes, survey, s):
    """Draw the Kiel diagram as a kernel density; below LEAST_DENSITY stars as points."""
    x, y = spread(s["TEFF"], 0.1, 99.9), spread(s["LOGG"], 0.1, 99.9)
    if len(s["TEFF"]) < LEAST_DENSITY:
        axes.plot(s["TEFF"], s["LOGG"], ".", color=RESIDUAL)
    else:  # the sample is every k-th row: scale to all
        shade(axes, plane_density(s["TEFF"], s["LOGG"], x, y) * survey.every, "stars per K and dex",
              extent=(*x, *y), aspect="auto")
    kiel_axes(axes, x, y)


def kiel_metals(axes, _, s):
    x, y = spread(s["TEFF"]), spread(s["LOGG"])
    how = dict(zip(("vmin", "vmax"), spread(s["FEH"], 2, 98)), cmap="viridis")
    drawn = points(axes, s["TEFF"], s["LOGG"], s["FEH"], (*x, *y), **how)
    axes.figure.colorbar(drawn, ax=axes, label="[Fe/H]", pad=PAD)
    kiel_axes(axes, x, y)


def abundances(axes, _, s):
    x, y = spread(s["FEH"]), spread(s["ALPHAFE"])
    drawn = points(axes, s["FEH"], s["ALPHAFE"], None, (*x, *y))
    axes.set(xlim=x, ylim=y, xlabel="[Fe/H] (dex)", ylabel=symbol("ALPHAFE") + " (dex)")
    if len(s["FEH"]) > MANY:
        axes.figure.colorbar(drawn, ax=axes, label="rows", pad=PAD)


def velocities(axes, _, s):
    edges = np.linspace(*spread(s["VRAD"]), n_bin(s["VRAD"], 60))
    histogram(axes, s["VRAD"], edges, RESIDUAL, None)
    axes.set(xlabel="velocity (km/s)", ylabel="rows")


# (drawing function, columns it needs)
PANELS = ((kiel_density, ("TEFF", "LOGG")), (kiel_metals, ("TEFF", "LOGG", "FEH")),
          (abundances, ("FEH", "ALPHAFE")), (velocities, ("VRAD",)))


def maps(survey):
    """Draw the PANELS whose labels the library has, of rows without a warning."""
    possible = []
    for draw, names in PANELS:
        if survey.result.has(*names):
            at = survey.good & np.all([np.isfinite(survey.sample[n]) for n in names], axis=0)
            if at.sum() >= FEW:
                possible.append((draw, {n: survey.sample[n][at] for n in names}))
    if not possible:
        return None
    figure, grid = panels(len(possible), 3.6, 2)
    for axes, (draw, values) in zip(grid, possible):
        draw(axes, survey, values)
    return png(figure, DPI)


def sky_axes(figure, place, wcs, shape, whole):
    """Make the axes of a map of sky_frame, with a coordinate grid.  whole: the whole sky."""
    axes = figure.add_subplot(place, projection=wcs,
                              frame_class=EllipticalFrame if whole else RectangularFrame)
    axes.set(xlim=(-0.5, shape[1] - 0.5), ylim=(-0.5, shape[0] - 0.5), aspect="equal")
    axes.coords.grid(color="0.85", lw=0.5)
    for coordinate, name, at in zip(axes.coords, ("right ascension", "declination"), "hv"):
        coordinate.set_axislabel("" if whole else name)
        coordinate.set_major_formatter("d" if whole else "d.d")
        coordinate.set_ticklabel(size=8)
        if whole:  # on the map: the colour bar is outside
            coordinate.set_ticklabel_position(at)
            coordinate.set_ticklabel(size=7, color=INK, exclude_overlapping=True)
    return axes


def sky(survey):
    """Draw stars per square degree and velocities over the sky; None without positions."""
    s = survey.sample
    at = survey.good & has_place(s["TARGET_RA"], s["TARGET_DEC"]) & np.isfinite(s["VRAD"])
    if at.sum() < FEW:
        return None
    ra, dec, v = s["TARGET_RA"][at], s["TARGET_DEC"][at], s["VRAD"][at]
    wcs, shape = sky_frame(ra, dec)
    whole = wcs.wcs.ctype[0].endswith("MOL")
    pad = 0.1 if whole else PAD
    figure = plt.figure(figsize=(9.6, 2.7 if whole else 3.9))
    axes = sky_axes(figure, 121, wcs, shape, whole)
    x, y = wcs.wcs_world2pix(ra, dec, 0)
    if len(ra) < LEAST_DENSITY:
        axes.plot(x, y, ".", color=RESIDUAL)
    else:
        shade(axes, sky_density(ra, dec, wcs, shape) * survey.every, "stars per square degree", pad)
    axes = sky_axes(figure, 122, wcs, shape, whole)
    limit = max(abs(k) for k in np.percentile(v, [3, 97])) or 1.0
    drawn = points(axes, x, y, v, (-0.5, shape[1] - 0.5, -0.5, shape[0] - 0.5),
                   cmap="coolwarm", vmin=-limit, vmax=limit)
    figure.colorbar(drawn, ax=axes, label="velocity (km/s)", extend="both", pad=pad)
    return png(figure, DPI)


def panels(n, height, columns=3):
    """Make a figure of n axes, each `height` inches high, in at most `columns` columns."""
    columns = min(columns, n)
    figure, grid = plt.subplots(-(-n // columns), columns, squeeze=False,
                                figsize=(9.6, height * -(-n // columns)))
    for axes in grid.flat[n:]:
        axes.set_axis_off()
    return figure, grid.flat[:n]


def repeats(survey):
    """Draw histograms of differences of repeated stars over their stated errors, and a Gaussian."""
    r = survey.repeats
    if r.n_pair < 5:
        return None
    figure, grid = panels(len(r.delta), 2.1)
    edges = np.linspace(-5, 5, 41)
    for axes, p in zip(grid, r.delta):
        pull = r.delta[p] / np.hypot(*r.errors[p])
        pull = pull[np.isfinite(pull)]
        histogram(axes, pull, edges, RESIDUAL, None)
        gauss = np.exp(-0.5 * edges**2) / np.sqrt(2 * np.pi) * len(pull) * (edges[1] - edges[0])
        axes.plot(edges, gauss, color=MODEL, lw=1.2)
        axes.set_title(f"{symbol(p)}: width {number(half_width(pull), 2)}")
    figure.supxlabel("difference of two rows of a star / its stated error", fontsize=10)
    return png(figure, DPI)


def constant(survey):
    """Draw the probabilities of a constant velocity of rows without a warning."""
    pval = survey.sample["VRAD_PVAL"][survey.good]
    pval = pval[np.isfinite(pval)]
    figure, axes = plt.subplots(figsize=(4.8, 2.6))
    edges = np.linspace(0, 1, n_bin(pval, 50) + 1)
    histogram(axes, pval, edges, RESIDUAL, None)
    axes.axhline(len(pval) * edges[1], color=INK, lw=0.8, ls=":")
    axes.set(xlabel="VRAD_PVAL", ylabel="rows without a warning", xlim=(0, 1))
    return png(figure, DPI)


def pairs(survey):
    """Draw velocity differences of rows fitted as two stars, and their SB2_GAIN."""
    s = survey.sample
    at = s["SB2"] == 1
    apart = np.abs(s["VRAD_2"] - s["VRAD"])[at]
    if not at.any():
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 2.6))
    histogram(left, apart, np.linspace(0, 1.02 * apart.max(), n_bin(apart, 50) + 1), RESIDUAL, None)
    right.plot(apart, s["SB2_GAIN"][at], ".", color=RESIDUAL, ms=4)
    left.set(xlabel="|VRAD_2 − VRAD|, km/s", ylabel="rows of two stars", xlim=(0, None))
    right.set(xlabel="|VRAD_2 − VRAD|, km/s", ylabel="SB2_GAIN", yscale="log", xlim=(0, None))
    return png(figure, DPI)


def curves(result, rows):
    """Draw a panel per row: velocities of its epochs against time, else against number of epoch."""
    figure, grid = panels(len(rows), 2.2)
    for axes, row in zip(grid, rows):
        exposure, _ = result.exposures_of(np.array([row]))
        seen = result.exposure_values(exposure, ("MJD", "VRAD", "VRAD_ERR", "EPOCH", "EPOCH_FLAG"))
        seen = seen[np.unique(seen["EPOCH"], return_index=True)[1]]  # one point per epoch
        has_time = (seen["MJD"] > 0).all()  # unknown times are NaN, 0 or -9999
        time = seen["MJD"] - int(seen["MJD"].min()) if has_time else seen["EPOCH"]
        unsure = seen["EPOCH_FLAG"] & 8 > 0  # EXCHANGEABLE
        for of, face in (~unsure, RESIDUAL), (unsure, "none"):
            axes.errorbar(time[of], seen["VRAD"][of], seen["VRAD_ERR"][of], fmt="o", ms=3,
                          color=RESIDUAL, mfc=face, lw=1)
        axes.axhline(result.fits["VRAD"][row], color=MODEL, lw=0.8)
        axes.set_title(literal(text(result.catalog["IDENTIFIER"][row])[-28:]), fontsize=9)
        axes.set_xlabel(f"MJD − {int(seen['MJD'].min())}" if has_time else "epoch", fontsize=8)
    figure.supylabel("velocity, km/s", fontsize=10)
    return png(figure, DPI)
