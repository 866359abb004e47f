#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write blocks.h: float64 reference values of block functions, by SciPy and NumPy.

    python3 tests/reference/make_blocks.py OUTPUT.h

The build runs it.

Nothing here shares formulas with the C code: kernels are integrated numerically, the spline
is SciPy's, the resolution matrix goes through a dense matrix, hulls come from Qhull. Random
inputs have fixed seeds and are written with the results, so no generator is shared either."""
import math
import sys
import warnings

import numpy as np
import scipy
from scipy.integrate import IntegrationWarning, quad
from scipy.interpolate import BPoly, CubicSpline, lagrange
from scipy.sparse import dia_matrix
from scipy.spatial import ConvexHull

# integrals are asked for more digits than float64 has, and quad says so
warnings.filterwarnings("ignore", category=IntegrationWarning)

EPS = 0.6  # linear limb darkening
ROTATION_R = [0.05, 0.3, 0.9, 1.0, 1.7, 2.2, 5.0, 36.2]


def smooth_cardinal():
    """The quintic spline through a unit impulse at 0.  At each integer its value and first two
    derivatives are those of the quartic through the five nearest points."""
    nodes = np.arange(-4, 5)
    at_node = []
    for j in nodes:
        near = np.arange(j - 2, j + 3)
        quartic = lagrange(near - j, (near == 0).astype(float))
        at_node.append([quartic(0.0), quartic.deriv(1)(0.0), quartic.deriv(2)(0.0)])
    return BPoly.from_derivatives(nodes, at_node)


SMOOTH = smooth_cardinal()
SMOOTH_SLOPE = SMOOTH.derivative()
REACH = 3


def rotation_integral(r, k, leg, reach=1):
    """Return the integral of leg(k - r x, x) K(x) over x in [-1, 1]; K: rotation kernel.  x = sin t
    removes the square root at the ends.  leg(u, x) has corners at whole u and is 0 beyond |u| =
    reach, so the range is split there."""
    norm = math.pi * (1.0 - EPS / 3.0)

    def integrand(t):
        x, c = math.sin(t), math.cos(t)
        kernel = (2.0 * (1.0 - EPS) * c + 0.5 * math.pi * EPS * c * c) / norm
        return leg(k - r * x, x) * kernel * c
    corners = [math.asin(c / r) for c in range(k - reach, k + reach + 1) if -r < c < r]
    edges = [-0.5 * math.pi] + corners + [0.5 * math.pi]
    return math.fsum(quad(integrand, a, b, epsabs=1e-16, epsrel=1e-13)[0]
                     for a, b in zip(edges[:-1], edges[1:]))


def rotation_weight(r, k):
    return rotation_integral(r, k, lambda u, x: max(0.0, 1.0 - abs(u)))


def rotation_slope(r, k):
    """dW_k/dR by differentiation under the integral."""
    return rotation_integral(r, k, lambda u, x: math.copysign(x, x * u) if abs(u) < 1.0 else 0.0)


def quintic_weight(r, k):
    return rotation_integral(r, k, lambda u, x: float(SMOOTH(u)) if abs(u) < REACH else 0.0, REACH)


def quintic_slope(r, k):
    """dW_k/d(R^2/2), the same way."""
    return -rotation_integral(
        r, k, lambda u, x: x * float(SMOOTH_SLOPE(u)) if abs(u) < REACH else 0.0, REACH) / r


def moment_weights(r, slope):
    """Weights k = 0 to 3 (of seven) that have the profile's moments 0 to 6, or their slopes."""
    order = np.arange(0, 7, 2)
    profile = [2.0 * quad(lambda t, n=n: math.sin(t)**n * (
        (2.0 * (1.0 - EPS) + 0.5 * math.pi * EPS * math.cos(t)) * math.cos(t)**2
        / (math.pi * (1.0 - EPS / 3.0))), 0.0, 0.5 * math.pi, epsabs=1e-15)[0] for n in order]
    k = np.arange(REACH + 1)
    taken = np.where(k > 0, 2.0, 1.0) * k[None, :]**order[:, None]
    return np.linalg.solve(taken, profile * (order * r**(order - 2.0) if slope else r**order))


