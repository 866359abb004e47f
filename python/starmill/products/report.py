# SPDX-License-Identifier: BSD-3-Clause
"""`starmill report`: one HTML page of a result."""

import base64
import html
import importlib.resources
import os
import string

import numpy as np

from starmill.cli.basics import USAGE, Failure, check_text, need, printable, write_whole
from starmill.products import charts
from starmill.products.drawing import STYLE, plt, png
from starmill.products.models import open_models
from starmill.products.plot import corner, draw_range
from starmill.products.result import FITTED, NOT_DONE, SYMBOL, Result, number as fixed, plain, text
from starmill.products.survey import N_WORST, Survey, half_width
from starmill.surveys.spectra import Inputs

MAX_COMMAND = 600  # characters of the command line; the rest is not shown
N_POSTERIOR, N_VARIABLE, N_PAIR = 4, 12, 12
LOW_PVAL = 1e-3
LEAST_ROWS = 5  # fitted rows; with fewer, no distributions are drawn
N_FILE = 8  # most unreadable inputs that are named
MAX_PIXELS = 420  # of a star's picture; more pixels are averaged
PAGE = string.Template(importlib.resources.files(__package__).joinpath("page.html").read_text(
    encoding="utf-8"))


def escape(value):
    return html.escape("\n".join(map(printable, str(value).split("\n"))), quote=True)


def number(value, digits=3):
    """Format a number for HTML: significant digits, separated thousands, an en dash if missing."""
    if value is None or not np.isfinite(value):
        return "–"
    words = f"{value:.{digits}g}"
    if isinstance(value, float) and abs(value) >= 1e6:
        mantissa, exponent = f"{value:.2e}".split("e")
        words = f"{mantissa}·10<sup>{int(exponent)}</sup>"
    elif float(value) == int(value):
        words = f"{int(value):,}"
    elif abs(value) >= 1 and ("e" in words or abs(value) >= 10**digits):
        words = f"{value:,.0f}"
    return words.replace(",", "\u202f").replace("-", "−")


def full(key, value):
    """Return HTML attributes by which programs find a number and all its digits."""
    return f'data-key="{escape(key)}" data-value="{getattr(value, "item", lambda: value)()!r}"'


def cell(key, value, words=None):
    return f'<td class="n" {full(key, value)}>{words or number(value)}</td>'


