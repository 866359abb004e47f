# SPDX-License-Identifier: BSD-3-Clause
"""Command line of `starmill convert`."""

import math

from starmill.cli.options import Job
from starmill.templates.options import add_positive, add_waves


def convert():
    job = Job("convert", "surveys.convert", "--output OUT.fits [options] FILE|FOLDER...", """\
Make a table of spectra of any origin, which starmill fit reads (format generic).  A file has
one spectrum: text or CSV with or without a header, an array .npy, a FITS image (IRAF, ESO)
or a FITS table (docs/use/input.md).  Folders are read with their subfolders.""",
              "numpy scipy astropy", """\
Exit status: 0: done; 2: usage; 3: some or all files were unreadable; 4: the output cannot be
written; 75: stopped, nothing was written.""",
              (1, math.inf, "files or folders of spectra"))
    job.add("output", "the table to write", "OUT.fits", needed=True)
    job.flag("overwrite", "replace OUT.fits if it exists")
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
