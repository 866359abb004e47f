# SPDX-License-Identifier: BSD-3-Clause
"""`starmill show`: print all values of stars in a result."""

import numpy as np

from starmill.cli.basics import printable
from starmill.interchange import symmetric
from starmill.products.result import NOT_DONE, Result, text

MAX_SHOWN = 24  # most values of a vector that are printed; a density has hundreds
INDENT = " " * 27


def words(value, name=""):
    if isinstance(value, np.floating):
        return f"{value:.{12 if name == 'MJD' else 9}g}"  # an MJD to 10 ms
    return printable(text(value))


def meanings(column, value):
    """Return the meanings of a code, or of the bits that are set; [] for other columns."""
    attrs = column.attrs
    key = next((k for k in ("BITS", "CODES") if k in attrs), None)
    if not key:
        return []
    is_bits, left, found = key == "BITS", int(value), []
    for code, name, meaning in zip(attrs[key], attrs["NAMES"], attrs["MEANINGS"]):
        if int(value) & int(code) if is_bits else int(value) == int(code):
            found.append(": ".join(w for w in (text(name), text(meaning)) if w))
            left &= ~int(code)
    return found + ([f"bits {left} of a newer starmill"] if is_bits and left else [])


def covariance(order, packed):
    """Return the lines of a matrix of variances, covariances and correlations."""
    whole = symmetric(packed, len(order))
    sigma = np.sqrt(np.diag(whole))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = whole / np.outer(sigma, sigma)
    lines = [" " * 10 + "  variances on the diagonal, covariances above, correlations below it",
             " " * 10 + "".join(f" {name:>12}" for name in order)]
    for i, name in enumerate(order):
        cells = [f" {whole[i, j]:12.5g}" if j >= i else f" {correlation[i, j]:12.3f}"
                 for j in range(len(order))]
        lines.append(f"{name:<10}" + "".join(cells))
    return lines


def vector(order, values):
    names = [f"{name} " for name in order] if len(values) == len(order) else [""] * len(values)
    more = len(values) > MAX_SHOWN and f" ... ({len(values)} values: read them from the file)"
    return INDENT + " ".join(n + words(v) for n, v in zip(names, values[:MAX_SHOWN])) + (more or "")


def show_column(result, name, column, row):
    value = column[row]
    unit, description = (text(column.attrs.get(k, "")) for k in ("unit", "description"))
    is_vector, is_covar = np.ndim(value) > 0, name in ("COVAR", "POST_COVAR")
    print(f"  {name:<22} {'' if is_vector else words(value):>15} {'' if is_covar else unit:<12}  "
          f"{printable(description)}")
    if is_covar:
        print("\n".join("  " + line for line in covariance(result.parameters, value)))
    elif is_vector:
        print(vector(result.parameters, value))
    for line in [] if is_vector else meanings(column, value):
        print(INDENT + printable(line))
    if name == "FILE" and 0 <= value < len(result.files):
        print(INDENT + printable(result.files[value]))


def show_epochs(result, row):
    """Print a line for each exposure and, below this line, the exposure's flags in words."""
    names = ("EXPID", "MJD", *(n for n in result.names(result.epochs) if not n.endswith("CRC")))
    print("\nepochs\n  " + " ".join(f"{name:>12}" for name in names))
    for exposure in result.exposure_values(result.exposures_of(np.array([row]))[0], names):
        print("  " + " ".join(f"{words(value, name):>12}" for name, value in zip(names, exposure)))
        for line in meanings(result.epochs["EPOCH_FLAG"], exposure["EPOCH_FLAG"]):
            print(INDENT + printable(line))


def show_row(result, row):
    print(f"{printable(result.path)}, row {row} of {result.n_row}")
    for title, group in (("catalog", result.catalog), ("fits", result.fits)):
        print(f"\n{title}")
        for name in result.names(group):
            show_column(result, name, group[name], row)
    if result.epochs is not None:
        show_epochs(result, row)
    if result.damaged(row, row + 1)[0]:
        print("\nThis row is damaged: its STATUS or CRC is wrong.")
    elif result.fits["STATUS"][row] == NOT_DONE:
        print("\nThis row is not fitted yet.")


def main(options):
    result = Result(options.arguments[0])
    for i, row in enumerate(result.find(options.arguments[1:])):
        print("\n" if i else "", end="")
        show_row(result, row)
