# SPDX-License-Identifier: BSD-3-Clause
"""Coadds of simulated stars with given velocities: stars at several times, or pairs of stars."""

import copy
import functools
import os
import sys

import numpy as np
from astropy.io import fits

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))

from starmill.cli.command_lines import simulate  # noqa: E402
from starmill.mocks import draw, files, observe  # noqa: E402
from starmill.mocks.survey import Survey  # noqa: E402
from starmill.templates.library_data import hull_distance  # noqa: E402

BLOCK = 32  # stars made at once


def as_fitted(one, first, second):
    """True velocities [pair, epoch] of the fits' first stars and of their second stars.  one: fitted
    velocities of the first stars; first, second: true velocities in the order of the survey."""
    turned = (np.abs(one - first).sum(axis=1) > np.abs(one - second).sum(axis=1))[:, np.newaxis]
    return np.where(turned, second, first), np.where(turned, first, second)


def survey_of(folder, program=None, **settings):
    """settings: options of `starmill simulate`, in their names _ for -."""
    os.makedirs(folder, exist_ok=True)
    if program:
        os.environ["STARMILL_PROGRAM"] = program  # the package finds libstarmill next to it
    words = [[f"--{name.replace('_', '-')}", str(value)][:2 - (value is True)]
             for name, value in {"output": folder, **settings}.items() if value is not None]
    options = simulate().read(sum(words, []))
    options.program = program
    return Survey(options)


kept_survey = functools.lru_cache(2)(survey_of)  # for callers that do not change it


def write(path, survey, velocity, noise=None, add=lambda at, ideal: ideal):
    """Write a file of the survey's stars at velocity [n], km/s.

    noise: number of the exposure, which seeds its noise and defects; None: the survey's seed.  A
    star's template error is the same in all exposures.  add(at, ideal): returns the flux to use in
    place of `ideal`, the noise-free flux [arm][star][pixel] of the stars from `at` on."""
    noisy, n_star = copy.copy(survey), len(velocity)
    if noise is not None:
        noisy.settings = copy.copy(survey.settings)
        noisy.settings.seed = 1000 * survey.settings.seed + noise
    file = files.open_coadd(path, survey, n_star)
    for at in range(0, n_star, BLOCK):
        some = draw.draw(survey, at, min(BLOCK, n_star - at))
        some.vrad_km_s[:] = velocity[at:at + BLOCK]
        ideal, n = add(at, observe.noiseless(survey, some)), len(some.index)
        out = [tuple(np.zeros((n, arm.n_pix), kind) for kind in ("f4", "f4", "i4")) for arm in survey.arms]
        sn = [observe._observe_star(noisy, some, i, [arm[i] for arm in ideal], out) for i in range(n)]
        files.put_coadd(file, at, survey, some, (out, np.array(sn, "f4")))
    file.commit()


def make_epochs(folder, program, velocity, mjd=None, seed=None, **settings):
    """Write a file for each epoch: velocity [n_star][n_epoch] in km/s, mjd [n_epoch]; settings:
    options of `starmill simulate`.  Return the paths and the stars."""
    n_star, n_epoch = velocity.shape
    survey = survey_of(folder, program, stars=n_star, per_file=n_star, seed=seed, **settings)
    paths = [os.path.join(folder, f"epoch-{epoch:03d}.fits") for epoch in range(n_epoch)]
    for epoch, path in enumerate(paths):
        write(path, survey, velocity[:, epoch], epoch)
        if mjd is not None:
            with fits.open(path, mode="update") as hdus:
                table = hdus["FIBERMAP"]
                column = fits.Column("MJD", "D", unit="d", array=np.full(n_star, mjd[epoch]))
                hdus["FIBERMAP"] = fits.BinTableHDU.from_columns(
                    table.columns + fits.ColDefs([column]), header=table.header)
    return paths, draw.draw(survey, 0, n_star)


def make(path, program, apart_km_s, ratio, velocity=None, noise=0, seed=1, alike=0, **settings):
    """Write a file of pairs of stars.  Return the first stars and the second ones.

     apart_km_s [n]  velocity of the second star minus that of the first
     ratio [n]       median flux of the second star over the first one's, in arm r; 0: none
     velocity [n]    velocities of the first stars (None: drawn)
     noise           number of the exposure (see write); seeds the noise
     alike           0: the second star's Teff and log g are its own; 1: the first star's
     settings        options of `starmill simulate`
    The second star's other labels are the first star's, unless that puts it outside the hulls."""
    n = len(ratio)
    first, second = (kept_survey(os.path.dirname(path), program, stars=n, per_file=n, seed=which, **settings)
                     for which in (seed, seed + 1_000_000))
    stars, others = draw.draw(first, 0, n), draw.draw(second, 0, n)
    mixed = (1 - alike) * others.label + alike * stars.label
    for i, label in enumerate(first.library.label):
        if label.name not in ("teff", "logg"):
            mixed[:, i] = stars.label[:, i]
    inside = hull_distance(first.library, mixed) <= 0
    others.label[inside] = mixed[inside]
    if velocity is not None:
        stars.vrad_km_s[:] = velocity
    others.vrad_km_s[:] = stars.vrad_km_s + apart_km_s

    def add_other(at, ideal):
        other, part = draw.draw(second, at, min(BLOCK, n - at)), slice(at, at + BLOCK)
        other.label[:], other.vrad_km_s[:] = others.label[part], others.vrad_km_s[part]
        return [one + ratio[part][:, np.newaxis] * two for one, two in zip(ideal, observe.noiseless(second, other))]
    write(path, first, stars.vrad_km_s, noise or None, add_other)
    return stars, others


def move_arms(path, velocity):
    """Let wavelengths of a file's arms be off by velocity {arm: km/s}."""
    with fits.open(path, "update") as f:
        for arm, by in velocity.items():
            f[arm + "_WAVELENGTH"].data *= 1 + by / 299792.458
