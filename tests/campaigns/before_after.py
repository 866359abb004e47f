#!/usr/bin/python3
"""Two programs on the same stars: minima, pulls, flags and labels, before and after a change.

    before_after.py BEFORE AFTER DIR [--data DIR] [--sets minima,sim,hostile,wrong,real] [--starts 32]

BEFORE makes what both fit in DIR, which keeps it and the rows of every program: the first call takes
an hour of CPU time and 10 GB, one with another AFTER a fifth of it.  Prints Markdown, "before, now"
in a cell; docs/science/validation.md (Before and after) says what the sets are.
"""
import argparse
import glob
import hashlib
import os
import subprocess
import sys

import h5py
import numpy as np
from astropy.io import fits

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(SOURCE, p) for p in ("tools", "tests/e2e")]
import random_starts  # noqa: E402
import validate_library  # noqa: E402
from validate_survey import SN_BINS, mad, table  # noqa: E402

SURVEYS = {"reference": None, "A": "--stars 3200 --sn 5,100 --seed 51",  # those of validation.md
           "B": "--stars 1600 --sn 5,100 --vsini 20,150 --seed 52",
           "C": "--stars 7000 --sn 5,20 --seed 53", "D": "--stars 4000 --sn 20,100 --seed 54",
           "E": "--stars 3000 --sn 5,100 --vsini 40,100 --seed 55"}
PARAMETERS = "VRAD", "TEFF", "LOGG", "FEH", "ALPHAFE", "VSINI"
MISS, OTHER, TURNS = 1.0, 0.1, 40.0  # -2 ln L, and between programs; km/s for pulls of v sin i


class Campaign:
    def __init__(self, args):
        self.args = args
        os.makedirs(args.folder, exist_ok=True)
        self.library = self.made("LIB.h5", "library", "import", *[
            f"{args.data}/emulator/nnrm_desi_{arm}.h5" for arm in "brz"])

    def at(self, name):
        return os.path.join(self.args.folder, name)

    def made(self, name, *command, program=None):
        """By BEFORE; without its name until it is whole."""
        path, part = self.at(name), self.at("part" + os.path.splitext(name)[1])
        if not os.path.exists(path):
            command = [program or self.args.before, *command, "--overwrite", "--output", part]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stderr}")
            os.rename(part, path)
        return path

    def of(self, program):
        """The folder of a program's rows."""
        path = hashlib.sha256(np.fromfile(program, np.uint8)).hexdigest()[:12]
        os.makedirs(self.at(path), exist_ok=True)
        return path

    def rows(self, program, name, library, inputs, *more):
        return read(self.made(f"{self.of(program)}/{name}.h5", "fit", "--quiet", "--threads", str(
            self.args.threads), "--library", library, *more, *inputs, program=program))

    def both(self, *what):
        return [self.rows(program, *what) for program in (self.args.before, self.args.after)]


def read(path):
    """Columns of /fits, -2 ln L infinite where not fitted; "is NAME" for each status and flag."""
    with h5py.File(path) as file:
        rows = {k: v[...] for k, v in file["fits"].items()}
        for column in ("STATUS", "RVS_WARN", "FIT_INFO"):
            x, at = rows[column], dict(file["fits"][column].attrs)
            for name, b in zip(at["NAMES"], at["BITS"] if "BITS" in at else at["CODES"]):
                rows["is " + name.decode()] = x & b != 0 if "BITS" in at else x == b
    rows["is SUCCESS"] = rows["SUCCESS"] == 1
    rows["M2LL"] = np.where(rows["is FITTED"], rows["M2LL"], np.inf)
    return rows


def joined(parts):
    return {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}


def true_rows(path, rows):
    truth = fits.getdata(path, 1)
    at = {int(t): i for i, t in enumerate(truth["TARGETID"])}
    index = [at[int(t)] for t in rows["TARGETID"]]
    return {k: np.asarray(truth[k], float)[index] for k in (*PARAMETERS, "SN")}


