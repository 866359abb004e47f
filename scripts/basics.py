# SPDX-License-Identifier: BSD-3-Clause
"""What the jobs in Python share; it needs no package."""

import importlib.util
import os
import signal
import subprocess
import sys

USAGE, INPUT, OUTPUT, INTERNAL, STOPPED = 2, 3, 4, 70, 75  # exit statuses, as those of the program
STOP_SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1
SYSTEM_PYTHON = "/usr/bin/python3"

# file systems without locks have results too, and a run that writes is no hindrance
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

# by module: what pip calls it
PACKAGES = {"numpy": "numpy", "h5py": "h5py", "scipy": "scipy", "astropy": "astropy",
            "matplotlib": "matplotlib", "PIL": "pillow",
            "yaml": "pyyaml"}


class Failure(Exception):
    """Ends the script with one line and an exit status."""

    def __init__(self, status, message):
        super().__init__(status, message)  # both, for processes that hand it on
        self.status, self.message = status, message

    def __str__(self):
        return self.message


def check_packages(job, *modules):
    """Goes on with /usr/bin/python3 where only that has them, else ends the job with one line that
    names all that are missing, and for which Python."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if not missing:
        return
    if not os.environ.get("STARMILL_PYTHON") and os.path.exists(SYSTEM_PYTHON):
        os.environ["STARMILL_PYTHON"] = SYSTEM_PYTHON  # once
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, "-B", *sys.argv])
    raise Failure(USAGE, f"{sys.executable} lacks {', '.join(missing)}: install "
                  f"{' '.join('python3-' + module.lower() for module in missing)} (Debian) or pip "
                  f"install {' '.join(PACKAGES[module] for module in missing)}, or name another "
                  "Python by the environment variable STARMILL_PYTHON")


def catch_stops():
    """A signal to stop is a Failure where the job is just then."""
    def stop(*_):
        raise Failure(STOPPED, "stopped in good order; give the same command again")

    for number in STOP_SIGNALS:
        signal.signal(number, stop)


def printable(words):
    """Without the control characters that a file's text may hold, which a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)


def refuse_input(path, reads):
    """An output is none of the files that are read.  reads: (what it is, path) of each."""
    try:
        is_there = os.stat(path)
    except OSError:  # nothing, or a link to nothing
        is_there = None
    for what, read in reads:
        try:
            same = is_there is not None and os.path.samestat(is_there, os.stat(read))
        except OSError:
            continue
        if same:
            raise Failure(USAGE, f"--output {path} and {what} {read} are one file: give another "
                                 "name for the output")


def check_output(path, overwrite, reads):
    """Before any work is done for it.  reads: as above."""
    refuse_input(path, reads)
    if os.path.lexists(path) and not overwrite:
        raise Failure(OUTPUT, f"{path} exists: give --overwrite to replace it")


def refuse_foreign(path, made, option="--output"):
    """--overwrite replaces files of starmill only, which have their format in the first bytes."""
    if not os.path.isfile(path) or os.path.getsize(path) == 0:
        return
    with open(path, "rb") as file:
        first = file.read(4096)
    if not first.startswith(b"\x89HDF") or made.encode() not in first:
        raise Failure(USAGE, f"{option} {path} exists and is not a {made} file, so --overwrite does "
                             "not replace it: give another name, or remove it yourself")


def version(program):
    """"starmill 0.1.0 (revision)" of the program at that path; None: the bare name."""
    if not program:
        return "starmill"
    text = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=True, text=True)
    name, revision = text.stdout.splitlines()[:2]
    return f"{name} ({revision.split()[-1]})"


def write_whole(path, pieces):
    """Bytes under a temporary name, then renamed, so that no half file has the name."""
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "xb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise Failure(OUTPUT, f"{path} cannot be written: {error.strerror}") from error
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def warn(message):
    print(printable(f"warning: {message}"), file=sys.stderr)
