#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How labels and velocities of real stars, fitted with a library, compare with published ones.

usage: validate_library.py [options] WORK NAME=LIB.h5...

Fits real stars with each library and prints tables in Markdown: median and robust scatter
(1.4826 MAD) of ours - published by type of star, for S/N > 20, with the numbers of stars and
of those that a flag (not SUCCESS) takes out, and the width (MAD) of the differences in units
of the stated errors; then repeated observations against stated errors.  WORK keeps what was
made; fits that are there are not repeated.

  --starmill PROGRAM   (build/release/starmill)
  --data DATA          the test data, with real/lamost, sdss and miles (STARMILL_TEST_DATA)
  --sets NAME,...      of lamost, sdss, miles, repeats (all)
  --stars NAME CONFIG TABLE FILES  stars of your own, may be given several times: inputs of `fit`
                       (a pattern in quotes), and a table (FITS or CSV) whose column TARGETID or
                       NAME names the star, with those of TEFF, LOGG, FEH, ALPHAFE and VRAD
                       that are published
  --hot                stars of 7000 to 15000 K, log g from 2, not of 4000 to 7250 K
  --with-miles         beside the libraries one of MILES spectra
  --threads N          of the fits (1)

The stars of MILES are every second row of its file (the first, the third, ...): model error is
measured on the others (real-library), of which also the library of --with-miles is made.
Needs NumPy, Astropy and h5py.
"""

import argparse
import csv
import glob
import os
import subprocess
import sys

import h5py
import numpy as np
from astropy.io import fits
from astropy.table import Table

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(SOURCE, "tools"))
import make_generic  # noqa: E402

CONFIG = os.path.join(SOURCE, "config")
COLUMNS = {"TEFF": "Teff, K", "LOGG": "log g", "FEH": "[Fe/H]", "ALPHAFE": "[α/Fe]",
           "VRAD": "velocity, km/s"}
MIN_SN = 20
MIN_STARS = 5  # of a type, for a line
MINUS = "−"
SN_OBSERVED = 150  # MILES gives no errors; its spectra have more than 100 a pixel
FWHM_AA = 2.5  # of MILES
# where the libraries are meant to be used; of published labels, so that it selects alike for all
KEEP = {"TEFF": (4000, 7250), "LOGG": (0.5, 5), "FEH": (-2.5, 0.5)}
TYPES = (
    ("all", lambda s: s["TEFF"] > 0),
    ("B: Teff from 10000 K", lambda s: s["TEFF"] >= 10000),
    ("A: 8000 to 10000 K", lambda s: (s["TEFF"] >= 8000) & (s["TEFF"] < 10000)),
    ("F: 6000 to 8000 K", lambda s: (s["TEFF"] >= 6000) & (s["TEFF"] < 8000)),
    ("G: 5200 to 6000 K", lambda s: (s["TEFF"] >= 5200) & (s["TEFF"] < 6000)),
    ("K: below 5200 K", lambda s: s["TEFF"] < 5200),
    ("dwarfs: log g from 3.5", lambda s: s["LOGG"] >= 3.5),
    ("giants: below 3.5", lambda s: s["LOGG"] < 3.5),
    ("[Fe/H] below −1", lambda s: s["FEH"] < -1),
)
# what the fits of MILES's spectra need; two parts, as a continuum has at most 24 functions
MILES_CONFIG = """format: generic
npoly_per_1000aa: 9
arms: [{name: b, min: %g, max: 5500}, {name: r, min: 5500, max: 7350}]
wave_mask: [[6865, 6965], [7160, 7340]]
"""


def mad(x):
    return 1.4826 * np.median(np.abs(x - np.median(x)))


class Campaign:
    def __init__(self, args):
        self.args = args
        os.makedirs(args.work, exist_ok=True)

    def at(self, name):
        return os.path.join(self.args.work, name)

    def run(self, *command):
        done = subprocess.run([self.args.starmill, *command], capture_output=True, text=True)
        if done.returncode:
            sys.exit("%s\nended with %d\n%s" % (" ".join(command), done.returncode, done.stderr))

    def fit(self, name, library, config, inputs):
        """Rows of the result, with the stars' names as NAME and the best S/N of an arm as SN."""
        out = self.at(name + ".h5")
        if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(library):
            self.run("fit", "--library", library, "--config", config, "--output", out,
                     "--overwrite", "--quiet", "--threads", str(self.args.threads), *inputs)
        with h5py.File(out) as file:
            rows = {k: v[...] for k, v in file["fits"].items()}
            catalog = file["catalog"]
            rows["NAME"] = np.char.strip(np.char.decode(catalog["OBJECT"][...]))
            paths = np.char.decode(catalog["files/PATH"][...].astype("S"))
            rows["PATH"] = np.array([os.path.basename(p) for p in paths])[catalog["FILE"][...]]
        rows["SN"] = np.max([rows[k] for k in rows if k.startswith("SN_")], axis=0)
        return rows

    # ---- MILES ----

    def miles(self):
        """Flux [star][pixel], wavelengths in air, table of labels of the stars that are kept."""
        with fits.open(os.path.join(self.args.data, "real/miles/miles_v9.1_packed.fits.gz")) as h:
            flux, card, labels = np.asarray(h[0].data, float), h[0].header, Table(h["LABELS"].data)
        wave = card["CRVAL1"] + card["CDELT1"] * (np.arange(flux.shape[1]) + 1 - card["CRPIX1"])
        return wave, flux, labels

    def miles_library(self):
        """A library of the spectra that are not validated with."""
        out, source = self.at("miles-library.h5"), self.at("miles-others.fits")
        if not os.path.exists(out):
            path = os.path.join(self.args.data, "real/miles/miles_v9.1_packed.fits.gz")
            with fits.open(path) as h:
                h[0].data, h["LABELS"].data = h[0].data[1::2], h["LABELS"].data[1::2]
                h.writeto(source, overwrite=True)
            self.run("library", "spectra", "--range", "3950,7380", "--align", "--output", out, source)
        return out

    def miles_stars(self, name, sn, seed):
        """Every second spectrum as input of fit, with noise to S/N sn (0: none but its own)."""
        path = self.at(name + ".fits")
        wave, flux, labels = self.miles()
        rows = [i for i in range(0, len(flux), 2) if inside(labels[i])]
        if not os.path.exists(path):
            rng = np.random.default_rng(seed)
            spectra = []
            for i in rows:
                good = np.isfinite(flux[i]) & (flux[i] > 0)
                level = np.median(flux[i][good])
                noise = rng.normal(size=len(wave)) * level / sn if sn else 0.0
                sigma = np.hypot(level / SN_OBSERVED, level / sn if sn else 0.0)
                spectra.append(dict(
                    NAME=labels["NAME"][i].strip(), TARGETID=i + 1, WAVELENGTH=wave,
                    FLUX=np.where(good, flux[i] + noise, level),
                    IVAR=np.where(good, sigma**-2.0, 0.0),
                    LSF_SIGMA=np.full(len(wave), FWHM_AA / 2.3548)))
            make_generic.write(path, spectra, "air")
        published = {k: np.array(labels[k][rows], float) for k in KEEP}
        published["TARGETID"] = np.array(rows) + 1
        return path, published

    def miles_config(self, library):
        with h5py.File(library) as file:
            first = max(np.exp(a.attrs["ln_wave0"]) for a in file["arms"].values())
        path = self.at("miles-%.0f.yaml" % first)
        with open(path, "w") as f:
            f.write(MILES_CONFIG % max(4000, 50 * np.ceil((first + 20) / 50)))
        return path

    def fit_miles(self, name, library, sn=0, seed=1):
        path, published = self.miles_stars(name, sn, seed)
        label = os.path.basename(library).removesuffix(".h5")
        return self.fit(name + "-" + label, library, self.miles_config(library), [path]), published

    # ---- sets of stars: name, result rows, published ----

    def sets(self, label, library):
        config = {s: os.path.join(CONFIG, s + ".yaml") for s in ("lamost", "sdss")}
        real, wanted = os.path.join(self.args.data, "real"), self.args.sets.split(",")
        if "lamost" in wanted:
            stars = sorted(glob.glob(os.path.join(real, "lamost/*.fits.gz")))
            rows = self.fit("lamost-" + label, library, config["lamost"], stars)
            for table in ("Adam", "CurveFit"):
                yield "LAMOST, ours − LASP (%s)" % table, rows, lasp(real, table)
        if "sdss" in wanted:
            stars = sorted(glob.glob(os.path.join(real, "sdss/*.fits.gz")))
            yield "SDSS", self.fit("sdss-" + label, library, config["sdss"], stars), None
        if "miles" in wanted:
            yield ("MILES as observed, ours − Cenarro et al.",
                   *self.fit_miles("miles", library))
            yield ("MILES with noise to S/N 30", *self.fit_miles("miles30a", library, 30, 30))
        for name, config, table, files in self.args.stars:
            rows = self.fit(name + "-" + label, library, config, sorted(glob.glob(files)))
            yield name, rows, Table.read(table)

    def repeats(self, label, library):
        """(what, rows of one star after another, names of the stars) of repeated observations."""
        path = os.path.join(self.args.data, "real/sdss/spec-3586-55181-0500.fits.gz")
        config = self.at("single.yaml")
        with open(os.path.join(CONFIG, "sdss.yaml")) as f, open(config, "w") as out:
            out.write(f.read().replace("exposures: coadd", "exposures: single"))
        rows = self.fit("exposures-" + label, library, config, [path])
        yield ("BOSS, exposures of one star", rows, np.ones(len(rows["SN"]), bool),
               np.zeros(len(rows["SN"])))
        parts = [self.fit_miles("miles30" + c, library, 30, 30 + k)[0] for k, c in enumerate("ab")]
        both = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]
                if parts[0][k].ndim == 1}
        yield ("MILES, two noises of S/N 30", both, np.ones(len(both["SN"]), bool),
               both["TARGETID"])


