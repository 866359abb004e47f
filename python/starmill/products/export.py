# SPDX-License-Identifier: BSD-3-Clause
"""`starmill export`: write a result as rvspecfit's files, or as one table of all columns."""

import collections
import contextlib
import functools
import os
import sys
import time
import warnings

import astropy
import h5py

from starmill.cli import running
from starmill.cli.basics import (INPUT, OUTPUT, USAGE, Failure, catch_stops, check_packages,
                                 check_text, make_folder, need, printable, refuse_input, warn)
from starmill.products import rvtab, table
from starmill.products.models import Models
from starmill.products.result import Result, text
from starmill.products.table import head, is_done, words, writing_product

INCOMPLETE = 3  # exit status: products or rows are missing
FITS = ("fits", "epochs")  # kinds of one FITS file in all; TABLES: kinds of one file
TABLES = (*FITS, *table.WRITE, "hats")
GROUPING = ("SPGRP", "SPGRPVAL", "TILEID", "SPECTRO", "PETAL", "NIGHT", "EXPID", "HPXPIXEL",
            "HPXNSIDE", "HPXNEST", "UNIQPIX", "SURVEY", "PROGRAM")  # keywords copied from an input

# The outcome for one input.  what: "written", "existing", "unreadable", "empty", "left out" or
# "refused".  says: message of a failure.  n_damaged: damaged rows, which are left out.
Done = collections.namedtuple("Done", "what says n_damaged", defaults=(None, 0))


def check(options):
    """Refuse options that do not belong together; set the default prefix."""
    kind = options.to
    of_inputs = dict.fromkeys(("prefix", "subdirs", "no_fibermap", "workers"), ("rvtab", "rvmod"))
    for name, of in {"models": ("rvmod",), **of_inputs,
                     "calibrated": ("rvtab", "fits", *table.WRITE, "hats")}.items():
        need(not getattr(options, name) or kind in of, USAGE, f"--{name.replace('_', '-')} does "
             f"not apply to --to {kind}; see starmill export --help")
    check_packages(*table.NEEDS.get(kind, ()))
    need(kind != "rvmod" or options.models, USAGE, "rvmod needs the best-fit models: give --models "
         "MODELS.h5, the file written by fit --models")
    need(not options.prefix or "/" not in options.prefix, USAGE,
         f"--prefix {options.prefix}: a file's prefix has no '/'; give folders with --output")
    if options.prefix is None and kind not in TABLES:
        options.prefix = kind + "-"


def name_of(path, subdirs, prefix):
    """Return the path of an input's product below the output folder, without .gz."""
    *folders, name = path.split("/")
    below = [f for f in folders if f not in ("", ".")][-2:] if subdirs else []
    need(".." not in below, USAGE, f"--subdirs: the product of {path} would lie outside the output "
         "folder: fit with paths without '..', or export without --subdirs")
    return os.path.join(*below, prefix + (name[:-3] if name.endswith(".gz") else name))


def names_of(result, subdirs, prefix):
    """Return the paths of the inputs' products, None for an input without rows."""
    names = [name_of(path, subdirs, prefix) if n else None
             for path, n in zip(result.files, result.catalog["files/N_ROW"][...])]
    advice = "fit them into different results" if subdirs else \
        "give --subdirs, which keeps the last two folders of inputs"
    for name, n in collections.Counter(filter(None, names)).items():
        need(n == 1, USAGE, f"two inputs would have the product {name}: {advice}")
    return names


