#!/usr/bin/env python3
"""Likelihoods a second from Python, beside the least work of one (docs/use/library-c-python.md).

    likelihood_speed.py LIB.h5 COADD.fits --rates RATES.json [--arms r] [--repeat 20]

It needs the module starmill, NumPy and h5py.  RATES.json is what `starmill bench rates --library
LIB.h5 --json RATES.json COADD.fits` measured in the same minutes.  Operations are counted as in
src/floor/bench_floor.c, value_work, at the rates of large matrix products.  Calls per second of CPU
time of the thread; the fastest of the repeats, for other programs only make them slower, and the
median.
"""

import argparse
import json
import time

import h5py
import numpy as np

import starmill

C_KM_S = 299792.458
N_DIAG = 11  # of DESI's resolution matrix
N_CONTINUUM = 10  # the default of npoly
THETA = {"vrad": 20, "vsini": 8, "teff": 5500, "logg": 4.0, "feh": -1.0, "alpha": 0.2}
SPREAD = [1, 3, 30, 0.05, 0.03, 0.02]
BATCH = 512


def points(library, n):
    """New labels in every point."""
    rng = np.random.default_rng(20)
    theta = library.theta(**THETA) + rng.normal(size=(n, len(SPREAD))) * SPREAD
    theta[:, 1] = np.abs(theta[:, 1])
    return theta


def rate(n, call, repeat):
    """Calls per CPU second: the best, and the median."""
    found = []
    for _ in range(repeat):
        start = time.thread_time()
        call()
        found.append(n / (time.thread_time() - start))
    return max(found), float(np.median(found))


def template_work(arm):
    """float32 and float64 operations and bytes of the emulator of one arm."""
    layers = [arm[f"layer{i}/weight"].shape for i in range(len(arm)) if f"layer{i}" in arm]
    n_pix, n_in = layers[-1]
    wide = sum(2.0 * n * m + 3.0 * n for n, m in layers[:-1])
    size = 4.0 * sum(n * (m + 1) for n, m in layers)
    if "grid" in arm:
        *axes, n_out = arm["grid/coefficients"].shape
        order = arm["grid/knots0"].size - axes[0]
        wide += n_out * 2.0 * (order ** len(axes) + order ** (len(axes) - 1))
        size += 4.0 * order ** len(axes) * n_out
    step = np.log(arm["wavelength"][1] / arm["wavelength"][0])
    r_pix = THETA["vsini"] / (C_KM_S * step)
    half = 3 if r_pix <= 1.5 else int(np.ceil(r_pix)) + 2
    # layer, exponential, rotation, spline
    return 2.0 * n_in * n_pix + n_pix * (1 + (1 + 3 * half) + 8), wide, size


def least_work(path, arms, star, theta):
    """The same of one value."""
    pieces = starmill.model(star, theta).pieces
    with h5py.File(path) as library:
        works = [template_work(arm) for arm in library["arms"].values()
                 if arm.attrs["name"].decode() in arms]
    narrow, wide, size = np.sum(works, axis=0)
    n_pix, k = sum(p.flux.size for p in pieces), N_CONTINUUM
    narrow += n_pix * (12 + 7 + 2 * N_DIAG)
    wide += n_pix * (5 + k * (k + 1) + 2 * k) + len(pieces) * (k ** 3 / 3 + 4 * k ** 2)
    return narrow, wide, size, n_pix


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("coadd")
    parser.add_argument("--rates", required=True)
    parser.add_argument("--arms", nargs="*")
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    keys = {"arms": args.arms} if args.arms else {}
    library = starmill.Library(args.library, format="desi", npoly=N_CONTINUUM, **keys)
    star = library.open(args.coadd)[0]
    many, few = points(library, BATCH), points(library, 64)
    scan = np.repeat(many[:1], BATCH, axis=0)
    scan[:, 0] = np.linspace(-100, 100, BATCH)
    arms = args.arms or list(library.arms)
    narrow, wide, size, n_pix = least_work(args.library, arms, star, many[0])
    with open(args.rates, encoding="utf-8") as text:
        rates = json.load(text)["rates"]
    arithmetic = 1e-9 * (narrow / rates["f32_gflop_s"] + wide / rates["f64_gflop_s"])
    print(f"{library.backend}, arms {' '.join(arms)}, {n_pix} pixels: {narrow / 1e6:.2f} MFLOP "
          f"float32, {wide / 1e6:.2f} float64, emulator {size / 1e6:.1f} MB\n"
          f"rates {rates['f32_gflop_s']:.0f} and {rates['f64_gflop_s']:.0f} GFLOP/s\n\n"
          "| calls | best | median | floor |\n|---|---|---|---|")
    rows = [
        ("one point a call, new labels", len(few), None,
         lambda: [starmill.loglike(star, p) for p in few]),
        (f"{BATCH} points a call, new labels", BATCH, arithmetic,
         lambda: starmill.loglike(star, many)),
        (f"{BATCH} velocities a call, the same labels", BATCH, None,
         lambda: starmill.loglike(star, scan)),
        ("with derivatives, 64 points a call", len(few), None,
         lambda: starmill.minus2loglike(star, few, derivatives=True))]
    for name, n, floor, call in rows:
        best, median = rate(n, call, args.repeat)
        print(f"| {name} | {best:.0f} | {median:.0f} | {f'{1 / floor:.0f}' if floor else ''} |")


if __name__ == "__main__":
    main()
