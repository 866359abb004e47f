# SPDX-License-Identifier: BSD-3-Clause
"""Fits labels and velocity of spectra on a library's own pixels with this library, by libstarmill
(docs/use/libraries.md, "The report of a library")."""

import tempfile

import numpy as np

from starmill.cli.basics import INPUT, Failure
from starmill.templates import emulate, library_file
from starmill.wavelength import C_KM_S

MAX_SHIFT = 6  # pixels a template may move; fits leave out as many at each end of an arm


def open_library(library):
    """Open the library for fits without rotation and model error.  Velocities stay within MAX_SHIFT
    pixels; npoly_per_1000aa is that of config/sdss.yaml."""
    from starmill.library import Library  # 0.1 s
    most = MAX_SHIFT * C_KM_S * min(arm.ln_step for arm in library.arm)
    with tempfile.NamedTemporaryFile(suffix=".h5") as file:
        file.write(library_file.seal(library, file.name))
        file.flush()
        return Library(file.name, npoly_per_1000aa=9, min_vel=-most, max_vel=most, max_vsini=1,
                       fix_param=[{"param": "vsini", "value": 0}], model_error=False,
                       guess_vel_step=max(1, most / 2), wave_mask=[], backend="cpu")


def fit(fitter, library, flux, noise, sn, start=None):
    """Fit spectra with noise; flux, noise: lists of each arm's [n, n_pix].  Return labels and
    velocity [n, n_label + 1], and their errors."""
    from starmill.library import Spectrum, fit as fit_stars
    stars = []
    for row in range(len(flux[0])):
        spectra = []
        for arm, f, drawn in zip(library.arm, flux, noise):
            low, high = fitter.arms[arm.name]
            at = (arm.wave_aa >= low) & (arm.wave_aa <= high)
            y = f[row, at].astype(float)
            sigma = None if arm.template_sigma_aa < 0 else arm.template_sigma_aa
            spectra.append(Spectrum(arm.wave_aa[at], y * (1 + drawn[row, at] / sn),
                                    error=np.abs(y) / sn, name=arm.name, sigma=sigma))
        stars.append(fitter.star(spectra))
    table = fit_stars(stars, start)
    names = [*(label.column for label in library.label), "VRAD"]
    out = np.stack([[table[name + end] for name in names] for end in ("", "_ERR_FORMAL")])
    out[:, :, table["STATUS"] != 1] = np.nan
    return out.swapaxes(1, 2)


def fit_all(library, labels, flux, all_sn):
    """Fit spectra with noise at each S/N.  Return for each (found, sigma, own) [n, n_label + 1]:
    labels and velocity, their errors, and labels and velocity from the emulator's spectra of the
    same labels with the same noise.  NaN: the fit failed.

    labels [n, n_label]; flux: list of each arm's [n, n_pix], above 0
    """
    from starmill.library import StarmillError
    random = np.random.default_rng(1)
    noise = [random.standard_normal(f.shape) for f in flux]
    own_flux = [emulate.flux(library, a, labels) for a in range(len(flux))]
    start = np.pad(labels, ((0, 0), (2, 0)))[:, None]  # velocity and v sin i are 0
    try:
        fitter = open_library(library)
        return [(*fit(fitter, library, flux, noise, sn),
                 fit(fitter, library, own_flux, noise, sn, start)[0]) for sn in all_sn]
    except (StarmillError, OSError) as error:
        raise Failure(INPUT, f"labels cannot be fitted: {error}") from error
