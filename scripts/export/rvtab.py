# SPDX-License-Identifier: BSD-3-Clause
"""rvtab of an input, as rvspecfit writes it: RVTAB, and rows of the tables of a DESI input."""

import collections
import contextlib

import numpy as np
from astropy.io import fits as pyfits

from basics import INPUT, OUTPUT, Failure
from export import table
from look.result import text

PIECE = 4 << 20  # bytes of a table that are copied at once
ALONE = "export with --no-fibermap"

# Columns of RVTAB in rvspecfit's order, then those that only starmill has: (name, FITS type, column
# of /catalog, None: that of /fits of this name).  {arm} and {label}: one after the other for each.
RVTAB = (
    *((name, "D", None) for name in (
        "VRAD", "VRAD_ERR", "VRAD_SKEW", "VRAD_KURT", "VSINI", "LOGG", "LOGG_ERR", "TEFF",
        "TEFF_ERR", "FEH", "FEH_ERR", "ALPHAFE", "ALPHAFE_ERR", "CHISQ_TOT", "CHISQ_C_TOT")),
    ("NPIX_TOT", "K", None), (("CHISQ_{arm}", "CHISQ_C_{arm}"), "D", None),
    ("VRAD_CCF", "D", None), ("RVS_WARN", "K", None), ("FIBER", "J", "FIBER"),
    ("REF_ID", "K", "REF_ID"), ("REF_CAT", "A", "REF_CAT"), ("TARGET_RA", "D", "TARGET_RA"),
    ("TARGET_DEC", "D", "TARGET_DEC"), ("TARGETID", "K", None), ("EXPID", "J", "EXPID"),
    (("SN_{arm}",), "E", None), ("SUCCESS", "L", None), ("RR_Z", "D", "Z"),
    ("RR_SPECTYPE", "A", "SPECTYPE"), ("RR_SUBTYPE", "A", "SUBTYPE"),
    (("{label}", "{label}_ERR"), "D", None), ("VSINI_ERR", "D", None), ("M2LL", "D", None),
    ("VRAD_GOOD", "L", None), ("FIT_INFO", "J", None), ("STATUS", "J", None),
    ("OBJECT", "A", "OBJECT"), ("TILEID", "J", "TILEID"), ("NIGHT", "J", "NIGHT"))


def columns(result):
    found = {}
    for names, form, source in RVTAB:
        if isinstance(names, str):
            names = [names]
        elif "{arm}" in names[0]:
            names = [n.format(arm=arm) for arm in result.arms for n in names]
        else:
            names = [n.format(label=label) for label in result.parameters if label not in found
                     for n in names]
        for name in names:
            dataset = result.catalog[source] if source else result.fits.get(name)
            found[name] = table.column(name, dataset, form)
    return list(found.values())


# --- the input -------------------------------------------------------------------------------

# spectra of an input that are exported: rows [n] of the result, of the input's FIBERMAP (None: some
# are of other inputs), their targets, and rows of /catalog/exposures and of the models
Carried = collections.namedtuple("Carried", "row input target exposure")


def span(result, i):
    """The first row of input i, and the row after its last one."""
    start, n = (int(result.catalog["files"][name][i]) for name in ("ROW_START", "N_ROW"))
    if not 0 <= start <= start + n <= result.n_row:
        raise Failure(OUTPUT, f"{result.path} is damaged: it lacks rows of {result.files[i]}")
    return start, start + n


def carried(result, i, whole, by_exposure):
    """The first exposure of each row of input i that is whole, or all exposures."""
    start, stop = span(result, i)
    row = start + np.flatnonzero(whole)
    first, n, number, target = (result.catalog[name][start:stop][whole] for name in (
        "FIRST_EXPOSURE", "N_EXPOSURE", "FITS_ROW", "TARGETID"))
    files = result.catalog["exposures/FILE"]
    if (n < 0).any() or (first < 0).any() or (first + n > len(files)).any() \
            or (first[1:] < (first + n)[:-1]).any():
        raise Failure(OUTPUT, f"{result.path} is damaged: FIRST_EXPOSURE of rows of "
                              f"{result.files[i]}")
    if not by_exposure:
        return Carried(row, number, target, first)
    exposure = np.repeat(first - np.cumsum(n) + n, n) + np.arange(n.sum())
    low, high = (exposure[0], exposure[-1] + 1) if len(exposure) else (0, 0)
    is_joined = (files[low:high][exposure - low] != i).any()
    number = result.catalog["exposures/FITS_ROW"][low:high][exposure - low]
    return Carried(np.repeat(row, n), None if is_joined else number, np.repeat(target, n), exposure)


