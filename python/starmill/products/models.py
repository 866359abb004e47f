# SPDX-License-Identifier: BSD-3-Clause
"""Best-fit models of some rows of a result, from its models file or by fitting the rows again."""

import os
import subprocess
import tempfile

import h5py
import numpy as np

from starmill.cli.basics import INPUT, OUTPUT, USAGE, Failure, as_failure, need, warn
from starmill.products.result import FITTED, Result, star_names, text


class Models:
    """A models file of a result, with the models of `rows` at least.  arms: {arm: (dataset of
    wavelengths, of fluxes)}; fluxes are [n_exposure][n_pix], wavelengths the same or [n_pix]."""

    def __init__(self, path, result, rows=()):
        self.result = result
        with as_failure(OUTPUT, f"{path} cannot be read as a models file", OSError, KeyError,
                        ValueError, RuntimeError, TypeError, AttributeError):
            self.file = h5py.File(path, "r")
            need("models" in self.file, USAGE, f"{path} has no models; make them by fit --models")
            need(text(self.file.attrs["RUN_ID"]) == result.provenance["RUN_ID"], USAGE,
                 f"{path} has the models of a result other than {result.path}")
            self.index, n = self.file["models/fits_row"], len(result.catalog["exposures/FILE"])
            need(self.index.dtype.kind == "i" and self.index.shape == (n,), ValueError,
                 f"models/fits_row is not an index of the {n} exposures")
            self.arms = {name: (arm["wavelength"], arm["flux"]) for name, arm in
                         self.file["models"].items() if isinstance(arm, h5py.Group)}
            for name, (wave, flux) in self.arms.items():
                need(wave.dtype.kind == flux.dtype.kind == "f" and flux.ndim == 2 and len(flux) == n
                     and wave.shape in (flux.shape, flux.shape[1:]), ValueError,
                     f"wrong types or sizes in models/{name}")
                _ = wave[-1:], flux[-1:]  # this read finds damage before plots need values
            n = len(self.missing(rows))
            need(not n, USAGE, f"{path} lacks the models of {n} stars, as their fit ran "
                 "without --models; without --models this command fits them again")

    def missing(self, rows):
        """Return which of the rows were fitted, but have no model: their run had no --models."""
        if not int(self.result.provenance["UNMODELLED"]):
            return []
        fitted = np.flatnonzero(self.result.fits["STATUS"][...] == FITTED)
        has = [self.index[...][np.isfinite(flux[:, :1]).any(axis=1)]
               for _, flux in self.arms.values()]
        return np.setdiff1d(np.intersect1d(rows, fitted), np.concatenate([self.index[:0], *has]))

    def of(self, row):
        """Return [{arm: (wavelengths, fluxes)}] of a row's exposures; None if it was not fitted."""
        if self.result.fits["STATUS"][row] != FITTED:
            return None
        first, n = (int(self.result.catalog[k][row]) for k in ("FIRST_EXPOSURE", "N_EXPOSURE"))
        need((self.index[first:first + n] == row).all(), OUTPUT,
             f"{self.file.filename} is damaged: models/fits_row is wrong")
        return [{name: (wave[...] if wave.ndim == 1 else wave[i], flux[i])
                 for name, (wave, flux) in self.arms.items()} for i in range(first, first + n)]


class Refitted:
    """Models of rows fitted again with the library and settings of the result."""

    def __init__(self, result, rows, options):
        rows = [r for r in rows if result.fits["STATUS"][r] == FITTED]
        need(not rows or options.program, USAGE, "without a models file the stars must be fitted "
             "again, but PATH has no program starmill: give --models, or put starmill in PATH")
        self.folder = tempfile.TemporaryDirectory(prefix="starmill-look.")
        self.result, self.row_of = result, {}
        if rows:
            again = self._fit(rows, options)
            self.models = Models(os.path.join(self.folder.name, "models.h5"), again)
            self._pair(again, rows)

    def _fit(self, rows, options):
        """Fit the rows again in a temporary folder; return the new Result."""
        result, folder = self.result, self.folder.name
        config, output = os.path.join(folder, "config.yaml"), os.path.join(folder, "fit.h5")
        with open(config, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(result.provenance["CONFIG"])
        inputs = sorted({i for r in rows for i, _ in result.exposures(r)})
        libraries = [os.path.realpath(options.library)] if options.library else \
            [path for _, path in result.libraries.values()]
        command = [options.program, "fit", "--config", config,
                   *(word for path in libraries for word in ("--library", path)),
                   "--backend", "cpu", "--quiet", "--log-level", "error",
                   "--output", output, "--models", os.path.join(folder, "models.h5")]
        stars = star_names(*([of[name][r] for r in rows] for of, name in (
            (result.fits, "TARGETID"), (result.catalog, "OBJECT"), (result.catalog, "IDENTIFIER"))))
        paths = [os.path.join(os.getcwd(), result.input_path(i)) for i in inputs]
        for option, lines in (("object-file", stars), ("catalog", paths)):
            command += [f"--{option}", os.path.join(folder, option)]
            with open(command[-1], "wb") as file:
                file.writelines(os.fsencode(line) + b"\n" for line in lines)
        where = result.provenance["FOLDER"]
        done = subprocess.run(command, check=False, text=True, errors="surrogateescape",
                              cwd=where if os.path.isdir(where) else None, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        why = (done.stdout.strip().splitlines() or ["no message"])[-1]
        need(done.returncode == 0, INPUT, f"the stars cannot be refitted: {why}")
        again = Result(output)
        need(again.provenance["LIBRARY_HASH"] == result.provenance["LIBRARY_HASH"], USAGE,
             f"{result.path} was fitted with another library than {' and '.join(libraries)}: give "
             "the library of the fit with --library")
        return again

    def _pair(self, again, rows):
        """Match rows of both fits by input and place of the first exposure, since a name may be in
        several inputs; warn of rows whose velocity differs between the fits."""
        def key(result, row):
            i, number = result.exposures(row)[0]
            return os.path.realpath(result.input_path(i)), number
        new = {key(again, i): i for i in np.flatnonzero(again.fits["STATUS"][...] == FITTED)}
        for r in rows:
            i = new.get(key(self.result, r))
            if i is None:
                continue
            self.row_of[r] = i
            was, now = (float(t.fits["VRAD"][k]) for t, k in ((self.result, r), (again, i)))
            error = float(self.result.fits["VRAD_ERR"][r])
            if np.isfinite(was) and not abs(now - was) <= max(0.1 * error, 1e-3):
                warn(f"row {r} fitted again has VRAD {now:.3f} km/s, not {was:.3f} of the result")

    def of(self, row):
        return self.models.of(self.row_of[row]) if row in self.row_of else None


def open_models(result, rows, options):
    """Return Models or Refitted; .of(row) gives the models of a row."""
    path = options.models or result.models_path()
    try:
        return Models(path, result, rows) if path else Refitted(result, rows, options)
    except Failure as failure:
        if failure.status != USAGE or options.models or not path:
            raise
        return Refitted(result, rows, options)  # the file has models of another fit, or lacks some
