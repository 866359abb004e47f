# SPDX-License-Identifier: BSD-3-Clause
"""Checks the layout of a result when it is opened (docs/use/formats.md): all groups, columns and
texts exist and have the right type.  The CRC of a row checks its values."""

import h5py
import numpy as np

from starmill.cli.basics import need

ROWS, EXPOSURES, FILES = "rows", "exposures", "files"  # what each column of a group counts
GROUPS = {"fits": ROWS, "catalog": ROWS, "catalog/exposures": EXPOSURES, "catalog/files": FILES,
          "epochs": EXPOSURES}  # epochs is optional
NEEDED = {
    "fits": "TARGETID VRAD VRAD_ERR VSINI COVAR RVS_WARN FIT_INFO SUCCESS VRAD_GOOD CHISQ_TOT "
            "NPIX_TOT STATUS CRC",
    "catalog": "FILE FITS_ROW FIRST_EXPOSURE N_EXPOSURE TARGETID TARGET_RA TARGET_DEC OBJECT "
               "IDENTIFIER CATALOG_CRC",
    "catalog/exposures": "FILE FITS_ROW EXPID MJD",
    "catalog/files": "PATH SIZE MTIME FORMAT FRAME ERROR N_ROW ROW_START ROWS_HASH REDROCK",
    "epochs": "VRAD VRAD_ERR VRAD_2 VRAD_2_ERR SN EPOCH EPOCH_FLAG"}
TEXTS = set("REF_CAT SPECTYPE SUBTYPE SURVEY PROGRAM OBJECT IDENTIFIER PATH FORMAT FRAME ERROR "
            "REDROCK".split())
INTEGERS = set("FLAG STATUS RVS_WARN FIT_INFO SB2 TARGETID FILE FITS_ROW "
               "FIRST_EXPOSURE N_EXPOSURE N_ROW ROW_START SIZE ROWS_HASH EPOCH LIBRARY CRC "
               "CATALOG_CRC EPOCH_CRC BACKEND".split())
LISTS = {"STATUS": "CODES", "LIBRARY": "CODES", "RVS_WARN": "BITS", "FIT_INFO": "BITS",
         "FLAG": "BITS"}  # attributes with NAMES and MEANINGS; FLAG: of all columns NAME_FLAG
SAID = ("RUN_ID VERSION REVISION HOST FOLDER DEVICE LIBRARY_NAME LIBRARY_PATH LIBRARY_HASH COMMAND "
        "CONFIG IDENTITY FRAMES START_TIME END_TIME").split()
COUNTED = "N_RANK N_THREAD N_RUN WALL_S FINISHED UNMODELLED".split()


class Wrong(ValueError):
    """A damaged layout; the text follows "is damaged: "."""


def check_object(item):
    """Read attributes, type and fill value: HDF5 may crash, or h5py not know the type."""
    dict(item.attrs)
    if not all(isinstance(name, str) for name in (item.name, *item.attrs)):
        raise Wrong(f"a name in {item.parent.name!r} is no UTF-8")
    if not isinstance(item, h5py.Dataset):
        return
    kind, plist = item.id.get_type(), item.id.get_create_plist()
    is_text = isinstance(kind, h5py.h5t.TypeStringID)
    n_byte = kind.get_size() * item.size
    if item.dtype.kind not in "fiuS" or (is_text and kind.is_variable_str()) or \
            (not is_text and kind != h5py.h5t.py_create(item.dtype)) or \
            (not item.chunks and item.id.get_storage_size() not in (0, n_byte)):
        raise Wrong(f"the type of {item.name[1:]}")
    plist.get_fill_value(np.empty(1, item.dtype))


def check_columns(file, name, n):
    """Check the columns of a group and return their length; n: expected rows, None: any."""
    group = file.get(name)
    need(isinstance(group, h5py.Group), Wrong, f"it has no group {name}")
    for column in NEEDED[name].split():
        if not isinstance(group.get(column), h5py.Dataset):
            raise Wrong(f"it has no column {column} in {name}")
    for key, column in group.items():
        if not isinstance(column, h5py.Dataset):
            continue
        kind = "FLAG" if key.endswith("_FLAG") else key
        kinds = "S" if key in TEXTS else "iu" if kind in INTEGERS else "fiu"
        is_vector = key == "COVAR" or (key.startswith("POST_") and column.ndim == 2)
        if column.dtype.kind not in kinds or column.ndim != 1 + is_vector:
            raise Wrong(f"{name}/{key} is no such column of a result")
        n = len(column) if n is None else n
        need(len(column) == n, Wrong, f"{name}/{key} has {len(column)} rows, not {n}")
        if name in ("fits", "epochs") and kind in LISTS:
            check_list(column, LISTS[kind])
    return n


def check_list(column, key):
    code, names, meanings = (np.asarray(column.attrs.get(a, 0)) for a in (key, "NAMES", "MEANINGS"))
    if code.dtype.kind not in "iu" or code.ndim != 1 or not len(code) or \
            {names.shape, meanings.shape} != {code.shape}:
        raise Wrong(f"{key}, NAMES and MEANINGS of {column.name[1:]}")


def check_vectors(fits):
    """Check ORDER (parameters of COVAR), and that vectors have one or more values per parameter."""
    order = np.asarray(fits["COVAR"].attrs.get("ORDER", 0))
    names = order.tolist() if order.ndim == 1 and order.dtype.kind == "S" else []
    need(names and all(name in fits for name in names), Wrong, "ORDER of fits/COVAR")
    n = len(names)
    for key, column in fits.items():
        width = column.shape[1] if isinstance(column, h5py.Dataset) and column.ndim == 2 else n
        if key.endswith("COVAR"):
            width = n if width == n * (n + 1) // 2 else 0
        if key != "POST_MODE_WEIGHT" and (width < n or width % n):
            raise Wrong(f"fits/{key} has vectors of {width} numbers")


def text(value):
    """Return HDF5's bytes as str; bytes that are not UTF-8 become surrogates."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def provenance(file):
    """Return {name: text or number} of /provenance."""
    group = file.get("provenance")
    need(isinstance(group, h5py.Group), Wrong, "it has no group provenance")
    said = {key: text(value) if isinstance(value, bytes) else value
            for key, value in group.attrs.items()}
    for key, item in group.items():
        value = np.ravel(item[()])[:1].tolist() if isinstance(item, h5py.Dataset) else []
        first = value[0] if value else None
        said[key] = text(first) if isinstance(first, bytes) else first
    for key in SAID:
        need(isinstance(said.get(key), str), Wrong, f"provenance/{key} is no text")
    for key in COUNTED:
        try:
            float(said[key])
            int(said["N_RANK"]), int(said["N_THREAD"])
        except (KeyError, TypeError, ValueError) as error:
            raise Wrong(f"provenance/{key} is no number") from error
    return said


def check(file):
    """Return the number of rows; raise Wrong where the file lacks what every result has."""
    count = {}
    for name, unit in GROUPS.items():
        if name != "epochs" or name in file:
            count[unit] = check_columns(file, name, count.get(unit))
    for table, key in (("fits", "CRC"), ("catalog", "CATALOG_CRC")):
        names = file[table][key].attrs.get("COLUMNS")
        for name in names.decode("utf-8", "replace").split() if isinstance(names, bytes) else [""]:
            if not name or not isinstance(file[table].get(name), h5py.Dataset):
                raise Wrong(f"it has no column {name}" if name else f"COLUMNS of {table}/{key}")
    check_vectors(file["fits"])
    return count[ROWS]