@contextlib.contextmanager
def reading(path):
    """What goes wrong with an input costs its own products."""
    try:
        yield
    except (OSError, KeyError, ValueError, IndexError, TypeError, AttributeError,
            pyfits.VerifyError) as error:
        raise Failure(INPUT, f"{path} cannot be read: {error}") from error


@contextlib.contextmanager
def opened(result, i, spectra):
    """The DESI file that input i is, with the targets that were fitted; None: it is of another
    format, or has no FIBERMAP."""
    if text(result.catalog["files/FORMAT"][i]) != "desi":
        yield None
        return
    try:
        path = result.unchanged_input(i)
    except Failure as failure:
        raise Failure(INPUT, f"{failure}, or {ALONE}") from failure
    if spectra.input is None:
        raise Failure(INPUT, f"{path}: some of its rows have exposures of other inputs "
                             f"(join_by_name), and FIBERMAPs are not joined: {ALONE}")
    with reading(path):
        file = pyfits.open(path)
    with file:
        with reading(path):
            has_map = "FIBERMAP" in file
            here = raw(file["FIBERMAP"])["TARGETID"] if has_map else spectra.target
        if has_map:
            check_targets(path, here, spectra)
        yield file if has_map else None


def check_targets(path, here, spectra):
    """Are the fitted targets those of the rows of FIBERMAP?"""
    for row, target in zip(spectra.input.tolist(), spectra.target.tolist()):
        if not 0 <= row < len(here) or here[row] != target:
            raise Failure(INPUT, f"{path}: row {row} of FIBERMAP is not target {target}, which was "
                                 f"fitted there: the file has changed; fit it again, or {ALONE}")


def raw(hdu):
    """Rows of a table as FITS has them, without a conversion of values."""
    rows = hdu.data.view(np.ndarray)
    if rows.dtype.itemsize != hdu.header["NAXIS1"]:
        raise ValueError(f"{hdu.name}: its columns and the width of its rows differ")
    return rows


def copy_rows(product, file, name, rows):
    """Rows of a table, by number, as a new HDU with the input's header."""
    path, hdu = file.filename(), file[name]
    with reading(path):
        data, header = raw(hdu), hdu.header.copy()
        if any(c.format.format in "PQ" for c in hdu.columns):
            raise Failure(INPUT, f"{path}: a column of {name} has values of variable length, which "
                                 f"cannot be copied: {ALONE}")
    for key in ("CHECKSUM", "DATASUM", "THEAP"):
        header.remove(key, ignore_missing=True)
    header["NAXIS2"], header["PCOUNT"] = len(rows), 0
    n = max(1, PIECE // max(1, data.dtype.itemsize))
    product.append(header, (data[rows[at:at + n]].tobytes() for at in range(0, len(rows), n)))


def copy_tables(product, file, spectra):
    """The tables of an input with a row for each of FIBERMAP, and the exposures of its targets."""
    with reading(file.filename()):
        tables = {hdu.name: len(raw(hdu)) for hdu in file if isinstance(hdu, pyfits.BinTableHDU)
                  and hdu.name in ("FIBERMAP", "SCORES", "GAIA", "EXP_FIBERMAP")}
        exposures = raw(file["EXP_FIBERMAP"])["TARGETID"] if "EXP_FIBERMAP" in tables else None
    for name in ("FIBERMAP", "SCORES", "GAIA"):
        if tables.get(name) == tables["FIBERMAP"]:
            copy_rows(product, file, name, spectra.input)
    if exposures is not None:
        copy_rows(product, file, "EXP_FIBERMAP",
                  np.flatnonzero(np.isin(exposures, spectra.target)))


def write(product, result, start, whole, file, spectra):
    table.write(product, columns(result), "RVTAB", result, start, whole)
    if file is not None:
        copy_tables(product, file, spectra)
