# SPDX-License-Identifier: BSD-3-Clause
"""Finds and runs the jobs in Python."""

import importlib
import os
import types

from starmill.cli import program
from starmill.cli.basics import USAGE, Failure, check_packages, did_you_mean

# {job: folder whose options.py defines it}
ROOMS = {"simulate": "mocks", "grid": "grids", "convert": "surveys", **dict.fromkeys(
    ("status", "report", "plot", "show", "select", "compare", "export", "merge"),
    "products")}
LIBRARY = ("build", "train", "import", "spectra", "correct", "model-error", "sky", "info")
LIBRARY_HELP = f"""usage: starmill library {'|'.join(LIBRARY)} [options] FILE...

Make and inspect template libraries; starmill library build --help shows the options of build.
"""


def refuse(what, word, known, more):
    raise Failure(USAGE, f"{what}{word}{did_you_mean(word, known)}{more}")


def find_job(words):
    """Return the Job (options.py) that a command line names, and the words after its name."""
    name, *rest = words or [""]
    if words[:2] == ["library", "train"]:
        return types.SimpleNamespace(
            module="starmill.templates.train", read=options_of_train, is_shared=False,
            packages=("numpy", "scipy", "h5py", "cffi")), words[2:]
    if name == "library":
        sub, *rest = rest or [""]
        if sub not in LIBRARY:
            refuse("unknown sub-command " if sub else "library needs a sub-command", sub, LIBRARY,
                   f"; library has {', '.join(LIBRARY[:-1])} and {LIBRARY[-1]}")
        room, name = "templates", {"import": "import_"}.get(sub, sub.replace("-", "_"))
    elif name not in ROOMS:
        refuse("no job in Python: " if name else "name a job", name, ROOMS,
               f"; there are library, {', '.join(ROOMS)}")
    else:
        room = ROOMS[name]
    return getattr(importlib.import_module(f"starmill.{room}.options"), name)(), rest


def options_of_train(words):
    """Return the options that the program has read.  words: NAME=VALUE, NAME= for a flag that is
    set, NAME for an option not given, then -- and the grid file."""
    end = words.index("--")
    options = types.SimpleNamespace(arguments=words[end + 1:])
    for word in words[:end]:
        name, given, value = word.partition("=")
        setattr(options, name.replace("-", "_"), (value or True) if given else None)
    return options


def run(words):
    """Run a job; return its exit status."""
    if words[:1] == ["help"]:
        from starmill.cli import pages
        return pages.main(words[1:])
    if words in (["library", "--help"], ["library", "-h"]):
        print(LIBRARY_HELP, end="")
        return 0
    job, rest = find_job(words)
    options = job.read(rest)
    if options is None:
        return 0
    options.program = program()
    threads = 1 if job.is_shared else getattr(options, "threads", None)
    if threads:  # before NumPy starts its threads
        os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    check_packages(*job.packages)
    return importlib.import_module(job.module).main(options)
