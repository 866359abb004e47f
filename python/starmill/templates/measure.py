# SPDX-License-Identifier: BSD-3-Clause
"""Measures a library by spectra left out (docs/use/libraries.md, "The report of a library")."""

import contextlib
import tempfile
from collections import namedtuple

import numpy as np

from starmill.cli.basics import INPUT, USAGE, Failure, as_failure, ascii_of, need
from starmill.templates import emulate, library_file, residuals
from starmill.templates.library_data import inside_hulls
from starmill.wavelength import C_KM_S

ALL_SN = (20, 100)  # S/N per pixel at which the spectra are fitted
MAX_SPECTRA = 1000  # all are held in memory, with their errors
MAX_FITS = 200  # most spectra that are fitted; they are evenly spaced
N_WORST = 5
BLOCK = 64  # spectra emulated at once
MAX_SHIFT = 6  # pixels a template may move; fits leave out as many at each end of an arm

# n spectra on the pixels of a library: labels [n, n_label]; names [n], for messages; a list of each
# arm's flux [n, n_pix], NaN in gaps; a list of each arm's continuum [n, n_pix] or None
ModelSet = namedtuple("ModelSet", "labels names flux continuum")


def robust(x):
    """Return the median and the robust standard deviation of x [n, ...]."""
    median = np.median(x, axis=0)
    return median, 1.4826 * np.median(np.abs(x - median), axis=0)


def arm_errors(library, i_arm, models):
    """Return the errors of pixels [n, n_pix], per cent of the continuum (of the flux if there is no
    continuum), and spectra / templates - 1 [n, n_pix]."""
    flux, continuum = models.flux[i_arm], models.continuum[i_arm]
    error, residual = np.empty(flux.shape, "f4"), np.empty(flux.shape)
    for first in range(0, len(flux), BLOCK):
        block = slice(first, first + BLOCK)
        model = emulate.flux(library, i_arm, models.labels[block])
        seen = flux[block].astype(float)
        unit = seen if continuum is None else continuum[block]
        error[block] = 100 * np.abs(model - seen) / unit
        residual[block] = seen / model - 1
    return error, residual


