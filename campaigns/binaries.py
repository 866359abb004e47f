#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Double-lined binaries in simulated spectra: the share found, pulls of both stars, false alarms.

    binaries.py [--figure FILE.png] [--pairs N] [--single N] [--epochs N] [--offsets]
                [--threads N] STARMILL DIR MADE.h5 FITTED.h5

Pairs and single stars are drawn from MADE.h5 at a median S/N of 5 to 60, and fitted with
FITTED.h5; a FITTED.h5 other than MADE.h5 shows the effect of wrong templates.  The second star of a
pair has 0.1 to 1 times the flux of the first, 20 to 300 km/s away in velocity.  Prints tables.

 --epochs N   N exposures at random phases of a circular orbit; the stars' difference in velocity
              has a semi-amplitude of 20 to 300 km/s.  Single stars move as first stars of pairs do.
 --offsets    shifts the wavelengths of arms r and z by random velocities of some 10 km/s, drawn
              once for every 500 stars, and fits with velocity_offsets
"""

import os
import shutil
import sys

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "e2e"))
import pair_survey  # noqa: E402
from epochs import fitted, half_width, parser_of, save  # noqa: E402

CHUNK = 500
APART, RATIO, SN = (20, 40, 80, 160, 300), (0.1, 0.2, 0.4, 1), (5, 10, 20, 60)
LABELS = ("TEFF", "LOGG", "FEH", "ALPHAFE")


def one_chunk(options, seed, is_pair):
    """Simulate and fit CHUNK stars.  Return {column: [CHUNK]} of fits and truth, and the seconds of
    the fits without and with binaries."""
    random = np.random.default_rng(seed)

    def log_uniform(limits):
        return np.exp(random.uniform(*np.log((limits[0], limits[-1])), CHUNK))

    apart = log_uniform(APART) * random.choice((-1, 1), CHUNK)
    ratio = log_uniform(RATIO) * is_pair
    folder, out = os.path.join(options.dir, "stars"), os.path.join(options.dir, "pairs.h5")
    settings = {"library": options.made, "seed": seed, "sn": f"{SN[0]},{SN[-1]}", "vsini": "1,10"}
    paths = [os.path.join(folder, f"coadd-{e}.fits") for e in range(options.epochs)]
    relative = apart[:, np.newaxis] * np.ones(1)  # velocity of second - first, [star][epoch]
    if options.epochs > 1:
        relative = relative * np.sin(2 * np.pi * random.uniform(0, 1, (CHUNK, options.epochs)))
        centre = random.normal(0, 50, (CHUNK, 1))
        share = random.uniform(0.35, 0.5, (CHUNK, 1))  # the first star's part of `relative`
        first = centre - share * relative
    for e, path in enumerate(paths):
        stars, others = pair_survey.make(path, options.starmill, relative[:, e], ratio, noise=e,
                                         velocity=first[:, e] if options.epochs > 1 else None, **settings)
    offset = random.normal(0, 10, 2) if options.offsets else np.zeros(2)
    for path in paths if options.offsets else ():
        pair_survey.move_arms(path, dict(zip("RZ", offset)))
    configs = [os.path.join(options.dir, name) for name in ("alone.yaml", "pairs.yaml")]
    for config, key in zip(configs, ("false", "true")):
        with open(config, "w", encoding="utf-8") as f:
            f.write(f"binaries: {key}\n")
            f.write("join_by_name: true\nepochs: exposure\n" if options.epochs > 1 else "")
            f.write("velocity_offsets: true\nvelocity_offset_sigma: 20\n" if options.offsets else "")
    seconds = [fitted(options, out, paths, "--config", config) for config in configs]
    with h5py.File(out) as f:
        rows = {name: column[...] for name, column in f["fits"].items() if column.ndim == 1}
        if options.epochs > 1:
            at = f["catalog/FIRST_EXPOSURE"][...][:, np.newaxis] + np.arange(options.epochs)
            rows |= {f"epoch {name}": column[...][at] for name, column in f["epochs"].items()}
            rows |= {"first": first, "second": first + relative}
    shutil.rmtree(folder)
    truth = {"ratio": ratio, "apart": np.abs(apart), "sn": stars.sn, "v": stars.vrad_km_s,
             "v2": others.vrad_km_s, "offset R": np.full(CHUNK, offset[0]),
             "offset Z": np.full(CHUNK, offset[1])}
    for i, name in enumerate(LABELS[:stars.label.shape[1]]):
        truth |= {f"true {name}": stars.label[:, i], f"true {name}_2": others.label[:, i]}
    return {**rows, **truth}, seconds


def chunks(options, n, first_seed, is_pair):
    parts, seconds = [], np.zeros(2)
    for seed in range(first_seed, first_seed + n // CHUNK):
        part, spent = one_chunk(options, seed, is_pair)
        parts.append(part)
        seconds += spent
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, seconds


def shares(pairs, found, by, bins, other, other_bins):
    """Table of the share found."""
    print(f"| {by} | " + " | ".join(f"{other} {a:g} to {b:g}" for a, b in zip(other_bins, other_bins[1:]))
          + " |\n|---|" + "---|" * (len(other_bins) - 1))
    for low, high in zip(bins, bins[1:]):
        inside = (pairs[by] >= low) & (pairs[by] < high)
        cells = [inside & (pairs[other] >= a) & (pairs[other] < b)
                 for a, b in zip(other_bins, other_bins[1:])]
        print(f"| {low:g} to {high:g} | "
              + " | ".join(f"{100 * np.mean(found[c]):.0f} % of {c.sum()}" for c in cells) + " |")
    print()


def pulls(pairs, found):
    """Print pulls of both stars, each against the true star that is nearest in velocity."""
    turned = np.abs(pairs["VRAD"] - pairs["v"]) > np.abs(pairs["VRAD"] - pairs["v2"])
    print("| | median pull, first star | width | second star | width |\n|---|---|---|---|---|")
    names = [("VRAD", "v", "v2")] + [(name, f"true {name}", f"true {name}_2") for name in LABELS
                                     if f"true {name}" in pairs]
    for name, first, second in names:
        cells = []
        for column, mine, other in (name, first, second), (name + "_2", second, first):
            off = pairs[column] - np.where(turned, pairs[other], pairs[mine])
            pull = (off / pairs[column + "_ERR"])[found & (pairs[column + "_ERR"] > 0)]
            cells.append(f"{np.median(pull):.2f} | {half_width(pull):.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |")
    for arm in "RZ" if "VRAD_OFFSET_R" in pairs else "":
        off = pairs["VRAD_OFFSET_" + arm] - pairs["offset " + arm]
        all_pulls = off / pairs[f"VRAD_OFFSET_{arm}_ERR"]
        cells = [f"{np.median(pull):.2f} | {half_width(pull):.2f}"
                 for pull in (all_pulls[found], all_pulls[~found])]
        print(f"| VRAD_OFFSET_{arm} | " + " | ".join(cells) + " |")


def epoch_pulls(pairs, found):
    """Print pulls of both stars' velocities in the epochs of the pairs that were found."""
    one, two, first, second = (pairs[name][found] for name in ("epoch VRAD", "epoch VRAD_2", "first",
                                                               "second"))
    sure = pairs["epoch EPOCH_FLAG"][found] == 0
    print(f"{sure.size} epochs, {np.count_nonzero(~sure)} with a flag; of the others:")
    for which, v, truth in zip(("", "_2"), (one, two), pair_survey.as_fitted(one, first, second)):
        pull = (v - truth) / pairs[f"epoch VRAD{which}_ERR"][found]
        print(f"VRAD{which}: width {half_width(pull[sure]):.2f}, "
              f"{100 * np.mean(np.abs(pull[sure]) > 5):.1f} % beyond 5 errors")


