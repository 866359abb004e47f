# SPDX-License-Identifier: BSD-3-Clause
"""Reads spectra with labels from FITS files (docs/use/libraries.md, "What is read").  A Source
reads them one by one; read_all reads all and brings them to the same wavelengths."""

import contextlib
import hashlib
import os
import re
import stat
from dataclasses import dataclass, field

import numpy as np
from scipy.interpolate import CubicSpline

from starmill.cli.basics import INPUT, Failure, need, warn
from starmill.interchange import DEVIATIONS, NAMES, VARIANCES
from starmill.templates.spectra_fits import (Origin, card, card_of_both, check_whole,
                                             column_numbers, guarded, has_columns, image_part,
                                             is_table, opened, step_of, text_card, to_vacuum,
                                             unit_aa, wavelengths, where)
from starmill.templates.library_data import MAX_LABEL
from starmill.templates.resample import holes
from starmill.templates.spectra_options import labels_of_name, stem

MAX_PIX = 2097152  # pixels of a file with one spectrum
MAX_SPECTRUM, MAX_NUMBER = 20000, 268435456  # spectra and pixels of read_all; time grows as n^3
MAX_MODEL = 1 << 24  # most spectra of one file
NAME = 64  # bytes of a name in a grid file, final zero included
NOT_FLUX = sum((names for kind, names in NAMES.items() if kind != "flux"),
               VARIANCES + DEVIATIONS)  # of images
N_WARNED = 20  # spectra left out that are named; further ones are only counted
MORE = 1.2  # a spectrum with over this times the pixels of the first one loses pixels


@dataclass
class Spectrum:
    wave: np.ndarray  # [n_pix] vacuum A
    flux: np.ndarray  # [n_pix] as the file has it
    extra: list = field(default_factory=list)  # arrays of the columns after WAVE and FLUX
    origin: Origin = field(default_factory=Origin)


def find_one(path, hdus, request):
    """Return the index of the spectrum's HDU: a table with the requested columns or, if none are
    requested, an image not named for another quantity.  An HDU named for flux comes first."""
    found = [i for i, hdu in enumerate(hdus) if (
        has_columns(hdu, request.columns[:2]) if request.columns else
        hdu.is_image and hdu.shape[-1:] > (1,) and set(hdu.shape[:-1]) <= {1}
        and hdu.name.lower() not in NOT_FLUX)]
    need(found, INPUT, f"{path}: " + (
        f"no table has the columns {' and '.join(request.columns[:2])}; name them with --columns"
        if request.columns else
        "has no image of one spectrum; name the columns of a table with --columns WAVE,FLUX"))
    i = min(found, key=lambda i: hdus[i].name.lower() not in NAMES["flux"])
    check_whole(path, hdus, i)
    return i


def read_table(path, hdus, i, request):
    """Return the Spectrum in the columns of a table."""
    columns = []
    for name in request.columns:
        need(has_columns(hdus[i], [name]), INPUT, f"{where(path, hdus, i)}: has no column {name}")
        values = column_numbers(path, hdus, i, name)
        columns.append(values[0] if values.ndim == 2 and len(values) == 1 else values)
        need(columns[-1].ndim == 1 and 2 <= len(columns[-1]) <= MAX_PIX
             and len(columns[-1]) == len(columns[0]), INPUT,
             f"{where(path, hdus, i)}: column {name} has the shape {list(values.shape)}, expected "
             f"2 to {MAX_PIX} pixels: one pixel in each row, or all pixels in one row")
    names = [c.upper() for c in hdus[i].columns.names]
    own = [hdus[i].columns[names.index(c.upper())].unit or "" for c in request.columns]
    unit = request.unit or own[0]
    at = where(path, hdus, i)
    origin = Origin(f"column {request.columns[0]}", unit, own)
    columns[0] = to_vacuum(at, hdus[i].header, request, columns[0] * unit_aa(
        at, f"the unit of {request.columns[0]}", unit), origin)
    return Spectrum(*columns[:2], columns[2:], origin)


