# SPDX-License-Identifier: BSD-3-Clause
"""The extension starmill._starmill: what starmill/starmill.h declares, found by pkg-config."""

import re
import subprocess
from pathlib import Path

from cffi import FFI


def installed(variable):
    """A folder of the installed library."""
    try:
        return subprocess.run(
            ["pkg-config", f"--variable={variable}", "starmill"],
            check=True, stdout=subprocess.PIPE, text=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            "starmill: pkg-config does not find libstarmill. Install it (cmake --install), and put "
            "the folder of its starmill.pc into PKG_CONFIG_PATH."
        ) from error


header = (Path(installed("includedir")) / "starmill" / "starmill.h").read_text(encoding="utf-8")
declarations = re.search(r"/\* begin \*/(.*)/\* end \*/", header, re.DOTALL).group(1)

ffi = FFI()
ffi.cdef(declarations.replace("STARMILL_API ", ""))
ffi.set_source(
    "starmill._starmill",
    "#include <starmill/starmill.h>",
    include_dirs=[installed("includedir")],
    library_dirs=[installed("libdir")],
    runtime_library_dirs=[installed("libdir")],
    libraries=["starmill"],
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
