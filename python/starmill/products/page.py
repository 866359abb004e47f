# SPDX-License-Identifier: BSD-3-Clause
"""The HTML of a report: one page with embedded pictures, which needs no network."""

import base64
import html
import importlib.resources
import string

import numpy as np

from starmill.cli.basics import printable

PAGE = string.Template(importlib.resources.files(__package__).joinpath("page.html").read_text(
    encoding="utf-8"))


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
    return PAGE.substitute(title=escape(title), subtitle=escape(subtitle), links=links, boxes=boxes,
                           body=body, footer=escape(footer))
