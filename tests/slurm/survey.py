# SPDX-License-Identifier: BSD-3-Clause
"""A small survey and its library, which the tests of Slurm jobs fit."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

from base import STARMILL, coarse_library, content, put, run  # noqa: E402

SLURM = os.path.join(os.environ.get("MILL_SOURCE_DIR", os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..")), "slurm")
SUBMIT = os.path.join(SLURM, "starmill-submit")
PER_FILE = 12


def make_survey(library, folder, n_file):
    """Folder with n_file files of PER_FILE stars and catalog.txt."""
    run("simulate", "--library", library, "--output", folder, "--stars", PER_FILE * n_file, "--per-file", PER_FILE,
        "--seed", 3, "--sn", "20,60", "--quiet")


def write_script(name, text):
    path = put(name, text)
    os.chmod(path, 0o755)
    return path


__all__ = ["PER_FILE", "SLURM", "STARMILL", "SUBMIT", "coarse_library", "content", "make_survey",
           "put", "write_script"]
