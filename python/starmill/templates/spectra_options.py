# SPDX-License-Identifier: BSD-3-Clause
"""Options of jobs that read spectra with labels; labels in file names."""

import contextlib
import os
import re
from dataclasses import dataclass

import numpy as np

from starmill.cli.basics import INPUT, USAGE, Failure, as_failure, need
from starmill.templates.labels import KNOWN
from starmill.templates.library_data import MAX_AXIS

STEM = re.compile(r"(.+)\.fits?(\.gz)?", re.IGNORECASE | re.DOTALL)


@dataclass
class Request:
    """What to read; None: not given."""
    labels: list  # of (name, its column, card or axis)
    medium: str = None  # "air" or "vacuum"; None: as the header says
    wave: tuple = None  # (first, step, whether both are log10 of A)
    wave_file: str = None
    columns: list = None  # WAVE, FLUX, ... of a table with one spectrum
    table: str = None
    name_column: str = "FILE"
    name_pattern: str = None
    unit: str = None  # of the column WAVE


def items(option, text):
    """Return the (NAME, VALUE) pairs of NAME=VALUE,..."""
    out = [item.partition("=")[::2] for item in text.split(",")]
    need(all(name and value and len(name) < 32 for name, value in out), USAGE,
         f"--{option} {text}: expected NAME=VALUE,..., names of 1 to 31 characters")
    return out


def number(text):
    """Return a text as a number, NaN if it is not one."""
    try:
        return float(text)
    except ValueError:
        return np.nan


def read_labels(text, most):
    labels = items("labels", text)
    need(len(labels) <= most, USAGE, f"--labels {text}: expected at most {most} labels")
    for i, (name, column) in enumerate(labels):
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            raise Failure(USAGE, f"--labels {text}: a name is made of letters, digits and _")
        need(name in KNOWN or name.lower() not in KNOWN, USAGE, f"--labels {text}: write "
             f"{name.lower()}={column}: {name.lower()} has a known unit, {name} has not")
        need(name.lower() not in [other.lower() for other, _ in labels[:i]], USAGE,
             f"--labels {text}: {name} appears twice")
        need(len(column) <= 31, USAGE, f"--labels {text}: {column} is too long")
    return labels


def read_ranges(option, text, labels):
    """Return {name: (min, max)} of NAME=MIN:MAX,...; each NAME must be one of labels."""
    out = {}
    for name, value in items(option, text):
        low, high = map(number, value.partition(":")[::2])
        need(-np.inf < low < high < np.inf, USAGE,
             f"--{option} {text}: expected NAME=MIN:MAX, MIN below MAX")
        need(name in dict(labels), USAGE, f"--{option} {name}: not one of the labels (--labels)")
        out[name] = (low, high)
    return out


def read_columns(text, n_most):
    columns = text.split(",")
    if not 2 <= len(columns) <= n_most or not all(0 < len(c) < 32 for c in columns):
        shown = "WAVE,FLUX" + ("", "[,CONTINUUM]", "[,ERROR[,SIGMA]]")[n_most - 2]
        raise Failure(USAGE, f"--columns {text}: expected {shown}, columns of up to 31 characters")
    return columns


def request_of(options, n_column=2, most_labels=MAX_AXIS):
    """Return the Request of a job's options, which may lack name_pattern and unit.  n_column: limit
    on names in --columns (2: WAVE,FLUX; 3: WAVE,FLUX,CONTINUUM; 4: WAVE,FLUX,ERROR,SIGMA)."""
    need(not options.name_column or options.table, USAGE, "--name-column needs --table FILE")
    labels = read_labels(options.labels or "teff=TEFF,logg=LOGG,feh=FEH", most_labels)
    pattern = getattr(options, "name_pattern", None)
    if pattern:
        read_pattern(pattern, [name for name, _ in labels])
    wave = options.wave or options.log_wave
    columns = read_columns(options.columns, n_column) if options.columns else None
    return Request(labels, options.medium, (*wave, bool(options.log_wave)) if wave else None,
                   options.wave_file, columns, options.table, options.name_column or "FILE",
                   pattern, getattr(options, "unit", None))