def read_one(path, request, first=None):
    """Return the Spectrum of a file.  first: the Spectrum of an earlier file.  With --wave-file,
    take the wavelengths of `first` if it has as many pixels."""
    with opened(path) as hdus:
        i = find_one(path, hdus, request)
        if request.columns:
            one = read_table(path, hdus, i, request)
        else:
            n_pix = hdus[i].shape[-1]
            need(n_pix <= MAX_PIX, INPUT,
                 f"{where(path, hdus, i)} has {n_pix} pixels; at most {MAX_PIX} can be read")
            flux = image_part(hdus[i], ...).ravel()
            if request.wave_file and first and len(first.wave) == n_pix:
                wave, origin = first.wave, Origin(**vars(first.origin))
            else:
                wave = wavelengths(path, hdus, i, request, n_pix, origin := Origin())
            one = Spectrum(wave, flux, origin=origin)
        one.origin.fwhm_aa = card_of_both(path, hdus, i, "FWHM")
    return one


def label_columns(path, hdus, i, request):
    """Return the labels' columns [n_row, n_label] of a table."""
    columns = [column for _, column in request.labels]
    out = [column_numbers(path, hdus, i, column) for column in columns]
    need(all(values.ndim == 1 for values in out), INPUT,
         f"{where(path, hdus, i)}: {', '.join(columns)} need one number per row")
    return np.column_stack(out)


def labels_of_table(paths, request):
    """Return labels [n_file, n_label] from --table, by the files' names; NaN: not in the table."""
    path = request.table
    with opened(path) as hdus:
        i = next((i for i, h in enumerate(hdus) if has_columns(h, [request.name_column])), None)
        need(i is not None, INPUT, f"{path}: no table has a column {request.name_column} with the "
             "names of the files; name it with --name-column")
        names = [stem(str(n).strip()) for n in hdus[i].data.field(request.name_column)]
        for _, column in request.labels:
            need(has_columns(hdus[i], [column]), INPUT, f"{where(path, hdus, i)}: has no column "
                 f"{column}; name the labels' columns with --labels NAME=COLUMN,...")
        values = label_columns(path, hdus, i, request)
    rows, wanted = {}, {stem(p): p for p in paths}
    if len(wanted) < len(paths):
        twice = next(p for p in paths if wanted[stem(p)] != p)
        raise Failure(INPUT, f"{twice} and {wanted[stem(twice)]} have the same name, so table "
                             f"{path} cannot tell them apart: rename one, in the table too")
    for row, name in enumerate(names):
        if name in wanted and rows.setdefault(name, row) != row:
            raise Failure(INPUT, f"{path}: rows {rows[name] + 1} and {row + 1} (counted from 1) "
                                 f"both have the name '{name}': leave one of them out")
    need(rows, INPUT, f"{path}: its column {request.name_column} names none of the files; the "
         f"first file is {stem(paths[0])}, the first row '{names[0][:40] if names else ''}'")
    values = np.vstack([values, np.full(len(request.labels), np.nan)])
    return values[[rows.get(stem(p), -1) for p in paths]]


def find_image(path, hdus):
    """Return the index of the first image with two or more axes, the first of them pixels."""
    i = next((i for i, hdu in enumerate(hdus) if hdu.is_image and all(hdu.shape)
              and 2 <= len(hdu.shape) <= 1 + MAX_LABEL and hdu.shape[-1] > 1), None)
    need(i is not None, INPUT, f"{path}: has no image with two axes, pixels and spectra; see "
         "docs/use/libraries.md for what is read")
    check_whole(path, hdus, i)
    return i


