#!/usr/bin/env python3
"""Kill `starmill sample` at random moments, again and again: no sampled star may be lost.

    tests/campaigns/kill_sample.py STARMILL LIBRARY.h5 FIT.h5 KILLS INPUT.fits... [--seed N]

SIGKILL to all processes of a run of 1 or 2 ranks at a random moment of its life; the same command
goes on, and may be killed again.  After each kill the file, where there is one, must open, every
done row must be whole by its CRC and equal an uninterrupted run's bit for bit, and rows that were
done before must be done still; at the end of each life the whole file must equal it.  Ends with
status 1 at the first broken promise.  docs/science/validation.md has what was found.
"""

import argparse
import os
import random
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("starmill")
parser.add_argument("library")
parser.add_argument("fit")
parser.add_argument("kills", type=int)
parser.add_argument("inputs", nargs="+")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
os.environ["STARMILL"] = os.path.abspath(args.starmill)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

import h5py  # noqa: E402
import numpy as np  # noqa: E402
from base import ENVIRONMENT, command, differing, read, tmp  # noqa: E402
from kill_runs import kill_all, rows_not_whole  # noqa: E402

OPTIONS = ("--walkers", 12, "--ess", 30, "--rhat", 1.5, "--max-evaluations", 2400, "--draws", 3,
           "--backend", "cpu", "--threads", 1, "--slots", 1, "--quiet")


def line(out, ranks):
    return command("sample", "--fit", args.fit, "--library", args.library, "--output", out, *OPTIONS,
                   *args.inputs, ranks=ranks)


def crc_columns(path):
    with h5py.File(path) as f:
        names = f["fits/CRC"].attrs["COLUMNS"]
    return (names.decode() if isinstance(names, bytes) else names).split()


def check(out, whole, before):
    """Rows that are done; fails where a promise is broken."""
    if not os.path.exists(out):
        assert not before.any(), "the file is gone"
        return before
    table = read(out)
    done = table["STATUS"] != 0
    assert not (before & ~done).any(), "a row is lost"
    assert not rows_not_whole(table, crc_columns(out)), "a done row is not whole"
    for name, values in whole.items():
        assert table[name][done].tobytes() == values[done].tobytes(), f"{name} differs"
    return done


def main():
    chance = random.Random(args.seed)
    reference = tmp("reference.h5")
    started = time.monotonic()
    subprocess.run(line(reference, 0), env=ENVIRONMENT, check=True)
    seconds = time.monotonic() - started
    whole = read(reference)
    n_row = len(whole["STATUS"])
    kills = lives = part = late = 0
    while kills < args.kills:
        lives += 1
        out = tmp(f"life{lives}.h5")
        done = np.zeros(n_row, bool)
        while kills < args.kills:
            process = subprocess.Popen(line(out, chance.randrange(3)), env=ENVIRONMENT, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                said = process.communicate(timeout=chance.uniform(0, seconds))[1]
                assert process.returncode == 0, said
                late += 1
                break
            except subprocess.TimeoutExpired:
                kill_all(process)
            kills += 1
            done = check(out, whole, done)
            part += 0 < done.sum() < n_row
        subprocess.run(line(out, 0), env=ENVIRONMENT, check=True)
        assert not differing(read(out), whole), "the end differs"
        print(f"life {lives}: {kills} kills so far, {part} of them between the first row and the "
              f"last, {late} runs over before", flush=True)
    print(f"{n_row} stars, {seconds:.1f} s uninterrupted: {kills} kills in {lives} lives, nothing "
          "lost, the same bits")


try:
    main()
except AssertionError as error:
    print(error)
    sys.exit(1)
