# SPDX-License-Identifier: BSD-3-Clause
"""starmill library info: what a library or a grid file holds."""

import contextlib

import numpy as np

from starmill.cli.basics import printable
from starmill.templates.grid_file import describe_grid
from starmill.templates.library_data import SplineGrid
from starmill.templates.library_file import read
from starmill.wavelength import C_KM_S


def main(options):
    path = options.arguments[0]
    is_grid = False  # if it cannot be opened, reading it as a library says why
    with contextlib.suppress(OSError), open(path, "rb") as file:
        is_grid = b"starmill grid" in file.read(4096)
    for line in describe_grid(path) if is_grid else describe(read(path)):
        print("\n".join(printable(part) for part in line.split("\n")))


def describe(library):
    yield f"library {library.name or '(no name)'}"
    yield f"file    {library.path}"
    yield f"hash    {library.hash}"
    yield f"labels  {library.n_label}"
    for label in library.label:
        unit = f" {label.unit}" if label.unit else ""
        yield (f"  {label.name:<8} {label.column:<8} {label.min:g} to {label.max:g}{unit}, typical "
               f"error {label.scale:g}; mapped by {'log10, ' if label.mapping else ''}- "
               f"{label.mean:.9g}, / {label.std:.9g}")
    yield f"hulls   {len(library.hull)}"
    for hull in library.hull:
        yield f"  {', '.join(library.label[i].name for i in hull.label)}: {len(hull.facet)} facets"
    yield f"arms    {len(library.arm)}"
    for arm in library.arm:
        yield from describe_arm(library, arm)
    vsini = ", ".join(f"{v:g}" for v in library.guess_vsini_km_s)
    yield f"guess   {len(library.guess_label)} templates, v sin i {vsini} km/s"
    if library.report:
        yield library.report.rstrip("\n")


def describe_arm(library, arm):
    yield (f"  {arm.name} ({arm.setup}): {arm.wave_aa[0]:.3f} to {arm.wave_aa[-1]:.3f} A, "
           f"{arm.n_pix} pixels of {C_KM_S * arm.ln_step:.4f} km/s")
    yield f"    resolution: {arm.resolution()}"
    yield from describe_emulator(library, arm.emulator)
    error = arm.error
    if error is not None:
        n = 0 if error.component is None else len(error.component)
        each = "".join(f", {100 * sigma:.3f}" for sigma in (error.sigma if n else []))[1:]
        rms = np.sqrt(np.mean(error.fraction.astype(float) ** 2))
        yield (f"    model error: {100 * rms:.3f} % of the flux, correlated over "
               f"{error.correlation:.1f} pixels, and {n} components{f' of{each} %' if n else ''}")
    if arm.source:
        yield f"    from {arm.source}, revision {arm.revision or 'none'}"


def describe_emulator(library, emulator):
    front = emulator.front
    n_number = sum(weight.size + bias.size for weight, bias in zip(emulator.weight, emulator.bias))
    shape, what, nodes = "", "SiLU", None
    if isinstance(front, SplineGrid):
        shape = "grid " + "x".join(map(str, front.coef.shape[:-1])) + "-"
        what = "linear" if front.degree == 1 else "cubic splines"
        nodes = "nodes" + ",".join(
            f" {label.name} {n} from {label.unmap(knot[0]):.6g} to {label.unmap(knot[n]):.6g}"
            for label, n, knot in zip(library.label, front.coef.shape, front.knot))
    elif front is not None:
        n_center = len(front.center)
        shape = f"rbf {n_center}+{len(front.coef) - n_center}-"
        what = "radial functions"
        nodes = "centers" + ",".join(
            f" {label.name} from {label.unmap(x.min()):.6g} to {label.unmap(x.max()):.6g} "
            f"(length {length:.4g})"
            for label, x, length in zip(library.label, front.center.T, front.length))
        nodes += f"; polynomial of degree {front.degree}"
    n_number += front.coef.size if front is not None else 0
    shape += "-".join(map(str, [emulator.weight[0].shape[1]] + [len(w) for w in emulator.weight]))
    yield (f"    emulator {shape}, {what}, {'log flux' if emulator.log_flux else 'flux'}, "
           f"{n_number} parameters")
    if nodes:
        yield f"    {nodes}; {front.coef.shape[-1]} components"
