#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How labels and velocities of real stars, fitted with a library, compare with published ones.

usage: validate_library.py [options] WORK NAME=LIB.h5[,HALF.h5[,FOLD%d.h5]]...

Fits real stars of S/N > 20 with each library, and prints a table in Markdown by type of star:
  - median and robust scatter (1.4826 MAD) of ours - published
  - the number of stars, and the number that a flag takes out (not SUCCESS)
  - the width (MAD) of the differences in units of the errors, ours and published in quadrature
  - the median reduced chi-square
It ends with the scatter of repeated observations in units of the stated errors.  Fits that are in
WORK already are not repeated.

  --starmill PROGRAM   (build/release/starmill)
  --data DATA          the test data, with real/lamost, sdss and miles (STARMILL_TEST_DATA)
  --sets NAME,...      of gbs, lamost, sdss, miles, repeats (all these), desi, overlap
  --stars NAME CONFIG TABLE FILES  stars of your own, may be given several times.  FILES: inputs of
                       `fit` (a pattern in quotes).  TABLE (FITS or CSV): a column TARGETID or NAME,
                       and published TEFF, LOGG, FEH, ALPHAFE and VRAD (and TEFF_ERR, ...)
  --hot                stars of 7000 to 15000 K and log g from 2, in place of 4000 to 7250 K
  --figures FOLDER     also draws the table's stars there: kiel.png and coverage.png
  --threads N          of the fits (1)

Sets:
  miles    every second row of MILES, from the first on, fitted with HALF.h5, a library of the
           other rows (real-library --rows half).  If no HALF.h5 is given, LIB.h5 fits these rows.
  gbs      the benchmark stars of real/gbs, which are in MILES.  The library FOLD%d.h5 that was made
           without a star fits this star.  %d: the digit K of real-library --rows K/N, N up to 10.
           It also prints the errors of fitted, MILES's and fundamental Teff.
  desi     real/desi-blue against labels of the survey's other pipeline.  To find whose labels are
           wrong, it also fits MILES stars at these wavelengths, and desi-blue with MILES templates.
  overlap  compares fits with two libraries, of cool and of hot stars, for MILES stars inside both.
           It also prints both fitted velocities of synthetic spectra (real/marcs) of velocity 0.
