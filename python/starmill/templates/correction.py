# SPDX-License-Identifier: BSD-3-Clause
"""Learns the errors of templates from calibrators, as polynomials of the labels at each pixel, and
adds this correction to an emulator (docs/science/numerics.md, "Correction by real spectra")."""

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline, make_interp_spline
from scipy.spatial import cKDTree

from starmill.cli.basics import INPUT, Failure, need
from starmill.templates import emulate
from starmill.templates.calibrators import mad
from starmill.templates.library_data import MAX_WIDTH, SplineGrid, inside_hulls
from starmill.templates.radial import RadialFit

DEGREES, RIDGES = (1, 2, 3), (1e-3, 1e-2, 1e-1)  # to choose from by cross-validation
N_FOLD, THIN = 5, 6  # folds, and only every sixth pixel, for that choice
ROUNDS = 3  # alternations between coefficients and the calibrators' labels
ROBUST = 1.5  # larger residuals, in robust deviations, count less
REACH = 5  # label errors: full correction where the fifth nearest calibrator is nearer than this
FAR = 2.5  # no correction where it is farther than FAR * REACH
N_INSIDE, N_NEAR = 8000, 16000  # labels at which an emulator is fitted to the polynomials
FREE = 10  # errors of benchmark stars' labels by which their spectra may move them
LEAST_BENCHMARK = 12  # stars that set the scale of a label
LSQ_RIDGE, THROUGH = 1e-6, 1e-8


@dataclass
class Correction:
    """ln(corrected / template) = coef . monomials of the labels `use`, near calibrators."""

    use: list  # labels of which it is a function
    degree: int
    ridge: float
    coef: np.ndarray  # [n_term, n_pix]
    shift: np.ndarray  # [n, n_label] of the calibrators' labels

    def terms(self, mapped):
        return emulate.monomials(mapped[:, self.use], self.degree)


def robust_ridge(terms, x, known, ridge):
    """Fit x [n, n_pix] by terms and return coefficients [n_term, n_pix]; outliers count less, and
    large coefficients except the constant are penalised by ridge."""
    penalty = len(terms) * ridge * np.eye(terms.shape[1])
    penalty[0, 0] = 0
    weight, n_term = known.astype(float), terms.shape[1]
    pairs = (terms[:, :, None] * terms[:, None]).reshape(len(terms), -1)
    for _ in range(4):
        normal = (weight.T @ pairs).reshape(-1, n_term, n_term) + penalty
        right = (weight * x).T @ terms
        coef = np.linalg.solve(normal, right[:, :, None])[:, :, 0].T
        rest = np.abs(x - terms @ coef)
        limit = ROBUST * 1.4826 * np.median(rest, axis=0) + 1e-6
        weight = known * np.minimum(1, limit / np.maximum(rest, 1e-12))
    return coef


def linear(terms, y, error=None):
    """Fit y by terms.  Return coefficients, residuals and a mask of the residuals beyond ROBUST
    errors, which count less.  error [n] of y; None: the residuals' robust deviation."""
    weight = np.ones(len(y)) if error is None else 1 / error
    for _ in range(10):
        coef = np.linalg.lstsq(terms * weight[:, None], y * weight, rcond=None)[0]
        rest = y - terms @ coef
        sigma = mad(rest) + 1e-12 if error is None else error
        size = np.abs(rest) / sigma
        weight = np.sqrt(np.minimum(1, ROBUST / np.maximum(size, 1e-12))) / sigma
    return coef, rest, size > ROBUST


def without_trend(shift, terms):
    """Return shifts of labels without their robust trend with the labels, a change of scale."""
    return np.stack([linear(terms, one)[1] for one in shift.T], axis=1)


