# SPDX-License-Identifier: BSD-3-Clause
"""The HTML of a report: one page with embedded pictures, which needs no network."""

import base64
import html

import numpy as np

from starmill.cli.basics import printable

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
.posterior{display:grid;grid-template-columns:repeat(auto-fill,minmax(460px,1fr));gap:16px}
a{color:var(--blue)}footer{color:var(--soft);font-size:13px;padding:8px 0 30px}
@media(max-width:640px){.stars,.posterior{grid-template-columns:1fr}}
@media print{nav{display:none}section,figure{break-inside:avoid}}
"""


def escape(value):
    return html.escape("\n".join(map(printable, str(value).split("\n"))), quote=True)


def number(value, digits=3):
    """Format a number for HTML: significant digits, separated thousands, an en dash if missing."""
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
    """Return HTML attributes with key and full value of a number, for programs."""
    return f'data-key="{escape(key)}" data-value="{getattr(value, "item", lambda: value)()!r}"'


def cell(key, value, words=None):
    return f'<td class="n" {full(key, value)}>{words or number(value)}</td>'


def table(head, rows):
    """Return an HTML table.  head: titles, a leading # marks numbers; rows: lists of cells."""
    heads = "".join(f'<th class="n">{escape(h[1:])}</th>' if h.startswith("#")
                    else f"<th>{escape(h)}</th>" for h in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def td(value):
    return f"<td>{escape(value)}</td>"


def image(data, alt):
    """Return the HTML of an embedded PNG."""
    if data is None:
        return ""
    width = int.from_bytes(data[16:20], "big") * 2 // 3  # drawn at 150 dots, shown at 100
    return (f'<img alt="{escape(alt)}" width="{width}" src="data:image/png;base64,'
            f'{base64.b64encode(data).decode()}">')


def whole(title, subtitle, figures, sections, footer):
    """Return the page.  figures: [(key, value, HTML, label)]; sections: [(anchor, name, HTML)]."""
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
