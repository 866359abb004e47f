# SPDX-License-Identifier: BSD-3-Clause
"""Simulated stars seen several times with velocities that are given: a coadd file for each epoch,
for a fit with join_by_name."""

import copy
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from astropy.io import fits as pyfits

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "scripts"))

from simulate import draw, files, observe  # noqa: E402
from simulate.survey import Survey  # noqa: E402

BLOCK = 32  # stars made at once


def make(folder, program, velocity, mjd=None, **settings):
    """Write the files of stars whose velocities are velocity [n_star][n_epoch], km/s, at mjd
    [n_epoch]; settings: options of `starmill simulate`.  Return the paths, and the stars."""
    n_star, n_epoch = velocity.shape
    names = ("seed", "sn", "vsini", "model_error", "distortion", "library", "vel_sigma", "noiseless",
             "pathological", "redrock", "overwrite")
    options = SimpleNamespace(output=folder, program=program, stars=n_star, per_file=n_star,
                              **{**dict.fromkeys(names), **settings})
    survey = Survey(options)
    os.makedirs(folder, exist_ok=True)
    paths, stars = [], draw.draw(survey, 0, n_star)
    for epoch in range(n_epoch):
        noisy = copy.copy(survey)  # its own noise and defects, the star's error of the templates
        noisy.settings = replace(survey.settings, seed=1000 * survey.settings.seed + epoch)
        paths.append(os.path.join(folder, f"epoch-{epoch:03d}.fits"))
        file = files.open_coadd(paths[-1], survey, n_star)
        for at in range(0, n_star, BLOCK):
            some = draw.draw(survey, at, min(BLOCK, n_star - at))
            some.vrad_km_s[:] = velocity[at:at + BLOCK, epoch]
            ideal, n = observe.noiseless(survey, some), len(some.index)
            out = [tuple(np.zeros((n, arm.n_pix), kind) for kind in ("f4", "f4", "i4"))
                   for arm in survey.arms]
            sn = [observe._observe_star(noisy, some, i, [arm[i] for arm in ideal], out)
                  for i in range(n)]
            files.put_coadd(file, at, survey, some, out, np.array(sn, "f4"))
        file.commit()
        if mjd is not None:
            with pyfits.open(paths[-1], mode="update") as hdus:
                table = hdus["FIBERMAP"]
                column = pyfits.Column("MJD", "D", unit="d", array=np.full(n_star, mjd[epoch]))
                hdus["FIBERMAP"] = pyfits.BinTableHDU.from_columns(
                    table.columns + pyfits.ColDefs([column]), header=table.header)
    return paths, stars
