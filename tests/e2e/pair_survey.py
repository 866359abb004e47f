# SPDX-License-Identifier: BSD-3-Clause
"""Simulated spectra of two stars each, in one coadd file."""

import copy
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from astropy.io import fits

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "scripts"))

from library.library_data import hull_distance  # noqa: E402
from simulate import draw, files, observe  # noqa: E402
from simulate.survey import Survey  # noqa: E402

BLOCK = 32  # stars made at once


def as_fitted(one, first, second):
    """True velocities [star, epoch] of both stars, first those of the ones that were fitted with one."""
    turned = (np.abs(one - first).sum(axis=1) > np.abs(one - second).sum(axis=1))[:, np.newaxis]
    return np.where(turned, second, first), np.where(turned, first, second)


def make(path, program, apart_km_s, ratio, velocity=None, noise=0, **settings):
    """Write the file of pairs whose velocities differ by apart_km_s [n] and whose second star has
    ratio [n] times the median flux of the first one over arm r; 0: there is none.  It has the first
    one's labels but Teff and log g, where a template has these.  velocity [n]: those
    of the first stars instead of drawn ones; noise: which of several exposures it is; settings: options
    of `starmill simulate`.  Return the first stars and the second ones."""
    names = ("sn", "vsini", "model_error", "distortion", "library", "vel_sigma", "noiseless",
             "pathological", "redrock", "overwrite")
    n, seed = len(ratio), settings.pop("seed", 1)
    folder = os.path.dirname(path)
    first, second = (
        Survey(SimpleNamespace(output=folder, program=program, stars=n, per_file=n, seed=which,
                               **{**dict.fromkeys(names), **settings}))
        for which in (seed, seed + 1_000_000))
    os.makedirs(folder, exist_ok=True)
    stars, others = draw.draw(first, 0, n), draw.draw(second, 0, n)
    mixed = others.label.copy()
    for i, label in enumerate(first.library.label):
        if label.name not in ("teff", "logg"):
            mixed[:, i] = stars.label[:, i]
    inside = hull_distance(first.library, mixed) <= 0
    others.label[inside] = mixed[inside]
    if velocity is not None:
        stars.vrad_km_s[:] = velocity
    noisy = copy.copy(first)  # its own noise and defects, the star's error of the templates
    if noise:
        noisy.settings = replace(first.settings, seed=1000 * seed + noise)
    others.vrad_km_s[:] = stars.vrad_km_s + apart_km_s
    file = files.open_coadd(path, first, n)
    for at in range(0, n, BLOCK):
        some, other = (draw.draw(one, at, min(BLOCK, n - at)) for one in (first, second))
        part = slice(at, at + BLOCK)
        some.vrad_km_s[:] = stars.vrad_km_s[part]
        other.label[:], other.vrad_km_s[:] = others.label[part], others.vrad_km_s[part]
        ideal = [one + ratio[part][:, np.newaxis] * two
                 for one, two in zip(observe.noiseless(first, some), observe.noiseless(second, other))]
        out = [tuple(np.zeros((len(some.index), arm.n_pix), kind) for kind in ("f4", "f4", "i4"))
               for arm in first.arms]
        sn = [observe._observe_star(noisy, some, i, [arm[i] for arm in ideal], out)
              for i in range(len(some.index))]
        files.put_coadd(file, at, first, some, out, np.array(sn, "f4"))
    file.commit()
    return stars, others


def move_arms(path, velocity):
    """Let wavelengths of a file's arms be off by velocity {arm: km/s}."""
    with fits.open(path, "update") as f:
        for arm, by in velocity.items():
            f[arm + "_WAVELENGTH"].data *= 1 + by / 299792.458