def axis_values(path, hdus, i, k, name, n):
    """Return a label's n values along axis k of a cube, from an image of its name or from cards."""
    for j, hdu in enumerate(hdus):
        if hdu.name.upper() == name.upper():
            need(hdu.is_image and hdu.shape == (n,), INPUT, f"{where(path, hdus, j)}: expected an "
                 f"image of one axis with {n} numbers, the values of {name} along axis {k}")
            return image_part(hdu, slice(None))
    start, pixel = (card(path, hdus, i, f"{key}{k}") for key in ("CRVAL", "CRPIX"))
    step = step_of(path, hdus, i, k)[1]
    need(start is not None and step is not None, INPUT,
         f"{where(path, hdus, i)}: the values of axis {k}, {name}, are not known: there is neither "
         f"an image {name} nor the card {'CRVAL' if start is None else 'CDELT'}{k}")
    return start + (np.arange(n) + 1 - (1 if pixel is None else pixel)) * step


def labels_of_cube(path, hdus, i, request):
    """Return labels [n_spectrum, n_label] of a cube.  Each axis but the first is a label, which the
    card CTYPE or CNAME names."""
    shape, header, at = hdus[i].shape[:-1], hdus[i].header, where(path, hdus, i)
    columns = [column.upper() for _, column in request.labels]
    need(len(shape) == len(columns), INPUT, f"{at} has {len(shape)} axes besides the pixels, and "
         f"--labels names {len(columns)}; name them all")
    keys, axes = {}, []  # of each axis: {index of its label: card that names it}; values
    for k, n in zip(range(2, len(shape) + 2), shape[::-1]):
        key = next((key for key in (f"CTYPE{k}", f"CNAME{k}")
                    if text_card(header, key).upper() in columns), f"CTYPE{k}")
        name = text_card(header, key)
        need(name.upper() in columns, INPUT,
             f"{at}: {key} is '{name[:40]}', expected {' or '.join(columns)} (--labels)")
        label = columns.index(name.upper())
        need(label not in keys, INPUT, f"{at}: {keys.get(label)} and {key} are both '{name[:40]}'; "
             "each axis needs a label of its own")
        keys[label] = key
        axes.append(axis_values(path, hdus, i, k, request.labels[label][1], n))
    grids = np.meshgrid(*axes[::-1], indexing="ij")[::-1]  # NumPy's last axis is FITS's first
    return np.column_stack([grid.ravel() for _, grid in sorted(zip(keys, grids))])


def labels_beside_image(path, hdus, n, request):
    """Return labels [n, n_label] from the first table with n rows and the labels' columns."""
    tables = [i for i, h in enumerate(hdus) if is_table(h) and h.header["NAXIS2"] == n]
    columns = [column for _, column in request.labels]
    for i in tables:
        if has_columns(hdus[i], columns):
            return label_columns(path, hdus, i, request)
    need(tables, INPUT, f"{path}: has no table with a row for each of the {n} spectra")
    missing = next(c for c in columns if not has_columns(hdus[tables[-1]], [c]))
    raise Failure(INPUT, f"{path}: no table with a row for each of the {n} spectra has a column "
                         f"{missing}; name the labels' columns with --labels NAME=COLUMN,...")


