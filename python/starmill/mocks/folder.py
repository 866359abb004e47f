# SPDX-License-Identifier: BSD-3-Clause
"""The folder of a mock survey: recognises its files and locks it for writing."""

import contextlib
import os
import re

from starmill.cli.basics import OUTPUT, Failure, make_folder
from starmill.cli.lock import OutputLock

TRUTH, CATALOG = "truth.fits", "catalog.txt"
OURS = re.compile(r"(?:coadd|redrock)-mock-\d{5,}\.fits|truth\.fits|catalog\.txt")


def is_same(survey, path):
    """Return whether a file belongs to this survey; refuse a file not of starmill simulate."""
    found = None
    if os.path.isfile(path):
        with open(path, "rb") as file:  # as a card, or in the catalog's first line
            found = re.search(rb"MOCKID  = '(.{16})", file.read(2880))
    if not found:
        raise Failure(OUTPUT, f"{path} exists and was not made by starmill simulate: choose "
                              "another folder, or move it away")
    return found[1].decode("ascii", "replace") == survey.origin[0]


def is_complete(survey):
    """Return whether all files of the survey exist.  Refuse foreign files, and without --overwrite
    files of another survey."""
    n_file = 0
    for name in sorted(os.listdir(survey.folder)):
        if not OURS.fullmatch(name):
            continue
        same = is_same(survey, survey.path(name))
        if not same and not survey.overwrite:
            raise Failure(OUTPUT, f"{survey.path(name)} belongs to a survey with other settings: "
                                  "give its settings to continue it, another folder, or "
                                  "--overwrite to remove it")
        n_file += same
    return not survey.overwrite and n_file == survey.n_file * (1 + survey.settings.redrock) + 2


def clear(survey):
    """Remove the truth table, with --overwrite all files of the survey."""
    # truth first: its presence means that the survey is complete
    for name in [TRUTH, *sorted(os.listdir(survey.folder))]:
        if OURS.fullmatch(name) and (survey.overwrite or name == TRUTH):
            with contextlib.suppress(FileNotFoundError):
                os.remove(survey.path(name))


@contextlib.contextmanager
def claimed(survey):
    """Make the folder and lock it.  Yield the lock, or None if the survey is complete: another job
    may have finished it meanwhile."""
    make_folder(survey.folder)
    with OutputLock(survey.path(TRUTH)) as lock:
        complete = is_complete(survey)
        if not complete:
            clear(survey)
        yield None if complete else lock
