# SPDX-License-Identifier: BSD-3-Clause
"""Positions on the sky."""

import numpy as np

ORDER = 29  # of HEALPix, as in HATS catalogues: pixels of 0.4 milliarcsec


def has_place(ra, dec):
    """Return which positions (degrees) are known; unknown ones are NaN, -999 or two zeros."""
    return (np.abs(ra) <= 360) & (np.abs(dec) <= 90) & ((ra != 0) | (dec != 0))


def unit_vectors(ra, dec):
    ra, dec = np.radians(ra), np.radians(dec)
    return np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=-1)


def spread_bits(x):
    """Put a zero before each bit of a number of 32 bits."""
    for shift, mask in ((16, 0x0000ffff0000ffff), (8, 0x00ff00ff00ff00ff), (4, 0x0f0f0f0f0f0f0f0f),
                        (2, 0x3333333333333333), (1, 0x5555555555555555)):
        x = (x | (x << shift)) & mask
    return x


def healpix(ra, dec, order=ORDER):
    """Return nested HEALPix pixels (Gorski et al. 2005, ApJ 622, 759); -1 without a position."""
    known = has_place(ra, dec)
    ra, dec = np.where(known, [ra, dec], 0.0)
    n_side, z, quarter = 1 << order, np.sin(np.radians(dec)), ra % 360 / 90
    # between the polar caps: indices of the two diagonal rows of pixels through the position
    up, down = (np.floor(n_side * (0.5 + quarter + sign * 0.75 * z)).astype(np.int64)
                for sign in (-1, 1))
    face_up, face_down = up >> order, down >> order
    face = np.where(face_up == face_down, face_up % 4 + 4,
                    np.where(face_up < face_down, face_up, face_down + 8))
    x, y = down % n_side, n_side - 1 - up % n_side
    # in a polar cap sqrt(1 - |z|) loses digits, so use cos(dec) / sqrt(1 + |z|), its equal
    face_cap = np.minimum(quarter, 3).astype(np.int64)
    part = quarter - face_cap
    width = n_side * np.sqrt(3 / (1 + np.abs(z))) * np.cos(np.radians(dec))
    a, b = (np.minimum(p * width, n_side - 1).astype(np.int64) for p in (part, 1 - part))
    cap, north = np.abs(z) > 2 / 3, z > 0
    face = np.where(cap, np.where(north, face_cap, face_cap + 8), face)
    x = np.where(cap, np.where(north, n_side - 1 - b, a), x)
    y = np.where(cap, np.where(north, n_side - 1 - a, b), y)
    return np.where(known, (face << 2 * order) | spread_bits(x) | (spread_bits(y) << 1), -1)
