# SPDX-License-Identifier: BSD-3-Clause
"""Spectra with labels from FITS, as `library build`, `spectra` and `model-error` read them
(docs/use/libraries.md, "What is read").

request_of(options) gives a Request, list_files the files, Source the spectra one at a time, and
read_all all of them on one grid.  What is wrong with one spectrum is a Failure of INPUT whose
message begins with the path of its file.
"""

import contextlib
import gzip
import hashlib
import io
import os
import re
import stat
import warnings
import zlib
from dataclasses import dataclass, field

import numpy as np
from astropy.io import fits
from scipy.interpolate import CubicSpline

from basics import INPUT, USAGE, Failure, warn

MAX_LABEL = 6
MAX_PIX = 2097152  # of a file with one spectrum
MAX_SPECTRUM, MAX_NUMBER = 20000, 268435456  # of read_all: the fit takes their third power
MAX_MODEL = 1 << 24
NAME, WHY = 64, 128  # bytes of a name and of a reason in a grid file, with a zero
GZIP_LIMIT = 4096 << 20  # bytes that are unpacked
HELP_WAVE = "give --wave FIRST,STEP or --log-wave FIRST,STEP"
N_WARNED = 20
STEM = re.compile(r"(.+)\.fits?(\.gz)?", re.IGNORECASE | re.DOTALL)


# ---- options ----

@dataclass
class Request:
    """labels: (name, column, card, or axis of a cube); wave: (first, step, they are log10 of A);
    columns: of a table with one spectrum, WAVE, FLUX and CONTINUUM where it is asked for."""

    labels: list
    medium: str = None  # "air" or "vacuum"; None: as the header says
    wave: tuple = None
    wave_file: str = None
    columns: list = None
    table: str = None
    name_column: str = "FILE"
    name_pattern: str = None


def items(option, text):
    """(NAME, VALUE) of NAME=VALUE,..."""
    out = [item.partition("=")[::2] for item in text.split(",")]
    if not all(name and value and len(name) < 32 for name, value in out):
        raise Failure(USAGE, f"--{option} {text}: expected NAME=... separated by commas")
    return out


