# SPDX-License-Identifier: BSD-3-Clause
"""`starmill library model-error`: measure template errors by rest-frame spectra of known labels."""

import numpy as np

from starmill.cli.basics import INPUT, USAGE, need, warn
from starmill.templates import emulate, residuals
from starmill.templates.library_data import inside_hulls
from starmill.templates.library_file import read, writable, write
from starmill.templates.measure import BLOCK, robust
from starmill.templates.resample import ArmCut
from starmill.templates.spectra import find_velocities, legendre
from starmill.templates.spectra_files import on_grid, read_all
from starmill.templates.spectra_options import Request
from starmill.wavelength import FWHM_PER_SIGMA

LEAST_LEVEL = 0.01  # floor of the mean template, relative to the mean flux of an arm
SIGMA_TOLERANCE = 0.01  # relative; sigmas this close are equal, since cards are rounded
MOST_KM_S = 3.0  # by which spectra at rest may differ from the templates


def smoother(arm, kernel_aa):
    """Return an ArmCut that convolves an arm's templates with a Gaussian of sigma kernel_aa (A).
    Also return the slice of pixels that it gives: there the kernel lies inside the arm."""
    pixel = arm.wave_aa * arm.ln_step
    reach = 0.5 + 5 * kernel_aa / pixel[0]
    need(2 * reach + residuals.N_CONTINUUM < arm.n_pix, INPUT,
         f"arm {arm.name}: too few pixels are left after cutting {5 * kernel_aa:g} A off each "
         "end (5 sigma of the spectra's resolution); give sharper spectra")
    margin = int(reach) + 2
    inside = slice(margin, arm.n_pix - margin)
    # ArmCut's mean over a pixel adds the pixel's variance, pixel^2 / 12
    kernel = np.sqrt(np.maximum(kernel_aa**2 - pixel[inside] ** 2 / 12, 0))
    cut = ArmCut(len(kernel), arm.ln_wave0 + margin * arm.ln_step, arm.ln_step, kernel)
    cut.prepare(arm.wave_aa)
    return cut, inside


def smoothed(library, i_arm, kernel_aa):
    """Return a function of labels that gives an arm's templates convolved with a Gaussian of sigma
    kernel_aa (A), and the slice of pixels where they are right."""
    cut, inside = smoother(library.arm[i_arm], kernel_aa) if kernel_aa > 0 else (None, slice(None))

    def templates(labels):
        model = emulate.flux(library, i_arm, labels)
        if cut:
            model[:, inside] = [cut.apply(one) for one in model]
        return model
    return templates, inside


def residuals_of(library, i_arm, spectra, kernel_aa=0.0):
    """Return residuals r / (mean of r in the spectrum) - 1 [n, n_pix] with r = spectrum / template;
    NaN: unknown.  Also return the mean [n_pix] of the templates, each divided by its mean |flux|.
    spectra: LabelledSpectra.  kernel_aa: sigma (A) of a Gaussian that convolves templates."""
    arm, (templates, inside) = library.arm[i_arm], smoothed(library, i_arm, kernel_aa)
    out, level = np.full((len(spectra.flux), arm.n_pix), np.nan), np.zeros(arm.n_pix)
    for start in range(0, len(out), BLOCK):
        block = slice(start, start + BLOCK)
        model = templates(spectra.labels[block])
        level += (model / np.abs(model).mean(axis=1, keepdims=True)).sum(axis=0)
        for i, flux in enumerate(spectra.flux[block].astype(float)):
            value = on_grid(spectra.wave, np.where(flux > 0, flux, np.nan), arm.wave_aa)
            out[start + i, inside] = (value / model[i])[inside]
    count = np.isfinite(out).sum(axis=1, keepdims=True)
    mean = np.nansum(out, axis=1, keepdims=True) / np.maximum(count, 1)
    # floor: networks of the flux may give negative templates
    return out / mean - 1, np.maximum(level / len(out), LEAST_LEVEL)


def check_rest(path, library, i_arm, spectra, kernel_aa, x):
    """Print the mean velocity of spectra against templates; refuse spectra that are not at rest."""
    arm, good = library.arm[i_arm], np.isfinite(x)
    smooth = legendre(arm.wave_aa, residuals.N_CONTINUUM)
    model = smoothed(library, i_arm, kernel_aa)[0](spectra.labels)
    model = np.log(np.maximum(model, LEAST_LEVEL * model.mean(axis=1, keepdims=True)))
    y = model + np.log(np.clip(np.where(good, 1 + x, 1), LEAST_LEVEL, 1 / LEAST_LEVEL))
    for one in (model, y):
        one -= (one @ smooth.T) @ smooth
    found = find_velocities(y, good, model, arm.ln_step)
    found = found[np.isfinite(found) & good.any(axis=1)]
    if len(found) == 0:
        return
    middle, error = robust(found) * np.array([1, 1.25 / np.sqrt(len(found))])  # of a median
    text = f"at {middle:.2f} +- {error:.2f} km/s relative to the templates of arm {arm.name}"
    print(f"spectra: {text}")
    need(abs(middle) <= max(5 * error, MOST_KM_S), INPUT,
         f"{path}: {text}: bring them to rest, or check --medium")