def inside(row):
    return all(low <= row[k] <= high for k, (low, high) in KEEP.items())


def lasp(real, table):
    with open(os.path.join(real, "lamost/LASP_%s_inferred.csv" % table)) as f:
        lines = list(csv.DictReader(f))
    names = {"TEFF": "pred_Teff", "LOGG": "pred_logg", "FEH": "pred_FeH", "VRAD": "pred_Rv"}
    found = {k: np.array([float(r[v]) for r in lines]) for k, v in names.items()}
    found["PATH"] = np.array([r["ID"].replace(".gz", "") + ".gz" for r in lines])
    return found


def match(rows, published):
    """Index into published of each row, -1 for none."""
    names = getattr(published, "colnames", published)
    key = next((k for k in ("TARGETID", "PATH", "NAME") if k in names), None)
    if key is None:
        sys.exit("a table of published labels has neither TARGETID nor NAME")
    at = {v: i for i, v in enumerate(np.asarray(published[key]).astype(rows[key].dtype))}
    return np.array([at.get(v, -1) for v in rows[key]])


def compare(rows, published):
    """Ours and published, of the stars in both that are inside KEEP and above MIN_SN."""
    index = match(rows, published)
    use = (index >= 0) & (rows["SN"] > MIN_SN)
    names = getattr(published, "colnames", published)
    theirs = {k: np.asarray(published[k], float)[index] for k in COLUMNS if k in names}
    for k, (low, high) in KEEP.items():
        use &= (theirs[k] >= low) & (theirs[k] <= high)
    return {k: v[use] for k, v in rows.items() if v.ndim == 1}, {k: v[use] for k, v in theirs.items()}


