#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write nelder_mead.h: the points that SciPy's Nelder-Mead visits on several functions, and their values.

    python3 tests/reference/make_nelder_mead.py OUTPUT.h

The build runs it; tests/kernels/math/test_nelder_mead.c compares bit for bit.  A value that is NaN or
infinite is given to SciPy as 1e300, which is what starmill makes of it.  SciPy itself lets NaN into the
simplex, where every comparison with it is false; what it does then is not worth following."""

import math
import sys

import numpy as np
import scipy
from scipy.optimize import minimize

HUGE = 1e300


def rosenbrock(x):
    return sum(100 * (b - a * a)**2 + (1 - a)**2 for a, b in zip(x, x[1:]))


def powell(x):
    return ((x[0] + 10 * x[1])**2 + 5 * (x[2] - x[3])**2 + (x[1] - 2 * x[2])**4
            + 10 * (x[0] - x[3])**4)


def beale(x):
    return sum((c - x[0] + x[0] * x[1]**k)**2 for k, c in ((1, 1.5), (2, 2.25), (3, 2.625)))


def quadratic(x):
    """Correlated: neighbours are tied by a factor 0.9, weights 1 to n."""
    y = [v - 0.25 * (i + 1) for i, v in enumerate(x)] + [0]
    return sum((i + 1) * (y[i] - 0.9 * y[i + 1])**2 for i in range(len(x)))


def quartic(x):
    return (x[0] - 0.75)**4 + 0.5 * (x[0] - 0.75)**2


def plateau(x):
    """Steps: many ties, which only a stable sort resolves as SciPy does; shrinks."""
    return float(sum(math.floor(4 * (v - at))**2 for v, at in zip(x, (0.3, -0.2, 0.1))))


def broken(x):
    """Rosenbrock's function with holes of NaN, +inf and -inf off the way."""
    if x[0] < -1.3:
        return math.nan
    if x[1] > 1.35:
        return math.inf
    return -math.inf if x[0] > 0.2 and x[1] < -0.1 else rosenbrock(x)


def ridge(x):
    """Not differentiable: contractions fail at the ridge and the simplex shrinks."""
    return 10 * abs(x[0] - x[1]) + abs(x[0] + x[1] - 1) + 3 * abs(x[2] - x[0])


def mckinnon(x):
    """The simplex stalls at the origin, f = 0 (McKinnon 1998, SIAM J. Optim. 9, 148; tau = 2)."""
    return (360 if x[0] <= 0 else 6) * x[0]**2 + x[1] + x[1]**2


def axes(x0, step):
    x0 = np.asarray(x0, dtype=float)
    simplex = np.tile(x0, (len(x0) + 1, 1))
    for i, s in enumerate(np.broadcast_to(step, x0.shape)):
        simplex[i + 1, i] = x0[i] + s
    return simplex


def skewed(n, seed):
    return np.random.RandomState(seed).uniform(-2.0, 2.0, size=(n + 1, n))


MCKINNON = np.array([[0.0, 0.0], [(1.0 + math.sqrt(33.0)) / 8.0, (1.0 - math.sqrt(33.0)) / 8.0],
                     [1.0, 1.0]])

# name, function, first simplex, options; an option that is missing has SciPy's default
CASES = [
    ("rosenbrock_2", rosenbrock, axes([-1.2, 1.0], [0.1, 0.1]), dict(xatol=1e-8, fatol=1e-8)),
    ("rosenbrock_2_skewed", rosenbrock, skewed(2, 1), dict()),
    ("rosenbrock_2_maxfev", rosenbrock, skewed(2, 2), dict(maxfev=37)),
    ("rosenbrock_4", rosenbrock, axes([-1.2, 1.0, -1.2, 1.0], 0.5), dict()),
    ("powell_4", powell, axes([3.0, -1.0, 0.0, 1.0], 0.5), dict(maxfev=150)),
    ("beale_2", beale, axes([1.0, 1.0], -0.3), dict()),
    ("quadratic_6", quadratic, axes([0.0] * 6, [1.0, -0.5, 0.3, 2.0, 0.1, 1.0]), dict()),
    ("quadratic_18", quadratic, skewed(18, 5), dict(maxfev=100)),
    ("quartic_1", quartic, axes([-2.0], 0.7), dict()),
    ("plateau_3", plateau, axes([1.7, 2.1, -1.9], [0.4, 0.3, 0.5]), dict()),
    ("plateau_3_tied", plateau, skewed(3, 38), dict()),
    ("broken_2", broken, axes([-1.2, 1.0], [-0.2, 0.5]), dict()),
    ("ridge_3", ridge, skewed(3, 7), dict(xatol=1e-6, fatol=1e-6)),
    ("mckinnon_2", mckinnon, MCKINNON, dict(xatol=1e-8, fatol=1e-8))]


def hexadecimal(value):
    if not math.isfinite(value):
        return "(double)NAN" if math.isnan(value) else f"{'-' if value < 0 else ''}(double)INFINITY"
    mantissa, exponent = float(value).hex().split("p")
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent if value else "0"


def rows(values, n):
    return ["  " + ",".join(hexadecimal(v) for v in values[i:i + n]) + ","
            for i in range(0, len(values), n)]


def main():
    out = [
        "/* Made by tests/reference/make_nelder_mead.py with SciPy %s and NumPy %s; do not edit. */"
        % (scipy.__version__, np.__version__),
        "/* clang-format off */",
        "#ifndef MILL_REFERENCE_NELDER_MEAD_H",
        "#define MILL_REFERENCE_NELDER_MEAD_H",
        "",
        "typedef struct reference_nm {",
        "  const char *name;       /* function, underscore, anything */",
        "  int n, max_eval;",
        "  double f_tol, x_tol;",
        "  int n_eval, n_iter, status; /* SciPy's nfev, nit and status: 0, 1 maxfev */",
        "  double f_best;",
        "  const double *simplex0; /* [n+1][n] */",
        "  const double *points;   /* [n_eval][n] */",
        "  const double *values;   /* [n_eval] */",
        "} reference_nm;",
        ""]
    table = []
    for name, function, simplex, given in CASES:
        n = simplex.shape[1]
        options = dict(xatol=1e-4, fatol=1e-4)
        options.update(given)
        points, values = [], []

        def wrapped(x, function=function, points=points, values=values):
            points.extend(x)
            f = function([float(v) for v in x])
            values.append(f)
            return f if abs(f) < HUGE else HUGE
        found = minimize(wrapped, simplex[0], method="Nelder-Mead",
                         options=dict(options, initial_simplex=simplex))
        assert len(points) == found.nfev * n
        out.append("static const double nm_%s_simplex0[] = {" % name)
        out += rows(simplex.ravel(), n)
        out += ["};", "static const double nm_%s_points[] = {" % name]
        out += rows(points, n)
        out += ["};", "static const double nm_%s_values[] = {" % name, *rows(values, 4), "};", ""]
        table.append('  {"%s", %d, %d, %r, %r, %d, %d, %d, %s, nm_%s_simplex0, nm_%s_points, nm_%s_values},'
                     % (name, n, options.get("maxfev", 200 * n),
                        options["fatol"], options["xatol"], found.nfev, found.nit, found.status,
                        hexadecimal(found.fun), name, name, name))
    out += ["static const reference_nm reference_nm_case[] = {"] + table + ["};", "", "#endif"]
    with open(sys.argv[1], "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_nelder_mead.py OUTPUT.h")
    main()
