# SPDX-License-Identifier: BSD-3-Clause
"""Reads results of `starmill fit` or `sample` (docs/use/formats.md).  Opening a result checks that
all groups, columns and texts exist and have the right type; CRCs check the values of rows."""

import ast
import os
import re
import shlex
import time
import zlib

import h5py
import numpy as np

from starmill.cli.basics import INPUT, OUTPUT, USAGE, Failure, as_failure, need, warn

FORMAT, VERSION = "starmill result", 4
NOT_DONE, FITTED = 0, 1  # STATUS
VSINI_UNRESOLVED = 1  # bit of FIT_INFO: no rotation detected; shown as < VSINI + VSINI_ERR
PRIOR = 1024  # bit of FIT_INFO: the row has priors from prior_table
BLOCK, BLOCK_BYTES = 16384, 16 << 20  # limits of one read: rows; bytes, roughly
# columns of /epochs whose bytes EPOCH_CRC checks
EPOCH = ("VRAD", "VRAD_ERR", "VRAD_2", "VRAD_2_ERR", "SN", "EPOCH", "EPOCH_FLAG")
TRUTHS = ("SUCCESS", "VRAD_GOOD", "SB2", "PRIMARY")  # columns of 1 and 0
NO_SN = -1e9  # S/N of an arm without a good pixel
N_NAMED = 10  # most damaged rows that a warning names

ROWS, EXPOSURES, FILES = "rows", "exposures", "files"  # what one row of a group is
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
LISTS = {"STATUS": "CODES", "LIBRARY": "CODES", "BACKEND": "CODES", "RVS_WARN": "BITS",
         "FIT_INFO": "BITS", "FLAG": "BITS"}  # {column: attribute}; FLAG: any column *_FLAG
SAID = ("RUN_ID VERSION REVISION HOST FOLDER DEVICE LIBRARY_NAME LIBRARY_PATH LIBRARY_HASH COMMAND "
        "CONFIG IDENTITY FRAMES START_TIME END_TIME").split()
COUNTED = "N_RANK N_THREAD N_RUN WALL_S FINISHED UNMODELLED".split()
# {column: (symbol in a picture, decimals)}
SYMBOL = {"VRAD": ("velocity", 2), "VSINI": ("$v\\,\\sin i$", 1), "TEFF": ("$T_{\\rm eff}$", 0),
          "LOGG": ("$\\log g$", 2), "FEH": ("[Fe/H]", 2), "ALPHAFE": ("[$\\alpha$/Fe]", 2)}
PLAIN = {"VRAD": "velocity", "VSINI": "v sin i", "TEFF": "Teff", "LOGG": "log g", "FEH": "[Fe/H]",
         "ALPHAFE": "[α/Fe]"}


def symbol(name):
    return SYMBOL.get(name, (plain(name), 3))[0]


def plain(name):
    return PLAIN.get(name, re.sub(
        "^([A-Z])([A-Z]?)FE$", lambda of: f"[{of[1]}{of[2].lower()}/Fe]", name))


def number(value, digits):
    """Format a number with a real minus sign; an en dash if it is missing."""
    return f"{value:.{digits}f}".replace("-", "−") if np.isfinite(value) else "–"


def star_names(targets, objects, identifiers):
    """Return the names of rows' stars for --object-file: TARGETID, else OBJECT, else IDENTIFIER.
    An OBJECT that begins with # or a blank is not used: the file's lines cannot begin so."""
    return [str(target) if target != -1
            else text(own) if name[:1] in (b"", b"#", b" ") else text(name)
            for target, name, own in zip(targets, objects, identifiers)]


def with_targets(targets, objects):
    """Return the TARGETIDs of rows.  A row without one takes the only TARGETID of its OBJECT."""
    name = np.unique(objects, return_inverse=True)[1]
    known = (targets != -1) & (objects != objects.dtype.type())
    only = np.full(len(name), -1)  # TARGETID of each OBJECT; -1 if none or several
    only[name[known]] = targets[known]
    only[name[known & (only[name] != targets)]] = -1
    return np.where(targets == -1, only[name], targets)


def taken(column, rows):
    """Return a dataset's values in these rows; reads all between the first and the last."""
    low, high = (rows.min(), rows.max() + 1) if len(rows) else (0, 0)
    return column[low:high][rows - low]


class Wrong(ValueError):
    """A damaged layout; the text follows "is damaged: "."""


