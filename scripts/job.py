# SPDX-License-Identifier: BSD-3-Clause
"""Start a job written in Python, as jobs/scripts/script.c calls it:

job.py MODULE JOB PROGRAM OPTION... -- ARGUMENT...

OPTION is name=value, name= for a flag that is set, or name alone if the option was not given.  The
module has main(options), which may return an exit status.  options.arguments holds the positional
arguments, options.program the program's path, and each option is a text, True for a flag, or None
if not given.
"""

import atexit
import gc
import importlib
import os
import sys
import types

from basics import INTERNAL, OUTPUT, Failure, printable


def read_options(program, words):
    end = words.index("--")
    options = types.SimpleNamespace(program=program, arguments=words[end + 1:])
    for word in words[:end]:
        name, given, value = word.partition("=")
        setattr(options, name.replace("-", "_"), (value or True) if given else None)
    return options


def main():
    module, job, program, *words = sys.argv[1:]
    options = read_options(program, words)
    try:
        status = importlib.import_module(module).main(options)
        sys.stdout.flush()
        sys.exit(status)
    except Failure as failure:
        status, message = failure.status, str(failure)
    except (SystemError, ImportError) as error:  # a signal came while HDF5 or numpy called Python
        failure = error.__cause__ or error.__context__
        if not isinstance(failure, Failure):
            raise
        status, message = failure.status, str(failure)
    except BrokenPipeError:  # `starmill show OUT.h5 STAR | head`
        status, message = OUTPUT, None
    except OSError as error:  # standard output takes no more, or HDF5 failed without naming a file
        status, message = OUTPUT, str(error)
        if error.errno is None and options.arguments:
            message = f"{options.arguments[0]}: {error}"
    except MemoryError:
        status, message = INTERNAL, "out of memory"
    except KeyboardInterrupt:
        status, message = 130, None
    if message:
        print(printable(f"starmill {job}: {message}"), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # Python would print the rest again at exit, and complain again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


if __name__ == "__main__":
    atexit.register(gc.freeze)  # the end would look for cycles in all that was imported, 0.1 s
    main()
