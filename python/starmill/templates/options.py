# SPDX-License-Identifier: BSD-3-Clause
"""Command lines of `starmill library`; that of train is in jobs/library/train_options.c."""

import math

from starmill.cli.options import Job, Once

NEEDS = "numpy scipy h5py astropy cffi"
MAX_ARM, MAX_WIDTH, MAX_ERROR, MAX_CONTINUUM = 8, 1024, 16, 24  # limits of a library
MAX_SKY = 12


def add_output(job):
    job.add("output", "the library to write", "LIB.h5", needed=True)
    job.flag("overwrite", "replace LIB.h5 if it exists")


def add_positive(job, name, says, metavar="X"):
    job.number(name, 0, math.inf, says, kind=float, metavar=metavar, above=True)


def add_noise(job):
    job.number("spectra-sn", 1, math.inf, "S/N of a pixel of the spectra, to separate noise from "
               "model error (default: no noise)", kind=float)


def add_table(job):
    job.add("table", "table with the labels of files with one spectrum (default: their cards)")
    job.add("name-column", "column of the table with the files' names, with or without .fits "
            "(default FILE)", "NAME")


def add_waves(job):
    job.choice("medium", ("air", "vacuum"), None,
               "medium of the wavelengths; needed unless a header gives it")
    job.add("wave-file", "image with the wavelengths of all spectra, Angstrom")
    job.pair("wave", "FIRST,STEP", "wavelengths in Angstrom (default: from the header)")
    job.pair("log-wave", "FIRST,STEP", "the same, log10 of Angstrom")
    job.exclusive.append(("wave", "log-wave", "wave-file", "columns"))


def build():
    job = Job("library build", "templates.build",
              "--output GRID.h5 --setup FILE.yaml [options] FOLDER|LIST|FILE.fits...", """\
build makes a grid file from spectra with labels: FITS files with one spectrum each (given as
names, folders with subfolders, or text files of one path a line), or one file with an image of
spectra and a table, or a cube whose axes are labels (docs/use/libraries.md).  The same command
continues what was interrupted.""", "numpy scipy h5py astropy yaml", "", (
        1, math.inf, "spectra: a folder, files of one spectrum each, or one file of many"))
    job.is_shared = True
    job.add("output", "the grid file to write, or to continue", "GRID.h5", needed=True)
    job.flag("overwrite", "start over in GRID.h5.new, which replaces GRID.h5 when it is complete; "
             "the same command continues it")
    job.flag("retry-bad", "read the bad models of GRID.h5 again, e.g. after their files were "
             "repaired")
    job.add("setup", "wavelengths, pixels and resolution of the arms (config/templates has those "
            "of surveys)", "FILE.yaml", needed=True)
    job.add("labels", "labels, and the cards, columns, or axes of a cube (CTYPE or CNAME) that "
            "hold them (default teff=TEFF,logg=LOGG,feh=FEH; PHOENIX: "
            "teff=PHXTEFF,logg=PHXLOGG,feh=PHXM_H,alpha=PHXALPHA)", "NAME=COLUMN,...")
    job.add("name-pattern", "labels from the files' names: t{teff}g{logg}z{feh}.fits; * is "
            "anything, {logg/10} a number ten times the label, p and m are signs", "PATTERN")
    add_table(job)
    job.add("columns", "columns of files with one spectrum in a table (default: an image)",
            "WAVE,FLUX[,CONTINUUM]")
    add_waves(job)
    job.add("keep", "only models with labels in these ranges, ends included", "NAME=MIN:MAX,...")
    job.add("exclude", "drop models inside all of these ranges; a ; begins other ranges",
            "NAME=MIN:MAX,...", action=Once)
    job.number("native-sigma", 0, 1e4, "resolution of the input as a Gaussian sigma in Angstrom; "
               "0: negligible (default: card FWHM)", kind=float, metavar="A")
    add_positive(job, "native-resolving-power", "the same, as wavelength over FWHM", "R")
    job.choice("normalise", ("none", "median", "smooth-median"), "smooth-median",
               "divide each arm of a model by its median, its smooth median or nothing (default "
               "smooth-median)")
    job.add("stop-file", "stop in good order, with exit status 75, when this file appears")
    job.number("workers", 1, 4096, "processes that share the models (default: one for each core "
               "available)")
    job.exclusive += [("overwrite", "retry-bad"), ("native-sigma", "native-resolving-power"),
                      ("table", "name-pattern")]
    return job


