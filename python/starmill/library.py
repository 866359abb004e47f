# SPDX-License-Identifier: BSD-3-Clause
"""The package's interface: libraries, stars, fits and results, by libstarmill."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Optional, Sequence, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .binding import StarmillError, call as _call, copied, ffi as _ffi, lib as _lib, text as _text
from .cli import shipped_file
from .cli.basics import need
from .interchange import Columns, FromOthers, in_unit, symmetric

if TYPE_CHECKING:
    import matplotlib.figure

Floats = NDArray[np.float64]
_TYPES = {_lib.STARMILL_F64: np.float64, _lib.STARMILL_I64: np.int64,
          _lib.STARMILL_I32: np.int32, _lib.STARMILL_U32: np.uint32, _lib.STARMILL_U8: np.uint8}


def version() -> str:
    """Return version and revision of libstarmill."""
    return f"{_text(_lib.starmill_version())} ({_text(_lib.starmill_revision())})"


@dataclass(frozen=True)
class Parameter:
    """Name, column in results, unit and limits of a parameter."""
    name: str
    column: str
    unit: str
    min: float
    max: float


@dataclass
class Spectrum(FromOthers):
    """One spectrum of one arm in one exposure; arrays are copied.

    Args:
        wave, flux (array [n_pix]): flux in any unit; wave in Angstrom (or with unit), ascending.
        ivar, error (array [n_pix]): Inverse variance or error of the flux: give one; kept as ivar.
        name (str, optional): The library's arm (default: cut by wavelength into the arms).
        mask (array [n_pix], optional): Not 0: a bad pixel.  True and masked elements set all bits.
        resolution (array [n_diag, n_pix], optional): Resolution matrix as DESI stores it.
        sigma (number or array [n_pix]): Line-spread sigma, Angstrom; lsf_factor does not apply.
        systematic (number or array [n_pix]): Error to add in quadrature, in the flux's unit.
        exposure (int): 0, 1, ...; number spectra of the same arm as separate exposures.  A
            spectrum that is given twice counts twice.
        air (bool): wave is in air; the key medium is for files only.

    Raises:
        ValueError: Shapes differ, or ivar is beyond single precision.
    """
    wave: ArrayLike
    flux: ArrayLike
    ivar: Optional[ArrayLike] = None
    name: Optional[str] = None
    error: Optional[ArrayLike] = None
    mask: Optional[ArrayLike] = None
    resolution: Optional[ArrayLike] = None
    sigma: Optional[ArrayLike] = None
    systematic: Optional[ArrayLike] = None
    exposure: int = 0
    air: bool = False

    def __post_init__(self) -> None:
        need((self.ivar is None) != (self.error is None), ValueError,
             "a Spectrum needs ivar or error, and not both")
        unit = getattr(self.flux, "unit", None)
        for name, power in {"ivar": -2, "error": 1, "systematic": 1}.items():
            setattr(self, name, in_unit(getattr(self, name), unit, power))
        self.wave = self._pixels(self.wave, np.float64, "wave", np.size(self.wave))
        n_pix = self.wave.size
        self.flux = self._pixels(self.flux, np.float32, "flux", n_pix)
        if self.ivar is None:
            error = self._pixels(self.error, np.float64, "error", n_pix)
            with np.errstate(divide="ignore", invalid="ignore"):
                self.ivar, self.error = np.where(error > 0, error ** -2.0, 0.0), None
        ivar = self._pixels(self.ivar, np.float64, "ivar", n_pix)
        good, held = ivar[np.isfinite(ivar) & (ivar > 0)], np.finfo(np.float32)
        if np.sum(good > held.max) > 0.01 * good.size or 2 * np.sum(good < held.tiny) > good.size:
            raise ValueError("ivar is beyond single precision: give the flux in another unit")
        self.ivar = ivar.astype(np.float32)
        if self.mask is not None:
            masked = np.ma.asarray(self.mask)
            mask = masked.filled(0)  # truth values and masked elements set all bits
            mask = -(mask != 0).astype(int) if mask.dtype.kind in "bf" else mask.astype(int)
            mask = np.where(np.ma.getmaskarray(masked), -1, mask)
            mask |= (mask >> 32 != 0).astype(int) << 31  # bit 31 is set for any bit above
            self.mask = self._pixels(mask, np.int32, "mask", n_pix)
        if self.resolution is not None:
            self.resolution = np.array(self.resolution, np.float32, order="C")
            need(self.resolution.ndim == 2 and self.resolution.shape[1] == n_pix, ValueError,
                 f"resolution has shape {self.resolution.shape}, not (n_diag, {n_pix})")
        for name in ("sigma", "systematic"):
            value = getattr(self, name)
            if value is not None:
                value = value * np.ones(n_pix) if np.ndim(value) == 0 else value
                setattr(self, name, self._pixels(value, np.float32, name, n_pix))

    @staticmethod
    def _pixels(values: ArrayLike, dtype, name: str, n_pix: int) -> NDArray:
        if name in ("wave", "sigma"):
            values = in_unit(values, "Angstrom")
        if hasattr(values, "filled"):  # NumPy's masked arrays, and Astropy's
            values = values.astype(np.float64).filled(np.nan)
        array = np.array(values, dtype, order="C", ndmin=1)
        need(array.shape == (n_pix,), ValueError, f"{name} has shape {array.shape}, not ({n_pix},)")
        return array

    def _fill(self, to) -> None:
        """Fill a starmill_spectrum; the caller keeps self, unchanged, as long as the struct."""
        self._name = _ffi.NULL if self.name is None else _ffi.new("char[]", self.name.encode())
        to.name = self._name
        to.exposure, to.n_pix, to.air = self.exposure, self.wave.size, self.air
        to.n_diag = 0 if self.resolution is None else self.resolution.shape[0]
        to.wave = _ffi.from_buffer("double[]", self.wave)
        for member in ("flux", "ivar", "resolution", "sigma", "systematic"):
            array = getattr(self, member)
            setattr(to, member, _ffi.NULL if array is None else _ffi.from_buffer("float[]", array))
        to.mask = _ffi.NULL if self.mask is None else _ffi.from_buffer("int32_t[]", self.mask)


class Library:
    """A template library with the settings of a fit.

    Args:
        path (str or path-like): A library file, or a shipped library by name, such as fgk.h5.
        **config: Keys of docs/use/configuration.md: ``Library(path, npoly=15, max_vel=500)``.
            ``format="desi"`` cuts the library into DESI's cameras and masks the dichroic.

    Raises:
        StarmillError: The file is no library, or a key or value is wrong.
    """

    def __init__(self, path: str, **config: Any):
        handle = _ffi.new("starmill_library **")
        if not os.path.exists(path):
            shipped = shipped_file(os.path.join("libraries", path))
            path = shipped if os.path.exists(shipped) else path
        plain = {"default": lambda v: getattr(v, "tolist", v.__str__)()}  # NumPy's numbers, paths
        text = "".join(f"{key}: {json.dumps(value, **plain)}\n" for key, value in config.items())
        text = text.replace('"auto"', "auto").replace('"none"', "none")  # quoted words are refused
        _call(_lib.starmill_library_open, str(path).encode(), text.encode(), handle)
        self._handle = _ffi.gc(handle[0], _lib.starmill_library_close)
        self._lock = threading.RLock()
        self._constraints = (
            {item["param"]: item["value"] for item in config.get("fix_param", ())},
            {item["param"]: (item["mean"], item["sigma"]) for item in config.get("priors", ())})
        self.path, self.config = str(path), config

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters in order."""
        found, one = [], _ffi.new("starmill_parameter *")
        for i in range(_lib.starmill_library_n_par(self._handle)):
            _call(_lib.starmill_library_parameter, self._handle, i, one)
            found.append(Parameter(*map(_text, (one.name, one.column, one.unit)), one.min, one.max))
        return found

    @property
    def n_label(self) -> int:
        return _lib.starmill_library_n_label(self._handle)

    @property
    def arms(self) -> dict[str, tuple[float, float]]:
        """Wavelength range [Angstrom] that spectra may cover, by arm."""
        found, one = {}, _ffi.new("starmill_arm *")
        for i in range(_lib.starmill_library_n_arm(self._handle)):
            _call(_lib.starmill_library_arm, self._handle, i, one)
            found[_text(one.name)] = (one.min_wave, one.max_wave)
        return found

    @property
    def hash(self) -> str:
        return _text(_lib.starmill_library_hash(self._handle))

    @property
    def backend(self) -> str:
        return _text(_lib.starmill_library_backend(self._handle))

    def star(self, spectra: Union[Spectrum, Sequence[Spectrum]]) -> "Star":
        """Make a star from one or more spectra, which are copied."""
        listed = []
        for spectrum in [spectra] if isinstance(spectra, Spectrum) else spectra:
            need(isinstance(spectrum, Spectrum), TypeError,  # some objects iterate without end
                 "a star is made of a starmill.Spectrum or several, not of "
                 f"{type(spectra).__name__}: give Spectrum(wave, flux, ivar), or see "
                 "Spectrum.from_specutils and from_table")
            listed.append(replace(spectrum))  # converts attributes that were set since
        array = _ffi.new("starmill_spectrum[]", len(listed))
        for i, spectrum in enumerate(listed):
            spectrum._fill(array[i])
        handle = _ffi.new("starmill_star **")
        _call(_lib.starmill_star_create, self._handle, array, len(listed), handle)
        return Star(self, handle[0], [spectrum.wave.size for spectrum in listed])

    def open(self, path: str) -> "SpectraFile":
        """Open a spectra file in any format of ``starmill fit``."""
        return SpectraFile(self, path)

    def theta(self, **values: float) -> Floats:
        """Return theta [n_par] from parameters by name; the others are 0."""
        return self._by_name(values, 0.0)

    def _by_name(self, values: Mapping[str, float], others: float) -> Floats:
        names = [parameter.name for parameter in self.parameters]
        for name in values:
            need(name in names, KeyError, f"no parameter {name}: give one of {', '.join(names)}")
        return np.array([values.get(name, others) for name in names], np.float64)

    def constrain(self, fixed: Optional[Mapping[str, float]] = None,
                  priors: Optional[Mapping[str, tuple[float, float]]] = None) -> None:
        """Fix parameters, set priors (mean, sigma) for all later calls.  None: keep; {}: remove."""
        with self._lock:
            fixed = dict(self._constraints[0] if fixed is None else fixed)
            priors = dict(self._constraints[1] if priors is None else priors)
            mean, sigma = ({n: prior[k] for n, prior in priors.items()} for k in (0, 1))
            wrong = [n for n in fixed if not np.isfinite(fixed[n])]
            wrong += [n for n in sigma if not sigma[n] > 0]
            need(not wrong, ValueError, f"{', '.join(wrong)}: give finite fixed values, and priors "
                 "(mean, sigma) with sigma above 0")
            self._call(_lib.starmill_library_constrain, *(
                _ffi.from_buffer("double[]", self._by_name(values, others))
                for values, others in ((fixed, np.nan), (mean, 0.0), (sigma, 0.0))))
            self._constraints = fixed, priors

    def _call(self, function, *args) -> None:
        """Call a function of the library under its lock, which another thread's fit may hold."""
        with self._lock:
            _call(function, self._handle, *args)


