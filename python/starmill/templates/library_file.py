# SPDX-License-Identifier: BSD-3-Clause
"""The file of a template library (docs/use/formats.md, "Library file"): read, write, digest."""

import errno
import hashlib
import io
import os

import h5py
import numpy as np

from starmill.cli.basics import (OUTPUT, USAGE, Failure, check_output, refuse_foreign, version,
                                 write_whole)
from starmill.templates.library_check import check
from starmill.templates.library_data import (MAX_ARM, MAX_COEF, MAX_HULL, MAX_LABEL, MAX_LAYER,
                                             MAX_PIX, Arm, Emulator, Hull, Label, Library,
                                             ModelError, Radial, SplineGrid)

FORMAT, VERSION = "starmill library", 4


# ---- digest ------------------------------------------------------------------------------------


def digest(library):
    """Return the SHA-256, in lower-case hexadecimal, of everything a fit depends on."""
    sha = hashlib.sha256()

    def put(kind, *values):
        for value in values:
            if kind == "t":
                put("<i8", len(value.encode()))
                sha.update(value.encode())
            else:
                sha.update(np.ascontiguousarray(value, kind).data)

    put("t", "starmill library contents 4")
    put("<i8", library.n_label)
    for label in library.label:
        put("t", label.name, label.column, label.unit)
        put("<i8", label.mapping)
        put("<f8", label.mean, label.std, label.min, label.max, label.scale,
            label.floor)
    put("<i8", len(library.hull))
    for hull in library.hull:
        put("<i8", len(hull.label), hull.label, len(hull.facet))
        put("<f8", hull.facet)
    put("<i8", len(library.arm))
    for arm in library.arm:
        put("t", arm.name, arm.setup)
        put("<i8", arm.n_pix)
        put("<f8", arm.ln_wave0, arm.ln_step, arm.template_sigma_aa, arm.wave_aa)
        put("<i8", arm.emulator.log_flux)
        _put_emulator(put, arm.emulator)
        put("<i8", int(arm.error is not None))
        if arm.error is not None:
            n = 0 if arm.error.component is None else len(arm.error.component)
            put("<f4", arm.error.fraction)
            put("<f8", arm.error.correlation)
            put("<i8", n)
            if n > 0:
                put("<f8", arm.error.sigma)
                put("<f4", arm.error.component)
    put("<i8", len(library.guess_label))
    put("<f8", library.guess_label)
    put("<i8", len(library.guess_vsini_km_s))
    put("<f8", library.guess_vsini_km_s)
    return sha.hexdigest()


def _put_emulator(put, emulator):
    front = emulator.front
    if front is None:
        put("<i8", 0)
    elif isinstance(front, SplineGrid):
        put("<i8", 1, front.degree, len(front.knot))
        for knot, n_node in zip(front.knot, front.coef.shape):
            put("<i8", n_node)
            put("<f8", knot)
    else:
        put("<i8", 2, front.center.shape[1], front.center.shape[0], front.degree)
        put("<f8", front.length, front.center)
    if front is not None:
        put("<i8", front.coef.shape[-1])
        put("<f4", front.coef)
    put("<i8", len(emulator.weight))
    for weight, bias in zip(emulator.weight, emulator.bias):
        put("<i8", weight.shape[1], weight.shape[0])
        put("<f4", weight, bias)


# ---- reading -----------------------------------------------------------------------------------


def read(path):
    """Read a library from a file and check its contents against its hash."""
    try:
        with h5py.File(path, "r") as file:
            library = _read_all(path, file)
            stored = text_of(file, "hash")
    except KeyError as error:
        raise Failure(USAGE, f"{path}: {error.args[0]}") from error
    except (OSError, ValueError, TypeError, RuntimeError, AttributeError, OverflowError) as error:
        reason = os.strerror(error.errno) if getattr(error, "errno", None) else error
        raise Failure(USAGE, f"{path}: cannot be read: {reason}") from error
    check(library, path)
    library.hash = digest(library)
    if library.hash != stored:
        raise Failure(USAGE, f"{path}: its contents do not match its attribute hash, so it was "
                             "damaged or changed; make it again")
    library.path = path
    return library


