# SPDX-License-Identifier: BSD-3-Clause
"""`starmill plot`: spectra of stars with their best-fit models."""

import io
import os

import numpy as np
from astropy import units
from matplotlib.backends.backend_pdf import PdfPages

from starmill.cli.basics import (OUTPUT, USAGE, check_text, need, picture_kind, printable,
                                 write_whole)
from starmill.interchange import errors, symmetric
from starmill.products.drawing import (BAD, DATA, INK, MODEL, PALE, RESIDUAL, STYLE, draw_panel,
                                       literal, plt, png)
from starmill.products.models import open_models
from starmill.products.result import FITTED, SYMBOL, Result, number, symbol
from starmill.surveys.spectra import Arm, Inputs, arms_with_error, median_sn, weighted
from starmill.wavelength import C_KM_S

MAX_PIXELS = 1500  # of an arm's panel; more pixels are averaged
A_LINE, LINE_HEIGHT = 7, 0.46  # table above the panels: parameters in a line; inches of a line
PANEL = 1.6  # inches
REACH = 4  # standard deviations shown on each side
LINES = (  # lines to zoom in on, vacuum A at rest, the most informative first
    ("H$\\beta$", 4815.0, 4910.0), ("Mg b", 5140.0, 5220.0), ("Ca II triplet", 8475.0, 8695.0),
    ("H$\\alpha$", 6520.0, 6610.0), ("Ca II H and K", 3915.0, 3995.0), ("Na D", 5870.0, 5920.0),
    ("G band", 4270.0, 4345.0), ("H$\\gamma$", 4310.0, 4375.0), ("H$\\delta$", 4065.0, 4140.0))


def zooms(arms, vrad):
    """Return three ranges [(title, (low, high))]: LINES with good pixels, else parts of an arm."""
    found = []
    shift = 1 + (vrad if np.isfinite(vrad) else 0.0) / C_KM_S
    for title, low, high in LINES:
        limits = (low * shift, high * shift)
        for arm in arms:
            at = (arm.wave >= limits[0]) & (arm.wave <= limits[1])
            if (arm.wave[0] <= limits[0] and limits[1] <= arm.wave[-1] and at.sum() > 4
                    and not arm.bad[at].all() and arm.bad[at].mean() < 0.5):
                found.append((title, limits))
                break
    for k in range(3 - len(found)):  # no line left: parts of the arms
        arm = max(arms, key=lambda a: (~a.bad).sum())
        width = (arm.wave[-1] - arm.wave[0]) / 5
        low = arm.wave[0] + (2 * k + 0.5) * width
        found.append(("part of " + arm.name, (low, low + width)))
    return sorted(found[:3], key=lambda zoom: zoom[1])


