# SPDX-License-Identifier: BSD-3-Clause
"""A template library in memory, and the file of it (docs/use/formats.md, "Library file").

The fields are those of kernels/data/library.h.  Shapes: slowest axis first.
"""

import errno
import hashlib
import io
import os
from dataclasses import dataclass, field

import h5py
import numpy as np

from basics import OUTPUT, USAGE, Failure, check_output, refuse_foreign, version, write_whole

FORMAT, VERSION = "starmill library", 3
MAX_LABEL, MAX_AXIS, MAX_HULL, MAX_FACET, MAX_ARM = 16, 6, 16, 100000, 8
MIN_PIX, MAX_PIX, MAX_LAYER, MAX_WIDTH, MAX_NODE = 8, 1 << 20, 12, 1024, 256
MAX_COEF, MAX_CENTER, MAX_ERROR, MAX_GUESS, MAX_VSINI = 1 << 28, 1 << 16, 16, 100000, 8
MAX_SIGMA_WIDTH = 0.25  # largest plausible sigma of the templates, by the width of the arm
LIGHT_KM_S = 299792.458
MAX_FRACTION = 10.0  # of the flux: a larger model error makes a template useless


@dataclass
class Label:
    name: str
    column: str = ""
    unit: str = ""
    mapping: int = 0  # 0: linear, 1: log10
    mean: float = 0.0  # of the mapped value
    std: float = 1.0
    min: float = 0.0  # of the training stars, in the label's unit
    max: float = 0.0
    scale: float = 0.0  # typical uncertainty, in the label's unit

    def map(self, value):
        return ((np.log10(value) if self.mapping else np.asarray(value)) - self.mean) / self.std

    def unmap(self, mapped):
        x = np.asarray(mapped) * self.std + self.mean
        return 10.0 ** x if self.mapping else x


@dataclass
class Hull:
    label: np.ndarray  # int [n]: which labels it spans
    facet: np.ndarray  # [n_facet][n + 1]: unit normals and offsets, inside a.x + b <= 0, mapped


@dataclass
class SplineGrid:
    """B-splines over every label, before the last layer."""
    degree: int  # 1 or 3
    knot: list  # of each label [n_node + degree + 1], mapped
    coef: np.ndarray  # float32 [n_node of label 0]...[n_out]


@dataclass
class Radial:
    """|u - u_i|^3 around centers and a polynomial of u = x / length, before the last layer."""
    degree: int
    length: np.ndarray  # [n_label]
    center: np.ndarray  # [n_center][n_label], mapped
    coef: np.ndarray  # float32 [n_center + n_poly][n_out]


@dataclass
class Emulator:
    weight: list  # of each layer, float32 [n_out][n_in]; the first takes mapped labels or front
    bias: list  # float32 [n_out]
    front: object = None  # SplineGrid or Radial; None: a network
    log_flux: int = 1  # flux = exp(y)


@dataclass
class ModelError:
    fraction: np.ndarray  # float32 [n_pix]: rms of what the components leave, by the flux
    correlation: float = 0.0  # pixels
    component: np.ndarray = None  # float32 [n_component][n_pix], or None
    sigma: np.ndarray = None  # [n_component]


@dataclass
class Arm:
    name: str
    setup: str
    ln_wave0: float  # of the first vacuum wavelength in A
    ln_step: float
    wave_aa: np.ndarray  # [n_pix]
    emulator: Emulator = None
    error: ModelError = None
    template_sigma_aa: float = -1.0  # Gaussian of the templates; negative: the instrument's own
    sigma_origin: str = ""
    source: str = ""
    revision: str = ""

    @property
    def n_pix(self):
        return len(self.wave_aa)


@dataclass
class Library:
    label: list = field(default_factory=list)
    hull: list = field(default_factory=list)
    arm: list = field(default_factory=list)
    guess_label: np.ndarray = None  # [n_guess][n_label], in the labels' units
    guess_vsini_km_s: np.ndarray = None
    name: str = ""
    hash: str = ""
    path: str = ""
    report: str = None  # how good it is, lines of text

    @property
    def n_label(self):
        return len(self.label)

    def map(self, values):
        """Mapped labels of values [..., n_label]."""
        return np.stack([label.map(np.asarray(values)[..., i])
                         for i, label in enumerate(self.label)], axis=-1)


def wavelengths(ln_wave0, ln_step, n_pix):
    return np.exp(ln_wave0 + np.arange(n_pix) * ln_step)


def n_poly(n_axis, degree):
    """Monomials of n_axis variables up to a degree."""
    n = 1
    for i in range(1, degree + 1):
        n = n * (n_axis + i) // i
    return n


