# SPDX-License-Identifier: BSD-3-Clause
"""Writes rows of a result, with units, UCDs and meanings of flags, as FITS, VOTable, CSV, Parquet
or a HATS catalogue.  Rows are written in pieces: memory does not grow with the survey."""

import base64
import collections
import contextlib
import csv
import importlib.resources
import os
import re
import shutil
import tempfile
import types
from hashlib import sha256
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from astropy.io import fits as pyfits

from starmill.cli.basics import (INTERNAL, OUTPUT, USAGE, Failure, as_failure, need, replacing,
                                 temporary_name, warn, writing)
from starmill.cli.running import OutputLock
from starmill.interchange import known_unit
from starmill.products.result import NO_SN, TRUTHS, text
from starmill.products.sky import has_place, healpix

BLOCK, LONGEST = 2880, 4095  # bytes of a FITS block; of a keyword's text
# source: dataset of the result (None: all values are missing); text: what its indices stand for
Column = collections.namedtuple("Column", "name form n unit words ucd source text", defaults=[None])

FORM = {"f8": "D", "i8": "K", "i4": "J", "u4": "K", "u1": "I"}  # FITS letter of signed values
TYPE = {"D": ">f8", "K": ">i8", "J": ">i4", "I": ">i2", "E": ">f4", "B": "u1", "L": "u1"}
FIRST = ("TARGETID", "IDENTIFIER", "OBJECT", "TARGET_RA", "TARGET_DEC")
# [(pattern of column names, UCD1+)], the first that matches counts
UCDS = [(re.compile(line.split()[0]), line.split()[1]) for line in importlib.resources.files(
    __package__).joinpath("ucds.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"]
VOTABLE = {"D": "double", "K": "long", "J": "int", "I": "short", "L": "boolean", "A": "char"}
GROUP_BYTES = 64 << 20  # bytes of a row group of Parquet
PIXEL = Column("_healpix_29", "K", 1, "", "nested HEALPix pixel of TARGET_RA and TARGET_DEC, order "
               "29; -1 without a position", "pos.healpix", None)
END = "</TABLE></RESOURCE></VOTABLE>\n"
ASCII = bytes(range(32, 127))


def printable(values):
    """Return texts as FITS allows them: %XX for forbidden bytes, blanks as padding.  A text that
    %XX makes too long for the column is cut, and ends with a digest of the whole text."""
    n = values.dtype.itemsize
    codes = np.ascontiguousarray(values).view("u1").reshape(-1, n)
    codes = np.where(np.logical_and.accumulate(codes != 0, axis=1), codes, np.uint8(ord(" ")))
    texts = codes.view(values.dtype)[:, 0]
    for i in np.flatnonzero(((codes < 32) | (codes > 126)).any(axis=1)):
        one, digest = quote(texts[i].rstrip(), ASCII), sha256(texts[i]).hexdigest()
        texts[i] = one.ljust(n) if len(one) <= n else f"{one[:n - 9]}~{digest:.8}"
    return texts


def words(one, is_path=False):
    """Return a text as a keyword's value; ', which astropy may take for its end, becomes %27 in a
    path, else "."""
    raw = one if isinstance(one, bytes) else one.encode("utf-8", "surrogateescape")
    text = quote(raw if is_path else raw.replace(b"'", b'"'), ASCII.replace(b"'", b""))
    return text if len(text) <= LONGEST else text[:LONGEST - 3] + "..."


def ones_sum(total, piece, at=0):
    """Add a piece, which begins at byte `at` of the data, to the ones' complement sum DATASUM."""
    padded = bytes(at % 4) + piece + bytes(-(at + len(piece)) % 4)
    total += int(np.frombuffer(padded, ">u4").sum(dtype=np.uint64))
    return (total - 1) % 0xffffffff + 1 if total else 0


def encoded(value):
    """Return 32 bits as the 16 letters and digits of CHECKSUM (FITS standard, appendix J)."""
    columns = []
    for byte in value.to_bytes(4, "big"):  # four codes with the sum 4 x 48 ("0") + byte
        codes = [48 + byte // 4 + (byte % 4 if i == 0 else 0) for i in range(4)]
        for i in (0, 2):  # no punctuation
            while any(57 < c < 65 or 90 < c < 97 for c in codes[i:i + 2]):
                codes[i] += 1
                codes[i + 1] -= 1
        columns.append(codes)
    text = "".join(chr(columns[byte][i]) for i in range(4) for byte in range(4))
    return text[-1] + text[:-1]


def head(kind, *axes, bitpix=8):
    """Return an HDU's header.  kind: "IMAGE", "BINTABLE", "" for the first; axes: fastest first."""
    header = pyfits.Header()
    header["XTENSION" if kind else "SIMPLE"] = kind or True
    header["BITPIX"], header["NAXIS"] = bitpix, len(axes)
    for i, axis in enumerate(axes):
        header[f"NAXIS{i + 1}"] = axis
    header.update({"PCOUNT": 0, "GCOUNT": 1} if kind else {"EXTEND": True})
    return header


@contextlib.contextmanager
def writing_product(path):
    """Yield a Product, which is renamed to path when it is complete.  Raise a Failure if path
    cannot be written, or if another export is writing it."""
    path = os.path.realpath(path)
    with OutputLock(path) as lock, replacing(path) as temporary:
        product = Product(path, open(temporary, "r+b"), lock)
        try:
            yield product
            with writing(path):
                product.file.flush()
                os.fsync(product.file.fileno())
        finally:
            with contextlib.suppress(OSError):  # a full disk, already reported
                product.file.close()


class Product:
    def __init__(self, path, file, lock):
        self.path, self.file, self.lock = path, file, lock

    def append(self, header, pieces=()):
        """Append an HDU with its checksums; pieces: bytes of its data."""
        data = n = 0
        header["DATASUM"], header["CHECKSUM"] = "0" * 10, "0" * 16
        start = self.write(header.tostring().encode("ascii"))
        for piece in pieces:
            self.write(piece)
            data, n = ones_sum(data, piece, n), n + len(piece)
        self.write(bytes(-n % BLOCK))
        header["DATASUM"] = str(data)
        header["CHECKSUM"] = encoded(0xffffffff - ones_sum(data, header.tostring().encode("ascii")))
        with writing(self.path):
            self.file.seek(start)
            self.file.write(header.tostring().encode("ascii"))
            self.file.seek(0, os.SEEK_END)

    def write(self, piece):
        """Write bytes and return where they start in the file."""
        self.lock.keep()
        with writing(self.path):
            at = self.file.tell()
            self.file.write(piece)
        return at


def is_done(path, kind, result, overwrite):
    """Return the header of the file at path if it is this export, not older than the result, with
    all rows.  Return None if the export may be written to path, else raise a Failure."""
    is_file = os.path.isfile(path)
    if not os.path.lexists(path) or (overwrite and is_file and os.path.getsize(path) == 0):
        return None
    try:
        header = pyfits.getheader(path) if is_file else {}
        exported, run = header["EXPORTED"], header["RUNID"]
    except (OSError, KeyError, ValueError, IndexError, TypeError, pyfits.VerifyError) as error:
        raise Failure(OUTPUT, f"{path}: exists and is not an export of starmill, so --overwrite "
                      "does not replace it: give another name, or remove it yourself") from error
    if overwrite:
        return None
    need((exported, run) == (kind, result.provenance["RUN_ID"]), OUTPUT,
         f"{path}: exists and is the export of another result, or another export of this one: "
         "give another name or --overwrite")
    is_older = os.stat(path).st_mtime_ns < os.stat(result.path).st_mtime_ns
    return None if is_older or "LEFTOUT" in header else header


def ucd_of(name, unit=""):
    """Return the UCD of a column.  A column in dex without an entry is an abundance."""
    pattern, ucd = next((p, ucd) for p, ucd in UCDS if p.fullmatch(name))
    if ucd == "stat.error":
        of = ucd_of(pattern.fullmatch(name)[1], unit).split(";")[0]
        return ucd if of.startswith("stat.") else f"{ucd};{of}"
    return "phys.abund" if (ucd, unit) == ("stat.fit.param", "dex") else ucd


def column(name, source, form=None):
    """Return the Column of a dataset.  form: FITS type; None: that of the dataset."""
    if source is None:
        return Column(name, form or "D", 1, "", "the library has no such label", ucd_of(name), None)
    unit, meaning = (text(source.attrs.get(key, b"")) for key in ("unit", "description"))
    of = unit, meaning, ucd_of(name, unit), source
    if source.dtype.kind == "S":
        return Column(name, "A", source.dtype.itemsize, *of)
    natural = FORM.get(source.dtype.str[1:])
    need(natural, OUTPUT, f"{source.file.filename} is damaged: {source.name} has a type that no "
         "column of a result has")
    return Column(name, form or natural, int(np.prod(source.shape[1:])), *of)


def whole(result):
    """Return all columns of /fits and of /catalog, identifiers first, and FRAME."""
    fits, catalog = (result.names(group) for group in (result.fits, result.catalog))
    found = {name: result.fits[name] for name in fits}
    # a label may have the name of a catalogue column
    found |= {"CATALOG_" * (name in fits) + name: result.catalog[name]
              for name in catalog if name != "TARGETID"}
    frame = Column("FRAME", "A", result.frames.itemsize, "", "frame of VRAD, the input's",
                   "pos.frame", result.catalog["FILE"], result.frames)
    return [column(name, found[name], "L" if name in TRUTHS else None)
            for name in sorted(found, key=lambda n: FIRST.index(n) if n in FIRST else len(FIRST))
            ] + [frame]


def row_type(columns):
    return np.dtype([(c.name, f"S{c.n}" if c.form == "A" else TYPE[c.form],
                      () if c.form == "A" or c.n == 1 else (c.n,)) for c in columns])


def packed(columns, values, n, texts=printable):
    """Return n rows as FITS stores them, missing values as NaN.  values(source): a column's values
    [n] or [n][n_value].  texts(values): makes texts ASCII; None: texts stay UTF-8."""
    rows = np.empty(n, row_type(columns))
    for c in columns:
        if c.source is None:
            rows[c.name] = np.nan
            continue
        value = values(c.source) if c.text is None else c.text[values(c.source)]
        if c.form == "A":
            value = texts(value) if n and texts else value
        elif c.form == "L":
            value = np.where(value, ord("T"), ord("F"))
        elif c.form in "DE":
            value = np.where(value == NO_SN, np.nan, value)
        rows[c.name] = value.reshape(rows[c.name].shape)
    return rows


def native(column, rows):
    """Return a column of packed rows as text, booleans or numbers in native byte order."""
    values = rows[column.name]
    if column.form == "A":
        return np.char.decode(values, "utf-8", "backslashreplace").astype(str)  # float64 if empty
    if column.form == "L":
        return values == ord("T")
    return values.astype(values.dtype.newbyteorder("="))


def header(columns, name, n):
    found = head("BINTABLE", row_type(columns).itemsize, int(n))
    found["TFIELDS"], found["EXTNAME"], found["LONGSTRN"] = len(columns), name, "OGIP 1.0"
    for i, c in enumerate(columns, 1):
        unit, meaning = known_unit(c.unit, c.words)
        found[f"TTYPE{i}"], found[f"TFORM{i}"] = c.name, f"{c.n}{c.form}"
        if unit:
            found[f"TUNIT{i}"] = words(unit.replace("km/s", "km s-1"))  # as in rvspecfit
        found[f"TUCD{i}"], found[f"TCOMM{i}"] = c.ucd, words(meaning)
    return found


def write(product, columns, name, result, start, whole):
    """Append rows of a result, as rows() yields them, as an HDU."""
    some = rows(result, columns, whole, printable, start)
    product.append(described(columns, name, result, whole.sum()), (r.tobytes() for r in some))


def meanings(result):
    """Return {keyword: (value, comment)}: the parameters' order, the names of bits and codes."""
    found = {"PARORDER": (" ".join(result.parameters), "order of parameters in a covariance")}
    for prefix, of in (("WARN", result.warnings), ("INFO", result.infos),
                       ("POST", result.posteriors), ("FLAG", result.flags)):
        for bit, (word, _) in of.items():
            found[f"{prefix}{bit.bit_length() - 1:02d}"] = word, f"bit of value {bit}"
    for prefix, of in (("STATUS", result.statuses), ("BACKEN", result.backends),
                       ("LIBRAR", result.libraries)):
        found |= {f"{prefix}{code:02d}": (of[code][0], f"code {code}") for code in of}
    return found


def calibrated(columns, result):
    """Return the columns; the descriptions of calibrated columns say so."""
    return [c._replace(words=f"{c.words}; calibrated by repeats")
            if c.source is not None and c.source.name in result.calibration else c for c in columns]


def described(columns, name, result, n):
    """Return the header of n rows, with the names of flags and codes."""
    found = header(calibrated(columns, result), name, n)
    for key, (value, comment) in meanings(result).items():
        found[key] = words(value), comment
    return found


def write_files(product, result):
    """Append the table of inputs, numbered as in the column FILE."""
    files, names = result.catalog["files"], ("PATH", "FORMAT", "FRAME", "REDROCK", "ERROR")
    columns = [column(name, files[name]) for name in names]
    columns, n = [c._replace(n=3 * c.n) for c in columns], len(result.files)  # room for %XX
    product.append(header(columns, "FILES", n), [packed(
        columns, lambda source: source[...].astype(f"S{3 * source.dtype.itemsize}"), n).tobytes()])


def rows(result, columns, whole, texts, start=0):
    """Yield packed rows of a result in blocks.  whole: mask of undamaged rows from `start` on."""
    for block in result.blocks(start, whole):
        yield packed(columns, block.of, len(block.rows), texts)


def votable_head(columns, facts, n):
    """Return the text of a VOTable of n rows up to its data.  facts: [(name, text)] for INFO."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>',
             '<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">', "<RESOURCE>"]
    lines += [f"<INFO name={quoteattr(name)} value={quoteattr(value)}/>" for name, value in facts]
    lines.append(f'<TABLE name="STARMILL" nrows="{n}">')
    for c in columns:
        unit, meaning = known_unit(c.unit, c.words)
        size = f' arraysize="{c.n}"' if c.form == "A" or c.n > 1 else ""
        unit = f" unit={quoteattr(unit)}" if unit else ""
        lines.append(f'<FIELD name={quoteattr(c.name)} datatype="{VOTABLE[c.form]}"{size}{unit} '
                     f'ucd="{c.ucd}"><DESCRIPTION>{escape(meaning)}</DESCRIPTION></FIELD>')
    return "\n".join([*lines, ""])


def votable(product, columns, result, whole, facts):
    """Write a VOTable.  Its binary rows are FITS rows, with texts padded by zeros."""
    product.write((votable_head(columns, facts, whole.sum())
                   + '<DATA><BINARY><STREAM encoding="base64">\n').encode())
    rest = b""
    for some in rows(result, columns, whole, lambda texts: np.char.rstrip(printable(texts))):
        rest += some.tobytes()
        n = len(rest) // 3 * 3
        product.write(base64.b64encode(rest[:n]) + b"\n")
        rest = rest[n:]
    product.write(base64.b64encode(rest) + f"\n</STREAM></BINARY></DATA>{END}".encode())


def comma_separated(product, columns, result, whole, _):
    """Write columns of one value as CSV, missing values as empty fields."""
    vectors = [c.name for c in columns if c.n > 1 and c.form != "A"]
    if vectors:
        warn(f"CSV takes no columns of several values, so leaves out {', '.join(vectors)}")
    columns = [c for c in columns if c.name not in vectors]
    to = types.SimpleNamespace(write=lambda line: product.write(line.encode()))
    lines = csv.writer(to, lineterminator="\n")
    lines.writerow([c.name for c in columns])
    for some in rows(result, columns, whole, None):
        lines.writerows(zip(*(
            np.where(np.isnan(v), None, v.astype(object)).tolist() if v.dtype.kind == "f"
            else v.tolist() for v in (native(c, some) for c in columns))))


def parquet(product, columns, result, whole, facts):
    """Write the rows sorted by HEALPix pixel, with the VOTable's metadata (VOParquet 1.0).  An
    unnamed file next to the output holds the unsorted rows."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter
    all_columns = [PIXEL, *columns]
    kinds = {"K": pa.int64(), "J": pa.int32(), "I": pa.int16(), "D": pa.float64(), "L": pa.bool_(),
             "A": pa.string()}
    fields = []
    for c in all_columns:
        kind = kinds[c.form] if c.n == 1 or c.form == "A" else pa.list_(kinds[c.form], c.n)
        unit, meaning = known_unit(c.unit, c.words)
        fields.append(pa.field(c.name, kind, metadata={
            "unit": unit, "ucd": c.ucd, "description": meaning}))
    schema = pa.schema(fields, {
        **{f"table::len::{c.name}": str(c.n) for c in columns if c.form == "A"},  # astropy reads it
        "IVOA.VOTable-Parquet.version": "1.0",
        "IVOA.VOTable-Parquet.content": votable_head(all_columns, facts, whole.sum()) + END})
    kind, pixel = row_type(columns), [np.empty(0, np.int64)]
    folder = os.path.dirname(product.path)
    with writing(product.path), tempfile.TemporaryFile(dir=folder) as waiting:
        for some in rows(result, columns, whole, None):
            waiting.write(some.tobytes())
            pixel.append(healpix(some["TARGET_RA"].astype(float), some["TARGET_DEC"].astype(float)))
            product.lock.keep()
        waiting.flush()
        pixel = np.concatenate(pixel)
        order = np.argsort(pixel, kind="stable")
        stored = np.memmap(waiting, kind, "r") if len(order) else np.empty(0, kind)
        with ParquetWriter(product.file, schema) as file:
            step = max(1, GROUP_BYTES // kind.itemsize)
            for at in (order[i:i + step] for i in range(0, len(order), step)):
                some = stored[at]
                arrays = [pa.array(pixel[at])]
                for c in columns:
                    values = native(c, some)
                    array = pa.array(values.ravel())
                    arrays.append(array if values.ndim == 1 else
                                  pa.FixedSizeListArray.from_arrays(array, c.n))
                file.write_table(pa.Table.from_arrays(arrays, schema=schema))
                product.lock.keep()


def hats(path, columns, result, whole, facts):
    """Make a HATS catalogue of the rows with positions, by hats-import from a Parquet file.  Return
    the number of rows without a position."""
    from dask.distributed import Client
    from hats_import.catalog.arguments import ImportArguments
    from hats_import.pipeline import pipeline_with_client
    has = has_place(*(result.column(name)[:] for name in ("TARGET_RA", "TARGET_DEC")))
    n_without = int((whole & ~has).sum())
    if n_without:
        warn(f"rows without a position are left out of the catalogue: {n_without}")
    need((whole & has).any(), USAGE, f"{result.path}: no row has a position, which HATS needs")
    path = os.path.realpath(path)
    name, place = os.path.basename(path), temporary_name(path)
    with writing(path), OutputLock(path), contextlib.ExitStack() as stack:
        os.mkdir(place)
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        source = os.path.join(place, "table.parquet")
        with writing_product(source) as product:
            parquet(product, columns, result, whole & has, facts)
        with Client(processes=False, dashboard_address=None, local_directory=place) as client, \
                as_failure(INTERNAL, f"{path}: hats-import says", ValueError, RuntimeError):
            pipeline_with_client(ImportArguments(
                output_path=place, output_artifact_name=name, input_file_list=[source],
                file_reader="parquet", use_healpix_29=True, add_healpix_29=False,
                ra_column="TARGET_RA", dec_column="TARGET_DEC", simple_progress_bar=True), client)
        os.rename(os.path.join(place, name), path)
    return n_without


WRITE = {"votable": votable, "csv": comma_separated, "parquet": parquet}
NEEDS = {"parquet": ("pyarrow",), "hats": ("pyarrow", "hats_import")}