def minima(c):
    """Sets, as below: name, rows of both, best (-2 ln L from other starts), truth if there is."""
    random = random_starts.Campaign(argparse.Namespace(
        starmill=c.args.before, folder=c.at("minima"), data=c.args.data, library=None,
        starts=c.args.starts, default=False, sets="lamost,sdss,miles20,miles60"))
    for name, library, config, inputs in random.sets():
        starts = random.at(name + "-start*.h5")
        if len(glob.glob(starts)) < c.args.starts:
            random.one_set(name, library, config, inputs)
        best = np.min([read(p)["M2LL"] for p in glob.glob(starts)], axis=0)
        yield dict(name=name, best=best, both=c.both(
            "minima-" + name, library, inputs, *(["--config", config] if config else [])))


def survey(c, name, library, options):
    """Truth and inputs."""
    path = c.made(name, "simulate", "--quiet", "--library", library, *options.split())
    return path + "/truth.fits", ["--catalog", path + "/catalog.txt"]


def simulated(c):
    parts, sim = {}, c.args.data + "/sim/"
    for name, options in SURVEYS.items():
        truth, inputs = survey(c, name, c.library, options) if options else (
            sim + "truth-dev.fits", [sim + "coadd-dev.fits.gz"])
        both = c.both(name, c.library, inputs)
        best = both[0]["M2LL"] if name in "CDE" else c.rows(
            c.args.before, name + "-truth", c.library, inputs, "--start", truth)["M2LL"]
        parts.setdefault("A to E" if name in "ABCDE" else name, []).append(
            (*both, dict(best=best, **true_rows(truth, both[0]))))
    for name, part in parts.items():
        *both, truth = map(joined, zip(*part))
        yield dict(name=name, both=both, best=truth["best"], truth=truth)


def hostile(c):
    os.environ.update(STARMILL=c.args.before, STARMILL_TEST_DATA=c.args.data)
    import hostile_set
    for path, kinds in hostile_set.inputs(c.args.folder):
        both = c.both(os.path.basename(path)[:-5], c.library, [path])
        for kind in dict.fromkeys(kinds):
            at = np.array(kinds) == kind
            yield dict(name=kind, both=[{k: v[at] for k, v in r.items()} for r in both])