class Star:
    """The spectra of one star in a library (`Library.star`, `SpectraFile`)."""

    def __init__(self, library: Library, handle, n_pix: Optional[list[int]] = None):
        self.library = library
        self._handle = _ffi.gc(handle, _lib.starmill_star_free)
        self._n_pix = n_pix

    @property
    def n_piece(self) -> int:
        """Number of pieces to fit; a piece is the part of a spectrum in one arm."""
        return _lib.starmill_star_n_piece(self._handle)

    def set_target_id(self, target_id: int) -> None:
        """Set the star's TARGETID in result tables."""
        _lib.starmill_star_set_target_id(self._handle, target_id)

    def plot(self, theta: Optional[ArrayLike] = None, *,
             limits: Optional[tuple[float, float]] = None) -> "matplotlib.figure.Figure":
        """Draw spectra, model and residuals of the best exposure, as ``starmill plot`` does.

        Args:
            theta (array [n_par], optional): Parameters of the model (default: those of a fit).
            limits ((float, float), optional): First and last wavelength, Angstrom in vacuum.

        Raises:
            StarmillError, ValueError: No pixel is usable or in the limits; no fit succeeds, or the
                fit finds two stars (key binaries).
        """
        from .products.plot import draw_pieces
        if theta is None:
            table = fit([self])
            need(table["STATUS"][0] == 1, ValueError, "the star cannot be fitted: STATUS "
                 f"{table['STATUS'][0]} (docs/use/results.md explains it)")
            need("SB2" not in table or table["SB2"][0] == 0, ValueError, "the fit found two stars: "
                 "give theta (table.theta(0) is the brighter star's), or use `starmill plot`")
            theta = table.theta(0)
        return draw_pieces(self.library, theta, model(self, theta).pieces, limits)


