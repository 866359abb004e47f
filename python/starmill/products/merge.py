# SPDX-License-Identifier: BSD-3-Clause
"""`starmill merge`: join the finished results of a survey's parts, row after row, bit for bit."""

import contextlib
import itertools
import os
import re
import secrets
import shlex
import shutil
import zlib

import h5py
import numpy as np

from starmill.cli.basics import (OUTPUT, USAGE, Failure, catch_stops, check_output, check_packages,
                                 need, refuse_foreign, replacing, warn, writing)
from starmill.cli.running import OutputLock, Progress
from starmill.products.result import (EXPOSURES, FILES, FITTED, GROUPS, NOT_DONE, ROWS, Result,
                                      with_targets)
from starmill.products.sky import has_place, unit_vectors

BLOCK_BYTES = 4 << 20
# {column of indices: unit}: merge adds to the indices the number of such units in earlier parts
SHIFTED = {"catalog/FILE": FILES, "catalog/FIRST_EXPOSURE": EXPOSURES,
           "catalog/exposures/FILE": FILES, "catalog/files/ROW_START": ROWS}
PATHS = "catalog/files/PATH", "catalog/files/REDROCK"  # may be relative to the part's FOLDER
PRIMARY = "catalog/PRIMARY"
MEANING = "1 in one row of each star, the best one: fitted, then VRAD_GOOD, then the highest S/N " \
    "of all arms together"
FAR_AM, MOST_PLACES = 1, 64  # as io/catalog/places.h


class Column:
    """A column of a part.  unit: ROWS, EXPOSURES or FILES; shape: of a row; type: HDF5 type."""

    def __init__(self, path, name, dataset, unit):
        self.name, self.unit, self.shape = name, unit, dataset.shape[1:]
        self.type, self.dtype, self.n = dataset.id.get_type().copy(), dataset.dtype, len(dataset)
        need(not dataset.chunks and not dataset.external, OUTPUT,
             f"{path} is damaged: {name} is not a column of a result")

    def take(self, other, first, path):
        """Check that another part's column `other` has this shape and type.  Texts about files may
        be longer there: keep the longer type."""
        is_text = self.unit == FILES and self.dtype.kind == "S"
        need((other.shape, other.dtype.kind) == (self.shape, self.dtype.kind) and
             (is_text or other.type == self.type), USAGE,
             f"{self.name} differs in shape or type in {path} and {first}: fit both by one version")
        if is_text:
            self.type = max(self.type, other.type, key=lambda t: t.get_size())


class Part:
    """A finished result.  n: {ROWS, EXPOSURES or FILES: number}.  columns: {name: Column}.
    inputs: [(index, path, keys of settle_duplicates)].  said: entries of /provenance.  lost:
    options (--calibrate, --primary) that were applied to this part but are not given now.
    kept: {ROWS, EXPOSURES or FILES: mask} of a part of which drop() left out inputs, else {}."""

    def __init__(self, path, options):
        self.path, self.kept, is_alone = path, {}, len(options.arguments) == 1
        result = Result(path)
        with result.file:
            said = self.said = result.provenance
            need(result.finished, USAGE, f"{path} is not finished: give its command again "
                 f"(starmill status {path} says how far it is), or leave it out if other results "
                 "have all its inputs")
            need(is_alone or "join_by_name: true" not in said["IDENTITY"], USAGE,
                 f"{path} was made with join_by_name: an object with spectra in several parts "
                 "would have several rows; fit all inputs in one run")
            columns = ((f"{group}/{name}", item, unit) for group, unit in GROUPS.items()
                       for name, item in result.file.get(group, {}).items())
            has = {"calibrate": "CAL_SN" in result.fits.attrs, "primary": PRIMARY in result.file}
            self.lost = {f"--{key}" for key in has if has[key] and not getattr(options, key)}
            left_out = "" if is_alone and not options.primary else PRIMARY
            self.columns = {name: Column(path, name, item, unit) for name, item, unit in columns
                            if isinstance(item, h5py.Dataset) and name != left_out}
            self.n = {column.unit: column.n for column in self.columns.values()}
            result.whole(0, result.n_row)
            again = "makes it again with --overwrite" if result.is_catalog_damaged else \
                "fits them again"
            need(not result.n_damaged, OUTPUT,
                 f"{path}: {result.damaged_rows()}; the command that made it {again}")
            self.has_fit = any(FITTED in result.fits["STATUS"][a:b] for a, b in result.spans())
            self.inputs = [self._input(result, i, options.latest) for i in
                           np.flatnonzero(result.catalog["files/N_ROW"][...])]

    @staticmethod
    def _input(result, i, latest):
        path, files = result.input_path(i), result.catalog["files"]
        size, mtime, stars, start, n = (files[name][i] for name in (
            "SIZE", "MTIME", "ROWS_HASH", "ROW_START", "N_ROW"))
        fits = 0 if result.has("BACKEND") else zlib.crc32(result.fits["CRC"][start:start + n])
        where = os.path.join(result.provenance["FOLDER"], result.files[i])
        keys = [(os.path.realpath(where),)] if latest else []
        with contextlib.suppress(OSError):
            now = os.stat(path)
            keys += [(now.st_dev, now.st_ino)] * (now.st_size == size)
        return i, path, [*keys, (size, mtime, stars, fits)]

    def drop(self, inputs):
        """Leave out some inputs (indices), with their rows and exposures."""
        with h5py.File(self.path, "r") as file:
            of = {ROWS: file["catalog/FILE"][...], EXPOSURES: file["catalog/exposures/FILE"][...],
                  FILES: np.arange(self.n[FILES])}
        self.kept = {unit: ~np.isin(index, inputs) for unit, index in of.items()}
        self.n = {unit: int(mask.sum()) for unit, mask in self.kept.items()}


