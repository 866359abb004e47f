# SPDX-License-Identifier: BSD-3-Clause
"""Code shared by the Python jobs; imports the standard library only."""

import contextlib
import importlib.util
import mmap
import os
import resource
import signal
import subprocess
import sys

USAGE, INPUT, OUTPUT, INTERNAL, STOPPED = 2, 3, 4, 70, 75  # exit statuses, equal to the C program's
STOP_SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1
SYSTEM_PYTHON = "/usr/bin/python3"
BLAS_BYTES = 129 << 20  # buffer of a thread of OpenBLAS, as in src/system/blas_threads.c

# HDF5's locks fail on some file systems, and reading a result during its run needs none
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

# {module: pip's package that has it}, where the names differ
PACKAGES = {"PIL": "pillow", "yaml": "pyyaml", "hats_import": "hats-import"}


class Failure(Exception):
    """An error that ends the script with one line and an exit status."""

    def __init__(self, status, message):
        super().__init__(status, message)  # both arguments, so that it can be pickled
        self.status, self.message = status, message

    def __str__(self):
        return self.message


def need(good, kind, message):
    """Raise an error unless `good`.  kind: exit status of the Failure, or class of the error."""
    if not good:
        raise kind(message) if isinstance(kind, type) else Failure(kind, message)


@contextlib.contextmanager
def as_failure(status, what, *errors, advice=""):
    """Turn an error of these types into a Failure with the message `what: `, reason and advice."""
    try:
        yield
    except errors as error:
        reason = getattr(error, "strerror", None) or error  # HDF5's own errors have no strerror
        raise Failure(status, (what and f"{what}: ") + f"{reason}{advice}") from error


def check_packages(*modules):
    """Import the modules; if one is missing, rerun the job once with /usr/bin/python3, or fail."""
    specs = {module: importlib.util.find_spec(module) for module in modules}
    missing = [module for module, spec in specs.items() if spec is None]
    if not missing:
        for module, spec in specs.items():
            try:
                importlib.import_module(module)
            except (Failure, MemoryError):
                raise
            except Exception as error:  # an import may raise anything
                raise Failure(USAGE, f"{sys.executable} cannot import {module} ({spec.origin}): "
                              f"{error}: repair it or PYTHONPATH, or name another Python by the "
                              f"environment variable STARMILL_PYTHON{memory_limit()}") from error
        if "numpy" in modules or "scipy" in modules:
            take_blas_room()
        return
    if not os.environ.get("STARMILL_PYTHON") and os.path.exists(SYSTEM_PYTHON):
        os.environ["STARMILL_PYTHON"] = SYSTEM_PYTHON  # rerun only once
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, "-BE" + "s" * sys.flags.no_user_site, *sys.argv])
    debian = "" if {"pyarrow", "hats_import"} & set(missing) else \
        f"install {' '.join('python3-' + module.lower() for module in missing)} (Debian) or "
    raise Failure(USAGE, f"{sys.executable} lacks {', '.join(missing)}: {debian}pip install "
                  f"{' '.join(PACKAGES.get(name, name) for name in missing)}, or name another "
                  "Python by the environment variable STARMILL_PYTHON")


def memory_limit():
    """Return a text on the memory limit for a message, "" without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if limit == resource.RLIM_INFINITY else \
        f"; the limit on address space (ulimit -v) is {limit >> 20} MiB"


def take_blas_room():
    """Make each loaded OpenBLAS allocate its buffer now, or raise MemoryError: if memory ran out
    later, OpenBLAS would retry for ever and ignore signals."""
    import numpy
    square = numpy.ones((128, 128))
    products = [numpy.dot]
    if "scipy" in sys.modules:  # scipy may have its own OpenBLAS
        from scipy.linalg.blas import dgemm
        products.append(lambda a, b: dgemm(1.0, a, b))
    for product in products:
        try:
            mmap.mmap(-1, BLAS_BYTES, mmap.MAP_PRIVATE).close()
        except OSError as error:
            raise MemoryError from error
        product(square, square)


def catch_stops():
    """Raise a Failure at every stop signal, wherever the job is."""
    def stop(*_):
        raise Failure(STOPPED, "stopped in good order; give the same command again")
    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # the program may have blocked them


def printable(words):
    """Escape control characters, which a terminal would obey, and bytes that are not UTF-8."""
    return "".join(
        c if c.isprintable() else f"\\x{ord(c) - 0xdc00:02x}" if "\udc80" <= c <= "\udcff"
        else c.encode("unicode_escape").decode() for c in words)


def ascii_of(text):
    """Return a text as library and grid files hold it: ASCII, with ? for other characters."""
    return "".join(c if c == "\n" or " " <= c <= "~" else "?" for c in text)


def refuse_input(path, reads, ends=("", ".lock"), option="--output"):
    """Refuse an output if its path, followed by any of `ends`, is an input of the job.
    reads: [(description of an input, its path or None)]."""
    written = [path + end for end in ends]
    names = [os.path.realpath(one) for one in written]
    there = [os.stat(one) for one in written if os.path.exists(one)]
    for what, read in reads:
        about = os.stat(read) if read and os.path.exists(read) else None
        is_same = read and os.path.realpath(read) in names or about and any(
            os.path.samestat(about, one) for one in there)
        need(not is_same, USAGE, f"{option} {path} and {what} {read} are one file: "
             "give another name for the output")


def check_output(path, overwrite, reads, option="--output"):
    """Check an output before any work is done.  reads: as for refuse_input."""
    refuse_input(path, reads, option=option)
    if os.path.lexists(path) and not overwrite:
        raise Failure(OUTPUT, f"{path} exists: give --overwrite to replace it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise Failure(OUTPUT, f"{path} exists and is no regular file: give another name")


def beginning(path):
    """Return the first 4096 bytes of a regular file, b"" of anything else."""
    if not os.path.isfile(path):
        return b""
    with open(path, "rb") as file:
        return file.read(4096)


def check_text(path, overwrite, reads, option="--output"):
    """Check the output of a text or a picture: it must not replace a FITS, gzip or HDF5 file."""
    check_output(path, overwrite, reads, option)
    need(not beginning(path).startswith((b"SIMPLE  =", b"\x1f\x8b", b"\x89HDF")), USAGE,
         f"{option} {path} is FITS, gzip or HDF5, which --overwrite does not replace: give another "
         "name, or remove it yourself")


def picture_kind(path, option="--output"):
    """Return "png" or "pdf" by the path's ending; refuse others."""
    kind = os.path.splitext(path)[1].lower()[1:]
    need(kind in ("png", "pdf"), USAGE, f"{option} {path}: give a name that ends in .png or .pdf")
    return kind