def primary(result, kind, n_left_out, i=None, file=None):
    """Return the primary header.  rvspecfit's keywords say what made the result; EXPORTED holds
    `kind`, which is_done checks.  i: input of the product; None: all inputs.  file: the input, an
    opened DESI file, whose keywords listed in GROUPING are copied; None: copy no keywords."""
    header, said, files = head(""), result.provenance, result.catalog["files"]
    header["LONGSTRN"] = "OGIP 1.0"  # long values continue in CONTINUE cards
    header["EXPORTED"] = kind, "by starmill export"
    header["RUNID"] = words(said["RUN_ID"]), "of the result"
    if n_left_out:
        header["LEFTOUT"] = n_left_out, "damaged rows of the result that are not here"
    for k, (name, version) in enumerate((("starmill", f"{said['VERSION']} ({said['REVISION']})"),
                                         ("astropy", astropy.__version__),
                                         ("hdf5", h5py.version.hdf5_version))):
        header[f"DEPNAM{k:02d}"] = name, f"software of the {'export' if k else 'fit'}"
        header[f"DEPVER{k:02d}"] = words(version), "version"
    for k, arm in enumerate(result.arms):
        header[f"TMPLCON{k}"] = words(arm.lower()), "arm"
        header[f"TMPLREV{k}"] = words(said["LIBRARY_NAME"]), "template library"
        header[f"TMPLSVR{k}"] = words(said["LIBRARY_HASH"])
    header["RVS_CONF"] = words(f"{result.path}:/provenance/CONFIG", True)
    header["RVS_CMD"] = words(said["COMMAND"])
    header["RR_FILE"] = words(files["REDROCK"][i], True) if i is not None else ""
    if i is not None:
        header["INPUT"] = words(result.files[i], True)
        frame = text(files["FRAME"][i])
        if frame.endswith("centric"):
            header["SPECSYS"] = frame[:8].upper(), "frame of wavelengths and velocities"
    for key in GROUPING if file is not None else ():
        if key in file[0].header:
            header.append(file[0].header.cards[key])
    return header


class Export:
    """Writes the products of a result; each process has its own Export."""

    def __init__(self, options):
        self.options, self.result = options, Result(options.arguments[0])
        self.models = Models(options.models, self.result) if options.models else None
        self.kind = {"fits": "table"}.get(options.to, options.to) + \
            " alone" * options.no_fibermap + " calibrated" * options.calibrated
        self.uncalibrated = self.result.calibrate() if options.calibrated else ""
        self.names = names_of(self.result, options.subdirs, options.prefix) \
            if options.to not in TABLES else []
        need(options.to != "epochs" or self.result.epochs is not None, USAGE,
             f"{self.result.path} has no epochs: fit with --epochs exposure, or night")

    def product(self, i):
        """Make the product of input i; return a Done."""
        if not self.names[i]:
            return Done("unreadable" if self.result.catalog["files/ERROR"][i] else "empty")
        path = os.path.join(self.options.output, self.names[i])
        try:
            if is_done(path, self.kind, self.result, self.options.overwrite) is not None:
                return Done("existing")
        except Failure as failure:
            return Done("refused", str(failure))
        try:
            return Done("written", n_damaged=self._write(path, i))
        except Failure as failure:
            if failure.status != INPUT:
                raise
            return Done("left out", str(failure))

    def _write(self, path, i):
        """Write the product of input i; return its number of damaged rows."""
        result = self.result
        start, stop = rvtab.span(result, i)
        whole = result.whole(start, stop)
        n_left_out = int((~whole).sum())
        spectra = rvtab.carried(result, i, whole, self.models is not None)
        has_map = contextlib.nullcontext() if self.options.no_fibermap else \
            rvtab.opened(result, i, spectra)
        with has_map as file:
            folder = self.options.output
            for below in self.names[i].split("/")[:-1]:
                folder = os.path.join(folder, below)
                make_folder(folder)
            with writing_product(path) as product:
                is_done(path, self.kind, result, self.options.overwrite)  # by another job meanwhile
                product.append(primary(result, self.kind, n_left_out, i, file))
                if self.models:
                    rvtab.write_models(product, self.models, file, spectra)
                else:
                    table.write(product, rvtab.columns(result), "RVTAB", result, start, whole)
                    if file is not None:
                        rvtab.copy_tables(product, file, spectra)
        return n_left_out

    def table(self):
        """Write the table of all rows; return a Done."""
        result, path, to = self.result, self.options.output, self.options.to
        self.n_row = len((result.epochs if to == "epochs" else result.fits)["VRAD"])
        if self.found(path) is not None:
            return Done("existing")
        whole = result.whole(0, result.n_row)
        n_left_out = int((~whole).sum())
        self.n_row -= n_left_out
        first = primary(result, self.kind, n_left_out)
        if to == "hats":
            self.n_row -= table.hats(path, *self.parts(first, whole))  # rows without a position
            return Done("written", n_damaged=n_left_out)
        with writing_product(path) as product:
            self.found(path)  # by another job meanwhile
            if to in table.WRITE:
                table.WRITE[to](product, *self.parts(first, whole))
            else:
                product.append(first)
                if to == "epochs":
                    self.n_row = rvtab.write_epochs(product, result, whole)
                else:
                    table.write(product, table.whole(result), "STARMILL", result, 0, whole)
                table.write_files(product, result)
        return Done("written", n_damaged=n_left_out)

    def parts(self, header, whole):
        """Return what writers of non-FITS formats take: columns, result, mask of rows, facts."""
        facts = [(key, str(value)) for key, value in header.items()
                 if key not in (*head(""), "LONGSTRN")]
        facts += [(key, words(value)) for key, (value, _) in table.meanings(self.result).items()]
        return table.calibrated(table.whole(self.result), self.result), self.result, whole, facts

    def found(self, path):
        """For a FITS output return is_done(); refuse an existing output of another format."""
        if self.options.to in FITS:
            return is_done(path, self.kind, self.result, self.options.overwrite)
        need(self.options.to != "hats" or not os.path.lexists(path), OUTPUT,
             f"{path} exists: give another name, or remove it yourself")
        check_text(path, self.options.overwrite, ())
        return None


