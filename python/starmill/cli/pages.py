# SPDX-License-Identifier: BSD-3-Clause
"""`starmill help man [JOB]`: man pages (roff) of the --help texts; `help completion`: bash's."""

import os
import re
import subprocess

from starmill.cli import program
from starmill.cli.basics import OUTPUT, USAGE, Failure

SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


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


def main(words):
    if words[0] == "completion":
        path = os.path.join(os.path.dirname(__file__), "completion.bash")
        with open(path, encoding="utf-8") as file:
            text = file.read()
    else:
        said = said_by("--help")
        jobs = dict(re.findall(r"(?m)^  ([a-z]+) +(.*)", said))
        if words[1:] and words[1] not in jobs:
            raise Failure(USAGE, f"no job '{words[1]}'; see starmill --help")
        text = page_of_job(words[1], jobs[words[1]]) if words[1:] else \
            page("starmill", "stellar parameters for whole spectroscopic surveys", said)
    try:
        print(text, end="", flush=True)
    except OSError as error:
        raise Failure(OUTPUT, f"cannot print the page: {error.strerror}") from error
