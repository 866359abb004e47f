"""Speed of training: starmill library train and PyTorch side by side.

usage: train_speed.py [options] --starmill PROGRAM [GRID.h5]

Both train the same network on the first arm of the same grid file with the same settings
(tools/train_reference.py, whose options this script takes too), by turns, on the same number of
threads, from memory.  Compared are epochs without statistics and start: the time of all but the
first one of a turn, and the processor time of these, which other programs on the machine disturb
less (threads wait without spinning).  Nothing is left out unless --left-out says so, as starmill
would also solve the last layer and measure the library with it.  PyTorch runs as it is meant to
run fast: AdamW fused, and with --compile also through torch.compile.  Without GRID.h5 a grid of
--models spectra of --pixels pixels is made up.

Needs NumPy, h5py and torch.
"""

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

import train_reference as reference

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch


def run_starmill(program, grid, o, epochs, folder):
    """Seconds of the epochs, the last loss, and the processor time of the whole program."""
    lib = os.path.join(folder, "lib.h5")
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    o = argparse.Namespace(**{**vars(o), "epochs": epochs})
    command = [program, "library", "train", "--overwrite", "--threads", str(o.threads), "--output",
               lib, *reference.words_for_starmill(o), grid]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{program} ended with status {done.returncode}")
    with open(lib + ".losses.csv", newline="", encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    arm = [row for row in rows if row["arm"] == rows[0]["arm"]]
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return [float(row["seconds"]) for row in arm], float(arm[-1]["loss"]), cpu_s


def time_starmill(program, grid, o):
    """Of all epochs but the first: seconds of each, processor seconds of one; the last loss."""
    with tempfile.TemporaryDirectory() as folder:
        begin = run_starmill(program, grid, o, 1, folder)
        seconds, loss, cpu_s = run_starmill(program, grid, o, o.epochs, folder)
    return seconds[1:], (cpu_s - begin[2]) / (o.epochs - 1), loss


def time_torch(problem, o, compiled):
    """The same by PyTorch."""
    wall, cpu = [], []

    def note():
        wall.append(time.perf_counter())
        cpu.append(time.process_time())
    curve = reference.train(problem, o, after=note, fused=True, compiled=compiled)
    return np.diff(wall), (cpu[-1] - cpu[0]) / (o.epochs - 1), curve[-1][0]


def compare(program, grid, o):
    """Print a line for each way: models a second, and models a second of a processor's work."""
    problem = reference.make_problem(grid, o)
    ways = {"starmill": lambda: time_starmill(program, grid, o),
            "PyTorch": lambda: time_torch(problem, o, False)}
    if o.compile:
        ways["PyTorch, compiled"] = lambda: time_torch(problem, o, True)
    wall, cpu, loss = {name: [] for name in ways}, {name: [] for name in ways}, {}
    for _ in range(o.turns):
        for name, run in ways.items():
            s, cpu_s, loss[name] = run()
            wall[name] += list(s)
            cpu[name].append(cpu_s)
    widths = [problem.x.shape[1], *o.width, len(problem.bias)]
    gflop = 6e-9 * sum(a * b for a, b in zip(widths, widths[1:]))
    print(f"{problem.n_train} models learned, {problem.n - problem.n_train} left out; network "
          f"{'-'.join(map(str, widths))} ({o.last}), batch {o.batch}, {o.threads} threads, "
          f"{len(wall['starmill'])} epochs each")
    print("                   models/s: median   best   per CPU second   GFLOP/CPU s   last loss")
    for name in ways:
        rate = [problem.n_train / s for s in (np.median(wall[name]), min(wall[name]),
                                              np.median(cpu[name]))]
        print(f"{name:18s} {rate[0]:16.0f} {rate[1]:6.0f} {rate[2]:16.0f} {gflop * rate[2]:13.1f}"
              f" {loss[name]:11.5g}")
    for name in list(ways)[1:]:
        ratio = [f(s[name]) / f(s["starmill"])
                 for f, s in ((np.median, wall), (min, wall), (np.median, cpu))]
        print(f"starmill / {name}: {ratio[0]:.2f} (median), {ratio[1]:.2f} (best), {ratio[2]:.2f} "
              "(per CPU second)")


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
    parser.set_defaults(left_out=0.0)
    o = reference.take_options(parser.parse_args())
    if o.epochs < 2:
        parser.error("needs 2 epochs or more")
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
