# SPDX-License-Identifier: BSD-3-Clause
"""Positions on the sky."""

import numpy as np


def has_place(ra, dec):
    """Catalogues mark unknown positions by NaN, -999 and the like, or two zeros."""
    return (np.abs(ra) <= 360) & (np.abs(dec) <= 90) & ((ra != 0) | (dec != 0))


def unit_vectors(ra, dec):
    ra, dec = np.radians(ra), np.radians(dec)
    return np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=-1)
