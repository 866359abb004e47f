# SPDX-License-Identifier: BSD-3-Clause
"""Measures the model error of an arm from residuals of spectra with known labels
(docs/science/numerics.md, "Model error")."""

import numpy as np
from scipy.linalg import eigh

from starmill.cli.basics import INPUT, Failure, need, warn
from starmill.templates import library_data
from starmill.templates.spectra_files import on_grid

LEAST_SPECTRA = 8
N_COMPONENT, N_CONTINUUM = 8, 10  # by default
MAX_LAG = 64  # pixels; correlation at larger lags does not count
APART = 64  # pixels; farther apart pixels do not mix when spectra are resampled
SMALL_ERROR = 0.02  # relative to flux, typical noise: smaller residuals weigh no more


def noise_left(spectra_sn, wave, to, n_continuum, put=on_grid):
    """Return the rms [n_pix], relative to the flux, that white noise of S/N spectra_sn (None: no
    noise) has after put(wave, flux, to) and a fit of n_continuum functions."""
    if not spectra_sn:
        return np.zeros(len(to))
    # the sum of put's squared weights; it sees pixels APART pixels apart at once: no overlap
    pulses = (1.0 + (np.arange(len(wave)) % APART == i) for i in range(APART))
    share = sum((put(wave, flux, to) - 1) ** 2 for flux in pulses)
    n = ((wave >= to[0]) & (wave <= to[-1])).sum()
    return np.sqrt(np.maximum(np.nan_to_num(share) - n_continuum / max(n, 1), 0)) / spectra_sn


def continuum(x, n):
    """Return the n continuum functions of a fit at x in [-1, 1]: 1, x, x^2 and Gaussians."""
    n_rbf = n - 3
    centre = np.linspace(-1, 1, n_rbf)[:, None] if n_rbf > 1 else np.full((1, 1), -1.0)
    return np.concatenate([x ** np.arange(3)[:, None], np.exp(-0.5 * ((x - centre) * n_rbf) ** 2)])


def measure_scale(level, x):
    """Return the factors [n_pix] by which relative residuals x [n, n_pix] become comparable.  A
    factor is level (flux) / sqrt(SMALL_ERROR^2 + local mean of (level * x)^2)."""
    n_pix = len(level)
    total = np.concatenate([[0], np.cumsum(np.nansum(x**2, axis=0) * level**2)])
    at, reach = np.arange(n_pix), n_pix // 40
    first, last = np.maximum(at - reach, 0), np.minimum(at + reach + 1, n_pix)
    near = (total[last] - total[first]) / (len(x) * (last - first))
    return level / np.sqrt(near + SMALL_ERROR**2)


def divide_by_continuum(x, known, functions, scale):
    """Return (1 + x) / continuum - 1 [n, n_pix].  The continuum is a least-squares fit of functions
    [k, n_pix] to the known pixels of 1 + x, with weights scale**2."""
    k, weight = len(functions), scale**2
    pairs = (functions[:, None] * functions * weight).reshape(k * k, -1)
    normal = (known.astype(float) @ pairs.T).reshape(-1, k, k)
    right = (np.where(known, 1 + x, 0) * weight) @ functions.T
    try:
        share = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        raise Failure(INPUT, f"a spectrum has {known.sum(1).min()} good pixels, too few to fit {k} "
                      "continuum functions: leave out spectra with few pixels") from None
    return (1 + x) / (share @ functions) - 1


