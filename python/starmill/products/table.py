# SPDX-License-Identifier: BSD-3-Clause
"""Turns rows of a result into a table: columns, units, UCDs, meanings of flags."""

import collections
import importlib.resources
import re

import numpy as np

from starmill.cli.basics import OUTPUT, need
from starmill.interchange import known_unit
from starmill.products.product import head, printable, words
from starmill.products.result import NO_SN, text

# source: dataset of the result; None: all values are missing
Column = collections.namedtuple("Column", "name form n unit words ucd source")

FORM = {"f8": "D", "i8": "K", "i4": "J", "u4": "K", "u1": "I"}  # FITS letter of signed values
TYPE = {"D": ">f8", "K": ">i8", "J": ">i4", "I": ">i2", "E": ">f4", "B": "u1", "L": "u1"}
FIRST = ("TARGETID", "IDENTIFIER", "OBJECT", "TARGET_RA", "TARGET_DEC")
TRUTHS = ("SUCCESS", "VRAD_GOOD", "SB2", "PRIMARY")  # 1 or 0
# [(pattern of column names, UCD1+)], the first that matches counts
UCDS = [(re.compile(line.split()[0]), line.split()[1]) for line in importlib.resources.files(
    __package__).joinpath("ucds.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"]


def ucd_of(name, unit=""):
    """Return the UCD of a column.  A column in dex without an entry is an abundance."""
    pattern, ucd = next((p, ucd) for p, ucd in UCDS if p.fullmatch(name))
    if ucd == "stat.error":
        of = ucd_of(pattern.fullmatch(name)[1], unit).split(";")[0]
        return ucd if of.startswith("stat.") else f"{ucd};{of}"
    return "phys.abund" if (ucd, unit) == ("stat.fit.param", "dex") else ucd


def column(name, source, form=None):
    """Describe a column.  form: letter of its FITS type; None: the one that keeps its values."""
    if source is None:
        return Column(name, form or "D", 1, "", "the library has no such label", ucd_of(name),
                      None)
    unit, meaning = (text(source.attrs.get(key, b"")) for key in ("unit", "description"))
    of = unit, meaning, ucd_of(name, unit), source
    if source.dtype.kind == "S":
        return Column(name, "A", source.dtype.itemsize, *of)
    natural = FORM.get(source.dtype.str[1:])
    need(natural, OUTPUT, f"{source.file.filename} is damaged: {source.name} has a type that no "
         "column of a result has")
    return Column(name, form or natural, int(np.prod(source.shape[1:])), *of)


def whole(result):
    """Return all columns of /fits and of /catalog, identifiers first."""
    fits, catalog = (result.names(group) for group in (result.fits, result.catalog))
    found = {name: result.fits[name] for name in fits}
    for name in catalog:
        if name != "TARGETID":  # a label may have the name of a catalogue column
            found["CATALOG_" * (name in fits) + name] = result.catalog[name]
    return [column(name, found[name], "L" if name in TRUTHS else None)
            for name in sorted(found, key=lambda n: FIRST.index(n) if n in FIRST else len(FIRST))]


def row_type(columns):
    return np.dtype([(c.name, f"S{c.n}" if c.form == "A" else TYPE[c.form],
                      () if c.form == "A" or c.n == 1 else (c.n,)) for c in columns])


def packed(columns, values, n, texts=printable):
    """Return n rows as FITS stores them, missing values as NaN.  values(source) returns a column's
    values [n] or [n][n_value].  texts(values) makes texts ASCII; texts None: keep UTF-8."""
    rows = np.empty(n, row_type(columns))
    for c in columns:
        if c.source is None:
            rows[c.name] = np.nan
            continue
        value = values(c.source)
        if c.form == "A":
            value = texts(value) if n and texts else value
        elif c.form == "L":
            value = np.where(value, ord("T"), ord("F"))
        elif c.form in "DE":
            value = np.where(value == NO_SN, np.nan, value)
        rows[c.name] = value.reshape(rows[c.name].shape)
    return rows


def native(column, rows):
    """Return a column of packed rows as other programs take it."""
    values = rows[column.name]
    if column.form == "A":
        return np.char.decode(values, "utf-8", "replace")
    if column.form == "L":
        return values == ord("T")
    return values.astype(values.dtype.newbyteorder("="))


def header(columns, name, n):
    found = head("BINTABLE", row_type(columns).itemsize, int(n))
    found["TFIELDS"] = len(columns)
    said = [known_unit(c.unit, c.words) for c in columns]
    for i, c in enumerate(columns, 1):
        found[f"TTYPE{i}"], found[f"TFORM{i}"] = c.name, f"{c.n}{c.form}"
        unit = said[i - 1][0].replace("km/s", "km s-1")  # as in rvspecfit
        if unit:
            found[f"TUNIT{i}"] = words(unit)
        found[f"TUCD{i}"] = c.ucd
    found["EXTNAME"], found["LONGSTRN"] = name, "OGIP 1.0"
    for i, (_, meaning) in enumerate(said, 1):
        found[f"TCOMM{i}"] = words(meaning)
    return found


def write(product, columns, name, result, start, whole):
    """Append the undamaged rows (mask whole [n]) of a result from start on, as an HDU."""
    product.append(described(columns, name, result, whole.sum()),
                   (packed(columns, block.of, len(block.rows)).tobytes()
                    for block in result.blocks(start, whole)))


def meanings(result):
    """Return {keyword: (value, comment)} of the order of parameters, bits and codes."""
    found = {"PARORDER": (" ".join(result.parameters), "order of parameters in a covariance")}
    for prefix, of in (("WARN", result.warnings), ("INFO", result.infos)):
        for bit, (word, _) in of.items():
            found[f"{prefix}{bit.bit_length() - 1:02d}"] = word, f"bit of value {bit}"
    for code, (word, _) in result.statuses.items():
        found[f"STATUS{code:02d}"] = word, f"code {code}"
    for code, (word, _) in result.libraries.items():
        found[f"LIBRAR{code:02d}"] = word, f"library {code}"
    return found


def calibrated(columns, result):
    """Return columns that say where their values are calibrated."""
    return [c._replace(words=f"{c.words}; calibrated by repeats")
            if c.source is not None and c.source.name in result.calibration else c for c in columns]


def described(columns, name, result, n):
    """The header of n rows, with the meanings of flags."""
    found = header(calibrated(columns, result), name, n)
    for key, (value, comment) in meanings(result).items():
        found[key] = words(value), comment
    return found


def write_files(product, result):
    """Append the table of inputs, numbered as in the column FILE."""
    files, names = result.catalog["files"], ("PATH", "FORMAT", "FRAME", "REDROCK", "ERROR")
    columns = [column(name, files[name]) for name in names]
    n = len(result.files)
    product.append(header(columns, "FILES", n),
                   [packed(columns, lambda source: source[...], n).tobytes()])