Needs NumPy, SciPy, Astropy, h5py and, for figures, matplotlib.
"""

import argparse
import csv
import glob
import os
import re
import subprocess
import sys
from math import erf

import h5py
import numpy as np
from astropy.io import fits
from astropy.table import Table
from scipy.ndimage import gaussian_filter1d

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(SOURCE, "python"))
from starmill.surveys import generic  # noqa: E402

CONFIG = os.path.join(SOURCE, "config")
COLUMNS = {"TEFF": "Teff, K", "LOGG": "log g", "FEH": "[Fe/H]", "ALPHAFE": "[α/Fe]",
           "VRAD": "velocity, km/s"}
MIN_SN = 20
MIN_STARS = 5  # of a type, for a line or a curve
MINUS = "−"
SN_OBSERVED = 150  # assumed for MILES, which gives no errors; its spectra exceed 100 a pixel
FWHM_AA = 2.5  # of MILES
# of its labels, against Gaia benchmark stars
MILES_ERR = {"TEFF_ERR": 82, "LOGG_ERR": 0.16, "FEH_ERR": 0.08}
BENCHMARK_FEH_ERR = 0.05  # their table has none
# range of use of the libraries; published labels must lie in it, so stars do not depend on library
KEEP = {"TEFF": (4000, 7250), "LOGG": (0.5, 5), "FEH": (-2.5, 0.5)}
TYPES = (
    ("all", lambda s: s["SN"] > 0),
    ("B: Teff from 10000 K", lambda s: s["TEFF"] >= 10000),
    ("A: 8000 to 10000 K", lambda s: (s["TEFF"] >= 8000) & (s["TEFF"] < 10000)),
    ("F: 6000 to 8000 K", lambda s: (s["TEFF"] >= 6000) & (s["TEFF"] < 8000)),
    ("G: 5200 to 6000 K", lambda s: (s["TEFF"] >= 5200) & (s["TEFF"] < 6000)),
    ("K: below 5200 K", lambda s: s["TEFF"] < 5200),
    ("dwarfs: log g from 3.5", lambda s: s["LOGG"] >= 3.5),
    ("giants: below 3.5", lambda s: s["LOGG"] < 3.5),
    ("[Fe/H] below −1", lambda s: s["FEH"] < -1),
)
BENCHMARKS = (
    ("4700 to 6500 K", lambda s: (s["TEFF"] > 4700) & (s["TEFF"] < 6500)),
    ("dwarfs, 5000 to 6600 K",
     lambda s: (s["TEFF"] > 5000) & (s["TEFF"] < 6600) & (s["LOGG"] > 3.5)),
    ("giants, 4200 to 5200 K",
     lambda s: (s["TEFF"] > 4200) & (s["TEFF"] < 5200) & (s["LOGG"] < 3.5)),
)
PIPELINES = tuple(
    ("dwarfs, %d to %d K" % span,
     lambda s, span=span: (s["LOGG"] > 3.9) & (s["TEFF"] >= span[0]) & (s["TEFF"] < span[1]))
    for span in ((4000, 4500), (4500, 5000), (5000, 5800), (5800, 6500)))
DESI_CONFIG = "format: generic\narms: [{name: b, min: 4000, max: 5000}]\n"
# for fits of MILES spectra; two arms, as an arm's continuum has at most 24 functions
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
            sys.exit("%s\nended with %d\n%s" % (" ".join(command), done.returncode, done.stdout + done.stderr))

    def fit(self, name, library, config, inputs):
        """Return a fit's rows, with the stars' names as NAME and the best S/N of an arm as SN."""
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

    def miles_path(self):
        return os.path.join(self.args.data, "real/miles/miles_v9.1_packed.fits.gz")

    def miles(self):
        """Wavelengths in air, flux [star][pixel] and table of labels of all MILES stars."""
        with fits.open(self.miles_path()) as h:
            flux, card, labels = np.asarray(h[0].data, float), h[0].header, Table(h["LABELS"].data)
        wave = card["CRVAL1"] + card["CDELT1"] * (np.arange(flux.shape[1]) + 1 - card["CRPIX1"])
        return wave, flux, labels

    def miles_stars(self, name, sn, seed, rows=None):
        """Write every second spectrum, or `rows`, as input of fit.  sn: S/N of added noise (0: no
        noise)."""
        path = self.at(name + ".fits")
        wave, flux, labels = self.miles()
        if rows is None:
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
            generic.write(path, spectra, "air")
        published = {k: np.array(labels[k][rows], float) for k in KEEP}
        published.update(MILES_ERR, TARGETID=np.array(rows) + 1)
        return path, published

    def miles_config(self, library):
        with h5py.File(library) as file:
            first = max(np.exp(a.attrs["ln_wave0"]) for a in file["arms"].values())
        path = self.at("miles-%.0f.yaml" % first)
        with open(path, "w") as f:
            f.write(MILES_CONFIG % max(4000, 50 * np.ceil((first + 20) / 50)))
        return path

    def fit_miles(self, name, library, sn=0, seed=1, rows=None):
        path, published = self.miles_stars(name, sn, seed, rows)
        label = os.path.basename(library).removesuffix(".h5")
        return self.fit(name + "-" + label, library, self.miles_config(library), [path]), published

    def benchmarks(self, folds):
        """Rows of benchmark stars, fitted with libraries made without them; fundamental labels."""
        table = Table.read(os.path.join(self.args.data, "real/gbs/benchmark-stars-in-miles.fits"))
        row, paths = table["MILES_ID"] - 1, sorted(glob.glob(folds.replace("%d", "[0-9]")))
        parts = [self.fit_miles("gbs%d-%d" % (k, len(paths)), path,
                                rows=row[row % len(paths) == k])[0] for k, path in enumerate(paths)]
        rows = {k: np.concatenate([p[k] for p in parts]) for k in parts[0] if parts[0][k].ndim == 1}
        published = {k: np.array(table[k]) for k in table.colnames if k[:3] in ("TEF", "LOG", "FEH")}
        return rows, {"TARGETID": table["MILES_ID"], "FEH_ERR": BENCHMARK_FEH_ERR, **published}

    def three_errors(self, rows, table):
        """Print the errors (K) of fitted, MILES's and fundamental Teff.  For independent errors of
        x, y and z the covariance of x - y and x - z is the variance of x's error."""
        with fits.open(self.miles_path()) as h:
            miles = Table(h["LABELS"].data)
        ours, theirs = compare(rows, table)
        index = match(ours, {"TARGETID": np.arange(1, len(miles) + 1)})
        for kind, of_type in BENCHMARKS:
            use = of_type(theirs) & (ours["SUCCESS"] == 1)
            f, b, m = ours["TEFF"][use], theirs["TEFF"][use], miles["TEFF"][index[use]]
            v = [np.cov(x - y, x - z)[0, 1] for x, y, z in ((f, b, m), (m, b, f), (b, f, m))]
            print("%s, %d stars: errors of Teff %s" % (kind, use.sum(), ", ".join(
                "%s %.0f K" % (name, np.sqrt(max(x, 0)))
                for name, x in zip(("fitted", "MILES's", "fundamental"), v))))

    # ---- DESI's blue stars ----

    def desi(self, label, library):
        """Yield (name, result rows, published labels) of sets that show which pipeline is wrong."""
        data, config = os.path.join(self.args.data, "real/desi-blue"), self.at("desi.yaml")
        path, own = os.path.join(data, "desi-fgk-half.fits.gz"), self.at("MILES.h5")
        with open(config, "w") as f:
            f.write(DESI_CONFIG)
        table = Table.read(os.path.join(data, "labels-half.fits"))
        theirs = {k: np.asarray(table[k]) for k in ("TARGETID", "TEFF", "LOGG", "FEH")}
        yield "DESI − other pipeline", self.fit("desi-" + label, library, config, [path]), theirs
        stars, published = self.miles_stars("miles", 0, 1)
        rows = self.fit("miles-desi-" + label, library, config, [stars])
        yield "MILES, 4000 to 5000 Å", rows, published
        if not os.path.exists(own):
            self.run("library", "spectra", "--output", own, "--range", "3950,7380", "--align",
                     "--model-error", "8", self.miles_path())
        broad = self.at("desi-broad.fits")  # DESI's spectra at the resolution of MILES
        generic.write(broad, [at_miles(s["WAVELENGTH"], s["FLUX"], s["IVAR"],
                                       np.median(s["LSF_SIGMA"]), NAME=s["NAME"],
                                       TARGETID=s["TARGETID"])
                              for s in Table.read(path)], "vacuum")
        rows = self.fit("desi-own", own, config, [broad])
        yield "DESI by MILES's spectra − other pipeline", rows, theirs

    # ---- where two libraries meet ----

    def overlap(self, *libraries):
        """Print the second library's fits of MILES stars minus the first library's, over stars
        that neither flags; then each library's velocities of synthetic spectra."""
        _, flux, labels = self.miles()
        rows = [i for i in range(len(flux)) if 6600 < labels["TEFF"][i] < 7700]
        first, second = (self.fit_miles("overlap", path, rows=rows)[0] for path in libraries)
        second = {k: second[k][match(first, second)] for k in (*COLUMNS, "SUCCESS") if k in second}
        good = (first["SUCCESS"] == 1) & (second["SUCCESS"] == 1)
        for k in (k for k in COLUMNS if k in second):
            d = (second[k] - first[k])[good]
            print("%d MILES stars, second − first: %s %+.2f ± %.2f"
                  % (len(d), COLUMNS[k], np.median(d), mad(d)))
        with fits.open(os.path.join(self.args.data, "real/marcs/marcs-fgk.fits.gz")) as h:
            card, models = h[0].header, h[0].data[h["LABELS"].data["TEFF"] >= 6500].astype(float)
        path, wave = self.at("marcs.fits"), card["CRVAL1"] + card["CDELT1"] * np.arange(len(models.T))
        generic.write(path, [at_miles(wave, x, np.full(len(x), (SN_OBSERVED / np.median(x)) ** 2),
                                      card["FWHM"] / 2.3548, 4, NAME="m%d" % i, TARGETID=i)
                             for i, x in enumerate(models)], "vacuum")
        for library in libraries:
            name = os.path.basename(library).removesuffix(".h5")
            vrad = self.fit("marcs-" + name, library, self.miles_config(library), [path])["VRAD"]
            print("%d MARCS models, %s: velocity %+.2f ± %.2f km/s"
                  % (len(vrad), name, np.median(vrad), mad(vrad)))

    # ---- sets of stars: name, result rows, published, types of stars ----

    def sets(self, label, library, half, folds):
        config = {s: os.path.join(CONFIG, s + ".yaml") for s in ("lamost", "sdss")}
        real, wanted = os.path.join(self.args.data, "real"), self.args.sets.split(",")
        if "miles" in wanted:
            yield ("MILES", *self.fit_miles("miles", half), TYPES)
            yield ("MILES with noise to S/N 30", *self.fit_miles("miles30a", half, 30, 30),
                   TYPES[:1])
        if "gbs" in wanted:
            rows, table = self.benchmarks(folds)
            self.three_errors(rows, table)
            yield "benchmark stars", rows, table, BENCHMARKS
        if "lamost" in wanted:
            stars = sorted(glob.glob(os.path.join(real, "lamost/*.fits.gz")))
            rows = self.fit("lamost-" + label, library, config["lamost"], stars)
            for table in ("Adam", "CurveFit"):
                yield "LAMOST − LASP (%s)" % table, rows, lasp(real, table), TYPES[:1]
        if "sdss" in wanted:
            stars = sorted(glob.glob(os.path.join(real, "sdss/*.fits.gz")))
            yield "SDSS", self.fit("sdss-" + label, library, config["sdss"], stars), {}, TYPES[:1]
        if "desi" in wanted:
            for part in self.desi(label, library):
                yield (*part, PIPELINES)
        for name, config, table, files in self.args.stars:
            rows = self.fit(name + "-" + label, library, config, sorted(glob.glob(files)))
            table = Table.read(table)
            yield name, rows, {k: np.asarray(table[k]) for k in table.colnames}, TYPES

    def repeats(self, label, library, half, _):
        """Yield each set of repeated observations: name, result rows, star of each row."""
        path = os.path.join(self.args.data, "real/sdss/spec-3586-55181-0500.fits.gz")
        config = self.at("single.yaml")
        with open(os.path.join(CONFIG, "sdss.yaml")) as f, open(config, "w") as out:
            out.write(f.read().replace("exposures: coadd", "exposures: single"))
        rows = self.fit("exposures-" + label, library, config, [path])
        yield "BOSS, exposures of one star", rows, np.zeros(len(rows["SN"]))
        parts = [self.fit_miles("miles30" + c, half, 30, 30 + k)[0] for k, c in enumerate("ab")]
        both = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]
                if parts[0][k].ndim == 1}
        yield "MILES, two noises of S/N 30", both, both["TARGETID"]


