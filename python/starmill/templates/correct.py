# SPDX-License-Identifier: BSD-3-Clause
"""`starmill library correct`: correct templates by real spectra with known labels, and measure the
remaining model error (docs/science/numerics.md, "Correction by real spectra")."""

import copy

import numpy as np

from starmill.cli.basics import INPUT, USAGE, need, warn
from starmill.templates import correction, emulate, residuals
from starmill.templates.correction import clipped
from starmill.templates.library_file import write
from starmill.templates.measure import robust
from starmill.templates.model_error import (begin, check_rest, covered_arms, missing_sigma,
                                            residuals_of)
from starmill.templates.spectra_files import on_grid
from starmill.templates.spectra_options import number

TAPER_AA = 60  # the correction fades over this length at ends of --range, a third of it at --mask
LEAST_STARS = 30
LEAST_SHARE = 0.9  # of the correction for the median spectrum, without a warning
BLOCK_AA = 100  # length of wavelength ranges; odd and even ranges are fitted apart and compared
TABLE_AA = 500  # length of the wavelength range of one line of the printed table


def numbers(option, text, n):
    found = [number(x) for x in text.split(",")]
    need(len(found) == n and not np.isnan(found).any(), USAGE,
         f"--{option} {text}: expected {n} numbers separated by commas")
    return found


def where_to_measure(options):
    """Return a function of wavelength (A): 1 in --range, smoothly 0 outside and in --mask."""
    low, high = options.range or (0, np.inf)
    need(low != high, USAGE, "--range takes MIN,MAX with MIN below MAX")
    masks = [numbers("mask", part.replace(":", ","), 2)
             for part in options.mask.split(",")] if options.mask else []
    need(all(a < b for a, b in masks), USAGE, "--mask takes MIN:MAX,... with MIN below MAX")

    def measures(wave):
        first, last = max(low, wave[0]), min(high, wave[-1])
        out = np.clip((wave - first) / TAPER_AA, 0, 1) * np.clip((last - wave) / TAPER_AA, 0, 1)
        for a, b in masks:
            out = np.minimum(out, np.clip(3 * np.maximum(a - wave, wave - b) / TAPER_AA, 0, 1))
        return 0.5 * (1 - np.cos(np.pi * out))
    return measures


def labels_to_use(options, library):
    """Return the indices of the labels on which the correction depends: all but --assumed."""
    assumed = options.assumed.split(",") if options.assumed else []
    names = [label.name for label in library.label]
    for name in assumed:
        need(name in names, USAGE, f"--assumed {name}: no label of {library.path}, which has "
             f"{', '.join(names)}")
    need(set(names) - set(assumed), USAGE, "--assumed names all labels: leave one out")
    return [i for i, name in enumerate(names) if name not in assumed]


def label_errors(options, library):
    """Return the errors [n_label] of the spectra's labels."""
    if not options.label_errors:
        return np.array([label.scale for label in library.label])
    errors = np.array(numbers("label-errors", options.label_errors, library.n_label))
    need((errors > 0).all(), USAGE, f"--label-errors {options.label_errors}: all must be above 0")
    return errors


def until_true(pulls, low, high, n_step):
    """Find by bisection the x between low and high at which pulls(x) have a robust standard
    deviation of 1.  Pulls are differences divided by their errors."""
    for _ in range(n_step):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if robust(pulls(middle))[1] > 1 else (low, middle)
    return np.sqrt(low * high)