class SpectraFile:
    """A spectra file: ``len`` gives the number of rows, indexing a row's `Star`."""

    def __init__(self, library: Library, path: str):
        handle = _ffi.new("starmill_file **")
        _call(_lib.starmill_file_open, library._handle, str(path).encode(), handle)
        self.library = library
        self._handle = _ffi.gc(handle[0], _lib.starmill_file_close)

    def __len__(self) -> int:
        return _lib.starmill_file_n_row(self._handle)

    def __getitem__(self, row: int) -> Star:
        need(-len(self) <= row < len(self), IndexError, f"row {row} of {len(self)}")
        handle = _ffi.new("starmill_star **")
        _call(_lib.starmill_file_star, self._handle, row % len(self), handle)
        return Star(self.library, handle[0])

    def __iter__(self) -> Iterator[Star]:
        return (self[row] for row in range(len(self)))

    def row(self, row: int) -> tuple[str, int]:
        """Return a row's name as in /catalog/IDENTIFIER, and its TARGETID (-1: none)."""
        one = _ffi.new("starmill_row *")
        _call(_lib.starmill_file_row, self._handle, row, one)
        return _text(one.identifier), one.target_id


@dataclass
class Piece:
    """Model of a spectrum in one arm: flux = template x continuum, corrected by the model error
    after `fix_model_error`.  data, ivar: the spectrum's; ivar 0: a pixel that does not count."""
    spectrum: int
    arm: str
    exposure: int
    first: int
    wave: Floats
    flux: NDArray[np.float32]
    data: NDArray[np.float32]
    ivar: NDArray[np.float32]
    template: NDArray[np.float32]
    continuum: Floats
    coefficients: Floats


