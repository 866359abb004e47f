# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes grid files (docs/use/formats.md, "Grid file").  create() makes a file with room
for all models.  A Writer writes rows at their offsets, without HDF5, so that the file stays valid
if the job is killed."""

import errno
import math
import os
from dataclasses import dataclass

import h5py
import numpy as np

from starmill.cli.basics import INPUT, Failure, as_failure, need, replacing, writing
from starmill.templates.library_data import MAX_ARM, MAX_LABEL, MAX_PIX, MIN_PIX, Arm, wavelengths
from starmill.templates.library_file import opened, text_of
from starmill.wavelength import C_KM_S

TO_DO, GOOD, BAD = 0, 1, 2
MAX_NAMED_BAD = 20
NAME, WHY = 64, 128  # bytes of a name and of a reason, final zero included
MAX_SETTINGS = 60000  # bytes; HDF5 limits an attribute to 64 KiB
HDF5 = (RuntimeError, ValueError)  # h5py raises these or OSError when a disk is full
MEANING = {"models/label": "labels of each model, in their units",
           "models/name": "file or row that each model comes from",
           "models/status": "0 still to do, 1 good, 2 bad",
           "models/stamp": "of the file that each model comes from; 0: not known",
           "models/why": "why a model is bad", "labels/name": "names of the labels",
           "sigma": "Gaussian sigma of the spectra at each pixel, Angstrom",
           "flux": "flux density, each model in its own unit",
           "continuum": "continuum in the unit of the flux"}


@dataclass
class Grid:
    """An open grid file; it stays open until the program ends."""
    path: str
    file: object
    complete: bool
    settings: str
    label: list  # names
    values: np.ndarray  # [n_model][n_label] in the labels' units
    name: list  # names of the models
    why: list  # why a model is bad, else empty
    status: np.ndarray  # [n_model]
    arm: list  # of Arm, without emulators

    def good(self, unfinished):
        """Return the indices of good models; refuse an incomplete file unless `unfinished`."""
        n = int((self.status == TO_DO).sum())
        need(not n or unfinished, INPUT, f"{self.path}: {n} of its {len(self.status)} models are "
             "still to do; finish it by library build, or give --unfinished")
        return np.flatnonzero(self.status == GOOD)

    def flux(self, i_arm, models, what="flux"):
        """Return flux or continuum, float32 [n][n_pix], of ascending models; None: no continuum."""
        at = f"arms/arm{i_arm}/{what}"
        if what != "flux" and at not in self.file:
            return None
        with as_failure(INPUT, f"{self.path}: /{at} cannot be read",
                        OSError, ValueError, TypeError):
            flux = np.empty((len(models), self.arm[i_arm].n_pix), "f4")
            for first in range(0, len(models), 256):
                flux[first:first + 256] = self.file[at][models[first:first + 256]]
        bad = ~((flux > 0) & (flux <= 3e38))
        if bad.any():
            i, pixel = np.argwhere(bad)[0]
            raise Failure(INPUT, f"{self.path}: /{at} has {flux[i, pixel]:g} at pixel {pixel} of "
                                 f"model {models[i]}, but good models are above 0")
        return flux


def open_grid(path):
    """Return the Grid of a file; a Failure of INPUT names the file."""
    with opened(path, INPUT) as file:
        return read_grid(path, file)


def read_grid(path, file):
    made = text_of(file, "format") if "format" in file.attrs else "file of another kind"
    need(made == "starmill grid" and file.attrs["version"] == 1, ValueError,
         f"is a {made}, not a grid file of version 1; starmill library build makes one")
    label = [name.decode() for name in file["labels/name"][...]]
    need(1 <= len(label) <= MAX_LABEL and all(label), ValueError,
         f"labels '{','.join(label)[:80]}': expected 1 to {MAX_LABEL} labels, each with a name")
    values, status = file["models/label"][...].astype(float), file["models/status"][...]
    need(values.shape == (len(status), len(label)) and len(status) > 0, ValueError,
         f"/models/label has the shape {values.shape}, expected models of {len(label)} labels")
    if not np.isin(status, (TO_DO, GOOD, BAD)).all() or not np.isfinite(values[status < BAD]).all():
        raise ValueError("a model has an unknown status, or a label that is not finite")
    texts = {name: [text.decode("ascii", "replace") for text in file[f"models/{name}"][...]]
             for name in ("name", "why")}
    if {len(text) for text in texts.values()} != {len(status)}:
        raise ValueError(f"/models/name or /models/why does not have {len(status)} texts")
    arms = []
    while f"arms/arm{len(arms)}" in file:
        arms.append(read_arm(file[f"arms/arm{len(arms)}"], len(status), os.path.basename(path)))
    if not 1 <= len(arms) <= MAX_ARM:
        raise ValueError(f"has {len(arms)} arms; this program takes 1 to {MAX_ARM}")
    return Grid(path, file, bool(file.attrs["complete"]), text_of(file, "settings"), label, values,
                texts["name"], texts["why"], status, arms)


def read_arm(group, n_model, source):
    name, n_pix = text_of(group, "name"), int(group.attrs["n_pix"])
    ln_wave0, ln_step = float(group.attrs["ln_wave0"]), float(group.attrs["ln_step"])
    sigma = float(group.attrs["template_sigma_aa"])
    need(name and MIN_PIX <= n_pix <= MAX_PIX, ValueError,
         f"arm {name} has {n_pix} pixels, this program takes {MIN_PIX} to {MAX_PIX}")
    # wavelengths of 10 A to 1 mm
    need(ln_step > 0 and ln_wave0 > 2.3 and ln_wave0 + n_pix * ln_step < 16.2
         and math.isfinite(sigma), ValueError, f"arm {name} has impossible wavelengths or "
         f"resolution: ln_wave0 {ln_wave0:g}, ln_step {ln_step:g}, template_sigma_aa {sigma:g}")
    for what in ("flux", "continuum"):
        if (what == "flux" or what in group) and group[what].shape != (n_model, n_pix):
            raise ValueError(f"dataset {group[what].name} has the shape {group[what].shape}, "
                             f"expected {(n_model, n_pix)}")
    return Arm(name, name, ln_wave0, ln_step, wavelengths(ln_wave0, ln_step, n_pix),
               template_sigma_aa=sigma, sigma_origin=text_of(group, "sigma_origin"), source=source)


def describe_grid(path):
    grid = open_grid(path)
    yield f"{path}: grid file, {'complete' if grid.complete else 'not complete'}"
    yield grid.settings.rstrip("\n")
    yield from describe_models(grid)


def describe_models(grid):
    for arm in grid.arm:
        yield (f"arm {arm.name}: {arm.wave_aa[0]:.2f} to {arm.wave_aa[-1]:.2f} A, {arm.n_pix} "
               f"pixels of {C_KM_S * arm.ln_step:.3f} km/s; resolution: {arm.resolution()}")
    good = grid.values[grid.status == GOOD]
    for i, name in enumerate(grid.label):
        low, high = (good[:, i].min(), good[:, i].max()) if len(good) else (np.inf, -np.inf)
        yield f"label {name}: {low:g} to {high:g}"
    bad = np.flatnonzero(grid.status == BAD)
    to_do = int((grid.status == TO_DO).sum())
    yield f"models: {len(good)} good, {len(bad)} bad{f', {to_do} still to do' if to_do else ''}"
    for i in bad[:MAX_NAMED_BAD]:
        yield f"  {grid.name[i]}: {grid.why[i]}"
    if len(bad) > MAX_NAMED_BAD:
        yield f"  and {len(bad) - MAX_NAMED_BAD} more (dataset /models/why)"
    if len(bad):
        yield "  (the same command with --retry-bad reads bad models again)"


def short(text, n):
    """Return text as at most n - 1 bytes."""
    return os.fsencode(text)[:n - 1]


@dataclass
class Models:
    label: np.ndarray  # [n, n_label]
    name: np.ndarray  # [n] bytes
    stamp: np.ndarray  # [n] uint64, stamp_of each model's file
    why: np.ndarray  # [n] bytes, empty where a model is not bad
    status: np.ndarray  # [n] TO_DO, GOOD or BAD

    def __len__(self):
        return len(self.status)


def create(path, label_names, models, arms, parts, settings, generator):
    """Create the file with room for all spectra.  arms: [(Arm, sigma [n_pix])]; the sigma
    is None if the Arm has a constant one.  parts: the names "flux", or "flux" and "continuum"."""
    n_byte = len(models) * (NAME + WHY + 9 + models.label[0].nbytes + len(parts) * sum(
        4 * arm.n_pix for arm, _ in arms)) + (1 << 16)
    need(len(settings.encode()) <= MAX_SETTINGS, INPUT, "the settings are too long")
    with writing(path, *HDF5), replacing(path) as temporary:
        take_room(temporary, n_byte)
        with h5py.File(temporary, "w") as file:
            file.attrs.update(format=np.bytes_("starmill grid"), version=np.int32(1),
                              complete=np.int32(0), generator=np.bytes_(generator),
                              settings=np.bytes_(settings.encode()))
            names = np.array([short(n, NAME) for n in label_names], f"S{NAME}")
            put(file, "labels/name", data=names)
            for name, dtype in (("label", "f8"), ("name", f"S{NAME}"), ("status", "i1"),
                                ("stamp", "u8"), ("why", f"S{WHY}")):
                put(file, f"models/{name}", data=getattr(models, name).astype(dtype))
            for i, (arm, sigma) in enumerate(arms):
                make_arm(file.create_group(f"arms/arm{i}"), arm, sigma, parts, len(models))
        take_room(temporary, os.path.getsize(temporary))


def take_room(path, n_byte):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.posix_fallocate(fd, 0, n_byte)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise  # other codes: the file system cannot reserve room
    finally:
        os.close(fd)


def put(group, name, **how):
    group.create_dataset(name, **how).attrs["DESCRIPTION"] = np.bytes_(MEANING[name])


def make_arm(group, arm, sigma, parts, n_model):
    """Write the properties of an arm, and leave room for its spectra."""
    for name in ("name", "sigma_origin"):
        group.attrs[name] = np.bytes_(getattr(arm, name).encode())
    for name in ("ln_wave0", "ln_step", "template_sigma_aa"):
        group.attrs[name] = np.float64(getattr(arm, name))
    group.attrs["n_pix"] = np.int32(arm.n_pix)
    if sigma is not None:
        put(group, "sigma", data=sigma)
    for name in parts:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)  # allocate the space at once
        how.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        how.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        put(group, name, shape=(n_model, arm.n_pix), dtype="<f4", dcpl=how)


class Writer:
    """Write rows of a file that create() made; several processes may write at once."""

    def __init__(self, path):
        self.path = path
        with writing(path, *HDF5):
            with h5py.File(path, "r") as file:  # the datasets with a row per model
                self._at = {one.name[1:]: (one.id.get_offset(), one.dtype, one.shape[1:])
                            for group in (file["models"], *file["arms"].values())
                            for name, one in group.items() if name != "sigma"}
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self):
        with writing(self.path):
            os.fsync(self._fd)
            os.close(self._fd)

    def put(self, name, i, row):
        at, dtype, shape = self._at[name]
        data = np.asarray(row, dtype)
        assert data.shape == shape
        with writing(self.path):
            n = os.pwrite(self._fd, data.tobytes(), at + i * data.nbytes)
            if n < data.nbytes:  # the disk is full but for n bytes
                os.pwrite(self._fd, data.tobytes()[n:], at + i * data.nbytes + n)


def revise(path, models):
    """Rewrite labels, stamps, reasons and status of all models.  The status comes last: if the job
    is killed before, bad models stay bad."""
    with writing(path, *HDF5), h5py.File(path, "r+") as file:
        file.attrs.modify("complete", np.int32(0))
        for name in ("label", "stamp", "why", "status"):
            file[f"models/{name}"][...] = getattr(models, name)
            file.flush()


def finish(path):
    """Mark the file complete: no model is still to do."""
    with writing(path, *HDF5), h5py.File(path, "r+") as file:
        file.attrs.modify("complete", np.int32(1))