def at_miles(wave, flux, ivar, sigma_aa, step=1, **names):
    """Every step-th pixel of a spectrum with this line-spread sigma, at MILES's resolution."""
    good, pixel, sigma = ivar > 0, np.arange(len(flux)), FWHM_AA / 2.3548
    kernel = np.sqrt(sigma**2 - sigma_aa**2) / np.median(np.diff(wave))
    near = gaussian_filter1d((~good).astype(float), kernel) > 0.05
    flux = gaussian_filter1d(np.interp(pixel, pixel[good], flux[good]), kernel)
    return dict(WAVELENGTH=wave[::step], FLUX=flux[::step], IVAR=np.where(near, 0, ivar)[::step],
                LSF_SIGMA=np.full(len(flux[::step]), sigma), **names)


def inside(row):
    return all(low <= row[k] <= high for k, (low, high) in KEEP.items())


def lasp(real, table):
    with open(os.path.join(real, "lamost/LASP_%s_inferred.csv" % table)) as f:
        lines = list(csv.DictReader(f))
    names = {"TEFF": "pred_Teff", "LOGG": "pred_logg", "FEH": "pred_FeH", "VRAD": "pred_Rv"}
    found = {k + e: np.array([float(r[v + e.lower()]) for r in lines])
             for k, v in names.items() for e in ("", "_ERR")}
    found["PATH"] = np.array([r["ID"].replace(".gz", "") + ".gz" for r in lines])
    return found


