"""Print fitted against true values of a simulated survey.

usage: demo_table.py FIT.h5 TRUTH.fits
"""

import sys

import h5py
import numpy as np
from astropy.io import fits

COLUMNS = [  # name, unit, digits
    ("VRAD", "km/s", 2),
    ("TEFF", "K", 0),
    ("LOGG", "dex", 3),
    ("FEH", "dex", 3),
    ("ALPHAFE", "dex", 3),
]


def robust_scatter(delta):
    """Half the width of the central 68.3 %: the sigma of a Gaussian, deaf to outliers."""
    low, high = np.percentile(delta, [15.865, 84.135])
    return 0.5 * (high - low)


def main(fit_path, truth_path):
    with h5py.File(fit_path, "r") as file:
        fit = {
            name: file["fits"][name][:]
            for name in ["TARGETID", "STATUS", "RVS_WARN"] + [c[0] for c in COLUMNS]
        }
    truth = fits.getdata(truth_path, 1)
    row_of = {int(target): row for row, target in enumerate(truth["TARGETID"])}
    missing = [int(t) for t in fit["TARGETID"] if int(t) not in row_of]
    if missing:
        sys.exit(f"{truth_path} has no truth for TARGETID {missing[0]} of {fit_path}")
    rows = np.array([row_of[int(t)] for t in fit["TARGETID"]], dtype=int)
    true = {name: np.asarray(truth[name], dtype=float)[rows] for name, _, _ in COLUMNS}
    sn = np.asarray(truth["SN"], dtype=float)[rows]
    done = fit["STATUS"] == 1
    if not done.any():
        sys.exit(f"{fit_path} holds no fitted star")

    print("Ten of the stars, fitted (true):")
    header = f"{'S/N':>5s}" + "".join(f"{name + ' ' + unit:>20s}" for name, unit, _ in COLUMNS)
    print(header)
    for i in np.flatnonzero(done)[:10]:
        line = f"{sn[i]:5.0f}"
        for name, _, digits in COLUMNS:
            line += f"{f'{fit[name][i]:.{digits}f} ({true[name][i]:.{digits}f})':>20s}"
        print(line)

    print(f"\nOver all {done.sum()} fitted stars of {len(done)}, fitted minus true:")
    print(" " * 14 + "".join(f"{name + ' ' + unit:>16s}" for name, unit, _ in COLUMNS))
    for label, measure in (("median", np.median), ("robust scatter", robust_scatter)):
        line = f"{label:14s}"
        for name, _, digits in COLUMNS:
            line += f"{measure((fit[name] - true[name])[done]):16.{digits + 1}f}"
        print(line)
    print(f"{(done & (fit['RVS_WARN'] != 0)).sum()} of them carry a warning flag (RVS_WARN).")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    main(sys.argv[1], sys.argv[2])