def learn(calibrators, use, degree, ridge, rounds=ROUNDS):
    """Return the Correction from all calibrators; their labels are fitted too, near those given."""
    found = Correction(use, degree, ridge, None, np.zeros(calibrators.labels.shape))
    terms = found.terms(calibrators.mapped)
    trend = emulate.monomials(calibrators.mapped[:, use], 1)
    for i in range(rounds):
        x = calibrators.at_shifts(calibrators.x, found.shift)
        found.coef = robust_ridge(terms, x, calibrators.known, ridge)
        if i < rounds - 1:
            found.shift = without_trend(calibrators.shifts(calibrators.x - terms @ found.coef),
                                        trend)
    return found


def left_out(calibrators, use, degree, ridge, rounds=ROUNDS):
    """Return residuals [n, n_pix] of spectra after a correction learned without their fold."""
    fold = np.random.default_rng(1).permutation(len(calibrators.x)) % N_FOLD
    out = np.empty(calibrators.x.shape)
    for i in range(N_FOLD):
        found = learn(calibrators.rows(fold != i), use, degree, ridge, rounds)
        mine = calibrators.rows(fold == i)
        out[fold == i] = mine.x - found.terms(mine.mapped) @ found.coef
    return out


def choose(calibrators, use, degrees=DEGREES):
    """Return the (degree, ridge) with the least left-out residuals of the median star.  A higher
    degree must lower them by 5 %, as labels of stars left out scatter more with more terms."""
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
    """Fit the benchmark stars by corrected templates.  Return a function of mapped labels, how far
    labels are off the stars' scale (constant beyond the stars), and lines of text about it."""
    mapped, n_label = stars.mapped[:, use], len(label)
    coef, lines = np.zeros((len(use) + 1, n_label)), []  # 0 for labels without benchmark stars
    shift = stars.shifts(stars.x, FREE * stars.scale)
    for k in range(n_label):
        known = np.isfinite(stars.errors[:, k])
        n = known.sum()
        if n < LEAST_BENCHMARK:
            continue
        data = (emulate.monomials(mapped[known], 1), shift[known, k],
                np.hypot(stars.errors[known, k], stars.scale[k]))
        coef[:, k], rest, less = linear(*data)
        value = data[1] - rest
        without = [data[0] @ linear(*(np.delete(x, i, axis=0) for x in data))[0] for i in range(n)]
        jackknife = np.median(np.sqrt((n - 1) * np.var(without, axis=0)))
        lines.append(f"  {label[k].name:<8} off by {np.median(value):.3g} {label[k].unit}, "
                           f"known to {jackknife:.2g}; {n} stars scatter by "
                           f"{mad(rest):.2g}, {less.sum()} count less")

    def scale(mapped_labels):
        inside = np.clip(mapped_labels[:, use], mapped.min(axis=0), mapped.max(axis=0))
        return emulate.monomials(inside, 1) @ coef
    return scale, lines


def nearby(calibrators, library, use, mapped):
    """Return 1 at mapped labels with calibrators around, and smoothly 0 far from them."""
    middle, half = np.median(calibrators.labels, axis=0), 0.5 * calibrators.scale
    length = REACH * (library.map(middle + half) - library.map(middle - half))[use]
    tree = cKDTree(calibrators.mapped[:, use] / length)
    distance = tree.query(mapped[:, use] / length, k=[min(5, tree.n)])[0][:, 0]
    return 0.5 * (1 + np.cos(np.pi * np.clip((distance - 1) / (FAR - 1), 0, 1)))


def labels_inside(library, calibrators):
    """Return random labels [n, n_label] all over the library's hulls, and more near the stars."""
    rng = np.random.default_rng(2)
    low, high = (library.map([[getattr(label, end) for label in library.label]])[0]
                 for end in ("min", "max"))
    inside, n = [], 0
    while n < N_INSIDE:
        mapped = low + (high - low) * rng.random((N_INSIDE, len(low)))
        some = library.unmap(mapped)
        inside.append(some[inside_hulls(library, some)])
        n += len(inside[-1])
        if n < len(inside) * N_INSIDE // 1000:
            raise Failure(INPUT, "the library's hulls fill less than a thousandth of its labels")
    star = calibrators.labels[rng.integers(len(calibrators.labels), size=N_NEAR)]
    near = star + 2 * calibrators.scale * rng.normal(size=star.shape)
    return np.concatenate([*inside, near[inside_hulls(library, near)]])