def mixture(r):
    """Share of the quintic and its derivative: 0 below 1.5, 1 above 2.5."""
    s = min(max(r - 1.5, 0.0), 1.0)
    return 6 * s**5 - 15 * s**4 + 10 * s**3, 30 * s**4 - 60 * s**3 + 30 * s**2


def smooth_weight(r, k):
    share = mixture(r)[0]
    moments = (1.0 - share) * moment_weights(r, False)[k] if share < 1.0 and k <= REACH else 0.0
    return moments + (share * quintic_weight(r, k) if share else 0.0)


def smooth_slope(r, k):
    """dW_k/d(R^2/2)."""
    share, rise = mixture(r)
    slope = share * quintic_slope(r, k) if share else 0.0
    if share < 1.0 and k <= REACH:
        slope += (1.0 - share) * moment_weights(r, True)[k]
        slope -= rise / r * moment_weights(r, False)[k]
    return slope + (rise / r * quintic_weight(r, k) if rise else 0.0)


def richardson_slope(r, k, weight):
    """dW_k/dR by central differences, where no corner crosses the kernel's end nearby."""
    table = [[(weight(r + h, k) - weight(r - h, k)) / (2.0 * h)]
             for h in (0.02, 0.01, 0.005, 0.0025)]
    for j in range(1, 4):
        for i in range(j, 4):
            p = 4.0 ** j
            table[i].append((p * table[i][-1] - table[i - 1][j - 1]) / (p - 1.0))
    return table[3][3]


def c_array(name, values, comment, ctype="double"):
    values = np.asarray(values)
    flat = [("%d" if ctype == "int" else "%.17g") % v for v in values.ravel()]
    assert ctype == "int" or np.all(np.isfinite(values.astype(float)))
    shape = "".join("[%d]" % s for s in values.shape)
    lines = ["/* %s */" % comment, "static const %s %s[] = { /* %s */" % (ctype, name, shape)]
    lines += ["  " + ", ".join(flat[i:i + 4]) + "," for i in range(0, len(flat), 4)]
    return lines + ["};", ""]


def rotation():
    out = ["enum { REF_ROTATION_N = %d };" % len(ROTATION_R), ""]
    out += c_array("ref_rotation_r", ROTATION_R, "v sin i in grid points")
    for name, reach, weight, slope, scale, unit in (
            ("linear", 1, rotation_weight, rotation_slope, lambda r: 1.0, "dR"),
            ("smooth", REACH, smooth_weight, smooth_slope, lambda r: r, "d(R^2/2)")):
        n_weight, weights, slopes = [], [], []
        for r in ROTATION_R:
            n = (int(math.ceil(r)) if reach == 1 or r > 1.5 else 1) + reach
            w = np.array([weight(r, k) for k in range(n)])
            d = np.array([slope(r, k) for k in range(n)])
            assert abs(w[0] + 2.0 * w[1:].sum() - 1.0) < 1e-13
            assert abs(d[0] + 2.0 * d[1:].sum()) < 1e-13 / scale(r)
            for k in range(n):
                # W_k is not smooth where a corner reaches the kernel's end
                if min(abs(r - abs(c)) for c in range(k - reach, k + reach + 1)) > 0.05:
                    assert abs(richardson_slope(r, k, weight) - d[k] * scale(r)) < 1e-10, (r, k)
            n_weight.append(n)
            weights += list(w / (w[0] + 2.0 * w[1:].sum()))
            slopes += list(d)
        out += c_array("ref_%s_n" % name, n_weight,
                       "weights of each: k = 0 ... n - 1, the rest are 0", "int")
        out += c_array("ref_%s_weight" % name, weights, "W_k, one r after the other; W_-k = W_k")
        out += c_array("ref_%s_slope" % name, slopes, "dW_k/%s, same order" % unit)
    return out


