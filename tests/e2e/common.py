# SPDX-License-Identifier: BSD-3-Clause
"""Shared by end-to-end tests with test data: paths, libraries, cut inputs.  Includes all of
base.py.  A script that imports this skips as a whole (exit 77) if the test data are missing."""

import gzip

from base import *  # noqa: F403

for _folder in ("emulator", "sim", "real/desi"):
    if not os.path.isdir(os.path.join(DATA, _folder)):
        skip(f"no test data at {os.path.join(DATA, _folder)} (set STARMILL_TEST_DATA)")

ARMS = ("B", "R", "Z")
HDUS = ("WAVELENGTH", "FLUX", "IVAR", "MASK", "RESOLUTION")


def data(name):
    return os.path.join(DATA, name)


@functools.cache
def library(kind="nnrm"):
    """The library imported from the emulators of the test data: its path."""
    # few guess templates: the tests' stars are clean, and importing is quicker
    return shared(f"{kind}.h5", "import", "--guess-templates", 20, inputs=[
        data(f"emulator/{kind}_desi_{arm}.h5") for arm in "brz"])


def unpacked(name):
    """Path of a test file unpacked, one copy for all scripts of a build."""
    folder, packed = os.environ.get("MILL_TEST_SHARED") or TMP, data(name)
    key = hashlib.sha256(repr((packed, os.stat(packed).st_mtime_ns)).encode()).hexdigest()
    path = os.path.join(folder, key[:16] + ".fits")
    os.makedirs(folder, exist_ok=True)
    with open(path + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            with gzip.open(packed) as whole, open(path + ".tmp", "wb") as out:
                shutil.copyfileobj(whole, out, 1 << 20)
            os.rename(path + ".tmp", path)
    return path


@functools.cache
def source(name):
    """All HDUs of a packed test file; changes in memory do not reach the file."""
    with pyfits.open(unpacked(name), memmap=True) as hdus:
        return [(h.name, h.header.copy(), h.data) for h in hdus]


def cut(out, rows, edit=None, name="sim/coadd-dev.fits.gz"):
    """Write some rows of a DESI file to out (below the temporary folder); return the path.
    edit(hdus) may change the dictionary {HDU name: HDU} before it is written."""
    path = tmp(out)
    rows = np.asarray(rows)
    hdus = {}
    for hdu_name, header, table in source(name):
        if table is None:
            hdus[hdu_name] = pyfits.PrimaryHDU(header=header)
        elif table.dtype.names:
            hdus[hdu_name] = pyfits.BinTableHDU(table[rows], name=hdu_name)
        elif hdu_name.endswith("_WAVELENGTH"):
            hdus[hdu_name] = pyfits.ImageHDU(table.copy(), name=hdu_name)
        else:
            hdus[hdu_name] = pyfits.ImageHDU(table[rows], name=hdu_name)
    if edit:
        edit(hdus)
    pyfits.HDUList(list(hdus.values())).writeto(path, overwrite=True)
    return path


def without(*names):
    """Return an edit for cut() that removes HDUs."""
    return lambda hdus: [hdus.pop(name) for name in names]


def as_spectra(hdus):
    """For cut(): turn a coadd into a spectra file. Each row is an exposure, EXPID 11, 12 ..."""
    fibermap = hdus["FIBERMAP"]
    columns = [pyfits.Column("EXPID", "J", array=np.arange(11, 11 + len(fibermap.data)))]
    columns += [c for c in fibermap.columns if c.name != "COADD_FIBERSTATUS"]
    columns += [pyfits.Column("FIBERSTATUS", "J", array=fibermap.data["COADD_FIBERSTATUS"])]
    hdus["FIBERMAP"] = pyfits.BinTableHDU.from_columns(columns, name="FIBERMAP")
    hdus.pop("EXP_FIBERMAP")
    hdus.pop("SCORES")


def few_hdus(path, n):
    with pyfits.open(path) as hdus:
        pyfits.HDUList([h.copy() for h in hdus[:n]]).writeto(tmp(f"few{n}.fits"))
    return tmp(f"few{n}.fits")


def compress_masks(hdus):
    """For cut(): the masks of arm r in compressed tiles, one a row."""
    hdus["R_MASK"] = pyfits.CompImageHDU(hdus["R_MASK"].data, name="R_MASK",
                                         compression_type="GZIP_1")


def damage_tiles(path, rows):
    """Damage the tiles of these rows: the file can be indexed, but the rows cannot be unpacked."""
    with pyfits.open(path, disable_image_compression=True) as hdus:
        header, start = hdus["R_MASK"].header, hdus["R_MASK"].fileinfo()["datLoc"]
    assert header["TTYPE1"] == "COMPRESSED_DATA" and header["TFORM1"].startswith("1P")
    heap = start + header.get("THEAP", header["NAXIS1"] * header["NAXIS2"])
    with open(path, "r+b") as f:
        for row in rows:
            f.seek(start + row * header["NAXIS1"])  # length and place of the tile
            size, offset = np.frombuffer(f.read(8), ">i4")
            f.seek(heap + int(offset))
            f.write(b"\xff" * int(size))


class EndToEnd(ProgramTest):
    """Fits take the library of the test data unless lib names another."""

    def fit(self, out, *args, lib=None, **how):
        return super().fit(out, *args, lib=lib or library(), **how)
