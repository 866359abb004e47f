# SPDX-License-Identifier: BSD-3-Clause
"""`starmill library spectra`: make a library from labelled spectra."""

import os

import numpy as np

from starmill.cli.basics import INPUT, USAGE, Failure, need
from starmill.templates.library_file import writable, write
from starmill.templates.measure import report
from starmill.templates.residuals import N_COMPONENT, line
from starmill.templates.spectra_files import read_all
from starmill.templates.spectra_fit import BAD_FLUX, FATES, build, leave_out
from starmill.templates.spectra_options import list_files, read_ranges, request_of
from starmill.wavelength import C_KM_S, FWHM_PER_SIGMA


def check_options(options):
    left_out = 0.1 if options.left_out is None else options.left_out
    for name, given, useless, why in (
            ("spectra-sn", options.spectra_sn, options.model_error is None,
             "without --model-error"),
            ("seed", options.seed, left_out == 0, "with --left-out 0")):
        need(given is None or not useless, USAGE,
             f"--{name} does not apply {why}; see starmill library spectra --help")
    return left_out


def resolution(options, path, low, high, fwhm):
    """Return the Gaussian sigma (A) of spectra from low to high (A), or -1 if they have the
    instrument's resolution, and a text on its origin.  fwhm: card FWHM (A), NaN if missing."""
    if options.at_instrument_resolution:
        return -1.0, "--at-instrument-resolution"
    if options.sigma:
        sigma, origin = options.sigma, "--sigma"
    elif options.fwhm:
        sigma, origin = options.fwhm / FWHM_PER_SIGMA, f"--fwhm {options.fwhm:g} A"
    elif options.resolving_power:  # the library holds one sigma for an arm
        power, mid = options.resolving_power, 0.5 * (low + high)
        ends = [x / (FWHM_PER_SIGMA * power) for x in (low, high)]
        sigma = mid / (FWHM_PER_SIGMA * power)
        origin = (f"--resolving-power {power:g} in the middle, at {mid:.0f} A; {ends[0]:.3f} A at "
                  f"{low:.0f} A, {ends[1]:.3f} A at {high:.0f} A")
    elif np.isfinite(fwhm):
        need(fwhm > 0, INPUT, f"{path}: its card FWHM is {fwhm:g}; give --fwhm A")
        sigma, origin = fwhm / FWHM_PER_SIGMA, f"card FWHM, {fwhm:g} A"
    else:
        raise Failure(USAGE, f"{path} does not give its resolution (no card FWHM), which a fit "
                      "needs; give --fwhm A, --sigma A, --resolving-power R or "
                      "--at-instrument-resolution")
    most = 0.25 * (high - low)
    need(not 0 < most < sigma, USAGE, f"{path}: the resolution is sigma {sigma:g} A ({origin}), "
         f"expected at most {most:.3g} A for spectra of {high - low:.6g} A")
    return sigma, origin


def complete(options, request, path):
    """Set in options the names of the labels, their limits [n_label, 2], beyond which spectra are
    left out, the source's name, and range and hull if they were not given."""
    arm = options.arm
    if not (arm.isascii() and arm.replace("_", "a").isalnum() and arm == arm.lower()):
        raise Failure(USAGE, f"--arm {arm}: a name is made of lower-case letters, digits and _")
    keep = read_ranges("keep", options.keep, request.labels) if options.keep else {}
    options.names = [name for name, _ in request.labels]
    options.limits = np.array([keep.get(name, (-np.inf, np.inf)) for name in options.names])
    options.source = os.path.basename(path.rstrip("/"))[:127]
    options.range = options.range or (0, np.inf)
    options.hull = options.hull or ("all" if options.keep_outliers else "dense")


def rows_text(names, rows):
    """Return file names, or row numbers from 1 as FITS counts, with runs as 3-7."""
    if names:
        return f"file{'s' * (len(rows) != 1)} " + ", ".join(names[i] for i in rows)
    runs = []
    for row in rows:
        if runs and row == runs[-1][1] + 1:
            runs[-1][1] = row
        else:
            runs.append([row, row])
    return f"row{'s' * (len(rows) != 1)} " + ", ".join(
        f"{a + 1}" if a == b else f"{a + 1}-{b + 1}" for a, b in runs)