def match(rows, published):
    """Index into published of each row, -1 for none."""
    key = next((k for k in ("TARGETID", "PATH", "NAME") if k in published), None)
    if key is None:
        sys.exit("a table of published labels has neither TARGETID nor NAME")
    at = {v: i for i, v in enumerate(published[key].astype(rows[key].dtype))}
    return np.array([at.get(v, -1) for v in rows[key]])


def compare(rows, published):
    """Return our and published values of stars that have both, within KEEP, with S/N > MIN_SN."""
    use, theirs = rows["SN"] > MIN_SN, {"SN": rows["SN"]}
    if published:
        index = match(rows, published)
        use &= index >= 0
        for k, v in published.items():  # in the order of our rows; an error may be a single number
            if k.removesuffix("_ERR") in COLUMNS:
                theirs[k] = np.broadcast_to(np.asarray(v, float), len(published["TEFF"]))[index]
        for k, (low, high) in KEEP.items():
            use &= (theirs[k] >= low) & (theirs[k] <= high)
    ours = {k: v[use] for k, v in rows.items() if v.ndim == 1}
    return ours, {k: v[use] for k, v in theirs.items()}


def in_errors(ours, theirs, k):
    """Differences in units of the errors, ours and theirs together."""
    return (ours[k] - theirs[k]) / np.hypot(ours[k + "_ERR"], theirs.get(k + "_ERR", 0))


