# SPDX-License-Identifier: BSD-3-Clause
"""`starmill convert`: convert spectra of any origin to a generic table (docs/use/input.md)."""

import io
import os
import re
from dataclasses import replace

import numpy as np
from astropy import units

from starmill.cli.basics import (INPUT, Failure, as_failure, beginning, catch_stops, check_output,
                                 need, warn, write_whole)
from starmill.interchange import DEVIATIONS, NAMES, VARIANCES, mask_of
from starmill.surveys import generic
from starmill.templates.spectra_files import MAX_PIX, Spectrum, find_one, read_one, warn_left_out
from starmill.templates.spectra_fits import (Origin, image_part, is_table, opened, text_card,
                                             to_vacuum, unit_aa)
from starmill.templates.spectra_options import files_below, request_of, stem
from starmill.wavelength import FWHM_PER_SIGMA

FILES = re.compile(r"(.+)\.(fits?(\.gz)?|csv|tsv|txt|dat|asc|ascii|npy)", re.I | re.S)
UNIT = re.compile(r"(.*?)[\s_]*(?:[\[(](.*)[\])]|(?<=[\s_])(å|aa?|ang\w*|nm|um|microns?))", re.I)
MASKS = [name.upper() for name in NAMES["mask"]]
IVAR, VARIANCE = re.compile("I(NV(ERSE)?)?_?VAR"), re.compile("VAR")
# known names of columns WAVE, FLUX, ERROR and SIGMA
KNOWN = [[name.upper() for name in names if name != "loglam"] for names in (
    NAMES["wave"], NAMES["flux"], NAMES["error"] + NAMES["ivar"] + VARIANCES + DEVIATIONS,
    NAMES["sigma"] + DEVIATIONS)]
MAX_BYTES, MAX_TOTAL = 512 << 20, 1 << 25  # bytes of a text file; pixels of the output


def split_unit(name):
    """Split a column's name such as wave_nm or lambda (um): return (name in capitals, unit)."""
    match = UNIT.fullmatch(name)
    return (match[1].upper(), match[2] or match[3] or "") if match else (name.upper(), "")


def find_known(names):
    """Return the names of the columns of wavelength, flux, error and sigma up to the first that is
    missing; None without wavelength or flux."""
    have = {split_unit(name)[0]: name for name in reversed(names)}
    found = [next((have.pop(name) for name in known if name in have), None) for known in KNOWN]
    n = found.index(None) if None in found else len(found)
    return found[:n] if n >= 2 else None


def split(line):
    """Return the fields of a line; a unit in brackets stays with the name before it."""
    line = re.sub(r"\s+(?=[\[(])", "", line)
    mark = next((mark for mark in ",;\t" if mark in line), None)
    return [field.strip().strip("\"'") for field in line.strip("\r\n").split(mark)]


def numbers(fields):
    """Return the fields as numbers, NaN for empty fields; None if one of them is no number."""
    try:
        return [float(field) if field else np.nan for field in fields]
    except ValueError:
        return None


def read_text(path):
    """Read a text file: return column names ([] without a header) and values [n_column, n_pix]."""
    need(os.path.getsize(path) <= MAX_BYTES, INPUT,
         f"{path}: is larger than {MAX_BYTES >> 20} MiB, expected the text of one spectrum")
    names, hints, rows = [], [], []
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for k, line in enumerate(file, 1):
            text = line.lstrip()
            if not text.strip():
                continue
            if text[0] == "#":  # a comment may name the columns, after a word such as "columns:"
                hints.append(split(re.sub(r"^[#\s]*(\w+:\s)?\s*", "", text)))
                continue
            row = numbers(split(line))
            if not rows and not names:
                if row is None:
                    names = split(line)
                    continue
                names = next((hint for hint in reversed(hints) if len(hint) == len(row)
                              and find_known(hint)), [])
            n = len(rows[0]) if rows else len(names) or len(row or ())
            need(len(rows) < MAX_PIX, INPUT, f"{path}: has over {MAX_PIX} lines of numbers, the "
                 "most that can be read: split the file")
            need(row is not None and len(row) == n, INPUT, f"{path}, line {k}: expected {n} "
                 f"numbers, got '{text.strip()[:40]}' (# begins a comment)")
            rows.append(row)
    return names, np.array(rows).T


def read_array(path):
    """Read a .npy array, with or without named fields; return as read_text."""
    with as_failure(INPUT, f"{path}: is no array [pixel, column]", ValueError, TypeError, EOFError):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        need(array.size <= 64 * MAX_PIX, ValueError, f"it has over {64 * MAX_PIX} numbers")
        names = list(array.dtype.names or ())
        values = np.array([array[n] for n in names] if names else array, float)
    return names, values.T if values.ndim == 2 and values.shape[0] > values.shape[1] else values


