#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write nelder_mead.h: the points that SciPy's Nelder-Mead visits on several functions.

    /usr/bin/python3 tests/reference/make_nelder_mead.py OUTPUT.h

The build runs it; SciPy 1.10 and 1.17 give the same points.
tests/kernels/math/test_nelder_mead.c holds the same functions in C and compares bit for bit.
Hence only + - * / floor and comparisons, in a fixed order, on Python floats (IEEE double,
nothing fused), and no powers or sums by NumPy. Points are written as hexadecimal floats.

A value that is NaN or infinite is given to SciPy as 1e300, which is what starmill makes of
it. SciPy itself lets NaN into the simplex, where every comparison with it is false; what it
does then is not worth following.
"""
import math
import sys

import numpy as np
import scipy
from scipy.optimize import minimize

HUGE = 1e300


def rosenbrock(x):
    total = 0.0
    for i in range(len(x) - 1):
        a = x[i + 1] - x[i] * x[i]
        b = 1.0 - x[i]
        total = total + (100.0 * (a * a) + b * b)
    return total


def powell(x):
    a = x[0] + 10.0 * x[1]
    b = x[2] - x[3]
    c = x[1] - 2.0 * x[2]
    d = x[0] - x[3]
    c = c * c
    d = d * d
    return a * a + 5.0 * (b * b) + c * c + 10.0 * (d * d)


def beale(x):
    p = x[1] * x[1]
    q = p * x[1]
    a = 1.5 - x[0] + x[0] * x[1]
    b = 2.25 - x[0] + x[0] * p
    c = 2.625 - x[0] + x[0] * q
    return a * a + b * b + c * c


def quadratic(x):
    """Correlated: neighbours are tied by a factor 0.9, weights 1 to n."""
    total = 0.0
    n = len(x)
    for i in range(n):
        t = x[i] - 0.25 * (i + 1.0)
        if i + 1 < n:
            t = t - 0.9 * (x[i + 1] - 0.25 * (i + 2.0))
        total = total + (i + 1.0) * (t * t)
    return total


def quartic(x):
    a = x[0] - 0.75
    b = a * a
    return b * b + 0.5 * b


def plateau(x):
    """Steps: many ties, which only a stable sort resolves as SciPy does; shrinks."""
    a = math.floor(4.0 * (x[0] - 0.3))
    b = math.floor(4.0 * (x[1] + 0.2))
    c = math.floor(4.0 * (x[2] - 0.1))
    return a * a + b * b + c * c


def broken(x):
    """Rosenbrock's function with holes of NaN, +inf and -inf off the way."""
    if x[0] < -1.3:
        return math.nan
    if x[1] > 1.35:
        return math.inf
    if x[0] > 0.2 and x[1] < -0.1:
        return -math.inf
    return rosenbrock(x)


def ridge(x):
    """Not differentiable: contractions fail at the ridge and the simplex shrinks."""
    a = x[0] - x[1]
    b = x[0] + x[1] - 1.0
    c = x[2] - x[0]
    a = a if a > 0.0 else -a
    b = b if b > 0.0 else -b
    c = c if c > 0.0 else -c
    return 10.0 * a + b + 3.0 * c


def mckinnon(x):
    """McKinnon 1998, SIAM J. Optim. 9, 148, tau = 2: stalls at the origin, f = 0."""
    p = x[0] * x[0]
    k = 360.0 if x[0] <= 0.0 else 6.0
    return k * p + x[1] + x[1] * x[1]


def axes(x0, step):
    x0 = np.asarray(x0, dtype=float)
    simplex = np.tile(x0, (len(x0) + 1, 1))
    for i, s in enumerate(np.broadcast_to(step, x0.shape)):
        simplex[i + 1, i] = x0[i] + s
    return simplex


def skewed(n, seed):
    rng = np.random.RandomState(seed)
    return rng.uniform(-2.0, 2.0, size=(n + 1, n))


MCKINNON = np.array([[0.0, 0.0], [(1.0 + math.sqrt(33.0)) / 8.0, (1.0 - math.sqrt(33.0)) / 8.0],
                     [1.0, 1.0]])

# name, function, simplex, options (0 = not given); the same defaults as SciPy's otherwise
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
    ("mckinnon_2", mckinnon, MCKINNON, dict(xatol=1e-8, fatol=1e-8)),
]


def hexadecimal(value):
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
        "} reference_nm;",
        "",
    ]
    table = []
    for name, function, simplex, given in CASES:
        n = simplex.shape[1]
        options = dict(xatol=1e-4, fatol=1e-4)
        options.update(given)
        points = []

        def wrapped(x, function=function, points=points):
            points.extend(x)
            f = function([float(v) for v in x])
            return f if abs(f) < HUGE else HUGE

        found = minimize(wrapped, simplex[0], method="Nelder-Mead",
                         options=dict(options, initial_simplex=simplex))
        assert len(points) == found.nfev * n
        out.append("static const double nm_%s_simplex0[] = {" % name)
        out += rows(simplex.ravel(), n)
        out += ["};", "static const double nm_%s_points[] = {" % name]
        out += rows(points, n)
        out += ["};", ""]
        table.append('  {"%s", %d, %d, %r, %r, %d, %d, %d, %s, nm_%s_simplex0, nm_%s_points},'
                     % (name, n, options.get("maxfev", 200 * n),
                        options["fatol"], options["xatol"], found.nfev, found.nit, found.status,
                        hexadecimal(found.fun), name, name))
    out += ["static const reference_nm reference_nm_case[] = {"] + table + ["};", "", "#endif"]
    with open(sys.argv[1], "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_nelder_mead.py OUTPUT.h")
    main()
