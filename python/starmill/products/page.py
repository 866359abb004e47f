# SPDX-License-Identifier: BSD-3-Clause
"""The HTML of a report: one page without a network, its pictures inside."""

import base64
import html

import numpy as np

from starmill.cli.basics import printable
from starmill.products.drawing import binned

# of a star's picture, in its own units
WIDTH, HIGH, GAP, LOW, FOOT = 560, 120, 8, 44, 18
N_BIN = 420
MAX_RESIDUAL = 5.0

CSS = """
:root{--ink:#1f2933;--soft:#5f6b7a;--line:#e3e8ee;--ground:#f6f8fa;--blue:#0072b2;--red:#c24f00}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
header{background:#12263a;color:#fff;padding:26px 0 22px}
header h1{margin:0;font-size:26px;font-weight:600}header p{margin:4px 0 0;color:#b7c6d6}
.wide{max-width:1160px;margin:0 auto;padding:0 24px}
nav{position:sticky;top:0;z-index:1;background:#fff;border-bottom:1px solid var(--line)}
nav a{display:inline-block;padding:9px 14px 9px 0;color:var(--soft);text-decoration:none}
nav a:hover{color:var(--blue)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:14px;
 margin:22px 0 6px}
.figures div{background:#fff;border:1px solid var(--line);border-radius:8px;padding:12px 16px}
.figures b{display:block;font-size:24px;font-weight:600;line-height:1.25}
.figures span{color:var(--soft);font-size:13px}
section{background:#fff;border:1px solid var(--line);border-radius:8px;padding:18px 24px 22px;
 margin:18px 0;scroll-margin-top:48px}
h2{margin:0 0 10px;font-size:19px}h3{margin:18px 0 6px;font-size:15px}
p{margin:6px 0}.soft{color:var(--soft)}.bad{color:var(--red)}
table{border-collapse:collapse;width:100%;font-size:14px}
th{color:var(--soft);font-weight:500;text-align:left}
th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.rows{white-space:nowrap}td.bar{width:160px}td.bar i{display:block;height:9px;margin-top:6px;border-radius:2px;
 background:var(--blue);min-width:1px}
img{display:block;max-width:100%;height:auto;margin:10px auto}
code,pre{font:12.5px/1.45 ui-monospace,"DejaVu Sans Mono",monospace}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0}
td code{overflow-wrap:anywhere}
summary{cursor:pointer;color:var(--soft)}
.stars{display:grid;grid-template-columns:repeat(auto-fill,minmax(500px,1fr));gap:16px}
figure{margin:0;border:1px solid var(--line);border-radius:8px;padding:12px 14px;
 scroll-margin-top:56px;min-width:0}
figure:target{border-color:var(--blue);box-shadow:0 0 0 2px #0072b233}
figcaption{font-size:13px}figcaption b{font-size:14px}
figcaption .p{display:inline-block;margin-right:14px;white-space:nowrap}
svg{display:block;width:100%;height:auto}
.posterior{display:grid;grid-template-columns:repeat(auto-fill,minmax(460px,1fr));gap:16px}
a{color:var(--blue)}footer{color:var(--soft);font-size:13px;padding:8px 0 30px}
@media(max-width:640px){.stars,.posterior{grid-template-columns:1fr}}
@media print{nav{display:none}section,figure{break-inside:avoid}}
"""


def escape(value):
    return html.escape("\n".join(map(printable, str(value).split("\n"))), quote=True)


def number(value, digits=3):
    """HTML: with so many significant digits, thousands apart; an en dash where there is none."""
    if value is None or not np.isfinite(value):
        return "–"
    if isinstance(value, float) and abs(value) >= 1e6:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa}·10<sup>{int(exponent)}</sup>".replace("-", "−")
    if float(value) == int(value):
        return f"{int(value):,}".replace(",", "\u202f").replace("-", "−")
    words = f"{value:.{digits}g}"
    if "e" in words or abs(value) >= 10**digits:
        words = f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 1 else words
    return words.replace("-", "−")


def full(key, value):
    """The attributes of a number that programs read."""
    return f'data-key="{escape(key)}" data-value="{getattr(value, "item", lambda: value)()!r}"'


def cell(key, value, words=None):
    return f'<td class="n" {full(key, value)}>{words or number(value)}</td>'


