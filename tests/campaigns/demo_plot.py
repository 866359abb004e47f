# SPDX-License-Identifier: BSD-3-Clause
"""Draw what a fit of a simulated survey recovered.

usage: demo_plot.py FIT.h5 MODELS.h5 TRUTH.fits FOLDER

Makes two pictures in FOLDER from a result of `starmill fit --models` and the
truth table of `starmill simulate`:

- spectra.png: four stars of different type and S/N with their best-fit models,
  the residuals in units of the fit's error, and both sets of labels;
- recovery.png: recovered against true for every parameter, coloured by S/N.

The spectra are read from the paths that the fit was given, so it must be run in
the same folder as the fit.
"""

import os
import sys

import numpy as np

try:
    import matplotlib  # noqa: F401
    import PIL  # noqa: F401
except ImportError as absent:
    sys.exit(f"demo_plot.py: {absent}: it needs matplotlib and Pillow (Debian: python3-matplotlib)")

from matplotlib.colors import LinearSegmentedColormap, LogNorm  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

from survey_stats import INPUT, PARAMETERS, RESOLVED_KM_S, Failure, Survey  # noqa: E402
from starmill.cli.basics import write_whole  # noqa: E402
# how `starmill plot` reads and draws
from starmill.products.drawing import INK, MODEL, PALE, STYLE, draw_panel, plt, png  # noqa: E402
from starmill.products.models import Models  # noqa: E402
from starmill.surveys.spectra import Inputs  # noqa: E402

DPI = 110  # 1200 pixels wide: legible at the width of a README
N_SHADE = 12  # of S/N: few enough that each has its place in the palette

# the stars to show: the nearest to each of these is taken
SHOWN = (  # Teff, log g, [Fe/H], S/N
    (6800.0, 4.2, -0.3, 70.0),
    (5700.0, 4.4, 0.0, 35.0),
    (4900.0, 1.8, -2.0, 25.0),
    (4400.0, 1.8, -0.2, 10.0),
)
NEAR = (500.0, 0.7, 0.5, 0.3)  # what counts as a distance of 1; the last of ln S/N

# the panels of a star: title, range in A, relative width
PANELS = (
    ("whole range", (3580.0, 9845.0), 2.3),
    ("H$\\beta$ and Mg b", (4820.0, 5220.0), 1.35),
    ("Ca II triplet", (8475.0, 8695.0), 1.15),
)
VSINI_UNRESOLVED = 1  # bit of FIT_INFO: at the lower limit, the error is an upper limit
N_BINNED = 6  # pixels averaged in the panel of the whole range


def save(figure, path):
    """The old file stays until the new one is whole."""
    write_whole(path, [png(figure, DPI)], overwrite=True)


# --- spectra ----------------------------------------------------------------


def type_of(teff, logg, feh):
    """In words, for the caption."""
    words = ["metal-poor"] if feh < -1.0 else []
    if teff > 6300.0:
        words.append("hot")
    elif teff < 5000.0:
        words.append("cool")
    words.append("giant" if logg < 3.5 else "dwarf")
    return " ".join(words)


def choose(survey):
    """Rows of the stars to show, each the nearest to what is wished for."""
    at = np.flatnonzero(survey.good)
    have = np.array([survey.true["TEFF"], survey.true["LOGG"], survey.true["FEH"],
                     np.log(np.maximum(survey.sn, 1e-3))]).T[at]
    rows = []
    for teff, logg, feh, sn in SHOWN:
        far = (((have - (teff, logg, feh, np.log(sn))) / NEAR) ** 2).sum(axis=1)
        far[np.isin(at, rows)] = np.inf
        if np.isfinite(far).any():
            rows.append(int(at[np.argmin(far)]))
    return rows