def stamp_of(path):
    """Return a digest of a file's size, time and middle 4096 bytes (docs/use/formats.md), by which
    a changed file is noticed; 0: the file cannot be read."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            return 0
        with open(path, "rb") as file:
            file.seek(about.st_size // 2)
            middle = file.read(4096)
    except OSError:
        return 0
    sizes = np.array([about.st_size, int(about.st_mtime)], "<i8").tobytes()
    return int.from_bytes(hashlib.sha256(sizes + middle).digest()[:8], "big")


class Source:
    """Reads n spectra one by one, from files with one spectrum each or from one file with many,
    which stays open until close()."""

    def __init__(self, paths, is_many, request):
        self.paths, self.is_many, self.request = paths, is_many, request
        self.n, self.first = len(paths), None
        self.names = [name for name, _ in request.labels]
        self._known = labels_of_table(paths, request) if request.table else None
        with contextlib.ExitStack() as stack:
            if is_many:
                self._open_many(stack)
            self.close = stack.pop_all().close

    def _open_many(self, stack):
        """Open the file, and read the labels and the wavelengths of its spectra."""
        path = self.paths[0]
        self._stamp = stamp_of(path)
        hdus = self._hdus = stack.enter_context(opened(path))
        with guarded(path):
            self._i = i = find_image(path, hdus)
            *shape, n_pix = self.shape = hdus[i].shape
            self.n = int(np.prod(shape, dtype=object))
            need(self.n <= MAX_MODEL and n_pix <= MAX_NUMBER, INPUT,
                 f"{where(path, hdus, i)} has {self.n} spectra of {n_pix} pixels: expected at most "
                 f"{MAX_MODEL} spectra, and {MAX_NUMBER} pixels in each")
            self._known = (labels_of_cube(path, hdus, i, self.request) if len(shape) > 1
                           else labels_beside_image(path, hdus, self.n, self.request))
            origin = Origin()
            wave = wavelengths(path, hdus, i, self.request, n_pix, origin)
            fwhm = card(path, hdus, i, "FWHM")
            origin.fwhm_aa = np.nan if fwhm is None else fwhm
            self.first = Spectrum(wave, None, origin=origin)

    def path(self, i):
        return self.paths[0 if self.is_many else i]

    def why(self, i, failure):
        """Return a Failure's text without the path, for lines that begin with the name."""
        path, message = self.path(i), str(failure)
        return message[len(path):].lstrip(":, ") if message.startswith(path) else message

    def entry(self, i):
        """Return (name, labels, stamp of the file, why) of a spectrum without reading its pixels.
        labels: NaN if unknown or teff <= 0.  why: a reason not to use the spectrum, or empty."""
        if self.is_many:
            name, labels, stamp, why = f"row {i + 1}", list(self._known[i]), self._stamp, ""
        else:
            path, why, labels = self.paths[i], "", None
            name, stamp = stem(path), stamp_of(path)
            while len(os.fsencode(name)) >= NAME:
                name = name[1:]  # long names differ at their end
            try:
                pattern = self.request.name_pattern
                if self.request.table:
                    labels = list(self._known[i])
                elif pattern:  # match the name with extension, and as many folders as it has
                    n_part = 1 + re.sub(r"\{[^{}]*\}", "", pattern).count("/")
                    labels = labels_of_name(pattern, self.names,
                                            "/".join(path.split("/")[-n_part:]))
                    why = "" if labels else f"its name does not have the pattern {pattern}"
                else:  # cards; the pixels are not read
                    with opened(path) as hdus:
                        at = find_one(path, hdus, self.request)
                        labels = [card_of_both(path, hdus, at, column)
                                  for _, column in self.request.labels]
            except Failure as failure:
                why = self.why(i, failure)
        labels = [np.nan if of == "teff" and value <= 0 else value
                  for of, value in zip(self.names, labels or [np.nan] * len(self.names))]
        for (label, column), value in zip(self.request.labels, labels):
            if not why and not np.isfinite(value):
                why = f"its label {label} ({column}) is not known"
        return name, labels, stamp, why

    def read(self, i):
        """Return spectrum i.  Spectra of equal wavelengths share one array of them."""
        if self.is_many:
            with guarded(self.paths[0]):
                at = np.unravel_index(i, self.shape[:-1])
                flux = image_part(self._hdus[self._i], (*map(int, at), slice(None)))
            return Spectrum(self.first.wave, flux, origin=self.first.origin)
        one = read_one(self.paths[i], self.request, self.first)
        self.first = self.first or one
        if np.array_equal(one.wave, self.first.wave):
            one.wave = self.first.wave
        return one


