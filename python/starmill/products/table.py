# SPDX-License-Identifier: BSD-3-Clause
"""Rows of a result as a FITS table: columns, units, and the meanings of flags."""

import collections

import numpy as np

from starmill.cli.basics import OUTPUT, Failure
from starmill.products.product import head, printable, words
from starmill.products.result import text

# source: dataset of the result; None: all values are missing
Column = collections.namedtuple("Column", "name form n unit words source")

FORM = {"f8": "D", "i8": "K", "i4": "J", "u4": "J", "u1": "B"}  # FITS letter that keeps the type
TYPE = {"D": ">f8", "K": ">i8", "J": ">i4", "E": ">f4", "B": "u1", "L": "u1"}


def is_fits_unit(unit):
    """Return whether FITS knows the unit; programs complain about logarithms and words."""
    return unit != "dex" and not unit.startswith("log(") and "parameter" not in unit


def column(name, source, form=None):
    """Describe a column.  form: letter of its FITS type; None: the one that keeps its values."""
    if source is None:
        return Column(name, form or "D", 1, "", "the library has no such label", None)
    unit, meaning = (text(source.attrs.get(key, b"")) for key in ("unit", "description"))
    if not is_fits_unit(unit):
        unit, meaning = "", f"{meaning}; unit: {unit}"
    unit = unit.replace("km/s", "km s-1") if unit == "km/s" else unit  # as in rvspecfit
    if source.dtype.kind == "S":
        return Column(name, "A", source.dtype.itemsize, unit, meaning, source)
    natural = FORM.get(source.dtype.str[1:])
    if not natural:
        raise Failure(OUTPUT, f"{source.file.filename} is damaged: {source.name} has a type that "
                              "no column of a result has")
    return Column(name, form or natural, int(np.prod(source.shape[1:])), unit, meaning, source)


def whole(result):
    """Return all columns of /fits, then those of /catalog except TARGETID."""
    names = result.names(result.fits)
    columns = [column(name, result.fits[name]) for name in names]
    for name in result.names(result.catalog):
        if name != "TARGETID":  # a label may have the name of a catalogue column
            columns.append(column("CATALOG_" * (name in names) + name, result.catalog[name]))
    return columns


def row_type(columns):
    return np.dtype([(c.name, f"S{c.n}" if c.form == "A" else TYPE[c.form],
                      () if c.form == "A" or c.n == 1 else (c.n,)) for c in columns])


def packed(columns, values, n):
    """Return n rows in FITS's bytes; values(source): a column's values [n] or [n][n_value]."""
    rows = np.empty(n, row_type(columns))
    for c in columns:
        if c.source is None:
            rows[c.name] = np.nan
            continue
        value = values(c.source)
        if c.form == "A":
            value = printable(value) if n else value
        elif c.form == "L":
            value = np.where(value, ord("T"), ord("F"))
        elif value.dtype == np.uint32:
            value = (value ^ np.uint32(1 << 31)).view(np.int32)  # shifted by TZERO
        rows[c.name] = value.reshape(rows[c.name].shape)
    return rows.tobytes()


def header(columns, name, n):
    found = head("BINTABLE", row_type(columns).itemsize, int(n))
    found["TFIELDS"] = len(columns)
    for i, c in enumerate(columns, 1):
        found[f"TTYPE{i}"], found[f"TFORM{i}"] = c.name, f"{c.n}{c.form}"
        if c.unit:
            found[f"TUNIT{i}"] = words(c.unit)
        if c.source is not None and c.source.dtype == np.uint32:
            found[f"TZERO{i}"] = 1 << 31
    found["EXTNAME"], found["LONGSTRN"] = name, "OGIP 1.0"
    for i, c in enumerate(columns, 1):
        found[f"TCOMM{i}"] = words(c.words)
    return found


def write(product, columns, name, result, start, whole):
    """Append the rows of a result from start on that are whole [n], as an HDU."""
    product.append(described(columns, name, result, whole.sum()),
                   (packed(columns, block.of, len(block.rows))
                    for block in result.blocks(start, whole)))


def described(columns, name, result, n):
    """The header of n rows, with the meanings of flags."""
    found = header(columns, name, n)
    found["PARORDER"] = (words(" ".join(result.parameters)), "order of parameters in a covariance")
    for i, c in enumerate(columns, 1):
        if c.source is not None and c.source.name in result.calibration:
            found[f"TCOMM{i}"] = words(f"{c.words}; calibrated by repeats")
    for prefix, meanings in (("WARN", result.warnings), ("INFO", result.infos)):
        for bit, (word, _) in meanings.items():
            found[f"{prefix}{bit.bit_length() - 1:02d}"] = (words(word), f"bit of value {bit}")
    for code, (word, _) in result.statuses.items():
        found[f"STATUS{code:02d}"] = (words(word), f"code {code}")
    for code, (word, _) in result.libraries.items():
        found[f"LIBRAR{code:02d}"] = (words(word), f"library {code}")
    return found


def write_files(product, result):
    """Append the table of inputs, numbered as in the column FILE."""
    files, names = result.catalog["files"], ("PATH", "FORMAT", "FRAME", "REDROCK", "ERROR")
    columns = [column(name, files[name]) for name in names]
    n = len(result.files)
    product.append(header(columns, "FILES", n), [packed(columns, lambda source: source[...], n)])