def cells(ours, theirs, kind):
    """Of a type of star: numbers, then a cell for each column."""
    of_type = kind(theirs)
    good = of_type & (ours["SUCCESS"] == 1)
    out = ["%d" % of_type.sum(), "%d" % (of_type & ~good).sum()]
    for k in COLUMNS:
        if k not in theirs or k not in ours or good.sum() < 3:
            out.append("")
            continue
        d = (ours[k] - theirs[k])[good]
        width = mad(d / ours[k + "_ERR"][good])
        out.append(("%+.0f ± %.0f (%.1f)" if k == "TEFF" else "%+.1f ± %.1f (%.1f)" if k == "VRAD"
                    else "%+.2f ± %.2f (%.1f)") % (np.median(d), mad(d), width))
        out[-1] = out[-1].replace("-", MINUS)
    return out


def print_table(first, lines):
    """Lines of cells in the order of the names first and COLUMNS, without columns of nothing."""
    names = [*first, *COLUMNS.values()]
    use = [i for i in range(len(names)) if any(line[i] for line in lines)]
    for line in (names, ["---"] * len(names), *lines):
        print("| %s |" % " | ".join(line[i] for i in use))


def lines_of_stars(parts):
    """A line for each star and library: what was fitted."""
    lines = []
    for star in range(len(parts[0][1]["SN"])):
        for library, rows, _ in parts:
            lines.append([
                rows["PATH"][star].split(".")[0], library, "%.0f" % rows["SN"][star],
                "0x%x" % rows["RVS_WARN"][star],
                *(("%.*f ± %.*f" % (d, rows[k][star], d, rows[k + "_ERR"][star])).replace("-", MINUS)
                  if k in rows else "" for k, d in zip(COLUMNS, (0, 2, 2, 2, 1)))])
    return lines


