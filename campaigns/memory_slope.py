#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does the memory of a long run grow with the stars that it has fitted?

    memory_slope.py --starmill PROGRAM --folder DIR [--stars 50000]

Makes a small library and a mock survey in DIR (6 kB a star), fits it with one rank, and reads the
memory of the process from the status file.  Fits a line to the last three quarters of the stars,
as the first quarter fills caches.  Prints Markdown; ends with 1 if a star costs over --limit bytes.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np
from astropy.io import fits

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(SOURCE, "python"))
from starmill.surveys.generic import write  # noqa: E402

SHIPPED = os.path.join(SOURCE, "libraries", "fgk.h5")

for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def run(*args):
    subprocess.run([str(a) for a in args], check=True, stdout=subprocess.DEVNULL)


def make(program, library, folder, n_star, per_file):
    """Write n_star spectra: repeat the spectra of 100 mock stars, each time with new noise."""
    run(program, "simulate", "--library", library, "--output", os.path.join(folder, "desi"), "--stars", 100,
        "--per-file", 100, "--seed", 1, "--sn", "20,60", "--quiet")
    with fits.open(os.path.join(folder, "desi", "coadd-mock-00000.fits")) as hdus:
        wave, flux = hdus["R_WAVELENGTH"].data, hdus["R_FLUX"].data
        ivar = hdus["R_IVAR"].data
    here = slice(*np.searchsorted(wave, (6450.0, 6700.0)))
    random = np.random.default_rng(1)
    names = []
    for first in range(0, n_star, per_file):
        spectra = []
        for i in range(first, min(first + per_file, n_star)):
            k = i % len(flux)
            error = 1 / np.sqrt(np.maximum(ivar[k, here], 1e-12))
            noisy = flux[k, here] + 0.3 * error * random.standard_normal(error.size)
            spectra.append({"NAME": "star-%d" % i, "TARGETID": i, "WAVELENGTH": wave[here],
                            "FLUX": noisy, "ERROR": error})
        names.append("generic-%05d.fits" % (first // per_file))
        write(os.path.join(folder, names[-1]), spectra, "vacuum", "barycentric")
    with open(os.path.join(folder, "catalog.txt"), "w", encoding="utf-8") as f:
        f.write("".join(name + "\n" for name in names))


def fit(options, library, catalog):
    """Rows of (stars done, bytes resident now, their maximum) while a fit runs."""
    output, config = (os.path.join(options.folder, name) for name in ("out.h5", "short.yaml"))
    with open(config, "w", encoding="ascii") as f:
        f.write("write_interval: 0.1\nmax_eval: 50\n")  # the median takes 12, but a few of the short spectra thousands
    command = [options.starmill, "fit", "--library", library, "--catalog", catalog, "--output",
               output, "--overwrite", "--threads", 1, "--quiet",
               "--optimizer", "levenberg-marquardt", "--config", config, "--lsf", "off"]
    seen = []
    process = subprocess.Popen([str(c) for c in command])
    while process.poll() is None:
        time.sleep(0.1)
        try:
            with open(output + ".status.json", encoding="utf-8") as f:
                rank = json.load(f)["ranks"][0]
        except FileNotFoundError:
            continue
        row = (rank["done"], rank["resident_bytes"], rank["peak_bytes"])
        if rank["stage"] == "fitting" and (not seen or row[0] > seen[-1][0]):
            seen.append(row)
    if process.returncode != 0:
        raise SystemExit("starmill fit ended with status %d" % process.returncode)
    return np.array(seen, float)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starmill", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--stars", type=int, default=50000)
    parser.add_argument("--per-file", type=int, default=500)
    parser.add_argument("--limit", type=float, default=50.0, help="bytes a star")
    options = parser.parse_args()
    folder = os.path.join(options.folder, "generic-%d" % options.stars)
    library, catalog = os.path.join(options.folder, "lib.h5"), os.path.join(folder, "catalog.txt")
    if not os.path.exists(library):
        run(sys.executable, "-B", os.path.join(SOURCE, "tests", "small_library.py"), SHIPPED, library)
    if not os.path.exists(catalog):
        os.makedirs(folder, exist_ok=True)
        make(options.starmill, library, folder, options.stars, options.per_file)
    seen = fit(options, library, catalog)
    late = seen[seen[:, 0] > options.stars / 4]
    if len(late) < 5:
        raise SystemExit("too few states were seen: take more stars")
    # least squares of resident bytes on stars done: slope and its error
    x = late[:, 0] - late[:, 0].mean()
    slope = (x * late[:, 1]).sum() / (x * x).sum()
    rest = late[:, 1] - late[:, 1].mean() - slope * x
    error = np.sqrt((rest**2).sum() / (len(x) - 2) / (x * x).sum())
    mib = 1.0 / (1 << 20)
    print("| stars | states | resident at 1/4 | at the end | at most | slope |")
    print("|---|---|---|---|---|---|")
    print("| %d generic | %d | %.1f MiB | %.1f MiB | %.1f MiB | %.1f ± %.1f bytes a star |" % (
        options.stars, len(late), mib * late[0, 1], mib * late[-1, 1],
        mib * seen[:, 2].max(), slope, error))
    sys.exit(int(slope - 2 * error > options.limit))


if __name__ == "__main__":
    main()