def hull_distance(library, values):
    """The largest facet value over all hulls at values [n][n_label], 0 inside."""
    mapped = library.map(values)
    distance = np.zeros(len(mapped))
    for hull in library.hull:
        for block in np.array_split(np.arange(len(mapped)), len(mapped) // 1024 + 1):
            x = mapped[np.ix_(block, hull.label)]
            value = (x @ hull.facet[:, :-1].T + hull.facet[:, -1]).max(axis=1)
            distance[block] = np.where(value > distance[block], value, distance[block])
            distance[block[np.isnan(value)]] = np.nan
    return distance


# ---- digest ------------------------------------------------------------------------------------


def digest(library):
    """SHA-256 of what a fit depends on, lower-case hexadecimal."""
    sha = hashlib.sha256()

    def put(kind, *values):
        for value in values:
            if kind == "t":
                put("<i8", len(value.encode()))
                sha.update(value.encode())
            else:
                sha.update(np.ascontiguousarray(value, kind).data)

    put("t", "starmill library contents 3")
    put("<i8", library.n_label)
    for label in library.label:
        put("t", label.name, label.column, label.unit)
        put("<i8", label.mapping)
        put("<f8", label.mean, label.std, label.min, label.max, label.scale)
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
    """The library of a file, whose contents agree with its hash."""
    try:
        with h5py.File(path, "r") as file:
            library = _read_all(path, file)
            stored = text_of(file, "hash")
    except KeyError as error:
        raise Failure(USAGE, f"{path}: {error.args[0]}") from error
    except (OSError, ValueError, TypeError, RuntimeError) as error:
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
                                     ("mean", "std", "min", "max", "scale"))))
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
               float(group.attrs["ln_step"]), array_of(group, "wavelength", "f8", 1), emulator, error,
               float(group.attrs["template_sigma"]),
               *(text_of(group, key) for key in ("template_sigma_origin", "source", "revision")))


def refuse_links(path, file):
    """Links to elsewhere would let a file read others."""
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
    """Attribute of a group, of either kind of text."""
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
    """A dataset of numbers with as many dimensions."""
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
    write_whole(end, [image.getbuffer()])


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


# ---- check -------------------------------------------------------------------------------------


def check(library, where):
    """Complete, finite, consistent and within the limits, or a Failure."""
    def need(good, message):
        if not good:
            raise Failure(USAGE, f"{where}: {message}")

    need(printable(library.name) and len(library.name) < 128,
         "the library's name is too long or has unprintable characters")
    need(library.report is None or len(library.report) < 32768
         and printable(library.report.replace("\n", "")),
         "attribute report is too long or has unprintable characters")
    _check_labels(need, library)
    _check_hulls(need, library)
    need(1 <= len(library.arm) <= MAX_ARM,
         f"has {len(library.arm)} arms, this program takes 1 to {MAX_ARM}")
    for i, arm in enumerate(library.arm):
        need(is_name(arm.name) and arm.name == arm.name.lower(),
             f"the name of arm {i} is not made of lower-case letters, digits and _")
        need(arm.name not in [other.name for other in library.arm[:i]],
             f"two arms are called {arm.name}")
        _check_arm(need, arm)
        _check_emulator(need, library, arm)
        if arm.error is not None:
            _check_error(need, arm)
    guess, vsini = np.asarray(library.guess_label), np.asarray(library.guess_vsini_km_s)
    need(guess.ndim == 2 and 1 <= len(guess) <= MAX_GUESS and guess.shape[1] == library.n_label,
         f"has templates of the initial guess of shape {guess.shape}, expected 1 to {MAX_GUESS} "
         f"of {library.n_label} labels")
    with np.errstate(invalid="ignore", divide="ignore"):
        outside = ~(hull_distance(library, guess) <= 1e-9)  # labels of points on a facet round
    need(not outside.any(), f"template {np.argmax(outside)} of the initial guess is not finite or "
                            "outside the hulls")
    need(vsini.ndim == 1 and 1 <= len(vsini) <= MAX_VSINI and np.isfinite(vsini).all()
         and (vsini >= 0).all(), "the v sin i of the initial guess are impossible")


def is_name(text):
    """Names become keys of configuration files and columns."""
    return 0 < len(text) < 32 and text.isascii() and text.replace("_", "a").isalnum()


def printable(text):
    return text.isascii() and (text.isprintable() or not text)


