# SPDX-License-Identifier: BSD-3-Clause
"""Draws the stars: labels, velocities, brightness, from settings, seed and index only."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from starmill.cli.basics import USAGE, need
from starmill.templates.library_data import inside_hulls
from starmill.wavelength import C_KM_S

# Streams of random numbers: a seed, a stream and the index of a star or tile give one sequence.
STAR, TILE, NOISE, DEFECT = range(4)
REST = 4  # streams from here on, one per arm: model error outside the components
FLOOR = 1 << 16  # stream of the errors of the templates' labels

KINDS = ("star",  # a star without a defect; rows of the other kinds have one
         "sky",  # OBJTYPE SKY, sky residuals only
         "bad_fiber",  # fiber status with a forbidden bit
         "allowed_fiber",  # fiber status with an allowed bit, fitted
         "masked_arm",  # every pixel of arm b masked
         "nan_arm",  # arm r all NaN
         "zero_arm",  # flux and ivar of arm z zero
         "no_arm",  # ivar zero in all arms
         "inf_pixels",  # infinite flux in 50 unmasked pixels of each arm
         "noise",  # noise without a star
         "negative",  # a star with its sign turned
         "spike",  # one unmasked pixel of 1e9
         "half_masked",  # every second pixel masked
         "fast_rotator",  # v sin i of 300 km/s
         "high_velocity",  # 900 km/s
         "galaxy")  # a star that redrock calls a GALAXY

VEL_CUT_KM_S = 900.0  # largest |velocity| that is drawn
N_TILE_STAR = 5000  # stars per tile of the sky
N_TRY = 16  # label points drawn at once for a star; the first inside the hulls is taken


def generator(seed, stream, index):
    return np.random.Generator(np.random.Philox(key=np.array([seed, 0], np.uint64),
                                                counter=np.array([0, 0, stream, index], np.uint64)))


@dataclass
class Stars:
    """Truth of n consecutive stars; NaN in rows without a star."""
    index: np.ndarray  # [n] number in the survey, from 0
    target_id: np.ndarray
    kind: np.ndarray  # [n] of KINDS
    label: np.ndarray  # [n][n_label] in their units
    vrad_km_s: np.ndarray
    vsini_km_s: np.ndarray
    share: list  # each arm's amplitudes [n][n_component] of model-error components, in their sigmas
    sn: np.ndarray  # expected median S/N of a pixel of arm r
    group: np.ndarray  # of fibers, 0 to 4
    ra_deg: np.ndarray
    dec_deg: np.ndarray
    magnitude: np.ndarray  # [n][3] AB in g, r, z
    redrock: np.ndarray  # [n][2] a uniform and a normal random number for redrock's redshift

    def is_empty(self):
        """Return which rows [n] hold noise without a star."""
        return np.isin(self.kind, ("sky", "noise"))


def check_library(library):
    """Check that labels can be drawn inside the library's hulls."""
    n_inside = inside_hulls(library, _points(library, generator(1, STAR, 0), 20000)).sum()
    need(n_inside >= 20, USAGE, f"{library.path}: of 20000 random labels {n_inside} lie inside the "
         "library's hulls, expected 20 or more; give another --library")


def _points(library, random, n):
    """Return points [n][n_label] between the labels' limits."""
    low, high = (np.array([getattr(label, end) for label in library.label])
                 for end in ("min", "max"))
    return low + (high - low) * random.random((n, library.n_label))


def _labels(library, randoms):
    """Return labels [n][n_label], uniform inside the hulls, one row per generator."""
    values = np.empty((len(randoms), library.n_label))
    todo = np.arange(len(randoms))
    while len(todo):
        points = np.stack([_points(library, randoms[i], N_TRY) for i in todo])
        inside = inside_hulls(library, points.reshape(-1, library.n_label)).reshape(-1, N_TRY)
        found = inside.any(axis=1)
        values[todo[found]] = points[found, inside[found].argmax(axis=1)]
        todo = todo[~found]
    return values


def _log_uniform(u, low, high):
    return low * np.exp(u * np.log(high / low))


