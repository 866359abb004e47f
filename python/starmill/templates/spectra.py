# SPDX-License-Identifier: BSD-3-Clause
"""`starmill library spectra`: make a library from labelled spectra.  Their velocities and continua
are removed, and functions of the labels are fitted to the scores of principal components of ln flux
(docs/use/libraries.md, "Labelled spectra")."""

import os
import re
import types
from dataclasses import replace

import numpy as np
from scipy.linalg import eigh
from scipy.spatial import KDTree

from starmill.cli.basics import INPUT, USAGE, Failure, need, warn
from starmill.templates import residuals
from starmill.templates.labels import make_hulls, make_labels, spread
from starmill.templates.library_data import Arm, Emulator, Library, Radial
from starmill.templates.library_file import writable, write
from starmill.templates.measure import MAX_SPECTRA, ModelSet, report, reporting, robust
from starmill.templates.radial import SMOOTHINGS, RadialFit
from starmill.templates.resample import holes
from starmill.templates.spectra_files import interpolated, is_good, read_all
from starmill.templates.spectra_options import list_files, read_ranges, request_of
from starmill.wavelength import C_KM_S, FWHM_PER_SIGMA, doppler

LEAST_SPECTRA = 12  # of a library
LEAST_PIX, MOST_PIX = 4 * 28, 1 << 20  # pixels of an arm; the fit's splines need the least
MOST_GAP = 0.2  # bad fraction of pixels: up to here they are filled, above the spectrum is dropped
USED, NO_LABEL, OUTSIDE, BAD_FLUX, OUTLIER = range(5)
FATES = ("used", "a label is not known", "a label is outside the range to keep",
         "more than a fifth of the pixels are not finite or not above 0",
         "unlike the spectra with similar labels")
N_REWEIGHT = N_FILL = 3
N_NEIGHBOUR = 40  # a residual is compared with the residuals of this many spectra of similar labels
TOLERANCE = 1.0  # standard errors (RadialFit): the one-standard-error rule
STIFF = 1e8  # smoothing so large that only the polynomial remains
LEAST_SMOOTHING = 1e-4  # least --smoothing that can average spectra of equal labels
# ratio of a spectrum's residual to the median residual of spectra with similar labels: above DOUBT
# the spectrum gets the weight (DOUBT / ratio)^2, above REJECT it is not used
DOUBT, REJECT = 1.5, 5.0
MAX_ALIGN = 4  # most rounds of aligning to the mean, polynomials and radial functions each
FAST = 20.0  # km/s; if velocities scatter by more, polynomials would follow them: begin by the mean
MAX_VELOCITY, SMALL_CHANGE = 600.0, 0.2  # km/s: search +-600; stop when changes scatter by less


def legendre(wave, n):
    """Return n polynomials in wavelength [n, n_pix], orthonormal on the pixels."""
    x = (wave - 0.5 * (wave[0] + wave[-1])) / (0.5 * (wave[-1] - wave[0]))
    return np.linalg.qr(np.polynomial.legendre.legvander(x, max(n - 1, 0)))[0].T[:n]