def draw_spectra(survey, models_path, path):
    rows = choose(survey)
    if not rows:
        raise Failure(INPUT, "no star without a defect and without a warning to draw")
    width, row_height, top, bottom = 11.0, 2.75, 0.1, 0.5  # inches
    left, between, right = 0.66, 0.42, 0.22
    height = top + row_height * len(rows) + bottom
    unit = (width - left - right - between * (len(PANELS) - 1)) / sum(p[2] for p in PANELS)
    figure = plt.figure(figsize=(width, height))

    def axes(x, y, wide, high):
        return figure.add_axes((x / width, y / height, wide / width, high / height))

    inputs, models = Inputs(survey.result), Models(models_path, survey.result)
    for i, row in enumerate(rows):
        low = bottom + row_height * (len(rows) - 1 - i)
        arms = [(a.wave, np.where(a.bad, 0.0, a.flux), a.ivar, a.model)
                for a in inputs.star(row, models.of(row))[0]]
        x = left
        for j, (title, limits, share) in enumerate(PANELS):
            upper = axes(x, low + 0.58, share * unit, 1.4)
            lower = axes(x, low + 0.08, share * unit, 0.46)
            draw_panel(upper, lower, arms, limits, N_BINNED if j == 0 else 1)
            if i == len(rows) - 1:
                lower.set_xlabel(f"{title}, vacuum wavelength (Å)", labelpad=2)
            else:
                lower.tick_params(labelbottom=False)
            x += share * unit + between
        write_labels(figure, survey, row, left / width, (low + 2.08) / height, 0.175 / height)
    figure.text(0.17 / width, 0.5, "flux (10$^{-17}$ erg s$^{-1}$ cm$^{-2}$ Å$^{-1}$)"
                "  and, below it,  residuals / error", rotation=90, va="center", ha="center")
    save(figure, path)


def write_labels(figure, survey, row, left, low, line):
    """The caption of a star: type and S/N, and a small table of its labels."""
    kind = type_of(*(survey.true[name][row] for name in ("TEFF", "LOGG", "FEH")))
    where = dict(va="bottom", linespacing=1.0)
    figure.text(left, low + 2 * line, f"{kind[0].upper()}{kind[1:]}", weight="bold", **where)
    figure.text(left, low + line, f"S/N {survey.sn[row]:.0f} per pixel", **where)
    x = left + 0.175
    for y, words, colour in ((line, "best fit", MODEL), (0.0, "true", "black")):
        figure.text(x, low + y, words, color=colour, **where)
    x += 0.075
    for p, wide in zip(PARAMETERS, (0.165, 0.11, 0.105, 0.12, 0.11, 0.1)):
        value, error, true = (v[row] for v in (survey.fit[p.name], survey.fit[p.name + "_ERR"],
                                               survey.true[p.name]))
        unit = f" ({p.unit})" if p.unit != "dex" else ""
        found = f"{value:.{p.digits}f} ± {error:.{p.digits}f}"
        if p.name == "VSINI" and survey.fit["FIT_INFO"][row] & VSINI_UNRESOLVED:
            found = f"< {error:.{p.digits}f}"
        figure.text(x, low + 2 * line, p.symbol + unit, color=INK, **where)
        figure.text(x, low + line, found.replace("-", "−"), color=MODEL, **where)
        figure.text(x, low, f"{true:.{p.digits}f}".replace("-", "−"), **where)
        x += wide


# --- recovered against true -------------------------------------------------


def draw_recovery(survey, path):
    # from yellow-green to violet, without the pale end that vanishes on white
    colours = LinearSegmentedColormap.from_list(
        "sn", plt.get_cmap("viridis")(np.linspace(0.85, 0.0, 256)), N=N_SHADE)
    sn = survey.sn[survey.good]
    if not len(sn):
        raise Failure(INPUT, "no star without a defect and without a warning to draw")
    norm = LogNorm(sn.min(), max(sn.max(), sn.min() * 1.01))
    width, height = 11.0, 7.9  # inches
    figure = plt.figure(figsize=(width, height))
    grid = figure.add_gridspec(2, 3, left=0.062, right=0.915, top=0.965, bottom=0.08,
                               hspace=0.24, wspace=0.27)
    for place, p in zip(grid, PARAMETERS):
        inner = place.subgridspec(2, 1, height_ratios=(2.2, 1.0), hspace=0.06)
        upper = figure.add_subplot(inner[0])
        draw_parameter(upper, figure.add_subplot(inner[1], sharex=upper), survey, p, colours, norm)
    bar = figure.colorbar(plt.cm.ScalarMappable(norm, colours),
                          cax=figure.add_axes((0.935, 0.25, 0.014, 0.5)))
    bar.set_label("S/N per pixel in arm r")
    ticks = [t for t in (2, 5, 10, 20, 50, 100, 200, 500) if norm.vmin <= t <= norm.vmax]
    bar.set_ticks(ticks)
    bar.set_ticklabels([str(t) for t in ticks])
    bar.ax.minorticks_off()
    figure.text(0.99, 0.012, "open circles: stars with a warning;  triangles: beyond the panel",
                ha="right", fontsize=9, color=INK)
    save(figure, path)


