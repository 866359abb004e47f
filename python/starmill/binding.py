# SPDX-License-Identifier: BSD-3-Clause
"""Binds libstarmill by cffi's ABI mode from the declarations in starmill.h, without a compiler."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess

import numpy as np
from cffi import FFI

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "libstarmill.so.0"


def _find() -> str:
    """Return the path of libstarmill.  Look next to the running program, in the package's tree and
    next to the program in PATH; else ask pkg-config, and last leave the search to the loader."""
    programs = os.environ.get("STARMILL_PROGRAM"), shutil.which("starmill")
    running, in_path = ([os.path.join(os.path.dirname(os.path.realpath(program)), up)
                         for up in ("", "..")] if program else [] for program in programs)
    for place in (*running, HERE, os.path.join(HERE, "../../../.."), *in_path):
        for part in ("lib*", "lib/*"):
            found = glob.glob(os.path.join(glob.escape(place), part, NAME))
            if found:
                return found[0]
    try:
        said = subprocess.check_output(["pkg-config", "--variable=libdir", "starmill"],
                                       stderr=subprocess.DEVNULL, text=True)
        return os.path.join(said.strip(), NAME)
    except (OSError, subprocess.CalledProcessError):
        return NAME


def _load():
    with open(os.path.join(HERE, "starmill.h"), encoding="utf-8") as file:
        header = re.search(r"/\* begin \*/(.*)/\* end \*/", file.read(), re.DOTALL)
    ffi.cdef(header[1].replace("STARMILL_API ", ""))
    path = _find()
    try:
        return ffi.dlopen(path)
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded: {error}: install starmill (cmake --install), "
                          "and put its bin into PATH, or the folder of starmill.pc into "
                          "PKG_CONFIG_PATH") from error


ffi = FFI()
lib = _load()


class StarmillError(Exception):
    """A failed call; ``code`` is a value of enum starmill_code."""

    def __init__(self, code: int, message: str):
        super().__init__(code, message)  # both arguments, so that it can be pickled
        self.code = code

    def __str__(self) -> str:
        return self.args[1]


def call(function, *arguments) -> None:
    """Call a C function whose last parameter is the error; raise StarmillError if it fails."""
    error = ffi.new("starmill_error *")
    if function(*arguments, error) != 0:
        raise StarmillError(error.code, text(error.message))


def text(chars) -> str:
    return ffi.string(chars).decode("utf-8", "replace")


def copied(pointer, n: int, kind) -> np.ndarray:
    """Return a copy of n values of a NumPy type at a C pointer."""
    return np.frombuffer(ffi.buffer(pointer, n * np.dtype(kind).itemsize), kind).copy()
