# SPDX-License-Identifier: BSD-3-Clause
"""Writes all columns as VOTable, CSV, Parquet or a HATS catalogue, in bounded memory."""

import base64
import contextlib
import csv
import os
import shutil
import tempfile
import types
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from starmill.cli.basics import INTERNAL, USAGE, as_failure, need, temporary_name, warn, writing
from starmill.cli.running import OutputLock
from starmill.interchange import known_unit
from starmill.products import table
from starmill.products.sky import has_place, healpix
from starmill.products.table import printable, writing_product

VOTABLE = {"D": "double", "K": "long", "J": "int", "I": "short", "L": "boolean", "A": "char"}
GROUP_BYTES = 64 << 20  # bytes of a row group of Parquet
PIXEL = table.Column("_healpix_29", "K", 1, "", "nested HEALPix pixel of TARGET_RA and TARGET_DEC, "
                     "order 29; -1 without a position", "pos.healpix", None)
END = "</TABLE></RESOURCE></VOTABLE>\n"


def rows(result, columns, whole, texts):
    """Yield packed rows, block by block."""
    for block in result.blocks(0, whole):
        yield table.packed(columns, block.of, len(block.rows), texts)


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
        warn(f"CSV has no columns of several values: without {', '.join(vectors)}")
    columns = [c for c in columns if c.name not in vectors]
    to = types.SimpleNamespace(write=lambda line: product.write(line.encode()))
    lines = csv.writer(to, lineterminator="\n")
    lines.writerow([c.name for c in columns])
    for some in rows(result, columns, whole, None):
        values = [table.native(c, some) for c in columns]
        lines.writerows(zip(*(
            np.where(np.isnan(v), None, v.astype(object)).tolist() if v.dtype.kind == "f"
            else v.tolist() for v in values)))


def parquet(product, columns, result, whole, facts):
    """Write the rows sorted by HEALPix pixel, with the VOTable's metadata (VOParquet 1.0).  An
    unnamed file next to the output holds the rows until they are sorted."""
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
    kind, pixel = table.row_type(columns), [np.empty(0, np.int64)]
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
                    values = table.native(c, some)
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
