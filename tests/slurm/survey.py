# SPDX-License-Identifier: BSD-3-Clause
"""Shared by tests of Slurm jobs.  Includes all of tests/e2e/base.py."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

from base import *  # noqa: E402, F403

SLURM = os.path.join(SOURCE, "slurm")
SUBMIT = os.path.join(SLURM, "starmill-submit")


def write_script(name, text):
    path = put(name, text)
    os.chmod(path, 0o755)
    return path