def draw_range(upper, lower, arms, limits, most=MAX_PIXELS):
    """Draw a panel of at most `most` pixels, with bad pixels shaded behind."""
    inside = [(a, (a.wave >= limits[0]) & (a.wave <= limits[1])) for a in arms]
    n = max(1, max(int(at.sum()) for _, at in inside) // most)
    for arm, at in inside:
        if arm.bad[at].any():
            for axes in (upper, lower):
                axes.fill_between(arm.wave[at], 0, 1, where=arm.bad[at], color=BAD, lw=0,
                                  step="mid", zorder=-2, transform=axes.get_xaxis_transform())
            wild = np.where(arm.bad[at] & np.isfinite(arm.flux[at]), arm.flux[at], np.nan)
            upper.plot(arm.wave[at], wild, ".", color=PALE, ms=2, zorder=-1)
    tables = [(a.wave, np.where(a.ivar > 0, a.flux, 0.0), a.ivar,
               np.full(len(a.wave), np.nan) if a.model is None else a.model) for a in arms]
    draw_panel(upper, lower, tables, limits, n)


def write_table(figure, result, row, note):
    """Write the parameters, grey if flagged, and the names of the row's flags above the panels."""
    values = result.row(row)
    height = figure.get_figheight()
    line, left = 0.2 / height, 0.05  # height of a text line and left margin, of the figure's size

    def write(x, i, words, **how):
        figure.text(x, 1 - (0.32 / height) - i * line, words, va="baseline", **how)
    target = f"TARGETID {values['TARGETID']}" if values["TARGETID"] != -1 else values["IDENTIFIER"]
    write(left, 0, literal(values["OBJECT"] or values["IDENTIFIER"]), weight="bold", fontsize=12)
    write(0.98, 0, literal(f"{target},  row {row} of {os.path.basename(result.path)}"), ha="right",
          color=INK)
    where = f"RA {number(values['TARGET_RA'], 5)}°  Dec {number(values['TARGET_DEC'], 5)}°"
    arms = [a for a in result.arms if values[f"NPIX_{a}"] > 0]
    sn = ",  ".join(f"{a.lower()} {number(values['SN_' + a], 0)}" for a in arms)
    chi = ",  ".join(f"{a.lower()} {number(values['RCHISQ_' + a], 2)}" for a in arms)
    chi += f",  without model error {number(result.chisq_of_data(values), 2)}"
    write(left, 1, "     ".join(w for w in (
        where, f"S/N per pixel: {sn}", f"reduced $\\chi^2$: {chi}", note) if w), color=INK)
    step, down = 0.93 / min(len(result.parameters), A_LINE), LINE_HEIGHT / height / line
    for i, p in enumerate(result.parameters):
        x, below = left + i % A_LINE * step, i // A_LINE * down
        digits = SYMBOL.get(p, (p, 3))[1]
        error = values[p + "_ERR"]
        if 0 < error < np.inf:  # two digits of the error, at least
            digits = max(digits, min(4, 1 - int(np.floor(np.log10(error)))))
        unit = result.shown_unit(p)
        write(x, 2.4 + below, symbol(p) + (f"  ({unit})" if unit else ""), color=INK)
        write(x, 3.4 + below, result.shown(values, p, digits), fontsize=11,
              color=INK if values.get(p + "_FLAG") else MODEL)
    status = result.statuses.get(int(values["STATUS"]), (str(values["STATUS"]), ""))
    warnings = result.words(values["RVS_WARN"], result.warnings)
    infos = result.words(values["FIT_INFO"], result.infos)
    flags = ["not fitted: " + status[1]] if values["STATUS"] != FITTED else []
    flags.append("warnings: " + (", ".join(warnings) or "none"))
    flags += ["facts: " + ", ".join(infos)] if infos else []
    colour = MODEL if warnings or len(flags) > 2 else INK
    write(left, 4.7 + below, "     ".join(flags), color=colour)


def within(arms, limits):
    """Return the parts of arms between two wavelengths (limits, A)."""
    found = [Arm(arm.name, *(None if values is None else values[at] for values in arm[1:])) for arm
             in arms if ((at := (arm.wave >= limits[0]) & (arm.wave <= limits[1])).sum() > 1)]
    need(found, USAGE, f"no pixels of the star between {limits[0]:g} and {limits[1]:g} A: it has "
         f"{arms[0].wave[0]:.0f} to {max(a.wave[-1] for a in arms):.0f} A")
    return found


def named(unit):
    """Return a unit in matplotlib's notation."""
    try:
        return units.Unit(unit).to_string("latex_inline")
    except ValueError:
        return literal(unit)


def draw_arms(arms, unit, vrad, limits=None, n_parameter=1):
    """Draw spectra, models and residuals of Arms (surveys/spectra.py), with room above for a table
    of n_parameter parameters.  limits: wavelengths (A) to draw; None: all, and panels of lines."""
    width, arm_height, zoom_height = 11.0, 1.95, 2.35  # inches
    top = 1.45 + (n_parameter - 1) // A_LINE * LINE_HEIGHT
    if limits:
        arms, arm_height, zoom_height = within(arms, limits), 3.2, 0.2
    height = top + arm_height * len(arms) + zoom_height + 0.15
    figure = plt.figure(figsize=(width, height))

    def axes(x, y, wide, high):
        return figure.add_axes((x / width, y / height, wide / width, high / height))
    for i, arm in enumerate(arms):
        low = height - top - arm_height * (i + 1)
        upper = axes(0.75, low + 0.85, width - 0.95, arm_height - 0.93)
        lower = axes(0.75, low + 0.38, width - 0.95, 0.42)
        draw_range(upper, lower, [arm], (arm.wave[0], arm.wave[-1]))
        upper.set_title(f"arm {arm.name}", loc="left", pad=1, color=INK, fontsize=9)
    titles = [] if limits else zooms(arms, vrad)
    wide = (width - 0.95 - 2 * 0.5) / 3
    for k, (title, limits) in enumerate(titles):
        upper = axes(0.75 + k * (wide + 0.5), 1.08, wide, 1.1)
        lower = axes(0.75 + k * (wide + 0.5), 0.52, wide, 0.5)
        draw_range(upper, lower, arms, limits)
        upper.set_title(title, loc="left", pad=1, color=INK, fontsize=9)
        lower.locator_params(axis="x", nbins=5)
    figure.text(0.75 / width, 0.06 / height, "vacuum wavelength (Å)", ha="left", va="bottom")
    figure.text(0.012, 0.45, f"flux ({named(unit)})" if unit else "flux as in the input",
                rotation=90, va="center", ha="left")
    handles = [plt.Line2D([], [], color=DATA, lw=1.3), plt.Line2D([], [], color=MODEL, lw=1.0),
               plt.Line2D([], [], color=RESIDUAL, lw=1.0), plt.Rectangle((0, 0), 1, 1, color=BAD)]
    figure.legend(handles, ["spectrum", "best-fit model", "residual / error", "bad pixels"], ncol=4,
                  frameon=False, loc="lower right", bbox_to_anchor=(0.99, -0.02 / height),
                  fontsize=9, borderaxespad=0)
    return figure


def draw_ellipses(axes, x, y, covariance, colour):
    """Draw the ellipses of one and two standard deviations about (x, y)."""
    value, vector = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, 100)
    dx, dy = vector * np.sqrt(np.maximum(value, 0)) @ np.array([np.cos(angle), np.sin(angle)])
    for n_sigma in (1, 2):
        axes.plot(x + n_sigma * dx, y + n_sigma * dy, color=colour, lw=1)