def _places(seed, index, u, v):
    """Return right ascensions and declinations [n] (degrees) from uniform random numbers u, v [n].
    N_TILE_STAR stars fill a disc of radius 1.6 degrees; discs lie at declinations -20 to 80."""
    tiles, tile = np.unique(index // N_TILE_STAR, return_inverse=True)
    centre = np.array([generator(seed, TILE, number).random(2) for number in tiles])
    low, high = np.sin(np.radians([-20.0, 80.0]))
    dec0 = np.degrees(np.arcsin(low + (high - low) * centre[:, 1]))
    radius, angle = 1.6 * np.sqrt(u), 2.0 * np.pi * v
    dec = dec0[tile] + radius * np.sin(angle)
    return (360.0 * centre[tile, 0] + radius * np.cos(angle) / np.cos(np.radians(dec))) % 360.0, dec


def _magnitudes(arm_r, teff_k, group, sn):
    """Return AB magnitudes g, r, z [n][3].  r follows from the median S/N of arm r, sn [n]; g and z
    follow from r by the colours of a black body."""
    shot = np.median(arm_r.gain) * sn ** 2
    background = np.median(arm_r.background, axis=1)[group]
    # solves sn^2 = flux^2 / (gain flux + background)
    flux = 0.5 * (shot + np.sqrt(shot * shot + 4.0 * background * sn ** 2))
    wave_aa = np.array([4730.0, 6420.0, 9260.0])  # g, r, z of DECam
    # lambda^2 / c turns flux per A into flux per Hz; AB is -2.5 lg(erg / (s cm2 Hz)) - 48.6
    r = -2.5 * np.log10(flux * 1e-17 * wave_aa[1] ** 2 / (C_KM_S * 1e13)) - 48.6
    # ln of a black body's flux per unit frequency, up to a constant
    colour = -3.0 * np.log(wave_aa) - np.log(np.expm1(
        1.438776877e8 / (wave_aa * teff_k[:, np.newaxis])))
    return r[:, np.newaxis] - 2.5 / np.log(10.0) * (colour - colour[:, 1:2])


def kinds(per_1000, index):
    """Return the kinds [n] of the rows in index.  Of every 1000 rows, per_1000 evenly spaced rows
    have a defect; the kinds of defects take turns."""
    # before, after: numbers of defects in the rows before this row, and with this row
    block, j = np.divmod(index, 1000)
    before, after = (block * per_1000 + i * per_1000 // 1000 for i in (j, j + 1))
    return np.where(before == after, KINDS[0], np.array(KINDS[1:])[before % (len(KINDS) - 1)])


def target_ids(index):
    """Return target ids in DESI's layout (Myers et al. 2023, AJ 165, 50): 22 bits for the object in
    its brick, 20 for the brick, 16 for the imaging release, then one bit for "mock"."""
    return index & 0x3FFFFF | (index >> 22) + 1 << 22 | 9010 << 42 | 1 << 58


def draw(survey, first, n):
    """Return stars first to first + n - 1 of a survey (survey.Survey)."""
    settings, library = survey.settings, survey.library
    index = np.arange(first, first + n, dtype=np.int64)
    randoms = [generator(settings.seed, STAR, i) for i in index]
    u = np.stack([random.random(7) for random in randoms]).T  # uniform numbers [7, n]
    redrock_normal = np.array([random.standard_normal() for random in randoms])
    label = _labels(library, randoms)
    share = [np.stack([random.standard_normal(n_share) for random in randoms])
             for n_share in survey.n_share]
    kind, group = kinds(settings.pathological, index), index % 5
    vsini = _log_uniform(u[0], *settings.vsini) if settings.vsini else np.where(
        u[1] < 0.8, _log_uniform(u[0], 1.0, 10.0), _log_uniform(u[0], 10.0, 150.0))
    vsini = np.where(kind == "fast_rotator", 300.0, vsini)
    # velocities are normal around 0, truncated at VEL_CUT_KM_S
    beyond = ndtr(-VEL_CUT_KM_S / max(settings.vel_sigma, 1e-9))
    vrad = settings.vel_sigma * np.clip(ndtri(beyond + u[2] * (1.0 - 2.0 * beyond)), -40, 40)
    vrad = np.where(kind == "high_velocity", VEL_CUT_KM_S, vrad)
    sn = _log_uniform(u[3], *settings.sn)
    ra, dec = _places(settings.seed, index, u[4], u[5])
    teff = next((label[:, i] for i, one in enumerate(library.label) if one.name == "teff"),
                np.full(n, 5500.0))
    magnitude = _magnitudes(survey.arms[1], teff, group, sn)
    stars = Stars(index, target_ids(index), kind, label, vrad, vsini, share, sn, group, ra, dec,
                  magnitude, np.stack([u[6], redrock_normal], axis=1))
    empty = stars.is_empty()
    for values in (label, vrad, vsini, *share):
        values[empty] = np.nan
    sn[empty] = 0.0
    magnitude[empty] = np.inf
    return stars