def make_true(library, arm, found, x, noise2, published):
    """Set the correlation of an arm's model error, and return error floors of the labels [n_label].

    Odd and even wavelength ranges measure the velocity and the labels of a spectrum twice.  The
    correlation makes the errors of velocities match the differences of the two measurements.
    The floors do the same for the labels.
    x          [n, n_pix]    residuals of the spectra
    noise2                   noise variance of a spectrum, per pixel of the arm
    published  [n, n_label]  errors of the given labels; NaN: unknown.  Floors also cover the
                             differences between fitted and given labels
    """
    fraction2 = arm.error.fraction[found.at].astype(float) ** 2
    stride = found.at[1] - found.at[0]
    patterns = np.zeros((0, len(found.at))) if arm.error.component is None else (
        arm.error.sigma[:, None] * arm.error.component[:, found.at])
    turn = (found.wave // BLOCK_AA).astype(int) % 2 == 0  # the even ranges

    def estimates(correlation, use):
        return found.estimates(x, (noise2 + fraction2 * correlation) / stride, patterns,
                               use * found.measures)

    def difference(correlation):
        (a, error_a), (b, error_b) = (estimates(correlation, use) for use in (turn, ~turn))
        return a - b, np.hypot(error_a, error_b)

    def velocities(correlation):
        d, error = difference(correlation)
        return d[:, -1] / error[:, -1]
    arm.error.correlation = until_true(velocities, 1, residuals.MAX_LAG, 8)
    d, error = difference(arm.error.correlation)

    def floors(d, error, share):
        known = np.isfinite(error)
        return [until_true(lambda floor: d[known[:, k], k] / np.hypot(error[known[:, k], k],
                                                                      share * floor),
                           1e-3 * label.scale, 10 * label.scale, 30)
                for k, label in enumerate(library.label)]
    # the difference of two halves has twice the error of a fit to the whole, so twice the floor
    by_turns = floors(d, error, 2)
    known = np.isfinite(published).any(axis=0)
    d, error = estimates(arm.error.correlation, 1)
    error[:, :-1] = np.where(known, np.hypot(error[:, :-1], published), error[:, :-1])
    return np.maximum(by_turns, np.where(known, floors(d, error, 1), 0))


def measure_error(arm, found, rest, options, wave):
    """Set an arm's model error; return the number of spectra.  rest [n, n_pix]: residuals of each
    spectrum (pixels: wave) after a correction learned without it.  Pixels without correction get
    their rms residual less noise."""
    full = np.full((len(rest), arm.n_pix), np.nan)
    corrected = np.interp(np.arange(arm.n_pix), found.at, found.measures, 0, 0) > 0.5
    for x, known, out in zip(clipped(rest, found.known), found.known, full):
        gap = np.interp(arm.wave_aa, found.wave, (~known).astype(float)) > 0
        value = np.interp(arm.wave_aa, found.wave[known], np.expm1(x[known]))
        out[:] = np.where(gap | ~corrected, np.nan, value)

    def put(wave, flux, to):
        return np.interp(to, found.wave, on_grid(wave, flux, to)[found.at], np.nan, np.nan)
    noise = residuals.noise_left(options.spectra_sn, wave, arm.wave_aa, options.continuum, put)
    arm.error, n_used = residuals.measure(arm.wave_aa, full, options.components, noise=noise,
                                          n_continuum=options.continuum, level=found.level)
    n = found.known.sum(axis=0)
    before2 = ((clipped(found.x, found.known) ** 2).sum(axis=0) / np.maximum(n, 1)
               - noise[found.at] ** 2)[n > 0]
    quarter = len(before2) // 4
    size2 = np.interp(arm.wave_aa, found.wave[n > 0], before2, before2[:quarter].mean(),
                      before2[-quarter:].mean())
    arm.error.fraction[~corrected] = np.sqrt(np.maximum(size2, 0))[~corrected]
    return n_used


def describe(arm, label, found, learned, change, rest):
    """Return lines of text about a correction.  change [n, n_pix]: of ln flux; rest [n, n_pix]:
    residuals of spectra left out."""
    lines = [f"correction of arm {arm.name}: {len(change)} spectra, polynomials of degree "
             f"{learned.degree} of {', '.join(label[i].name for i in learned.use)}, ridge "
             f"{learned.ridge:g}", "  A            correction, %   residuals before, left out, %"]
    for low in np.arange(TABLE_AA * (found.wave[0] // TABLE_AA), found.wave[-1], TABLE_AA):
        near = (found.wave >= low) & (found.wave < low + TABLE_AA) & (found.measures > 0.5)
        known = found.known[:, near]
        use = known.any(axis=1)
        if use.any():
            size = [100 * np.median(np.sqrt((x[use][:, near] ** 2).mean(axis=1, where=known[use])))
                    for x in (change, found.x, rest)]
            lines.append(f"  {low:5.0f}-{low + TABLE_AA:5.0f}  {size[0]:14.2f} {size[1]:18.2f} "
                         f"{size[2]:10.2f}")
    return lines


def take_out(library, i_arm, found, how, kind):
    """Correct an arm in two rounds.  found: the arm's Calibrators; how, kind: further arguments of
    correction.compare and correction.learn.  Return the Correction with round two's coef."""
    learned = correction.learn(found, *kind)
    correction.apply(library, i_arm, found, learned)
    # a second round corrects what the emulator did not reproduce
    again = correction.compare(library, i_arm, *how, found.slope)
    learned.coef = learned.regress(again, again.x)
    correction.apply(library, i_arm, found, learned)
    return learned


def onto_scale(library, i_arm, found, how, kind):
    """Shift the published labels, for this arm, to the scale of the stars with label errors (the
    benchmark stars).  Return new Calibrators and lines of text.  how, kind: as in take_out."""
    spectra, trial = how[0], copy.deepcopy(library)
    take_out(trial, i_arm, found, how, kind)
    stars = correction.compare(trial, i_arm, *how)
    stars = stars.rows(np.isfinite(stars.errors).any(axis=1))
    scale, lines = correction.scale_of(stars, kind[0], library.label)
    need(lines, INPUT, "--error-columns: every label has errors in fewer than "
         f"{correction.LEAST_BENCHMARK} spectra, too few to correct its scale; add benchmark stars")
    spectra.labels = spectra.labels - np.where(np.isfinite(spectra.errors), 0,
                                               scale(library.map(spectra.labels)))
    return correction.compare(library, i_arm, *how), [
        "labels were brought to the scale of benchmark stars", *lines]


def correct_arm(options, library, i_arm, spectra, sigma_aa):
    """Correct an arm and measure its model error.  Return lines of text and the labels' floors."""
    arm, use, spectra = library.arm[i_arm], labels_to_use(options, library), copy.copy(spectra)
    kernel_aa = missing_sigma(options.spectra, arm, sigma_aa)
    x, _ = residuals_of(library, i_arm, spectra, kernel_aa)
    check_rest(options.spectra, library, i_arm, spectra, kernel_aa, x)
    how = (spectra, sigma_aa, kernel_aa, options.continuum, where_to_measure(options),
           label_errors(options, library))
    found = correction.compare(library, i_arm, *how)
    need(len(found.x) >= LEAST_STARS, INPUT, f"{options.spectra}: {len(found.x)} spectra have "
         f"good fluxes in over half of arm {arm.name}, expected {LEAST_STARS} or more; give more")
    degrees = correction.DEGREES if options.degree is None else (options.degree,)
    kind, lines = (use, *correction.choose(found, use, degrees)), []
    if options.error_columns:
        found, lines = onto_scale(library, i_arm, found, how, kind)
    share = np.median(correction.nearby(found, use, found.mapped))
    if share < LEAST_SHARE:
        warn(f"arm {arm.name}: half of the spectra get at most {100 * share:.0f} % of the "
             "correction, as too few others are within 5 --label-errors; give larger ones")
    rest = correction.left_out(found, *kind)  # each by a correction learned without it
    learned = take_out(library, i_arm, found, how, kind)
    change = found.x - correction.compare(library, i_arm, *how, found.slope).x
    after = np.where(found.measures > 0.5, rest, found.x)  # residuals before, where not corrected
    # remove errors of the given labels, but not their trend, which may be the templates' error
    shift = correction.without_trend(found.shifts(after), emulate.monomials(found.mapped, 1))
    n = measure_error(arm, found, found.at_shifts(after, shift), options, spectra.wave)
    pixel = np.median(np.diff(spectra.wave)) / (arm.ln_step * np.median(found.wave))
    noise2 = pixel / (options.spectra_sn or np.inf) ** 2
    given = np.where(np.isnan(found.errors) & bool(options.label_errors), found.scale, found.errors)
    floors = make_true(library, arm, found, after, noise2, given)
    return [*lines, *describe(arm, library.label, found, learned, change, rest),
            residuals.line(arm, n, found.wave)], floors


def main(options):
    library, spectra, sigma_aa = begin(options, options.error_columns)
    arms = covered_arms(options, library, spectra.wave)
    lines, floors = zip(*[correct_arm(options, library, i, spectra, sigma_aa) for i in arms])
    for label, floor in zip(library.label, np.min(floors, axis=0)):
        label.floor = float(floor)
    told = [line for part in lines for line in part]
    told.append("errors of labels are at least " + ", ".join(
        f"{label.floor:.3g} {label.unit} ({label.name})" for label in library.label))
    library.report = "\n".join([*told, library.report or ""])
    write(options.output, library, options.overwrite, options.program)
    print("\n".join([*told, f"{options.output}: {len(arms)} arms corrected, hash {library.hash}"]))
