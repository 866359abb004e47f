# SPDX-License-Identifier: BSD-3-Clause
"""`starmill export --to rvtab`: write rvspecfit's table RVTAB for an input, and copy the tables
FIBERMAP, SCORES, GAIA and EXP_FIBERMAP of a DESI file.  `--to rvmod`: write rvspecfit's images of
models.  `--to epochs`: write RVTAB with a row per exposure."""

import collections
import contextlib

import numpy as np
from astropy.io import fits as pyfits

from starmill.cli.basics import INPUT, OUTPUT, Failure, as_failure, need
from starmill.products import table
from starmill.products.result import taken, text
from starmill.products.table import head, words

# columns that EPOCHS lacks: they describe the star's one velocity
OF_STAR = ("VRAD_SKEW", "VRAD_KURT", "VRAD_CCF", "NIGHT")
OF_EXPOSURE = ("VRAD", "VRAD_ERR", "VRAD_2", "VRAD_2_ERR", "EXPID", "MJD", "SN", "EPOCH",
               "EPOCH_FLAG", "FILE", "FITS_ROW")
PIECE = 4 << 20  # bytes of a table copied at once
ALONE = "export with --no-fibermap"

# Columns of RVTAB in rvspecfit's order, then starmill's own: (name, FITS type, column of /catalog,
# or None for the column of /fits with this name).  {arm}, {label}: a column for each arm or label.
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
    ("CHISQ_DATA", "D", None), ("VRAD_GOOD", "L", None), ("FIT_INFO", "J", None),
    ("STATUS", "J", None), ("LIBRARY", "B", None),
    ("OBJECT", "A", "OBJECT"), ("TILEID", "J", "TILEID"), ("NIGHT", "J", "NIGHT"))


def columns(result):
    """Return the Columns of RVTAB, then flags of elements and columns of a second star."""
    found = {}
    for names, form, source in RVTAB:
        if names == "LIBRARY" and not result.has(names):
            continue
        names = [names] if isinstance(names, str) else names
        of = result.arms if "{arm}" in names[0] else \
            [p for p in result.parameters if p not in found] if "{label}" in names[0] else [""]
        for name in [n.format(arm=one, label=one) for one in of for n in names]:
            dataset = result.catalog[source] if source else result.fits.get(name)
            found[name] = table.column(name, dataset, form)
    for name in filter(result.has, (f"{label}_FLAG" for label in result.parameters)):  # elements
        found[name] = table.column(name, result.fits[name], "J")
    for name in result.checked if result.has("SB2") else ():  # all columns of the second star
        if name.startswith(("SB2", "FLUX_RATIO_")) or name.endswith(("_2", "_2_ERR")):
            found[name] = table.column(name, result.fits[name], "L" if name == "SB2" else None)
    return list(found.values())


# Spectra of an input to export: row of the result; row of the input's FIBERMAP (input is None if
# some of the spectra are in other files); TARGETID; index in /catalog/exposures.
Carried = collections.namedtuple("Carried", "row input target exposure")


def span(result, i):
    """Return the first row of input i and the row after its last."""
    start, n = (int(result.catalog["files"][name][i]) for name in ("ROW_START", "N_ROW"))
    need(0 <= start <= start + n <= result.n_row, OUTPUT,
         f"{result.path} is damaged: it lacks rows of {result.files[i]}; fit again")
    return start, start + n


def carried(result, i, whole, by_exposure):
    """Return the spectra to export of input i, as Carried, for the rows of the mask `whole`: each
    row's first exposure or, with by_exposure, all its exposures."""
    row = span(result, i)[0] + np.flatnonzero(whole)
    first, number, target = (taken(result.catalog[name], row) for name in (
        "FIRST_EXPOSURE", "FITS_ROW", "TARGETID"))
    exposure, place = result.exposures_of(row)
    need(not (np.diff(exposure) <= 0).any(), OUTPUT,
         f"{result.path} is damaged: a wrong FIRST_EXPOSURE in a row of {result.files[i]}")
    if not by_exposure:
        return Carried(row, number, target, first)
    at = result.exposure_values(exposure, ("FILE", "FITS_ROW"))
    number = None if (at["FILE"] != i).any() else at["FITS_ROW"]
    return Carried(row[place], number, target[place], exposure)


def reading(path):
    """Turn an error of an input into a Failure of INPUT: export goes on without its product."""
    return as_failure(INPUT, f"{path} cannot be read", OSError, KeyError, ValueError, IndexError,
                      TypeError, AttributeError, AssertionError, pyfits.VerifyError)


@contextlib.contextmanager
def opened(result, i, spectra):
    """Open input i, a DESI file, and check its targets; yield None without a FIBERMAP."""
    if text(result.catalog["files/FORMAT"][i]) != "desi":
        yield None
        return
    with as_failure(INPUT, "", Failure, advice=f", or {ALONE}"):
        path = result.unchanged_input(i)
    need(spectra.input is not None, INPUT, f"{path}: with join_by_name a row has exposures of "
         f"several files, and FIBERMAPs of several files cannot be joined: {ALONE}")
    with reading(path):
        file = pyfits.open(path)
    with file:
        with reading(path):
            has_map = "FIBERMAP" in file
            here = targets(file["FIBERMAP"]) if has_map else ()
        for row, target in zip(*map(list, (spectra.input, spectra.target))) if has_map else ():
            need(0 <= row < len(here) and here[row] == target, INPUT,
                 f"{path}: row {row} of FIBERMAP was target {target} when it was fitted, "
                 f"but is another now: the file has changed; fit it again, or {ALONE}")
        yield file if has_map else None