def spline():
    n, n_eval = 64, 50
    out = ["enum { REF_SPLINE_N = %d, REF_SPLINE_N_EVAL = %d };" % (n, n_eval), ""]
    for name, ln_wave0, ln_step, seed in (("b", math.log(3600.0), 8.5e-5, 11),
                                          ("z", math.log(7520.0), 4.6e-5, 12)):
        rng = np.random.RandomState(seed)
        wave = np.exp(ln_wave0 + ln_step * np.arange(n))
        i = np.arange(n)
        # lines a few pixels wide, in float32 like templates, so that the test's input is exact
        flux = np.ones(n)
        for _ in range(8):
            flux -= rng.uniform(0.1, 0.5) * np.exp(
                -0.5 * ((i - rng.uniform(0, n)) / rng.uniform(1.5, 4.0))**2)
        flux = flux.astype(np.float32).astype(float)
        position = np.sort(np.concatenate([
            rng.uniform(0.0, n - 1.0, n_eval - 12),
            [1e-6, 0.25, 0.5, 0.999, 1.0 + 1e-9, 1.5],
            n - 1.0 - np.array([1e-6, 0.25, 0.5, 0.999, 1.0 + 1e-9, 1.5])]))
        at = np.exp(ln_wave0 + ln_step * position)
        assert at[0] > wave[0] and at[-1] < wave[-1]
        curve = CubicSpline(wave, flux, bc_type="natural")
        out += c_array("ref_spline_%s_grid" % name, [ln_wave0, ln_step],
                       "ln of the first wavelength (A), step")
        out += c_array("ref_spline_%s_flux" % name, flux, "values at the knots")
        out += c_array("ref_spline_%s_wave" % name, at, "where it is evaluated, A")
        out += c_array("ref_spline_%s_value" % name, curve(at), "natural cubic spline in wavelength")
        out += c_array("ref_spline_%s_slope" % name, curve(at, 1), "its derivative, per A")
    return out


def resolution():
    n, n_diag, half, s = 40, 11, 5, 0.5 / 0.8
    rng = np.random.RandomState(21)
    offset = np.arange(half, -half - 1, -1)
    # column j spreads light over rows j - offset; places off the arm hold wrong values
    width = 1.0 + 0.2 * np.arange(n) / n
    raw = np.exp(-0.5 * (offset[:, None] / width)**2) * rng.uniform(0.9, 1.1, (n_diag, n))
    raw = (raw / raw.sum(axis=0)).astype(np.float32)
    dense = dia_matrix((raw.astype(float), offset), shape=(n, n)).toarray()
    index = np.arange(n_diag)
    gauss = np.exp(-(index[:, None] - index)**2 / (2.0 * s * s)) / (s * math.sqrt(2.0 * math.pi))
    row = np.arange(n)[:, None]
    column = row - half + index
    inside = (0 <= column) & (column < n)
    solved = np.linalg.solve(gauss, np.where(inside, dense[row, column.clip(0, n - 1)], 0.0).T).T
    # whole rows have this sum; 10 of 40 rows also have weights off the arm, set to 0 below
    median = np.median(solved.sum(axis=1))
    for i in list(range(half)) + list(range(n - half, n)):
        solved[i] *= median / solved[i][inside[i]].sum()
    solved[~inside] = 0.0
    out = ["enum { REF_RESOLUTION_N = %d, REF_RESOLUTION_N_DIAG = %d };" % (n, n_diag), ""]
    out += c_array("ref_resolution_s", [s], "the templates' own sigma in pixels: 0.5 / 0.8")
    out += c_array("ref_resolution_raw", raw, "as in a file: dia layout, offsets +5 ... -5, float32")
    out += c_array("ref_resolution_row", solved,
                   "row i: weights of pixels i - 5 ... i + 5, 0 off the arm")
    return out


def continuum():
    n = 30
    wave = np.sort(np.random.RandomState(31).uniform(3600.0, 5800.0, n))
    x = 2.0 * (wave - wave[0]) / (wave[-1] - wave[0]) - 1.0
    out = ["enum { REF_CONTINUUM_N = %d };" % n, ""]
    out += c_array("ref_continuum_wave", wave, "A")
    for n_cont in (1, 3, 4, 10):
        rows = [x**k for k in range(min(3, n_cont))]
        if n_cont > 3:
            rows += [np.exp(-0.5 * ((x - c) * (n_cont - 3.0))**2)
                     for c in np.linspace(-1.0, 1.0, n_cont - 3)]
        out += c_array("ref_continuum_rbf_%d" % n_cont, rows, "polynomials, then Gaussians")
    rows = [np.polynomial.Chebyshev.basis(k)(x) for k in range(6)]
    assert np.allclose(rows, [np.cos(k * np.arccos(x)) for k in range(6)], atol=1e-14)
    out += c_array("ref_continuum_chebyshev_6", rows, "Chebyshev")
    return out


