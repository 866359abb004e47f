# SPDX-License-Identifier: BSD-3-Clause
"""starmill library train: make emulators that are functions of the labels, or make a library from
networks that the program has trained."""

import contextlib
import os
import time
from copy import copy

import h5py
import numpy as np

from starmill.cli.basics import INPUT, Failure, catch_stops, need
from starmill.templates import functions, library_file, residuals
from starmill.templates.grid_file import open_grid
from starmill.templates.labels import make_hulls, make_labels, spread
from starmill.templates.library_data import Emulator, Library
from starmill.templates.measure import MAX_SPECTRA, ModelSet, report


def main(options):
    catch_stops()
    if options.emulator in (None, "network"):
        finish_networks(options)
    else:
        train_functions(options)


def train_functions(options):
    path, start = options.arguments[0], time.monotonic()
    library_file.writable(options.output, options.overwrite,
                          [("the grid file", path), ("--validation", options.validation or "")])
    grid = open_grid(path)
    models = good_models(grid, options.unfinished)
    maker, library = functions.Maker(options), frame(grid)
    lines = maker.make(grid, models, library, options.gaps == "fill")
    print(f"made in {time.monotonic() - start:.1f} s", *lines, sep="\n", flush=True)
    name_it(library, options.emulator, path)
    if options.validation:
        report_validation(options, grid, models, library)
    elif float(options.left_out or 0.1) > 0:
        report_left_out(options, maker, grid, models, library)
    if library.report:
        print(f"made and measured in {time.monotonic() - start:.1f} s")
    keep(options, library)


def finish_networks(options):
    """Make the library from networks that the program wrote (io/library/train_file.h)."""
    path = options.arguments[0]
    checkpoint = options.checkpoint or options.output + ".training"
    trained = checkpoint + ".networks"
    grid = open_grid(path)
    library = frame(grid)
    with h5py.File(trained, "r") as file:
        models, n_train = file["models"][...], int(file.attrs["n_train"])
        values = grid.values[models]
        library.label, _ = make_labels(grid.label, values)
        for label, mean, std in zip(library.label, file["mean"], file["std"]):
            label.mean, label.std = float(mean), float(std)  # the training's values, bit by bit
        for i, arm in enumerate(library.arm):
            group = file[f"arm{i}"]
            layers = range(int(group.attrs["n_layer"]))
            arm.emulator = Emulator([group[f"weight{k}"][...] for k in layers],
                                    [group[f"bias{k}"][...] for k in layers],
                                    log_flux=int(group.attrs["log_flux"]))
    library.hull = make_hulls(library.label, library.map(values), options.hulls or "pairs")
    spread(library, values, int(options.guess_templates or 300))
    name_it(library, "network", path)
    if n_train < len(models):
        try:
            measure(options, library, grid, np.sort(models[n_train:]), f"of {len(models)} models; "
                    "the others were learned, and these chose the best epoch", library)
        except Failure as failure:
            without_report(options, failure)
    print(f"losses: {options.output}.losses.csv")
    keep(options, library)
    for done in (trained, checkpoint):
        with contextlib.suppress(OSError):  # a leftover file does no harm
            os.remove(os.path.realpath(done))


def good_models(grid, unfinished):
    models = grid.good(unfinished)
    n, n_arm = len(grid.status), len(grid.arm)
    need(len(models), INPUT, f"{grid.path}: none of its {n} models is good")
    skipped = f"; {n - len(models)} bad or missing ones are skipped" if len(models) < n else ""
    print(f"{grid.path}: {len(models)} models, {n_arm} arm{'s' if n_arm > 1 else ''}{skipped}",
          flush=True)
    return models


def frame(grid):
    """Return a library with copies of a grid file's arms, without labels and emulators."""
    return Library(arm=[copy(arm) for arm in grid.arm])


def name_it(library, kind, path):
    library.name = f"{kind} of {os.path.basename(path)[:100]}"
    for arm in library.arm:
        arm.revision = kind


