# SPDX-License-Identifier: BSD-3-Clause
"""Makes a library from labelled spectra: principal components of ln flux, their scores smooth
functions of the labels (docs/use/libraries.md, "Labelled spectra")."""

import types

import numpy as np
from scipy.linalg import eigh
from scipy.spatial import KDTree

from starmill.cli.basics import INPUT, Failure
from starmill.templates import residuals
from starmill.templates.labels import make_hulls, make_labels, spread
from starmill.templates.library_data import Emulator, Library, Radial
from starmill.templates.measure import MAX_SPECTRA, ModelSet, robust
from starmill.templates.radial import SMOOTHINGS, RadialFit
from starmill.templates.spectra_grid import LEAST_SPECTRA, OUTLIER, Grid
from starmill.wavelength import C_KM_S

N_REWEIGHT = N_FILL = 3
N_NEIGHBOUR = 40  # spectra of most similar labels, to whose residuals one is compared
TOLERANCE = 1.0  # standard errors (RadialFit): the one-standard-error rule
STIFF = 1e8  # smoothing so large that only the polynomial remains
# residual over the median residual of spectra with similar labels: above DOUBT a spectrum's weight
# is (DOUBT / ratio)^2, above REJECT 0
DOUBT, REJECT = 1.5, 5.0
MAX_ALIGN = 4  # most rounds of a stage of align; three usually suffice
MAX_VELOCITY, SMALL_CHANGE = 600.0, 0.2  # km/s: range searched; scatter of changes to stop at


class Functions:
    """Functions of the labels fitted to spectra y [n, n_pix] (ln flux) with labels values
    [n, n_label], gaps gap [n, n_pix] (bool) and weights [n].

    Components: mean [n_pix], pattern [q, n_pix] orthonormal, score [n, q]; lost [n]: mean square of
    a spectrum outside the components.  fit: RadialFit of the scores.
    aligning: reject no spectrum, since velocities are not yet removed.  stiff: polynomials only,
    for the first rounds, since functions that follow single spectra also follow their velocities.
    used [n given]: spectra not rejected.
    """

    def __init__(self, settings, values, y, gap, weight=None, aligning=False, stiff=False):
        self.settings, self.values, self.y, self.gap = settings, values, y, gap
        self.weight = np.ones(len(y)) if weight is None else weight
        self.smooth = (STIFF if stiff else SMOOTHINGS if settings.smoothing is None
                       else settings.smoothing)
        self.used = np.ones(len(y), bool)
        self._make()
        if settings.keep_outliers or weight is not None:
            return
        near = KDTree(self.mapped).query(self.mapped, min(N_NEIGHBOUR + 1, len(y)))[1][:, 1:]
        for i in range(N_REWEIGHT):
            ratio = self._doubt(near)
            self.weight = np.where(ratio > DOUBT, (DOUBT / np.maximum(ratio, DOUBT)) ** 2, 1)
            if aligning or i < N_REWEIGHT - 1:
                self._fit_scores()
        if not aligning:
            self._reject(ratio)

    def _make(self):
        self.labels, self.mapped = make_labels(self.settings.names, self.values)
        self.length = np.ones(len(self.labels))
        self._find_components()
        self._fit_scores()
        rows = self.gap.any(axis=1)
        for _ in range(N_FILL if rows.any() else 0):
            # each round multiplies the change by at most the fraction of pixels in gaps
            smooth = self.mean + (self.score - self.fit.residual)[rows] @ self.pattern
            self.y[rows] = np.where(self.gap[rows], smooth, self.y[rows])
            self._find_components()
            self._fit_scores(same=self.fit)

    def _find_components(self):
        n, n_pix = self.y.shape
        self.mean = self.y.mean(axis=0)
        centred = self.y - self.mean
        gram = centred @ centred.T
        own = np.diag(gram).copy()
        q = min(self.settings.components, n - 1, n_pix)
        variance, vector = eigh(gram, subset_by_index=[n - q, n - 1], overwrite_a=True,
                                check_finite=False)
        if not variance[-1] > 0:
            raise Failure(INPUT, f"the {n} spectra in use are all the same")
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
        """Return each spectrum's residual over the median of its neighbours' [n].  The residual is
        the geometric mean of those of the fits with and without the spectrum, so its expected size
        does not depend on the spectrum's leverage."""
        square = np.abs(self.fit.left_out * self.fit.residual).sum(axis=1) / self.y.shape[1]
        residual = np.sqrt(square + self.lost)
        # at least 1e-4: where functions fit to rounding, no spectrum is doubtful
        return residual / np.maximum(np.median(residual[near], axis=1), 1e-4)

    def _reject(self, ratio):
        self.used = use = ratio <= REJECT
        self.values, self.weight = self.values[use], self.weight[use]
        self.y, self.gap = self.y[use], self.gap[use]
        if len(self.y) < LEAST_SPECTRA:
            raise Failure(INPUT, f"all but {len(self.y)} spectra are unlike those with similar "
                          "labels; check that the labels belong to them")
        self._make()

    def left_out(self):
        """Return each spectrum as predicted by functions fitted without it [n, n_pix]."""
        return self.mean + (self.score - self.fit.left_out) @ self.pattern

    def library(self, arm):
        """Make a library of one arm; return it and which spectra are outside its hulls [n]."""
        s, rms = self.settings, np.sqrt((self.score**2).mean(axis=0))
        library = Library(self.labels, make_hulls(self.labels, self.mapped, s.hull), [arm])
        outside = spread(library, self.values, s.guess_templates)
        # scale scores to mean square 1, since fits multiply them in float32
        arm.emulator = Emulator(
            [(self.pattern.T * rms).astype("f4")], [self.mean.astype("f4")],
            Radial(self.fit.degree, self.length, self.mapped, (self.fit.coef / rms).astype("f4")))
        return library, outside

    def model_error(self, arm):
        """Return the ModelError and its Facts, from spectra left out in turn."""
        s = self.settings
        x = np.where(self.gap, np.nan, np.expm1(self.y - self.left_out()))
        return residuals.measure(arm.wave_aa, x, s.model_error, self.weight, 1 / (s.spectra_sn or np.inf))


