# SPDX-License-Identifier: BSD-3-Clause
"""The file of a template library (docs/use/formats.md, "Library file"): read and write."""

import contextlib
import errno
import io
import os

import h5py
import numpy as np

from starmill.cli.basics import (OUTPUT, USAGE, Failure, as_failure, ascii_of, check_output,
                                 need, refuse_foreign, version, write_whole)
from starmill.templates.library_data import (MAX_COEF, MAX_PIX, Arm, Emulator, Hull, Label, Library,
                                             ModelError, Radial, SplineGrid)

FORMAT, VERSION, NO_HASH = "starmill library", 4, "0" * 64


def check(path, image=None):
    """Raise a Failure unless a library file is complete, finite, consistent and within the limits;
    return its hash.  image: the file's bytes, if it is not on disk yet."""
    from starmill import binding  # 0.1 s
    found, ffi = binding.ffi.new("char[65]"), binding.ffi
    data, size = (ffi.NULL, 0) if image is None else (ffi.from_buffer(image), len(image))
    with as_failure(USAGE, "", binding.StarmillError):
        binding.call(binding.lib.starmill_library_check, os.fsencode(path), data, size, found)
    return binding.text(found)


def seal(library, path, program=None):
    """Return the checked bytes of a library's file; set library.hash.  program: path of starmill,
    whose version the file names."""
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        _attributes(file, format=FORMAT, format_version=VERSION, written_by=version(program),
                    name=library.name, hash=NO_HASH)
        _write_contents(file, library)
        if library.report is not None:
            _attributes(file, report=library.report)
    library.hash = check(path, image.getbuffer())
    # overwrite NO_HASH by the hash; attributes lie in the first 64 KiB of the file
    image.seek(image.getbuffer()[:1 << 16].tobytes().index(NO_HASH.encode()))
    image.write(library.hash.encode())
    return image.getbuffer()


def read(path):
    found = check(path)
    with opened(path, USAGE) as file, file:  # it may be replaced after the check
        library = Library(name=text_of(file, "name"), hash=found, path=path)
        library.report = text_of(file, "report") if "report" in file.attrs else None
        for i in range(file["labels"].attrs["n_label"]):
            group = file[f"labels/label{i}"]
            library.label.append(Label(*(text_of(group, key) for key in ("name", "column", "unit")),
                                       int(group.attrs["mapping"]),
                                       *(float(group.attrs[key]) for key in
                                         ("mean", "std", "min", "max", "scale", "floor"))))
        for i in range(file["hulls"].attrs["n_hull"]):
            library.hull.append(Hull(_array(file, f"hulls/hull{i}/labels", "i4"),
                                     _array(file, f"hulls/hull{i}/facets")))
        for i in range(file["arms"].attrs["n_arm"]):
            library.arm.append(_read_arm(file[f"arms/arm{i}"], library.n_label))
        library.guess_label = _array(file, "guess/labels")
        library.guess_vsini_km_s = _array(file, "guess/vsini")
        return library


def _read_arm(group, n_label):
    kind, front = text_of(group, "emulator"), None
    if kind == "grid":
        front = SplineGrid(int(group["grid"].attrs["degree"]),
                           [_array(group, f"grid/knots{i}") for i in range(n_label)],
                           _array(group, "grid/coefficients", "f4"))
    elif kind == "rbf":
        front = Radial(int(group["rbf"].attrs["degree"]), _array(group, "rbf/lengths"),
                       _array(group, "rbf/centers"), _array(group, "rbf/coefficients", "f4"))
    layers = range(group.attrs["n_layer"])
    weight, bias = ([_array(group, f"layer{i}/{what}", "f4") for i in layers]
                    for what in ("weight", "bias"))
    emulator = Emulator(weight, bias, front, int(group.attrs["log_flux"]))
    error = None
    if "model_error" in group:
        error = ModelError(_array(group, "model_error/fraction", "f4"),
                           float(group["model_error"].attrs["correlation"]))
        if "components" in group["model_error"]:
            error.component = _array(group, "model_error/components", "f4")
            error.sigma = _array(group, "model_error/sigmas")
    return Arm(text_of(group, "name"), text_of(group, "setup"), float(group.attrs["ln_wave0"]),
               float(group.attrs["ln_step"]), _array(group, "wavelength"), emulator, error,
               float(group.attrs["template_sigma"]),
               *(text_of(group, key) for key in ("template_sigma_origin", "source", "revision")))


def _array(group, name, dtype="f8"):
    return group[name][...].astype(dtype, copy=False)


@contextlib.contextmanager
def opened(path, status):
    """Yield an HDF5 file, which the caller closes.  Refuse links out of the file.  Turn an error in
    the with block into a Failure of this status that names the file."""
    try:
        file = h5py.File(path, "r")
        refuse_links(path, file)
        yield file
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise Failure(status, f"{path}: cannot be read: {reason}") from error
    except KeyError as error:
        raise Failure(status, f"{path}: {error.args[0]}") from error
    except (ValueError, TypeError, RuntimeError, AttributeError, OverflowError) as error:
        raise Failure(status, f"{path}: {error}") from error


def refuse_links(path, file):
    """Refuse links out of the file, which would let it read other files."""
    def look(name, item):
        if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
            raise Failure(USAGE, f"{path}: dataset /{name} keeps its data in another file, "
                          "which is refused; copy it with h5repack")
        for key in item if isinstance(item, h5py.Group) else ():
            need(isinstance(item.get(key, getlink=True), h5py.HardLink), USAGE,
                 f"{path}: {item.name}/{key} is a link, which may lead out of the file")
    look("", file)
    file.visititems(look)