class Grid:
    """LabelledSpectra, and the arm of the library to which they are resampled.

    fate [n]  index into FATES, judged by labels and pixels alone
    good_aa   (first, last wavelength in A) of the longest range in which no spectrum with usable
              labels has a bad pixel; None: no such range
    """

    def __init__(self, settings, spectra):
        self.settings, self.spectra = settings, spectra
        inside = (spectra.wave >= settings.range[0]) & (spectra.wave <= settings.range[1])
        need(inside.sum() >= LEAST_PIX, INPUT,
             f"only {inside.sum()} pixels from {settings.range[0]:g} to {settings.range[1]:g} A, "
             f"but {LEAST_PIX} are needed: give a wider --range; the spectra have {len(inside)} "
             f"pixels, from {spectra.wave[0]:.2f} to {spectra.wave[-1]:.2f} A in vacuum")
        hole = holes(spectra.wave) & inside[1:] & inside[:-1]
        i = np.argmax(hole)
        need(not hole[i], INPUT, f"the first spectrum has no pixel between {spectra.wave[i]:.2f} "
             f"and {spectra.wave[i + 1]:.2f} A: narrow --range, or put a spectrum without this "
             "hole first")
        # shifts by velocities need pixels beyond the range
        self.use = slice(None) if settings.align else inside
        labels, (low, high) = spectra.labels, settings.limits.T
        bad = np.array([(~is_good(flux[inside])).sum() for flux in spectra.flux])
        with np.errstate(invalid="ignore"):
            outside = ~((labels >= low) & (labels <= high)).all(axis=1)
        self.fate = np.select(
            [~np.isfinite(labels).all(axis=1), outside, bad > MOST_GAP * inside.sum()],
            [NO_LABEL, OUTSIDE, BAD_FLUX], USED)
        self._check_pixels(inside)
        self.arm = self._make_arm(spectra.wave[inside])
        self.basis = legendre(self.arm.wave_aa, settings.continuum + 1)

    def _check_pixels(self, inside):
        """Refuse spectra if more than half of them have a bad pixel at the same wavelength."""
        rows = np.flatnonzero((self.fate == USED) | (self.fate == BAD_FLUX))
        bad, n = np.zeros(len(inside), int), 0
        for row in rows:
            good = is_good(self.spectra.flux[row])
            if good.any():  # empty grid points have no model
                bad, n = bad + ~good, n + 1
        self.good_aa = self._longest((bad == 0) & (n > 0))
        self._most_aa = self._longest((2 * bad <= n) & (n > 0))
        at = np.flatnonzero(inside & (2 * bad > n))
        if len(at):
            raise Failure(INPUT, f"at {self.spectra.wave[at[0]]:.2f} A {bad[at[0]]} of {n} "
                          f"spectra have a pixel that is not finite or not above 0{self._help()}")

    def _longest(self, good):
        """Return the ends (A) of the longest run of good pixels; None if it is under LEAST_PIX."""
        runs = np.flatnonzero(np.diff(np.concatenate([[0], good, [0]]))).reshape(-1, 2)
        if not len(runs) or np.diff(runs).max() < LEAST_PIX:
            return None
        first, end = runs[np.diff(runs)[:, 0].argmax()]
        return self.spectra.wave[first], self.spectra.wave[end - 1]

    def _help(self):
        if self.good_aa:
            return "; all pixels are good with --range {:.2f},{:.2f}".format(*self.good_aa)
        if self._most_aa:
            return "; at least half of the spectra are good at each pixel with --range " \
                   "{:.2f},{:.2f}: a narrower one keeps more".format(*self._most_aa)
        return "; no --range helps"

    def _make_arm(self, wave):
        """Return an arm uniform in ln wavelength from the first pixel on, with the input's finest
        step (its mean step if the input is uniform up to rounding)."""
        span, step = np.log(wave[-1] / wave[0]), np.diff(np.log(wave)).min()
        if span / step - (len(wave) - 1) < 0.01:
            step = span / (len(wave) - 1)
        n_pix = np.floor(span / step * (1 + 1e-12)) + 1
        need(n_pix <= MOST_PIX, INPUT, f"the input's finest wavelength step gives {n_pix:.3g} "
             f"pixels, more than {MOST_PIX}: give a narrower --range")
        s, first = self.settings, np.log(wave[0])
        return Arm(s.arm, s.arm, float(first), float(step), np.exp(first + np.arange(n_pix) * step),
                   template_sigma_aa=s.sigma_aa, sigma_origin=s.sigma_origin, source=s.source,
                   revision="spectra1")

    def _one(self, flux, vel_km_s):
        """Shift a spectrum of velocity vel_km_s to rest.  Return its ln flux [n_pix], and the mask
        of gaps [n_pix]: pixels near bad ones, beyond the ends, or of flux not above 0."""
        flux = flux[self.use].astype(float)
        level = flux[is_good(flux)].mean()  # avoids overflow in extreme flux units
        value = interpolated(self.spectra.wave[self.use], flux / level,
                             self.arm.wave_aa * doppler(vel_km_s))
        gap = ~(value > 0)
        return np.log(np.where(gap, 1, value)), gap

    def _flatten(self, y, gap):
        """Subtract from rows of y [n, n_pix] their continuum (fitted outside gaps) and median."""
        whole = ~gap.any(axis=1)
        flat = y[whole]
        flat -= (flat @ self.basis.T) @ self.basis
        y[whole] = flat - np.median(flat, axis=1, keepdims=True)
        for i in np.flatnonzero(~whole):
            row, good = y[i], ~gap[i]
            basis = self.basis[:, good]
            share, _, rank, _ = np.linalg.lstsq(basis.T, row[good], rcond=None)
            need(rank >= len(basis), INPUT, "a spectrum's gaps leave too few pixels for a "
                 f"continuum of degree {len(basis) - 1}; give a lower --continuum")
            row -= share @ self.basis
            row -= np.median(row[good])

    def put(self, velocity):
        """Shift all spectra of velocities [n] (km/s) to rest.  Return fate [n] (index into FATES);
        the fraction of pixels in gaps [n]; the rows used; and of these rows ln flux and the mask of
        gaps [n_row, n_pix].  ln flux in a gap is the mean of the spectra without a gap there."""
        fate, part = self.fate.copy(), np.zeros(len(self.fate))
        rows = np.flatnonzero(fate == USED)
        y = np.empty((len(rows), self.arm.n_pix))
        gap = np.empty(y.shape, bool)
        for i, row in enumerate(rows):
            y[i], gap[i] = self._one(self.spectra.flux[row], velocity[row])
        part[rows] = gap.mean(axis=1)
        bad = part[rows] > MOST_GAP
        if bad.any():
            fate[rows[bad]] = BAD_FLUX
            rows, y, gap = rows[~bad], y[~bad], gap[~bad]
        n = len(rows)
        if n < LEAST_SPECTRA:
            lost = [int((fate == code).sum()) for code in (NO_LABEL, OUTSIDE, BAD_FLUX)]
            raise Failure(INPUT, f"{n} of {len(fate)} spectra can be used, but {LEAST_SPECTRA} are "
                          f"needed; {lost[0]} lack a label, {lost[1]} are outside the range to "
                          f"keep, and {lost[2]} have too many pixels (over a fifth) that are not "
                          f"finite or not above 0{self._help() if lost[2] else ''}")
        self._flatten(y, gap)
        for p in np.flatnonzero(gap.any(axis=0)):
            y[gap[:, p], p] = y[~gap[:, p], p].mean() if not gap[:, p].all() else 0
        return fate, part, rows, y, gap


