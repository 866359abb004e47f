# SPDX-License-Identifier: BSD-3-Clause
"""Finds and runs the jobs in Python; prints man pages and bash's completion."""

import importlib
import os
import pathlib
import re
import subprocess
import types

from starmill.cli import command_lines, program
from starmill.cli.basics import OUTPUT, USAGE, Failure, as_failure, check_packages, did_you_mean

JOBS = ("simulate", "grid", "convert", "status", "report", "plot", "show", "select", "compare",
        "export", "merge")
LIBRARY = ("build", "train", "import", "spectra", "correct", "model-error", "sky", "info")
LIBRARY_HELP = f"""usage: starmill library {'|'.join(LIBRARY)} [options] FILE...

Make and inspect template libraries; starmill library build --help shows the options of build.
"""
SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def find_job(words):
    """Return the Job that a command line names, and the words after its name."""
    name, *rest = words or [""]
    if words[:2] == ["library", "train"]:
        return types.SimpleNamespace(
            module="starmill.templates.train", read=options_of_train, is_shared=False,
            packages=("numpy", "scipy", "h5py", "cffi")), words[2:]
    if name == "library":
        sub, *rest = rest or [""]
        if sub not in LIBRARY:
            what = f"unknown sub-command {sub}" if sub else "library needs a sub-command"
            raise Failure(USAGE, f"{what}{did_you_mean(sub, LIBRARY)}; library has "
                                 f"{', '.join(LIBRARY[:-1])} and {LIBRARY[-1]}")
        name = {"import": "import_"}.get(sub, sub.replace("-", "_"))
    elif name not in JOBS:
        what = f"no job in Python: {name}" if name else "name a job"
        raise Failure(USAGE, f"{what}{did_you_mean(name, JOBS)}; there are library, "
                             f"{', '.join(JOBS)}")
    return getattr(command_lines, name)(), rest


def options_of_train(words):
    """Return the options of train from words that the C program has checked: NAME=VALUE for an
    option, NAME= for a flag and NAME for a missing option; then --, and the grid file."""
    end = words.index("--")
    options = types.SimpleNamespace(arguments=words[end + 1:])
    for word in words[:end]:
        name, given, value = word.partition("=")
        setattr(options, name.replace("-", "_"), (value or True) if given else None)
    return options


def roff(line):
    """Escape a line so that roff prints it unchanged."""
    text = "".join(SPECIAL.get(c, c) for c in line)
    return "\\&" * text.startswith(".") + text


def said_by(*words):
    done = subprocess.run([program() or "starmill", *words], stdout=subprocess.PIPE, check=False,
                          text=True)
    if done.returncode:
        raise Failure(USAGE, f"starmill {' '.join(words)} ended with status {done.returncode}")
    return done.stdout


def page(name, summary, *texts):
    version = said_by("--version").split("\n")[0]
    return "\n".join([f'.TH {name.upper()} 1 "" "{version}" "starmill"', ".SH NAME",
                      f"{roff(name)} \\- {roff(summary)}", ".SH DESCRIPTION", ".nf",
                      *map(roff, "\n".join(texts).split("\n"))])


def page_of_job(name, summary):
    text = said_by(name, "--help")
    subs = re.match(rf"usage: starmill {name} ([a-z]\S*\|\S*)", text)
    own = subs[1].split("|") if subs and "\n  --" not in text else ()  # with options
    return page(f"starmill-{name}", summary, text, *(said_by(name, sub, "--help") for sub in own))


def print_page(words):
    """Print a man page (roff) of the program or a job from its --help, or bash's completion."""
    if words[0] == "completion":
        text = pathlib.Path(__file__).with_name("completion.bash").read_text(encoding="utf-8")
    else:
        said = said_by("--help")
        jobs = dict(re.findall(r"(?m)^  ([a-z]+) +(.*)", said))
        if words[1:] and words[1] not in jobs:
            raise Failure(USAGE, f"no job '{words[1]}'; see starmill --help")
        text = page_of_job(words[1], jobs[words[1]]) if words[1:] else \
            page("starmill", "stellar parameters for whole spectroscopic surveys", said)
    with as_failure(OUTPUT, "cannot print the page", OSError):
        print(text, end="", flush=True)


def run(words):
    if words[:1] == ["help"]:
        return print_page(words[1:])
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