def refuse_foreign(path, made, option="--output"):
    """Refuse to --overwrite a file unless it is empty or an HDF5 file of the format `made`."""
    first = beginning(path)
    need(not first or first.startswith(b"\x89HDF") and made.encode() in first, USAGE,
         f"{option} {path} exists and is not a {made} file, so --overwrite does not replace it: "
         "give another name, or remove it yourself")


def version(program):
    """Return "starmill 0.1.0 (revision)" of the program at that path, "starmill" for None."""
    if not program:
        return "starmill"
    text = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=True, text=True)
    name, revision = text.stdout.splitlines()[:2]
    return f"{name} ({revision.split()[-1]})"


def writing(path, *more):
    """Turn an OSError, or an error of types `more`, into a Failure that path cannot be written."""
    return as_failure(OUTPUT, f"{path} cannot be written", OSError, *more,
                      advice=": make room or choose another output")


def make_folder(folder):
    """Make the folder --output, or a folder in it, unless it exists; check that it can be used."""
    with as_failure(OUTPUT, f"--output {folder} cannot be made", OSError,
                    advice="; create its parent first"), contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    need(os.path.isdir(folder), OUTPUT,
         f"--output {folder} exists and is not a folder: choose another name")
    need(os.access(folder, os.R_OK | os.W_OK | os.X_OK), OUTPUT,
         f"--output {folder}: cannot read or write in the folder")


def process(pid):
    """Return (state, start time) of a process of this host from /proc, None without one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
        return words[0], int(words[19])
    except (OSError, IndexError, ValueError):
        return None


def temporary_name(path):
    """Return a name next to path.  By such names OutputLock finds a process's half-made files."""
    return f"{path}.tmp-{os.getpid()}-{(process(os.getpid()) or (0, 0))[1]}"


def begin_file(path):
    """Make an empty file with temporary_name(path); return the name."""
    temporary = temporary_name(path)
    with writing(path):
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    return temporary


def put_in_place(temporary, path, overwrite):
    """Rename or link a finished file to path.  Without overwrite, refuse if path exists by now."""
    try:
        if not overwrite:
            os.link(temporary, path)
            return
    except FileExistsError as error:
        raise Failure(OUTPUT, f"{path} exists: another job has written it meanwhile; give "
                              "--overwrite to replace it") from error
    except OSError:  # a file system without links
        check_output(path, overwrite, ())
    os.replace(temporary, path)


@contextlib.contextmanager
def replacing(path, overwrite=True):
    """Yield the name of a temporary file.  At the end rename the file to path; after an error
    remove it.  overwrite: replace a file that exists at path by then."""
    temporary = begin_file(path)
    try:
        yield temporary
        with writing(path):
            put_in_place(temporary, path, overwrite)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def write_whole(path, pieces, overwrite):
    with replacing(path, overwrite) as temporary, writing(path), open(temporary, "r+b") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def did_you_mean(word, known, near=()):
    """Return "; did you mean WORD?" or "".  WORD is near[0], else the most similar known word."""
    import difflib  # slow; needed only after a mistake
    near = near or difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def warn(message):
    print(printable(f"warning: {message}"), file=sys.stderr)