def figure(path, pairs, found):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True)
    edges = np.geomspace(APART[0], APART[-1], 8)
    middle = np.sqrt(edges[1:] * edges[:-1])
    for axis, low, high in zip(axes, SN, SN[1:]):
        for a, b, colour in zip(RATIO, RATIO[1:], ("#56b4e9", "#0072b2", "#d55e00")):
            of = ((pairs["sn"] >= low) & (pairs["sn"] < high) & (pairs["ratio"] >= a)
                  & (pairs["ratio"] < b))
            share = [np.mean(found[of & (pairs["apart"] >= x) & (pairs["apart"] < y)])
                     for x, y in zip(edges, edges[1:])]
            axis.plot(middle, share, "o-", ms=4, color=colour, label=f"flux ratio {a:g} to {b:g}")
        axis.set(xscale="log", title=f"S/N {low} to {high}", xlabel="difference of velocities, km/s",
                 ylim=(-0.03, 1.03), xticks=APART)
    axes[0].set_ylabel("share found")
    axes[0].legend(frameon=False, fontsize=8)
    save(path, picture)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--single", type=int, default=10000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--offsets", action="store_true")
    options = parser.parse_args()
    if options.single:
        single, seconds = chunks(options, options.single, 1, False)
        print(f"{options.single} single stars: {np.count_nonzero(single['SB2'])} false alarms; without "
              f"binaries {seconds[0]:.1f} s, with {seconds[1]:.1f} s, of the processor\n")
    pairs, seconds = chunks(options, options.pairs, 10001, True)
    found = pairs["SB2"] == 1
    print(f"{options.pairs} pairs: {np.count_nonzero(found)} found; without binaries {seconds[0]:.1f} s, "
          f"with {seconds[1]:.1f} s\n")
    shares(pairs, found, "apart", APART, "ratio", RATIO)
    shares(pairs, found, "sn", SN, "ratio", RATIO)
    if options.epochs > 1:
        epoch_pulls(pairs, found)
    else:
        pulls(pairs, found)
    if options.figure:
        figure(options.figure, pairs, found)


if __name__ == "__main__":
    main()
