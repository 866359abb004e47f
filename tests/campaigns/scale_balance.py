#!/usr/bin/python3
"""Idle tail, waiting and weak scaling of real runs on an uneven catalog (docs/develop/scaling.md).

    scale_balance.py --starmill PROGRAM --library LIB.h5 --folder DIR [--stars 4000] [--repeat 3]

Makes a mock survey of files with 1 star to a third of all stars, some of them compressed, then
fits all of it on --ranks ranks of one thread, and for weak scaling an n-th of it on one rank and
n-th parts on n ranks, in turns.  With --apart also n programs of one rank at the same time, which
share nothing but the machine: what they lose, no scheduler can win back.
Prints Markdown.  DIR keeps the survey for the next time.
"""

import argparse
import gzip
import json
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
        if i % 5 == 4 or args.gzip:
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


def fit(args, catalogs, n_rank, name, binding):
    """One run of n_rank ranks for each catalog, all at the same time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    runs = []
    for i, catalog in enumerate(catalogs):
        # a rank's reading and writing threads on its own core too: one rank alone would have two
        command = [args.mpirun, "-n", str(n_rank), *binding(i), args.starmill, "fit",
                   "--library", args.library, "--output", clean(args, f"{name}-{i}"),
                   "--threads", "1", "--catalog", catalog]
        if args.config:
            command += ["--config", args.config]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     text=True))
    printed = [run.communicate()[0] for run in runs]
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    for run, text in zip(runs, printed):
        if run.returncode != 0:
            raise SystemExit(text)
    times = [re.search(r"time +([0-9.]+) s, ([0-9.]+) stars/s", text) for text in printed]
    return {"wall": wall,
            "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "rows": sum(int(re.search(r"^rows +(\d+)", text, re.M)[1]) for text in printed),
            "line": re.search(r"^balance +(.*)", printed[0], re.M)[1],
            "time": statistics.mean(float(m[1]) for m in times)}


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
    parser.add_argument("--apart", action="store_true", help="programs side by side as well")
    parser.add_argument("--gzip", action="store_true", help="compress all files")
    parser.add_argument("--json")
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    os.makedirs(args.folder, exist_ok=True)
    halves = [make_survey(args, args.folder, args.stars // args.ranks, k)
              for k in range(args.ranks)]
    whole = os.path.join(args.folder, "whole.txt")
    with open(whole, "w") as f:
        for half in halves:
            f.write(open(half).read())
    def bound(_):
        return ["--bind-to", args.bind_to]

    def one_core_each(i):
        return ["--bind-to", "none", "taskset", "-c", str(i)]

    # in turns, each half alone as often as the other
    turns = [("1", lambda i: fit(args, [halves[i % args.ranks]], 1, "out-1", bound)),
             (str(args.ranks), lambda i: fit(args, [whole], args.ranks, "out-n", bound))]
    if args.apart:
        turns.append(("apart", lambda i: fit(args, halves, 1, "out-apart", one_core_each)))
    runs = {name: [] for name, _ in turns}
    print("| ranks | stars | wall s | fit s | CPU s | CPU ms a star | balance |")
    print("|---|---|---|---|---|---|---|")
    for i in range(args.repeat):
        for name, run in turns:
            r = run(i)
            r["load"] = os.getloadavg()[0]
            runs[name].append(r)
            print(f"| {name} | {r['rows']} | {r['wall']:.2f} | {r['time']:.2f} | {r['cpu']:.2f} | "
                  f"{1e3 * r['cpu'] / r['rows']:.2f} | {r['line']} |", flush=True)
    wall = {n: statistics.median(r["time"] for r in runs[n]) for n in runs}
    cpu = {n: statistics.median(r["cpu"] / r["rows"] for r in runs[n]) for n in runs}
    print()
    for name in list(runs)[1:]:
        what = f"{args.ranks} programs apart" if name == "apart" else f"{name} ranks"
        print(f"weak scaling from 1 rank to {what}: {100 * wall['1'] / wall[name]:.1f} % "
              f"by wall time, {100 * cpu['1'] / cpu[name]:.1f} % by CPU time a star (medians)")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(runs, f, indent=1)


if __name__ == "__main__":
    main()