def _read_all(path, file):
    if "format" not in file.attrs:
        if "lam" in file and "layer0" in file:
            raise Failure(USAGE, f"{path}: is one arm's emulator, not a library; make one with "
                                 "starmill library import")
        raise Failure(USAGE, f"{path}: is not a starmill library (no attribute format)")
    if text_of(file, "format") != FORMAT:
        raise Failure(USAGE, f"{path}: is not a starmill library (its attribute format is not "
                             f"'{FORMAT}')")
    if file.attrs["format_version"] != VERSION:
        raise Failure(USAGE, f"{path}: has library format {file.attrs['format_version']}, this "
                             f"program reads {VERSION}")
    refuse_links(path, file)
    library = Library(name=text_of(file, "name"))
    library.report = text_of(file, "report") if "report" in file.attrs else None
    for i in range(count_of(file, "labels", "n_label", MAX_LABEL)):
        group = file[f"labels/label{i}"]
        library.label.append(Label(*(text_of(group, key) for key in ("name", "column", "unit")),
                                   int(group.attrs["mapping"]),
                                   *(float(group.attrs[key]) for key in
                                     ("mean", "std", "min", "max", "scale",
                                      "floor"))))
    for i in range(count_of(file, "hulls", "n_hull", MAX_HULL)):
        library.hull.append(Hull(array_of(file, f"hulls/hull{i}/labels", "i4", 1),
                                 array_of(file, f"hulls/hull{i}/facets", "f8", 2)))
    for i in range(count_of(file, "arms", "n_arm", MAX_ARM)):
        library.arm.append(_read_arm(file[f"arms/arm{i}"], library.n_label))
    library.guess_label = array_of(file, "guess/labels", "f8", 2)
    library.guess_vsini_km_s = array_of(file, "guess/vsini", "f8", 1)
    return library


def _read_arm(group, n_label):
    kind = text_of(group, "emulator")
    if kind == "mlp":
        front = None
        if text_of(group, "activation") != "silu":
            raise ValueError(f"the activation of {group.name} is not silu")
    elif kind == "grid":
        front = SplineGrid(int(group["grid"].attrs["degree"]),
                           [array_of(group, f"grid/knots{i}", "f8", 1) for i in range(n_label)],
                           array_of(group, "grid/coefficients", "f4", n_label + 1))
    elif kind == "rbf":
        front = Radial(int(group["rbf"].attrs["degree"]), array_of(group, "rbf/lengths", "f8", 1),
                       array_of(group, "rbf/centers", "f8", 2),
                       array_of(group, "rbf/coefficients", "f4", 2))
    else:
        raise ValueError(f"the emulator of {group.name} is not mlp, grid or rbf")
    layers = range(count_of(group, ".", "n_layer", MAX_LAYER))
    emulator = Emulator([array_of(group, f"layer{i}/weight", "f4", 2) for i in layers],
                        [array_of(group, f"layer{i}/bias", "f4", 1) for i in layers], front,
                        int(group.attrs["log_flux"]))
    error = None
    if "model_error" in group:
        error = ModelError(array_of(group, "model_error/fraction", "f4", 1),
                           float(group["model_error"].attrs["correlation"]))
        if "components" in group["model_error"]:
            error.component = array_of(group, "model_error/components", "f4", 2)
            error.sigma = array_of(group, "model_error/sigmas", "f8", 1)
    return Arm(text_of(group, "name"), text_of(group, "setup"), float(group.attrs["ln_wave0"]),
               float(group.attrs["ln_step"]), array_of(group, "wavelength", "f8", 1), emulator,
               error, float(group.attrs["template_sigma"]),
               *(text_of(group, key) for key in ("template_sigma_origin", "source", "revision")))


