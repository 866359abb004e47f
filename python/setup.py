# SPDX-License-Identifier: BSD-3-Clause
"""The extension is made by cffi from the installed header (build_starmill.py)."""

from setuptools import setup

setup(cffi_modules=["build_starmill.py:ffi"])
