"""Speed of training: starmill library train and PyTorch side by side.

usage: train_speed.py [options] --starmill PROGRAM [GRID.h5]

Both train the same network on the first arm of the same grid file with the same settings
(tools/train_reference.py, whose options this script takes too), by turns, on the same number of
threads, from memory.  Compared is the time of an epoch, models left out included, without
statistics and start: the first epoch of every turn does not count.  PyTorch runs as it is meant to
run fast: AdamW fused, and with --compile also through torch.compile.  Without GRID.h5 a grid of
--models spectra of --pixels pixels is made up.

Needs NumPy, h5py and torch.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

import train_reference as reference


def time_starmill(program, grid, o, folder):
    """Seconds of the epochs but the first, and the last loss."""
    lib = os.path.join(folder, "lib.h5")
    environment = dict(os.environ, OMP_NUM_THREADS=str(o.threads),
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = [program, "library", "train", "--overwrite", "--threads", str(o.threads), "--output",
               lib, *reference.words_for_starmill(o), grid]
    done = subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"{program} ended with status {done.returncode}")
    with open(lib + ".losses.csv", newline="", encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    arm = [row for row in rows if row["arm"] == rows[0]["arm"]]
    return [float(row["seconds"]) for row in arm[1:]], float(arm[-1]["loss"])


def time_torch(problem, o, compiled):
    """The same by PyTorch."""
    at = []
    curve = reference.train(problem, o, after=lambda: at.append(time.perf_counter()), fused=True,
                            compiled=compiled)
    return np.diff(at), curve[-1][0]


def compare(program, grid, o):
    """Print a line for each way: models a second in the median epoch of the turns, and the best."""
    problem = reference.make_problem(grid, o)
    ways = {"starmill": lambda folder: time_starmill(program, grid, o, folder),
            "PyTorch": lambda folder: time_torch(problem, o, False)}
    if o.compile:
        ways["PyTorch, compiled"] = lambda folder: time_torch(problem, o, True)
    seconds, loss = {name: [] for name in ways}, {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(o.turns):
            for name, run in ways.items():
                s, loss[name] = run(folder)
                seconds[name] += list(s)
    widths = [problem.x.shape[1], *o.width, len(problem.bias)]
    gflop = 6e-9 * sum(a * b for a, b in zip(widths, widths[1:]))
    print(f"{problem.n_train} models learned, {problem.n - problem.n_train} left out; network "
          f"{'-'.join(map(str, widths))} ({o.last}), batch {o.batch}, {o.threads} threads, "
          f"{len(seconds['starmill'])} epochs each")
    print("                     models/s: median   best   GFLOP/s (best)   last loss")
    for name, s in seconds.items():
        rate = problem.n_train / np.median(s), problem.n_train / min(s)
        print(f"{name:20s} {rate[0]:17.0f} {rate[1]:6.0f} {gflop * rate[1]:16.1f} {loss[name]:11.5g}")
    for name in list(ways)[1:]:
        ratio = [f(seconds[name]) / f(seconds["starmill"]) for f in (np.median, min)]
        print(f"starmill / {name}: {ratio[0]:.2f} (median), {ratio[1]:.2f} (best)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("grid", metavar="GRID.h5", nargs="?")
    parser.add_argument("--starmill", required=True, metavar="PROGRAM", help="the program to time")
    parser.add_argument("--threads", type=int, default=2, help="of both (2)")
    parser.add_argument("--turns", type=int, default=3, help="of each (3)")
    parser.add_argument("--models", type=int, default=2000, help="of a made-up grid (2000)")
    parser.add_argument("--pixels", type=int, default=6000, help="of a made-up grid (6000)")
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    reference.add_options(parser)
    o = reference.take_options(parser.parse_args())
    import torch

    torch.set_num_threads(o.threads)
    print(f"torch {torch.__version__}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        grid = o.grid or os.path.join(folder, "grid.h5")
        if not o.grid:
            reference.make_grid(grid, o.models, o.pixels, o.pixels // 15)
        compare(o.starmill, grid, o)
    return 0


if __name__ == "__main__":
    sys.exit(main())
