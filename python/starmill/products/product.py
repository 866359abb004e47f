# SPDX-License-Identifier: BSD-3-Clause
"""A FITS file made by an export: HDUs are appended in pieces, so that memory does not grow with the
survey.  It has a temporary name until it is complete."""

import contextlib
import os

import numpy as np
from astropy.io import fits as pyfits

from starmill.cli.basics import OUTPUT, Failure, replacing, writing
from starmill.cli.lock import OutputLock

BLOCK, LONGEST = 2880, 4095  # bytes of a FITS block; of a keyword's text


def printable(values):
    """Return bytes [n] as FITS texts: '?' for characters FITS forbids, blanks as padding."""
    values = np.ascontiguousarray(values)
    codes = values.view(np.uint8).reshape(len(values), -1)
    used = np.logical_and.accumulate(codes != 0, axis=1)
    codes = np.where((codes < 32) | (codes > 126), ord("?"), codes)
    return np.where(used, codes, ord(" ")).astype(np.uint8).view(f"S{codes.shape[1]}")[:, 0]


def words(text):
    """Return a text as the value of a keyword."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    text = printable(np.array([raw or b" "]))[0].decode()
    if len(text) > LONGEST:
        text = text[:LONGEST - 3] + "..."
    return text.replace("'", '"')  # astropy ends a value at a quote before a blank


def ones_sum(total, piece, at=0):
    """Add a piece, which begins at byte `at`, to a ones' complement sum as in DATASUM."""
    padded = bytes(at % 4) + piece + bytes(-(at + len(piece)) % 4)
    total += int(np.frombuffer(padded, ">u4").sum(dtype=np.uint64))
    return (total - 1) % 0xffffffff + 1 if total else 0


def encoded(value):
    """Return 32 bits as the 16 letters and digits of CHECKSUM (FITS standard, appendix J)."""
    columns = []
    for byte in value.to_bytes(4, "big"):
        codes = [48 + byte // 4 + (byte % 4 if i == 0 else 0) for i in range(4)]
        for i in (0, 2):
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
    if kind:
        header["PCOUNT"], header["GCOUNT"] = 0, 1
    else:
        header["EXTEND"] = True
    return header


@contextlib.contextmanager
def writing_product(path):
    """Yield a Product, renamed to path when complete; a symbolic link is kept.  Raise a Failure if
    path cannot be written, or another export is writing it."""
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
    """Return the header of the file at path if it is this export of this result and not older than
    the result, None if path may be written.  Raise a Failure if something else is there."""
    if not os.path.lexists(path):
        return None
    is_file = os.path.isfile(path)
    if is_file and os.path.getsize(path) == 0 and overwrite:
        return None
    try:
        header = pyfits.getheader(path) if is_file else {}
        exported, run = header["EXPORTED"], header["RUNID"]
    except (OSError, KeyError, ValueError, IndexError, TypeError, pyfits.VerifyError) as error:
        raise Failure(OUTPUT, f"{path}: exists and is not an export of starmill, so --overwrite "
                              "does not replace it: give another name, or remove it yourself"
                      ) from error
    if overwrite:
        return None
    if (exported, run) != (kind, result.provenance["RUN_ID"]):
        raise Failure(OUTPUT, f"{path}: exists and is the export of another result, or another "
                              "export of this one: give another name or --overwrite")
    is_older = os.stat(path).st_mtime_ns < os.stat(result.path).st_mtime_ns
    return None if is_older else header
