# SPDX-License-Identifier: BSD-3-Clause
"""The models of a grid file (docs/use/formats.md, "Grid file"), read only."""

import math
import os
from dataclasses import dataclass

import numpy as np

from starmill.cli.basics import INPUT, Failure, as_failure, need
from starmill.templates.library_data import MAX_ARM, MAX_LABEL, MAX_PIX, MIN_PIX, Arm, wavelengths
from starmill.templates.library_file import opened, text_of
from starmill.wavelength import C_KM_S

TO_DO, GOOD, BAD = 0, 1, 2
MAX_NAMED_BAD = 20


@dataclass
class Grid:
    """An open grid file; nobody closes it before the end of the program."""
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
        """Return which models are good [n]; refuse an incomplete file without `unfinished`."""
        n = int((self.status == TO_DO).sum())
        need(not n or unfinished, INPUT, f"{self.path}: {n} of its {len(self.status)} models are "
             "still to do; finish it by library build, or give --unfinished")
        return np.flatnonzero(self.status == GOOD)

    def flux(self, i_arm, models, what="flux"):
        """Return flux or continuum, float32 [n][n_pix], of models (ascending indices); None: the
        file has no continuum."""
        at = f"arms/arm{i_arm}/{what}"
        if what != "flux" and at not in self.file:
            return None
        with as_failure(INPUT, f"{self.path}: /{at} cannot be read", OSError, ValueError, TypeError):
            flux = np.empty((len(models), self.arm[i_arm].n_pix), "f4")
            for first in range(0, len(models), 256):
                flux[first:first + 256] = self.file[at][models[first:first + 256]]
        bad = ~((flux > 0) & (flux <= 3e38))
        if bad.any():
            i, pixel = np.argwhere(bad)[0]
            raise Failure(INPUT, f"{self.path}: /{at} has {flux[i, pixel]:g} at pixel {pixel} of "
                                 f"model {models[i]}, which is marked good")
        return flux


def open_grid(path):
    with opened(path, INPUT) as file:
        return read_grid(path, file)


def read_grid(path, file):
    made = text_of(file, "format") if "format" in file.attrs else "file of another kind"
    need(made == "starmill grid" and file.attrs["version"] == 1, ValueError,
         f"is a {made}, not a grid file of version 1; starmill library build makes one")
    label = [name.decode() for name in file["labels/name"][...]]
    need(1 <= len(label) <= MAX_LABEL and all(label), ValueError,
         f"has {len(label)} labels, or one without a name; this program takes 1 to {MAX_LABEL}")
    values, status = file["models/label"][...].astype(float), file["models/status"][...]
    if values.shape != (len(status), len(label)) or not 1 <= len(status):
        raise ValueError(f"dataset /models/label has the shape {values.shape}, expected models of "
                         f"{len(label)} labels")
    if not np.isin(status, (TO_DO, GOOD, BAD)).all() or not np.isfinite(values[status < BAD]).all():
        raise ValueError("a model has an unknown status, or a label that is not finite")
    texts = {name: [text.decode("ascii", "replace") for text in file[f"models/{name}"][...]]
             for name in ("name", "why")}
    if {len(text) for text in texts.values()} != {len(status)}:
        raise ValueError(f"datasets /models/name and why are not of {len(status)} models")
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
         and math.isfinite(sigma), ValueError, f"arm {name} has no possible wavelengths or "
         f"resolution: ln_wave0 {ln_wave0:g}, ln_step {ln_step:g}, template_sigma_aa {sigma:g}")
    for what in ("flux", "continuum"):
        if (what == "flux" or what in group) and group[what].shape != (n_model, n_pix):
            raise ValueError(f"dataset {group[what].name} has the shape {group[what].shape}, "
                             f"expected {(n_model, n_pix)}")
    return Arm(name, name, ln_wave0, ln_step, wavelengths(ln_wave0, ln_step, n_pix),
               template_sigma_aa=sigma, sigma_origin=text_of(group, "sigma_origin"), source=source)


def describe_grid(path):
    """Yield lines of text that describe a grid file."""
    grid = open_grid(path)
    yield f"{path}: grid file, {'complete' if grid.complete else 'not complete'}"
    yield grid.settings.rstrip("\n")
    yield from describe_models(grid)


def describe_models(grid):
    for arm in grid.arm:
        sigma = ("at the instrument's resolution" if arm.template_sigma_aa < 0 else
                 f"sigma {arm.template_sigma_aa:.4g} A")
        yield (f"arm {arm.name}: {arm.wave_aa[0]:.2f} to {arm.wave_aa[-1]:.2f} A, {arm.n_pix} "
               f"pixels of {C_KM_S * arm.ln_step:.3f} km/s, {sigma} ({arm.sigma_origin})")
    good = grid.values[grid.status == GOOD]
    for i, name in enumerate(grid.label):
        low, high = (good[:, i].min(), good[:, i].max()) if len(good) else (np.inf, -np.inf)
        yield f"label {name}: {low:g} to {high:g}"
    bad = np.flatnonzero(grid.status == BAD)
    to_do = int((grid.status == TO_DO).sum())
    yield (f"models: {len(good)} good, {len(bad)} bad"
           + (f", {to_do} still to do" if to_do else ""))
    for i in bad[:MAX_NAMED_BAD]:
        yield f"  {grid.name[i]}: {grid.why[i]}"
    if len(bad) > MAX_NAMED_BAD:
        yield f"  and {len(bad) - MAX_NAMED_BAD} more (dataset /models/why)"
    if len(bad):
        yield "  (the same command with --retry-bad reads bad models again)"
