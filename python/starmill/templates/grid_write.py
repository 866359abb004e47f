# SPDX-License-Identifier: BSD-3-Clause
"""Writes grid files (docs/use/formats.md, "Grid file"); grid_models.py reads them.  create() makes
the file, contiguous datasets with room for all models.  A Writer writes rows at their offsets,
without HDF5, and a model's status last, so the file is valid whenever the Writer is killed."""

import errno
import os
from dataclasses import dataclass

import h5py
import numpy as np

from starmill.cli.basics import INPUT, need, replacing, writing

NAME, WHY = 64, 128  # bytes of a name and of a reason, final zero included
MAX_SETTINGS = 60000  # bytes; HDF5 limits an attribute to 64 KiB
HDF5 = (RuntimeError, ValueError)  # what h5py raises beside OSError when a disk is full
MEANING = {"models/label": "labels of each model, in their units",
           "models/name": "file or row that each model comes from",
           "models/status": "0 still to do, 1 good, 2 bad",
           "models/stamp": "of the file that each model comes from; 0: not known",
           "models/why": "why a model is bad", "labels/name": "names of the labels",
           "sigma": "Gaussian sigma of the spectra at each pixel, Angstrom",
           "flux": "flux density, each model in its own unit",
           "continuum": "continuum in the unit of the flux"}


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
    """Create the file with room for all spectra, under a temporary name, and rename it.  arms:
    [(Arm, sigma [n_pix] or None if it does not vary)].  parts: "flux", and "continuum" if given."""
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
            put(file, "models/label", data=models.label)
            put(file, "models/name", data=models.name.astype(f"S{NAME}"))
            put(file, "models/status", data=models.status.astype("i1"))
            put(file, "models/stamp", data=models.stamp.astype("u8"))
            put(file, "models/why", data=models.why.astype(f"S{WHY}"))
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
    dataset = group.create_dataset(name, **how)
    dataset.attrs["DESCRIPTION"] = np.bytes_(MEANING[name])


def make_arm(group, arm, sigma, parts, n_model):
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
            with h5py.File(path, "r") as file:
                self._at = {name: (dataset.id.get_offset(), dataset.dtype, dataset.shape[1:])
                            for name, dataset in datasets(file)}
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self):
        with writing(self.path):
            os.fsync(self._fd)
            os.close(self._fd)

    def put(self, name, i, row):
        """Write row i of a dataset."""
        at, dtype, shape = self._at[name]
        data = np.asarray(row, dtype)
        assert data.shape == shape
        with writing(self.path):
            n = os.pwrite(self._fd, data.tobytes(), at + i * data.nbytes)
            if n < data.nbytes:  # the disk is full but for n bytes
                os.pwrite(self._fd, data.tobytes()[n:], at + i * data.nbytes + n)


def datasets(file):
    """Yield (name, dataset) of all datasets with one row per model."""
    for group in (file["models"], *file["arms"].values()):
        for name, dataset in group.items():
            if name != "sigma":
                yield f"{group.name[1:]}/{name}", dataset


def revise(path, models):
    """Rewrite labels, stamps, reasons and status of all models.  The status is written last, so
    bad models stay bad if the job is killed before."""
    with writing(path, *HDF5), h5py.File(path, "r+") as file:
        file.attrs.modify("complete", np.int32(0))
        for name in ("label", "stamp", "why", "status"):
            file[f"models/{name}"][...] = getattr(models, name)
            file.flush()


def finish(path):
    """Mark the file complete: no model is still to do."""
    with writing(path, *HDF5), h5py.File(path, "r+") as file:
        file.attrs.modify("complete", np.int32(1))