def pixel_lines(library, models, n_component):
    """Return lines of text on pixels, lines on residuals, and [ModelError or None] by arm."""
    n, errors, residual_lines, model_errors = len(models.labels), [], [], []
    for i, arm in enumerate(library.arm):
        error, residual = arm_errors(library, i, models)
        errors.append(error)
        model_errors.append(None)
        if n < residuals.LEAST_SPECTRA or arm.n_pix < 4 * residuals.N_CONTINUUM:
            continue
        error, _ = residuals.measure(arm.wave_aa, residual, min(n_component, n // 2))
        model_errors[i], (rms, left) = error, error.size()
        residual_lines.append(
            f"  {arm.name:<8} rms {100 * rms:.4f} %, of which {len(error.sigma)} components leave "
            f"{100 * rms * np.sqrt(left):.4f} %, correlated over "
            f"{error.correlation * arm.ln_step * arm.wave_aa[arm.n_pix // 2]:.2f} A")
    unit = "flux" if models.continuum[0] is None else "continuum"
    lines = [f"error of their pixels, per cent of the {unit}",
             "            all pixels                              rms of a spectrum",
             "  arm       median     95 %     99 %  largest   median     95 %  largest"]
    errors.append(np.concatenate(errors, axis=1))  # all arms together
    rms = [np.sqrt(np.nanmean(error**2, axis=1, dtype=float)) for error in errors]
    worst = np.argsort(-rms[-1], kind="stable")[:N_WORST]
    names_of_worst = [f"  {rms[-1][i]:8.4f}  {models.names[i]}" for i in worst]
    for name, *found in zip([*(arm.name for arm in library.arm), "all"], errors, rms):
        p, m = (np.nanpercentile(x, (50, 95, 99, 100)) for x in found)
        lines.append(f"  {name:<8} {p[0]:8.4f} {p[1]:8.4f} {p[2]:8.4f} {p[3]:8.3f} {m[0]:8.4f} "
                     f"{m[1]:8.4f} {m[3]:8.3f}")
    return lines + ["worst spectra, rms in per cent", *names_of_worst], residual_lines, model_errors


def open_library(library):
    """Open the library for fits without rotation and model error, with velocities up to MAX_SHIFT
    pixels.  npoly_per_1000aa is as in config/sdss.yaml."""
    from starmill.library import Library  # 0.1 s
    most = MAX_SHIFT * C_KM_S * min(arm.ln_step for arm in library.arm)
    with tempfile.NamedTemporaryFile(suffix=".h5") as file:
        file.write(library_file.seal(library, file.name))
        file.flush()
        return Library(file.name, npoly_per_1000aa=9, min_vel=-most, max_vel=most, max_vsini=1,
                       fix_param=[{"param": "vsini", "value": 0}], model_error=False,
                       guess_vel_step=max(1, most / 2), wave_mask=[], backend="cpu")


def fit(fitter, library, flux, noise, sn, start=None):
    """Fit spectra with noise of this S/N.  flux, noise: lists of an array [n, n_pix] for each arm;
    noise is normal with sigma 1.  Return labels and velocity [n, n_label + 1], and their errors."""
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
    """Fit spectra of these labels [n, n_label] with noise.  flux: list of each arm's [n, n_pix].
    Return for each S/N three arrays [n, n_label + 1]: labels and velocity found; their errors; what
    is found for the emulator's own spectra with the same noise.  NaN: no fit."""
    from starmill.library import StarmillError
    random = np.random.default_rng(1)
    noise = [random.standard_normal(f.shape) for f in flux]
    own_flux = [np.where(np.isnan(f), f, emulate.flux(library, a, labels))
                for a, f in enumerate(flux)]
    start = np.pad(labels, ((0, 0), (2, 0)))[:, None]  # velocity and v sin i are 0
    with as_failure(INPUT, "labels cannot be fitted", StarmillError, OSError):
        fitter = open_library(library)
        return [(*fit(fitter, library, flux, noise, sn),
                 fit(fitter, library, own_flux, noise, sn, start)[0]) for sn in all_sn]


def label_lines(library, models):
    """Return lines of text on the labels and velocities fitted to up to MAX_FITS of the models."""
    n = len(models.labels)
    use = np.arange(min(n, MAX_FITS)) * n // min(n, MAX_FITS)
    labels = models.labels[use]
    lines = [f"fitted labels and velocity of {len(use)} of these spectra, with noise",
             "                      fitted - true          error of     the emulator's own part",
             "  S/N  what         median    scatter     the fit     median    scatter  in errors  "
             "share"]
    true = np.pad(labels, ((0, 0), (0, 1)))
    for sn, fits in zip(ALL_SN, fit_all(library, labels, [f[use] for f in models.flux], ALL_SN)):
        good = np.isfinite(sum(fits)).all(axis=1)
        found, sigma, of_emulator = (x[good] for x in fits)
        if good.any():
            bias, scatter = robust(found - true[good])
            own_bias, own_scatter = robust(found - of_emulator)
            whole = bias**2 + scatter**2
            share = (own_bias**2 + own_scatter**2) / np.where(whole > 0, whole, np.inf)
            table = (bias, scatter, np.median(sigma, axis=0), own_bias, own_scatter,
                     np.median((found - of_emulator) / sigma, axis=0), 100 * share)
            for name, *row in zip([*(label.name for label in library.label), "km/s"], *table):
                lines.append("  {:3.0f}  {:<8} {:10.4g} {:10.4g}  {:10.4g} {:10.4g} {:10.4g} "
                             "{:10.3f} {:5.0f} %".format(sn, name, *row))
        if not good.all():
            lines.append(f"  {sn:3.0f}  the fits of {(~good).sum()} spectra did not finish")
    return lines


def report(library, models, n_component, how):
    """Measure a library's errors by a ModelSet of at most MAX_SPECTRA spectra.  Return a report and
    each arm's ModelError or None.  how: a line of text that says which spectra these are."""
    n = len(models.labels)
    need(1 <= n <= MAX_SPECTRA, USAGE, f"a report needs 1 to {MAX_SPECTRA} spectra, not {n}")
    inside = inside_hulls(library, models.labels)
    need(inside.any(), INPUT,
         f"none of the {n} spectra left out has labels inside the library's hulls; leave out more")
    models = ModelSet(models.labels[inside], [m for m, use in zip(models.names, inside) if use],
                      [f[inside] for f in models.flux],
                      [None if c is None else c[inside] for c in models.continuum])
    pixels, rest, errors = pixel_lines(library, models, n_component)
    outside = f", and {n - inside.sum()} outside the hulls" if not inside.all() else ""
    lines = [f"report  {inside.sum()} spectra that were left out{outside}", how, *pixels,
             *label_lines(library, models)]
    if rest:
        lines += ['residuals without their continuum (docs/science/numerics.md, "Model error")',
                  *rest]
    return ascii_of("\n".join([*lines, ""])), errors  # names of models may have any bytes


@contextlib.contextmanager
def reporting(is_needed=False):
    """Print why the with block made no report, but raise its Failure if the report is needed."""
    try:
        yield
    except Failure as failure:
        if is_needed or failure.status != INPUT:
            raise
        print(f"no report: {failure}")