@dataclass
class LabelledSpectra:
    wave: np.ndarray  # [n_pix] vacuum A
    flux: np.ndarray  # [n, n_pix] float32, NaN: bad, or outside the spectrum's range
    labels: np.ndarray  # [n, n_label] NaN: not known
    names: list  # of the files; None: one file with many spectra
    origin: Origin  # of the first
    errors: np.ndarray = None  # [n, n_label] of benchmark stars' labels; NaN: other stars


def is_good(flux):
    with np.errstate(invalid="ignore"):
        return np.isfinite(flux) & (flux > 0)


def interpolated(wave, flux, to):
    """Return the flux at wavelengths `to`, by a natural cubic spline.  It is NaN beyond the ends of
    wave, in a hole of wave and where one of the four nearest samples is bad."""
    good = is_good(flux)
    if not good.any():
        return np.full(len(to), np.nan)
    filled = np.interp(wave, wave[good], flux[good])  # pixels near a bad sample become NaN below
    at = np.clip(np.searchsorted(wave, to, side="right") - 1, 0, len(wave) - 2)
    bad = np.pad(~good, (1, 2))
    lost = (to < wave[0] * (1 - 1e-9)) | (to > wave[-1] * (1 + 1e-9)) \
        | holes(wave)[at] | bad[at] | bad[at + 1] | bad[at + 2] | bad[at + 3]
    return np.where(lost, np.nan, CubicSpline(wave, filled, bc_type="natural")(to))


def on_grid(wave, flux, to):
    """Return the flux at wavelengths `to`, unchanged if these are `wave`, else interpolated."""
    is_same = len(wave) == len(to) and (abs(wave - to) <= 1e-9 * to).all()
    return flux if is_same else interpolated(wave, flux, to)


def read_all(paths, is_many, request, by_card=False):
    """Return LabelledSpectra at the wavelengths of the first readable spectrum.  Unreadable spectra
    and labels become NaN, with a warning; if no spectrum is readable, raise the first Failure.
    by_card: spectra whose card FWHM differs from the first spectrum's become NaN too."""
    with contextlib.closing(Source(paths, is_many, request)) as source:
        labels = np.full((source.n, len(source.names)), np.nan)
        names, failures, first, out, n_more = [], [], None, None, 0
        for i in range(source.n):
            name, labels[i], _, why = source.entry(i)
            names.append(name)
            try:
                one = source.read(i)
            except Failure as failure:
                failures.append(failure)
                continue
            if why and not why.endswith("is not known"):  # callers report unknown labels
                failures.append(f"{source.path(i)}: {why}")
            if out is None:
                n, n_pix, first = source.n, len(one.flux), one
                need(n <= MAX_SPECTRUM and n * n_pix <= MAX_NUMBER, INPUT,
                     f"{n} spectra of {n_pix} pixels: give at most {MAX_SPECTRUM} spectra, "
                     f"{MAX_NUMBER} pixels in all")
                out = np.full((n, n_pix), np.nan, "f4")
            fwhm, of_first = one.origin.fwhm_aa, first.origin.fwhm_aa
            if by_card and of_first > 0 and abs(fwhm - of_first) > 1e-6 * of_first:
                failures.append(f"{source.path(i)}: its card FWHM is {fwhm:g} A, that of the first "
                                f"spectrum {of_first:g} A; or give --fwhm or --sigma")
                continue
            out[i] = on_grid(one.wave, one.flux, first.wave)
            n_more += len(one.wave) > MORE * len(first.wave)
    if out is None:
        raise failures[0]
    warn_left_out(failures)
    if n_more:
        warn(f"{n_more} spectra have more pixels than the first one, which sets the pixels of all: "
             "give a list with a fine and long one first")
    return LabelledSpectra(first.wave, out, labels, None if is_many else names, first.origin)


def warn_left_out(failures):
    for failure in failures[:N_WARNED]:
        warn(f"left out: {failure}")
    if len(failures) > N_WARNED:
        warn(f"left out: {len(failures) - N_WARNED} more")