def files_below(folder, wanted=STEM, kinds=".fits, .fit, .fits.gz or .fit.gz"):
    """Return the paths of spectra in a folder and its subfolders, sorted; follow links."""
    def fail(error):
        raise Failure(INPUT, f"{error.filename}: cannot be listed: {error.strerror}") from error
    found, seen = [], set()
    for path, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        folders[:] = sorted(n for n in folders if n[0] != ".")
        if os.path.realpath(path) in seen:
            folders[:], names = [], []
        seen.add(os.path.realpath(path))
        found += [os.path.join(path, n) for n in sorted(names)
                  if n[0] != "." and wanted.fullmatch(n)]
    need(found, INPUT, f"{folder}: has no files ({kinds}) in it or its subfolders")
    return found


def is_list(path):
    """Return whether a file is text, a list of paths."""
    if STEM.fullmatch(path) or not os.path.isfile(path):
        return False
    with contextlib.suppress(OSError), open(path, "rb") as file:
        first = file.read(512)
        return not first.startswith((b"SIMPLE", b"\x1f\x8b")) and b"\0" not in first
    return False


def files_of_list(path):
    """Return the paths in a text file, one a line, relative to its folder; # begins a comment."""
    with as_failure(INPUT, f"{path}: cannot be read", OSError), \
            open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
        lines = [line.strip() for line in file]
    found = [os.path.join(os.path.dirname(path), n) for n in lines if n and n[0] != "#"]
    missing = next((one for one in found if not os.path.exists(one)), None)
    if missing or not found:
        raise Failure(INPUT, f"{path}: expected a FITS file or a list of spectra, one path a line; "
                             + (f"there is no file {missing[:200]}" if found else "it is empty"))
    return found


def list_files(arguments, request):
    """Return the paths of spectra that the arguments (folders, lists and files) name, and whether
    they are one file of many spectra.  Leave out the files given by --table and --wave-file."""
    paths = []
    for path in arguments:
        one = files_of_list(path) if is_list(path) else [path]
        paths += [p for name in one for p in (files_below(name) if os.path.isdir(name) else [name])]
    if paths == list(arguments[:1]):
        need(not (request.table or request.columns or request.name_pattern), USAGE,
             "--table, --columns and --name-pattern need a folder or list of files with one "
             f"spectrum each; {paths[0]} is "
             + ("neither a folder nor a list" if os.path.exists(paths[0]) else "no file"))
        return paths, True
    others = {os.path.realpath(p) for p in (request.table, request.wave_file) if p}
    found = [p for p in dict.fromkeys(paths) if os.path.realpath(p) not in others]
    need(found, INPUT, f"{arguments[0]}: has no spectra, only the files of --table and --wave-file")
    return found, False


def stem(path, known=STEM):
    """Return a file's name without its folder and extension."""
    name = os.path.basename(path)
    match = known.fullmatch(name)
    return match[1] if match else name


def read_pattern(pattern, names):
    """Return a --name-pattern as a regular expression and {name: divisor}.  In the pattern * is
    anything, {NAME} the label, {NAME/10} ten times the label; signs may be p and m."""
    parts, divisor = [], {}
    for text in re.findall(r"\{[^{}]*\}|\*|[^*{]+|\{", pattern):
        match = re.fullmatch(r"\{([^/]*)(?:/(.*))?\}", text)
        if text == "*":
            parts.append(".*?")
        elif text[0] != "{":
            parts.append(re.escape(text))
        elif not match or match[1] not in names or not 0 < number(match[2] or "1") < 1e9:
            raise Failure(USAGE, f"--name-pattern {pattern}: '{text}' is not {{NAME}} or "
                                 "{NAME/NUMBER}, where NAME is in --labels")
        elif match[1] in divisor:
            raise Failure(USAGE, f"--name-pattern {pattern}: {{{match[1]}}} appears twice")
        else:
            # take all digits: a lookahead is never shortened by backtracking
            parts.append(rf"(?=(?P<_{match[1]}>[-+pm]?\d+(?:\.\d+)?))(?P=_{match[1]})")
            divisor[match[1]] = number(match[2] or "1")
    for name in names:
        need(name in divisor, USAGE, f"--name-pattern {pattern}: has no {{{name}}}; give it, or "
             f"leave {name} out of --labels")
    return re.compile("".join(parts), re.DOTALL), divisor


def labels_of_name(pattern, names, name):
    """Return the labels [n_label] in a file's name; None if it does not match the pattern."""
    compiled, divisor = read_pattern(pattern, names)
    match = compiled.fullmatch(name)
    signs = str.maketrans("pm", "+-")
    return match and [float(match["_" + n].translate(signs)) / divisor[n] for n in names]