def difference(a, b):
    """Return a text with the first line in which two texts differ."""
    pairs = itertools.zip_longest(a.splitlines(), b.splitlines(), fillvalue="")
    return next((f'"{x[:100]}" and "{y[:100]}"' for x, y in pairs if x != y), "in their last line")


def compare(first, part):
    """Require that two parts have the same settings, library, kind of device and columns.  Settings
    of samples include the sampled fit, so it must be the same, too.  A part without rows may differ
    in arms, device and an automatic wave_mask, which may depend on rows.
    Return the part whose columns the result gets."""
    if part.n[ROWS] and not first.n[ROWS]:
        first, part = part, first
    names = f"{first.path} and {part.path} were made"
    settings, hashes, devices, *versions = ([one.said[key] for one in (first, part)] for key in (
        "IDENTITY", "LIBRARY_HASH", "DEVICE", "VERSION", "REVISION"))
    if not part.n[ROWS]:
        free = "arms|wave_mask" if "wave_mask: auto\n" in part.said["CONFIG"] else "arms"
        settings = [re.sub(f"(?m)^({free}): .*$", "", text) for text in settings]
    advice = ": merge the fits, then sample the result" if "sample_seed: " in settings[0] else ""
    need(settings[0] == settings[1], USAGE,
         f"{names} with different settings ({difference(*settings)}){advice}")
    need(hashes[0] == hashes[1], USAGE,
         f"{names} with different libraries ({hashes[0][:12]}, {hashes[1][:12]}): fit with one")
    need(devices[0] == devices[1] or not part.n[ROWS], USAGE, f"{names} on different devices "
         f"({' and '.join(devices)}), whose rows differ in the last digits; "
         "merge the results of one device")
    if any(a != b for a, b in versions):
        warn(f"{names} by starmill {' and '.join(map(' '.join, zip(*versions)))}: rows may differ")
    for a, b in ((first, part), (part, first)):
        for name, column in a.columns.items():
            need(name in b.columns or not part.n[column.unit], USAGE, f"{a.path} has "
                 f"{len(a.columns)} columns, among them {name}, which {b.path} lacks: they were "
                 "made by different versions; fit both by one")
    for name, column in first.columns.items():
        if part.n[column.unit]:
            column.take(part.columns[name], first.path, part.path)
    part.columns = None
    return first