def import_():
    job = Job("library import", "templates.emulator_files",
              "--output LIB.h5 [options] EMULATOR.h5...", """\
import makes a library from emulators trained elsewhere, one file per arm (layout:
docs/use/formats.md), and checks them against the reference values in the files.  It also
takes rvspecfit's networks, interp_SETUP.h5 with NNstate_SETUP.sav in the same folder.""",
              "numpy scipy h5py cffi", "", (1, MAX_ARM, "emulator files, one per arm"),
              ", for rvspecfit's networks also torch")
    add_output(job)
    job.add("template-sigma", "Gaussian sigma of the templates in Angstrom, removed from the "
            "spectra's resolution matrix; one for all arms, or one per file", "A|A,A,A")
    job.flag("at-instrument-resolution",
             "the templates have the instrument's own resolution (default: sigma 0.5 when the "
             "revision ends in rm or resolmat, else the instrument's resolution)")

    def names(text):
        found = text.split(",")
        if len(found) > MAX_ARM or not all(0 < len(name.encode()) < 32 for name in found):
            raise ValueError(f"up to {MAX_ARM} names of 1 to 31 characters separated by commas")
        return found
    job.add("arm-names", "names of the arms, in the order of the files (default: the end of each "
            "file's setup, after its last _)", "b,r,z", names)
    job.number("guess-templates", 1, 10000, "templates of the initial guess", 50)
    job.exclusive.append(("template-sigma", "at-instrument-resolution"))
    return job


def spectra():
    job = Job("library spectra", "templates.spectra",
              "--output LIB.h5 [options] FILE.fits|FOLDER|LIST|FILE.fits...", """\
spectra makes a library from labelled spectra: a FITS file with an image of spectra and a
table of labels, a cube whose axes are labels, or a folder of files with one spectrum each
(docs/use/libraries.md).""", NEEDS, "", (
        1, math.inf, "one file of spectra, a folder, or several files of one spectrum each"))
    add_output(job)
    job.add("labels", "labels of the library, and the columns of the table, cards of files with "
            "one spectrum, or axes of a cube (CTYPE or CNAME) that hold them (default "
            "teff=TEFF,logg=LOGG,feh=FEH)", "NAME=COLUMN,...")
    add_table(job)
    job.add("columns", "columns of files with one spectrum in a table (default: an image)",
            "WAVE,FLUX")
    add_waves(job)
    job.add("keep", "drop spectra with labels outside these ranges", "NAME=MIN:MAX,...")
    job.pair("range", "MIN,MAX", "range of the library in vacuum wavelengths, Angstrom (default: "
             "all)", least=0, most=1e6)
    job.add("arm", "name of its arm (default opt)", "NAME", default="opt")
    add_positive(job, "fwhm", "resolution of the spectra in Angstrom (default: FWHM of the header)",
                 "A")
    add_positive(job, "sigma", "the same, as the sigma of a Gaussian", "A")
    add_positive(job, "resolving-power", "the same, as wavelength over FWHM")
    job.flag("at-instrument-resolution", "the spectra have the resolution of the instrument whose "
             "stars will be fitted")
    job.exclusive.append(("fwhm", "sigma", "resolving-power", "at-instrument-resolution"))

    def degree(text):
        if text != "keep" and not (text.isdecimal() and int(text) <= 20):
            raise ValueError("an integer from 0 to 20, or keep")
        return -1 if text == "keep" else int(text)
    job.add("continuum", "degree of the polynomials removed from ln flux (default 8)", "N|keep",
            degree, default=8)
    job.number("components", 1, MAX_WIDTH, "principal components", 40)
    job.number("degree", 1, 3, "degree of the polynomial added to the radial functions", 2)
    add_positive(job, "smoothing", "smoothing of all components (default: of each by "
                 "leave-one-out)")
    job.flag("keep-outliers", "keep spectra unlike those with similar labels, at full weight")
    job.flag("align", "measure the velocities of the spectra and remove them")
    job.choice("hull", ("all", "dense"), None, "hulls of the labels: around all spectra, or "
               "without isolated ones (default: all with --keep-outliers, else dense)")
    job.number("guess-templates", 1, 10000, "most templates of the initial guess", 300)
    job.number("left-out", 0, 0.5, "fraction of the spectra to leave out of a second library that "
               "measures this one (default 0.1); 0: no report", kind=float, metavar="PART")
    job.number("seed", 0, 2**64 - 1, "seed of the choice of spectra to leave out (default 1)")
    job.number("model-error", 0, MAX_ERROR, "measure the model error on the spectra left out, with "
               "N components, for use by fits (default: no)")
    add_noise(job)
    job.number("threads", 1, 4096, "threads; their number changes the last digits (default: all "
               "cores available to this process)")
    return job