def _check_labels(need, library):
    need(1 <= library.n_label <= MAX_LABEL,
         f"has {library.n_label} labels, this program takes 1 to {MAX_LABEL}")
    for i, label in enumerate(library.label):
        need(is_name(label.name) and is_name(label.column),
             f"name or column of label {i} is not made of letters, digits and _")
        need(printable(label.unit) and len(label.unit) < 32,
             f"the unit of label {label.name} is too long or has unprintable characters")
        need(label.name not in ("vrad", "vsini") and label.column not in ("VRAD", "VSINI"),
             f"a label may not be called {label.name} (column {label.column}), every fit has one "
             "already")
        need(all(label.name != other.name and label.column != other.column
                 for other in library.label[:i]),
             f"label {label.name} (column {label.column}) appears twice")
        need(label.mapping in (0, 1), f"mapping {label.mapping} of label {label.name}, expected 0 "
                                      "(linear) or 1 (log10)")
        need(np.isfinite(label.mean) and np.isfinite(label.std) and label.std > 0,
             f"label {label.name} has mean {label.mean:g} and std {label.std:g}; they must be "
             "finite and std above 0")
        need(np.isfinite([label.min, label.max]).all() and label.min < label.max
             and (label.mapping == 0 or label.min > 0),
             f"label {label.name} has the impossible range {label.min:g} to {label.max:g}")
        need(np.isfinite(label.scale) and label.scale > 0,
             f"the scale {label.scale:g} of label {label.name} is not above 0")


def _check_hulls(need, library):
    need(1 <= len(library.hull) <= MAX_HULL,
         f"has {len(library.hull)} hulls, this program takes 1 to {MAX_HULL}")
    for i, hull in enumerate(library.hull):
        spans = [int(label) for label in hull.label]
        n = len(spans)
        need(n >= 1 and len(set(spans)) == n and all(0 <= j < library.n_label for j in spans),
             f"hull {i} spans the labels {spans} of {library.n_label}")
        need(hull.facet.ndim == 2 and hull.facet.shape[1] == n + 1
             and n < len(hull.facet) <= MAX_FACET,
             f"hull {i} over {n} labels has facets of shape {hull.facet.shape}, expected {n + 1} "
             f"to {MAX_FACET} facets")
        length = np.sqrt((hull.facet[:, :-1] ** 2).sum(axis=1))
        need((np.abs(length - 1) <= 1e-6).all() and np.isfinite(hull.facet).all(),
             f"a normal of hull {i} has not the length 1, or its offset is not finite")
    inside = {int(label) for hull in library.hull for label in hull.label}
    for i, label in enumerate(library.label):
        need(i in inside, f"label {label.name} is in no hull, so a fit could leave the training "
                          "stars")


def _check_arm(need, arm):
    name = arm.name
    for text, size in ((arm.setup, 32), (arm.sigma_origin, 160), (arm.source, 128),
                       (arm.revision, 64)):
        need(printable(text) and len(text) < size,
             f"a text of arm {name} is too long or has unprintable characters")
    need(MIN_PIX <= arm.n_pix <= MAX_PIX,
         f"arm {name} has {arm.n_pix} pixels, this program takes {MIN_PIX} to {MAX_PIX}")
    need(np.isfinite([arm.ln_wave0, arm.ln_step]).all() and arm.ln_step > 0,
         f"the step of arm {name} in ln wavelength is {arm.ln_step:g}, expected above 0")
    with np.errstate(invalid="ignore", divide="ignore"):
        off = ~(np.abs(np.log(arm.wave_aa) - (arm.ln_wave0 + np.arange(arm.n_pix) * arm.ln_step))
                <= 1e-6 * arm.ln_step)
    need(not off.any(), f"the wavelengths of arm {name} are not uniform in ln wavelength (pixel "
                        f"{np.argmax(off)} at {arm.wave_aa[np.argmax(off)]:.9g} A)")
    most = MAX_SIGMA_WIDTH * (arm.wave_aa[-1] - arm.wave_aa[0])
    need(np.isfinite(arm.template_sigma_aa) and arm.template_sigma_aa <= most,
         f"the templates of arm {name} have a sigma of {arm.template_sigma_aa:g} A, expected at "
         f"most {most:.3g}")