def number(text):
    """NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return np.nan


def read_labels(text):
    labels = items("labels", text)
    if len(labels) > MAX_LABEL:
        raise Failure(USAGE, f"--labels {text}: expected at most {MAX_LABEL} labels")
    for i, (name, column) in enumerate(labels):
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            raise Failure(USAGE, f"--labels {text}: a name is made of letters, digits and _")
        if name in [other for other, _ in labels[:i]]:
            raise Failure(USAGE, f"--labels {text}: {name} appears twice")
        if len(column) > 31:
            raise Failure(USAGE, f"--labels {text}: {column} is too long")
    return labels


def read_ranges(option, text, labels):
    """{name: (min, max)} of NAME=MIN:MAX,..., names those of labels."""
    out = {}
    for name, value in items(option, text):
        low, _, high = value.partition(":")
        if not number(low) < number(high) or not np.isfinite([number(low), number(high)]).all():
            raise Failure(USAGE, f"--{option} {text}: expected NAME=MIN:MAX, MIN below MAX")
        if name not in [label for label, _ in labels]:
            raise Failure(USAGE, f"--{option} {name}: not one of the labels (--labels)")
        out[name] = (number(low), number(high))
    return out


def read_columns(text, n_most):
    columns = text.split(",")
    if not 2 <= len(columns) <= n_most or not all(0 < len(c) < 32 for c in columns):
        shown = "WAVE,FLUX" + "[,CONTINUUM]" * (n_most > 2)
        raise Failure(USAGE, f"--columns {text}: expected {shown}, the names of columns")
    return columns


def request_of(options, n_column=2):
    """Of the options of a job, which may lack name_pattern; n_column 3: --columns may name a
    continuum."""
    if options.wave and options.log_wave:
        raise Failure(USAGE, "--wave and --log-wave exclude each other")
    if sum(bool(o) for o in (options.wave, options.log_wave, options.wave_file,
                             options.columns)) > 1:
        raise Failure(USAGE, "give only one of --wave, --log-wave, --wave-file and --columns")
    if options.name_column and not options.table:
        raise Failure(USAGE, "--name-column needs --table FILE")
    labels = read_labels(options.labels or "teff=TEFF,logg=LOGG,feh=FEH")
    pattern = getattr(options, "name_pattern", None)
    if pattern and options.table:
        raise Failure(USAGE, "--name-pattern and --table exclude each other")
    if pattern:
        read_pattern(pattern, [name for name, _ in labels])
    wave = options.wave or options.log_wave
    return Request(labels, options.medium,
                   (*map(float, wave.split(",")), bool(options.log_wave)) if wave else None,
                   options.wave_file,
                   read_columns(options.columns, n_column) if options.columns else None,
                   options.table, options.name_column or "FILE", pattern)


def list_files(paths, request):
    """The files of a folder in the order of their names, else paths; and whether it is one file of
    many spectra."""
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        if len(paths) == 1 and (request.table or request.columns or request.name_pattern):
            raise Failure(USAGE, "--table, --columns and --name-pattern are for files with one "
                                 f"spectrum; {paths[0]} is not a folder")
        return paths, len(paths) == 1
    try:
        names = sorted(n for n in os.listdir(paths[0]) if n[0] != "." and STEM.fullmatch(n))
    except OSError as error:
        raise Failure(INPUT, f"{paths[0]}: cannot be listed: {error.strerror}") from error
    if not names:
        raise Failure(INPUT, f"{paths[0]}: has no files .fits, .fit, .fits.gz or .fit.gz")
    return [os.path.join(paths[0], name) for name in names], False


def stem(path):
    """Name of a file without its folder and its end."""
    name = os.path.basename(path)
    match = STEM.fullmatch(name)
    return match[1] if match else name


def read_pattern(pattern, names):
    """A compiled pattern of file names, and {name: divisor}: * is anything, {NAME} a number, and
    {NAME/10} ten times the label; signs may be p and m."""
    parts, divisor = [], {}
    for text in re.findall(r"\{[^{}]*\}|\*|[^*{]+|\{", pattern):
        match = re.fullmatch(r"\{([^/]*)(?:/(.*))?\}", text)
        if text == "*":
            parts.append(".*?")
        elif text[0] != "{":
            parts.append(re.escape(text))
        elif not match or match[1] not in names or not 0 < number(match[2] or "1") < 1e9:
            raise Failure(USAGE, f"--name-pattern {pattern}: '{text}' is not {{NAME}} or "
                                 "{NAME/NUMBER} with a label of --labels")
        elif match[1] in divisor:
            raise Failure(USAGE, f"--name-pattern {pattern}: {{{match[1]}}} appears twice")
        else:
            # all digits that there are: what has been looked at is not given back
            parts.append(rf"(?=(?P<_{match[1]}>[-+pm]?\d+(?:\.\d+)?))(?P=_{match[1]})")
            divisor[match[1]] = number(match[2] or "1")
    for name in names:
        if name not in divisor:
            raise Failure(USAGE, f"--name-pattern {pattern}: has no {{{name}}}; give it, or leave "
                                 f"{name} out of --labels")
    return re.compile("".join(parts), re.DOTALL), divisor


def labels_of_name(pattern, names, name):
    """[n_label] of a file's name; None: it does not have the pattern."""
    compiled, divisor = read_pattern(pattern, names)
    match = compiled.fullmatch(name)
    signs = str.maketrans("pm", "+-")
    return match and [float(match["_" + n].translate(signs)) / divisor[n] for n in names]


# ---- FITS ----

