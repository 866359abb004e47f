#!/usr/bin/python3
"""Write particles.h: kernel densities and slopes of gridded potentials by SciPy.

    /usr/bin/python3 tests/reference/make_particles.py tests/reference/particles.h

Densities are those of scipy.stats.gaussian_kde, whose kernel has the covariance of the samples, by
Scott's and Silverman's rule and by a given factor. Slopes are derivatives of
scipy.interpolate.make_interp_spline (not-a-knot, or periodic) along one axis after the other.
Samples and values are random with a fixed seed and are written with the results.
"""
import sys

import numpy as np
import scipy
from scipy.interpolate import make_interp_spline
from scipy.stats import gaussian_kde

SEED = 20261123


def table(out, name, data):
    flat = np.ravel(data)
    out.write(f"static const double {name}[{flat.size}] = {{\n")
    for i in range(0, flat.size, 4):
        out.write("    " + ", ".join(f"{x:.17g}" for x in flat[i:i + 4]) + ",\n")
    out.write("};\n")


def density(samples, grids, rule):
    points = np.meshgrid(*grids, indexing="ij")
    kde = gaussian_kde(samples.T, bw_method=rule)
    return kde(np.array([p.ravel() for p in points]))


def slope(axes, periodic, value, at):
    """Gradient at one place of the tensor product of splines; value [n0][n1]..."""
    grad = []
    for derivative in range(len(axes)):
        v = value
        for a, axis in enumerate(axes):
            v0, x = v, axis
            if periodic[a]:
                x = np.append(axis, 2 * axis[-1] - axis[-2])
                v0 = np.concatenate([v, v[:1]])
            spline = make_interp_spline(x, v0, k=3, bc_type="periodic" if periodic[a] else None)
            v = spline(at[a], nu=1 if derivative == a else 0)
        grad.append(float(v))
    return grad


def main():
    rng = np.random.default_rng(SEED)
    mix = np.array([[1.0, 0.4, -0.2], [0.0, 0.7, 0.3], [0.0, 0.0, 1.3]])
    samples = rng.standard_normal((120, 3)) @ mix + np.array([0.3, -0.5, 1.0])
    axes = [np.linspace(-4, 4, 25), np.linspace(-3, 2, 9), np.linspace(-3, 5, 11)]
    with open(sys.argv[1], "w") as out:
        out.write(f"/* Made by tests/reference/make_particles.py with SciPy {scipy.__version__}, NumPy\n"
                  f" * {np.__version__}, seed {SEED}; do not edit. */\n/* clang-format off */\n")
        table(out, "ref_sample", samples)
        table(out, "ref_scott_1", density(samples[:, :1], axes[:1], "scott"))
        table(out, "ref_silverman_1", density(samples[:, :1], axes[:1], "silverman"))
        # narrower than a quarter of the grid's step
        table(out, "ref_narrow_1", density(samples[:, :1], axes[:1], 0.03))
        table(out, "ref_scott_2", density(samples[:, :2], axes[:2], "scott"))
        table(out, "ref_silverman_2", density(samples[:, :2], axes[:2], "silverman"))
        table(out, "ref_scott_3", density(samples, axes, "scott"))
        field = [np.linspace(-2, 2, 7), np.linspace(0, 3, 5), np.linspace(-1, 1, 6)]
        value = rng.standard_normal((7, 5, 6))
        at = np.array([[rng.uniform(f[0], f[-1]) for f in field] for _ in range(12)])
        table(out, "ref_field_value", value)
        table(out, "ref_field_at", at)
        # the last one is periodic along its first axis
        for n_dim, periodic in ((1, 0), (2, 0), (3, 0), (3, 1)):
            v = value[tuple([slice(None)] * n_dim + [0] * (3 - n_dim))]
            table(out, f"ref_slope_{n_dim}{'p' if periodic else ''}",
                  [slope(field[:n_dim], [periodic, 0, 0], v, x) for x in at])


main()