def refuse_links(path, file):
    """Refuse links out of the file, which would let it read other files."""
    def look(name, item):
        if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
            raise Failure(USAGE, f"{path}: dataset /{name} is stored outside of the file")
        if isinstance(item, h5py.Group):
            look_links(item)

    def look_links(group):
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise Failure(USAGE, f"{path}: {group.name}/{name} is a link, which may lead out "
                                     "of the file")

    look_links(file)
    file.visititems(look)


def text_of(group, name):
    """Return an attribute of a group, stored as either kind of text."""
    if name not in group.attrs:
        raise KeyError(f"attribute {name} of {group.name} is missing")
    value = group.attrs[name]
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def count_of(file, group, name, most):
    n = int(file[group].attrs[name])
    if not 1 <= n <= most:
        raise ValueError(f"attribute {name} of {group} is {n}, this program takes 1 to {most}")
    return n


def array_of(group, name, dtype, n_dim):
    """Return a numeric dataset that has n_dim dimensions."""
    if name not in group:
        raise KeyError(f"dataset {group.name.rstrip('/')}/{name} is missing")
    data = group[name]
    if not isinstance(data, h5py.Dataset) or data.ndim != n_dim or data.dtype.kind not in "iuf":
        raise ValueError(f"{data.name} is not numbers of {n_dim} dimensions")
    if not 1 <= data.size <= MAX_COEF or max(data.shape) > MAX_PIX:
        raise ValueError(f"dataset {data.name} has the impossible shape {data.shape}")
    return data[...].astype(dtype, copy=False)


# ---- writing -----------------------------------------------------------------------------------


def writable(path, overwrite, reads=()):
    """Before the work: may a library be written there?  The file at the end of its links.
    reads: as check_output takes them."""
    end = os.path.realpath(path)
    if os.path.exists(end) and not os.path.isfile(end):
        raise Failure(OUTPUT, f"{end}: exists and is not a regular file")
    check_output(end, overwrite, reads)
    refuse_foreign(end, FORMAT)
    folder = os.path.dirname(end)
    if not os.access(folder, os.W_OK | os.X_OK):
        reason = os.strerror(errno.EACCES if os.path.isdir(folder) else errno.ENOENT)
        raise Failure(OUTPUT, f"{end}: cannot be written into the folder {folder}: {reason}")
    return end


def write(path, library, overwrite=False, program=None):
    """Whole or not at all; a link at path stays one.  program: whose --version is written."""
    check(library, path)
    end = writable(path, overwrite)
    library.hash = digest(library)
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        _attributes(file, format=FORMAT, format_version=VERSION, written_by=version(program),
                    name=library.name, hash=library.hash)
        _write_contents(file, library)
        if library.report is not None:
            _attributes(file, report=library.report)
    write_whole(end, [image.getbuffer()], overwrite)


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
    if arm.error is not None:
        _write_error(group.create_group("model_error"), arm.error)


def _write_error(group, error):
    _attributes(group, correlation=error.correlation)
    _dataset(group, "fraction", error.fraction, "<f4",
             "rms of what the components leave, relative to the template's flux")
    if error.component is not None and len(error.component) > 0:
        _dataset(group, "sigmas", error.sigma, "<f8", "standard deviations of the components' "
                                                      "shares")
        _dataset(group, "components", error.component, "<f4",
                 "patterns of error relative to the template's flux")


def _attributes(group, **values):
    for name, value in values.items():
        if isinstance(value, str):  # of fixed length, so that it stands near the file's start
            group.attrs.create(name, value.encode(), dtype=f"S{max(1, len(value.encode()))}")
        else:
            group.attrs[name] = np.int32(value) if isinstance(value, int) else np.float64(value)


def _dataset(group, name, data, dtype, description, unit=None):
    dataset = group.create_dataset(name, data=np.asarray(data, dtype))
    _attributes(dataset, description=description, **({"unit": unit} if unit else {}))
