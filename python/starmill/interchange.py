# SPDX-License-Identifier: BSD-3-Clause
"""Converts tables to astropy and pandas, and spectra from specutils and tables."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence

import numpy as np

from starmill.cli.basics import USAGE, Failure, need

if TYPE_CHECKING:
    import astropy.table
    import pandas

# bits of SDSS's and_mask that make a pixel bad, as in io/surveys/sdss.c
BAD_SDSS = sum(1 << bit for bit in (*range(6), 18, 22, 23, *range(25, 29)))
N_SHOWN = 8  # rows of a table that a notebook shows

NAMES = {  # {argument of Spectrum: names of columns, in any case}
    "wave": ("wavelength", "wave", "lambda", "lam", "wl", "loglam"),
    "flux": ("flux", "intensity"), "mask": ("mask", "and_mask", "qual"), "sigma": ("lsf_sigma",),
    "ivar": ("ivar", "invvar", "flux_ivar"),  # counts before error
    "error": ("error", "err", "errs", "flux_err", "flux_error", "err_flux", "e_flux", "eflux",
              "uncertainty", "std")}
# further columns and images of files: variances; errors, if a file has no others
VARIANCES, DEVIATIONS = ("var", "variance", "flux_var"), ("sigma",)


def mask_of(name, values):
    """Return a mask, nonzero where a pixel is bad; in and_mask only the bits of BAD_SDSS count."""
    values = np.asanyarray(values)
    if name.strip().lower() != "and_mask":
        return values
    if values.dtype.kind == "f":  # NaN, of a missing value, is bad
        values = np.where(np.isnan(values), BAD_SDSS, values).astype("i8")
    return values & BAD_SDSS


def known_unit(unit: str, words: str) -> tuple[str, str]:
    """Return unit and description; a unit unknown to FITS moves to the description."""
    from astropy import units
    try:
        units.Unit(unit, format="fits")
    except ValueError:
        return "", f"{words}; unit: {unit}"
    return unit, words


def in_unit(values, unit, power=1):
    """Convert a quantity or a column to unit ** power; return values without a unit unchanged."""
    own = getattr(values, "unit", None)
    if own is None or (unit is None and own == ""):
        return values
    need(unit is not None, ValueError, f"flux has no unit, its error has {own}: give both a unit")
    unit = unit if power == 1 else unit ** power  # a text has no power
    return values.to_value(unit) if hasattr(values, "to_value") else \
        values.astype(np.float64) * own.to(unit)  # a column


def symmetric(triangle: Any, n: int) -> Any:
    """Return the symmetric matrix [n, n] from its upper triangle, as COVAR stores it."""
    full = np.zeros((n, n))
    full[np.triu_indices(n)] = triangle
    return full + np.triu(full, 1).T


@contextlib.contextmanager
def errors():
    """Turn a job's Failure into ValueError (usage) or OSError."""
    try:
        yield
    except Failure as failure:
        raise (ValueError if failure.status == USAGE else OSError)(str(failure)) from failure


class Columns:
    """Columns by name.  A subclass defines len(), [name], _columns and _column(name)."""
    _columns: dict[str, Any]  # objects with unit, words (description), ucd

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    @property
    def units(self) -> dict[str, str]:
        return {name: c.unit for name, c in self._columns.items()}

    @property
    def descriptions(self) -> dict[str, str]:
        return {name: c.words for name, c in self._columns.items()}

    @property
    def ucds(self) -> dict[str, str]:
        """UCD1+ of each column of a Result."""
        return {name: c.ucd for name, c in self._columns.items() if c.ucd}

    def keys(self) -> list[str]:
        return self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def to_astropy(self, names: Optional[Sequence[str]] = None) -> "astropy.table.Table":
        """Make an astropy table of these columns (default: all), with units and descriptions.  A
        unit unknown to FITS is in the description.  A Result's columns have UCDs in ``meta``."""
        from astropy.table import Column, Table
        made = Table()
        for name in self.names if names is None else names:
            values, own = self[name], self._column(name)
            unit, words = known_unit(own.unit, own.words)
            made[name] = Column(values, unit=unit or None, description=words,
                                meta={"ucd": own.ucd} if own.ucd else None)
        return made

    def to_pandas(self, names: Optional[Sequence[str]] = None) -> "pandas.DataFrame":
        """Make a data frame, by default of all columns; vectors become arrays in each row."""
        import pandas
        return pandas.DataFrame({name: values if (values := self[name]).ndim == 1 else list(values)
                                 for name in (self.names if names is None else names)})

    def _main(self) -> list[str]:
        """Identifiers, flags, and the parameters with their errors."""
        found = [n for n in ("TARGETID", "IDENTIFIER", "STATUS", "RVS_WARN") if n in self]
        return found + [one for name in self.names if f"{name}_ERR" in self and "_" not in name
                        for one in (name, f"{name}_ERR")]

    def __repr__(self) -> str:
        return (f"<{type(self).__name__}: {len(self)} rows, {len(self.names)} columns: "
                f"{', '.join(self._main())}, ...>")

    def _repr_html_(self) -> Optional[str]:
        try:
            table = self.to_astropy(self._main())
        except ImportError:
            return None
        return (f"<p>{type(self).__name__}: {len(self)} rows, {len(self.names)} columns, of which "
                f"these:</p>{table[:N_SHOWN]._repr_html_()}")