def corner(result, row):
    """Draw a corner plot.  The diagonal has densities of single parameters; below are the samples
    that --draws kept, or ellipses of the covariance.  Return None if the star was not sampled."""
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
            axes.set(visible=k <= i, xlim=(low[q], high[q]))
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
        grid[i, i].set(ylim=(0, None), yticks=[])
        below, middle, above = (values[f"POST_P{c}"][p] for c in (16, 50, 84))
        digits = int(np.clip(1 - np.floor(np.log10(max(above - below, 1e-9) / 2)), 0, 4))
        grid[i, i].set_title(f"{number(middle, digits)} +{number(above - middle, digits)} "
                             f"−{number(middle - below, digits)}", color=INK, fontsize=9)
    return figure


def draw_corner(result, row):
    need("POST_DENSITY" in result.fits, USAGE,
         f"{result.path}: --corner needs a result of starmill sample")
    figure = corner(result, row)
    need(figure, USAGE, f"{result.path}: row {row} was not sampled: see its STATUS")
    values = result.row(row)
    flags = ", ".join(result.words(values["POST_FLAG"], result.posteriors)) or "none"
    figure.suptitle(f"{literal(values['OBJECT'] or values['IDENTIFIER'])},  "
                    f"row {row} of {literal(os.path.basename(result.path))}\n"
                    f"POST_FLAG: {flags}\ngrey: posterior, orange: the fit's Gaussian",
                    x=0.98, ha="right", fontsize=10, color=INK)
    return figure


def draw_star(result, row, inputs, models, limits=None):
    arms, note = inputs.star(row, models.of(row))
    figure = draw_arms(arms, inputs.unit(row), float(result.fits["VRAD"][row]), limits,
                       len(result.parameters))
    write_table(figure, result, row, note)
    return figure


def drawn(draw, *arguments):
    """Return the figure that draw makes, closed: a notebook would show an open figure twice."""
    with errors(), plt.rc_context(STYLE):
        figure = draw(*arguments)
    plt.close(figure)
    return figure


def draw_row(result, row, options, limits):
    """Draw a row of a result.  options: models, library and program, for open_models."""
    return drawn(lambda: draw_star(result, row, Inputs(result, options.library),
                                   open_models(result, [row], options), limits))


def draw_pieces(library, theta, pieces, limits):
    """Draw the starmill.Pieces of a star's exposure with the highest S/N, with parameters theta."""
    need(any(piece.ivar.any() for piece in pieces), ValueError, "the star has no usable pixel")
    best = max(pieces, key=lambda piece: median_sn(piece.data, piece.ivar)).exposure
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
        ",   ".join(words[i:i + A_LINE]) for i in range(0, len(words), A_LINE)),
                va="baseline", color=INK)
    return figure


def main(options):
    path, *stars = options.arguments
    result = Result(path)
    rows = [row for row in result.find(stars) if result.whole(row, row + 1)[0]]
    result.warn_damaged()
    need(rows, OUTPUT, f"{path}: all rows of these stars are damaged; repeat the fit")
    need(not options.corner or not options.range, USAGE,
         "--range does not apply to --corner, which draws no spectrum")
    output = options.output or stars[0].replace("/", "_").replace(" ", "_") + ".png"
    kind = picture_kind(output)
    need(kind != "png" or len(rows) <= 1, USAGE,
         f"these stars have {len(rows)} rows: give --output FILE.pdf, which has a page for each")
    check_text(output, options.overwrite, result.reads(options))
    if not options.corner:
        models = open_models(result, rows, options)
        inputs = Inputs(result, options.library)

    def draw(row):
        return draw_corner(result, row) if options.corner else \
            draw_star(result, row, inputs, models, options.range)
    memory = io.BytesIO()
    with plt.rc_context(STYLE):
        if kind == "png":
            write_whole(output, [png(draw(rows[0]), options.dpi)], options.overwrite)
        else:
            with PdfPages(memory) as pages:
                for row in rows:
                    figure = draw(row)
                    pages.savefig(figure)
                    plt.close(figure)
            write_whole(output, [memory.getvalue()], options.overwrite)
    print(printable(output))
