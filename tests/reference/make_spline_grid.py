#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write spline_grid.h: tensor products of not-a-knot splines, and linear interpolation, by SciPy.

    /usr/bin/python3 tests/reference/make_spline_grid.py OUTPUT.h

The build runs it. Values on the grid are random with a fixed seed and are written with the results. They are
interpolated by scipy.interpolate.make_interp_spline along one axis after the other; inside the
grid the results must be those of RegularGridInterpolator(method="cubic"). Beyond the grid a
coordinate goes on linearly. ref_linear_* are those of RegularGridInterpolator(method="linear"),
which goes on linearly too.
"""
import sys

import numpy as np
import scipy
from scipy.interpolate import RegularGridInterpolator, make_interp_spline

AXES = [
    [np.array([-1.0, -0.55, 0.1, 0.3, 1.2])],
    [np.array([-1.7, -0.9, 0.2, 1.4]), np.array([-1.0, -0.8, -0.3, 0.5, 0.9, 1.6, 2.0])],
    [np.array([0.0, 1.0, 1.5, 3.0, 3.5]), np.array([-2.0, -1.0, 0.5, 1.0]),
     np.array([-1.0, -0.6, -0.2, 0.2, 0.6, 1.0])],
    [np.array([-1.5, -0.4, 0.5, 1.5]), np.array([-1.5, -0.8, 0.1, 0.7, 1.6]),
     np.array([0.0, 0.5, 1.0, 2.0]), np.array([-0.5, 0.0, 0.5, 0.75, 1.5])],
    [np.array([-1.0, -0.3, 0.4 + 0.1 * axis, 1.0]) for axis in range(5)],
]
N_OUT = 3
N_POINT = 40


def along(node, value, x):
    """Spline through value [n, ...] at x, linear beyond the nodes."""
    spline = make_interp_spline(node, value, k=3)
    edge = min(max(x, node[0]), node[-1])
    return spline(edge) + (x - edge) * spline.derivative()(edge)


def table(out, name, data):
    flat = np.ravel(data)
    out.write(f"static const double {name}[{flat.size}] = {{\n")
    for i in range(0, flat.size, 4):
        out.write("    " + " ".join(f"{x:.17g}," for x in flat[i:i + 4]) + "\n")
    out.write("};\n")


def main():
    random = np.random.default_rng(20250304)
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("/* Made by tests/reference/make_spline_grid.py with "
                  f"SciPy {scipy.__version__}; do not edit. */\n")
        out.write("/* clang-format off */\n")
        out.write(f"enum {{ REF_N_CASE = {len(AXES)}, REF_N_OUT = {N_OUT}, "
                  f"REF_N_POINT = {N_POINT} }};\n")
        for case, nodes in enumerate(AXES):
            shape = tuple(len(n) for n in nodes)
            # multiples of 1/1024 are exact in the table
            value = np.round(1024 * random.uniform(-1, 1, shape + (N_OUT,))) / 1024
            low, high = (np.array([n[k] for n in nodes]) for k in (0, -1))
            points = low + (high - low) * random.uniform(0, 1, (N_POINT, len(nodes)))
            points[1::4] += (high - low) * random.uniform(-0.5, 0.5, points[1::4].shape)
            points[0] = low
            points[2] = high
            points[3] = [n[1] for n in nodes]
            result = []
            for x in points:
                h = value
                for node, at in zip(nodes, x):
                    h = along(node, h, at)
                result.append(h)
            inside = np.all((points >= low) & (points <= high), axis=1)
            check = RegularGridInterpolator(nodes, value, method="cubic")(points[inside])
            worst = np.abs(check - np.array(result)[inside]).max()
            if worst > 1e-8:
                sys.exit(f"RegularGridInterpolator differs by {worst:.3g}")
            for axis, node in enumerate(nodes):
                table(out, f"ref_node_{case}_{axis}", node)
            table(out, f"ref_value_{case}", value)
            table(out, f"ref_point_{case}", points)
            table(out, f"ref_result_{case}", result)
            linear = RegularGridInterpolator(nodes, value, method="linear", bounds_error=False,
                                             fill_value=None)
            table(out, f"ref_linear_{case}", linear(points))
        out.write("#define REF_CASES")
        for case, nodes in enumerate(AXES):
            sizes = ", ".join(str(len(node)) for node in nodes)
            names = ", ".join(f"ref_node_{case}_{axis}" for axis in range(len(nodes)))
            of = ", ".join(f"ref_{what}_{case}" for what in ("value", "point", "result", "linear"))
            out.write(f" \\\n  {{{len(nodes)}, {{{sizes}}}, {{{names}}}, {of}}},")
        out.write("\n")


if __name__ == "__main__":
    main()
