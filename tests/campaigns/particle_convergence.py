#!/usr/bin/python3
"""Convergence of `starmill particles` in the number of particles and in the step.

usage: particle_convergence.py --starmill PROGRAM --output FIGURE.png

Left: the density of Ornstein and Uhlenbeck's process at time 1 against the process's own, root of
the mean square over the grid, by the number of particles, and N^(-2/5).  Right: the variance at
time 1 against the process's own by the length of a step, by both schemes with 4 million particles,
and the standard error of so many.  Needs NumPy, h5py and Matplotlib.
"""

import argparse
import math
import os
import subprocess
import tempfile

import h5py
import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
MEAN, VARIANCE = math.exp(-1), 0.25 * math.exp(-2) + 1 - math.exp(-2)


def run(program, scheme, particles, steps):
    """Points, density and moments at time 1; from mean 1 and standard deviation 0.5, D = 1."""
    with tempfile.TemporaryDirectory() as folder:
        config, out = os.path.join(folder, "c.yaml"), os.path.join(folder, "o.h5")
        with open(config, "w", encoding="ascii") as f:
            f.write(f"particles: {particles}\nsteps: {steps}\nstep: {1 / steps!r}\nseed: 3\n"
                    f"scheme: {scheme}\npotential: harmonic\nrate: 1\nstart_centre: 1\n"
                    "start_spread: 0.5\ndensity: binned\n")
        subprocess.run([program, "particles", config, "--output", out, "--threads", "1", "--quiet"],
                       check=True, env=ENVIRONMENT)
        with h5py.File(out, "r") as f:
            return f["X1"][:], f["DENSITY"][0, 0], f["MOMENTS"][0, -1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--starmill", required=True)
    parser.add_argument("--output", required=True)
    o = parser.parse_args()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    numbers, errors = [10**3, 10**4, 10**5, 10**6], []
    for n in numbers:
        x, density, _ = run(o.starmill, "heun", n, 50)
        truth = np.exp(-0.5 * (x - MEAN) ** 2 / VARIANCE) / math.sqrt(2 * math.pi * VARIANCE)
        errors.append(math.sqrt(np.mean((density - truth) ** 2)))
        print(f"{n} particles: {errors[-1]:.2e}")
    left.loglog(numbers, errors, "o-", label="density")
    left.loglog(numbers, errors[0] * (np.array(numbers) / numbers[0]) ** -0.4, "k:",
                label="$N^{-2/5}$")
    left.set(xlabel="particles", ylabel="error of the density")
    n, steps = 4 * 10**6, [2, 4, 8, 16, 32]
    for scheme in ("euler", "heun"):
        off = [abs(run(o.starmill, scheme, n, k)[2][4] - VARIANCE) for k in steps]
        print(scheme, " ".join(f"1/{k}: {e:.2e}" for k, e in zip(steps, off)))
        right.loglog([1 / k for k in steps], off, "o-", label=scheme)
    right.axhline(VARIANCE * math.sqrt(2 / n), color="k", ls=":", label="standard error")
    right.set(xlabel="step", ylabel="error of the variance")
    for axes in (left, right):
        axes.legend()
    figure.savefig(o.output, dpi=110)


main()
