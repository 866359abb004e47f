#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does the fit find the best minimum on real spectra?  Default fits against random starts.

    random_starts.py STARMILL DIR [--data DIR] [--starts 32] [--sets lamost,sdss,miles,...]
                     [--default] [--library LIB]

Fits real spectra with a library of MILES, by default and from random starts.  A random start has
the labels of a random MILES star, a velocity near the guess and any v sin i.  Prints for each set
 - how many default fits miss: their -2 ln L is more than 1 above the star's lowest
 - how many of these have the flag TWO_MINIMA, and how many of all stars have it
 - the number of evaluations a star
Sets: lamost, sdss and miles are spectra as observed; miles60 and miles20 have more noise, for S/N
60 and 20 a pixel.  DIR keeps all results.  --default repeats only the default fits, to compare two
programs by the same random starts.
"""
import argparse
import glob
import os
import sys

import h5py
import numpy as np
from astropy.table import Table

import validate_library
from validate_library import SN_OBSERVED, SOURCE, generic

RANGE = "3950,7380"
MISS = 1.0          # in -2 ln L
TWO_MINIMA = 128
LABELS = ("TEFF", "LOGG", "FEH")


def config(survey):
    return os.path.join(SOURCE, "config", survey + ".yaml")


class Campaign(validate_library.Campaign):
    def library(self):
        path = self.args.library or self.at("library.h5")
        if not os.path.exists(path):
            self.run("library", "spectra", "--output", path, "--range", RANGE, self.miles_path())
        return path

    def labels(self):
        table = self.miles()[2]
        rows = np.array([table[c] for c in LABELS], float).T
        return rows[np.isfinite(rows).all(axis=1)]

    def miles_spectra(self, name, sn):
        """MILES spectra as generic input, noise added where sn says so."""
        path = self.at(name + ".fits")
        if os.path.exists(path):
            return path
        rng = np.random.default_rng(sn or 1)
        wave, flux, _ = self.miles()
        use = (wave > 4000) & (wave < 7300)
        spectra = []
        for i in range(len(flux)):
            f = flux[i, use]
            level = np.median(f[np.isfinite(f)])
            error = np.where(np.isfinite(f), np.full(len(f), level / (sn or SN_OBSERVED)), np.inf)
            noise = rng.normal(size=len(f)) * level / sn if sn else 0.0
            spectra.append(dict(NAME=f"miles-{i:04d}", TARGETID=i + 1, WAVELENGTH=wave[use],
                                FLUX=np.nan_to_num(f + noise), IVAR=error**-2.0,
                                LSF_SIGMA=np.full(len(f), 2.5 / 2.3548)))
        generic.write(path, spectra, "air")
        return path

    def sets(self):
        """(name, library, configuration, inputs) of each fit."""
        real = os.path.join(self.args.data, "real")
        for name in self.args.sets.split(","):
            if name in ("lamost", "sdss"):
                yield (name, self.library(), config(name),
                       sorted(glob.glob(os.path.join(real, name, "*.fits.gz"))))
            elif name.startswith("miles"):
                yield (name, self.library(), None,
                       [self.miles_spectra(name, int(name[5:] or 0))])
            else:
                sys.exit(f"no set {name}")

    def fit(self, output, library, config, inputs, *more):
        if os.path.exists(output):
            os.remove(output)
        self.run("fit", "--library", library, "--output", output, "--quiet",
                 *(["--config", config] if config else []), *more, *inputs)

    def one_set(self, name, library, config, inputs):
        """Return columns of the fitted stars; excess: -2 ln L of the default minus the best fit."""
        default = self.at(f"{name}.h5")
        self.fit(default, library, config, inputs)
        with h5py.File(default) as file:
            row = {c: file["fits"][c][()] for c in ("VRAD_CCF", "M2LL", "FIT_INFO", "NEVAL",
                                                    "STATUS", *LABELS, "VSINI", "VRAD")}
            catalog = file["catalog"]
            objects, ids = catalog["OBJECT"][()], catalog["TARGETID"][()]
        labels, n = self.labels(), len(objects)
        m2ll = []
        for k in range(self.args.starts):
            path = self.at(f"{name}-start{k:02d}.h5")
            if not os.path.exists(path) and not self.args.default:
                rng = np.random.default_rng([k, n])
                spread = np.where(rng.random(n) < 0.5, 30.0, 300.0)  # km/s about the guess
                table = Table(dict(zip(LABELS, labels[rng.integers(len(labels), size=n)].T)))
                table["TARGETID"], table["OBJECT"] = ids, objects
                table["VRAD"] = (np.nan_to_num(row["VRAD_CCF"]) + rng.uniform(-1, 1, n) * spread)
                table["VSINI"] = rng.uniform(0, 200, n) * (rng.random(n) < 0.7)  # 0 for 30 %
                table.write(self.at("start.fits"), overwrite=True)
                self.fit(path, library, config, inputs, "--start", self.at("start.fits"))
            if os.path.exists(path):
                with h5py.File(path) as file:
                    m2ll.append(np.where(file["fits/STATUS"][()] == 1, file["fits/M2LL"][()], np.inf))
        best = np.min([row["M2LL"], *m2ll], axis=0)
        fitted = row["STATUS"] == 1
        with np.errstate(invalid="ignore"):
            excess = np.where(fitted, row["M2LL"] - best, 0.0)
        return dict(name=objects[fitted], excess=excess[fitted],
                    **{c: row[c][fitted] for c in row})


def report(name, found):
    missed, flagged = found["excess"] > MISS, (found["FIT_INFO"] & TWO_MINIMA) != 0
    n = len(missed)
    print(f"| {name} | {n} | {missed.sum()} | {100 - 100 * missed.mean():.2f} % | "
          f"{(missed & flagged).sum()} | {flagged.sum()} | {found['excess'].max():.1f} | "
          f"{found['NEVAL'].mean():.2f} |", flush=True)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("starmill")
    parser.add_argument("work", metavar="folder")
    parser.add_argument("--data", default=os.environ.get("STARMILL_TEST_DATA",
                                                         os.path.join(SOURCE, "../shared/data")))
    parser.add_argument("--starts", type=int, default=32)
    parser.add_argument("--sets", default="lamost,sdss,miles,miles60,miles20")
    parser.add_argument("--default", action="store_true")
    parser.add_argument("--library", help="in place of the library of all MILES spectra")
    campaign = Campaign(parser.parse_args())
    results = {name: campaign.one_set(name, *rest) for name, *rest in campaign.sets()}
    print("| set | stars | missed by more than 1 | found | missed and flagged | flagged | worst | NEVAL |")
    print("|---|---|---|---|---|---|---|---|")
    for name, found in results.items():
        for i in np.nonzero(report(name, found))[0]:
            print(f"  {found['name'][i]} {found['excess'][i]:8.1f}  Teff {found['TEFF'][i]:.0f} "
                  f"log g {found['LOGG'][i]:.2f} [Fe/H] {found['FEH'][i]:.2f} v sin i "
                  f"{found['VSINI'][i]:.0f} VRAD {found['VRAD'][i]:.1f} info "
                  f"{found['FIT_INFO'][i]} NEVAL {found['NEVAL'][i]}", file=sys.stderr)


if __name__ == "__main__":
    main()
