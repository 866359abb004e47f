# SPDX-License-Identifier: BSD-3-Clause
"""Command lines of the jobs that read a result."""

import math

from starmill.cli.options import Job

UNREADABLE = "Exit status: 0: done; 2: usage, or Python or a package is missing; 4: OUT.h5 " \
    "cannot be read"
STARS = 2, math.inf, "a result and one or more stars"


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
               "contents of a line: TARGETID, without it OBJECT, without both IDENTIFIER (default); "
               "IDENTIFIER, which names this spectrum alone; or the row, counted from 0")
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
    job.add("output", "folder of rvtab and rvmod files, made if needed; else the file or the folder "
            "of the catalogue", needed=True)
    job.add("models", "models file of the result, for rvmod")
    job.add("prefix", "prefix of an input's name (default rvtab- or rvmod-; rvspecfit uses rvtab_ "
            "and rvmod_)", "TEXT")
    job.flag("subdirs", "keep the last two folders of each input's path below the output folder, "
             "as rvspecfit does")
    job.flag("no-fibermap", "write rvtab and rvmod without the inputs' tables; the inputs may then "
             "be gone")
    job.flag("calibrated", "errors of values by the factors and floors of starmill merge "
             "--calibrate")
    job.number("workers", 1, 1024, "processes that share the inputs (default: the cores that it "
               "may run on)")
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
    job.flag("primary", "add /catalog/PRIMARY: 1 in one row of each star, the best one")
    job.flag("calibrate", "add to /fits the factor and the floor of each error by which repeats of "
             "stars differ as their errors say (needs scipy)")
    job.flag("quiet", "print no summary")
    return job


def compare():
    job = Job("compare", "products.compare", "A B [--figure FILE.png] [--list FILE.csv]", """\
Compare two results of the same stars, star by star.  A and B are results of starmill fit
(HDF5), FITS files of starmill export, or rvtab files of rvspecfit or starmill; differences
are B - A.  Several rvtab files may be joined by commas.  Stars are matched by TARGETID, and
by EXPID too if both files have it; without TARGETID, by OBJECT.  Rows whose key is repeated in
a file are counted and left out.""", "numpy scipy h5py astropy", """\
Exit status: 0: done; 2: usage, or no star is in both files; 4: a file cannot be read or
written.""",
              (2, 2, "two results"))
    job.add("figure", "draw the differences into this file (needs matplotlib)", "FILE.png")
    job.add("list", "write all matched stars there", "FILE.csv")
    job.flag("all", "compare also rows with warnings; by default those without one in both")
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
    job.flag("json", "JSON instead of text: state, counts, and under \"run\" the contents of the "
             "status file (docs/use/formats.md)")
    return job