@contextlib.contextmanager
def opened(path):
    """The HDUs of a file; all that astropy finds wrong in it, here or later, is a Failure."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        try:
            yield stack.enter_context(open_fits(path, stack))
        except Failure:
            raise
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise Failure(INPUT, f"{path}: is no whole gzip file: {error}") from error
        except Exception as error:  # of astropy: any, of a damaged file
            raise Failure(INPUT, f"{path}: cannot be read: {error}") from error


def open_fits(path, stack):
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
            raise Failure(INPUT, f"{path}: is not a regular file")
        file = stack.enter_context(open(path, "rb"))
    except OSError as error:
        raise Failure(INPUT, f"{path}: cannot be opened: {error.strerror}") from error
    if file.read(2) == b"\x1f\x8b":
        file.seek(0)
        with gzip.open(file) as packed:
            content = packed.read(GZIP_LIMIT + 1)
        if len(content) > GZIP_LIMIT:
            raise Failure(INPUT, f"{path}: unpacks to more than {GZIP_LIMIT >> 20} MiB")
        file = io.BytesIO(content)
    file.seek(0)
    return fits.open(file, memmap=False, lazy_load_hdus=True)


def where(path, hdus, i):
    name = hdus[i].name
    return f"{path}, HDU {i}" + (f" ({name})" if name else "")


def card(path, hdus, i, key):
    """A finite number of a header; None: there is no such card."""
    value = hdus[i].header.get(key)
    if value is None or isinstance(value, fits.card.Undefined):
        return None
    if isinstance(value, bool) or not np.isfinite(number(value)):
        raise Failure(INPUT, f"{where(path, hdus, i)}: the card {key} is {value}, expected a "
                             "finite number")
    return float(value)


def card_of_both(path, hdus, i, key):
    """Of the spectrum's header or of the first one."""
    value = card(path, hdus, i, key)
    return card(path, hdus, 0, key) if value is None else value


def text_card(header, key):
    value = header.get(key, "")
    return ("F", "T")[value] if isinstance(value, bool) else value if isinstance(value, str) else ""


def image_part(hdu, index):
    """Numbers of an image as float64; only this part is read, but of a compressed image."""
    data = hdu.section[index] if hasattr(hdu, "section") else hdu.data[index]
    return np.asarray(data, float)


def is_table(hdu):
    return (isinstance(hdu, (fits.BinTableHDU, fits.TableHDU))
            and not isinstance(hdu, fits.CompImageHDU))


def has_columns(hdu, columns):
    names = [c.upper() for c in hdu.columns.names] if is_table(hdu) else []
    return all(c.upper() in names for c in columns)


def column_numbers(path, hdus, i, name):
    """A column as float64, NaN where an integer is the column's null."""
    hdu = hdus[i]
    values = np.asarray(hdu.data.field(name))
    if values.dtype.kind not in "iuf":
        raise Failure(INPUT, f"{where(path, hdus, i)}: column {name} must hold numbers")
    null = hdu.columns[[c.upper() for c in hdu.columns.names].index(name.upper())].null
    out = values.astype(float)
    if null is not None and values.dtype.kind in "iu":
        out[values == null] = np.nan
    return out


# ---- wavelengths ----

@dataclass
class Origin:
    """How wavelengths were found, for messages; fwhm_aa: card FWHM, NaN where there is none."""

    wavelengths: str = ""
    is_air: bool = False
    medium_key: str = "--medium"
    fwhm_aa: float = np.nan

    def __str__(self):
        return (f"wavelengths: {self.wavelengths}, {'air' if self.is_air else 'vacuum'} "
                f"({self.medium_key}){', converted to vacuum' if self.is_air else ''}")


def air_to_vacuum(wave):
    """Piskunov's fit of the inverse of Ciddor (1996), as io/surveys has it; from 2000 A on."""
    s2 = (1e4 / wave) ** 2
    n = (1 + 0.00008336624212083 + 0.02408926869968 / (130.1065924522 - s2)
         + 0.0001599740894897 / (38.92568793293 - s2))
    return np.where(wave >= 2000, wave * n, wave)


def medium_of(header):
    """("air" or "vacuum", its card), or None."""
    for key in ("WAVEFRAM", "AIRORVAC", "WAVEMED", "MEDIUM", "VACUUM", "CTYPE1"):
        text = text_card(header, key).upper()
        if key == "VACUUM":
            if text[:1] in ("T", "F"):
                return "vacuum" if text[0] == "T" else "air", f"card {key}"
        # WAVELENGTH, which many write, says nothing of the medium; WAVE-LOG does
        elif text.startswith("AIR") or re.fullmatch("AWAV(-.*)?", text):
            return "air", f"card {key}"
        elif text.startswith("VAC") or re.fullmatch("WAVE(-.*)?", text):
            return "vacuum", f"card {key}"
    return None