def cells(ours, theirs, kind):
    """Return a table's cells for a type of star: stars, flagged stars, chi-square, each column."""
    of_type = kind(theirs)
    good = of_type & (ours["SUCCESS"] == 1)
    out = ["%d" % of_type.sum(), "%d" % (of_type & ~good).sum(), chi_square(ours, good)]
    for k in COLUMNS:
        if k not in theirs or k not in ours or good.sum() < 3:
            out.append("")
            continue
        d, width = (ours[k] - theirs[k])[good], mad(in_errors(ours, theirs, k)[good])
        digits = {"TEFF": 0, "VRAD": 1}.get(k, 2)
        cell = "%+.*f ± %.*f (%.1f)" % (digits, np.median(d), digits, mad(d), width)
        out.append(re.sub(r"[+-](0(\.0+)? )", r"\1", cell).replace("-", MINUS))  # 0 without a sign
    return out


def chi_square(rows, use):
    return "%.2f" % np.median(rows["RCHISQ_TOT"][use]) if use.any() else ""


def print_table(lines):
    """Lines of cells, without columns of nothing."""
    names = ["stars", "library", "number", "flagged", "reduced χ²", *COLUMNS.values()]
    use = [i for i in range(len(names)) if any(line[i] for line in lines)]
    for line in (names, ["---"] * len(names), *lines):
        print("| %s |" % " | ".join(line[i] for i in use))