def wrong(c):
    """Templates that are wrong by correlated draws of the shipped library's model error, fitted
    without and with it."""
    library = os.path.join(SOURCE, "libraries/fgk.h5")
    truth, inputs = survey(c, "wrong", library,
                           "--stars 400 --seed 77 --sn 10,100 --model-error correlated")
    with open(os.path.join(SOURCE, "config/desi-arms.yaml"), encoding="utf-8") as file:
        arms = file.read()
    for how in "false", "true":
        config = c.at(f"model-error-{how}.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"{arms}model_error: {how}\n")
        both = c.both("wrong-" + how, library, inputs, "--config", config)
        yield dict(name=f"model error, model_error: {how}", both=both,
                   truth=true_rows(truth, both[0]))


def real(c):
    """Prints what tools/validate_library.py does of both programs; its rows."""
    library, part = os.path.join(SOURCE, "libraries/fgk.h5"), "lamost,sdss,miles,repeats"
    validate_library.print_all([(name, validate_library.Campaign(argparse.Namespace(
        starmill=program, work=c.at(c.of(program)), data=c.args.data, sets=part, stars=[],
        threads=c.args.threads)), library) for name, program in (("before", c.args.before),
                                                                 ("now", c.args.after))])
    for name in ("lamost", "sdss", "miles", "miles30a", "miles30b", "exposures"):
        yield dict(name=name + ", fgk", both=c.both(name + "-fgk", library, []))


def print_minima(sets):
    lines, apart = [], []
    for s in sets:
        both = s["both"]
        best = np.min([s["best"], *(r["M2LL"] for r in both)], axis=0)
        known = np.isfinite(best)
        for r in both:
            r["ABOVE"] = np.where(known, r["M2LL"] - np.where(known, best, 0.0), 0.0)
            missed = r["ABOVE"] > MISS
            r["CELLS"] = [str((r["ABOVE"] > OTHER).sum()), str(missed.sum()),
                          f"{r['ABOVE'].max():.3g}", *(str((missed & x).sum()) for x in (
                              r["is TWO_MINIMA"], ~r["is SUCCESS"])),
                          *(f"{r[k].mean():.2f}" for k in ("NEVAL", "NJAC"))]
        lines.append([s["name"], len(best), *map(", ".join, zip(*(r["CELLS"] for r in both)))])
        for i in np.flatnonzero(abs(both[1]["ABOVE"] - both[0]["ABOVE"]) > OTHER):
            apart.append([f"{s['name']} {both[0]['TARGETID'][i]}", "; ".join(
                f"{p} {both[0][p][i]:.4g}, {both[1][p][i]:.4g}" for p in ("ABOVE", *PARAMETERS)
                if p in both[0]), *(" ".join(k[3:] for k in r if k[:3] == "is " and r[k][i])
                                    for r in both)])
    table(("set", "stars", f"above the best known by {OTHER}", f"by {MISS:g}", "most",
           "TWO_MINIMA of these", "a warning", "evaluations", "Jacobians"), lines)
    table((f"stars that differ by {OTHER}", "found", "flags before", "now"), apart)


def print_pulls(sets):
    """Mean and width (MAD) of rows without HULL; v sin i of those that truly turn."""
    lines = []
    for s in sets:
        truth = s["truth"]
        for low, high in (*SN_BINS, (0, np.inf)):
            cells = []
            for r in s["both"]:
                use = ~r["is HULL"] & (truth["SN"] >= low) & (truth["SN"] < high)
                cells.append([str(use.sum())])
                for p in PARAMETERS:
                    at = use & (r[p + "_ERR"] > 0) & (p != "VSINI" or truth["VSINI"] >= TURNS)
                    pull = ((r[p] - truth[p]) / r[p + "_ERR"])[at]
                    cells[-1].append(f"{pull.mean():+.2f} {mad(pull):.3f}" if at.any() else "")
            if use.any():
                lines.append([s["name"], f"{low:g}–{high:g}", *map(", ".join, zip(*cells))])
    table(("set", "S/N", "stars", *PARAMETERS), lines)


def print_changes(sets):
    """Flags, and how far parameters moved."""
    flags, shifts = [], []
    for s in sets:
        before, after = s["both"]
        pairs = {k[3:]: (v, after[k]) for k, v in before.items() if k[:3] == "is "}
        flags.append([s["name"], len(before["STATUS"]), *((before[k] != after[k]).sum() for k in (
            "STATUS", "RVS_WARN", "FIT_INFO")), "; ".join(f"{k} {a.sum()}, {b.sum()}" + (
                f" ({(a & ~b).sum()} gone, {(b & ~a).sum()} new)" if (a != b).any() else "")
                for k, (a, b) in pairs.items() if (a | b).any())])
        shifts.append([s["name"]])
        for p in PARAMETERS:
            with np.errstate(all="ignore"):
                d = abs(after[p] - before[p]) / before[p + "_ERR"] if p in before else np.array([])
            d = d[np.isfinite(d)]
            shifts[-1].append(f"{d.max():.3f}, {(d > 0.1).sum()}" if len(d) else "")
    table(("set", "rows", "other STATUS", "RVS_WARN", "FIT_INFO", "flags"), flags)
    table(("largest change in errors, rows with more than 0.1", *PARAMETERS), shifts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("before", "after", "folder"):
        parser.add_argument(name)
    data = os.environ.get("STARMILL_TEST_DATA", os.path.join(SOURCE, "../shared/data"))
    for name, value in (("data", data), ("sets", "minima,sim,hostile,wrong,real"), ("starts", 32),
                        ("threads", 0)):
        parser.add_argument("--" + name, type=type(value), default=value)
    c = Campaign(parser.parse_args())
    makers = dict(minima=minima, sim=simulated, hostile=hostile, wrong=wrong, real=real)
    sets = [s for name in c.args.sets.split(",") for s in makers[name](c)]
    print_minima([s for s in sets if "best" in s])
    print_pulls([s for s in sets if "truth" in s])
    print_changes(sets)


if __name__ == "__main__":
    main()