def to_vacuum(path, hdus, i, request, wave, origin):
    """The checked wavelengths in vacuum, A; origin gets the medium."""
    medium = request.medium
    if not medium:
        found = medium_of(hdus[i].header)
        if not found:
            raise Failure(INPUT, f"{where(path, hdus, i)} does not give the medium of its "
                                 "wavelengths; give --medium air or --medium vacuum")
        medium, origin.medium_key = found
    origin.is_air = medium == "air"
    bad = ~((wave >= 100) & (wave <= 1e6))
    bad[1:] |= ~(wave[1:] > wave[:-1])
    if bad.any():
        p = np.argmax(bad)
        raise Failure(INPUT, f"{where(path, hdus, i)}: {len(wave)} pixels with {wave[p]:.6g} at "
                             f"pixel {p} and {wave[-1]:.6g} at the last one ({origin.wavelengths}) "
                             "are not wavelengths in Angstrom: they must ascend between 100 and "
                             f"1e6; {HELP_WAVE}")
    return air_to_vacuum(wave) if origin.is_air else wave


def rule_of_header(path, hdus, i):
    """(first, step, is_log10) and how it was found."""
    header, at = hdus[i].header, where(path, hdus, i)
    kind, unit = text_card(header, "CTYPE1"), text_card(header, "CUNIT1")
    if unit and not unit.upper().startswith("ANG"):
        raise Failure(INPUT, f"{at}: CUNIT1 is '{unit[:40]}', expected Angstrom; {HELP_WAVE}")
    c0, c1 = card(path, hdus, i, "COEFF0"), card(path, hdus, i, "COEFF1")
    if c0 is not None and c1 is not None:
        return (c0, c1, True), f"log10 from COEFF0 {c0:.10g} and COEFF1 {c1:.6g}"
    value, pixel = card(path, hdus, i, "CRVAL1"), card(path, hdus, i, "CRPIX1")
    if value is None:
        raise Failure(INPUT, f"{at}: has no CRVAL1, so its wavelengths are not known; {HELP_WAVE}")
    step_key = "CDELT1" if "CDELT1" in header else "CD1_1"
    step = card(path, hdus, i, step_key)
    if step is None:
        raise Failure(INPUT, f"{at}: has neither CDELT1 nor CD1_1; {HELP_WAVE}")
    if pixel is None:
        raise Failure(INPUT, f"{at}: has CRVAL1 but no CRPIX1, so the pixel of that wavelength is "
                             f"not known; {HELP_WAVE}")
    flag = card(path, hdus, i, "DC-FLAG")
    if flag not in (None, 0, 1):
        raise Failure(INPUT, f"{at}: DC-FLAG is {flag:g}, expected 0 (linear) or 1 (log10); "
                             f"{HELP_WAVE}")
    if flag is None and "-" in kind:
        raise Failure(INPUT, f"{at}: CTYPE1 is '{kind[:40]}', a kind of axis that is not known "
                             f"here; {HELP_WAVE}")
    # without DC-FLAG a first wavelength below 10 can only be a log10
    is_log10 = value < 10 if flag is None else flag == 1
    return ((value + (1 - pixel) * step, step, is_log10),
            f"{'log10' if is_log10 else 'linear'} from CRVAL1 {value:.10g}, {step_key} {step:.6g} "
            f"and CRPIX1 {pixel:g}{'' if flag is None else ' (DC-FLAG)'}")


def wavelengths_of_file(request, n_pix, origin):
    path = request.wave_file
    with opened(path) as hdus:
        found = [i for i, h in enumerate(hdus) if h.is_image and h.shape == (n_pix,)]
        if not found:
            raise Failure(INPUT, f"{path}: has no image of one axis with the {n_pix} pixels of "
                                 "the spectra")
        wave = image_part(hdus[found[0]], slice(None))
        origin.wavelengths = f"from {wave[0]:.10g} to {wave[-1]:.10g}, of --wave-file"
        return to_vacuum(path, hdus, found[0], request, wave, origin)


