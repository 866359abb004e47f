# SPDX-License-Identifier: BSD-3-Clause
"""Corrects an emulator by calibrators, real spectra of known labels.  The correction of a pixel is
a polynomial of the labels (docs/science/numerics.md, "Correction by real spectra")."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.interpolate import CubicSpline, make_interp_spline
from scipy.spatial import cKDTree

from starmill.cli.basics import INPUT, USAGE, need
from starmill.templates import emulate, residuals
from starmill.templates.library_data import MAX_WIDTH, SplineGrid, inside_hulls
from starmill.templates.measure import BLOCK, robust
from starmill.templates.model_error import residuals_of, smoothed
from starmill.templates.radial import RadialFit
from starmill.wavelength import C_KM_S

PIXELS_PER_SIGMA = 2.5  # sampling: pixels kept for each sigma of the line-spread function
STEP = 0.5  # of finite differences, in errors of the spectra's labels
CORRELATED = 30  # neighbouring residuals that count as one, since they are correlated
BEYOND = 0.3  # |ln(spectrum / template)| is clipped here: no star differs by more
CLIP = 4  # residuals of a pixel are clipped at this many robust standard deviations
DEGREES, RIDGES = (1, 2, 3), (1e-3, 1e-2, 1e-1)  # to choose from by cross-validation
N_FOLD, THIN = 5, 6  # cross-validation: folds; it uses every sixth pixel
ROUNDS = 3  # alternations between coefficients and the calibrators' labels
ROBUST = 1.5  # larger residuals, in robust deviations, count less
# The correction is full where the fifth nearest calibrator is nearer than REACH, and 0 where this
# calibrator is farther than FAR * REACH. Distances are in errors of the labels.
REACH, FAR = 5, 2.5
N_INSIDE, N_NEAR = 8000, 16000  # labels at which an emulator is fitted to the polynomials
FREE = 10  # a benchmark star's spectrum may move its labels by this many of their errors
LEAST_BENCHMARK = 12  # stars that set the scale of a label
LSQ_RIDGE, THROUGH = 1e-6, 1e-8  # ridges: of network inputs; of functions through values


@dataclass
class Calibrators:
    """n spectra at every stride-th pixel of an arm."""
    at: np.ndarray  # [n_pix] which pixels of the arm
    wave: np.ndarray  # [n_pix] A
    x: np.ndarray  # [n, n_pix] ln(spectrum / template) without its continuum, 0 where not known
    known: np.ndarray  # [n, n_pix]
    slope: np.ndarray  # [n_label + 1, n, n_pix] of ln template in label and km/s, without continuum
    weight: np.ndarray  # [n_pix] of squared residuals: square of measure_scale's, mean 1
    labels: np.ndarray  # [n, n_label]
    mapped: np.ndarray  # [n, n_label]
    errors: np.ndarray  # [n, n_label] of benchmark stars' labels, NaN of other labels
    scale: np.ndarray  # [n_label] errors of the calibrators' labels
    reach: np.ndarray  # [n_label] REACH errors, in mapped labels
    measures: np.ndarray  # [n_pix] 0 to 1: how much spectra may correct templates here
    level: np.ndarray  # [n_pix of the arm] mean template over its mean flux

    def rows(self, which):
        return replace(self, x=self.x[which], known=self.known[which], slope=self.slope[:, which],
                       labels=self.labels[which], mapped=self.mapped[which],
                       errors=self.errors[which])

    def thinned(self, step):
        """Return these spectra at every step-th pixel."""
        at = slice(None, None, step)
        return replace(self, at=self.at[at], wave=self.wave[at], x=self.x[:, at],
                       known=self.known[:, at], slope=self.slope[:, :, at], weight=self.weight[at],
                       measures=self.measures[at])

    def shifts(self, x, scale=None):
        """Return how far the labels of each spectrum are off [n, n_label], by a least-squares fit
        to its residuals x [n, n_pix] with Gaussian priors of sigma `scale` [n_label]."""
        scale = self.scale if scale is None else scale
        n_label = len(self.scale)
        out = np.zeros((len(x), n_label))
        for i in range(len(x)):
            slope = self.slope[:n_label, i]
            weight = self.weight * self.known[i] * self.measures
            weight = weight / weight.sum()
            n_free = self.known[i].sum() / CORRELATED
            scaled = slope * (weight * n_free / (weight @ x[i] ** 2))
            out[i] = np.linalg.solve(scaled @ slope.T + np.diag(scale**-2.0), scaled @ x[i])
        return out

    def at_shifts(self, x, shift):
        """Return the residuals x [n, n_pix] after a shift [n, n_label] of the templates' labels."""
        return x - np.einsum("knp,nk->np", self.slope[:-1], shift)

    def estimates(self, x, variance, patterns, use):
        """Fit shifts of labels and velocity to the residuals x [n, n_pix]; return them and their
        errors [n, n_label + 1].  The covariance of x is diag(variance) + patterns.T @ patterns,
        with variance [n_pix] and patterns [n_pattern, n_pix].  use [n_pix]: weights, 0 to 1."""
        out, error = np.empty((2, len(x), len(self.slope)))
        small = np.diag(np.append(1e-4 * self.scale**-2.0, 1e-8))
        for i in range(len(x)):
            white = use * self.known[i] / variance
            inner = np.linalg.inv(np.eye(len(patterns)) + (patterns * white) @ patterns.T)
            scaled = self.slope[:, i] * white
            scaled = scaled - (scaled @ patterns.T) @ inner @ (patterns * white)  # Woodbury
            inverse = np.linalg.inv(scaled @ self.slope[:, i].T + small)
            out[i], error[i] = inverse @ (scaled @ x[i]), np.sqrt(np.diag(inverse))
        return out, error


