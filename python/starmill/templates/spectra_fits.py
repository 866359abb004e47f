# SPDX-License-Identifier: BSD-3-Clause
"""FITS files of spectra: open them, read cards, columns and wavelengths in vacuum."""

import contextlib
import gzip
import io
import os
import re
import stat
import warnings
import weakref
import zlib
from dataclasses import dataclass

import numpy as np
from astropy.io import fits

from starmill.cli.basics import INPUT, Failure, as_failure, need
from starmill.templates.spectra_options import number
from starmill.wavelength import vacuum

GZIP_LIMIT = 4096 << 20  # most bytes after unpacking
UNITS = {**dict.fromkeys(("", "a", "aa", "å", "0.1nm"), 1.0),
         **dict.fromkeys(("nm", "nanometer", "nanometers"), 10.0),
         **dict.fromkeys(("um", "micron", "microns", "micrometer"), 1e4), "m": 1e10}  # in A
SHORT_AA = 3000  # a spectrum without unit that ends below may be in nm: refuse it
HELP_WAVE = "give --wave FIRST,STEP or --log-wave FIRST,STEP"


@contextlib.contextmanager
def guarded(path):
    """Turn any error that astropy finds in a file into a Failure."""
    try:
        yield
    except Failure:
        raise
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Failure(INPUT, f"{path}: is no whole gzip file: {error}") from error
    except Exception as error:  # astropy raises many kinds for a damaged file
        raise Failure(INPUT, f"{path}: cannot be read: {str(error).partition('. ')[0]}") from error


_open = weakref.WeakSet()