def wavelengths(path, hdus, i, request, n_pix, origin):
    """Of an image, [n_pix] in vacuum, A."""
    if request.wave_file:
        return wavelengths_of_file(request, n_pix, origin)
    if request.wave:
        rule = request.wave
        origin.wavelengths = (f"{'log10' if rule[2] else 'linear'} as given, from {rule[0]:.10g} "
                              f"by {rule[1]:.6g}")
    else:
        rule, origin.wavelengths = rule_of_header(path, hdus, i)
    wave = rule[0] + np.arange(n_pix) * rule[1]
    with np.errstate(over="ignore"):
        return to_vacuum(path, hdus, i, request, 10**wave if rule[2] else wave, origin)


# ---- files with one spectrum ----

@dataclass
class Spectrum:
    wave: np.ndarray  # [n_pix] vacuum A
    flux: np.ndarray  # [n_pix] as the file has it
    continuum: np.ndarray = None  # where it is asked for
    origin: Origin = field(default_factory=Origin)


def find_one(path, hdus, request):
    """The HDU of the spectrum."""
    for i, hdu in enumerate(hdus):
        if request.columns and has_columns(hdu, request.columns[:2]):
            return i
        if not request.columns and hdu.is_image and hdu.shape[-1:] > (1,) and set(
                hdu.shape[:-1]) <= {1}:
            return i
    if request.columns:
        raise Failure(INPUT, f"{path}: no table has the columns {request.columns[0]} and "
                             f"{request.columns[1]}; name them with --columns")
    raise Failure(INPUT, f"{path}: has no image of one spectrum; name the columns of a table with "
                         "--columns WAVE,FLUX")


def read_table(path, hdus, i, request):
    columns, unit = [], ""
    for name in request.columns:
        if not has_columns(hdus[i], [name]):
            raise Failure(INPUT, f"{where(path, hdus, i)}: has no column {name}")
        values = column_numbers(path, hdus, i, name)
        columns.append(values[0] if values.ndim == 2 and len(values) == 1 else values)
        if columns[-1].ndim != 1 or not 2 <= len(columns[-1]) <= MAX_PIX or len(
                columns[-1]) != len(columns[0]):
            raise Failure(INPUT, f"{where(path, hdus, i)}: column {name} has the shape "
                                 f"{list(values.shape)}, expected a spectrum: one row a pixel or "
                                 f"one row with all, of 2 to {MAX_PIX} pixels")
    names = [c.upper() for c in hdus[i].columns.names]
    unit = hdus[i].columns[names.index(request.columns[0].upper())].unit or ""
    if unit and unit != "A" and not unit.upper().startswith("ANG"):
        raise Failure(INPUT, f"{where(path, hdus, i)}: the unit of {request.columns[0]} is "
                             f"'{unit[:40]}', expected Angstrom")
    origin = Origin(f"column {request.columns[0]}")
    columns[0] = to_vacuum(path, hdus, i, request, columns[0], origin)
    return Spectrum(*columns, origin=origin)


def read_one(path, request, first=None):
    """The spectrum of a file.  first: one that was read before; --wave-file is not read again for
    as many pixels."""
    with opened(path) as hdus:
        i = find_one(path, hdus, request)
        if request.columns:
            one = read_table(path, hdus, i, request)
        else:
            n_pix = hdus[i].shape[-1]
            if n_pix > MAX_PIX:
                raise Failure(INPUT, f"{where(path, hdus, i)} has {n_pix} pixels, at most "
                                     f"{MAX_PIX}")
            flux = image_part(hdus[i], (0,) * (len(hdus[i].shape) - 1) + (slice(None),))
            if request.wave_file and first and len(first.wave) == n_pix:
                one = Spectrum(first.wave, flux, origin=Origin(**vars(first.origin)))
            else:
                origin = Origin()
                one = Spectrum(wavelengths(path, hdus, i, request, n_pix, origin), flux,
                               origin=origin)
        fwhm = card_of_both(path, hdus, i, "FWHM")
    one.origin.fwhm_aa = np.nan if fwhm is None else fwhm
    return one


def labels_of_cards(path, request):
    """[n_label], NaN where there is no card; the spectrum is only looked for."""
    with opened(path) as hdus:
        i = find_one(path, hdus, request)
        values = [card_of_both(path, hdus, i, column) for _, column in request.labels]
    return [np.nan if v is None else v for v in values]