@dataclass
class Model:
    """A star's model: -2 ln L, the penalty that a fit adds, the pieces and, by arm, chi-square
    (chisq), chi-square of the continuum alone (chisq_c), good pixels (n_pix) and S/N (sn)."""
    m2ll: float
    penalty: float
    chisq: dict[str, float]
    chisq_c: dict[str, float]
    n_pix: dict[str, int]
    sn: dict[str, float]
    pieces: list[Piece] = field(repr=False)
    _n_pix: Optional[list[int]] = field(repr=False, default=None)

    def spectrum(self, i: int) -> NDArray[np.float32]:
        """Return the model flux on the pixels of the star's i-th Spectrum, NaN outside pieces."""
        pieces = [p for p in self.pieces if p.spectrum == i]
        n_pix = self._n_pix[i] if self._n_pix else max(p.first + p.flux.size for p in pieces)
        flux = np.full(n_pix, np.nan, dtype=np.float32)
        for p in pieces:
            flux[p.first:p.first + p.flux.size] = p.flux
        return flux


def _points(library: Library, theta: ArrayLike) -> tuple[Floats, bool]:
    n_par = _lib.starmill_library_n_par(library._handle)
    points = np.ascontiguousarray(theta, dtype=np.float64)
    need(points.ndim in (1, 2) and points.shape[-1] == n_par, ValueError,
         f"theta has shape {points.shape}; ({n_par},) or (n, {n_par}) is needed")
    return points.reshape(-1, n_par), points.ndim == 1


def _point(library: Library, theta: ArrayLike):
    points, _ = _points(library, theta)
    need(len(points) == 1, ValueError, f"one point is needed, theta has {len(points)}")
    return _ffi.from_buffer("double[]", points)


def minus2loglike(star: Star, theta: ArrayLike, derivatives: bool = False, penalty: bool = False):
    """Compute -2 ln L at theta [n_par] or [n, n_par]; inf beyond limits of velocity or v sin i.

    Args:
        penalty (bool): Add priors and the penalty outside the library's hulls, as a fit does.
        derivatives (bool): Also return gradient [.., n_par] and curvature [.., n_par, n_par],
            without penalty: m2ll(theta + x) ~ m2ll + gradient x + x curvature x.
    """
    points, single = _points(star.library, theta)
    n, n_par = points.shape
    value, more = np.empty(n), np.empty(n)
    gradient = np.empty((n, n_par)) if derivatives else None
    curvature = np.empty((n, n_par, n_par)) if derivatives else None
    to = [_ffi.NULL if a is None else _ffi.from_buffer("double[]", a)
          for a in (points, value, more, gradient, curvature)]
    star.library._call(_lib.starmill_minus2loglike, star._handle, n, *to)
    value = value + more if penalty else value
    if single:
        return (value[0], gradient[0], curvature[0]) if derivatives else float(value[0])
    return (value, gradient, curvature) if derivatives else value