def _reopen():
    """Reopen files in a forked worker: a shared descriptor would share the file position."""
    for file in _open:
        if not file.closed:
            own = os.open(file.name, os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(own, file.fileno(), inheritable=False)
            os.close(own)
            file.seek(0, os.SEEK_END)  # drops the read buffer


os.register_at_fork(after_in_child=_reopen)


@contextlib.contextmanager
def opened(path):
    """Yield the HDUs of a file, plain or gzip, guarded."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack, guarded(path):
        warnings.simplefilter("ignore")
        with as_failure(INPUT, f"{path}: cannot be opened", OSError):
            # reading a pipe would block
            need(stat.S_ISREG(os.stat(path).st_mode), INPUT, f"{path}: is not a regular file")
            file = stack.enter_context(open(path, "rb"))
            _open.add(file)
        if file.read(2) == b"\x1f\x8b":
            file.seek(0)
            with gzip.open(file) as packed:
                content = packed.read(GZIP_LIMIT + 1)
            need(len(content) <= GZIP_LIMIT, INPUT,
                 f"{path}: unpacks to more than {GZIP_LIMIT >> 20} MiB; gunzip it")
            file = io.BytesIO(content)
        file.seek(0)
        yield stack.enter_context(fits.open(file, memmap=False, lazy_load_hdus=True))


def where(path, hdus, i):
    name = hdus[i].name
    return f"{path}, HDU {i}" + (f" ({name})" if name else "")


def check_whole(path, hdus, i):
    about = hdus[i].fileinfo()
    need(about["datLoc"] + hdus[i].size <= about["file"].size, INPUT,
         f"{where(path, hdus, i)} is truncated: copy the file again")


def card(path, hdus, i, key):
    """Return a finite number from a header, or None if there is no such card."""
    value = hdus[i].header.get(key)
    if value is None or isinstance(value, fits.card.Undefined):
        return None
    need(not isinstance(value, bool) and np.isfinite(number(value)), INPUT,
         f"{where(path, hdus, i)}: the card {key} is {value}, expected a finite number")
    return float(value)


def card_of_both(path, hdus, i, key):
    """Return a number from the spectrum's header, else from the primary header, else NaN."""
    found = (card(path, hdus, at, key) for at in (i, 0))
    return next((value for value in found if value is not None), np.nan)


def text_card(header, key):
    value = header.get(key, "")
    if isinstance(value, bool):
        return "T" if value else "F"
    return value if isinstance(value, str) else ""


def image_part(hdu, index):
    """Return part of an image as float64; read no other part of an uncompressed image."""
    return np.asarray(hdu.section[index] if hasattr(hdu, "section") else hdu.data[index], float)


def is_table(hdu):
    return (isinstance(hdu, (fits.BinTableHDU, fits.TableHDU))
            and not isinstance(hdu, fits.CompImageHDU))


def has_columns(hdu, columns):
    names = [c.upper() for c in hdu.columns.names] if is_table(hdu) else []
    return all(c.upper() in names for c in columns)


def column_numbers(path, hdus, i, name):
    """Return a column as float64; integers equal to the column's null become NaN."""
    hdu = hdus[i]
    values = np.asarray(hdu.data.field(name))
    if values.dtype.kind not in "iuf":
        raise Failure(INPUT, f"{where(path, hdus, i)}: column {name} must hold numbers")
    column = hdu.columns[[c.upper() for c in hdu.columns.names].index(name.upper())]
    raw, out = hdu.data.view(np.ndarray)[column.name], values.astype(float)
    if column.null is not None and raw.dtype.kind in "iu":  # TNULL is a raw value
        out[raw == column.null] = np.nan
    return out


@dataclass
class Origin:
    """Where the wavelengths and the resolution of a spectrum come from."""
    wavelengths: str = ""  # a text
    unit: str = ""  # of the file, where it says one
    units: list = ()  # of the columns or images wavelength, flux, error, sigma, likewise
    is_air: bool = False
    medium_key: str = "--medium"
    fwhm_aa: float = np.nan  # card FWHM; NaN: no card

    def __str__(self):
        return (f"wavelengths: {self.wavelengths}, {'air' if self.is_air else 'vacuum'} "
                f"({self.medium_key}){', converted to vacuum' if self.is_air else ''}")


def medium_of(header):
    """Return ("air" or "vacuum", its card), or None."""
    for key in ("WAVEFRAM", "AIRORVAC", "WAVEMED", "MEDIUM", "VACUUM", "CTYPE1"):
        text = text_card(header, key).upper()
        if key == "VACUUM":
            if text[:1] in ("T", "F"):
                return "vacuum" if text[0] == "T" else "air", f"card {key}"
        # CTYPE1 WAVELENGTH is common and means either medium; WAVE-LOG is vacuum
        elif text.startswith("AIR") or re.fullmatch("AWAV(-.*)?", text):
            return "air", f"card {key}"
        elif text.startswith("VAC") or re.fullmatch("WAVE(-.*)?", text):
            return "vacuum", f"card {key}"
    return None


def unit_aa(at, what, unit):
    """Return a wavelength unit in A; an empty unit is A."""
    name = unit.strip().lower()
    scale = 1.0 if name.startswith("ang") else UNITS.get(name)
    need(scale is not None, INPUT,
         f"{at}: {what} is '{unit[:40]}', expected Angstrom, nm or um; {HELP_WAVE}")
    return scale


def to_vacuum(at, header, request, wave, origin):
    """Check wavelengths (A) and return them in vacuum; set the medium in origin."""
    medium = request.medium
    if not medium:
        found = medium_of(header)
        need(found, INPUT, f"{at} does not give the medium of its wavelengths; give --medium air "
             "or --medium vacuum")
        medium, origin.medium_key = found
    origin.is_air = medium == "air"
    bad = ~((wave >= 100) & (wave <= 1e6))
    bad[1:] |= ~(wave[1:] > wave[:-1])
    p = np.argmax(bad)
    need(not bad[p], INPUT, f"{at}: wavelengths ({origin.wavelengths}) must ascend between 100 and "
         f"1e6 Angstrom, but pixel {p} of {len(wave)} has {wave[p]:.6g} and the last "
         f"{wave[-1]:.6g}; {HELP_WAVE}")
    need(origin.unit or request.wave or request.wave_file or wave[-1] >= SHORT_AA, INPUT,
         f"{at}: its wavelengths, {wave[-1]:g} at most, have no unit; set CUNIT1 or TUNIT, or give "
         "convert --unit nm or Angstrom")
    return vacuum(wave) if origin.is_air else wave


def rule_of_header(path, hdus, i, request, origin):
    """Return (first, step, is_log10) of a header's wavelengths (A); set their texts in origin."""
    header, at = hdus[i].header, where(path, hdus, i)
    iraf = re.search(r"units=(\w+)", text_card(header, "WAT1_001"))
    origin.unit = request.unit or text_card(header, "CUNIT1") or (iraf[1] if iraf else "")
    scale = unit_aa(at, "CUNIT1" if "CUNIT1" in header else "the unit in WAT1_001", origin.unit)
    (first, step, is_log10), origin.wavelengths = rule_of_cards(path, hdus, i, at, scale)
    if is_log10:
        return first + np.log10(scale), step, True
    return first * scale, step * scale, False


def step_of(path, hdus, i, k):
    """Return the name of the card for an image's step along axis k, and the step or None."""
    keys = f"CD{k}_{k}", f"CDELT{k}", f"PC{k}_{k}"
    matrix, step, turn = (card(path, hdus, i, key) for key in keys)
    if matrix is not None:  # the FITS standard: CDELT does not count then
        return keys[0], matrix
    return keys[1], step if None in (step, turn) else step * turn


def rule_of_cards(path, hdus, i, at, scale):
    """Return (first, step, is_log10) of an image's wavelengths in a unit of `scale` A, and a text
    on the cards used."""
    kind = text_card(hdus[i].header, "CTYPE1")
    c0, c1 = card(path, hdus, i, "COEFF0"), card(path, hdus, i, "COEFF1")
    if c0 is not None and c1 is not None:
        return (c0, c1, True), f"log10 from COEFF0 {c0:.10g} and COEFF1 {c1:.6g}"
    value, pixel = card(path, hdus, i, "CRVAL1"), card(path, hdus, i, "CRPIX1")
    if value is None:
        raise Failure(INPUT, f"{at}: has no CRVAL1, so its wavelengths are not known; {HELP_WAVE}")
    step_key, step = step_of(path, hdus, i, 1)
    need(step is not None, INPUT, f"{at}: has neither CDELT1 nor CD1_1; {HELP_WAVE}")
    need(pixel is not None, INPUT, f"{at}: has CRVAL1 but no CRPIX1, so the pixel of that "
         f"wavelength is not known; {HELP_WAVE}")
    flag = card(path, hdus, i, "DC-FLAG")
    if flag not in (None, 0, 1):
        raise Failure(INPUT, f"{at}: DC-FLAG is {flag:g}, expected 0 (linear) or 1 (log10); "
                             f"{HELP_WAVE}")
    if flag is None and re.fullmatch("(AWAV|WAVE)-LOG", kind) and value > 0:  # FITS paper III
        step /= value * np.log(10)
        return ((np.log10(value) + (1 - pixel) * step, step, True),
                f"natural log ({kind}) from CRVAL1 {value:.10g}, {step_key} and CRPIX1 {pixel:g}")
    need(flag is not None or "-" not in kind, INPUT,
         f"{at}: CTYPE1 is '{kind[:40]}', a kind of axis that is not known here; {HELP_WAVE}")
    # without DC-FLAG, a first value below 10 A must be a log10
    is_log10 = value * scale < 10 if flag is None else flag == 1
    return ((value + (1 - pixel) * step, step, is_log10),
            f"{'log10' if is_log10 else 'linear'} from CRVAL1 {value:.10g}, {step_key} {step:.6g} "
            f"and CRPIX1 {pixel:g}{'' if flag is None else ' (DC-FLAG)'}")


def wavelengths_of_file(request, n_pix, origin):
    """Return the wavelengths [n_pix] of --wave-file, vacuum A."""
    path = request.wave_file
    with opened(path) as hdus:
        i = next((i for i, h in enumerate(hdus) if h.is_image and h.shape == (n_pix,)), None)
        need(i is not None, INPUT,
             f"{path}: has no image of one axis with the {n_pix} pixels of the spectra")
        wave, at, header = image_part(hdus[i], slice(None)), where(path, hdus, i), hdus[i].header
        origin.unit = request.unit or text_card(header, "BUNIT")
        try:
            wave = wave * unit_aa(at, "its unit", origin.unit)
        except Failure:  # BUNIT is no unit of length, as in a copied header
            if request.unit:
                raise
            origin.unit = None
        origin.wavelengths = (f"from {wave[0]:.10g} to {wave[-1]:.10g} A, of --wave-file (its unit"
                              f": {origin.unit or 'not given, taken as Angstrom'})")
        return to_vacuum(at, header, request, wave, origin)


def wavelengths(path, hdus, i, request, n_pix, origin):
    """Return the wavelengths [n_pix] of an image, vacuum A, from options or header."""
    if request.wave_file:
        return wavelengths_of_file(request, n_pix, origin)
    if request.wave:
        rule = request.wave
        origin.wavelengths = (f"{'log10' if rule[2] else 'linear'} as given, from {rule[0]:.10g} "
                              f"by {rule[1]:.6g}")
    else:
        rule = rule_of_header(path, hdus, i, request, origin)
    wave = rule[0] + np.arange(n_pix) * rule[1]
    with np.errstate(over="ignore"):
        return to_vacuum(where(path, hdus, i), hdus[i].header, request,
                         10**wave if rule[2] else wave, origin)