def raw(hdu):
    """Return rows of a table in FITS's bytes, values unconverted."""
    rows = hdu.data.view(np.ndarray)
    need(rows.dtype.itemsize == hdu.header["NAXIS1"], ValueError,
         f"{hdu.name}: its columns do not add up to the width of its rows")
    return rows


def targets(hdu):
    """Return TARGETID of a table, -1 where it is null."""
    values, null = raw(hdu)["TARGETID"], hdu.columns["TARGETID"].null
    return values if null is None else np.where(values == null, -1, values)


def copy_rows(product, file, name, rows):
    """Copy rows of a table, by number, to a new HDU with the input's header."""
    path, hdu = file.filename(), file[name]
    with reading(path):
        data, header = raw(hdu), hdu.header.copy()
        need(not any(c.format.format in "PQ" for c in hdu.columns), INPUT, f"{path}: a column of "
             f"{name} has values of variable length, which cannot be copied: {ALONE}")
    for key in ("CHECKSUM", "DATASUM", "THEAP"):
        header.remove(key, ignore_missing=True)
    header["NAXIS2"], header["PCOUNT"] = len(rows), 0
    n = max(1, PIECE // max(1, data.dtype.itemsize))
    product.append(header, (data[rows[at:at + n]].tobytes() for at in range(0, len(rows), n)))


def copy_tables(product, file, spectra):
    """Copy FIBERMAP, SCORES, GAIA and EXP_FIBERMAP, but only the rows of the spectra."""
    with reading(file.filename()):
        tables = {hdu.name: len(raw(hdu)) for hdu in file if isinstance(hdu, pyfits.BinTableHDU)
                  and hdu.name in ("FIBERMAP", "SCORES", "GAIA", "EXP_FIBERMAP")}
        exposures = targets(file["EXP_FIBERMAP"]) if "EXP_FIBERMAP" in tables else None
    for name in ("FIBERMAP", "SCORES", "GAIA"):
        if tables.get(name) == tables["FIBERMAP"]:
            copy_rows(product, file, name, spectra.input)
    if exposures is not None:
        copy_rows(product, file, "EXP_FIBERMAP", np.flatnonzero(np.isin(exposures, spectra.target)))


def write_epochs(product, result, whole):
    """Write all exposures: a row of RVTAB each, with its epoch's velocity; return their number."""
    exposures = result.catalog["exposures"]
    own = [table.column(name, result.epochs.get(name, exposures.get(name))) for name in OF_EXPOSURE]
    found = own + [c for c in columns(result) if c.name not in OF_STAR + OF_EXPOSURE]
    found += [table.column(name, result.fits[name])
              for name in ("N_EPOCH", "VRAD_CHI2", "VRAD_PVAL", "VRAD_RANGE")]
    n = len(result.exposures_of(np.flatnonzero(whole))[0])

    def rows():
        for block in result.blocks(0, whole):
            exposure, place = result.exposures_of(block.rows)
            values = result.exposure_values(exposure, OF_EXPOSURE)
            mine = {c.source.name: values[c.name] for c in own}
            yield table.packed(found, lambda source: mine[source.name] if source.name in mine
                               else block.of(source)[place], len(exposure)).tobytes()
    header, attrs = table.described(found, "EPOCHS", result, n), result.epochs["EPOCH_FLAG"].attrs
    for bit, name in zip(attrs["BITS"], attrs["NAMES"]):
        header[f"EPOCH{int(bit).bit_length() - 1:02d}"] = (words(text(name)), f"bit of value {bit}")
    product.append(header, rows())
    return n


def runs(rows, most):
    """Yield slices of consecutive rows, at most `most` each; rows ascend."""
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        for some in (run[at:at + most] for at in range(0, len(run), most)):
            yield slice(int(some[0]), int(some[-1]) + 1)


def image(product, name, dataset, kind, rows, **cards):
    """Append an image of these rows of a dataset; rows None: the dataset is a single row."""
    n_pix = dataset.shape[-1]
    axes = (n_pix,) if rows is None else (n_pix, len(rows))
    header = head("IMAGE", *axes, bitpix=-8 * np.dtype(kind).itemsize)
    header.update({"EXTNAME": name.upper(), **cards})
    most = max(1, PIECE // max(1, n_pix * np.dtype(kind).itemsize))
    slices = [...] if rows is None else runs(rows, most)
    product.append(header, (dataset[at].astype(kind).tobytes() for at in slices))


def write_models(product, models, file, spectra):
    """Write an input's models and FIBERMAP, else EXPOSURES.  spectra: one entry per exposure."""
    rows, n = spectra.exposure, len(spectra.exposure)
    for name, (wave, flux) in models.arms.items():
        # a single row gets one-dimensional wavelengths, as in rvspecfit
        own = wave.ndim == 2 and n != 1
        image(product, f"{name}_WAVELENGTH", wave if own or wave.ndim == 1 else wave[rows[0]],
              ">f8", rows if own else None, BUNIT=("Angstrom", "in vacuum"))
        image(product, f"{name}_MODEL", flux, ">f4", rows)
    if file is not None:
        copy_rows(product, file, "FIBERMAP", spectra.input)
        return
    result, others = models.result, models.result.catalog["exposures"]
    paths = np.append(result.catalog["files/PATH"][...], b"")  # of FILE -1, no input
    found = [table.column(name, others[name]) for name in ("FILE", "FITS_ROW", "EXPID", "MJD")]
    found[0] = found[0]._replace(form="A", n=paths.itemsize, words="path", text=paths)
    found += [table.column(name, result.column(name)) for name in table.FIRST[:3]]
    product.append(table.header(found, "EXPOSURES", n), [table.packed(
        found, lambda of: taken(of, rows if of.parent == others else spectra.row), n).tobytes()])