def print_spectra(made, names):
    """Print which spectra are used, and why others are not."""
    print(f"spectra: {len(made.rows)} of {len(made.fate)} used")
    for code, why in enumerate(FATES):
        rows = (made.fate == code).nonzero()[0]
        if code > 0 and len(rows):
            print(f"  {len(rows):4d} {why}: {rows_text(names, rows)}")
    weight = dict(zip(made.rows, made.functions.weight))
    doubtful = [row for row in made.rows if weight[row] < 0.5]
    if doubtful:
        print(f"  {len(doubtful):4d} of those used have a weight below 0.5: "
              f"{'file' if names else 'row'}{'s' * (len(doubtful) != 1)} " + ", ".join(
                  f"{names[i] if names else i + 1} ({weight[i]:.2f})" for i in doubtful))
    gaps = made.gap[made.rows]
    if gaps.any():
        print(f"  {(gaps > 0).sum():4d} of those used have gaps (bad pixels"
              f"{', and beyond the ends of what was moved' if made.n_align else ''}), which the "
              f"functions of the labels fill: at most {100 * gaps.max():.2g} %")
    if (gaps.any() or (made.fate == BAD_FLUX).any()) and made.good_aa:
        print("       no spectrum has a bad pixel from {:.2f} to {:.2f} A".format(*made.good_aa))
    if len(made.outside):
        print(f"  {len(made.outside):4d} of those used lie outside the hulls of the others (--hull "
              f"all takes them in): {rows_text(names, made.outside)}")


def print_made(made, settings, spectra):
    arm, functions, names = made.library.arm[0], made.functions, spectra.names
    print(spectra.origin)
    if settings.sigma_aa < 0:
        print("resolution: the instrument's own, no resolution of spectra applies "
              f"({settings.sigma_origin})")
    else:
        print(f"resolution: sigma {settings.sigma_aa:.4f} A of the templates, removed from that of "
              f"the spectra to be fitted ({settings.sigma_origin})")
    print(f"arm {arm.name}: {arm.wave_aa[0]:.2f} to {arm.wave_aa[-1]:.2f} A, {arm.n_pix} pixels of "
          f"{C_KM_S * arm.ln_step:.3f} km/s")
    print("continuum: " + ("kept" if settings.continuum < 0 else "polynomials up to degree "
                           f"{settings.continuum} removed from ln flux"))
    print_spectra(made, names)
    fit = functions.fit
    print(f"components: {len(functions.pattern)}, with {100 * functions.kept:.3f} % of the "
          f"variance; polynomial of degree {fit.degree}"
          f"{' (what the labels determine)' if fit.degree < settings.degree else ''}, smoothing "
          f"{fit.smooth.min():.3g} to {fit.smooth.max():.3g}"
          f"{'' if settings.smoothing else ' (by leave-one-out)'}")
    if made.n_align:
        velocity = made.velocity[made.rows]
        i = abs(velocity).argmax()
        row = made.rows[i]
        print(f"velocities removed from the spectra: rms {(velocity**2).mean() ** 0.5:.2f} km/s, "
              f"the largest {velocity[i]:.2f} km/s "
              f"({'file ' + names[row] if names else f'row {row + 1}'}); {made.n_align} rounds, "
              f"the last one changed them by {made.align_step:.3f} km/s")
    if made.error_facts:
        print(line(arm.name, arm.error, made.error_facts))


def measure(made, names, part, seed):
    """Print the report on spectra left out of a second library, and store it in the library."""
    try:
        names = [names[i] if names else f"row {i + 1}" for i in made.rows]
        pair = leave_out(made, names, part, seed)
        if pair is None:
            raise Failure(INPUT, "no spectrum is surrounded by others, so none can be left out")
        without, left = pair
        print(f"measuring it on {len(left.labels)} spectra", flush=True)
        made.library.report, _ = report(
            without, left, N_COMPONENT, f"of {len(names)} spectra; measured with a library made "
            "without them; this one uses all")
        print(made.library.report, end="")
    except Failure as failure:  # the library is written without a report
        if failure.status != INPUT:
            raise
        print(f"no report: {failure}")


def main(options):
    left_out = check_options(options)
    request, path = request_of(options), options.arguments[0]
    complete(options, request, path)
    paths, is_many = list_files(options.arguments, request)
    reads = [("--table", request.table), ("--wave-file", request.wave_file)]
    writable(options.output, options.overwrite, [*reads, *(("the spectra", p) for p in paths)])
    spectra = read_all(paths, is_many, request)
    options.sigma_aa, options.sigma_origin = resolution(
        options, path, max(options.range[0], spectra.wave[0]),
        min(options.range[1], spectra.wave[-1]), spectra.origin.fwhm_aa)
    made = build(options, spectra)
    made.library.name = f"spectra of {options.source[:100]}"
    print_made(made, options, spectra)
    if left_out > 0:
        measure(made, spectra.names, left_out, 1 if options.seed is None else options.seed)
    write(options.output, made.library, options.overwrite, options.program)
    print(f"{options.output}: {made.library.n_label} labels, 1 arm, hash {made.library.hash}")