def print_comparisons(found):
    """found: {set: [(library, rows, published)]}"""
    for name, parts in found.items():
        print("\n**%s**\n" % name)
        if parts[0][2] is None:
            print_table(("star", "library", "S/N", "flags"), lines_of_stars(parts))
            continue
        compared = [(library, *compare(rows, published)) for library, rows, published in parts]
        lines = [[kind, library, *cells(ours, theirs, of_type)]
                 for kind, of_type in TYPES for library, ours, theirs in compared]
        print_table(("stars", "library", "number", "flagged"),
                    [line for line in lines if int(line[2]) >= MIN_STARS])


def repeat_line(library, what, rows, use, star):
    """Scatter about each star's mean, and the same in units of the stated errors."""
    use = use & (rows["SUCCESS"] == 1)
    line, n = [], 0
    for k, digits in zip(COLUMNS, (0, 2, 2, 2, 1)):
        pull, size = [], []
        for s in np.unique(star[use]) if k in rows else ():
            i = use & (star == s)
            if i.sum() < 2:
                continue
            x, e = rows[k][i], rows[k + "_ERR"][i]
            free = np.sqrt(i.sum() / (i.sum() - 1))  # the mean is their own
            d = (x - np.average(x, weights=e**-2.0)) * free
            pull.extend(d / e)
            size.extend(d)
        n = max(n, len(pull))
        # of a few the root mean square, which is the better known
        width = (lambda x: np.sqrt(np.mean(np.square(x)))) if len(pull) < 30 else (
            lambda x: 1.4826 * np.median(np.abs(x)))
        line.append("%.*f (%.1f)" % (digits, width(size), width(pull)) if pull else "")
    return [what, library, "%d" % n, *line]


def print_all(campaigns):
    """Tables of what each campaign's program finds with a library: (name, campaign, path)."""
    found, repeats = {}, {}
    for name, campaign, path in campaigns:
        label = os.path.basename(path).removesuffix(".h5")
        for what, rows, published in campaign.sets(label, path):
            found.setdefault(what, []).append((name, rows, published))
        if "repeats" in campaign.args.sets.split(","):
            for what, *repeat in campaign.repeats(label, path):
                repeats.setdefault(name, []).append(repeat_line(name, what, *repeat))
    print("ours − published: median ± robust scatter (scatter in units of the stated errors)")
    print_comparisons(found)
    if repeats:
        print("\n**Repeats**: scatter (in units of the stated errors)\n")
        print_table(("observations", "library", "number"),
                    [x for lines in repeats.values() for x in lines if x[2] != "0"])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], add_help=False,
                                     description=__doc__)
    root = SOURCE
    parser.add_argument("--starmill", default=os.path.join(root, "build/release/starmill"))
    parser.add_argument("--data", default=os.environ.get("STARMILL_TEST_DATA", ""))
    parser.add_argument("--sets", default="lamost,sdss,miles,repeats")
    parser.add_argument("--stars", nargs=4, action="append", default=[])
    parser.add_argument("--hot", action="store_true")
    parser.add_argument("--with-miles", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("work")
    parser.add_argument("library", nargs="+")
    args = parser.parse_args()
    if args.hot:
        KEEP.update(TEFF=(7000, 15000), LOGG=(2, 5))
    unknown = set(args.sets.split(",")) - {"lamost", "sdss", "miles", "repeats", ""}
    if unknown:
        parser.error("no set " + ", ".join(sorted(unknown)))
    if args.sets and not os.path.isdir(os.path.join(args.data, "real")):
        parser.error("no folder real in --data %s" % args.data)
    campaign = Campaign(args)
    libraries = [lib.split("=", 1) if "=" in lib else
                 (os.path.basename(lib).removesuffix(".h5"), lib) for lib in args.library]
    if len({os.path.basename(path) for _, path in libraries}) < len(libraries):
        parser.error("files in WORK are named after the libraries: give these other names")
    if args.with_miles:
        libraries.append(("MILES", campaign.miles_library()))
    print_all([(name, campaign, path) for name, path in libraries])


if __name__ == "__main__":
    main()
