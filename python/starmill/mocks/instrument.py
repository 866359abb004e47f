# SPDX-License-Identifier: BSD-3-Clause
"""The mock instrument: wavelengths, line-spread functions, throughput, sky and read noise.
docs/science/simulator.md gives the formulas and where their constants come from."""

import os
from dataclasses import dataclass

import numpy as np

from starmill.wavelength import FWHM_PER_SIGMA

N_GROUP, N_DIAG = 5, 11  # groups of fibers, each of one line-spread function; matrix diagonals
HALF = N_DIAG // 2

# an exposure of a survey telescope: these give the electrons per pixel
AREA_CM2 = 8.66e4  # of the mirror without its obstruction
EXPOSURE_S = 1000.0
PHOTON_ERG_AA = 1.98644586e-8  # h c: energy of a photon times its wavelength in A
FLUX_UNIT = 1e-17
READ_VARIANCE = 50.0  # electrons^2 of one extracted pixel: about 4 x 3.5^2
SKY_RESIDUAL = 0.01  # error of the sky model, relative to the sky
SKY_LINES = np.loadtxt(os.path.join(os.path.dirname(__file__), "sky_lines.txt"))  # of the night


@dataclass
class InstrumentArm:
    name: str
    wave_aa: np.ndarray  # [n_pix], vacuum
    gain: np.ndarray  # [n_pix] variance = gain flux + background
    background: np.ndarray  # [N_GROUP][n_pix] of sky and read noise
    resolution: np.ndarray  # [N_GROUP][N_DIAG][n_pix], as DESI stores it (scipy's dia layout)

    @property
    def n_pix(self):
        return len(self.wave_aa)

    @property
    def step_aa(self):
        return self.wave_aa[1] - self.wave_aa[0]


def lsf_sigma(group, wave_aa):
    """Return the Gaussian sigma in A of the line-spread function, pixel included."""
    x = (wave_aa - 6700.0) / 3100.0
    fwhm_aa = 1.72 + 0.04 * x + 0.10 * x * x
    return fwhm_aa / FWHM_PER_SIGMA * (0.96 + 0.02 * group)


def _logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


def _sky(group, wave_aa):
    """Return the dark sky in one fiber, 1e-17 erg / (s cm2 A), at the instrument's resolution."""
    sky = 1.2 + 0.9 * (wave_aa - 3600.0) / 6224.0
    s2 = 1e8 / SKY_LINES[:, 0] ** 2  # Ciddor (1996, Appl. Opt. 35, 1566): good to 1e-3 A
    vacuum = SKY_LINES[:, 0] * (1.0 + 5.792105e-2 / (238.0185 - s2) + 1.67917e-3 / (57.362 - s2))
    for centre_aa, flux in zip(vacuum, SKY_LINES[:, 1]):
        sigma_aa = lsf_sigma(group, centre_aa)
        near = slice(*np.searchsorted(wave_aa, centre_aa + np.array([-8, 8]) * sigma_aa))
        u = (wave_aa[near] - centre_aa) / sigma_aa
        sky[near] += flux / (sigma_aa * np.sqrt(2.0 * np.pi)) * np.exp(-0.5 * u * u)
    return sky


def _resolution(group, wave_aa, step_aa):
    """Return the resolution matrix [N_DIAG][n_pix]; each row is a Gaussian over N_DIAG pixels."""
    k = np.arange(-HALF, HALF + 1)
    sigma = lsf_sigma(group, wave_aa) / step_aa
    weight = np.exp(-0.5 * (k[:, np.newaxis] / sigma) ** 2)
    weight /= weight.sum(axis=0)
    out = np.zeros((N_DIAG, len(wave_aa)))
    for offset, row in zip(k, weight):
        # element (i, i + offset) is in the diagonal of this offset, at column i + offset
        i = np.arange(max(0, -offset), len(wave_aa) - max(0, offset))
        out[HALF - offset, i + offset] = row[i]
    return out.astype("f4")


def _arm(name, wave0_aa, step_aa, n_pix, peak, blue, red):
    """Make an arm.  peak: largest throughput, the share of photons above the atmosphere that become
    electrons; blue, red: (wavelength, width) in A of the two edges of the throughput."""
    wave_aa = wave0_aa + step_aa * np.arange(n_pix)
    throughput = (peak * _logistic((wave_aa - blue[0]) / blue[1])
                  * _logistic((red[0] - wave_aa) / red[1]))
    # electrons per unit of flux; the variance of N electrons is N
    electrons = FLUX_UNIT * AREA_CM2 * EXPOSURE_S * step_aa * wave_aa / PHOTON_ERG_AA * throughput
    sky = np.stack([_sky(group, wave_aa) for group in range(N_GROUP)])
    background = sky / electrons + (SKY_RESIDUAL * sky) ** 2 + READ_VARIANCE / electrons ** 2
    resolution = np.stack([_resolution(group, wave_aa, step_aa) for group in range(N_GROUP)])
    return InstrumentArm(name, wave_aa, 1.0 / electrons, background, resolution)


def arms():
    return [_arm("b", 3600.0, 0.8, 2751, 0.26, (3900.0, 180.0), (5780.0, 40.0)),
            _arm("r", 5760.0, 0.8, 2326, 0.34, (5740.0, 40.0), (7640.0, 40.0)),
            _arm("z", 7520.0, 0.8, 2881, 0.36, (7560.0, 40.0), (9700.0, 150.0))]
