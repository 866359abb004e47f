"""The charts of a report."""

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator

from drawing import INK, MODEL, PALE, RESIDUAL, plt, png
from result import symbol
from survey import half_width

DPI = 150
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", "#000000")
MANY = 4000  # points above which a map counts rows in cells
FEW_DECADES = 12  # ratio of an axis' ends below which decades are too few to label
WIDE_DEG = 60.0  # extent from which a sky map is of the whole sky


def spread(values, low=0.5, high=99.5):
    """Limits that hold nearly all, with a margin."""
    values = values[np.isfinite(values)]
    a, b = np.percentile(values, [low, high])
    margin = 0.05 * (b - a) or 0.5
    return a - margin, b + margin


def n_bin(values, most):
    """As many bins as the values fill."""
    return int(np.clip(2 * np.sqrt(len(values)), 12, most))


def logarithmic(axis, low, high):
    """Plain numbers beside a logarithmic axis: of decades, and between them where these are few."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("{x:g}" if high / low < FEW_DECADES else "")
    if high / low < FEW_DECADES:
        axis.set_minor_locator(LogLocator(subs=(1.5, 2, 3, 5, 7)))


def histogram(axes, values, edges, colour, label):
    """Steps; what lies beyond the edges is counted in the last bins."""
    values = values[np.isfinite(values)]
    if len(values):
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        axes.stairs(counts, edges, color=colour, lw=1.4, label=label)


def quality(survey):
    """S/N and reduced chi-square by arm, of fitted rows.  None, here and below: there are none."""
    result, s = survey.result, survey.sample
    done = survey.fitted
    if not done.any():
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 2.9))
    sn = {a: s["SN_" + a][done & (s["NPIX_" + a] > 0)] for a in result.arms}
    chi = {a: s["RCHISQ_" + a][done & (s["NPIX_" + a] > 0)] for a in result.arms}
    for axes, values, label in ((left, sn, "S/N per pixel"), (right, chi, "reduced chi-square")):
        known = np.concatenate([v[np.isfinite(v) & (v > 0)] for v in values.values()])
        low, high = np.percentile(known, [0.2, 99.5]) * (0.9, 1.1) if len(known) else (0.5, 2.0)
        edges = np.geomspace(low, high, n_bin(known, 60) + 1)
        for arm, colour in zip(result.arms, COLOURS):
            histogram(axes, values[arm], edges, colour, f"arm {arm.lower()}")
        axes.set(xscale="log", xlabel=label, xlim=(low, high))
        logarithmic(axes.xaxis, low, high)
        axes.margins(y=0.18)
        axes.legend(frameon=False, fontsize=9, ncol=len(values), loc="upper right")
    right.axvline(1.0, color=INK, lw=0.8, ls=":")
    left.set_ylabel("fitted rows")
    figure.tight_layout()
    return png(figure, DPI)


def errors(survey):
    """Stated error against S/N, with its median."""
    result, s = survey.result, survey.sample
    if not (survey.good & (survey.sn > 0)).any():
        return None
    n = len(result.parameters)
    columns = min(3, n)
    figure, grid = plt.subplots(-(-n // columns), columns, squeeze=False,
                                figsize=(9.6, 2.5 * -(-n // columns)))
    for axes, p in zip(grid.flat, result.parameters):
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
        unit = result.unit(p)
        unit = "dex" if unit.startswith("log(") else unit
        axes.set(xscale="log", yscale="log", xlabel="S/N per pixel",
                 title=f"error of {symbol(p)}" + (f" ({unit})" if unit else ""))
        if not len(x):  # it is held
            axes.set(xscale="linear", yscale="linear", xticks=[], yticks=[])
            continue
        logarithmic(axes.xaxis, x.min(), x.max())
        logarithmic(axes.yaxis, y.min(), y.max())
    for axes in grid.flat[n:]:
        axes.set_axis_off()
    figure.tight_layout()
    return png(figure, DPI)


def points(axes, x, y, colour=None, limits=None, **how):
    """Dots, or where they are many the median of their colours, or their number, in cells."""
    if len(x) > MANY:
        if colour is None:
            return axes.hexbin(x, y, gridsize=60, mincnt=1, linewidths=0, cmap="viridis",
                               norm=LogNorm(), extent=limits)
        return axes.hexbin(x, y, C=colour, reduce_C_function=np.median, gridsize=60, linewidths=0,
                           extent=limits, **how)
    return axes.scatter(x, y, c=RESIDUAL if colour is None else colour, s=12, linewidths=0, **how)


def maps(survey):
    """Kiel diagram coloured by [Fe/H], and [alpha/Fe] or velocity against [Fe/H]; None also where
    the library has no such labels."""
    s, good = survey.sample, survey.good
    if not survey.result.has("TEFF", "LOGG") or good.sum() < 3:
        return None
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.7))
    has_feh = survey.result.has("FEH")
    colour = s["FEH"][good] if has_feh else None
    how = dict(zip(("vmin", "vmax"), spread(colour, 2, 98)), cmap="viridis") if has_feh else {}
    x, y = spread(s["TEFF"][good]), spread(s["LOGG"][good])
    drawn = points(axes[0], s["TEFF"][good], s["LOGG"][good], colour, (*x, *y), **how)
    axes[0].set(xlim=x[::-1], ylim=y[::-1], xlabel="$T_{\\rm eff}$ (K)", ylabel="$\\log g$ (dex)")
    figure.colorbar(drawn, ax=axes[0], label="[Fe/H]" if has_feh else "rows", pad=0.02)
    if has_feh:
        other = "ALPHAFE" if "ALPHAFE" in s else "VRAD"
        x, y = spread(s["FEH"][good]), spread(s[other][good])
        drawn = points(axes[1], s["FEH"][good], s[other][good], None, (*x, *y))
        axes[1].set(xlim=x, ylim=y, xlabel="[Fe/H] (dex)",
                    ylabel=symbol(other) + (" (dex)" if other == "ALPHAFE" else " (km/s)"))
        if good.sum() > MANY:
            figure.colorbar(drawn, ax=axes[1], label="rows", pad=0.02)
    else:
        axes[1].set_axis_off()
    figure.tight_layout()
    return png(figure, DPI)


def sky(survey):
    """Velocity over the sky, and its distribution; without positions the second alone."""
    s = survey.sample
    at = survey.good & np.isfinite(s["VRAD"])
    placed = at & np.isfinite(s["TARGET_RA"]) & np.isfinite(s["TARGET_DEC"])
    if at.sum() < 3:
        return None
    figure = plt.figure(figsize=(9.6, 3.5))
    limit = max(abs(v) for v in np.percentile(s["VRAD"][at], [3, 97])) or 1.0
    if placed.sum() > 2:
        ra, dec, v = s["TARGET_RA"][placed], s["TARGET_DEC"][placed], s["VRAD"][placed]
        ra = np.where(ra > 180, ra - 360, ra) if np.ptp(np.where(ra > 180, ra - 360, ra)) < np.ptp(
            ra) else ra
        wide = np.ptp(ra) > WIDE_DEG or np.ptp(dec) > WIDE_DEG
        how = dict(cmap="coolwarm", vmin=-limit, vmax=limit)
        if wide:
            axes = figure.add_axes((0.03, 0.08, 0.55, 0.86), projection="mollweide")
            x = -np.radians((ra + 180) % 360 - 180)  # east is left
            if len(x) > MANY:  # cells of equal area would need a pixelisation: thin the dots
                keep = np.linspace(0, len(x) - 1, 20000).astype(int)
                x, dec, v = x[keep], dec[keep], v[keep]
            drawn = axes.scatter(x, np.radians(dec), c=v, s=5, linewidths=0, **how)
            axes.set_xticklabels([])
            axes.tick_params(labelsize=8)
            axes.grid(color="0.9", lw=0.6)
        else:
            axes = figure.add_axes((0.07, 0.17, 0.46, 0.78))
            drawn = points(axes, ra, dec, v, (*spread(ra, 0, 100), *spread(dec, 0, 100)), **how)
            axes.set(xlim=spread(ra, 0, 100)[::-1], ylim=spread(dec, 0, 100),
                     xlabel="right ascension (deg)", ylabel="declination (deg)")
        bar = figure.add_axes((0.575, 0.17, 0.012, 0.72))
        figure.colorbar(drawn, cax=bar, label="velocity (km/s)", extend="both")
        axes = figure.add_axes((0.76, 0.17, 0.23, 0.78))
    else:
        axes = figure.add_axes((0.08, 0.17, 0.5, 0.78))
    histogram(axes, s["VRAD"][at], np.linspace(*spread(s["VRAD"][at]), n_bin(s["VRAD"][at], 60)), RESIDUAL, None)
    axes.set(xlabel="velocity (km/s)", ylabel="rows")
    return png(figure, DPI)


def repeats(survey):
    """Differences of repeated stars in units of their stated errors, beside a Gaussian."""
    r = survey.repeats
    if r.n_pair < 5:
        return None
    names = survey.result.parameters
    columns = min(3, len(names))
    figure, grid = plt.subplots(-(-len(names) // columns), columns, squeeze=False,
                                figsize=(9.6, 2.1 * -(-len(names) // columns)))
    edges = np.linspace(-5, 5, 41)
    for axes, p in zip(grid.flat, names):
        pull = r.delta[p] / np.where(r.error[p] > 0, r.error[p], np.nan)
        pull = pull[np.isfinite(pull)]
        histogram(axes, pull, edges, RESIDUAL, None)
        gauss = np.exp(-0.5 * edges**2) / np.sqrt(2 * np.pi) * len(pull) * (edges[1] - edges[0])
        axes.plot(edges, gauss, color=MODEL, lw=1.2)
        axes.set_title(f"{symbol(p)}: width {half_width(pull):.2f}")
    for axes in grid.flat[len(names):]:
        axes.set_axis_off()
    figure.supxlabel("difference of two rows of a star / its stated error", fontsize=10)
    figure.tight_layout()
    return png(figure, DPI)


def corner(result, row):
    """Posterior of a star of `starmill sample`: marginal densities, and samples (with --draws) or
    the ellipses of the covariance (1 and 2 sigma)."""
    names = result.parameters
    n = len(names)
    mean = result.fits["POST_MEAN"][row]
    covar = np.zeros((n, n))
    covar[np.triu_indices(n)] = result.fits["POST_COVAR"][row]
    sigma = np.sqrt(np.diag(covar))
    free = [i for i in range(n) if sigma[i] > 0]
    if len(free) < 2:
        return None
    density = result.fits["POST_DENSITY"][row].reshape(n, -1)
    low, high = (result.fits["POST_DENSITY_" + k][row] for k in ("LOW", "HIGH"))
    draws = result.fits["POST_DRAWS"][row].reshape(-1, n) if "POST_DRAWS" in result.fits else None
    size = len(free)
    figure, grid = plt.subplots(size, size, figsize=(6.4, 6.0), squeeze=False)
    circle = np.linspace(0, 2 * np.pi, 100)
    for a, i in enumerate(free):
        for b, j in enumerate(free):
            axes = grid[a, b]
            axes.tick_params(labelsize=6, length=2, labelleft=b == 0 and a > 0,
                             labelbottom=a == size - 1)
            axes.locator_params(nbins=3)
            if b > a:
                axes.set_axis_off()
                continue
            axes.set_xlim(low[j], high[j])
            if a == b:
                axes.plot(np.linspace(low[i], high[i], density.shape[1]), density[i], color=RESIDUAL,
                          lw=1.1)
                axes.axvline(result.fits[names[i]][row], color=MODEL, lw=0.9)
                axes.set_yticks([])
            else:
                if draws is not None:
                    axes.plot(draws[:, j], draws[:, i], ".", color=PALE, ms=1.5)
                pair = covar[min(i, j), max(i, j)]
                w, v = np.linalg.eigh([[sigma[j] ** 2, pair], [pair, sigma[i] ** 2]])
                x, y = v * np.sqrt(np.maximum(w, 0)) @ np.array([np.cos(circle), np.sin(circle)])
                for k in (1, 2):
                    axes.plot(mean[j] + k * x, mean[i] + k * y, color=RESIDUAL, lw=0.9)
                axes.plot(result.fits[names[j]][row], result.fits[names[i]][row], "+", color=MODEL)
                axes.set_ylim(low[i], high[i])
            if a == size - 1:
                axes.set_xlabel(symbol(names[j]), fontsize=8)
            if b == 0 and a > 0:
                axes.set_ylabel(symbol(names[i]), fontsize=8)
    figure.subplots_adjust(0.1, 0.09, 0.99, 0.99, 0.08, 0.08)
    return png(figure, DPI)
