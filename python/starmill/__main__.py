# SPDX-License-Identifier: BSD-3-Clause
"""Runs a job written in Python: python3 -m starmill JOB ARGUMENT...  The C program runs this file
by its path, and sets the environment variable STARMILL_PROGRAM to its own path."""

import atexit
import contextlib
import errno
import gc
import os
import signal
import sys

_interrupt = signal.getsignal(signal.SIGINT)
if _interrupt is signal.default_int_handler:  # otherwise SIGINT is ignored, as for a background job
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before main nobody catches KeyboardInterrupt

if not __package__:  # started as a file: add our folder, site-packages last
    _folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    sys.path[:1] = [] if _folder in map(os.path.realpath, sys.path[1:]) else [_folder]
# python3 -E ignored PYTHONPATH: put its folders after Python's own and ours, before site-packages
_place = [i for i, folder in enumerate(sys.path) if folder.endswith("-packages")] + [len(sys.path)]
sys.path[_place[0]:_place[0]] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))

from starmill.cli import jobs  # noqa: E402
from starmill.cli.basics import (INTERNAL, OUTPUT, USAGE, Failure, memory_limit,  # noqa: E402
                                 printable)


def main():
    words = sys.argv[1:]
    os.environ["MPLBACKEND"] = "Agg"  # no job needs a display
    signal.signal(signal.SIGINT, _interrupt)
    if sys.stdout:
        sys.stdout.reconfigure(errors="backslashreplace")  # names may be no UTF-8
    try:
        status = jobs.run(words)
        sys.stdout.flush()
        sys.exit(status)
    except Failure as failure:
        status, message = failure.status, str(failure)
    except (SystemError, ImportError) as error:  # or a signal's Failure in HDF5 or numpy
        failure = error.__cause__ or error.__context__
        if isinstance(failure, Failure):
            status, message = failure.status, str(failure)
        elif isinstance(error, ImportError):
            status, message = USAGE, f"{sys.executable}: {error}: mend the package or " \
                f"PYTHONPATH, or name another Python by STARMILL_PYTHON{memory_limit()}"
        else:
            raise
    except BrokenPipeError:  # `starmill show OUT.h5 STAR | head`
        status, message = OUTPUT, None
    except OSError as error:  # standard output failed, or HDF5 without a file name
        status, message = OUTPUT, str(error)
        if error.errno == errno.EBADF:
            message = "standard output is closed"
        elif error.errno is None:
            message = f"{' '.join(words)}: {error}"
    except MemoryError:
        status, message = INTERNAL, "out of memory" + memory_limit()
    except KeyboardInterrupt:
        status, message = 130, None
    with contextlib.suppress(OSError):  # standard error is closed
        if message:
            name = " ".join(["starmill", *words[:2 if words[:1] == ["library"] else 1]])
            print(printable(f"{name}: {message}"), file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # Python would try to flush and fail again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


if __name__ == "__main__":
    atexit.register(gc.freeze)  # skips a collection at exit, 0.1 s
    main()