def draw_parameter(upper, lower, survey, p, colours, norm):
    true, recovered, delta = survey.true[p.name], survey.fit[p.name], survey.delta(p.name)
    warned = np.flatnonzero(survey.fitted & survey.clean & ~survey.good)
    good = np.flatnonzero(survey.good)
    good = good[np.argsort(survey.sn[good], kind="stable")]  # the sharpest on top
    # the range of the residuals: what most stars fill; the others stand at its edge
    wanted = survey.counted(p.name) if survey.counted(p.name).any() else survey.good
    limit = 1.25 * np.percentile(np.abs(delta[wanted]), 96.0)
    low, high = true[good].min(), true[good].max()
    margin = 0.04 * (high - low) or 1.0
    low, high = low - margin, high + margin
    upper.plot([low, high], [low, high], color=PALE, lw=1.0, zorder=0)
    lower.axhline(0.0, color=PALE, lw=1.0, zorder=0)
    for axes, values in ((upper, recovered), (lower, delta)):
        axes.scatter(true[warned], np.clip(values[warned], -limit, limit) if axes is lower
                     else values[warned], s=14, facecolors="none", edgecolors=PALE, linewidths=0.8,
                     zorder=1)
    inside = good[np.abs(delta[good]) <= limit]
    beyond = good[np.abs(delta[good]) > limit]
    colour = dict(cmap=colours, norm=norm, linewidths=0)
    upper.scatter(true[good], recovered[good], c=survey.sn[good], s=14, zorder=2, **colour)
    lower.scatter(true[inside], delta[inside], c=survey.sn[inside], s=14, zorder=2, **colour)
    for sign, marker in ((1, "^"), (-1, "v")):
        at = beyond[np.sign(delta[beyond]) == sign]
        lower.scatter(true[at], np.full(len(at), 0.98 * sign * limit), c=survey.sn[at], s=18,
                      marker=marker, zorder=2, **colour)
    lower.set_ylim(-1.05 * limit, 1.05 * limit)
    upper.set_xlim(low, high)
    upper.set_ylim(low, high)
    upper.tick_params(labelbottom=False)
    # no label where the two panels meet
    upper.yaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 5, 10), prune="lower"))
    lower.yaxis.set_major_locator(MaxNLocator(3, steps=(1, 2, 5, 10)))
    title = p.symbol[0].upper() + p.symbol[1:]
    upper.set_title(f"{title} ({p.unit})", loc="left", pad=4)
    upper.set_ylabel("recovered", labelpad=2)
    lower.set_ylabel("rec. − true", labelpad=2)
    lower.set_xlabel("true", labelpad=1)
    if p.name == "VSINI":
        for axes in (upper, lower):
            axes.axvspan(low, RESOLVED_KM_S, color="0.95", zorder=-1, linewidth=0)
        upper.text(0.02, 0.96, "hardly\nresolved", transform=upper.transAxes, va="top", fontsize=9,
                   color=INK)
    scatter = survey.statistics(p.name).scatter
    if np.isfinite(scatter):
        of = f" from {RESOLVED_KM_S:g} on" if p.name == "VSINI" else ""
        upper.text(0.97, 0.05, f"scatter {scatter:.2g} {p.unit}{of}", transform=upper.transAxes,
                   ha="right", fontsize=9)


def main(arguments):
    if len(arguments) != 4:
        sys.exit(__doc__.strip())
    fit_path, models_path, truth_path, folder = arguments
    try:
        survey = Survey(fit_path, truth_path)
        with plt.rc_context(STYLE):
            draw_spectra(survey, models_path, os.path.join(folder, "spectra.png"))
            draw_recovery(survey, os.path.join(folder, "recovery.png"))
    except (OSError, Failure) as error:
        sys.exit(f"demo_plot.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