def text_of(group, name):
    """Return a text attribute of a group, stored as bytes or as str."""
    need(name in group.attrs, KeyError, f"attribute {name} of {group.name} is missing")
    value = group.attrs[name]
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def array_of(group, name, dtype, n_dim):
    """Return a numeric dataset that has n_dim dimensions."""
    need(name in group, KeyError, f"dataset {group.name.rstrip('/')}/{name} is missing")
    data = group[name]
    if not isinstance(data, h5py.Dataset) or data.ndim != n_dim or data.dtype.kind not in "iuf":
        raise ValueError(f"{data.name} must be an array of numbers with {n_dim} dimensions")
    if not 1 <= data.size <= MAX_COEF or max(data.shape) > MAX_PIX:
        raise ValueError(f"dataset {data.name} has the impossible shape {data.shape}")
    return data[...].astype(dtype, copy=False)


def writable(path, overwrite, reads=()):
    """Refuse a path that cannot be written; return it without links.  reads: see check_output."""
    end = os.path.realpath(path)
    need(not os.path.exists(end) or os.path.isfile(end), OUTPUT,
         f"{end}: exists and is not a regular file; give another name")
    check_output(end, overwrite, reads)
    refuse_foreign(end, FORMAT)
    folder = os.path.dirname(end)
    if not os.access(folder, os.W_OK | os.X_OK):
        reason = os.strerror(errno.EACCES if os.path.isdir(folder) else errno.ENOENT)
        raise Failure(OUTPUT, f"{end}: cannot be written into the folder {folder}: {reason}")
    return end


def write(path, library, overwrite=False, program=None):
    """Write the whole file or nothing; follow a link at path.  program: as for seal."""
    write_whole(writable(path, overwrite), [seal(library, path, program)], overwrite)


def _write_contents(file, library):
    _attributes(file.create_group("labels"), n_label=library.n_label)
    for i, label in enumerate(library.label):
        _attributes(file.create_group(f"labels/label{i}"), **vars(label))
    _attributes(file.create_group("hulls"), n_hull=len(library.hull))
    for i, hull in enumerate(library.hull):
        _dataset(file, f"hulls/hull{i}/labels", hull.label, "<i4",
                 "indices of the labels that this hull spans")
        _dataset(file, f"hulls/hull{i}/facets", hull.facet, "<f8",
                 "unit normals and offsets in mapped labels, inside: a.x + b <= 0")
    _attributes(file.create_group("arms"), n_arm=len(library.arm))
    for i, arm in enumerate(library.arm):
        _write_arm(file.create_group(f"arms/arm{i}"), arm)
    _dataset(file, "guess/labels", library.guess_label, "<f8",
             "labels of the templates of the initial guess, in the labels' units")
    _dataset(file, "guess/vsini", library.guess_vsini_km_s, "<f8",
             "v sin i at which each template is tried", "km s**-1")


def _write_arm(group, arm):
    emulator, front = arm.emulator, arm.emulator.front
    kind = "mlp" if front is None else "grid" if isinstance(front, SplineGrid) else "rbf"
    _attributes(group, name=arm.name, setup=arm.setup, ln_wave0=arm.ln_wave0, ln_step=arm.ln_step,
                template_sigma=arm.template_sigma_aa, template_sigma_origin=arm.sigma_origin,
                source=arm.source, revision=arm.revision, emulator=kind,
                log_flux=emulator.log_flux, n_layer=len(emulator.weight))
    _dataset(group, "wavelength", arm.wave_aa, "<f8",
             "vacuum wavelength, uniform in its logarithm", "Angstrom")
    if kind == "mlp":
        _attributes(group, activation="silu")
    elif kind == "grid":
        for i, knot in enumerate(front.knot):
            _dataset(group, f"grid/knots{i}", knot, "<f8", "knots of this label, mapped")
        _dataset(group, "grid/coefficients", front.coef, "<f4",
                 "spline coefficients, by label in their order and then by component")
        _attributes(group["grid"], degree=front.degree)
    else:
        _dataset(group, "rbf/lengths", front.length, "<f8",
                 "units of the mapped labels in which distances are measured")
        _dataset(group, "rbf/centers", front.center, "<f8",
                 "mapped labels of the radial functions' centers")
        _dataset(group, "rbf/coefficients", front.coef, "<f4",
                 "of the centers, then of the polynomial's terms, by component")
        _attributes(group["rbf"], degree=front.degree)
    for i, (weight, bias) in enumerate(zip(emulator.weight, emulator.bias)):
        _dataset(group, f"layer{i}/weight", weight, "<f4", "weights, one row per output")
        _dataset(group, f"layer{i}/bias", bias, "<f4", "biases, one per output")
    if arm.error is None:
        return
    group, error = group.create_group("model_error"), arm.error
    _attributes(group, correlation=error.correlation)
    _dataset(group, "fraction", error.fraction, "<f4",
             "rms of what the components leave, relative to the template's flux")
    if error.component is not None and len(error.component) > 0:
        _dataset(group, "sigmas", error.sigma, "<f8",
                 "standard deviations of the components' shares")
        _dataset(group, "components", error.component, "<f4",
                 "patterns of error relative to the template's flux")


def _attributes(group, **values):
    for name, value in values.items():
        if isinstance(value, str):  # fixed length keeps it near the file's start
            group.attrs.create(name, ascii_of(value).encode(), dtype=f"S{max(1, len(value))}")
        else:
            group.attrs[name] = np.int32(value) if isinstance(value, int) else np.float64(value)


def _dataset(group, name, data, dtype, description, unit=None):
    dataset = group.create_dataset(name, data=np.asarray(data, dtype))
    _attributes(dataset, description=description, **({"unit": unit} if unit else {}))
