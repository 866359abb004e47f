#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How large the project is, by revision: a table in Markdown.

    count.py [REVISION...]     (./run count; default: HEAD)
"""

import collections
import re
import subprocess
import sys

CODE = ("src/", "io/", "jobs/", "kernels/", "libstarmill/", "lib/")
SOURCE = re.compile(r"\.(c|h|cu|cuh|cc)$")
TEST = re.compile(r"\.(c|h|cu|cc|py|sh|cmake)$|/[^./]+$|CMakeLists\.txt$")
WINDOW = 6  # lines that make a copy


def files(revision):
    """{path: text or None for a binary file} of a revision."""
    listed = subprocess.run(["git", "ls-tree", "-r", "-z", "--full-tree", revision], check=True,
                            capture_output=True).stdout.decode().rstrip("\0").split("\0")
    entries = [line.split("\t", 1) for line in listed]
    ids = [entry[0].split()[2] for entry in entries]
    batch = subprocess.run(["git", "cat-file", "--batch"], input="\n".join(ids).encode(), check=True,
                           capture_output=True).stdout
    out, at = {}, 0  # cat-file answers each id by a line "id type size", the bytes and a newline
    for _, path in entries:
        end = batch.index(b"\n", at)
        size = int(batch[at:end].split()[2])
        data = batch[end + 1:end + 1 + size]
        at = end + 2 + size
        out[path] = None if b"\0" in data[:8000] else data.decode(errors="replace")
    return out


def functions(text):
    """For each function of a source in our layout: its number of lines, and its first line."""
    start = None
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line == "{":
            start = i
            while start > 0 and re.match(r"[^#/*}]", lines[start - 1]) and lines[start - 1][-1] not in ";}/":
                start -= 1
        elif line == "}" and start is not None:
            yield i - start + 1, start
            start = None


def copied(texts):
    """Count the lines that lie in a run of WINDOW lines that occurs more than once."""
    places = collections.defaultdict(list)
    for path, text in texts.items():
        lines = [(i, line.strip()) for i, line in enumerate(text.splitlines())]
        lines = [(i, line) for i, line in lines if len(line) > 3 and not line.startswith("#include")]
        for k in range(len(lines) - WINDOW + 1):
            run = lines[k:k + WINDOW]
            places[tuple(line for _, line in run)].append([(path, i) for i, _ in run])
    return len({place for found in places.values() if len(found) > 1 for run in found for place in run})


def count(revision):
    everything = files(revision)
    text = {path: data for path, data in everything.items() if data is not None}
    code = {p: t for p, t in text.items() if p.startswith(CODE) and SOURCE.search(p)}
    test = {p: t for p, t in text.items() if p.startswith("tests/") and TEST.search(p)}
    python = [t for p, t in text.items() if p.startswith("python/starmill/") and p.endswith(".py")]
    campaigns = [t for p, t in text.items() if p.startswith("campaigns/")]
    docs = [t for p, t in text.items() if p == "README.md" or p.startswith("docs/") and p.endswith(".md")]
    n_code = sum(t.count("\n") for t in code.values())
    n_test = sum(t.count("\n") for t in test.values())
    length, longest = max((t.count("\n"), p) for p, t in {**code, **test}.items() if "reference/" not in p)
    n, path, line = max((n, p, at) for p, t in code.items() for n, at in functions(t))
    return [("C and CUDA, lines", f"{n_code:,}"),
            ("Python, lines", f"{sum(t.count(chr(10)) for t in python):,}"),
            ("tests, lines", f"{n_test:,}"),
            ("campaigns, lines", f"{sum(t.count(chr(10)) for t in campaigns):,}"),
            ("tests a line of code", f"{n_test / n_code:.2f}"),
            ("docs and README, words", f"{sum(len(t.split()) for t in docs):,}"),
            ("tracked files", f"{len(everything):,}"),
            ("changelog, lines", f"{text.get('CHANGELOG.md', '').count(chr(10)):,}"),
            ("longest file, lines", f"{length} ({longest})"),
            ("longest function, lines", f"{n} ({path}:{line + 1})"),
            (f"lines of code in copies of {WINDOW} lines, %", f"{100 * copied(code) / n_code:.1f}")]


def main():
    revisions = sys.argv[1:] or ["HEAD"]
    tables = [count(revision) for revision in revisions]
    print("| |", " | ".join(revisions), "|")
    print("|---|" + "---|" * len(revisions))
    for rows in zip(*tables):
        print("|", rows[0][0], "|", " | ".join(value for _, value in rows), "|")


if __name__ == "__main__":
    main()