_export = None


def product(options, i):
    """Make the product of input i in a worker, which opens its own files."""
    global _export
    _export = _export or Export(options)
    return _export.product(i)


def main(options):
    start = time.monotonic()
    check(options)
    catch_stops()
    warnings.simplefilter("ignore")  # astropy's, about odd headers of inputs
    export = Export(options)
    refuse_input(options.output, export.result.reads(options))
    result, n, n_damaged = export.result, collections.Counter(), 0
    need(result.finished, USAGE,
         f"{result.path} is not finished: give the command of the fit again")
    n_file = len(export.names)
    if options.to in TABLES:
        products = [export.table()]
    else:
        make_folder(options.output)
        products = running.each(functools.partial(product, options), range(n_file),
                                min(running.n_workers(options.workers), max(1, n_file)))
    progress = running.Progress(n_file, "inputs")
    for done in products:
        n[done.what] += 1
        if not options.quiet:
            progress.update(sum(n.values()), n["left out"])
        n_damaged += done.n_damaged
        if done.says:
            print(printable(f"starmill export: {done.says}"), file=sys.stderr)
    progress.end()
    if n_damaged:
        warn(f"{n_damaged} rows of {result.path} are damaged and left out: CRC or STATUS is wrong; "
             "starmill status names them")
    n_bare = len(export.models.missing(range(result.n_row))) if export.models else 0
    if n_bare:
        warn(f"{options.models} has no models of {n_bare} stars, which a run without --models "
             "fitted: theirs are NaN; fit --overwrite --models makes all models")
    if export.uncalibrated:
        warn(export.uncalibrated)
    need(not n["refused"], OUTPUT,
         f"{n['refused']} products could not be written: give another folder, or --overwrite")
    if not options.quiet:
        print(f"rows         {export.n_row}" if options.to in TABLES
              else f"written      {n['written']}")
        for what, says in (("existing", "complete products of this result"),
                           ("left out", "inputs, for the reasons above"),
                           ("empty", "inputs: no row begins there"),
                           ("unreadable", "inputs, when they were fitted")):
            if n[what]:
                print(f"{what:12} {n[what]} {says}")
        print(f"time         {time.monotonic() - start:.2f} s\noutput       {options.output}")
    return INCOMPLETE if n_damaged or n["left out"] or n["unreadable"] or n_bare else 0