def labels_of_table(paths, request):
    """[n_file, n_label] of the rows whose names are those of the files; NaN where there is none."""
    path = request.table
    with opened(path) as hdus:
        i = next((i for i, h in enumerate(hdus) if has_columns(h, [request.name_column])), None)
        if i is None:
            raise Failure(INPUT, f"{path}: no table has a column {request.name_column} with the "
                                 "names of the files; name it with --name-column")
        names = [stem(str(n).strip()) for n in hdus[i].data.field(request.name_column)]
        for _, column in request.labels:
            if not has_columns(hdus[i], [column]):
                raise Failure(INPUT, f"{where(path, hdus, i)}: has no column {column}; name the "
                                     "labels' columns with --labels NAME=COLUMN,...")
        values = np.column_stack([column_numbers(path, hdus, i, c) for _, c in request.labels])
    rows, wanted = {}, {stem(p) for p in paths}
    for row, name in enumerate(names):
        if name in wanted and rows.setdefault(name, row) != row:
            raise Failure(INPUT, f"{path}: rows {rows[name] + 1} and {row + 1} (counted from 1) "
                                 f"both have the name '{name}': leave one of them out")
    if not rows:
        raise Failure(INPUT, f"{path}: its column {request.name_column} has none of the files' "
                             f"names, such as {stem(paths[0])}; the first is "
                             f"'{names[0][:40] if names else ''}'")
    out = np.full((len(paths), len(request.labels)), np.nan)
    for k, p in enumerate(paths):
        if stem(p) in rows:
            out[k] = values[rows[stem(p)]]
    return out


# ---- files with many spectra ----

def find_image(path, hdus):
    """The first image of spectra: two axes, or the more of a cube."""
    for i, hdu in enumerate(hdus):
        if hdu.is_image and 2 <= len(hdu.shape) <= 1 + MAX_LABEL and hdu.shape[-1] > 1 and all(
                hdu.shape):
            return i
    raise Failure(INPUT, f"{path}: has no image with two axes, pixels and spectra; see "
                         "docs/use/libraries.md for what is read")


def axis_values(path, hdus, i, k, name, n):
    """Of a label along axis k of a cube: the image with its name, or equal steps from the cards."""
    for j, hdu in enumerate(hdus):
        if hdu.name.upper() == name.upper():
            if not hdu.is_image or hdu.shape != (n,):
                raise Failure(INPUT, f"{where(path, hdus, j)}: expected an image of one axis with "
                                     f"the {n} values of axis {k}")
            return image_part(hdu, slice(None))
    start, step = (card(path, hdus, i, f"{key}{k}") for key in ("CRVAL", "CDELT"))
    pixel = card(path, hdus, i, f"CRPIX{k}")
    if start is None or step is None:
        raise Failure(INPUT, f"{where(path, hdus, i)}: the values of axis {k}, {name}, are not "
                             f"known: there is neither an image {name} nor the card "
                             f"{'CRVAL' if start is None else 'CDELT'}{k}")
    return start + (np.arange(n) + 1 - (1 if pixel is None else pixel)) * step


def labels_of_cube(path, hdus, i, request):
    """[n_spectrum, n_label]: each axis but the first is a label, by CTYPE or CNAME."""
    shape, header, at = hdus[i].shape[:-1], hdus[i].header, where(path, hdus, i)
    columns = [column.upper() for _, column in request.labels]
    if len(shape) != len(columns):
        raise Failure(INPUT, f"{at} has {len(shape)} axes besides the pixels, and --labels names "
                             f"{len(columns)}; name them all")
    grids, keys = [None] * len(columns), {}
    for k, n in zip(range(2, len(shape) + 2), shape[::-1]):
        key = next((key for key in (f"CTYPE{k}", f"CNAME{k}")
                    if text_card(header, key).upper() in columns), f"CTYPE{k}")
        name = text_card(header, key)
        if name.upper() not in columns:
            raise Failure(INPUT, f"{at}: {key} is '{name[:40]}', which --labels NAME={key},... "
                                 "does not name")
        label = columns.index(name.upper())
        if label in keys:
            raise Failure(INPUT, f"{at}: {keys[label]} and {key} are both '{name[:40]}'; each axis "
                                 "is another label")
        keys[label] = key
        values = axis_values(path, hdus, i, k, request.labels[label][1], n)
        along = [1] * len(shape)
        along[len(shape) + 1 - k] = n
        grids[label] = np.broadcast_to(values.reshape(along), shape).ravel()
    return np.column_stack(grids)


