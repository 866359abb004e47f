# SPDX-License-Identifier: BSD-3-Clause
"""Results of `starmill fit` and `starmill sample` in notebooks and programs."""

from __future__ import annotations

import copy
import types
import warnings
from typing import TYPE_CHECKING, Any, Optional, Union

import h5py
import numpy as np
from astropy.io import registry
from astropy.table import Table
from numpy.typing import NDArray

from starmill.cli import program
from starmill.cli.basics import Failure, did_you_mean, need
from starmill.interchange import Columns, errors, symmetric
from starmill.products import result as files
from starmill.products import table

if TYPE_CHECKING:
    import matplotlib.figure


class Result(Columns):
    """A result file; columns are read on first use.

    ``result["TEFF"]`` is a column [n_row] or [n_row, n_value] of ``/fits`` or ``/catalog``
    (docs/use/formats.md): NaN if missing, bool for flags of one bit, str for texts.
    ``result[mask]``, ``result[10:20]``, ``result[["VRAD", "TEFF"]]``, `star` and `select` give
    Results of some rows or columns.

    Args:
        path (str or path-like): OUT.h5; a fit may be writing it.
        calibrated (bool): Scale errors by the calibration of ``starmill merge --calibrate``.
        check (bool): Leave out rows with a wrong checksum, with a warning; this reads all rows.

    Raises:
        OSError: The file is no result, or cannot be read.
        ValueError: It has no calibration.

    Examples:
        >>> result = Result("OUT.h5")
        >>> good = result[result["SUCCESS"] & (result["TEFF"] < 5000)]
        >>> good.to_pandas(["TARGETID", "TEFF", "TEFF_ERR"])
        >>> result.plot("HD 1234")
    """

    def __init__(self, path: Any, *, calibrated: bool = False, check: bool = True):
        with errors():
            self._file = files.Result(str(path))
            left = self._file.calibrate() if calibrated else ""
            n = self._file.n_row
            whole = self._file.whole(0, n) if check else np.ones(n, bool)
            self._columns = {c.name: c for c in table.calibrated(table.whole(self._file),
                                                                 self._file)}
        for note in left, self._file.n_damaged and f"{path}: {self._file.damaged_rows()}; left out":
            if note:
                warnings.warn(note, stacklevel=2)
        self._block = files.Block(self._file, 0, whole)
        self._rows = np.arange(len(self._block.rows))
        self._read: dict[str, NDArray] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def rows(self) -> NDArray[np.int64]:
        """Numbers of the rows in the file [n_row]."""
        return self._block.rows[self._rows]

    @property
    def parameters(self) -> list[str]:
        """Columns of the parameters, in the order of COVAR."""
        return self._file.parameters

    def __getitem__(self, key: Any) -> Union[NDArray, "Result"]:
        if isinstance(key, str):
            return self._values(key)[self._rows]
        made = copy.copy(self)
        if isinstance(key, (list, tuple)) and key and all(isinstance(k, str) for k in key):
            made._columns = {name: self._column(name) for name in key}
            return made
        if isinstance(key, bool) or not isinstance(key, (slice, int, np.integer)):
            key = np.asarray(key, int if isinstance(key, (list, tuple)) and not key else None)
            if key.dtype.kind not in "biu" or key.ndim != 1:
                raise TypeError("a Result is indexed by the name of a column, a list of names, a "
                                "row, a slice, or an array of truth values or rows")
        made._rows = np.atleast_1d(self._rows[key])
        return made

    def _column(self, name: str) -> table.Column:
        if name not in self._columns:
            raise KeyError(f"no column {name}{did_you_mean(name, self._columns)}")
        return self._columns[name]

    def _values(self, name: str) -> NDArray:
        """Return all undamaged rows of a column."""
        column = self._column(name)
        if name not in self._read:
            with errors():
                rows = table.packed([column], self._block.of, len(self._block.rows), None)
            self._read[name] = table.native(column, rows)
        return self._read[name]

    def star(self, name: Union[str, int]) -> "Result":
        """Return the rows of a star, named as in `starmill show`; KeyError without a row."""
        try:
            found = self._file.find([str(name)])
        except Failure as failure:
            raise KeyError(str(failure)) from None
        here = np.isin(self.rows, found)
        need(here.any(), KeyError, f"no row here has the star {name}")
        return self[here]

    def select(self, expression: str) -> "Result":
        """Return the rows for which an expression of ``starmill select`` is true, for example
        ``"SN_R > 10 and FEH < -2"``; ValueError if the expression has an error."""
        from starmill.products.selection import Expression
        with errors():
            test = Expression(expression, self._file)
            found = [test.rows(start, stop) for start, stop in self._file.spans()]
        return self[np.concatenate(found)[self.rows]]

    def covariance(self, row: int) -> NDArray[np.float64]:
        """Return a row's covariance [n, n] of `parameters`; 0 where fixed."""
        return symmetric(self["COVAR"][row], len(self.parameters))

    def plot(self, star: Union[str, int, None] = None, *,
             limits: Optional[tuple[float, float]] = None, models: Optional[str] = None,
             library: Optional[str] = None) -> "matplotlib.figure.Figure":
        """Draw spectrum, model and residuals of a star, as ``starmill plot`` does.

        Args:
            star (str or int, optional): A star with one row; a Result of one row needs none.
            limits ((float, float), optional): First and last wavelength, Angstrom in vacuum.
            models (str, optional): Models file (default: the fit's; without one, fit again).
            library (str, optional): Library to fit again with (default: the fit's).

        Raises:
            KeyError, ValueError, OSError: No such star, or several rows; unreadable spectra.
        """
        if star is not None:
            return self.star(star).plot(limits=limits, models=models, library=library)
        need(len(self) == 1, ValueError,
             f"there are {len(self)} rows: plot one, result.star(name)[i].plot()")
        from starmill.products import plot
        options = types.SimpleNamespace(models=models, library=library, program=program())
        return plot.draw_row(self._file, int(self.rows[0]), options, limits)


# --- Table.read("OUT.h5", path="fits") of astropy -----------------------------------------------


def _is_result(_: str, name: Any, file: Any, *args: Any, **how: Any) -> bool:
    name = name or getattr(file, "name", None)
    if not (isinstance(name, str) and h5py.is_hdf5(name)):
        return False
    with h5py.File(name, "r") as opened:
        return files.text(opened.attrs.get("FORMAT", "")) == files.FORMAT


def _read_table(file: Any, path: str = "") -> Table:
    result, path = Result(getattr(file, "name", file)), path.strip("/")
    names = [name for name, c in result._columns.items() if not path
             or c.source.parent.name == f"/{path}" or (name, path) == ("TARGETID", "catalog")]
    need(names, KeyError, f"{result.path} has no table at path {path}: give fits or catalog")
    return result.to_astropy(names)


registry.register_identifier("starmill", Table, _is_result)
registry.register_reader("starmill", Table, _read_table, priority=1)  # before astropy's HDF5 reader
