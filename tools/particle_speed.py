#!/usr/bin/python3
"""Speed and accuracy of `starmill particles` beside NumPy and SciPy's gaussian_kde.

usage: particle_speed.py --starmill PROGRAM [--grid N] [--steps N] [--particles N] [--some N]

Ornstein and Uhlenbeck's process along one axis with a density after every step, by `starmill bench
particles` on one core, and by NumPy (Euler's step for all particles at once) with gaussian_kde on
one thread; by turns, in CPU time.  SciPy's densities are of --some steps only, and their time
counts as often as there are steps.  Then both densities at the end against the process's own, as
the kernel smooths it: the root of the mean square over the grid.

Needs NumPy, SciPy and h5py.
"""

import argparse
import math
import os
import subprocess
import tempfile
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before NumPy

import h5py
import numpy as np
import scipy
from scipy.stats import gaussian_kde

STEP, LOW, HIGH = 0.01, -5.0, 5.0
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run(*args):
    return subprocess.run([str(a) for a in args], check=True, env=ENVIRONMENT,
                          stdout=subprocess.PIPE, text=True).stdout


def time_starmill(o):
    """CPU seconds of one evolution: exact, binned."""
    said = run(o.starmill, "bench", "particles", "--grids", o.grid, "--steps", o.steps,
               "--particles", o.particles, "--threads", 1)
    row = [line for line in said.splitlines() if line.startswith(f"| {o.grid} |")][0]
    cell = [c.strip() for c in row.split("|")]
    return float(cell[4]), float(cell[6])


def time_scipy(o, seed):
    """CPU seconds of one evolution, and the last density."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(LOW, HIGH, o.grid)
    begin = time.process_time()
    x = 1 + 0.5 * rng.standard_normal(o.particles)
    move = density = 0.0
    move += time.process_time() - begin
    for step in range(o.steps):
        begin = time.process_time()
        x += -STEP * x + math.sqrt(2 * STEP) * rng.standard_normal(o.particles)
        move += time.process_time() - begin
        if step >= o.steps - o.some:
            begin = time.process_time()
            last = gaussian_kde(x)(grid)
            density += time.process_time() - begin
    return move + density / o.some * (o.steps + 1), last


def starmill_density(o):
    with tempfile.TemporaryDirectory() as folder:
        config, out = os.path.join(folder, "c.yaml"), os.path.join(folder, "o.h5")
        with open(config, "w", encoding="ascii") as f:
            f.write(f"particles: {o.particles}\nsteps: {o.steps}\nstep: {STEP}\nseed: 1\n"
                    f"potential: harmonic\nrate: 1\nstart_centre: 1\nstart_spread: 0.5\n"
                    f"grid: {o.grid}\ngrid_low: {LOW}\ngrid_high: {HIGH}\n")
        run(o.starmill, "particles", config, "--output", out, "--threads", 1, "--quiet")
        with h5py.File(out, "r") as f:
            return f["DENSITY"][0, 0]


def error(o, density):
    """Against Euler's mean and variance, and the kernel of Scott's width."""
    keep = 1 - STEP
    mean, var = keep**o.steps, 0.25 * keep ** (2 * o.steps)
    var += 2 * STEP * (1 - keep ** (2 * o.steps)) / (1 - keep**2)
    var *= 1 + o.particles**-0.4
    x = np.linspace(LOW, HIGH, o.grid)
    truth = np.exp(-0.5 * (x - mean) ** 2 / var) / math.sqrt(2 * math.pi * var)
    return math.sqrt(np.mean((density - truth) ** 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--starmill", required=True)
    parser.add_argument("--grid", type=int, default=100)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--particles", type=int, default=100000)
    parser.add_argument("--some", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    o = parser.parse_args()
    turns = [(time_starmill(o), time_scipy(o, turn)) for turn in range(o.turns)]
    exact, binned = (min(ours[i] for ours, _ in turns) for i in range(2))
    theirs = min(t for _, (t, _) in turns)
    print(f"NumPy {np.__version__}, SciPy {scipy.__version__}: {theirs:.2f} s of CPU time, "
          f"the shortest of {o.turns}")
    print(f"starmill, exact: {exact:.3f} s, {theirs / exact:.1f} times faster")
    print(f"starmill, binned: {binned:.3f} s, {theirs / binned:.1f} times faster")
    print(f"error of the last density: NumPy and SciPy {error(o, turns[0][1][1]):.2e}, "
          f"starmill {error(o, starmill_density(o)):.2e}")


main()