def labels_beside_image(path, hdus, n, request):
    """[n, n_label] of the first table that has the columns and a row for each spectrum."""
    tables = [i for i, h in enumerate(hdus) if is_table(h) and h.header["NAXIS2"] == n]
    columns = [column for _, column in request.labels]
    for i in tables:
        if has_columns(hdus[i], columns):
            out = [column_numbers(path, hdus, i, column) for column in columns]
            if any(values.ndim != 1 for values in out):
                raise Failure(INPUT, f"{where(path, hdus, i)}: a label has one number a row")
            return np.column_stack(out)
    if not tables:
        raise Failure(INPUT, f"{path}: has no table with a row for each of the {n} spectra")
    missing = next(c for c in columns if not has_columns(hdus[tables[-1]], [c]))
    raise Failure(INPUT, f"{path}: no table with a row for each of the {n} spectra has a column "
                         f"{missing}; name the labels' columns with --labels NAME=COLUMN,...")


# ---- spectra one at a time ----

def stamp_of(path):
    """Distinguishes a file from another one of the same name, cheaply; 0 where it cannot be read.
    The digest is that of docs/use/formats.md."""
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
    """n spectra of files with one each, or of one file with many, which stays open; memory holds
    one spectrum, and the labels of a file with many.  close() it, or use with."""

    def __init__(self, paths, is_many, request):
        self.paths, self.is_many, self.request = paths, is_many, request
        self.n, self.first, self._stack = len(paths), None, contextlib.ExitStack()
        self.names = [name for name, _ in request.labels]
        self._known = labels_of_table(paths, request) if request.table else None
        if is_many:
            try:
                self._open_many()
            except BaseException:
                self.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        self._stack.close()

    def _open_many(self):
        path = self.paths[0]
        self._stamp = stamp_of(path)
        hdus = self._hdus = self._stack.enter_context(opened(path))
        with self._guard():
            self._i = i = find_image(path, hdus)
            *shape, n_pix = self.shape = hdus[i].shape
            self.n = int(np.prod(shape, dtype=object))
            if self.n > MAX_MODEL or n_pix > MAX_NUMBER:
                raise Failure(INPUT, f"{where(path, hdus, i)} has {self.n} spectra of {n_pix} "
                                     f"pixels, at most {MAX_MODEL}")
            self._known = (labels_of_cube(path, hdus, i, self.request) if len(shape) > 1
                           else labels_beside_image(path, hdus, self.n, self.request))
            origin = Origin()
            wave = wavelengths(path, hdus, i, self.request, n_pix, origin)
            fwhm = card(path, hdus, i, "FWHM")
            origin.fwhm_aa = np.nan if fwhm is None else fwhm
            self.first = Spectrum(wave, None, origin=origin)

    @contextlib.contextmanager
    def _guard(self):
        """As opened() does, while the file stays open."""
        try:
            yield
        except Failure:
            raise
        except Exception as error:
            raise Failure(INPUT, f"{self.paths[0]}: cannot be read: {error}") from error

    def why(self, i, failure):
        """A Failure as spectrum i's own: without the path, since its name stands before it."""
        path = self.paths[0 if self.is_many else i]
        message = str(failure)
        return message[len(path):].lstrip(":, ") if message.startswith(path) else message

    def entry(self, i):
        """(name, labels, stamp, why) of a spectrum, of which only the header is read; why: it
        cannot be used, or empty; NaN: a label that is not known."""
        nothing = [np.nan] * len(self.names)
        if self.is_many:
            name, labels, stamp, why = f"row {i + 1}", list(self._known[i]), self._stamp, ""
        else:
            path, why, labels = self.paths[i], "", None
            name, stamp = stem(path)[1 - NAME:], stamp_of(path)  # long names differ at their end
            try:
                if self.request.table:
                    labels = list(self._known[i])
                elif self.request.name_pattern:
                    # with its end, which a pattern may give
                    labels = labels_of_name(self.request.name_pattern, self.names,
                                            os.path.basename(path))
                    if labels is None:
                        why = "its name does not have the pattern " + self.request.name_pattern
                else:
                    labels = labels_of_cards(path, self.request)
            except Failure as failure:
                why = self.why(i, failure)
        for (label, column), value in zip(self.request.labels, labels or nothing):
            if not why and not np.isfinite(value):
                why = f"its label {label} ({column}) is not known"
        return name, labels or nothing, stamp, why

    def read(self, i):
        """The Spectrum; spectra with equal wavelengths share the array of the first."""
        if self.is_many:
            with self._guard():
                at = np.unravel_index(i, self.shape[:-1])
                flux = image_part(self._hdus[self._i], (*map(int, at), slice(None)))
            return Spectrum(self.first.wave, flux, origin=self.first.origin)
        one = read_one(self.paths[i], self.request, self.first)
        self.first = self.first or one
        if np.array_equal(one.wave, self.first.wave):
            one.wave = self.first.wave
        return one


