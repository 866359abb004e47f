#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Velocities of epochs of simulated stars: their pulls, false alarms, and the binaries found.

    epochs.py [--figure FILE.png] [--stars N] [--threads N] STARMILL DIR MADE.h5 FITTED.h5

Stars are drawn from MADE.h5 at a median S/N from 3 to 60, and fitted with FITTED.h5; a FITTED.h5
other than MADE.h5 shows the effect of wrong templates.  A star has EPOCHS exposures at random
phases of a circular orbit.  AMPLITUDES are four semi-amplitudes, each of a quarter of the stars.
Velocities are relative to the star's weighted mean, as wrong templates shift all its velocities.
Prints tables (Markdown).
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "e2e"))
import pair_survey  # noqa: E402

EPOCHS, CHUNK = 4, 200
AMPLITUDES = np.array([0.0, 5.0, 10.0, 30.0])  # km/s
SN_BINS = (3, 6, 12, 25, 60)
ALARM = 1e-3  # VRAD_PVAL below which a star counts as variable


def half_width(x):
    return np.diff(np.nanpercentile(x, (15.865, 84.135)))[0] / 2


def fitted(options, out, paths, *more):
    """User seconds of a fit."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([options.starmill, "fit", "--quiet", "--overwrite", "--threads", str(options.threads),
                    "--library", options.fitted, "--output", out, *more, *paths], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def one_chunk(options, seed):
    """Simulate and fit CHUNK stars.  Return {column: [CHUNK] or [CHUNK][EPOCHS]}, and the seconds
    of the fits without and with epochs."""
    random = np.random.default_rng(seed)
    amplitude = AMPLITUDES[np.arange(CHUNK) % len(AMPLITUDES)]
    phase = random.uniform(0, 2 * np.pi, (CHUNK, EPOCHS))
    velocity = random.normal(0, 100, (CHUNK, 1)) + amplitude[:, np.newaxis] * np.sin(phase)
    folder = os.path.join(options.dir, "stars")
    paths, stars = pair_survey.make_epochs(folder, options.starmill, velocity, library=options.made,
                                     seed=seed, sn="3,60")
    out = os.path.join(options.dir, "epochs.h5")
    seconds = [fitted(options, out, paths, "--join-by-name", *more)
               for more in ((), ("--epochs", "exposure"))]
    with h5py.File(out) as f:
        at = f["catalog/FIRST_EXPOSURE"][...][:, np.newaxis] + np.arange(EPOCHS)
        star = {target: i for i, target in enumerate(stars.target_id.tolist())}
        of = np.array([star[target] for target in f["fits/TARGETID"][...].tolist()])  # by row
        found = {name: f["epochs"][name][...][at] for name in ("VRAD", "VRAD_ERR", "EPOCH_FLAG")}
        found |= {name: f["fits"][name][...] for name in ("VRAD_PVAL", "STATUS", "RVS_WARN")}
    shutil.rmtree(folder)
    return {**found, "K": amplitude[of], "v": velocity[of], "sn": stars.sn[of]}, seconds


def figure(path, all_):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(figsize=(6, 3.4))
    edges = np.geomspace(*SN_BINS[::len(SN_BINS) - 1], 9)
    middle = np.sqrt(edges[1:] * edges[:-1])
    for k, colour in zip(AMPLITUDES, ("#8c8c8c", "#56b4e9", "#0072b2", "#d55e00")):
        share = [np.mean(all_["VRAD_PVAL"][(all_["K"] == k) & (all_["sn"] >= a) & (all_["sn"] < b)]
                         < ALARM) for a, b in zip(edges, edges[1:])]
        axes.plot(middle, share, "o-", ms=4, color=colour,
                  label=f"K = {k:.0f} km/s" if k else "constant")
    axes.set(xscale="log", xlabel="median S/N of an exposure, arm r", ylim=(-0.03, 1.03),
             ylabel=f"share with VRAD_PVAL < {ALARM:g}", xticks=SN_BINS)
    axes.legend(frameon=False)
    save(path, picture)


def save(path, picture):
    """Write a figure whose x axes are logarithmic, with plain numbers at their ticks."""
    for axes in picture.axes:
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    picture.tight_layout()
    picture.savefig(path, dpi=150)


def parser_of(doc):
    """The arguments that campaigns of simulated stars have in common."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    for name in "starmill", "dir", "made", "fitted":
        parser.add_argument(name)
    parser.add_argument("--figure")
    parser.add_argument("--threads", type=int, default=1)
    return parser


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--stars", type=int, default=2000)
    options = parser.parse_args()
    chunks, seconds = [], np.zeros(2)
    for seed in range(1, 1 + options.stars // CHUNK):
        chunk, spent = one_chunk(options, seed)
        chunks.append(chunk)
        seconds += spent
    all_ = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    weight = all_["VRAD_ERR"] ** -2
    off = all_["VRAD"] - all_["v"]
    off -= (np.nansum(weight * off, axis=1) / np.nansum(weight, axis=1))[:, np.newaxis]
    pull = off / all_["VRAD_ERR"] * np.sqrt(EPOCHS / (EPOCHS - 1))  # the mean is fitted
    print(f"{len(all_['K'])} stars, {EPOCHS} epochs; without epochs {seconds[0]:.1f} s, with "
          f"{seconds[1]:.1f} s, of the processor; "
          f"{np.count_nonzero(all_['EPOCH_FLAG'])} epochs without a velocity\n")
    print("| S/N | " + " | ".join(f"K = {k:.0f}: found, width of pulls" for k in AMPLITUDES) + " |")
    print("|---|" + "---|" * len(AMPLITUDES))
    for low, high in zip(SN_BINS, SN_BINS[1:]):
        cells = []
        for k in AMPLITUDES:
            mine = (all_["K"] == k) & (all_["sn"] >= low) & (all_["sn"] < high) & (all_["STATUS"] == 1)
            cells.append(f"{100 * np.mean(all_['VRAD_PVAL'][mine] < ALARM):.1f} %, "
                         f"{half_width(pull[mine]):.2f}")
        print(f"| {low} to {high} | " + " | ".join(cells) + " |")
    if options.figure:
        figure(options.figure, all_)


if __name__ == "__main__":
    main()