def repeat_line(library, what, rows, star):
    """Scatter about each star's mean, absolute and in units of the stated errors."""
    use = rows["SUCCESS"] == 1
    line, n = [], 0
    for k, digits in zip(COLUMNS, (0, 2, 2, 2, 1)):
        pull, size = [], []
        for s in np.unique(star[use]) if k in rows else ():
            i = use & (star == s)
            if i.sum() < 2:
                continue
            x, e = rows[k][i], rows[k + "_ERR"][i]
            free = np.sqrt(i.sum() / (i.sum() - 1))  # as the mean is fitted to them
            d = (x - np.average(x, weights=e**-2.0)) * free
            pull.extend(d / e)
            size.extend(d)
        n = max(n, len(pull))
        # of fewer than 30 numbers the rms is more precise than the MAD
        width = (lambda x: np.sqrt(np.mean(np.square(x)))) if len(pull) < 30 else (
            lambda x: 1.4826 * np.median(np.abs(x)))
        line.append("± %.*f (%.1f)" % (digits, width(size), width(pull)) if pull else "")
    return [what, library, "%d" % n, "%d" % (~use).sum(), chi_square(rows, use), *line]


def print_all(campaign, libraries):
    """Print the table of libraries [(name, LIB.h5, HALF.h5, FOLD%d.h5)]; draw figures."""
    found, repeats, lines = {}, {}, []  # found: {set: [(library, types of stars, ours, theirs)]}
    for name, path, *others in libraries:
        where = os.path.basename(path).removesuffix(".h5"), path, *others
        for what, rows, published, types in campaign.sets(*where):
            found.setdefault(what, []).append((name, types, *compare(rows, published)))
        if "repeats" in campaign.args.sets.split(","):
            for what, *repeat in campaign.repeats(*where):
                repeats.setdefault(what, []).append(repeat_line(name, what, *repeat))
    for what, parts in found.items():
        for kind, of_type in parts[0][1]:  # a line for each type of star and library
            lines += [[what + ": " + kind, name, *cells(ours, theirs, of_type)]
                      for name, _, ours, theirs in parts
                      if kind == "all" or of_type(theirs).sum() >= MIN_STARS]
    for part in repeats.values():
        lines += [line for line in part if line[2] != "0"]  # line[2]: number of spectra
    print_table(lines)
    if campaign.args.figures:
        draw({k: parts for k, parts in found.items() if k in ("MILES", "LAMOST − LASP (Adam)")},
             campaign.args.figures)


# ---- figures ----

# Teff, log g of isochrones by Hurley, Pols & Tout (2000, MNRAS 315, 543), from COSMIC 4.3.3: Z
# 0.014 and 0.0028, which with [alpha/Fe] 0.4 is [Fe/H] = -1
LOCI = {
    "[Fe/H] = 0, 4 Gyr": (
        (3700, 4.87), (4290, 4.65), (4930, 4.58), (5570, 4.51), (6160, 4.29), (6070, 4.03),
        (6110, 3.86), (5490, 3.72), (5180, 3.65), (4910, 3.52), (4720, 2.91), (4460, 2.32),
        (4160, 1.75), (3860, 1.19)),
    "−1, 12 Gyr": (
        (3850, 4.89), (4250, 4.77), (4670, 4.69), (5090, 4.62), (5500, 4.52), (5890, 4.35),
        (6020, 4.19), (5910, 4.03), (5540, 3.83), (5370, 3.71), (5330, 3.50), (5070, 2.67),
        (4870, 2.26), (4360, 1.42), (3850, 0.68)),
}