def find_velocities(functions, ln_step):
    """Return each spectrum's velocity (km/s) relative to functions fitted without it: the shift of
    least misfit by a parabola, exact at zero; NaN: it is at the end of the range."""
    y, good = functions.y, ~functions.gap
    model = functions.left_out()
    n, n_pix = y.shape
    most = min(int(np.ceil(MAX_VELOCITY / (C_KM_S * ln_step))), n_pix // 8)
    model = model[:, most:n_pix - most]  # all shifts compare the same pixels of the model
    y, square, count = np.where(good, y, 0), model**2, good.astype(float)
    before = np.pad(np.cumsum(y**2, axis=1), ((0, 0), (1, 0)))  # all pixels before
    misfit = np.empty((2 * most + 1, n))
    for i in range(2 * most + 1):
        part = slice(i, i + model.shape[1])
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


def align(functions, ln_step, velocity, rows):
    """Measure the velocities left in the spectra in use (rows), add them to velocity [n_spectrum]
    and set the median to 0.  Return the robust scatter of the changes."""
    found = find_velocities(functions, ln_step)
    good = np.isfinite(found)
    at = rows[good]
    velocity[at] = C_KM_S * np.tanh(np.arctanh(velocity[at] / C_KM_S)
                                    + np.arctanh(found[good] / C_KM_S))
    velocity[rows] -= np.median(velocity[rows])
    return robust(found[good])[1] if good.any() else np.nan


def build(settings, spectra):
    """Return a library and how its n input spectra were used.  rows: spectra in use; fate [n]: of
    FATES; gap [n]: fraction of pixels in gaps; velocity [n]: km/s, removed; outside: rows in use
    outside the hulls; n_align, align_step: rounds of align, scatter of the last changes (km/s)."""
    grid = Grid(settings, spectra)
    velocity, n_align, step = np.zeros(len(spectra.flux)), 0, np.nan

    def make(**how):
        fate, gap, rows, y, bad = grid.put(velocity)
        return fate, gap, rows, Functions(settings, spectra.labels[rows], y, bad, **how)

    for stiff in (True, False) if settings.align else ():
        for _ in range(MAX_ALIGN):
            _, _, rows, functions = make(aligning=True, stiff=stiff)
            step = align(functions, grid.arm.ln_step, velocity, rows)
            n_align += 1
            if not step > SMALL_CHANGE:
                break
    fate, gap, rows, functions = make()
    fate[rows[~functions.used]] = OUTLIER
    rows = rows[functions.used]
    library, outside = functions.library(grid.arm)
    facts = None
    if settings.model_error is not None:
        grid.arm.error, facts = functions.model_error(grid.arm)
    return types.SimpleNamespace(
        library=library, functions=functions, rows=rows, fate=fate, gap=gap, velocity=velocity,
        outside=rows[outside], good_aa=grid.good_aa, n_align=n_align, align_step=step,
        error_facts=facts)


def leave_out(made, names, part, seed):
    """Leave out up to a fraction `part` of the spectra, none at the end of a label of three or more
    values.  Return a library of the others and a ModelSet of those; None: all are at ends."""
    functions, arm = made.functions, made.library.arm[0]
    values = functions.values
    between = (values > values.min(axis=0)) & (values < values.max(axis=0))
    fits = (between | ~between.any(axis=0)).all(axis=1)
    order = np.random.default_rng(seed).permutation(len(values))
    most = min(int(part * len(values) + 0.5), MAX_SPECTRA)
    out = np.zeros(len(values), bool)
    out[order[fits[order]][:most]] = True
    if not out.any():
        return None
    if (~out).sum() < LEAST_SPECTRA:
        raise Failure(INPUT, f"{(~out).sum()} spectra would be left, at least {LEAST_SPECTRA} are "
                      "needed")
    rest = Functions(functions.settings, values[~out], functions.y[~out],
                     np.zeros_like(functions.gap[~out]), functions.weight[~out])
    library, _ = rest.library(type(arm)(**{**vars(arm), "error": None}))
    left = ModelSet(values[out], [name for name, is_out in zip(names, out) if is_out],
                    [np.exp(functions.y[out])], [None])
    return library, left