# ---- all of them ----

@dataclass
class LabelledSpectra:
    wave: np.ndarray  # [n_pix] vacuum A
    flux: np.ndarray  # [n, n_pix] float32, NaN: bad or beyond the spectrum's own pixels
    labels: np.ndarray  # [n, n_label] NaN: not known
    names: list  # of files with one spectrum each, else None
    origin: Origin  # of the first


def on_grid(one, wave):
    """Flux at wave: the same numbers where it is the spectrum's own, else a natural cubic spline,
    NaN where one of the four samples around is bad."""
    if len(one.wave) == len(wave) and (abs(one.wave - wave) <= 1e-9 * wave).all():
        return one.flux
    good = np.isfinite(one.flux)
    last = np.maximum.accumulate(np.where(good, np.arange(len(good)), -1))
    filled = np.where(last >= 0, one.flux[last], 0)  # neighbours of a bad sample are lost anyway
    out = CubicSpline(one.wave, filled, bc_type="natural")(wave)
    at = np.clip(np.searchsorted(one.wave, wave, side="right") - 1, 0, len(one.wave) - 2)
    padded = np.pad(good & (one.flux > 0), 2, constant_values=True)
    around = padded[at + 1] & padded[at + 2] & padded[at + 3] & padded[at + 4]
    return np.where(around & (wave >= one.wave[0]) & (wave <= one.wave[-1]), out, np.nan)


def read_all(paths, is_many, request):
    """All spectra on the wavelengths of the first that can be read.  One that cannot be read is
    NaN, and named by a warning; all of them are a Failure."""
    with Source(paths, is_many, request) as source:
        n, failures, out = source.n, [], None
        labels = np.full((n, len(source.names)), np.nan)
        names = None if is_many else []
        for i in range(n):
            try:
                one = source.read(i)
                name, labels[i], _, _ = source.entry(i)
            except Failure as failure:
                if failure.status != INPUT:
                    raise
                failures.append(failure)
                name = stem(paths[0 if is_many else i])
                one = None
            if names is not None:
                names.append(name)
            if one is not None:
                if out is None:
                    first, out = one, room_for(n, one)
                out[i] = on_grid(one, first.wave)
    if out is None:
        raise failures[0]
    for failure in failures[:N_WARNED]:
        warn(f"left out: {failure}")
    if len(failures) > N_WARNED:
        warn(f"left out: {len(failures) - N_WARNED} more spectra that cannot be read")
    return LabelledSpectra(first.wave, out, labels, names, first.origin)


def room_for(n, one):
    if n > MAX_SPECTRUM or n * len(one.flux) > MAX_NUMBER:
        raise Failure(INPUT, f"{n} spectra of {len(one.flux)} pixels, at most {MAX_SPECTRUM} "
                             f"spectra and {MAX_NUMBER} numbers")
    return np.full((n, len(one.flux)), np.nan, "f4")