def report_left_out(options, maker, grid, models, library):
    """Report on models left out of a second library, made like this one from the others."""
    n = len(models)
    n_wanted = min(int(float(options.left_out or 0.1) * n + 0.5), MAX_SPECTRA)
    try:
        out = maker.choose_left_out(grid, models, n_wanted, int(options.seed or 1))
        need(out.any(), INPUT, f"none of {n} models is surrounded by others, so none can be left "
             "out: give a larger --left-out or --validation")
        without = frame(grid)
        # fill gaps: the models left out leave empty nodes
        maker.make(grid, models[~out], without, True)
        filled = "" if options.emulator == "radial" else \
            ", whose nodes are filled from their neighbours"
        measure(options, without, grid, models[np.flatnonzero(out)],
                f"of {n} models; measured with a library made without them{filled}; this one uses "
                "all", library)
    except Failure as failure:
        without_report(options, failure)


def report_validation(options, grid, models, library):
    """Report on models of another grid file, which must have the same labels and arms."""
    def must(good, message):
        need(good, INPUT, f"--validation {options.validation}: {message}")

    other = open_grid(options.validation)
    rows = good_models(other, True)
    must(other.label == grid.label and len(other.arm) == len(grid.arm),
         f"its labels or number of arms are not those of {grid.path}")
    for a, b in zip(grid.arm, other.arm):
        tolerance = 1e-6 * a.ln_step
        must(a.n_pix == b.n_pix and abs(a.ln_wave0 - b.ln_wave0) <= tolerance
             and abs(a.ln_step - b.ln_step) * a.n_pix <= tolerance,
             f"the pixels of its arm {b.name} are not those of {grid.path}; build it with the same "
             "arms")
        sigma_a, sigma_b = a.template_sigma_aa, b.template_sigma_aa
        must(abs(sigma_a - sigma_b) <= 1e-6 * abs(sigma_a),
             f"its arm {b.name} has a sigma of {sigma_b:g} A, that of {grid.path} {sigma_a:g} A; "
             "build it with the same arms")
    measure(options, library, other, rows, f"of {os.path.basename(other.path)[:200]}; the library "
            f"is made of {len(models)} models", library)


def measure(options, library, grid, models, how, to):
    """Measure a library by models of a grid file.  Store the report in library `to`, with
    --model-error also the model error."""
    n = min(len(models), MAX_SPECTRA)
    if options.model_error and n < residuals.LEAST_SPECTRA:
        raise Failure(INPUT, f"{n} models are left out, too few for a model error, which needs "
                             f"{residuals.LEAST_SPECTRA}: leave out more, or measure none")
    models = models[np.arange(n) * len(models) // n]
    arms = range(len(grid.arm))
    print(f"measuring it on {n} models", flush=True)
    spectra = ModelSet(grid.values[models], [grid.name[i] for i in models],
                       [grid.flux(i, models) for i in arms],
                       [grid.flux(i, models, "continuum") for i in arms])
    n_component = residuals.N_COMPONENT if options.model_error is None else int(options.model_error)
    text, errors = report(library, spectra, n_component, how)
    print(text, end="", flush=True)
    if options.model_error:
        for arm, error in zip(to.arm, errors):
            need(error is not None, INPUT,
                 f"too few of {n} models lie inside the hulls for a model error of arm {arm.name}")
            arm.error = error
    to.report = text


def without_report(options, failure):
    """Print why there is no report; with --model-error, which needs it, raise the failure."""
    if options.model_error or failure.status != INPUT:
        raise failure
    print(f"no report: {failure}")


def keep(options, library):
    library_file.write(options.output, library, options.overwrite, options.program)
    n = len(library.arm)
    print(f"{options.output}: {library.n_label} labels, {n} arm{'s' if n > 1 else ''}, hash "
          f"{library.hash}")
