# SPDX-License-Identifier: BSD-3-Clause
"""Code shared by the jobs: errors, files, locks, progress, processes."""

import os
import shutil
import sys

OF_WHEEL = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                         "../bin/starmill"))


def program():
    """Return the path of the program: the running one, else the wheel's, else the one in PATH."""
    wheel = OF_WHEEL if os.path.exists(OF_WHEEL) else None
    return os.environ.get("STARMILL_PROGRAM") or wheel or shutil.which("starmill")


def shipped_file(name):
    """Return the path of a shipped file: in the wheel, in share/starmill or in the source tree."""
    package = os.path.dirname(os.path.dirname(__file__))
    wheel = os.path.join(package, "share/starmill", name)
    return os.path.realpath(wheel if os.path.exists(wheel) else
                            os.path.join(package, "../..", name))


def main():
    """Command `starmill` of a wheel: execute the wheel's program, with this Python for its jobs."""
    os.environ.setdefault("STARMILL_PYTHON", sys.executable)
    os.execv(OF_WHEEL, ["starmill", *sys.argv[1:]])