class Functions:
    """Functions of the labels, fitted to spectra.

    values [n, n_label]  labels
    y, gap [n, n_pix]    ln flux, which the functions fill in gaps; mask of gaps
    weight [n]
    aligning             reject no spectrum, since velocities are not removed yet
    stiff                fit polynomials: radial functions would follow one spectrum's velocity

    mean [n_pix], pattern [q, n_pix] orthonormal, score [n, q]: principal components
    lost [n]: mean square of a spectrum outside the components
    fit: RadialFit of the scores
    used [n of the input]: mask of spectra not rejected
    """

    def __init__(self, settings, values, y, gap, weight=None, aligning=False, stiff=False):
        self.settings, self.values, self.y, self.gap = settings, values, y, gap
        self.weight = np.ones(len(y)) if weight is None else weight
        self.smooth = STIFF if stiff else \
            SMOOTHINGS if settings.smoothing is None else settings.smoothing
        self.used = np.ones(len(y), bool)
        self._make()
        if settings.keep_outliers or weight is not None:
            return
        near = KDTree(self.mapped).query(self.mapped, min(N_NEIGHBOUR + 1, len(y)))[1]
        # drop the spectrum itself, which need not come first among equal labels
        near = np.array([row[row != i][:len(row) - 1] for i, row in enumerate(near)])
        for i in range(N_REWEIGHT):
            ratio = self._doubt(near)
            self.weight = np.where(ratio > DOUBT, (DOUBT / np.maximum(ratio, DOUBT)) ** 2, 1)
            if aligning or i < N_REWEIGHT - 1:
                self._fit_scores()
        if not aligning:
            self._reject(ratio)

    def _make(self):
        """Find components, fit functions to their scores and fill the gaps of y, by turns."""
        self.labels, self.mapped = make_labels(self.settings.names, self.values)
        self.length = np.ones(len(self.labels))
        self._find_components()
        self._fit_scores()
        rows = self.gap.any(axis=1)
        for _ in range(N_FILL if rows.any() else 0):
            # changes are at most the previous round's times the fraction of pixels in gaps
            smooth = self.mean + (self.score - self.fit.residual)[rows] @ self.pattern
            self.y[rows] = np.where(self.gap[rows], smooth, self.y[rows])
            self._find_components()
            self._fit_scores(same=self.fit)

    def _find_components(self):
        """Set the principal components of y, the largest first."""
        n, n_pix = self.y.shape
        self.mean = self.y.mean(axis=0)
        centred = self.y - self.mean
        gram = centred @ centred.T
        own = np.diag(gram).copy()
        q = min(self.settings.components, n - 1, n_pix)
        variance, vector = eigh(gram, subset_by_index=[n - q, n - 1], overwrite_a=True,
                                check_finite=False)
        need(variance[-1] > 0, INPUT, f"the {n} spectra in use are all the same: give others")
        # drop components of rounding errors: they would be divided by their tiny variance
        use = variance >= 1e-13 * variance[-1]
        variance, vector = variance[use][::-1], vector[:, use][:, ::-1]
        self.score = vector * np.sqrt(variance)
        self.pattern = (vector / np.sqrt(variance)).T @ centred
        self.lost = np.maximum(own - (self.score**2).sum(axis=1), 0) / n_pix
        self.kept = variance.sum() / own.sum()

    def _fit_scores(self, same=None):
        s = self.settings
        self.fit = RadialFit(self.mapped, self.length, self.weight, self.score, s.degree,
                             self.smooth, TOLERANCE, same)

    def _doubt(self, near):
        """Return [n]: each spectrum's residual divided by its neighbours' median residual.  Here a
        residual is the geometric mean of the residuals in fits with and without the spectrum."""
        square = np.abs(self.fit.left_out * self.fit.residual).sum(axis=1) / self.y.shape[1]
        residual = np.sqrt(square + self.lost)
        # the divisor is at least 1e-4: if all spectra fit up to rounding errors, no ratio is large
        return residual / np.maximum(np.median(residual[near], axis=1), 1e-4)

    def _reject(self, ratio):
        self.used = use = ratio <= REJECT
        self.values, self.weight = self.values[use], self.weight[use]
        self.y, self.gap = self.y[use], self.gap[use]
        need(len(self.y) >= LEAST_SPECTRA, INPUT, f"only {len(self.y)} spectra resemble others "
             f"with similar labels, {LEAST_SPECTRA} are needed; check the spectra's labels")
        self._make()

    def left_out(self):
        """Return each spectrum as predicted by functions fitted without it [n, n_pix]."""
        return self.mean + (self.score - self.fit.left_out) @ self.pattern

    def library(self, arm):
        """Return a library of one arm, and the mask [n] of spectra outside its hulls."""
        s, rms = self.settings, np.sqrt((self.score**2).mean(axis=0))
        library = Library(self.labels, make_hulls(self.labels, self.mapped, s.hull), [arm])
        outside = spread(library, self.values, s.guess_templates)
        # scale scores to mean square 1, since fits multiply them in float32
        arm.emulator = Emulator(
            [(self.pattern.T * rms).astype("f4")], [self.mean.astype("f4")],
            Radial(self.fit.degree, self.length, self.mapped, (self.fit.coef / rms).astype("f4")))
        return library, outside

    def model_error(self, arm, wave, velocity):
        """Leave spectra (at pixels wave, shifted to rest by velocity [n]) out in turn.  Return the
        ModelError and the number of spectra."""
        x = np.where(self.gap, np.nan, np.expm1(self.y - self.left_out()))
        n_removed = max(residuals.N_CONTINUUM, self.settings.continuum + 1)
        some = np.unique(np.percentile(velocity, np.linspace(0, 100, 9)))
        noise = np.sqrt(np.mean([residuals.noise_left(
            self.settings.spectra_sn, wave, arm.wave_aa * doppler(v), n_removed, interpolated) ** 2
                                 for v in some], axis=0))
        return residuals.measure(arm.wave_aa, x, self.settings.model_error, self.weight, noise)