def missing_sigma(path, arm, sigma_aa):
    """Return the Gaussian sigma (A) that convolves the templates of an arm to the spectra's
    sigma_aa; 0 if sigma_aa is unknown (NaN) or the templates have the instrument's resolution."""
    if np.isnan(sigma_aa) or arm.template_sigma_aa < 0:
        return 0.0
    need(sigma_aa >= arm.template_sigma_aa * (1 - SIGMA_TOLERANCE), INPUT,
         f"{path}: spectra of sigma {sigma_aa:.4g} A are sharper than the templates of arm "
         f"{arm.name}, {arm.template_sigma_aa:.4g} A; convolve them, or give --spectra-sigma")
    if sigma_aa <= arm.template_sigma_aa * (1 + SIGMA_TOLERANCE):
        return 0.0
    kernel = np.sqrt(sigma_aa**2 - arm.template_sigma_aa**2)
    print(f"arm {arm.name}: templates convolved with sigma {kernel:.4g} A to match the spectra's "
          f"{sigma_aa:.4g} A")
    return kernel


def read_inside(options, library, error_columns):
    """Read the LabelledSpectra and keep those with labels inside the library's hulls."""
    columns = options.columns.split(",") if options.columns else [
        label.column for label in library.label]
    errors = error_columns.split(",") if error_columns else []
    for option, names in (("columns", columns), ("error-columns", errors)):
        need(len(names) in (0, library.n_label), USAGE,
             f"--{option} gives {len(names)} names for {library.n_label} labels of the library")
    labels = list(zip([label.name for label in library.label] * 2, columns + errors))
    medium = options.medium if options.medium != "auto" else None
    spectra = read_all([options.spectra], True, Request(labels, medium=medium))
    spectra.labels, spectra.errors = np.split(
        np.pad(spectra.labels, ((0, 0), (0, library.n_label - len(errors))),
               constant_values=np.nan), [library.n_label], axis=1)
    need(not (spectra.errors <= 0).any(), INPUT, f"{options.spectra}: an error in --error-columns "
         "is not above 0; give NaN as the errors of stars that are no benchmark stars")
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = inside_hulls(library, spectra.labels)
    need(inside.any(), INPUT, f"{options.spectra}: no labels are inside the library's hulls")
    print(f"spectra: {inside.sum()} of {len(inside)} have labels inside the library's hulls")
    if 2 * inside.sum() < np.isfinite(spectra.labels).all(axis=1).sum():
        warn("more than half of the labels are outside the hulls: are --columns in the library's "
             f"order, {', '.join(label.name for label in library.label)}?")
    for name in ("flux", "labels", "errors"):
        setattr(spectra, name, getattr(spectra, name)[inside])
    return spectra


def covered_arms(options, library, wave):
    """Return the indices of the arms of which the spectra cover half; refuse if there are none."""
    found = [i for i, arm in enumerate(library.arm)
             if min(arm.wave_aa[-1], wave[-1]) - max(arm.wave_aa[0], wave[0])
             >= 0.5 * (arm.wave_aa[-1] - arm.wave_aa[0])]
    need(found, INPUT, f"{options.spectra}: its spectra, {wave[0]:.0f} to {wave[-1]:.0f} A, cover "
         f"less than half of every arm of {options.arguments[0]}")
    return found


def begin(options, error_columns=None):
    """Check that the output can be written.  Return the library, the spectra inside its hulls and
    the sigma (A) of their line-spread function."""
    path = options.arguments[0]
    writable(options.output, options.overwrite,
             [("the library", path), ("--spectra", options.spectra)])
    library = read(path)
    spectra = read_inside(options, library, error_columns)
    of_card = spectra.origin.fwhm_aa / FWHM_PER_SIGMA
    return library, spectra, of_card if options.spectra_sigma is None else options.spectra_sigma


def main(options):
    library, spectra, sigma_aa = begin(options)
    names = [arm.name for arm in library.arm]
    wanted = options.arms.split(",") if options.arms else []
    for name in wanted:
        need(name in names, USAGE, f"{library.path} has no arm {name}, only {', '.join(names)}")
    arms = [i for i, name in enumerate(names) if name in wanted] or covered_arms(
        options, library, spectra.wave)
    for i_arm in arms:
        arm = library.arm[i_arm]
        kernel_aa = missing_sigma(options.spectra, arm, sigma_aa)
        x, level = residuals_of(library, i_arm, spectra, kernel_aa)
        check_rest(options.spectra, library, i_arm, spectra, kernel_aa, x)
        noise = residuals.noise_left(options.spectra_sn, spectra.wave, arm.wave_aa,
                                     options.continuum)
        arm.error, n = residuals.measure(arm.wave_aa, x, options.components, noise=noise,
                                         n_continuum=options.continuum, level=level)
        print(residuals.line(arm, n, arm.wave_aa))
    write(options.output, library, options.overwrite, options.program)
    print(f"{options.output}: {len(arms)} arm{'s' * (len(arms) != 1)} measured, hash "
          f"{library.hash}")