def draw(found, folder):
    """kiel.png and coverage.png of {set of stars: [(library, types, ours, published)]}."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [part[0] for part in next(iter(found.values()))]
    figure, axes = plt.subplots(len(found), 1 + len(names), figsize=(3 + 3 * len(names), 7),
                                sharex=True, sharey=True, squeeze=False, layout="constrained")
    color = dict(cmap="viridis_r", vmin=-2, vmax=0.4)
    for row, (what, parts) in zip(axes, found.items()):
        panels = [("published", parts[0][3], True)]
        panels += [(name, ours, ours["SUCCESS"] == 1) for name, _, ours, _ in parts]
        for axis, (name, labels, use) in zip(row, panels):
            x, y, c = (labels[k][use].ravel() for k in ("TEFF", "LOGG", "FEH"))
            points = axis.scatter(x, y, 8, c, **color)
            for style, (feh, locus) in zip(("-", "--"), LOCI.items()):
                axis.plot(*np.transpose(locus), "k" + style, lw=1, label=feh)
            axis.set_title("%s: %s" % (what.split()[0], name), fontsize=10)
    axes[0, 0].set(xlim=(7400, 3900), ylim=(5.2, 0.2))
    axes[-1, 0].legend(loc="upper left", fontsize=8)
    figure.supxlabel("Teff, K")
    figure.supylabel("log g, log(cm s⁻²)")
    figure.colorbar(points, ax=axes, label="[Fe/H], dex", aspect=40)
    figure.savefig(os.path.join(folder, "kiel.png"), dpi=85)

    figure, axes = plt.subplots(len(names), 3, figsize=(9, 1 + 2.5 * len(names)), sharex=True,
                                sharey=True, squeeze=False, layout="constrained")
    x = np.linspace(0, 4, 201)
    for row, name in zip(axes, names):
        for axis, k in zip(row, KEEP):
            axis.plot(x, [erf(v / 2**0.5) for v in x], "k", lw=1, label="Gaussian")
            for what, parts in found.items():
                _, types, ours, theirs = next(part for part in parts if part[0] == name)
                apart = [t for t in types if t[0].startswith(("dwarfs", "giants"))]
                for kind, of_type in apart or types:
                    pull = abs(in_errors(ours, theirs, k)[of_type(theirs) & (ours["SUCCESS"] == 1)])
                    if len(pull) >= MIN_STARS:
                        axis.plot(x, [(pull <= v).mean() for v in x], label="%s, %s" % (
                            what.split()[0], kind.split(":")[0]))
            axis.set_title("%s: %s" % (name, COLUMNS[k].split(",")[0]), fontsize=10)
    axes[0, 0].set(xlim=(0, 4), ylim=(0, 1))
    axes[0, 0].legend(loc="lower right", fontsize=8)
    figure.supxlabel("|ours − published| in errors, ours and published together")
    figure.supylabel("share of stars within")
    figure.savefig(os.path.join(folder, "coverage.png"), dpi=85)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].replace("%", "%%"), add_help=False,
                                     description=__doc__)
    root = SOURCE
    parser.add_argument("--starmill", default=os.path.join(root, "build/release/starmill"))
    parser.add_argument("--data", default=os.environ.get("STARMILL_TEST_DATA", ""))
    parser.add_argument("--sets", default="gbs,lamost,sdss,miles,repeats")
    parser.add_argument("--stars", nargs=4, action="append", default=[])
    parser.add_argument("--hot", action="store_true")
    parser.add_argument("--figures")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("work")
    parser.add_argument("library", nargs="+")
    args = parser.parse_args()
    if args.hot:
        KEEP.update(TEFF=(7000, 15000), LOGG=(2, 5))
        MILES_ERR.clear()  # those are of cooler stars
    if args.figures and not {"lamost", "miles"} & set(args.sets.split(",")):
        parser.error("--figures draws lamost and miles: add one to --sets")
    unknown = set(args.sets.split(",")) - {"gbs", "lamost", "sdss", "miles", "repeats", "desi",
                                           "overlap", ""}
    if unknown:
        parser.error("no set " + ", ".join(sorted(unknown)))
    if args.sets and not os.path.isdir(os.path.join(args.data, "real")):
        parser.error("--data %s has no folder named real" % args.data)
    campaign = Campaign(args)
    libraries = []
    for argument in args.library:
        name, equal, paths = argument.rpartition("=")
        path, half, folds = (*paths.split(","), "", "")[:3]  # "" where not given
        libraries.append((name if equal else os.path.basename(path).removesuffix(".h5"), path,
                          half or path, folds or path))
    files = [os.path.basename(f) for _, *paths in libraries for f in set(paths)]
    if len(set(files)) < len(files):
        parser.error("two libraries have the same file name, and so would their files in WORK: "
                     "rename one")
    if "overlap" in args.sets.split(","):
        campaign.overlap(*[path for _, path, *_ in libraries[:2]])
    print_all(campaign, libraries)


if __name__ == "__main__":
    main()
