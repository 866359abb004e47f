#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether two programs give the same rows, bit for bit.

    same_rows.py make STARMILL DIR [--data DIR]
    same_rows.py compare DIR DIR

`make` fits with a program, into DIR: the reference survey with the reference emulators, and
posteriors of some of its stars; LAMOST with a library of MILES; LAMOST, SDSS and DESI with the
shipped library.  `compare` prints a hash of the rows of each result and the columns that differ.
It ends with 1 if any differs.
"""
import argparse
import glob
import hashlib
import os
import subprocess
import sys

import h5py
import numpy as np

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = ["nnrm.h5", "reference.h5", "reference-models.h5", "reference-nelder-mead.h5",
           "reference-linear.h5", "sample.h5", "miles.h5", "lamost.h5", "lamost-shipped.h5",
           "sdss-shipped.h5", "desi-arms.h5", "desi-arms-models.h5"]
# LAMOST with one arm, whatever the shipped configuration does
LAMOST = """format: lamost
resolving_power: 1800
arms: [{name: opt, min: 4000, max: 7300}]
wave_mask: [[5570, 5590], [6865, 6965], [7160, 7340], [7590, 7720], [8120, 8350], [8940, 9870]]
"""
# datasets and groups that may differ between two runs: names of files, the time, the program
OWN = ("catalog/files", "catalog/FILE", "catalog/INPUT", "provenance", "meta")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout}{done.stderr}")


def make(args):
    os.makedirs(args.folder, exist_ok=True)

    def to(name):
        return os.path.join(args.folder, name)

    def fit(name, lib, *more, models=None):
        if models:
            more += ("--models", to(models))
        run(args.starmill, "fit", "--library", lib, "--output", to(name), "--overwrite", "--quiet",
            *more)

    def data(path):
        return os.path.join(args.data, path)

    run(args.starmill, "library", "import", "--overwrite", "--output", to("nnrm.h5"),
        *[data(f"emulator/nnrm_desi_{arm}.h5") for arm in "brz"])
    survey = data("sim/coadd-dev.fits.gz")
    fit("reference.h5", to("nnrm.h5"), survey, models="reference-models.h5")
    fit("reference-nelder-mead.h5", to("nnrm.h5"), "--optimizer", "nelder-mead", survey)
    with open(to("linear.yaml"), "w") as file:
        file.write("rotation_kernel: linear\n")
    fit("reference-linear.h5", to("nnrm.h5"), "--config", to("linear.yaml"), survey)

    run(args.starmill, "sample", "--fit", to("reference.h5"), "--library", to("nnrm.h5"), "--output",
        to("sample.h5"), "--overwrite", "--quiet", "--fraction", "0.01", "--draws", "20",
        "--max-evaluations", "6400", survey)

    run(args.starmill, "library", "spectra", "--overwrite", "--output", to("miles.h5"),
        "--range", "3950,7380", data("real/miles/miles_v9.1_packed.fits.gz"))
    with open(to("lamost.yaml"), "w") as file:
        file.write(LAMOST)
    lamost = sorted(glob.glob(data("real/lamost/*.fits.gz")))
    fit("lamost.h5", to("miles.h5"), "--config", to("lamost.yaml"), *lamost)

    shipped = os.path.join(SOURCE, "libraries", "fgk.h5")

    def config(name):
        return "--config", os.path.join(SOURCE, "config", name + ".yaml")

    fit("lamost-shipped.h5", shipped, *config("lamost"), *lamost)
    fit("sdss-shipped.h5", shipped, *config("sdss"), *sorted(glob.glob(data("real/sdss/*.fits*"))))
    with open(to("arms.yaml"), "w") as file:  # older programs do not cut by themselves
        file.write("arms: [{name: b, min: 3600, max: 5800}, {name: r, min: 5760, max: 7620}, "
                   "{name: z, min: 7520, max: 9824}]\n")
    fit("desi-arms.h5", shipped, "--config", to("arms.yaml"), survey, models="desi-arms-models.h5")


def columns(path):
    """Name and bytes of each dataset that the rows are made of."""
    found = {}

    def take(name, item):
        if isinstance(item, h5py.Dataset) and not name.startswith(OWN):
            value = np.asarray(item[()])
            raw = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
            found[name] = str(value.dtype).encode() + str(value.shape).encode() + raw

    with h5py.File(path, "r") as file:
        file.visititems(take)
    return found


def compare(args):
    """Print hash and differing columns of each result; 1 if any differs."""
    n_bad = 0
    for name in RESULTS:
        paths = [os.path.join(folder, name) for folder in (args.folder, args.other)]
        if not all(os.path.exists(p) for p in paths):
            print(f"{name:26s} not in both")
            n_bad += 1
            continue
        a, b = (columns(p) for p in paths)
        differ = sorted(k for k in set(a) | set(b) if a.get(k) != b.get(k))
        digest = hashlib.sha256()
        for key in sorted(b):
            digest.update(key.encode() + b[key])
        print(f"{name:26s} {digest.hexdigest()[:16]} {len(b):3d} columns, "
              + ("the same" if not differ else "DIFFERENT: " + ", ".join(differ)))
        n_bad += bool(differ)
    return 1 if n_bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    jobs = parser.add_subparsers(dest="job", required=True)
    job = jobs.add_parser("make")
    job.add_argument("starmill")
    job.add_argument("folder")
    job.add_argument("--data", default=os.environ.get(
        "STARMILL_TEST_DATA", os.path.join(os.path.dirname(SOURCE), "shared", "data")))
    job = jobs.add_parser("compare")
    job.add_argument("folder")
    job.add_argument("other")
    args = parser.parse_args()
    sys.exit(make(args) if args.job == "make" else compare(args))


if __name__ == "__main__":
    main()