class FromOthers:
    """Constructors of Spectrum."""

    @classmethod
    def from_specutils(cls, spectrum: Any, **more: Any) -> Any:
        """Make a Spectrum of specutils' ``Spectrum`` or ``Spectrum1D``.

        Args:
            spectrum (specutils.Spectrum): Flux [n_pix] over wavelength, frequency or energy, in any
                order.  Its uncertainty, of any kind, and its mask are used.
            **more: Other arguments of `Spectrum`, such as ``sigma``, or ``air=True`` for
                wavelengths in air; ``ivar`` or ``error`` if the spectrum has no uncertainty.

        Raises:
            TypeError: The object is no spectrum of specutils.
            ValueError: It has several spectra, or no uncertainty and no ``ivar`` or ``error``.
        """
        need(all(hasattr(spectrum, name) for name in ("spectral_axis", "flux", "uncertainty")),
             TypeError, f"from_specutils takes a specutils.Spectrum, not {type(spectrum).__name__}")
        axis, flux, uncertainty = spectrum.spectral_axis, spectrum.flux, spectrum.uncertainty
        need(flux.ndim == 1, ValueError,
             f"the flux has shape {flux.shape}, expected one axis: give spectrum[i]")
        from astropy import units
        from astropy.nddata import InverseVariance
        wave = units.Quantity(axis).to("Angstrom", equivalencies=units.spectral())
        if not {"ivar", "error"} & more.keys():
            need(uncertainty is not None, ValueError,
                 "the spectrum has no uncertainty: give ivar or error")
            more["ivar"] = uncertainty.represent_as(InverseVariance).quantity
        if spectrum.mask is not None:
            more.setdefault("mask", np.asarray(spectrum.mask))
        turn = np.flip if wave.size > 1 and wave[0] > wave[-1] else np.asanyarray
        # flip all axes: a resolution matrix needs both flipped
        more = {k: turn(np.asanyarray(v)) if np.ndim(v) else v for k, v in more.items()}
        return cls(turn(wave), turn(flux), **more)

    @classmethod
    def from_table(cls, table: Any, **more: Any) -> Any:
        """Make a Spectrum of a table with a row per pixel, or one row of arrays.

        Args:
            table (astropy.table.Table, pandas.DataFrame, numpy structured array or mapping):
                Columns by name, in any case: ``wave``, ``wavelength``, ``lambda``, ``lam`` or
                ``wl`` (Angstrom, or with a unit) or ``loglam``; ``flux`` or ``intensity``;
                ``ivar``, ``invvar`` or ``flux_ivar``, else ``error``, ``err``, ``errs``,
                ``flux_err``, ``flux_error``, ``err_flux``, ``e_flux``, ``eflux``, ``uncertainty``
                or ``std``; optionally ``mask``, ``and_mask`` or ``qual``; ``lsf_sigma``.
            **more: Other arguments of `Spectrum`; they override the table's columns.

        Raises:
            TypeError: The object has no columns.
            ValueError: A column is missing, or several of one kind are there.
        """
        if type(table).__name__ == "FITS_rec":
            raise TypeError("a FITS_rec does not know its units: give Table.read(hdu)")
        names = getattr(getattr(table, "dtype", None), "names", None)  # array, astropy table
        names = list(names or (table.keys() if hasattr(table, "keys") else ()))
        need(names, TypeError, f"from_table takes a table with columns, not {type(table).__name__}")
        by_name = {str(name).strip().lower(): name for name in reversed(names)}
        found, either = dict(more), {"ivar", "error"}
        for argument, possible in NAMES.items():
            here = [by_name[n] for n in possible if n in by_name]
            if argument in found or (argument in either and found.keys() & either):
                continue
            need(len(here) < 2, ValueError, f"the table has several columns of {argument}: "
                 f"{', '.join(map(str, here))}; leave one")
            for name in here:
                values = table[name]
                if np.ndim(values) == 2 and len(values) == 1:
                    values = values.reshape(-1)  # keeps the unit
                if str(name).strip().lower() == "loglam":
                    values = 10.0 ** np.asarray(values, float)
                found[argument] = mask_of(str(name), values) if argument == "mask" else values
        missing = [n for n in ("wave", "flux") if n not in found]
        missing += ["ivar or error"] * (not found.keys() & either)
        need(not missing, ValueError,
             f"the table has no {', '.join(missing)}: its columns are {', '.join(map(str, names))}")
        return cls(**found)
