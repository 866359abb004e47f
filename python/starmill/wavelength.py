# SPDX-License-Identifier: BSD-3-Clause
"""Wavelengths in vacuum, resolution and Doppler factor, shared by the jobs."""

import numpy as np

C_KM_S = 299792.458
FWHM_PER_SIGMA = 2.3548200450309493  # of a Gaussian: 2 sqrt(2 ln 2)


def vacuum(wave):
    """Convert wavelengths (A) above 2000 A from air to vacuum, by Piskunov's formula of VALD, the
    inverse of Morton (2000, ApJS 130, 403); as io/surveys/spectra_cut.c does."""
    s2 = (1e4 / wave) ** 2
    n = (1 + 8.336624212083e-5 + 0.02408926869968 / (130.1065924522 - s2)
         + 1.599740894897e-4 / (38.92568793293 - s2))
    return np.where(wave >= 2000, wave * n, wave)


def doppler(vel_km_s):
    """Return the factor by which a velocity (positive: receding) multiplies wavelengths."""
    beta = vel_km_s / C_KM_S
    return np.sqrt((1 + beta) / (1 - beta))
