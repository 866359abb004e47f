# SPDX-License-Identifier: BSD-3-Clause
"""Run a job that is written in Python: python3 -m starmill JOB ARGUMENT..., or this file.

`starmill JOB` becomes that, and names itself in the environment variable STARMILL_PROGRAM.
"""

import atexit
import contextlib
import errno
import gc
import os
import signal
import sys

_interrupt = signal.getsignal(signal.SIGINT)
if _interrupt is signal.default_int_handler:  # else SIGINT is ignored, as in the background
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until main no one would catch it

if not __package__:  # started as a file; site-packages stay behind Python's own modules
    _folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    sys.path[:1] = [] if _folder in map(os.path.realpath, sys.path[1:]) else [_folder]
# Python starts with -E: folders of PYTHONPATH replace packages, but no modules of Python or ours
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
    except (SystemError, ImportError) as error:  # a signal came while HDF5 or numpy called Python
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
    except OSError as error:  # standard output takes no more, or HDF5 failed without naming a file
        status, message = OUTPUT, str(error)
        if error.errno == errno.EBADF:
            message = "standard output is closed"
        elif error.errno is None:
            message = f"{' '.join(words)}: {error}"
    except MemoryError:
        status, message = INTERNAL, "out of memory" + memory_limit()
    except KeyboardInterrupt:
        status, message = 130, None
    with contextlib.suppress(OSError):  # nobody reads it
        if message:
            name = " ".join(["starmill", *words[:2 if words[:1] == ["library"] else 1]])
            print(printable(f"{name}: {message}"), file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # Python would print the rest again at exit, and complain again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


if __name__ == "__main__":
    atexit.register(gc.freeze)  # the end would look for cycles in all that was imported, 0.1 s
    main()
