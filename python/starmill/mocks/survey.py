# SPDX-License-Identifier: BSD-3-Clause
"""`starmill simulate`: a mock survey in DESI's layout with a table of the truth."""

import contextlib
import functools
import hashlib
import os
import re
import time
from collections import deque

from starmill.cli import running, shipped_file
from starmill.cli.basics import (OUTPUT, STOPPED, USAGE, beginning, make_folder, need, version,
                                 write_whole)
from starmill.mocks import draw, files, forward, instrument
from starmill.templates import library_file

# increment this when equal settings give other contents: older surveys then do not count as made
CONTENTS = 4
BLOCK_ROWS, TRUTH_ROWS = 32, 4096  # rows that a process makes at once
MAX_FILE = 1000000
TRUTH, CATALOG = "truth.fits", "catalog.txt"
OURS = re.compile(r"(?:coadd|redrock)-mock-\d{5,}\.fits|truth\.fits|catalog\.txt")


class Survey:
    """The settings (cli/command_lines.py), library, instrument and files of a survey."""

    def __init__(self, options):
        self.settings = settings = options
        self.folder, self.overwrite = options.output, options.overwrite
        self.n_process = running.n_workers(options.threads)
        self.n_file = -(-settings.stars // settings.per_file)
        need(self.n_file <= MAX_FILE, USAGE,
             f"--stars {settings.stars} in files of --per-file {settings.per_file} are "
             f"{self.n_file} files, more than {MAX_FILE}: give a higher --per-file")
        self.arms = instrument.arms()
        shipped = shipped_file("libraries/fgk.h5")
        need(options.library or os.path.exists(shipped), USAGE,
             "no library to draw stars from: give --library LIB.h5 (none was shipped with this "
             "program: there is no share/starmill/libraries/fgk.h5 next to its bin)")
        whole = library_file.read(options.library or shipped)
        self.library = forward.cut_arms(whole, {arm.name: arm.wave_aa[[0, -1]]
                                                for arm in self.arms})
        self.templates = [forward.Template(self.library, arm) for arm in self.arms]
        draw.check_library(self.library)
        self.n_share = [0 if settings.model_error == "false" or template.arm.error is None
                        or template.arm.error.component is None
                        else len(template.arm.error.component) for template in self.templates]
        history = self._history(version(options.program).split(" (")[0])
        self.origin = (hashlib.sha256("\0".join(history).encode()).hexdigest()[:16], history)

    def _history(self, program):
        """Return lines of text with all settings on which the bytes of the survey depend."""
        options = self.settings
        error = {"false": "without", "true": "with draws of",
                 "correlated": "with correlated draws of"}[options.model_error]
        vsini = f"{options.vsini[0]} to {options.vsini[1]} km/s" if options.vsini else \
            "by the default mixture"
        return [f"{program} simulate: a mock survey (contents {CONTENTS}), no observation",
                f"seed {options.seed}, {options.stars} stars, {options.per_file} a file",
                f"library {self.library.hash}, {error} its model error",
                f"S/N {options.sn[0]} to {options.sn[1]}, velocities {options.vel_sigma} km/s, "
                f"v sin i {vsini}",
                f"distortion {options.distortion}{', noiseless' if options.noiseless else ''}",
                f"pathological {options.pathological} per 1000, redrock "
                f"{'yes' if options.redrock else 'no'}"]

    def path(self, name):
        return os.path.join(self.folder, name)

    @staticmethod
    def name(i_file, what="coadd"):
        return f"{what}-mock-{i_file:05d}.fits"

    def n_row(self, i_file):
        return min(self.settings.per_file, self.settings.stars - i_file * self.settings.per_file)


def is_same(survey, path):
    """Return whether a file belongs to this survey; refuse a file not of starmill simulate."""
    # a card, or in the catalog's first line
    found = re.search(rb"MOCKID  = '(.{16})", beginning(path))
    need(found, OUTPUT, f"{path} exists and was not made by starmill simulate: choose another "
         "folder, or move it away")
    return found[1].decode("ascii", "replace") == survey.origin[0]


def is_complete(survey):
    """Return whether all files of the survey exist.  Refuse foreign files, and without --overwrite
    files of another survey."""
    n_file = 0
    for name in sorted(os.listdir(survey.folder)):
        if not OURS.fullmatch(name):
            continue
        same = is_same(survey, survey.path(name))
        need(same or survey.overwrite, OUTPUT,
             f"{survey.path(name)} belongs to a survey with other settings: give the old settings "
             "to continue it, name another folder, or give --overwrite to remove it")
        n_file += same
    return not survey.overwrite and n_file == survey.n_file * (1 + survey.settings.redrock) + 2


def clear(survey):
    """Remove the truth table, with --overwrite all files of the survey."""
    # truth first: its presence means that the survey is complete
    for name in [TRUTH, *sorted(os.listdir(survey.folder))]:
        if OURS.fullmatch(name) and (survey.overwrite or name == TRUTH):
            with contextlib.suppress(FileNotFoundError):
                os.remove(survey.path(name))


class Batch:
    """Files of the same rows, made in blocks."""

    def __init__(self, survey, names, first, n_row, n_block):
        """Begin the files.  names: {key of files.KINDS: name}; first: index of the first star."""
        self.first, self.n_row, self.n_left, self.n_block = first, n_row, n_row, n_block
        self.outputs = {what: files.KINDS[what][0](survey.path(name), survey, n_row)
                        for what, name in names.items()}


def make_block(survey, block):
    """Draw the stars of a block and write them to all files of its batch; runs in a worker."""
    batch, row, n = block
    stars = draw.draw(survey, batch.first + row, n)
    for what, file in batch.outputs.items():
        files.KINDS[what][1](file, row, survey, stars)


def make_batches(survey, batches, lock, tell):
    """Make all batches in parallel; call tell(batch, n), which may raise, after each n rows."""
    under_way, order = [], deque()

    def blocks():
        for batch in batches:
            under_way.append(batch)
            for row in range(0, batch.n_row, batch.n_block):
                order.append((batch, row, min(batch.n_block, batch.n_row - row)))
                yield order[-1]
    made = running.each(functools.partial(make_block, survey), blocks(), survey.n_process)
    try:
        for _ in made:
            lock.keep()
            batch, _, n = order.popleft()
            batch.n_left -= n
            if batch.n_left == 0:
                for file in batch.outputs.values():
                    file.commit()
                under_way.remove(batch)
            tell(batch, n)
    finally:
        made.close()
        for batch in under_way:
            for file in batch.outputs.values():
                file.drop()


def make(survey, lock, stop):
    """Make missing files, catalog and truth.  Return the numbers of files kept and rows made."""
    whats = ("coadd", "redrock") if survey.settings.redrock else ("coadd",)
    todo = [{what: survey.name(i, what) for what in whats
             if not os.path.exists(survey.path(survey.name(i, what)))}
            for i in range(survey.n_file)]  # missing files of each number: {kind: name}
    n_kept = n_file = sum(not names for names in todo)
    n_row = sum(survey.n_row(i) for i, names in enumerate(todo) if "coadd" in names)
    n_made, progress = 0, None if survey.settings.quiet else running.Progress(n_row, "stars")

    def check(message):
        need(not stop.asked(), STOPPED, f"{message}; give the same command again to continue")

    def tell(batch, n):
        nonlocal n_file, n_made
        n_file += batch.n_left == 0
        n_made += n if "coadd" in batch.outputs else 0
        if progress:
            progress.update(n_made)
        check(f"stopped with {n_file} of {survey.n_file} files complete")
    try:
        make_batches(survey, (Batch(survey, names, i * survey.settings.per_file, survey.n_row(i),
                                    BLOCK_ROWS) for i, names in enumerate(todo) if names),
                     lock, tell)
    finally:
        if progress:
            progress.end()
    lines = ["# of starmill simulate, for starmill fit --catalog; MOCKID  = "
             f"'{survey.origin[0]}'", *map(survey.name, range(survey.n_file))]
    write_whole(survey.path(CATALOG), ["\n".join(lines).encode() + b"\n"], overwrite=True)
    truth = Batch(survey, {"truth": TRUTH}, 0, survey.settings.stars, TRUTH_ROWS)
    make_batches(survey, [truth], lock,
                 lambda batch, n: check("stopped while the truth table was written"))
    return n_kept, n_row


def say(survey, made, seconds):
    """Print the summary; made: result of make(), None: nothing was to do."""
    if made is None:
        print(f"{survey.folder} is complete already; nothing was done")
    print(f"stars        {survey.settings.stars}")
    kept = f", {made[0]} of them already done" if made and made[0] else ""
    print(f"files        {survey.n_file}{kept}")
    print(f"library      {survey.library.path}")
    if made is not None:
        processes = "1 process" if survey.n_process == 1 else f"{survey.n_process} processes"
        print(f"time         {seconds:.1f} s, {made[1] / seconds:.1f} stars/s ({processes})")
    print(f"truth        {survey.path(TRUTH)}")
    print(f"to fit it    starmill fit --library {survey.library.path} --catalog "
          f"{survey.path(CATALOG)} --output RESULT.h5")


def main(options):
    start_s, made = time.monotonic(), None
    stop = running.Stop()
    survey = Survey(options)  # first: errors of options and library must not cost an old survey
    if not (os.path.isdir(survey.folder) and is_complete(survey)):
        make_folder(survey.folder)
        with running.OutputLock(survey.path(TRUTH)) as lock:
            if not is_complete(survey):  # another job may have made it meanwhile
                clear(survey)
                made = make(survey, lock, stop)
    if not options.quiet:
        say(survey, made, time.monotonic() - start_s)