def check_object(item):
    """Check that attributes, type and fill value of a group or dataset can be read."""
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
        raise Wrong(f"{item.name[1:]} has a type that cannot be read")
    plist.get_fill_value(np.empty(1, item.dtype))


def check_columns(file, name, n):
    """Check the columns of a group and return their length; n: expected rows, None: any."""
    group = file.get(name)
    need(isinstance(group, h5py.Group), Wrong, f"it has no group {name}")
    for column in NEEDED[name].split():
        need(isinstance(group.get(column), h5py.Dataset), Wrong, f"{name} has no column {column}")
    for key, column in group.items():
        if not isinstance(column, h5py.Dataset):
            continue
        kind = "FLAG" if key.endswith("_FLAG") else key
        kinds = "S" if key in TEXTS else "iu" if kind in INTEGERS else "fiu"
        is_vector = key == "COVAR" or (key.startswith("POST_") and column.ndim == 2)
        need(column.dtype.kind in kinds and column.ndim == 1 + is_vector, Wrong,
             f"{name}/{key} has {column.ndim} dimensions, expected {1 + is_vector}, and numpy's "
             f"dtype.kind {column.dtype.kind}, expected {' or '.join(kinds)}")
        n = len(column) if n is None else n
        need(len(column) == n, Wrong, f"{name}/{key} has {len(column)} rows, not {n}")
        if name in ("fits", "epochs") and kind in LISTS:
            of = LISTS[kind], "NAMES", "MEANINGS"
            code, names, meanings = (np.asarray(column.attrs.get(a, 0)) for a in of)
            need(code.dtype.kind in "iu" and code.ndim == 1 and len(code)
                 and code.shape == names.shape == meanings.shape, Wrong,
                 f"{name}/{key} has no lists {of[0]}, NAMES and MEANINGS of one length")
    return n


def check_vectors(fits):
    """Check that ORDER names COVAR's parameters, and that vectors have a value for each of them."""
    order = np.asarray(fits["COVAR"].attrs.get("ORDER", 0))
    names = order.tolist() if order.ndim == 1 and order.dtype.kind == "S" else []
    need(names and all(name in fits for name in names), Wrong, "fits/COVAR has no ORDER of columns")
    n = len(names)
    for key, column in fits.items():
        width = column.shape[1] if isinstance(column, h5py.Dataset) and column.ndim == 2 else n
        if key.endswith("COVAR"):
            width = n if width == n * (n + 1) // 2 else 0
        need(key == "POST_MODE_WEIGHT" or (width >= n and width % n == 0), Wrong,
             f"fits/{key} has vectors that do not fit {n} parameters")


