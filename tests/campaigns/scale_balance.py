#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Idle tail, waiting and weak scaling of real runs on an uneven catalog (docs/develop/scaling.md).

    scale_balance.py --starmill PROGRAM --library LIB.h5 --folder DIR [--stars 4000] [--repeat 3]

Makes a mock survey of files with 1 star to a third of all stars, some of them compressed, then
fits all of it on --ranks ranks of one thread, and for weak scaling an n-th of it on one rank and
n-th parts on n ranks, in turns.
Prints Markdown.  DIR keeps the survey for the next time.
"""

import argparse
import gzip
import os
import re
import resource
import shutil
import statistics
import subprocess
import time


# Open MPI as root, and more ranks than cores; one thread of the BLAS
for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
             "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle",
             "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def sizes(n_star):
    """Rows of the files: one large one, and orders of magnitude below it."""
    parts, left, at = [], n_star, 0
    pattern = [0.33, 0.001, 0.1, 0.03, 0.001, 0.01, 0.2, 0.003, 0.05, 0.001, 0.06, 0.02]
    while left > 0:
        n = min(left, max(1, int(pattern[at % len(pattern)] * n_star * (1 if at < 12 else 0.3))))
        parts.append(n)
        left -= n
        at += 1
    return parts


def make_survey(args, folder, n_star, seed):
    """A list of files; every fifth one is compressed."""
    listed = os.path.join(folder, f"catalog-{n_star}-{seed}.txt")
    if os.path.exists(listed):
        return listed
    paths = []
    for i, n in enumerate(sizes(n_star)):
        out = os.path.join(folder, f"{n_star}-{seed}-{i}")
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run([args.starmill, "simulate", "--output", out, "--stars", str(n), "--per-file",
                        str(n), "--seed", str(1000 * seed + i), "--library", args.library, "--threads", "1",
                        "--quiet"], check=True)
        path = next(os.path.join(d, f) for d, _, names in os.walk(out) for f in names
                    if f.startswith("coadd"))
        if i % 5 == 4:
            with open(path, "rb") as f, gzip.open(path + ".gz", "wb", compresslevel=4) as g:
                shutil.copyfileobj(f, g, 1 << 22)
            os.unlink(path)
            path += ".gz"
        paths.append(path)
    with open(listed, "w") as f:
        f.writelines(p + "\n" for p in paths)
    return listed


def clean(args, name):
    """The path of an output that is not there yet."""
    out = os.path.join(args.folder, name + ".h5")
    for end in ["", ".lock", ".status.json"]:
        if os.path.exists(out + end):
            os.unlink(out + end)
    return out


def fit(args, catalog, n_rank):
    """One run of n_rank ranks."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    # a rank's reading and writing threads on its own core too: one rank alone would have two
    command = [args.mpirun, "-n", str(n_rank), "--bind-to", args.bind_to, args.starmill, "fit",
               "--library", args.library, "--output", clean(args, f"out-{n_rank}"),
               "--threads", "1", "--catalog", catalog]
    if args.config:
        command += ["--config", args.config]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode != 0:
        raise SystemExit(run.stdout)
    return {"wall": wall,
            "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "rows": int(re.search(r"^rows +(\d+)", run.stdout, re.M)[1]),
            "line": re.search(r"^balance +(.*)", run.stdout, re.M)[1],
            "time": float(re.search(r"time +([0-9.]+) s, ([0-9.]+) stars/s", run.stdout)[1])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--starmill", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--config")
    parser.add_argument("--mpirun", default=os.environ.get("MPIRUN", "mpirun"))
    parser.add_argument("--stars", type=int, default=4000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--bind-to", default="core", help="of Open MPI's mpirun (core, none)")
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    os.makedirs(args.folder, exist_ok=True)
    halves = [make_survey(args, args.folder, args.stars // args.ranks, k)
              for k in range(args.ranks)]
    whole = os.path.join(args.folder, "whole.txt")
    with open(whole, "w") as f:
        for half in halves:
            f.write(open(half).read())
    runs = {1: [], args.ranks: []}
    print("| ranks | stars | wall s | fit s | CPU s | CPU ms a star | balance |")
    print("|---|---|---|---|---|---|---|")
    for i in range(args.repeat):  # in turns, each half alone as often as the other
        for n_rank, catalog in ((1, halves[i % args.ranks]), (args.ranks, whole)):
            r = fit(args, catalog, n_rank)
            runs[n_rank].append(r)
            print(f"| {n_rank} | {r['rows']} | {r['wall']:.2f} | {r['time']:.2f} | {r['cpu']:.2f} | "
                  f"{1e3 * r['cpu'] / r['rows']:.2f} | {r['line']} |", flush=True)
    wall = {n: statistics.median(r["time"] for r in runs[n]) for n in runs}
    cpu = {n: statistics.median(r["cpu"] / r["rows"] for r in runs[n]) for n in runs}
    n = args.ranks
    print(f"\nweak scaling from 1 rank to {n} ranks: {100 * wall[1] / wall[n]:.1f} % "
          f"by wall time, {100 * cpu[1] / cpu[n]:.1f} % by CPU time a star (medians)")


if __name__ == "__main__":
    main()