def compare(library, i_arm, spectra, sigma_aa, kernel_aa, n_continuum, measures, size, slope=None):
    """Compare spectra with an arm's templates; return Calibrators, whose x are the residuals.

    sigma_aa   sigma (A) of the spectra's line-spread function
    kernel_aa  sigma (A) that convolves templates to the spectra's resolution
    measures   function that gives, at wavelengths, the share (0 to 1) of the correction to apply
    size       [n_label] errors of the spectra's labels
    slope      Calibrators.slope of an earlier comparison of these spectra; None: compute it
    """
    arm = library.arm[i_arm]
    x, level = residuals_of(library, i_arm, spectra, kernel_aa)
    step = arm.ln_step * arm.wave_aa[arm.n_pix // 2]
    stride = max(1, int(sigma_aa / PIXELS_PER_SIGMA / step)) if np.isfinite(sigma_aa) else 1
    inside = np.flatnonzero(np.isfinite(x).mean(axis=0) > 0.5)
    need(len(inside) > 1, INPUT, f"arm {arm.name}: expected 2 pixels or more that are good in over "
         f"half of the {len(x)} spectra, found {len(inside)}; give spectra that cover this arm")
    at = np.arange(inside[0], inside[-1] + 1, stride)
    wave, x = arm.wave_aa[at], x[:, at]
    share, good = measures(wave), np.isfinite(x)
    need(share.any(), USAGE, f"--range and --mask leave no pixel of arm {arm.name}")
    use = (good.mean(axis=1) > 0.5) & (good @ share > 0.5 * share.sum())
    functions = residuals.continuum(2 * (wave - wave[0]) / (wave[-1] - wave[0]) - 1, n_continuum)
    ratio, known, scale = flat(x[use], functions, level[at])
    labels = spectra.labels[use]
    middle, half = np.median(labels, axis=0), 0.5 * size
    reach = REACH * (library.map(middle + half) - library.map(middle - half))
    out = Calibrators(at, wave, ratio, known, slope, scale**2 / np.mean(scale**2), labels,
                      library.map(labels), spectra.errors[use], size, reach, share, level)
    if slope is None:
        out.slope = slopes(library, i_arm, labels, size, kernel_aa, at)
        weighted = functions * out.weight  # fits take the continuum out of the slopes too
        take = np.linalg.solve(weighted @ functions.T, weighted)
        for one in out.slope:
            one -= (one @ take.T) @ functions
    return out


def flat(x, functions, level):
    """Return ln(1 + x) without its continuum, 0 where x is NaN; the mask of finite x; and the
    result of residuals.measure_scale."""
    known, scale = np.isfinite(x), level
    x = np.where(known, x, 0)
    for _ in range(2):
        y = np.where(known, residuals.divide_by_continuum(x, known, functions, scale), 0)
        scale = residuals.measure_scale(level, y)
    y = np.log(np.clip(1 + y, np.exp(-BEYOND), np.exp(BEYOND)))
    return np.where(known, y, 0), known, scale


def slopes(library, i_arm, labels, size, kernel_aa, at):
    """Return d ln template / d label and d km/s [n_label + 1, n, n_pix], smoothed by kernel_aa."""
    arm = library.arm[i_arm]
    templates, _ = smoothed(library, i_arm, kernel_aa)

    def ln_flux(values):
        return np.log(np.maximum(templates(values), 1e-30))
    out = np.empty((len(size) + 1, len(labels), len(at)), np.float32)
    for start in range(0, len(labels), BLOCK):
        block = slice(start, start + BLOCK)
        for k, step in enumerate(np.diag(STEP * size)):
            both = ln_flux(labels[block] + step) - ln_flux(labels[block] - step)
            out[k, block] = both[:, at] / (2 * step[k])
        by_pixel = np.gradient(ln_flux(labels[block]), axis=1)
        out[-1, block] = by_pixel[:, at] / (arm.ln_step * C_KM_S)
    return out


def clipped(x, known):
    """Return residuals [n, n_pix] clipped at CLIP robust deviations of each pixel."""
    limit = np.array([1.4826 * np.median(np.abs(x[k, i])) if k.any() else 0
                      for i, k in enumerate(known.T)])
    return np.clip(x, -CLIP * limit, CLIP * limit)


@dataclass
class Correction:
    """ln(corrected / template) = terms @ coef, near the calibrators."""
    use: list  # indices of the labels on which it depends
    degree: int
    ridge: float
    coef: np.ndarray  # [n_term, n_pix]
    shift: np.ndarray  # [n, n_label] of the calibrators' labels

    def terms(self, mapped):
        """Return the monomials [n, n_term] up to self.degree; from degree 2 on also Teff^degree
        times each label (Teff is the first), as molecular bands grow fast towards cool stars."""
        x = mapped[:, self.use]
        further = x[:, :1] ** self.degree * x if self.degree > 1 else x[:, :0]
        return np.hstack([emulate.monomials(x, self.degree), further])

    def regress(self, calibrators, x):
        """Return coefficients fitted to residuals x [n, n_pix] at calibrators' shifted labels."""
        return robust_ridge(self.terms(calibrators.mapped), calibrators.at_shifts(x, self.shift),
                            calibrators.known, self.ridge)

    def faded(self, calibrators, mapped):
        """Return the terms [n, n_term] at mapped labels; they fade to 0 far from calibrators."""
        return self.terms(mapped) * nearby(calibrators, self.use, mapped)[:, None]


def robust_ridge(terms, x, known, ridge):
    """Regress x [n, n_pix], where known, on terms [n, n_term]; outliers count less.  Return the
    coefficients [n_term, n_pix].  ridge: penalty of all terms but the constant."""
    penalty = len(terms) * ridge * np.eye(terms.shape[1])
    penalty[0, 0] = 0
    weight, n_term = known.astype(float), terms.shape[1]
    pairs = (terms[:, :, None] * terms[:, None]).reshape(len(terms), -1)  # products of two terms
    for _ in range(4):
        normal = (weight.T @ pairs).reshape(-1, n_term, n_term) + penalty
        normal[:, 0, 0] += normal[:, 0, 0] == 0  # no spectrum knows the pixel: coefficients are 0
        right = (weight * x).T @ terms
        coef = np.linalg.solve(normal, right[:, :, None])[:, :, 0].T
        rest = np.abs(x - terms @ coef)
        limit = ROBUST * 1.4826 * np.median(rest, axis=0) + 1e-6
        weight = known * np.minimum(1, limit / np.maximum(rest, 1e-12))
    return coef


def linear(terms, y, error=None):
    """Fit y [n] by terms [n, n_term]; large residuals count less.  Return coefficients, residuals
    and the mask of residuals beyond ROBUST errors.  error [n]: of y; None: scatter of residuals."""
    weight = np.ones(len(y)) if error is None else 1 / error
    for _ in range(10):
        coef = np.linalg.lstsq(terms * weight[:, None], y * weight, rcond=None)[0]
        rest = y - terms @ coef
        sigma = robust(rest)[1] + 1e-12 if error is None else error
        size = np.abs(rest) / sigma
        weight = np.sqrt(np.minimum(1, ROBUST / np.maximum(size, 1e-12))) / sigma
    return coef, rest, size > ROBUST


def without_trend(shift, terms):
    """Return label shifts [n, n_label] less their trend, a robust fit by terms [n, n_term]."""
    return np.stack([linear(terms, one)[1] for one in shift.T], axis=1)


def learn(calibrators, use, degree, ridge, rounds=ROUNDS):
    """Return the Correction by all calibrators; fit coefficients and stars' labels by turns."""
    found = Correction(use, degree, ridge, None, np.zeros(calibrators.labels.shape))
    terms = found.terms(calibrators.mapped)
    trend = emulate.monomials(calibrators.mapped[:, use], 1)
    for i in range(rounds):
        found.coef = found.regress(calibrators, calibrators.x)
        if i < rounds - 1:
            found.shift = without_trend(calibrators.shifts(calibrators.x - terms @ found.coef),
                                        trend)
    return found


def left_out(calibrators, use, degree, ridge, rounds=ROUNDS):
    """Return spectra's residuals [n, n_pix] after a faded correction learned without their fold."""
    fold = np.random.default_rng(1).permutation(len(calibrators.x)) % N_FOLD
    out = np.empty(calibrators.x.shape)
    for i in range(N_FOLD):
        others, mine = calibrators.rows(fold != i), calibrators.rows(fold == i)
        found = learn(others, use, degree, ridge, rounds)
        if rounds > 1:  # round two of take_out
            left = others.x - found.faded(others, others.mapped) @ found.coef
            found.coef = found.coef + found.regress(others, left)
        out[fold == i] = mine.x - found.faded(others, mine.mapped) @ found.coef
    return out


def choose(calibrators, use, degrees=DEGREES):
    """Return the (degree, ridge) with the least median residual of stars left out.  A higher degree
    must lower this residual by 5 %, since more terms make fitted labels scatter."""
    best, chosen = np.inf, None
    calibrators = calibrators.thinned(THIN)
    weight = calibrators.known * (calibrators.weight * calibrators.measures)

    def size_left_out(degree, ridge):
        x = left_out(calibrators, use, degree, ridge, 1)
        return np.median(np.sqrt((weight * x**2).sum(axis=1) / weight.sum(axis=1)))
    for degree in degrees:
        size, ridge = min((size_left_out(degree, ridge), ridge) for ridge in RIDGES)
        print(f"degree {degree}, ridge {ridge:g}: {100 * size:.3f} % left out")
        if size < 0.95 * best:
            best, chosen = size, (degree, ridge)
    return chosen


def scale_of(stars, use, label):
    """Return a function, and lines of text about it.  The function gives, for mapped labels, the
    offset of published labels from the scale of the benchmark stars.  The offset is linear in the
    labels, constant beyond the stars.  Each slope has a prior of mean 0; the prior's sigma is the
    error of the published label."""
    mapped = stars.mapped[:, use]
    coef, lines = np.zeros((len(use) + 1, len(label))), []  # 0 for labels without benchmark stars
    slopes, zeros = np.eye(len(use) + 1)[1:], np.zeros(len(use))
    shift = stars.shifts(stars.x, FREE * stars.scale)
    for k in range(len(label)):
        known = np.isfinite(stars.errors[:, k])
        n = known.sum()
        if n < LEAST_BENCHMARK:
            continue
        # data: terms, shifts and errors of shifts; rows of the n stars, then of the slopes' priors
        data = (np.vstack([emulate.monomials(mapped[known], 1), slopes]),
                np.append(shift[known, k], zeros),
                np.append(np.hypot(stars.errors[known, k], stars.scale[k]), zeros + stars.scale[k]))
        coef[:, k], rest, less = (x[:n] for x in linear(*data))
        value = data[1][:n] - rest  # the fitted offsets
        without = [data[0][:n] @ linear(*(np.delete(x, i, axis=0) for x in data))[0]
                   for i in range(n)]  # offsets fitted without star i
        jackknife = np.median(np.sqrt((n - 1) * np.var(without, axis=0)))
        lines.append(f"  {label[k].name:<8} off by {np.median(value):.3g} {label[k].unit}, "
                     f"known to {jackknife:.2g}; {n} stars scatter by {robust(rest)[1]:.2g}, "
                     f"{less.sum()} count less")

    def scale(mapped_labels):
        inside = np.clip(mapped_labels[:, use], mapped.min(axis=0), mapped.max(axis=0))
        return emulate.monomials(inside, 1) @ coef
    return scale, lines


def nearby(calibrators, use, mapped):
    """Return 1 at mapped labels with five calibrators near; fall smoothly to 0 far from these."""
    reach = calibrators.reach[use]
    tree = cKDTree(calibrators.mapped[:, use] / reach)
    distance = tree.query(mapped[:, use] / reach, k=[min(5, tree.n)])[0][:, 0]
    return 0.5 * (1 + np.cos(np.pi * np.clip((distance - 1) / (FAR - 1), 0, 1)))


def labels_inside(library, calibrators):
    """Return random labels [n, n_label]: all over the library's hulls, and more near the stars."""
    rng = np.random.default_rng(2)
    low, high = (library.map([[getattr(label, end) for label in library.label]])[0]
                 for end in ("min", "max"))
    inside, n = [], 0
    while n < N_INSIDE:
        some = library.unmap(low + (high - low) * rng.random((N_INSIDE, len(low))))
        inside.append(some[inside_hulls(library, some)])
        n += len(inside[-1])
        need(n >= len(inside) * N_INSIDE // 1000, INPUT,
             "the library's hulls fill under 1/1000 of its labels' ranges; build it of more models")
    star = calibrators.labels[rng.integers(len(calibrators.labels), size=N_NEAR)]
    near = star + 2 * calibrators.scale * rng.normal(size=star.shape)
    return np.concatenate([*inside, near[inside_hulls(library, near)]])


def into_network(library, emulator, calibrators, values_at, by_term):
    """Add the correction, values_at(mapped labels) [n, n_term] @ by_term [n_term, n_pix], to a
    network's last layer.  Weighted sums of the layer's inputs approximate values_at."""
    mapped = library.map(labels_inside(library, calibrators))
    inputs = mapped
    for weight, bias in zip(emulator.weight[:-1], emulator.bias[:-1]):
        inputs = emulate.silu(inputs @ weight.T.astype(float) + bias)
    inputs = np.hstack([inputs, np.ones((len(mapped), 1))])
    size = np.sqrt((inputs**2).mean(axis=0))
    scaled, value = inputs / size, values_at(mapped)
    normal = scaled.T @ scaled + LSQ_RIDGE * len(mapped) * np.eye(len(size))
    share = np.linalg.solve(normal, scaled.T @ value) / size[:, None]  # weights of inputs in terms
    change = share @ by_term
    emulator.weight[-1] = (emulator.weight[-1] + change[:-1].T).astype("f4")
    emulator.bias[-1] = (emulator.bias[-1] + change[-1]).astype("f4")


def into_functions(emulator, values_at, by_term):
    """Add the correction, values_at(mapped labels) @ by_term (see into_network), to an emulator of
    radial functions or splines.  Each of the n_term terms becomes a component: a function of the
    labels that interpolates values_at, times a row of by_term."""
    front = emulator.front
    if isinstance(front, SplineGrid):
        node = [np.array([knot[i + 1:i + 1 + front.degree].mean() for i in range(n)])
                for knot, n in zip(front.knot, front.coef.shape)]  # where to interpolate
        mapped = np.stack([x.ravel() for x in np.meshgrid(*node, indexing="ij")], axis=1)
        coef = values_at(mapped).reshape(*front.coef.shape[:-1], -1)
        for axis, (knot, x) in enumerate(zip(front.knot, node)):
            spline = make_interp_spline(x, coef, front.degree, t=knot, axis=axis)
            coef = np.moveaxis(spline.c, 0, axis)
    else:
        coef = RadialFit(front.center, front.length, np.ones(len(front.center)),
                         values_at(front.center), front.degree, np.array([THROUGH])).coef
        need(len(coef) == len(front.coef), INPUT, "the library's radial functions cannot "
             f"determine its polynomial of degree {front.degree}; build it with a lower --degree")
    front.coef = np.concatenate([front.coef, coef.astype("f4")], axis=-1)
    emulator.weight[0] = np.hstack([emulator.weight[0], by_term.T.astype("f4")])


def apply(library, i_arm, calibrators, correction):
    arm = library.arm[i_arm]
    emulator = arm.emulator
    need(emulator.log_flux, INPUT,
         f"arm {arm.name}: its emulator gives the flux; only emulators of ln flux can be corrected")
    by_term = np.nan_to_num(CubicSpline(calibrators.wave, correction.coef * calibrators.measures,
                                        axis=1, extrapolate=False)(arm.wave_aa))  # 0 outside
    values_at = partial(correction.faded, calibrators)
    if emulator.front is None:
        into_network(library, emulator, calibrators, values_at, by_term)
        return
    need(len(emulator.weight) == 1, INPUT, f"arm {arm.name}: its emulator has SiLU layers after "
         "splines or radial functions; such an emulator cannot be corrected")
    n, n_term = emulator.weight[0].shape[1], len(correction.coef)
    need(n + n_term <= MAX_WIDTH, INPUT, f"arm {arm.name}: its {n} components and {n_term} terms "
         f"of the correction exceed {MAX_WIDTH} in sum; make the library with fewer --components")
    into_functions(emulator, values_at, by_term)