def _check_emulator(need, library, arm):
    emulator, front = arm.emulator, arm.emulator.front
    n_in, before = library.n_label, "the labels"
    if front is not None:
        what = "grid" if isinstance(front, SplineGrid) else "radial functions"
        need(library.n_label <= MAX_AXIS, f"the emulator of arm {arm.name} ({what}) has "
                                          f"{library.n_label} labels, this program takes 1 to "
                                          f"{MAX_AXIS}")
        need(len(emulator.weight) == 1, f"the {what} of arm {arm.name} must have one layer behind")
        (_check_grid if isinstance(front, SplineGrid) else _check_radial)(need, library, arm)
        n_in, before = front.coef.shape[-1], f"components of the {what}"
        need(n_in <= MAX_WIDTH, f"the {what} of arm {arm.name} has {n_in} components, this program "
                                f"takes 1 to {MAX_WIDTH}")
        need(front.coef.size <= MAX_COEF and np.isfinite(front.coef).all(),
             f"the {what} of arm {arm.name} has a coefficient that is not finite, or more than "
             f"{MAX_COEF}")
    need(1 <= len(emulator.weight) <= MAX_LAYER and len(emulator.bias) == len(emulator.weight),
         f"the emulator of arm {arm.name} has {len(emulator.weight)} layers, this program takes 1 "
         f"to {MAX_LAYER}")
    need(emulator.log_flux in (0, 1), f"log_flux of arm {arm.name} is not 0 or 1")
    for i, (weight, bias) in enumerate(zip(emulator.weight, emulator.bias)):
        last = i == len(emulator.weight) - 1
        need(weight.shape[1] == n_in, f"layer {i} of arm {arm.name} takes {weight.shape[1]} "
                                      f"inputs, expected {n_in} ({before})")
        need(len(weight) == arm.n_pix if last else len(weight) <= MAX_WIDTH,
             f"layer {i} of arm {arm.name} gives {len(weight)} outputs, expected "
             + (f"{arm.n_pix} pixels" if last else f"at most {MAX_WIDTH}"))
        need(bias.shape == (len(weight),) and np.isfinite(weight).all()
             and np.isfinite(bias).all(),
             f"layer {i} of arm {arm.name} has a weight or bias that is not finite")
        n_in, before = len(weight), "outputs of the layer before"


def _check_grid(need, library, arm):
    grid = arm.emulator.front
    need(grid.degree in (1, 3), f"the degree of the grid of arm {arm.name} is {grid.degree}, "
                                "expected 1 or 3")
    need(len(grid.knot) == library.n_label and grid.coef.ndim == library.n_label + 1,
         f"the grid of arm {arm.name} has not the library's {library.n_label} labels")
    d = grid.degree
    for label, knot, n_node in zip(library.label, grid.knot, grid.coef.shape):
        need(d < n_node <= MAX_NODE, f"the grid of arm {arm.name} has {n_node} nodes of label "
                                     f"{label.name}, this program takes {d + 1} to {MAX_NODE}")
        step = np.diff(knot)
        need(len(knot) == n_node + d + 1 and np.isfinite(knot).all() and (step[:d] == 0).all()
             and (step[d:-d] > 0).all() and (step[-d:] == 0).all(),
             f"the knots of label {label.name} of arm {arm.name} do not ascend between {d + 1} "
             "equal ones at each end")


def _check_radial(need, library, arm):
    radial = arm.emulator.front
    need(0 <= radial.degree <= 3, f"the polynomial of arm {arm.name} has degree {radial.degree}, "
                                  "this program takes 0 to 3")
    need(radial.center.shape[1] == library.n_label == len(radial.length),
         f"the radial functions of arm {arm.name} have not the library's {library.n_label} labels")
    need(len(radial.center) <= MAX_CENTER and np.isfinite(radial.center).all(),
         f"arm {arm.name} has more than {MAX_CENTER} centers, or one that is not finite")
    need(np.isfinite(radial.length).all() and (radial.length > 0).all(),
         f"a length of arm {arm.name} is not above 0")
    need(len(radial.coef) == len(radial.center) + n_poly(library.n_label, radial.degree),
         f"arm {arm.name} has {len(radial.coef)} coefficients for {len(radial.center)} centers and "
         f"a polynomial of degree {radial.degree}")


def _check_error(need, arm):
    error = arm.error
    need(len(error.fraction) == arm.n_pix and (error.fraction >= 0).all()
         and (error.fraction <= MAX_FRACTION).all(),
         f"the model error of arm {arm.name} has a pixel that is not 0 to {MAX_FRACTION:g} of the "
         "flux")
    need(0 <= error.correlation <= arm.n_pix, f"the model error of arm {arm.name} is correlated "
                                              f"over {error.correlation:g} pixels, expected 0 to "
                                              f"{arm.n_pix}")
    if error.component is None:
        return
    sigma = np.asarray(error.sigma)
    need(len(error.component) <= MAX_ERROR and error.component.shape[1] == arm.n_pix
         and np.isfinite(error.component).all(),
         f"the components of the model error of arm {arm.name} are more than {MAX_ERROR} or not "
         "finite")
    need(sigma.shape == (len(error.component),) and (sigma >= 0).all()
         and (sigma <= MAX_FRACTION).all(),
         f"a component of the model error of arm {arm.name} has a standard deviation that is not "
         f"0 to {MAX_FRACTION:g}")