def mask_out(path, one, masks):
    """Make the flux of a Spectrum NaN where one of `masks` {name: values} is not 0."""
    for name, values in masks.items():
        mask = np.ravel(mask_of(name, values))
        need(mask.shape == one.flux.shape, INPUT,
             f"{path}: its {name} has {mask.size} values for {one.flux.size} pixels")
        one.flux = np.where(mask != 0, np.nan, one.flux)


def read_columns(path, names, values, request):
    """Return the Spectrum of `values` [n_column, n_pix], and the name of its error column."""
    need(values.ndim == 2 and values.shape[1] >= 2, INPUT, f"{path}: expected columns of 2+ pixels")
    need(not request.wave and not request.wave_file, INPUT, f"{path}: is a table: leave out "
         "--wave, --log-wave and --wave-file, which are for images")
    wanted = request.columns or (find_known(names) if names else
                                 [str(i + 1) for i in range(min(len(values), 5))])
    at = {n.upper(): i for i, n in enumerate(names)} | {str(i + 1): i for i in range(len(values))}
    need(wanted and 2 <= len(wanted) <= 4 and all(name.upper() in at for name in wanted), INPUT,
         f"{path}: its {len(values)} columns {', '.join(names)[:200]} are not "
         f"{','.join(wanted or ['known'])[:200]}; give --columns WAVE,FLUX[,ERROR[,SIGMA]] with "
         "their names, or numbers from 1")
    at = [at[name.upper()] for name in wanted]
    named = [names[i] if names else "" for i in at]
    unit = request.unit or split_unit(named[0])[1]
    wave, flux, *extra = values[at]
    origin = Origin(f"column {wanted[0]}", unit, [split_unit(n)[1] for n in named])
    wave = to_vacuum(path, {}, request, wave * unit_aa(path, "the unit", unit), origin)
    one = Spectrum(wave, flux, extra, origin)
    mask_out(path, one, {n: values[i] for i, n in enumerate(names) if n.upper() in MASKS})
    return one, named[2] if extra else ""


def read_fits(path, request):
    """Return the Spectrum of a FITS file, and the name of its error column or image."""
    columns = request.columns
    with opened(path) as hdus:
        if not (columns or request.wave or request.wave_file):
            columns = next(filter(None, (find_known(hdu.columns.names) for hdu in hdus
                                         if is_table(hdu))), None)
        request = replace(request, columns=columns)
        one, own = read_one(path, request), hdus[find_one(path, hdus, request)]
        if columns:
            mask_out(path, one, {n: own.data[n] for n in own.columns.names if n.upper() in MASKS})
            return one, columns[2] if len(columns) > 2 else ""
        images = {hdu.name.upper(): hdu for hdu in hdus if hdu.is_image}
        mask_out(path, one, {n: image_part(images[n], ...) for n in MASKS if n in images})
        name = next((n for n in KNOWN[2] if n in images and images[n].shape[-1:] == own.shape[-1:]
                     and set(images[n].shape[:-1]) <= {1}), "")
        if name:
            one.extra = [image_part(images[name], ...).ravel()]
            one.origin.units = ["", *(text_card(h.header, "BUNIT") for h in (own, images[name]))]
    return one, name


def read(path, request):
    """Return the Spectrum of a file of any kind, and the name of its error column."""
    need(not os.path.exists(path) or os.path.isfile(path), INPUT, f"{path}: is not a regular file")
    with as_failure(INPUT, f"{path}: cannot be read", OSError):
        start = beginning(path)
        if start.startswith((b"SIMPLE", b"\x1f\x8b")):
            return read_fits(path, request)
        read_file = read_array if start.startswith(b"\x93NUMPY") else read_text
        return read_columns(path, *read_file(path), request)


def noise(path, flux):
    """Estimate the rms noise of a pixel: DER_SNR of Stoehr et al. (2008, ASP Conf. 394, 505)."""
    second = 2 * flux[2:-2] - flux[:-4] - flux[4:]
    sigma = 1.482602 / np.sqrt(6) * np.median(abs(second)) if len(second) else 0
    need(sigma > 0, INPUT, f"{path}: has no errors, and its flux has no scatter to estimate them "
         "from; name the column of errors with --columns WAVE,FLUX,ERROR")
    return sigma


