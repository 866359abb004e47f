#!/usr/bin/env python3
"""Pulls of a survey whose templates are wrong in a known way, with and without model error.

    wrong_templates.py spectra TRUTH_LIB.h5 FOLDER [--spectra N] [--seed S]
        labelled spectra of a library, FOLDER/ARM.fits for each arm, for starmill library model-error
    wrong_templates.py pulls TRUTH.fits RESULT.h5...
        robust scatter of (fit - truth) / error by S/N, one table for each result

docs/science/validation.md says how the tables there were made.
"""
import argparse
import pathlib
import sys

import h5py
import numpy as np
from astropy.io import fits
from scipy.interpolate import BSpline

LABELS = (("TEFF", "TEFF"), ("LOGG", "LOGG"), ("FEH", "FEH"), ("ALPHAFE", "ALPHAFE"))
BINS = ((10, 20), (20, 35), (35, 60), (60, 100))


def read_labels(lib):
    labels = [lib[f"labels/label{i}"].attrs for i in range(lib["labels"].attrs["n_label"])]
    hulls = [(lib[f"hulls/hull{i}/labels"][:], lib[f"hulls/hull{i}/facets"][:])
             for i in range(lib["hulls"].attrs["n_hull"])]
    return labels, hulls


def draw(labels, hulls, n, random):
    """Mapped labels inside the hulls, evenly."""
    low, high = [], []
    for label in labels:
        ends = np.array([label["min"], label["max"]])
        ends = np.log10(ends) if label["mapping"] == 1 else ends
        low.append((ends[0] - label["mean"]) / label["std"])
        high.append((ends[1] - label["mean"]) / label["std"])
    out = []
    while len(out) < n:
        x = random.uniform(low, high)
        if all(np.all(facet[:, :-1] @ x[which] + facet[:, -1] < 0) for which, facet in hulls):
            out.append(x)
    return np.array(out)


def flux_of(arm, x):
    """Spectra of a grid emulator at mapped labels x [n][label]."""
    coef = arm["grid/coefficients"][:].astype(float)
    weight, bias = arm["layer0/weight"][:], arm["layer0/bias"][:]
    spectra = []
    for star in x:
        value = coef
        for i, at in enumerate(star):
            knots = arm[f"grid/knots{i}"][:]
            basis = BSpline.design_matrix([at], knots, 3).toarray()[0]
            value = np.tensordot(basis, value, (0, 0))
        spectra.append(np.exp(weight @ value + bias))
    return np.array(spectra, dtype="f4")


def write_spectra(args):
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(args.library) as lib:
        labels, hulls = read_labels(lib)
        x = draw(labels, hulls, args.spectra, np.random.default_rng(args.seed))
        columns = []
        for i, label in enumerate(labels):
            value = x[:, i] * label["std"] + label["mean"]
            value = 10**value if label["mapping"] == 1 else value
            name = label["column"]
            name = name.decode() if isinstance(name, bytes) else name
            columns.append(fits.Column(name, "D", array=value))
        for i in range(lib["arms"].attrs["n_arm"]):
            arm = lib[f"arms/arm{i}"]
            image = fits.PrimaryHDU(flux_of(arm, x))
            image.header["COEFF0"] = arm.attrs["ln_wave0"] / np.log(10)
            image.header["COEFF1"] = arm.attrs["ln_step"] / np.log(10)
            image.header["VACUUM"] = True
            name = arm.attrs["name"]
            name = name.decode() if isinstance(name, bytes) else name
            fits.HDUList([image, fits.BinTableHDU.from_columns(columns)]).writeto(
                folder / f"{name}.fits", overwrite=True)


def robust(x):
    return 1.4826 * np.median(np.abs(x - np.median(x)))


def print_pulls(args):
    truth = fits.getdata(args.truth, 1)
    by_id = {int(t): i for i, t in enumerate(truth["TARGETID"])}
    for path in args.result:
        with h5py.File(path) as f:
            fit = {name: f["fits"][name][:] for name in f["fits"]}
        row = np.array([by_id[int(t)] for t in fit["TARGETID"]])
        good = (fit["STATUS"] == 1) & (truth["VSINI"][row] < 100) & (fit["RVS_WARN"] & 256 == 0)
        sn = truth["SN"][row]
        print(f"{path}: {good.sum()} of {len(row)} stars, NEVAL {np.mean(fit['NEVAL']):.2f}, "
              f"CHISQ/NPIX {np.median(fit['CHISQ_TOT'][good] / fit['NPIX_TOT'][good]):.3f}")
        # near 0 v sin i has a limit and no error: it counts where the truth is three errors
        print("  S/N      stars  " + "".join(f"{name:>16}" for name in ("VRAD", *(l for l, _ in LABELS)))
              + "   VSINI (stars)")
        for low, high in BINS:
            use = good & (sn >= low) & (sn < high)
            cells = []
            for name, column in (("VRAD", "VRAD"), *LABELS):
                off = fit[name][use] - truth[column][row][use]
                pull = off / fit[name + "_ERR"][use]
                cells.append(f"{robust(pull):7.2f} {np.median(pull):+7.2f} ")
            turns = use & (truth["VSINI"][row] > 3 * fit["VSINI_ERR"])
            pull = ((fit["VSINI"] - truth["VSINI"][row]) / fit["VSINI_ERR"])[turns]
            print(f"  {low:3d}-{high:3d}  {use.sum():5d}  " + "".join(cells) +
                  f"{robust(pull):7.2f} {np.median(pull):+7.2f} ({turns.sum()})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    job = parser.add_subparsers(dest="job", required=True)
    spectra = job.add_parser("spectra")
    spectra.add_argument("library")
    spectra.add_argument("folder")
    spectra.add_argument("--spectra", type=int, default=200)
    spectra.add_argument("--seed", type=int, default=1)
    spectra.set_defaults(run=write_spectra)
    pulls = job.add_parser("pulls")
    pulls.add_argument("truth")
    pulls.add_argument("result", nargs="+")
    pulls.set_defaults(run=print_pulls)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    sys.exit(main())