def table(head, rows):
    """head: texts, those of numbers with a leading #; rows: whole cells."""
    heads = "".join(f'<th class="n">{escape(h[1:])}</th>' if h.startswith("#")
                    else f"<th>{escape(h)}</th>" for h in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def td(value):
    return f"<td>{escape(value)}</td>"


def image(data, alt):
    """A PNG inside the page."""
    if data is None:
        return ""
    width = int.from_bytes(data[16:20], "big") * 2 // 3  # drawn at 150 dots, shown at 100
    return (f'<img alt="{escape(alt)}" width="{width}" src="data:image/png;base64,'
            f'{base64.b64encode(data).decode()}">')


# --- the spectrum of a star ---


def polyline(x, y, colour, width):
    """Lines through what is finite."""
    path, pen = [], "M"
    for a, b in zip(x, y):
        if np.isfinite(b):
            path.append(f"{pen}{a:.1f} {b:.1f}")
            pen = "L"
        else:
            pen = "M"
    return f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def runs(flags):
    """(first, last) of each run of what is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(int), [0]))))
    return zip(edges[::2], edges[1::2] - 1)


def star_svg(arms):
    """Spectrum, model and residuals in units of the error, a few pixels averaged."""
    low, high = arms[0].wave[0], max(a.wave[-1] for a in arms)
    n_pix = sum(len(a.wave) for a in arms)
    n = max(1, n_pix // N_BIN)
    parts, drawn = [], []
    for arm in arms:
        model = np.full(len(arm.wave), np.nan) if arm.model is None else arm.model
        flux = np.where(arm.ivar > 0, arm.flux, 0.0)
        drawn.append(binned(arm.wave, flux, arm.ivar, model, n))

    def at_x(wave):
        return (np.asarray(wave) - low) / (high - low) * WIDTH

    seen = np.concatenate([np.concatenate((f[w > 0], m[w > 0])) for _, f, w, m in drawn])
    seen = seen[np.isfinite(seen)]
    bottom, top = np.percentile(seen, [0.3, 99.7]) if len(seen) else (0.0, 1.0)
    margin = 0.08 * (top - bottom) or 1.0
    bottom, top = bottom - margin, top + margin
    middle = HIGH + GAP + LOW / 2
    for arm in arms:
        for a, b in runs(arm.bad):
            x, end = at_x(arm.wave[[a, b]])
            if end - x > 1:
                parts.append(f'<rect x="{x:.1f}" y="0" width="{end - x:.1f}" '
                             f'height="{HIGH + GAP + LOW}" fill="#f6e7c8"/>')
    step = next(s for s in (20, 50, 100, 200, 500, 1000, 2000, 5000, 1e9) if (high - low) / s < 9)
    for tick in np.arange(np.ceil(low / step) * step, high, step):
        x = float(at_x(tick))
        parts.append(f'<path d="M{x:.1f} {HIGH + GAP + LOW}v4" stroke="#8c8c8c"/>')
        if 14 < x < WIDTH - 14:
            parts.append(f'<text x="{x:.1f}" y="{HIGH + GAP + LOW + 15}">{tick:.0f}</text>')
    parts.append(f'<path d="M0 {middle}h{WIDTH}" stroke="#d55e00" stroke-width=".7"/>')
    for wave, flux, weight, model in drawn:
        x = at_x(wave)
        # where nothing was fitted a continuum may go anywhere
        known, model = (np.where(weight > 0, v, np.nan) for v in (flux, model))
        y, y_model = ((top - v) / (top - bottom) * HIGH for v in (known, model))
        parts.append(polyline(x, np.clip(y, 0, HIGH), "#8c8c8c", 1.2))
        parts.append(polyline(x, np.where((y_model < 0) | (y_model > HIGH), np.nan, y_model),
                              "#d55e00", 0.9))
        residual = np.clip((known - model) * np.sqrt(weight), -MAX_RESIDUAL, MAX_RESIDUAL)
        parts.append(polyline(x, middle - residual / MAX_RESIDUAL * LOW / 2, "#0072b2", 0.7))
    return (f'<svg viewBox="0 0 {WIDTH} {HIGH + GAP + LOW + FOOT}" font-size="10" fill="#5f6b7a" '
            f'text-anchor="middle" role="img" aria-label="spectrum">{"".join(parts)}</svg>')


def whole(title, subtitle, figures, sections, footer):
    """figures: (key, value, its HTML, label); sections: (anchor, name, HTML)."""
    boxes = "".join(f'<div><b {full(k, v)}>{w}</b>'
                    f"<span>{escape(label)}</span></div>" for k, v, w, label in figures)
    links = "".join(f'<a href="#{a}">{escape(n)}</a>' for a, n, _ in sections)
    body = "".join(f'<section id="{a}"><h2>{escape(n)}</h2>{t}</section>' for a, n, t in sections)
    return (f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{escape(title)}</title><style>{CSS}</style></head><body>"
            f'<header><div class="wide"><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></div>'
            f'</header><nav><div class="wide">{links}</div></nav><div class="wide">'
            f'<div class="figures">{boxes}</div>{body}<footer>{escape(footer)}</footer>'
            f"</div></body></html>")