def inverse_variance(path, one, name):
    """Return a Spectrum's inverse variances in its flux's unit, 0 where not positive and finite.
    The error column's name tells its values' kind: inverse variances, variances or errors."""
    name, error = split_unit(name)[0], one.extra[0]
    power = -2 if IVAR.search(name) else 2 if VARIANCE.search(name) else 1
    flux_unit, own = (unit.strip() for unit in one.origin.units[1:3])
    if flux_unit and own and flux_unit != own:
        with as_failure(INPUT, f"{path}: the unit of {name}, '{own}', does not convert to that of "
                        f"the flux, '{flux_unit}'", ValueError, advice="; correct or remove both"):
            error = error * units.Unit(own).to(units.Unit(flux_unit) ** power)
    with np.errstate(all="ignore"):
        ivar = error ** (-2.0 / power)
    return np.where((error > 0) & np.isfinite(ivar), ivar, 0)


def row_of(path, request, power):
    """Return a file's row for generic.write."""
    one, error_name = read(path, request)
    name = stem(path, FILES)[-31:].strip()  # the most characters that a name may have
    need(name and name.isascii() and name.isprintable(), INPUT,
         f"{path}: a star's name must be printable ASCII; rename the file")
    finite = np.isfinite(one.flux)
    good = finite & (one.flux != 0)
    need(good.any(), INPUT, f"{path}: no pixel has a finite flux other than 0; leave the file out")
    level = np.median(abs(one.flux[good]))
    scale = 1.0 if 1e-6 < level < 1e6 else 10.0 ** np.floor(np.log10(level))
    ivar = inverse_variance(path, one, error_name) if one.extra else np.zeros(len(good))
    estimated = not (ivar[good] > 0).any()  # ESO's products may have only NaN errors
    if estimated:
        ivar[good] = noise(path, one.flux[good]) ** -2.0  # good leaves out gaps, of flux 0
    row = {"NAME": name, "WAVELENGTH": one.wave, "FLUX": np.where(finite, one.flux / scale, 0),
           "IVAR": np.where(finite, ivar * scale**2, 0), "FLUX_SCALE": scale,
           "ERROR_ESTIMATED": estimated}
    if power:
        row["LSF_SIGMA"] = one.wave / (FWHM_PER_SIGMA * power)
    elif len(one.extra) > 1:
        pull = one.extra[1][ivar > 0] * np.sqrt(ivar[ivar > 0])
        need(not np.allclose(pull, 1, 0.01) or np.ptp(one.extra[1]) == 0, INPUT, f"{path}: column "
             "SIGMA equals the error, so is not the LSF's sigma: give --columns WAVE,FLUX,ERROR")
        row["LSF_SIGMA"] = one.extra[1] * unit_aa(path, "the unit of SIGMA",
                                                  one.origin.units[3] or one.origin.unit)
    return row


def read_rows(paths, request, power):
    """Return the rows of all readable files, and the Failures of the others."""
    rows, failures, seen, total = [], [], {}, 0
    for path in paths:
        try:
            row = row_of(path, request, power)
            need(row["NAME"] not in seen, INPUT, f"{path}: has the name {row['NAME']}, like "
                 f"{seen.get(row['NAME'])}; rename one")
        except Failure as failure:
            if failure.status != INPUT:  # a signal
                raise
            failures.append(failure)
            continue
        seen[row["NAME"]] = path
        total += len(row["FLUX"])
        need(total <= MAX_TOTAL, INPUT, f"{path}: over {MAX_TOTAL} pixels so far; make two tables")
        rows.append(row)
    if not rows:
        raise failures[0]
    without = [row["NAME"] for row in rows if "LSF_SIGMA" not in row]
    if 0 < len(without) < len(rows):
        raise Failure(INPUT, f"{seen[without[0]]}: has no column of the LSF's sigma, but other "
                             "spectra have; give --resolving-power, or make two tables")
    return rows, failures


def main(options):
    vars(options).update(labels=None, table=None, name_column=None)
    request = request_of(options, 4)
    catch_stops()
    paths = [p for path in options.arguments for p in (
        files_below(path, FILES, ".fits, .csv, .txt, .dat, .npy or the like")
        if os.path.isdir(path) else [path])]
    check_output(options.output, options.overwrite, [("the file of a spectrum", p) for p in paths])
    rows, failures = read_rows(paths, request, options.resolving_power)
    warn_left_out(failures)
    guessed = [row["NAME"] for row in rows if row["ERROR_ESTIMATED"]]
    if guessed:
        warn(f"{len(guessed)} spectra have no errors ({guessed[0]}): estimated from the noise, "
             "one error a spectrum (column ERROR_ESTIMATED), too small if pixels are correlated")
    if "LSF_SIGMA" not in rows[0]:
        warn("the table has no resolution: give --resolving-power, here or for the fit")
    image = io.BytesIO()
    generic.write(image, rows, "vacuum", options.frame)
    write_whole(options.output, [image.getbuffer()], options.overwrite)
    print(f"{options.output}: {len(rows)} spectra of {len(paths)} files")
    return INPUT if failures else 0