def hulls():
    rng = np.random.RandomState(41)
    cloud = rng.normal(size=(60, 4))
    pairs = ((0, 1), (2, 3))
    equations = [ConvexHull(cloud[:, list(p)]).equations for p in pairs]
    points = np.concatenate([rng.normal(size=(12, 4)) * 0.5, rng.normal(size=(20, 4)) * 2.5])
    distance = []
    for p in points:
        largest = [float(np.max(e[:, :2] @ p[list(q)] + e[:, 2])) for e, q in zip(equations, pairs)]
        distance.append(max(0.0, *largest))
    distance = np.array(distance)
    assert np.sum(distance == 0.0) >= 5 and np.sum(distance > 0.0) >= 5
    out = ["enum { REF_HULL_N_POINT = %d, REF_HULL_N_FACET_01 = %d, REF_HULL_N_FACET_23 = %d };"
           % (len(points), len(equations[0]), len(equations[1])), ""]
    for name, e in zip(("01", "23"), equations):
        out += c_array("ref_hull_facet_%s" % name, e, "a . x + b <= 0 inside: a0, a1, b")
    out += c_array("ref_hull_point", points, "mapped labels")
    out += c_array("ref_hull_distance", distance, "largest facet value of both hulls, 0 inside")
    return out


def pareto_k(w):
    """Of Zhang & Stephens (2009) and Vehtari et al. (2024)."""
    w = np.sort(w)
    n_tail = int(min(0.2 * len(w), 3 * np.sqrt(len(w)), 1000))
    x = w[-n_tail:] - w[-n_tail - 1]
    m = 30 + int(np.sqrt(n_tail))
    b = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(m) + 0.5))) / (3 * x[int(n_tail / 4 + 0.5) - 1])
    k = np.log1p(-b[:, None] * x).mean(axis=1)
    like = n_tail * (np.log(-b / k) - k - 1)
    share = 1 / np.exp(like - like[:, None]).sum(axis=1)
    k = np.log1p(-(b * share).sum() / share.sum() * x).mean()
    return (n_tail * k + 5) / (n_tail + 10)


def weights():
    """Weights of Pareto's distribution with some k, in logarithms of float32."""
    rng, ln_w, expected = np.random.RandomState(51), [], []
    for n, power in ((1200, 0.1), (1200, 0.5), (5000, 0.9), (60, 0.3)):
        ln = power * rng.exponential(size=n)
        ln_w.append((ln - ln.max()).astype(np.float32).astype(float))
        w = np.exp(ln_w[-1])
        expected.append([w.sum()**2 / (w**2).sum(), pareto_k(w),
                         *np.quantile(ln_w[-1], [0.025, 0.16, 0.5, 0.84, 0.975])])
    out = c_array("ref_weights_n", [len(ln) for ln in ln_w], "weights of each set", "int")
    out += c_array("ref_weights_ln", np.concatenate(ln_w), "ln of the weights, one set after the other")
    return out + c_array("ref_weights_expected", expected, "effective size, Pareto k, five quantiles of ln")


def main():
    out = ["/* Made by tests/reference/make_blocks.py with SciPy %s and NumPy %s; do not edit. */"
           % (scipy.__version__, np.__version__),
           "/* clang-format off */",
           "#ifndef MILL_REFERENCE_BLOCKS_H", "#define MILL_REFERENCE_BLOCKS_H", ""]
    for part in (rotation, spline, resolution, continuum, hulls, weights):
        out += part()
    with open(sys.argv[1], "w") as file:
        file.write("\n".join(out + ["#endif"]) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_blocks.py OUTPUT.h")
    main()
