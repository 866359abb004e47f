"""What the scripts of `starmill plot` and `starmill report` share that needs no package."""

import importlib.util
import os
import sys

USAGE, INPUT, OUTPUT = 2, 3, 4  # exit statuses, as those of the program

# file systems without locks have results too, and a run that writes is no hindrance
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

# by module: what pip calls it
PACKAGES = {"numpy": "numpy", "h5py": "h5py", "astropy": "astropy", "matplotlib": "matplotlib",
            "PIL": "pillow"}


class Failure(Exception):
    """Ends the script with one line and an exit status."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def check_packages(job):
    """Ends the script with one line that names all that are missing, and for which Python."""
    missing = [module for module in PACKAGES if importlib.util.find_spec(module) is None]
    if missing:
        print(f"starmill {job}: {sys.executable} lacks {', '.join(missing)}: install "
              f"{' '.join('python3-' + module.lower() for module in missing)} (Debian) or pip "
              f"install {' '.join(PACKAGES[module] for module in missing)}, or name another Python "
              "by the environment variable STARMILL_PYTHON", file=sys.stderr)
        sys.exit(USAGE)


def check_output(path, overwrite):
    """Before any work is done for it."""
    if os.path.exists(path) and not overwrite:
        raise Failure(OUTPUT, f"{path} exists: give --overwrite to replace it")


def write_whole(path, data):
    """Bytes under a temporary name, then renamed, so that no half file has the name."""
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise Failure(OUTPUT, f"{path} cannot be written: {error.strerror}") from error


def run(job, main):
    """The end of a script: main(*arguments), and one line of a failure."""
    try:
        main(*sys.argv[1:])
    except Failure as failure:
        print(f"starmill {job}: {failure}", file=sys.stderr)
        sys.exit(failure.status)
    except MemoryError:
        print(f"starmill {job}: out of memory", file=sys.stderr)
        sys.exit(70)
    except KeyboardInterrupt:
        sys.exit(130)