def loglike(star: Star, theta: ArrayLike, penalty: bool = True):
    """Compute ln L at theta [n_par] or [n, n_par]; -inf beyond limits of velocity or v sin i.
    penalty: include priors and the penalty outside the library's hulls."""
    return -0.5 * minus2loglike(star, theta, penalty=penalty)


def fix_model_error(star: Star, theta: Optional[ArrayLike]) -> None:
    """Include all model errors, computed at theta [n_par], in later calls for the star.  A fit has
    those computed near its solution: its M2LL differs by about 0.1.  theta None: leave them out."""
    star.library._call(_lib.starmill_fix_model_error, star._handle,
                       _ffi.NULL if theta is None else _point(star.library, theta))


def model(star: Star, theta: ArrayLike) -> Model:
    """Compute the model of one star at theta [n_par], by arm and by piece."""
    to = _ffi.new("starmill_model **")
    star.library._call(_lib.starmill_model_create, star._handle, _point(star.library, theta), to)
    found = _ffi.gc(to[0], _lib.starmill_model_free)
    names = list(star.library.arms)
    arm, p = _ffi.new("starmill_model_arm *"), _ffi.new("starmill_piece *")
    by_arm: dict[str, dict] = {"chisq": {}, "chisq_c": {}, "n_pix": {}, "sn": {}}
    for i, name in enumerate(names):
        _call(_lib.starmill_model_get_arm, found, i, arm)
        for key, values in by_arm.items():
            values[name] = getattr(arm, key)
    pieces = []
    for i in range(star.n_piece):
        _call(_lib.starmill_model_get_piece, found, i, p)
        flux = (copied(values, p.n_pix, np.float32)
                for values in (p.flux, p.data, p.ivar, p.template_flux))
        pieces.append(Piece(p.i_spectrum, names[p.i_arm], p.exposure, p.first,
                            copied(p.wave, p.n_pix, np.float64), *flux,
                            copied(p.continuum, p.n_pix, np.float64),
                            copied(p.coefficient, p.n_continuum, np.float64)))
    return Model(_lib.starmill_model_m2ll(found), _lib.starmill_model_penalty(found),
                 pieces=pieces, _n_pix=star._n_pix, **by_arm)


def template(library: Library, theta: ArrayLike, wave: ArrayLike, name: Optional[str] = None,
             resolution: Optional[ArrayLike] = None, sigma: Optional[ArrayLike] = None,
             air: bool = False) -> NDArray[np.float32]:
    """Compute a template, without continuum.

    Args:
        theta (array [n_par]): Parameters, as `Library.theta` makes them.
        wave (array [n_pix]): Wavelengths, Angstrom, ascending.
        name, resolution, sigma, air: Arm and line-spread function, as in `Spectrum`.

    Returns:
        array [n_pix]: Flux, normalised as the library's; NaN outside its arms, and in parts
            of arms with fewer than 2 npoly pixels.  Refused if nothing is left, as by wave_mask.
    """
    ones = np.ones(np.size(wave))
    spectrum = Spectrum(wave, ones, ones, name=name, resolution=resolution, sigma=sigma, air=air)
    one = _ffi.new("starmill_spectrum *")
    spectrum._fill(one)
    flux = np.empty(ones.size, dtype=np.float32)
    library._call(_lib.starmill_template, one, _point(library, theta),
                  _ffi.from_buffer("float[]", flux))
    return flux


def guess(star: Star, n: int = 5) -> tuple[Floats, Floats]:
    """Find where a fit would start: return theta [at most n, n_par] of the best templates and
    velocities, the best first, and their chi-squares up to a constant."""
    n_par = _lib.starmill_library_n_par(star.library._handle)
    theta, chisq, found = np.empty((n, n_par)), np.empty(n), _ffi.new("int *")
    star.library._call(_lib.starmill_guess, star._handle, n, _ffi.from_buffer("double[]", theta),
                       _ffi.from_buffer("double[]", chisq), found)
    return theta[:found[0]], chisq[:found[0]]