def flatten(wave, x, weight, level, n_continuum):
    """Remove the continuum from residuals x.  Return x times the square root of each spectrum's
    weight, 0 where unknown; the mask of known pixels; measure_scale's factors (or ones); weights.

    Spectra known at less than half of the pixels are dropped.  With a level (template flux) the
    continuum is fitted twice, the second time with low weights where templates are poor."""
    known = np.isfinite(x)
    inside = np.flatnonzero(known.any(axis=0))
    span = slice(inside[0], inside[-1] + 1) if len(inside) else slice(0, 1)
    width = span.stop - span.start
    n_known = known.sum(axis=1)
    use = (n_known >= width // 2) & (n_known >= 2 * n_continuum) & (weight > 0)
    x, known, weight = x[use], known[use], weight[use]
    functions = np.zeros((n_continuum, len(wave)))
    low, high = wave[span.start], wave[span.stop - 1]
    functions[:, span] = continuum(2 * (wave[span] - low) / max(high - low, 1e-9) - 1, n_continuum)
    scale = np.ones(len(wave)) if level is None else level
    for _ in range(0 if len(x) == 0 else 1 if level is None else 2):
        x = divide_by_continuum(x, known, functions, scale)
        if level is not None:
            scale = measure_scale(level, x)
    return np.where(known, np.sqrt(weight)[:, None] * x, 0), known, scale, weight


def take_components(x, q, noise2, scale):
    """Find up to q principal components (about zero) of x * scale above the noise.  Return the
    components / scale [q, n_pix], of rms 1; their standard deviations [q]; x without them."""
    n, n_pix = x.shape
    scaled = x * scale
    value, vector = eigh(scaled @ scaled.T, subset_by_index=[n - max(q, 1), n - 1],
                         check_finite=False)
    value = value[::-1] - scale**2 @ noise2  # less the contribution of noise
    q = min(q, int((value > 0).sum()))
    pattern = vector[:, ::-1].T[:q] @ scaled
    pattern /= np.linalg.norm(pattern, axis=1, keepdims=True)
    scaled -= (scaled @ pattern.T) @ pattern
    pattern /= scale
    length = np.linalg.norm(pattern, axis=1)
    return (pattern * (np.sqrt(n_pix) / length)[:, None],
            length * np.sqrt(value[:q] / (n * n_pix)), scaled / scale)


def fill_fraction(fraction, error2, n_known):
    """Set `fraction` (relative error) of pixels unknown in all spectra.  A gap gets the rms error
    of all known pixels; pixels beyond an end get that of the nearest quarter of the known range."""
    inside = np.flatnonzero(n_known)
    first, last = inside[0], inside[-1]
    quarter = (last - first) // 4

    def mean(a, b):
        return np.sqrt(error2[a:b + 1][n_known[a:b + 1] > 0].mean())
    fraction[n_known == 0] = mean(first, last)
    fraction[:first] = mean(first, first + quarter)
    fraction[last + 1:] = mean(last - quarter, last)


def measure_correlation(x, fraction, free):
    """Return 1 + twice the sum of correlations at lags 1, 2, ... before the first not above 0."""
    zero, correlation = (fraction**2).sum(), 1.0
    for lag in range(1, min(MAX_LAG + 1, x.shape[1]) if zero > 0 else 1):
        rho = np.einsum("ij,ij", x[:, :-lag], x[:, lag:]) / free / zero
        if not rho > 0:
            break
        correlation += 2 * min(rho, 1)
    return correlation


def measure(wave, x, n_component, weight=None, noise=0.0, n_continuum=N_CONTINUUM, level=None):
    """Return the ModelError of an arm and the number of spectra that it rests on.

    wave   [n_pix]      of the arm, A
    x      [n, n_pix]   observed / template - 1, with or without continuum; NaN: unknown
    weight [n]          0 or more
    noise               rms of x by the spectra's noise (noise_left): a number or [n_pix]
    level  [n_pix]      template flux, any unit, above 0: continuum and components are fitted to x
                        times measure_scale(level, x), else cores of strong lines would take up all
                        components.  None: they are fitted to x
    """
    weight = np.ones(len(x)) if weight is None else weight
    x, known, scale, weight = flatten(wave, x, weight, level, n_continuum)
    n, least = len(x), max(LEAST_SPECTRA, 2 * n_component)
    need(n >= least, INPUT, f"only {n} spectra have good fluxes in at least half of the pixels; a "
         f"model error of {n_component} components needs at least {least}: give more")
    noise2, n_known = np.full(len(wave), noise**2 * weight.mean()), known.sum(axis=0)
    if (x**2).sum() < n_known @ noise2:
        warn("the spectra differ less from the templates than their noise: the model error is 0 "
             "or too small; give a higher --spectra-sn")
    component, sigma, x = take_components(x, n_component, noise2, scale)
    part = 1 - len(sigma) / n  # fraction of the degrees of freedom left by the components
    fraction2 = (x**2).sum(axis=0) / (np.maximum(n_known, 1) * part) - noise2
    fraction2[n_known == 0] = 0
    most = np.maximum(fraction2, 0)  # its mean is too large: chance makes some pixels negative
    fraction = np.sqrt(most * max(fraction2.sum(), 0) / max(most.sum(), 1e-30))
    correlation = measure_correlation(x, fraction, n * part)
    fill_fraction(fraction, fraction**2 + ((sigma[:, None] * component) ** 2).sum(axis=0), n_known)
    error = library_data.ModelError(fraction=fraction.astype("f4"), sigma=sigma,
                                    component=component.astype("f4"), correlation=correlation)
    return error, n


def line(arm, n, wave):
    """Return a text on an arm's model error, measured by n spectra around the wavelengths wave."""
    (rms, left), q = arm.error.size(), len(arm.error.sigma)
    return (f"model error of arm {arm.name}: {100 * rms:.3f} % of the flux, rms of {n} spectra; "
            f"{q} component{'s leave' if q != 1 else ' leaves'} {100 * left:.1f} % of its "
            "variance, correlated over "
            f"{arm.error.correlation * arm.ln_step * np.median(wave):.2f} A")