def table(head, rows):
    """Return an HTML table.  head: titles; # begins the title of numbers.  rows: [[cell]]."""
    heads = "".join(f'<th class="n">{escape(h[1:])}</th>' if h.startswith("#")
                    else f"<th>{escape(h)}</th>" for h in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def td(value):
    return f"<td>{escape(value)}</td>"


def image(data, alt):
    if data is None:
        return ""
    width = int.from_bytes(data[16:20], "big") * 2 // 3  # drawn at 150 dots per inch, shown at 100
    return (f'<img alt="{escape(alt)}" width="{width}" src="data:image/png;base64,'
            f'{base64.b64encode(data).decode()}">')


def whole_page(title, subtitle, figures, sections, footer):
    """Return the page.  figures: [(key, value, HTML, label)]; sections: [(anchor, name, HTML)]."""
    boxes = "".join(f'<div><b {full(k, v)}>{w}</b>'
                    f"<span>{escape(label)}</span></div>" for k, v, w, label in figures)
    links = "".join(f'<a href="#{a}">{escape(n)}</a>' for a, n, _ in sections)
    body = "".join(f'<section id="{a}"><h2>{escape(n)}</h2>{t}</section>' for a, n, t in sections)
    return PAGE.substitute(title=escape(title), subtitle=escape(subtitle), links=links, boxes=boxes,
                           body=body, footer=escape(footer))


def percentile(values, k):
    values = values[np.isfinite(values)]
    return float(np.percentile(values, k)) if len(values) else np.nan


def share(n, of):
    return f"{100 * n / of:.1f} %" if of else "–"


def counted(n, one, more=None):
    """Return a number with its noun: `one` after 1, else `more`, by default one + "s"."""
    return f"{number(int(n))} {one if int(n) == 1 else more or one + 's'}"


def key_figures(survey):
    n, wall = survey.result.n_row, float(survey.result.provenance["WALL_S"])
    median = percentile(survey.sn[survey.fitted & (survey.sn > 0)], 50)
    done = n - survey.counts["status"].get(NOT_DONE, (0, []))[0]
    rate = done / wall if wall > 0 else np.nan
    return [("rows", n, number(n), "row" if n == 1 else "rows"),
            ("fitted", survey.n_fitted, share(survey.n_fitted, n), "fitted"),
            ("good", survey.n_good, share(survey.n_good, n), "fitted, without a warning"),
            ("median-sn", median, number(median), "median S/N of a star's best arm"),
            ("rate", rate, number(rate), "rows per second")]


def run_section(survey):
    result, p = survey.result, survey.result.provenance
    end = "…" if len(p["COMMAND"]) > MAX_COMMAND else ""
    rows = [
        ("command", f"<code>{escape(p['COMMAND'][:MAX_COMMAND])}{end}</code>"),
        ("program", escape(f"starmill {p['VERSION']}, revision {p['REVISION']}")),
        ("library", escape("".join(f"{name}, {path}, " for name, path in result.libraries.values())
                           + f"hash {p['LIBRARY_HASH'][:12]}")),
        ("machine", escape(f"{p['HOST']}, {p['DEVICE']}; {counted(p['N_RANK'], 'rank')} of "
                           f"{counted(p['N_THREAD'], 'thread')} where it was begun")),
        ("time", f"{escape(p['START_TIME'])} to {escape(p['END_TIME'])}, "
                 f"{number(float(p['WALL_S']))} s of running in {counted(p['N_RUN'], 'run')}"),
        ("frames", escape("; ".join(p["FRAMES"].split("\n")).strip("; "))),
        ("evaluations", "the median star took "
         f"{number(percentile(survey.sample['NEVAL'][survey.fitted], 50))} of the likelihood")]
    errors = [text(e) for e in result.catalog["files/ERROR"][...]]
    broken = [i for i, e in enumerate(errors) if e]
    rows.append(("inputs", f"{counted(len(errors), 'file')}, {number(len(broken))} unreadable"))
    body = "<table>" + "".join(f"<tr><th>{k}</th><td>{v}</td></tr>" for k, v in rows) + "</table>"
    if not int(p["FINISHED"]):
        body = '<p class="bad">This result is not finished: some rows are not done.</p>' + body
    if broken:
        lines = "".join(f"<tr>{td(result.files[i])}{td(errors[i])}</tr>" for i in broken[:N_FILE])
        n_more = len(broken) - N_FILE
        more = f'<p class="soft">and {n_more} more</p>' if n_more > 0 else ""
        body += f"<h3>Unreadable inputs</h3><table>{lines}</table>{more}"
    settings = escape(p["IDENTITY"])
    return body + f"<details><summary>settings</summary><pre>{settings}</pre></details>"


def reason_table(reasons, of, links):
    rows = []
    for r in reasons:
        examples = " ".join(f'<a href="#star-{row}">{row}</a>' if row in links else str(row)
                            for row in r.rows)
        percent = 100 * r.count / max(of, 1)
        rows.append((f"<td><b>{escape(r.name)}</b></td>", td(r.meaning),
                     cell(f"{r.kind}-{r.name}", r.count),
                     f'<td class="n">{share(r.count, of)}</td><td class="bar">'
                     f'<i style="width:{percent:.2f}%"></i></td><td class="rows">{examples}</td>'))
    return table(("", "meaning", "#rows", "#share", "", "first rows"), rows)


def flags_section(survey, links):
    n = survey.result.n_row
    body = "<h3>State of the rows</h3>" + reason_table(survey.reasons("status"), n, links)
    for kind, title in (("velocity", "Velocities"), ("warning", "Warnings"), ("info", "Facts")):
        reasons = survey.reasons(kind)
        body += f"<h3>{title} of fitted rows</h3>"
        body += reason_table(reasons, survey.n_fitted, links) if reasons else \
            '<p class="soft">none</p>'
    return body


def numbers_table(survey):
    """Return a table of parameters' percentiles and median errors in rows without a warning."""
    result, rows = survey.result, []
    for p in result.parameters:
        cells = [td(plain(p)), td(result.shown_unit(p))]
        for k in (16, 50, 84):
            v = percentile(survey.sample[p][survey.good], k)
            cells.append(cell(f"p{k}-{p}", v, fixed(v, SYMBOL.get(p, (p, 3))[1])))
        error = percentile(survey.sample[p + "_ERR"][survey.good], 50)
        rows.append([*cells, cell(f"error-{p}", error)])
    return table(("rows without a warning", "unit", "#16 %", "#median", "#84 %",
                  "#median error"), rows)


def arms_table(survey):
    result, rows = survey.result, []
    for a in result.arms:
        at = survey.fitted & (survey.sample["NPIX_" + a] > 0)
        cells = [td(a.lower()), cell(f"n-{a}", int(at.sum()))]
        rows.append(cells + [cell(f"{name}{a}-p{k}", percentile(survey.sample[name + a][at], k))
                             for name in ("SN_", "RCHISQ_") for k in (5, 50, 95)])
    return table(("arm", "#fitted rows", "#S/N 5 %", "#median", "#95 %",
                  "#chi-square 5 %", "#median", "#95 %"), rows)


def distributions_section(survey):
    if survey.n_fitted < LEAST_ROWS:
        return '<p class="soft">Too few fitted rows; each is shown below.</p>'
    body = image(charts.quality(survey), "S/N and reduced chi-square by arm")
    body += arms_table(survey)
    body += "<h3>Errors</h3>" + image(charts.errors(survey), "errors against S/N")
    return body + numbers_table(survey)


def repeats_section(survey):
    r = survey.repeats
    every = f"; looked for among every {r.every}th star" if r.every > 1 else ""
    unjoined = "".join(f'<p class="soft">{words}.</p>' for words in r.unjoined)
    if r.n_pair == 0:
        return unjoined + ('<p class="soft">No star was fitted more than once without a '
                           f"warning{every}.</p>")
    body = (f"{unjoined}<p>{counted(r.n_star, 'star has', 'stars have')} {number(r.n_row)} rows "
            f"without a warning{every}. A star's first two rows are a pair, the next two another: "
            f"{counted(r.n_pair, 'pair')}. Scatter is half the width of the central 68 % of their "
            "differences, by the root of 2. A width of 1 in stated errors confirms the errors. "
            "Priors are taken out, and flagged elements left out.</p>")
    rows = []
    for p in survey.result.parameters:
        delta, error = r.delta[p], np.hypot(*r.errors[p])
        rows.append([td(plain(p)), td(survey.result.shown_unit(p)),
                     cell(f"repeat-scatter-{p}", half_width(delta) / np.sqrt(2)),
                     cell(f"repeat-error-{p}", percentile(error, 50) / np.sqrt(2)),
                     cell(f"repeat-pull-{p}", half_width(delta / error))])
    body += table(("", "unit", "#scatter of a row", "#stated error",
                   "#width in stated errors"), rows)
    return body + image(charts.repeats(survey), "differences of repeated rows")


def epochs_section(survey):
    result, s = survey.result, survey.sample
    has = survey.good & np.isfinite(s["VRAD_PVAL"])
    n = int(has.sum())
    if n == 0:
        return '<p class="soft">No row without a warning has two or more epochs.</p>'
    low = int((s["VRAD_PVAL"][has] < LOW_PVAL).sum())
    body = (f"<p>{counted(n, 'row without a warning has', 'rows without a warning have')} two or "
            f"more epochs; in {number(low)} of them ({share(low, n)}) a constant velocity has a "
            f"probability (VRAD_PVAL) below {LOW_PVAL:g}. With constant velocities and true errors "
            "all probabilities are equally frequent (dotted line).</p>")
    body += image(charts.constant(survey), "probabilities of a constant velocity")
    excess = np.where(has, s["VRAD_CHI2"] / np.maximum(s["N_EPOCH"] - 1, 1), -1)
    at = np.argsort(-excess, kind="stable")[:min(N_VARIABLE, n)]
    return body + "<h3>Most variable stars</h3>" + image(
        charts.curves(result, survey.rows[at]), "velocities of the most variable stars")


def pairs_section(survey):
    result, s = survey.result, survey.sample
    n = sum(r.count for r in survey.reasons("info") if r.name == "PAIR")
    body = (f"<p>{counted(n, 'row is', 'rows are')} fitted as two stars "
            f"({share(n, survey.n_fitted)} of all); columns without _2: the brighter star.</p>")
    body += image(charts.pairs(survey), "velocity differences of two stars")
    gain = np.where(s["SB2"] == 1, s["SB2_GAIN"], -np.inf)
    rows = []
    for i in np.argsort(-gain, kind="stable")[:min(N_PAIR, int((s["SB2"] == 1).sum()))]:
        row = int(survey.rows[i])
        values = result.row(row)
        cells = [td(row), td(values["IDENTIFIER"][-28:]),
                 cell(f"pair-gain-{row}", values["SB2_GAIN"])]
        words = [[fixed(values[name], SYMBOL.get(p, (p, 3))[1]) for name in (p, p + "_2")]
                 for p in result.parameters]
        words += [[fixed(values[f"FLUX_RATIO_{arm}"], 2) for arm in result.arms],
                  result.words(values["RVS_WARN"], result.warnings)]
        rows.append(cells + [td(", ".join(several)) for several in words])
    if not rows:
        return body
    names = [f"{plain(p)} ({result.shown_unit(p)})" for p in result.parameters]
    return body + "<h3>Most certain ones</h3>" + table(
        ("row", "star", "#gain", *names, "flux ratio by arm", "warnings"), rows)


class Stars:
    """Makes the cards of stars, with pictures of their spectra unless these are unreadable."""

    def __init__(self, result, rows, options):
        self.result, self.problem, self.shown, self.inputs = result, "", set(), None
        if options.no_spectra:
            self.problem = "Spectra were not asked for."
            return
        try:
            self.models = open_models(result, rows, options)
            self.inputs = Inputs(result, options.library)
        except Failure as failure:
            if options.models or options.library:  # what the user named
                raise
            self.problem = str(failure)

    def picture(self, row):
        if self.inputs is None:
            return ""
        try:
            arms, note = self.inputs.star(row, self.models.of(row))
        except Failure as failure:
            return f'<p class="bad">{escape(failure)}</p>'
        with plt.rc_context({**STYLE, "font.size": 8}):
            figure, (upper, lower) = plt.subplots(2, figsize=(5.6, 1.9), gridspec_kw={
                "height_ratios": (5, 2), "left": 0.07, "right": 0.99, "bottom": 0.12, "top": 0.98,
                "hspace": 0.1})
            draw_range(upper, lower, arms, (arms[0].wave[0], max(a.wave[-1] for a in arms)),
                       MAX_PIXELS)
            return image(png(figure, charts.DPI), "spectrum, model and residuals") + (
                f'<p class="soft">{escape(note)}</p>' if note else "")

    def card(self, row):
        values = self.result.row(row)
        parts, is_fitted = [], values["STATUS"] == FITTED
        # leave out labels that the row's library lacks: they are NaN
        for p in filter(lambda p: is_fitted and np.isfinite(values[p]), self.result.parameters):
            words = self.result.shown(values, p, SYMBOL.get(p, (p, 3))[1])
            why = self.result.words(values.get(p + "_FLAG", 0), self.result.flags)
            words = " ".join([plain(p), words, self.result.shown_unit(p), *why])
            parts.append(f'<span class="p{" soft" * bool(why)}">{escape(words.strip())}</span>')
        status = self.result.statuses.get(int(values["STATUS"]), (str(values["STATUS"]), ""))
        flags = self.result.words(values["RVS_WARN"], self.result.warnings) if is_fitted else \
            [": ".join(status)]
        sn = self.result.sn(values)
        star = values["TARGETID"] if values["TARGETID"] != -1 else f"'{values['IDENTIFIER']}'"
        facts = f"S/N {number(sn)}" if sn > 0 else "no S/N"
        facts += (f", reduced chi-square {number(values['RCHISQ_TOT'])}, without model error "
                  f"{number(self.result.chisq_of_data(values))}")
        # a row may have two cards: links lead to the first
        anchor = "" if row in self.shown else f' id="star-{row}"'
        self.shown.add(row)
        return (f"<figure{anchor}>{self.picture(row)}<figcaption><b>"
                f"{escape(values['OBJECT'] or values['IDENTIFIER'])}</b> "
                f'<span class="soft">row {row}, {facts}</span><br>{"".join(parts)}'
                + (f'<br><span class="bad">{escape(", ".join(flags))}</span>' if flags else "")
                + f"<br><code>starmill plot {escape(os.path.basename(self.result.path))} "
                f"{escape(star)}</code></figcaption></figure>")

    def section(self, rows, words):
        if not rows:
            return '<p class="soft">none</p>'
        problem = f'<p class="bad">No spectra: {escape(self.problem)}</p>' if self.problem else ""
        return (f'<p class="soft">{words}</p>{problem}<div class="stars">'
                + "".join(self.card(r) for r in rows) + "</div>")


def posterior_section(survey, links):
    """Return a table of POST_FLAG, and corner plots of N_POSTERIOR stars of low to high S/N."""
    result = survey.result
    at = np.flatnonzero(survey.fitted)
    at = at[np.argsort(survey.sn[at], kind="stable")]
    body = ""
    for k in np.unique(np.linspace(0, max(len(at) - 1, 0), min(N_POSTERIOR, len(at))).astype(int)):
        row = int(survey.rows[at[k]])
        figure = corner(result, row)
        if figure:
            body += (f"<figure>{image(png(figure, charts.DPI), 'posterior')}"
                     f"<figcaption><b>{escape(text(result.catalog['IDENTIFIER'][row]))}</b> "
                     f'<span class="soft">row {row}, S/N {number(survey.sn[at[k]])}'
                     "</span></figcaption></figure>")
    words = ("Grey: marginal densities, and samples or contours of one and two standard "
             "deviations; orange: the Gaussian of the fit.")
    flags = reason_table(survey.reasons("posterior"), survey.n_fitted, links)
    return flags + (f'<p class="soft">{words}</p><div class="posterior">{body}</div>' if body else
                    '<p class="soft">no row has a posterior</p>')


def main(options):
    path, = options.arguments
    output = options.output or path + ".html"
    result = Result(path)
    check_text(output, options.overwrite, result.reads(options))
    need(result.n_row, USAGE, f"{path} has no rows: there is nothing to report")
    survey = Survey(result)
    result.warn_damaged()
    examples = sorted({r.rows[0] for kind in ("status", "warning") for r in survey.reasons(kind)
                       if kind == "warning" or r.code not in (NOT_DONE, FITTED)})
    worst = [row for _, row in survey.worst]
    alone = survey.n_fitted <= N_WORST  # all fitted rows are among the worst
    drawn = sorted(set(examples + worst + ([] if alone else survey.typical)))
    stars = Stars(result, drawn, options)
    subtitle = f"{counted(result.n_row, 'row')} of {counted(len(result.files), 'file')}, written " \
        f"by starmill {result.provenance['VERSION']}, {result.provenance['END_TIME']}"
    with plt.rc_context({**STYLE, "figure.autolayout": True}):  # as tight_layout()
        sections = [
            ("run", "Run", run_section(survey)),
            ("flags", "Failures and flags", flags_section(survey, set(drawn))),
            ("distributions", "Distributions", distributions_section(survey)),
            ("maps", "Maps", image(
                charts.maps(survey), "Kiel diagram, abundances and velocities") + image(
                charts.sky(survey), "stars and velocities over the sky")
                or '<p class="soft">too few rows without a warning</p>'),
            ("repeats", "Repeated stars", repeats_section(survey))]
        if result.epochs is not None:
            sections.append(("epochs", "Epochs", epochs_section(survey)))
        if result.has("SB2"):
            sections.append(("pairs", "Two stars", pairs_section(survey)))
        if "POST_MEAN" in result.fits:
            sections.append(("posteriors", "Posteriors", posterior_section(survey, set(drawn))))
    sections.append(("worst", "Stars" if alone else "Worst stars", stars.section(
        worst, f"Fitted rows{'' if alone else ' with the highest reduced chi-square'}, the worst "
        "first. Grey is the spectrum, orange the model, blue the residual in units of the error, "
        "to ±5; sand marks bad pixels.")))
    if not alone:
        sections.append(("typical", "Typical stars", stars.section(
            survey.typical, "Rows without a warning, along S/N: of each twelfth the one with the "
            "median reduced chi-square.")))
    if examples:
        sections.append(("examples", "Examples of failures and warnings", stars.section(
            examples, "The first row of each state and each warning.")))
    damaged = f" but {counted(result.n_damaged, 'damaged one')}" if result.n_damaged else ""
    footer = f"Counts are of all rows{damaged}."
    if survey.every > 1:
        footer += f" Distributions, maps and medians are of every {survey.every}th row."
    whole = whole_page(os.path.basename(path), subtitle, key_figures(survey), sections, footer)
    write_whole(output, [whole.encode()], options.overwrite)
    print(printable(output))
