# SPDX-License-Identifier: BSD-3-Clause
"""Digests of four small libraries, computed as docs/use/formats.md says; e2e/test_library_file.py
builds the same libraries."""
import hashlib
import struct


def integer(*x):
    return struct.pack(f"<{len(x)}q", *x)


def text(*x):
    return b"".join(integer(len(t)) + t.encode("ascii") for t in x)


def f64(*x):
    return struct.pack(f"<{len(x)}d", *x)


def f32(*x):
    return struct.pack(f"<{len(x)}f", *x)


def digest(wave, kind, linear=False):
    n_pair = len(wave) // 2
    data = text("starmill library contents 4")
    data += integer(1) + text("teff", "TEFF", "K") + integer(1)
    data += f64(3.75, 0.125, 4000, 7000, 62.5, 2.5)
    data += integer(1) + integer(1, 0) + integer(2) + f64(1, -1.5, -1, -1.25)
    data += integer(1) + text("b", "test_b") + integer(len(wave)) + f64(8.25, 0.0009765625, 0.5)
    data += f64(*wave) + integer(1, kind)
    if kind:
        if linear:
            data += integer(1, 1, 5) + f64(-1, -1, -0.5, 0, 0.25, 1, 1)
        elif kind == 1:
            data += integer(3, 1, 5) + f64(-1, -1, -1, -1, 0.25, 1, 1, 1, 1)
        else:
            data += integer(1, 3, 1) + f64(1.5) + f64(-1, 0.25, 1)
        data += integer(2) + f32(*[0.75 * i - 2 for i in range(10)])
        data += integer(1) + integer(2, len(wave)) + f32(*[0.5, -0.25, 2, 3] * n_pair)
    else:
        data += integer(1) + integer(1, len(wave)) + f32(*[0.5, -0.25] * n_pair)
    data += f32(*[0.125, -8] * n_pair) + integer(0)
    data += integer(1) + f64(5500) + integer(1) + f64(100)
    return hashlib.sha256(data).hexdigest()