def settle_duplicates(parts, latest):
    """Refuse parts that share an input, since its stars would appear twice.  Inputs are the same if
    their size, time, stars and fits agree, or if their paths lead to one file.  Fits are not
    compared between versions of the program, or if CPUs and GPUs fitted: such fits may differ.
    latest: of a path fitted twice keep the last fit.  Return the number of rows left out."""
    known, n_version = {}, len({(part.said["VERSION"], part.said["REVISION"]) for part in parts})
    n_row = sum(part.n[ROWS] for part in parts)
    for part in sorted(parts[::-1], key=lambda part: part.said["END_TIME"], reverse=True):
        dropped = []
        for i, path, keys in part.inputs:
            for key in keys:
                other, owner = known.setdefault(key[:3] if n_version > 1 else key, (path, part))
                if owner is not part:
                    need(latest and len(key) < 3, USAGE, f"{path} is the same input as {other}, in "
                         f"{part.path} and {owner.path}: leave out one of these results" +
                         ", or give --latest to keep the input's last fit" * (not latest))
                    dropped.append(i)
                    break
        if dropped:
            part.drop(dropped)
    return n_row - sum(part.n[ROWS] for part in parts)


def copy_attributes(model, made):
    """Copy attributes bit for bit, including the kind of text."""
    for key in model.attrs:
        attribute = h5py.h5a.open(model.id, key.encode())
        kind, value = attribute.get_type(), np.empty(attribute.shape, attribute.dtype)
        attribute.read(value, kind)
        h5py.h5a.create(made, key.encode(), kind, attribute.get_space()).write(value, kind)


def facts(parts, command):
    """Return the entries of /provenance that differ from the first part's."""
    frames = {line: None for part in parts for line in part.said["FRAMES"].splitlines()}
    return {"COMMAND": "\n".join([command, *(part.said["COMMAND"] for part in parts)]),
            "FRAMES": "".join(f"{line}\n" for line in frames),
            "START_TIME": min(part.said["START_TIME"] for part in parts),
            "END_TIME": max(part.said["END_TIME"] for part in parts),
            "WALL_S": sum(part.said["WALL_S"] for part in parts),
            "N_RUN": sum(int(part.said["N_RUN"]) for part in parts)}


def write_provenance(file, first, parts, command):
    """Write /provenance: the first part's entries, except where facts() combines all parts.  Each
    entry is copied alone, since HDF5's copy of a group may crash on a damaged group."""
    group = file.create_group("provenance")
    copy_attributes(first["provenance"], group.id)
    group.attrs.modify("RUN_ID", np.bytes_(secrets.token_hex(16)))
    new = {**facts(parts, command), "UNMODELLED": 1}  # models are not merged
    for name, old in first["provenance"].items():
        kind, value = old.id.get_type().copy(), np.empty(old.shape, old.dtype)
        if isinstance(new.get(name), str):
            value = np.full(old.shape, os.fsencode(new[name]))
            kind.set_size(value.dtype.itemsize)
        elif name in new:
            value[...] = new[name]
        else:
            old.id.read(h5py.h5s.ALL, h5py.h5s.ALL, value, kind)
        made = h5py.h5d.create(group.id, name.encode(), kind, old.id.get_space(),
                               old.id.get_create_plist())
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, value, kind)
        copy_attributes(old, made)


