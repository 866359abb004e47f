# SPDX-License-Identifier: BSD-3-Clause
"""Draw parameters recovered by a fit of a simulated survey against the true ones, coloured by S/N.

usage: demo_plot.py FIT.h5 TRUTH.fits FILE.png

TRUTH.fits is the truth table of `starmill simulate`.
"""

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
from starmill.products.drawing import INK, PALE, STYLE, plt, png  # noqa: E402

DPI = 110  # 1200 pixels wide: legible at the width of a README
N_SHADE = 12  # of S/N: few enough that each has its place in the palette


def save(figure, path):
    """Write a figure; an old file stays until the new one is complete."""
    write_whole(path, [png(figure, DPI)], overwrite=True)


def draw_recovery(survey, path):
    # from yellow-green to violet, without the pale end that vanishes on white
    colours = LinearSegmentedColormap.from_list(
        "sn", plt.get_cmap("viridis")(np.linspace(0.85, 0.0, 256)), N=N_SHADE)
    sn = survey.sn[survey.good]
    if not len(sn):
        raise Failure(INPUT, "no star can be drawn: each has a defect, a warning or no fit")
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
    # most residuals are inside this range; the others are drawn at its edge
    wanted = survey.counted(p.name) if survey.counted(p.name).any() else survey.good
    limit = 1.25 * np.nanpercentile(np.abs(delta[wanted]), 96.0)
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
    if len(arguments) != 3:
        sys.exit(__doc__.strip())
    try:
        with plt.rc_context(STYLE):
            draw_recovery(Survey(*arguments[:2]), arguments[2])
    except (OSError, Failure) as error:
        sys.exit(f"demo_plot.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