class Table(Columns):
    """A result table: columns of /fits (docs/use/formats.md) by name, as NumPy arrays."""

    def __init__(self, handle, library: Optional[Library] = None):
        self._handle = _ffi.gc(handle, _lib.starmill_table_free)
        self._library = library
        self._read: dict[str, NDArray] = {}
        self._columns, one = {}, _ffi.new("starmill_column *")
        for i in range(_lib.starmill_table_n_column(self._handle)):
            _call(_lib.starmill_table_column_at, self._handle, i, one)
            self._columns[_text(one.name)] = SimpleNamespace(
                unit=_text(one.unit), words=_text(one.description), ucd=None)

    def __len__(self) -> int:
        return _lib.starmill_table_n_row(self._handle)

    def __getitem__(self, name: str) -> NDArray:
        """Read a column by name; a result file also has paths like "catalog/IDENTIFIER"."""
        if name not in self._read:
            one = self._column(name).one
            dtype = np.dtype(_TYPES.get(one.type, f"S{one.n_value}"))
            n_value = 1 if one.type == _lib.STARMILL_TEXT else one.n_value
            values = copied(one.data, len(self) * n_value, dtype)
            self._read[name] = values if n_value == 1 else values.reshape(len(self), n_value)
        return self._read[name]

    def _column(self, name):
        c = _ffi.new("starmill_column *")
        try:
            _call(_lib.starmill_table_column, self._handle, name.encode(), c)
        except StarmillError as error:
            raise (KeyError(str(error)) if error.code == _lib.STARMILL_USAGE else error) from None
        return SimpleNamespace(unit=_text(c.unit), words=_text(c.description), ucd=None, one=c)

    def theta(self, row: int, library: Optional[Library] = None) -> Floats:
        """Return a row's parameters [n_par]; a table read from a file needs the library."""
        library = library or self._library
        need(library is not None, ValueError, "a table from a file needs library=...")
        theta = np.empty(_lib.starmill_library_n_par(library._handle))
        _call(_lib.starmill_table_theta, library._handle, self._handle,
              row + len(self) * (row < 0), _ffi.from_buffer("double[]", theta))
        return theta

    def covariance(self, row: int) -> Floats:
        """Return a row's covariance [n, n] of velocity, v sin i and labels; 0 where fixed."""
        packed = self["COVAR"][row]
        return symmetric(packed, int(np.sqrt(2 * packed.size)))


def fit(stars: Iterable[Star], start: Optional[ArrayLike] = None,
        fixed: Optional[Mapping[str, float]] = None,
        priors: Optional[Mapping[str, tuple[float, float]]] = None) -> Table:
    """Fit stars of one library; the table has one row per star, with STATUS 1 if it was fitted.

    Args:
        start (array [n_star, n_start, 2 + n_label], optional): Points to start from; the best
            solution is kept (default: the initial guess).
        fixed (mapping of str to float, optional): Values of parameters to hold.
        priors (mapping of str to (mean, sigma), optional): Gaussian priors.  fixed and priors each
            replace the library's for this fit only (default: the library's).
    """
    stars = [None] if isinstance(stars, Star) else list(stars)
    need(all(isinstance(star, Star) for star in stars), TypeError,
         "fit takes a list of stars, which library.star and library.open give")
    need(stars, ValueError, "no stars")
    library = stars[0].library
    table = _ffi.new("starmill_table **")
    handles = _ffi.new("starmill_star *[]", [star._handle for star in stars])
    n_start, pointer = 0, _ffi.NULL
    if start is not None:
        start = np.ascontiguousarray(start, dtype=np.float64)
        n_start = start.shape[1] if start.ndim == 3 else 1
        need(start.shape == (len(stars), n_start, 2 + library.n_label), ValueError, f"start has "
             f"shape {start.shape}; ({len(stars)}, n_start, {2 + library.n_label}) is needed")
        pointer = _ffi.from_buffer("double[]", start)
    with library._lock:
        before = library._constraints
        if fixed is not None or priors is not None:
            library.constrain(fixed, priors)
        try:
            library._call(_lib.starmill_fit, handles, len(stars), pointer, n_start, table)
        finally:
            if library._constraints is not before:
                library.constrain(*before)
    return Table(table[0], library)


def open_result(path: str) -> Table:
    """Open a result file of ``starmill fit``.  Unlike `Result`, this keeps damaged rows."""
    table = _ffi.new("starmill_table **")
    _call(_lib.starmill_table_open, str(path).encode(), table)
    return Table(table[0])