def into_network(library, emulator, calibrators, values_at, by_term):
    """Add the terms to the last layer, as least-squares sums of the layer's inputs."""
    mapped = library.map(labels_inside(library, calibrators))
    inputs = mapped
    for weight, bias in zip(emulator.weight[:-1], emulator.bias[:-1]):
        inputs = emulate.silu(inputs @ weight.T.astype(float) + bias)
    inputs = np.hstack([inputs, np.ones((len(mapped), 1))])
    size = np.sqrt((inputs**2).mean(axis=0))
    scaled, value = inputs / size, values_at(mapped)
    normal = scaled.T @ scaled + LSQ_RIDGE * len(mapped) * np.eye(len(size))
    share = np.linalg.solve(normal, scaled.T @ value) / size[:, None]
    change = share @ by_term
    emulator.weight[-1] = (emulator.weight[-1] + change[:-1].T).astype("f4")
    emulator.bias[-1] = (emulator.bias[-1] + change[-1]).astype("f4")


def into_functions(emulator, values_at, by_term):
    """Add a component for each term to an emulator of radial functions or splines."""
    front = emulator.front
    if isinstance(front, SplineGrid):
        node = [np.array([knot[i + 1:i + 1 + front.degree].mean() for i in range(n)])
                for knot, n in zip(front.knot, front.coef.shape)]
        mapped = np.stack([x.ravel() for x in np.meshgrid(*node, indexing="ij")], axis=1)
        coef = values_at(mapped).reshape(*front.coef.shape[:-1], -1)
        for axis, (knot, x) in enumerate(zip(front.knot, node)):
            spline = make_interp_spline(x, coef, front.degree, t=knot, axis=axis)
            coef = np.moveaxis(spline.c, 0, axis)
    else:
        coef = RadialFit(front.center, front.length, np.ones(len(front.center)),
                         values_at(front.center), front.degree, np.array([THROUGH])).coef
        need(len(coef) == len(front.coef), INPUT, "the centers of the radial functions do not "
             f"determine a polynomial of degree {front.degree}")
    front.coef = np.concatenate([front.coef, coef.astype("f4")], axis=-1)
    emulator.weight[0] = np.hstack([emulator.weight[0], by_term.T.astype("f4")])


def apply(library, i_arm, calibrators, correction):
    """Change an arm's emulator by a correction."""
    arm = library.arm[i_arm]
    emulator = arm.emulator
    n_term = len(correction.coef)
    need(emulator.log_flux, INPUT,
         f"arm {arm.name}: its emulator gives the flux; only emulators of ln flux can be corrected")
    by_term = np.nan_to_num(CubicSpline(calibrators.wave, correction.coef * calibrators.measures,
                                        axis=1, extrapolate=False)(arm.wave_aa))

    def values_at(mapped):
        return correction.terms(mapped) * nearby(calibrators, library, correction.use,
                                                 mapped)[:, None]

    if emulator.front is None:
        into_network(library, emulator, calibrators, values_at, by_term)
    elif len(emulator.weight) > 1:
        raise Failure(INPUT, f"arm {arm.name}: its emulator has functions of the labels and layers "
                             "with SiLU; such emulators cannot be corrected")
    elif emulator.weight[0].shape[1] + n_term > MAX_WIDTH:
        raise Failure(INPUT, f"arm {arm.name}: {emulator.weight[0].shape[1]} components and "
                             f"{n_term} of the correction exceed {MAX_WIDTH}; make it with fewer "
                             "--components")
    else:
        into_functions(emulator, values_at, by_term)
