# SPDX-License-Identifier: BSD-3-Clause
"""`starmill help man [JOB]`, man pages (roff) made of what --help says, and `starmill help
completion`, of bash."""

import os
import re
import subprocess

from starmill.cli import program
from starmill.cli.basics import OUTPUT, USAGE, Failure

OPTION = re.compile(r"  (--[\w-]+)( \S+)?(?:  +(.*))?")
SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti",
           '"': "\\(dq"}


def roff(line):
    """Return a line unchanged: some characters are roff's, others become typographic."""
    text = "".join(SPECIAL.get(c, c) for c in line)
    return "\\&" * text.startswith(".") + text


def said_by(*words):
    done = subprocess.run([program() or "starmill", *words], stdout=subprocess.PIPE, check=False,
                          text=True)
    if done.returncode:
        raise Failure(USAGE, f"starmill {' '.join(words)} ended with status {done.returncode}")
    return done.stdout


def head(name, summary):
    version = said_by("--version").split("\n")[0]
    return [f'.TH {name.upper()} 1 "" "{version}" "starmill"', ".SH NAME",
            f"{roff(name)} \\- {roff(summary)}"]


def synopsis(lines):
    """Of usage; a line that goes on with another's options is indented further than a command."""
    out = []
    for line in lines:
        words = line[len("usage: "):]
        if words[:1].strip():
            command, _, words = words.partition(" ")
            out += [".YS"] * bool(out) + [f".SY {roff(command)}"]
        out.append(roff(words.strip()))
    return out + [".YS"]


def paragraphs(lines, section):
    """Blank lines between them.  section: stands above them, and "Exit status: " begins another;
    None: neither."""
    out, begins = [], ".PP"
    if section:
        begins = f".SH {section}"
    for line in lines:
        if section and line.startswith("Exit status: "):
            begins, line = ".SH EXIT STATUS", line[len("Exit status: "):]
        if line and begins:
            out.append(begins)
        out += [roff(line)] * bool(line)
        begins = None if line else begins or ".PP"
    return out


def page_of(text, is_first):
    """Of a text of --help: usage, paragraphs, options below headings, paragraphs."""
    lines = text.rstrip("\n").split("\n")
    at = [i for i, line in enumerate(lines) if OPTION.fullmatch(line)]
    first = at[0] if at else len(lines)
    end = at[-1] + 1 if at else len(lines)
    while end < len(lines) and lines[end].startswith("   "):
        end += 1
    if at and lines[first - 1]:  # a heading
        first -= 1
    blank = lines.index("") if "" in lines else len(lines)
    out = synopsis(lines[:blank]) + paragraphs(lines[blank:first],
                                               "DESCRIPTION" if is_first else None)
    out += [".SH OPTIONS"] * (is_first and bool(at))
    for line in lines[first:end]:
        option = OPTION.fullmatch(line)
        if option:
            value = f"\\fR \\fI{roff(option[2][1:])}" if option[2] else ""
            out += [".TP", f"\\fB{roff(option[1])}{value}\\fR", roff(option[3] or "")]
        elif line.startswith("   "):
            out.append(roff(line.strip()))
        elif line:
            out.append(f".SS {roff(line)}")
    return out + paragraphs(lines[end:], "NOTES" if is_first else None)


def of_job(name, summary):
    text = said_by(name, "--help")
    out = head(f"starmill-{name}", summary) + [".SH SYNOPSIS", *page_of(text, True)]
    subs = re.match(rf"usage: starmill {name} ([a-z]\S*\|\S*)", text)
    for sub in subs[1].split("|") if subs and "\n  --" not in text else ():
        out += [f".SH {roff(f'starmill {name} {sub}')}",
                *page_of(said_by(name, sub, "--help"), False)]
    return out + [".SH SEE ALSO", ".BR starmill (1)"]


def of_program(jobs, more):
    out = head("starmill", "stellar parameters for whole spectroscopic surveys")
    out += [".SH SYNOPSIS", ".SY starmill", "\\fIJOB\\fR [options]", ".YS", ".SH JOBS"]
    for name, summary in jobs.items():
        out += [".TP", f".BR starmill\\-{name} (1)", roff(summary)]
    out.append(".SH HELP")
    for line in more.split("\n"):
        call, _, what = line.partition(": ")
        out += [".TP", f".B {roff(call)}", roff(what)]
    return out


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
        lines = of_job(words[1], jobs[words[1]]) if words[1:] else \
            of_program(jobs, said.rstrip("\n").rsplit("\n\n", 1)[1])
        text = "\n".join(lines) + "\n"
    try:
        print(text, end="", flush=True)
    except OSError as error:
        raise Failure(OUTPUT, f"cannot print the page: {error.strerror}") from error