def copy_part(part, start, columns, file, lock, folder):
    """Copy a part's rows.  start: {unit: index of the part's first item in the merged result}.
    folder: put before relative PATHS."""
    # {unit: number of kept items before each item of the part}
    before = {unit: np.append(0, np.cumsum(mask)) for unit, mask in part.kept.items()}
    with h5py.File(part.path, "r") as source:
        for name, column in columns.items():
            row_bytes = column.dtype.itemsize * int(np.prod(column.shape))
            block = max(1, BLOCK_BYTES // max(1, row_bytes))
            to = start[column.unit]
            for at in range(0, part.n[column.unit] and len(source[name]), block):
                lock.keep()
                values, unit = source[name][at:at + block], SHIFTED.get(name)
                if unit:  # a negative index means none
                    new = before[unit].take(values, mode="clip") if before else values
                    values = np.where(values >= 0, new + start[unit], values).astype(column.dtype)
                elif name in PATHS:
                    values = np.array([v and os.path.join(folder, v) for v in values.tolist()],
                                      file[name].dtype)
                if before:
                    values = values[part.kept[column.unit][at:at + block]]
                file[name][to:to + len(values)] = values
                to += len(values)
        # a later run that refits failed rows removes the mark first
        need(int(source["provenance/FINISHED"][0]), USAGE,
             f"{part.path} is being fitted again: merge when this ends")


def by_place(name, ra, dec):
    """Return for each row [n] the first row of its star.  name [n]: a number for each name.  A row
    joins the first star of its name whose first row is within FAR_AM arcmin, else it begins a new
    star.  Rows near none of a name's first MOST_PLACES stars are a star each.  A row without a
    position belongs to the first star of its name."""
    _, first, star, n = np.unique(name, return_index=True, return_inverse=True, return_counts=True)
    found = first[star]
    left = np.flatnonzero((n[star] > 1) & has_place(ra, dec))
    unit = unit_vectors(ra[left], dec[left]).T
    for k in range(MOST_PLACES):  # each name's k-th star takes the rows near its first row
        _, at, which = np.unique(star[left], return_index=True, return_inverse=True)
        at = at[which]  # of each row left: the first row left of the same name
        far = ((unit - unit[:, at]) ** 2).sum(axis=0) > np.radians(FAR_AM / 60) ** 2
        if k:
            found[left] = left[at]
        left, unit = left[far], unit[:, far]
    found[left] = left
    return found


def primary(file):
    """Return 1 for the best row of each star (fitted, good velocity, highest S/N), else 0."""
    fits, objects = file["fits"], file["catalog/OBJECT"][...]
    targets, n_row = with_targets(fits["TARGETID"][...], objects), len(objects)
    quality = (fits["STATUS"][...] == FITTED).astype(int) + fits["VRAD_GOOD"][...]
    sn2 = sum(np.nan_to_num(np.maximum(fits[name][...], 0), posinf=0) ** 2
              for name in fits if name.startswith("SN_"))
    # Rows of one TARGETID are a star, as are rows of one OBJECT without TARGETID.  OBJECT comes
    # second because SDSS-V's OBJECT, CATALOGID, changes with the version of the catalogue.
    names, numbers = (np.unique(of, return_inverse=True)[1] for of in (objects, targets))
    star = np.select([targets != -1, objects == b""], [numbers, 2 * n_row + np.arange(n_row)],
                     n_row + names)
    n_name = len(np.unique(star))
    star = by_place(star, *(file[f"catalog/TARGET_{x}"][...] for x in ("RA", "DEC")))
    n_far = len(np.unique(star)) - n_name
    if n_far:
        warn(f"groups of rows over 1 arcmin from the first row of their TARGETID or name: {n_far}; "
             "each counts as another star, with its own primary row: check these names")
    order = np.lexsort((-sn2, -quality, star))  # stable: equally good rows stay in order
    best = order[np.unique(star[order], return_index=True)[1]]
    return np.bincount(best, minlength=n_row).astype(np.uint8)


def write_whole(path, parts, model, options, lock):
    """Merge parts to path, with columns and settings of the part `model`; return the row count."""
    n, starts = dict.fromkeys((ROWS, EXPOSURES, FILES), 0), []
    for part in parts:
        starts.append(dict(n))
        for unit in n:
            n[unit] += part.n[unit]
    need(n[FILES] <= 2**31 - 1, USAGE, "more than 2147483647 inputs")
    n_byte = sum(os.path.getsize(part.path) for part in parts)
    with open(path, "r+b") as file:  # HDF5 cannot close a file that does not fit
        file.truncate(n_byte)
        file.truncate(0)
    if shutil.disk_usage(os.path.dirname(path)).free < n_byte:
        raise OSError(28, "No space left on device")
    folders = [b"" if part.said["FOLDER"] == model.said["FOLDER"]
               else os.path.join(os.fsencode(part.said["FOLDER"]), b"") for part in parts]
    columns = model.columns
    for kind in (columns[name].type for name in PATHS):
        kind.set_size(kind.get_size() + max(map(len, folders)))
    with h5py.File(path, "w") as file, h5py.File(model.path, "r") as first:
        copy_attributes(first, file.id)  # FORMAT, FORMAT_VERSION
        for group in GROUPS:
            if group in first:
                made = file.create_group(group)
                if len(parts) == 1:  # the attributes hold the part's calibration
                    copy_attributes(first[group], made.id)
        for name, column in columns.items():
            space = h5py.h5s.create_simple((n[column.unit], *column.shape))
            copy_attributes(first[name], h5py.h5d.create(
                file.id, name.encode(), column.type, space, first[name].id.get_create_plist()))
        write_provenance(file, first, parts, command_of(options))
        progress = Progress(n[ROWS], "rows")
        for part, start, folder in zip(parts, starts, folders):
            copy_part(part, start, columns, file, lock, folder)
            if not options.quiet:
                progress.update(start[ROWS] + part.n[ROWS])
        progress.end()
        if options.primary:
            made = file.create_dataset(PRIMARY, data=primary(file))
            made.attrs.create("description", MEANING,
                              dtype=h5py.string_dtype("utf-8", len(MEANING)))
    return n[ROWS]


def calibrate(path, lock):
    """Calibrate the errors of the merged result; return the calibration as a text."""
    from starmill.products import calibration
    lock.keep()
    result = Result(path)
    with result.file:
        sn, found = calibration.of_result(result)
        if result.n_damaged:
            raise OSError(5, result.damaged_rows())
    lock.keep()
    with h5py.File(path, "r+") as file:
        calibration.write(file["fits"], sn, found)
    return calibration.table(sn, found)


def command_of(options):
    flags = [f"--{key}" for key in ("calibrate", "latest", "overwrite", "primary", "quiet")
             if getattr(options, key)]
    return shlex.join(["starmill", "merge", *flags, "--output", options.output, *options.arguments])


def state_of(output, command, parts=()):
    """Return "made" if this command made the output and, if parts are given, from these parts;
    "void" if it is a result without a fitted row, which may be replaced; else ""."""
    with contextlib.suppress(Failure):
        result = Result(output)
        with result.file:
            said, status = result.provenance, result.fits["STATUS"][...]
            with contextlib.suppress(Failure):  # damaged rows: it was not made, but may be void
                if said["COMMAND"].startswith(command + "\n") and (not parts or all(
                        said[name] == value for name, value in facts(parts, command).items())):
                    result.whole(0, result.n_row if parts else 0)
                    if result.finished and not result.n_damaged:
                        return "made"
            if not np.isin(status, [FITTED, NOT_DONE] if result.finished else [FITTED]).any():
                return "void"
    return ""


def main(options):
    if options.calibrate:
        check_packages("scipy")
    catch_stops()
    output = os.path.realpath(options.output)
    reads = [("the part", path) for path in options.arguments]
    state = not options.overwrite and state_of(output, command_of(options))
    check_output(options.output, options.overwrite or state, reads)
    refuse_foreign(output, "starmill result")
    parts, model = [], None
    for path in options.arguments:
        parts.append(Part(path, options))
        model = compare(model, parts[-1]) if model else parts[0]
    n_dropped = settle_duplicates(parts, options.latest)
    lost = " ".join(sorted(set.union(*(part.lost for part in parts))))
    if len(parts) > 1 and lost:
        warn(f"what an earlier merge {lost} added holds for one part alone and is left out: give "
             f"{lost} to this merge too")
    need(state or not os.path.exists(output) or any(part.has_fit for part in parts), USAGE,
         f"the parts have no fitted row, so {output} is not replaced; give another --output")
    with OutputLock(output) as lock:
        # another job may have made it meanwhile
        state = state and state_of(output, command_of(options), parts)
        check_output(options.output, options.overwrite or state, reads)
        if state == "made":
            print(f"{options.output} is finished already; nothing was done")
            return
        with writing(output, RuntimeError), replacing(output) as temporary:  # HDF5 raises it
            n = write_whole(temporary, parts, model, options, lock)
            found = calibrate(temporary, lock) + "\n" if options.calibrate else ""
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            lock.keep()
    if not options.quiet:
        print(f"{found}parts        {len(parts)}\nrows         {n}")
        print(f"dropped      {n_dropped} rows of inputs that later parts have\n" * (n_dropped > 0)
              + f"result       {options.output}")