def find_velocities(y, good, model, ln_step):
    """Return the velocity (km/s) of each spectrum y [n, n_pix], where good, relative to its model:
    the shift of least misfit, refined by a parabola; NaN at an end of the range."""
    n, n_pix = y.shape
    most = min(int(np.ceil(MAX_VELOCITY / (C_KM_S * ln_step))), n_pix // 8)
    model = model[:, most:n_pix - most]  # all shifts compare the same pixels of the model
    y, square, count = np.where(good, y, 0), model**2, good.astype(float)
    before = np.pad(np.cumsum(y**2, axis=1), ((0, 0), (1, 0)))  # sums before each pixel
    misfit = np.empty((2 * most + 1, n))
    for i in range(2 * most + 1):
        part = slice(i, i + model.shape[1])
        # sum of (y - model)^2 over the good pixels
        total = (before[:, part.stop] - before[:, i] - 2 * np.einsum("ij,ij->i", y[:, part], model)
                 + np.einsum("ij,ij->i", count[:, part], square))
        n_good = count[:, part].sum(axis=1)
        misfit[i] = np.where(n_good > 0, total / np.maximum(n_good, 1), np.inf)
    at = misfit.argmin(axis=0)
    inner, column = np.clip(at, 1, 2 * most - 1), np.arange(n)
    left, best, right = (misfit[inner + k, column] for k in (-1, 0, 1))
    bend = left - 2 * best + right
    pixels = at - most + np.where(bend > 0, 0.5 * (left - right) / np.where(bend > 0, bend, 1), 0)
    return np.where(at == inner, C_KM_S * np.tanh(pixels * ln_step), np.nan)


def align(found, velocity, rows):
    """Add the velocities found in the spectra `rows` to velocity [n_spectrum] (km/s) and
    subtract the median.  Return the robust scatter of the changes."""
    good = np.isfinite(found)
    at = rows[good]
    velocity[at] = C_KM_S * np.tanh(np.arctanh(velocity[at] / C_KM_S)
                                    + np.arctanh(found[good] / C_KM_S))
    velocity[rows] -= np.median(velocity[rows])
    return robust(found[good])[1] if good.any() else np.nan


def build(settings, spectra):
    """Return a library and how its n input spectra were used:

    rows          indices of the spectra used
    outside       indices of the used spectra outside the hulls
    twins         indices of the used spectra that share their labels with another
    fate [n]      index into FATES
    gap [n]       fraction of pixels in gaps
    velocity [n]  removed from the spectra, km/s
    n_align       rounds of aligning
    align_step    scatter of the changes of velocity in the last round, km/s
    """
    grid = Grid(settings, spectra)
    velocity, n_align, step = np.zeros(len(spectra.flux)), 0, np.nan
    for way in ("mean", "polynomials", "functions") if settings.align else ():
        for i in range(MAX_ALIGN):
            _, _, rows, y, bad = grid.put(velocity)
            model = (y.sum(axis=0) - y) / (len(y) - 1) if way == "mean" else Functions(
                settings, spectra.labels[rows], y, bad, None, True, way == "polynomials").left_out()
            moved = velocity.copy()
            step = align(find_velocities(y, ~bad, model, grid.arm.ln_step), moved, rows)
            if way == "mean" and i == 0 and not step > FAST:
                break
            velocity, n_align = moved, n_align + 1
            if not step > SMALL_CHANGE:
                break
    fate, gap, rows, y, bad = grid.put(velocity)
    functions = Functions(settings, spectra.labels[rows], y, bad)
    fate[rows[~functions.used]] = OUTLIER
    rows = rows[functions.used]
    _, same, n = np.unique(functions.mapped.round(6), axis=0, return_inverse=True,
                           return_counts=True)
    twins = rows[n[same.ravel()] > 1]
    if len(twins):
        need(not 0 < (settings.smoothing or 0) < LEAST_SMOOTHING, INPUT,
             "with so small a --smoothing no two spectra may have equal labels (does --labels "
             f"lack a label?): {rows_text(spectra.names, twins)}")
    library, outside = functions.library(grid.arm)
    n_error = 0
    if settings.model_error is not None:
        grid.arm.error, n_error = functions.model_error(grid.arm, spectra.wave[grid.use],
                                                        velocity[rows])
    return types.SimpleNamespace(library=library, functions=functions, rows=rows, fate=fate,
                                 gap=gap, velocity=velocity, outside=rows[outside], twins=twins,
                                 n_align=n_align, good_aa=grid.good_aa, align_step=step,
                                 n_error=n_error)


def leave_out(made, names, part, seed):
    """Leave out up to a fraction `part` of the spectra, but none with the least or greatest value
    of a label.  Return a library of the rest and a ModelSet of the spectra left out."""
    functions, arm = made.functions, made.library.arm[0]
    values = functions.values
    between = (values > values.min(axis=0)) & (values < values.max(axis=0))
    fits = (between | ~between.any(axis=0)).all(axis=1)  # labels of two values do not count
    order = np.random.default_rng(seed).permutation(len(values))
    out = np.zeros(len(values), bool)
    out[order[fits[order]][:min(int(part * len(values) + 0.5), MAX_SPECTRA)]] = True
    need(out.any(), INPUT, f"--left-out {part:g} leaves out none of {len(values)} spectra: a "
         "spectrum with the least or greatest value of a label must stay; give more spectra")
    need((~out).sum() >= LEAST_SPECTRA, INPUT,
         f"{(~out).sum()} spectra would remain, {LEAST_SPECTRA} are needed: leave fewer out")
    rest = Functions(functions.settings, values[~out], functions.y[~out], functions.gap[~out],
                     functions.weight[~out])
    library, _ = rest.library(replace(arm, error=None))
    left = ModelSet(values[out], [name for name, is_out in zip(names, out) if is_out],
                    [np.where(functions.gap, np.nan, np.exp(functions.y))[out]], [None])
    return library, left


def resolution(options, path, low, high, fwhm):
    """Return the Gaussian sigma (A) of spectra from low to high (A), -1 if they have the
    instrument's resolution; and a text on its origin.  fwhm: card FWHM (A), NaN if missing."""
    if options.at_instrument_resolution:
        return -1.0, "--at-instrument-resolution"
    if options.sigma:
        sigma, origin = options.sigma, "--sigma"
    elif options.fwhm:
        sigma, origin = options.fwhm / FWHM_PER_SIGMA, f"--fwhm {options.fwhm:g} A"
    elif options.resolving_power:  # the library holds one sigma for an arm
        power, mid = options.resolving_power, 0.5 * (low + high)
        first, sigma, last = (x / (FWHM_PER_SIGMA * power) for x in (low, mid, high))
        origin = (f"--resolving-power {power:g} in the middle, at {mid:.0f} A; {first:.3f} A at "
                  f"{low:.0f} A, {last:.3f} A at {high:.0f} A")
    elif np.isfinite(fwhm):
        need(fwhm > 0, INPUT, f"{path}: its card FWHM is {fwhm:g}, not above 0: set the width in "
             "Angstrom by --fwhm")
        sigma, origin = fwhm / FWHM_PER_SIGMA, f"card FWHM, {fwhm:g} A"
    else:
        raise Failure(USAGE, f"{path} does not give its resolution (no card FWHM), which a fit "
                      "needs; give --fwhm A, --sigma A, --resolving-power R or "
                      "--at-instrument-resolution")
    most = 0.25 * (high - low)
    need(not 0 < most < sigma, USAGE, f"{path}: the resolution is sigma {sigma:g} A ({origin}), "
         f"expected at most {most:.3g} A for spectra that span {high - low:.6g} A")
    return sigma, origin


def complete(options, request, path):
    """Set the options names, limits [n_label, 2] (--keep), source (file name), range and hull."""
    need(re.fullmatch("[a-z0-9_]+", options.arm), USAGE,
         f"--arm {options.arm}: a name is made of lower-case letters, digits and _")
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
    runs = np.split(rows + 1, np.flatnonzero(np.diff(rows) > 1) + 1)
    return f"row{'s' * (len(rows) != 1)} " + ", ".join(
        f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def print_spectra(made, names):
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
        print("       no spectrum has a bad pixel from {:.2f} to {:.2f} A, except those with no "
              "good one".format(*made.good_aa))
    if len(made.twins):
        print(f"  {len(made.twins):4d} of those used have the labels of another (does --labels "
              f"lack one?): {rows_text(names, made.twins)}")
    if len(made.outside):
        print(f"  {len(made.outside):4d} of those used lie outside the hulls of the others (--hull "
              f"all takes them in): {rows_text(names, made.outside)}")


def print_made(made, settings, spectra):
    arm, functions, names = made.library.arm[0], made.functions, spectra.names
    print(spectra.origin)
    print(f"resolution: {arm.resolution()}")
    pixel = arm.ln_step * arm.wave_aa[arm.n_pix // 2]
    if 0 < arm.template_sigma_aa < pixel:
        warn(f"pixels of {pixel:.3g} A are wider than the resolution's sigma, so lines are lost")
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
    if made.n_error:
        print(residuals.line(arm, made.n_error, arm.wave_aa))


def measure(made, names, part, seed):
    """Print the report on spectra left out of a second library, and store it in the library."""
    with reporting():
        names = [names[i] if names else f"row {i + 1}" for i in made.rows]
        without, left = leave_out(made, names, part, seed)
        print(f"measuring it on {len(left.labels)} spectra", flush=True)
        made.library.report, _ = report(
            without, left, residuals.N_COMPONENT, f"of {len(names)} spectra; measured with a "
            "library made without them; this one uses all")
        print(made.library.report, end="")


def main(options):
    left_out = 0.1 if options.left_out is None else options.left_out
    need(options.spectra_sn is None or options.model_error is not None, USAGE, "--spectra-sn does "
         "not apply without --model-error; see starmill library spectra --help")
    need(options.seed is None or left_out > 0, USAGE, "--seed does not apply with --left-out 0; "
         "see starmill library spectra --help")
    request, path = request_of(options), options.arguments[0]
    complete(options, request, path)
    paths, is_many = list_files(options.arguments, request)
    reads = [("--table", request.table), ("--wave-file", request.wave_file)]
    writable(options.output, options.overwrite, [*reads, *(("the spectra", p) for p in paths)])
    by_card = not (options.at_instrument_resolution or options.sigma or options.fwhm
                   or options.resolving_power)
    spectra = read_all(paths, is_many, request, by_card)
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