def text(value):
    """Return HDF5's bytes as str; bytes that are not UTF-8 become surrogates."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def provenance(file):
    """Return {name: text or number} of /provenance."""
    group = file.get("provenance")
    need(isinstance(group, h5py.Group), Wrong, "it has no group provenance")
    said = dict(group.attrs)
    for key, item in group.items():
        one = np.ravel(item[()])[:1].tolist() if isinstance(item, h5py.Dataset) else []
        said[key] = one[0] if one else None
    said = {key: text(value) if isinstance(value, bytes) else value for key, value in said.items()}
    for key in SAID:
        need(isinstance(said.get(key), str), Wrong, f"provenance/{key} is no text")
    for key in COUNTED:
        try:
            float(said[key])
            int(said["N_RANK"]), int(said["N_THREAD"])
        except (KeyError, TypeError, ValueError) as error:
            raise Wrong(f"provenance/{key} is no number") from error
    return said


def check_layout(file):
    """Return the number of rows; raise Wrong where the file lacks what every result has."""
    count = {}
    for name, unit in GROUPS.items():
        if name != "epochs" or name in file:
            count[unit] = check_columns(file, name, count.get(unit))
    for table, key in (("fits", "CRC"), ("catalog", "CATALOG_CRC")):
        names = file[table][key].attrs.get("COLUMNS")
        for name in names.decode("utf-8", "replace").split() if isinstance(names, bytes) else [""]:
            need(name and isinstance(file[table].get(name), h5py.Dataset), Wrong,
                 f"it has no column {name}" if name else f"COLUMNS of {table}/{key}")
    check_vectors(file["fits"])
    return count[ROWS]


def walk(file):
    """Check all objects of a file, but not their data."""
    check_object(file)
    file.visititems(lambda _, item: check_object(item))


def works(path, function):
    """Return whether function(open file) succeeds in a child process: HDF5 may crash."""
    with h5py._objects.phil:  # no other thread may hold this lock: the child would wait for ever
        child = os.fork()
    if child == 0:
        try:
            with h5py.File(path, "r") as file:
                function(file)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    need(not os.WIFSIGNALED(status), OUTPUT, f"{path} is damaged: HDF5 crashes while reading it")
    return status == 0


class Block:
    """Some undamaged rows of a result.  rows: their numbers; block[name]: values of a column."""

    def __init__(self, result, start, whole):
        self._result, self._span, self._whole = result, slice(start, start + len(whole)), whole
        self.rows = start + np.flatnonzero(whole)

    def __getitem__(self, name):
        return self.of(self._result.column(name))

    def of(self, column):
        """Return the values of a dataset in these rows."""
        values = column[self._span][self._whole]
        if column.name not in self._result.calibration:
            return values
        sn, factor, floor = self._result.calibration[column.name]
        factor = np.interp(np.log(np.maximum(self._result.sn(self), 1e-3)), np.log(sn), factor)
        weight = self._result.weight(column.name[len("/fits/"):-len("_ERR")], self.__getitem__)
        scaled = np.hypot(np.sqrt(weight * factor**2 + (1 - weight)) * values, weight * floor)
        return np.where((values > 0) & (weight > 0), scaled, values)


class Result:
    """An open result.

    fits, catalog, epochs  {column: dataset}; epochs None: a fit without epochs
    arms, parameters       names as in the columns; parameters in the order of COVAR
    statuses, backends, warnings, infos, posteriors, flags  {code or bit: (name, meaning)}
    libraries              {code of LIBRARY: (name, path)}; a single library has code 1
    priors                 {parameter: (mean, sigma)} of the configuration's priors
    files, frames          paths of the inputs as given to the fit; their frames, last b""
    block                  number of rows to read at once
    calibration            {error column that calibrate() scales: (S/N [n], factors [n], floor)}
    """

    def __init__(self, path):
        self.path, self.calibration = path, {}
        self.n_damaged, self._damaged, self.is_catalog_damaged = 0, [], False
        with as_failure(OUTPUT, f"{path} cannot be read", OSError, KeyError, ValueError,
                        RuntimeError, TypeError, AttributeError), \
                as_failure(OUTPUT, f"{path} is damaged", Wrong,
                           advice=": restore a copy, or fit again"):
            need(os.path.isfile(path), OUTPUT, f"{path} cannot be read: " + (
                "it is a folder, pipe or device" if os.path.exists(path) else "No such file"))
            is_sound = works(path, walk)
            self.file = h5py.File(path, "r")
            need(text(self.file.attrs.get("FORMAT", "")) == FORMAT, OUTPUT,
                 f"{path} is not a result of starmill")
            version = int(self.file.attrs["FORMAT_VERSION"])
            need(version == VERSION, OUTPUT, f"{path} has format {version}, this starmill reads "
                 f"only format {VERSION}: read it with the starmill that wrote it")
            if not is_sound:
                walk(self.file)
            self.n_row, self.provenance = check_layout(self.file), provenance(self.file)
            self.fits, self.catalog = self.file["fits"], self.file["catalog"]
            self.epochs = self.file.get("epochs")
            self.parameters = [text(p) for p in self.fits["COVAR"].attrs["ORDER"]]
            given = {name: (float(mean), float(sigma)) for name, mean, sigma in re.findall(
                r'{param: "(.*)", mean: (.*), sigma: (.*)}', self.provenance["IDENTITY"])}
            self.priors = {p: given[name] for p in self.parameters for name in (p.lower(), text(
                self.fits[p].attrs.get("description", "")).split(" ")[0]) if name in given}
            self.statuses, self.backends, self.warnings, self.infos, self.posteriors = map(
                self._words, ("STATUS", "BACKEND", "RVS_WARN", "FIT_INFO", "POST_FLAG"))
            self.flags = self._words(*(p + "_FLAG" for p in self.parameters))
            self.files = [os.fsdecode(p) for p in self.catalog["files/PATH"][...]]
            self.frames = np.append(self.catalog["files/FRAME"][...], b"")  # of FILE -1, no input
            self.libraries = self._words("LIBRARY") or {
                1: (self.provenance["LIBRARY_NAME"], self.provenance["LIBRARY_PATH"])}
            self.libraries = {code: (name, self.found(path))
                              for code, (name, path) in self.libraries.items() if code > 0}
            self.finished = bool(int(self.provenance["FINISHED"]))
            self.checked, self.checked_catalog = (
                text(table[crc].attrs["COLUMNS"]).split()
                for table, crc in ((self.fits, "CRC"), (self.catalog, "CATALOG_CRC")))
            row_bytes = sum(c.dtype.itemsize * int(np.prod(c.shape[1:]))
                            for c in self.fits.values() if isinstance(c, h5py.Dataset))
        self.block = max(1, min(BLOCK, BLOCK_BYTES // row_bytes))
        self.arms = [n[5:] for n in self.checked if n.startswith("NPIX_") and n != "NPIX_TOT"]

    def _words(self, *names):
        attrs = next((self.fits[name].attrs for name in names if name in self.fits), {})
        return {int(code): (text(n), text(m)) for code, n, m in zip(attrs.get(
            "CODES", attrs.get("BITS", ())), attrs.get("NAMES", ()), attrs.get("MEANINGS", ()))}

    def has(self, *names):
        return all(name in self.fits or name in self.catalog for name in names)

    def column(self, name):
        need(self.has(name), OUTPUT, f"{self.path} is damaged: it has no column {name}")
        return self.fits[name] if name in self.fits else self.catalog[name]

    def names(self, *groups):
        """Return the names of columns of groups (default: /fits, /catalog), in the file's order."""
        order = {name: i for i, name in enumerate(self.checked)}
        names = []
        for group in groups or (self.fits, self.catalog):
            place = {name: order[name] if name in order else
                     len(order) + h5py.h5o.get_info(column.id).addr
                     for name, column in group.items() if isinstance(column, h5py.Dataset)}
            names += sorted(place, key=place.get)
        return names

    def calibrate(self):
        """Scale errors in all later reads by the calibration of starmill merge --calibrate.  Return
        a text about parameters without a factor, "" if all have one."""
        attrs = self.fits.attrs
        need("CAL_FACTOR" in attrs, USAGE, f"{self.path} has no calibration of its errors: make a "
             "result with one by starmill merge --calibrate")
        names, sn, factors, floors = (attrs.get(f"CAL_{key}", np.empty(0))
                                      for key in ("PARAMETERS", "SN", "FACTOR", "FLOOR"))
        need(np.shape(factors) == (len(names), len(sn)) and np.shape(floors) == (len(names),),
             OUTPUT, f"{self.path} is damaged: its calibration is incomplete")
        found = {f"{text(name)}_ERR": (sn, factor, floor)
                 for name, factor, floor in zip(names, factors, floors)}
        left = ", ".join(name for name, of in found.items() if not np.isfinite(of[2]))
        self.calibration = {f"/fits/{n}": of for n, of in found.items() if np.isfinite(of[2])}
        says = f"{self.path}: its repeated stars give no factor for {left}"
        need(self.calibration, USAGE, f"{says}: give starmill merge --calibrate more results")
        return left and f"{says}, which stay as the fit stated them"

    def weight(self, p, of):
        """Return for each row the spectrum's weight in parameter p; 1 - weight is the weight of
        `priors`.  NaN: the prior weighs more, the row has its own priors, an element is flagged,
        or v sin i is unresolved.  of(name): values of a column in these rows."""
        weight = 1 - (of(p + "_ERR_FORMAL") / self.priors.get(p, (0, np.inf))[1]) ** 2
        bits = of("FIT_INFO") & (PRIOR | VSINI_UNRESOLVED * (p == "VSINI"))
        flag = of(p + "_FLAG") if self.has(p + "_FLAG") else 0
        return np.where((weight < 0.5) | (bits != 0) | (flag != 0), np.nan, weight)

    def unit(self, name):
        return text(self.column(name).attrs.get("unit", ""))

    def shown_unit(self, name):
        """Return the unit as it is printed: "dex" for log g."""
        unit = self.unit(name)
        return "dex" if unit.startswith("log(") else unit

    def shown(self, values, name, digits):
        """Return a row's parameter with its error, or the upper limit of an unresolved v sin i."""
        value, error = values[name], values[name + "_ERR"]
        if name == "VSINI" and values["FIT_INFO"] & VSINI_UNRESOLVED:
            return f"< {number(value + error, digits)}"
        return number(value, digits) + f" ± {number(error, digits)}" * bool(np.isfinite(error))

    def damaged(self, start, stop, among=None):
        """Return a mask of the damaged rows from start to stop: an unknown STATUS, NOT_DONE in a
        finished result, or a wrong CRC.  among: mask of the rows whose CRC is checked."""
        status = self.fits["STATUS"][start:stop]
        found = ~np.isin(status, [s for s in self.statuses if s != NOT_DONE or not self.finished])
        rows = np.flatnonzero((status != NOT_DONE) & (True if among is None else among))
        if not len(rows):
            return found
        for table, name, names in ((self.fits, "CRC", self.checked),
                                   (self.catalog, "CATALOG_CRC", self.checked_catalog)):
            crc = table[name][start:stop]
            columns = [table[n][start:stop].reshape(stop - start, -1) for n in names]
            packed = np.concatenate([c.view(np.uint8) for c in columns], axis=1)  # bytes of rows
            wrong = [i for i in rows if zlib.crc32(packed[i]) != crc[i]]
            found[wrong] = True
            self.is_catalog_damaged |= table is self.catalog and len(wrong) > 0
        if self.epochs is not None:
            fitted = rows[status[rows] == FITTED]
            exposure, place = self.exposures_of(start + fitted)
            packed = self.exposure_values(exposure, EPOCH)
            of_rows = np.split(packed, np.searchsorted(place, np.arange(1, len(fitted))))
            crcs = self.fits["EPOCH_CRC"][start:stop][fitted]
            found[[row for row, values, crc in zip(fitted, of_rows, crcs)
                   if zlib.crc32(values) != crc]] = True
        return found

    def exposures_of(self, rows):
        """Return two arrays with an element for each exposure of the ascending rows: its index in
        /catalog/exposures, and the place of its row in `rows`."""
        first, n = (taken(self.catalog[name], rows) for name in ("FIRST_EXPOSURE", "N_EXPOSURE"))
        need(((n >= 0) & (first >= 0) & (first + n <= len(self.catalog["exposures/FILE"]))).all(),
             OUTPUT, f"{self.path} is damaged: a wrong FIRST_EXPOSURE or N_EXPOSURE")
        place = np.repeat(np.arange(len(rows)), n)
        within = np.arange(len(place)) - (np.cumsum(n) - n)[place]  # 0, 1, ... in each row
        return first[place] + within, place

    def exposure_values(self, exposure, names):
        """Return columns of /catalog/exposures or /epochs for these exposures, as records."""
        others = self.catalog["exposures"]
        return np.rec.fromarrays([taken(others[n] if n in others else self.epochs[n], exposure)
                                  for n in names], names=list(names))

    def note(self, rows):
        """Count damaged rows and keep the first N_NAMED, for warn_damaged."""
        self.n_damaged += len(rows)
        self._damaged = [*self._damaged, *map(int, rows[:N_NAMED])][:N_NAMED]

    def damaged_rows(self):
        """Return a text about the damaged rows noted so far."""
        rows = ", ".join(map(str, self._damaged))
        rows += ", ..." if self.n_damaged > len(self._damaged) else ""
        one, catalog = self.n_damaged == 1, "CATALOG_CRC, " * self.is_catalog_damaged
        return f"{self.n_damaged} row{'' if one else 's'} ({rows}) {'is' if one else 'are'} " \
               f"damaged: {'its' if one else 'their'} {catalog}CRC or STATUS is wrong"

    def warn_damaged(self):
        if self.n_damaged:
            warn(f"{self.path}: {self.damaged_rows()}; left out")

    def spans(self, start=0, stop=None):
        """Yield (first row, row after the last) of each block; without rows: one empty block."""
        stop = self.n_row if stop is None else stop
        return ((a, min(a + self.block, stop)) for a in range(start, stop, self.block) or [start])

    def whole(self, start, stop):
        """Return a mask of the undamaged rows from start to stop; note the damaged ones."""
        found = ~np.concatenate([self.damaged(*span) for span in self.spans(start, stop)])
        self.note(start + np.flatnonzero(~found))
        return found

    def blocks(self, start=0, whole=None):
        """Yield Blocks of the undamaged rows from start on.  whole: mask of the undamaged rows;
        None: check all rows from start on."""
        for at, to in self.spans(start, None if whole is None else start + len(whole)):
            yield Block(self, at,
                        self.whole(at, to) if whole is None else whole[at - start:to - start])

    def find(self, stars):
        """Return the rows of stars (TARGETIDs, else IDENTIFIERs, else OBJECTs), each row once."""
        return list(dict.fromkeys(row for star in stars for row in self._find(star)))

    def _find(self, star):
        keys = [(name, os.fsencode(star)) for name in ("IDENTIFIER", "OBJECT")] if star else []
        if re.fullmatch(r"-?\d+", star) and -2**63 <= int(star) < 2**63 and int(star) != -1:
            keys.insert(0, ("TARGETID", int(star)))
        for name, key in keys:
            rows = [start + np.flatnonzero(self.column(name)[start:start + BLOCK] == key)
                    for start in range(0, self.n_row, BLOCK)]
            if sum(map(len, rows)):
                return np.concatenate(rows).tolist()
        raise Failure(USAGE, f"{self.path}: no row has the TARGETID, IDENTIFIER or OBJECT "
                             f"'{star}'; `starmill select {self.path} 'STATUS >= 0' --print "
                             "identifier` prints all identifiers")

    def row(self, row):
        """Return all values of a row, texts as text."""
        values = {name: self.column(name)[row] for name in self.names()}
        return {k: text(v) if isinstance(v, bytes) else v for k, v in values.items()}

    def sn(self, values):
        """Return the S/N of a star's best arm.  values: {column: number or array}."""
        return np.maximum.reduce([values[f"SN_{arm}"] for arm in self.arms])

    def chisq_of_data(self, values):
        """Return chi-square per pixel by the errors of the data, without model error."""
        return values["CHISQ_DATA"] / max(values["NPIX_TOT"], 1)

    def words(self, bits, of):
        """Return the names of the bits that are set."""
        return [name for bit, (name, _) in of.items() if int(bits) & bit]

    def input_path(self, i):
        return self.found(self.files[i])

    def found(self, given):
        """Return the path of a file of the fit, which may be relative to the fit's folder."""
        path = os.path.join(self.provenance["FOLDER"], given)
        return path if os.path.exists(path) else given

    def unchanged_input(self, i):
        """Return the path of input i; Failure if its size or time has changed since the fit."""
        path, files = self.input_path(i), self.catalog["files"]
        with as_failure(INPUT, f"{path} cannot be read", OSError):
            status = os.stat(path)
        then = int(files["SIZE"][i]), float(files["MTIME"][i])
        seconds, rest = divmod(status.st_mtime_ns, 10**9)
        now = status.st_size, seconds + 1e-9 * rest  # computed as the program does, bit for bit
        if now != then:
            said = ["{} bytes of {}".format(size, time.strftime("%F %T", time.gmtime(when)))
                    for size, when in (then, now)]
            raise Failure(INPUT, f"{path} is another file now: it has changed since it was fitted "
                                 f"({said[0]}, then {said[1]}); fit it again")
        return path

    def exposures(self, row):
        """Return [(input, number in its file)] of the exposures of a row."""
        exposure, _ = self.exposures_of(np.array([row]))
        return self.exposure_values(exposure, ("FILE", "FITS_ROW")).tolist()

    def setting(self, key):
        """Return the value of a key of the fit's configuration, None if it is not set."""
        used = self.provenance["IDENTITY"] + "\n" + self.provenance["CONFIG"]
        found = re.search(rf"^{key}: (.*)$", used, re.MULTILINE)
        try:
            return found and ast.literal_eval(found[1])
        except (ValueError, SyntaxError):
            return found[1]

    def reads(self, options):
        """Return (what, path) of all files read for a picture or a list."""
        return [("the result", self.path), ("the models", getattr(options, "models", None) or ""),
                ("the models", self.models_path() or ""),
                ("the library", getattr(options, "library", None) or ""),
                *(("the library", path) for _, path in self.libraries.values()),
                *(("the input", self.input_path(i)) for i in range(len(self.files)))]

    def models_path(self):
        """Return the models file that the fit's command named, None unless it exists."""
        words = "\0".join(shlex.split(self.provenance["COMMAND"]))
        named = re.search("\0--models[=\0]([^\0]+)", words)
        path = os.path.join(self.provenance["FOLDER"], named[1]) if named else ""
        return path if os.path.exists(path) else None