def add_labelled(job):
    """Add the options of jobs that compare a library with spectra of known labels."""
    add_output(job)
    job.add("spectra", "an image of spectra and a table of their labels, as library spectra reads "
            "them", "FILE.fits", needed=True)
    job.add("columns", "columns of the labels, in the library's order (default: the library's own)",
            "TEFF,LOGG,...")
    job.choice("medium", ("auto", "vacuum", "air"), "auto",
               "medium of the wavelengths; auto (default) follows the header")
    job.number("continuum", 4, MAX_CONTINUUM,
               "continuum functions per spectrum in an arm, as in the fits", 10)
    add_noise(job)
    job.number("spectra-sigma", 0, math.inf, "resolution of the spectra, Gaussian sigma in "
               "Angstrom (default: their card FWHM, else that of the templates)", kind=float,
               metavar="A")


def model_error():
    job = Job("library model-error", "templates.model_error",
              "--spectra FILE.fits --output LIB.h5 [options] LIBRARY.h5", """\
model-error measures the error of a library's templates from rest-frame spectra with known
labels, at the templates' resolution or lower, and writes the library with this error.""",
              NEEDS, "", (1, 1, "one library"))
    add_labelled(job)
    job.add("arms", "arms to measure (default: those at least half covered by the spectra); the "
            "others keep their model error", "b,r")
    job.number("components", 0, MAX_ERROR, "principal components per arm", 8)
    return job


def correct():
    job = Job("library correct", "templates.correct",
              "--spectra FILE.fits --output LIB.h5 [options] LIBRARY.h5", """\
correct learns the errors of a library's templates from rest-frame spectra with known labels, as
smooth functions of the labels, removes them, and measures the remaining model error.""",
              NEEDS, "", (1, 1, "one library"))
    add_labelled(job)
    job.add("assumed", "labels of the spectra that are assumed, not measured: the correction does "
            "not depend on them", "alpha,...")
    job.add("error-columns", "columns of the labels' errors, in the library's order, NaN but for "
            "benchmark stars: all labels are brought to their scale", "TEFF_ERR,LOGG_ERR,...")
    job.pair("range", "MIN,MAX", "wavelengths to correct, A in vacuum (default: of the spectra)",
             least=0, most=1e6)
    job.add("mask", "wavelengths not to correct, A in vacuum", "MIN:MAX,...")
    job.number("degree", 0, 3, "degree of the polynomials, 0: same change at all labels (default: "
               "1 to 3, chosen by spectra left out)")
    job.add("label-errors", "errors of the spectra's labels, in the library's order and units; "
            "they also raise the floors of errors until fitted and given labels agree within both "
            "(default: the library's typical errors, without effect on the floors)", "X,...")
    job.number("components", 0, MAX_ERROR, "principal components of the model error", 4)
    return job


def sky():
    job = Job("library sky", "templates.sky", "--output SKY.h5 [options] FILE.fits...", """\
sky makes the file of the key sky_components: the residuals of sky subtraction, as principal
components of the sky fibres (OBJTYPE SKY) of DESI's coadd or spectra files.""", NEEDS, "",
              (1, math.inf, "files with sky fibres, of the kind to be fitted"))
    job.add("output", "the file to write", "SKY.h5", needed=True)
    job.flag("overwrite", "replace SKY.h5 if it exists")
    job.number("components", 1, MAX_SKY, "most principal components per arm", 3)
    return job


def info():
    return Job("library info", "templates.info", "LIB.h5|GRID.h5",
               "info describes a library or a grid file.", "numpy h5py cffi", "",
               (1, 1, "one library or grid file"))
