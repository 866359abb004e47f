# SPDX-License-Identifier: BSD-3-Clause
"""Labels and velocity of spectra, fitted with a library in its own pixels, many at once: for the
report of a library (docs/use/libraries.md, "The report of a library")."""

import numpy as np

from starmill.cli.basics import INPUT, Failure
from starmill.templates import emulate
from starmill.wavelength import C_KM_S

N_CONT = 10  # Legendre polynomials an arm
EDGE = 8  # pixels at either end of an arm that take no part, so that templates can move
MAX_SHIFT = EDGE - 2
STEP = 1e-4  # of mapped labels, for derivatives
SPEED_UNIT = 100.0  # km/s; steps of the search are at most one
MAX_STEP = 30
ENOUGH = 1e-12  # of chi-square: differences of two fits matter down to 1e-4 of their errors
BLOCK = 2000000  # numbers of the derivatives of spectra that are fitted side by side
LN_LEAST = np.log(np.finfo(float).tiny)


def ln_templates(library, i_arm, values):
    """[n, n_pix]; of networks of the flux, which may fall below 0, not below LN_LEAST."""
    with np.errstate(invalid="ignore", divide="ignore"):
        y = emulate.ln_flux(library, i_arm, values)
    return y if library.arm[i_arm].emulator.log_flux else np.where(y > LN_LEAST, y, LN_LEAST)


def shift_weights(shift):
    """For rows moved by shift [n] pixels to the red, by the cubic through four pixels: the first of
    the four for pixel EDGE, their weights [n, 4] and the slopes of these with the shift."""
    whole = np.floor(-shift)
    u = -shift - whole
    weight = [-u * (u - 1) * (u - 2) / 6, (u + 1) * (u - 1) * (u - 2) / 2,
              -(u + 1) * u * (u - 2) / 2, (u + 1) * u * (u - 1) / 6]
    slope = [(3 * u * u - 6 * u + 2) / 6, -(3 * u * u - 4 * u - 1) / 2,
             (3 * u * u - 2 * u - 2) / 2, -(3 * u * u - 1) / 6]
    return EDGE + whole.astype(int) - 1, np.stack(weight, axis=1), np.stack(slope, axis=1)


class Fitter:
    """Least squares of ln flux [n, n_pix], all arms side by side without their EDGEs, with the
    continuum of every arm free.  Parameters are the mapped labels and the velocity in SPEED_UNITs.
    """

    def __init__(self, library):
        self.library, self.basis, self.part, n = library, [], [], 0
        for arm in library.arm:
            if arm.n_pix < 2 * EDGE + 4 * N_CONT:
                raise Failure(INPUT, f"arm {arm.name} has {arm.n_pix} pixels, too few to measure "
                              "how well labels are found")
            n_pix = arm.n_pix - 2 * EDGE
            legendre = np.polynomial.legendre.legvander(np.linspace(-1, 1, n_pix), N_CONT - 1)
            self.basis.append(np.linalg.qr(legendre)[0].T)
            self.part.append(slice(n, n + n_pix))
            n += n_pix
        self.n_pix, self.n_par = n, len(library.label) + 1
        self.guess = self.flat(self.templates(library.guess_label))
        self.guess_mapped = library.map(library.guess_label)
        self.guess_square = (self.guess**2).sum(axis=1)

    def templates(self, values):
        """ln flux [n, n_pix] at labels [n, n_label]."""
        return np.concatenate([ln_templates(self.library, a, values)[:, EDGE:-EDGE]
                               for a in range(len(self.library.arm))], axis=1)

    def flat(self, rows):
        """Without continuum, in place."""
        for part, basis in zip(self.part, self.basis):
            rows[..., part] -= (rows[..., part] @ basis.T) @ basis
        return rows

    def start(self, data):
        """Parameters of the templates of the initial guess that are most like data."""
        best = (self.guess_square - 2 * data @ self.guess.T).argmin(axis=1)
        return np.pad(self.guess_mapped[best], ((0, 0), (0, 1)))

    def model(self, x):
        """ln templates [n, n_pix] at parameters x [n, n_par], and their slopes
        [n, n_par, n_pix]."""
        n, n_label = len(x), self.n_par - 1
        at = x[:, None, :-1] + STEP * np.eye(n_label + 1, n_label, -1)
        values = self.library.unmap(at).reshape(-1, n_label)
        model, slope = np.empty((n, self.n_pix)), np.empty((n, self.n_par, self.n_pix))
        for a, (arm, part) in enumerate(zip(self.library.arm, self.part)):
            rows = ln_templates(self.library, a, values).reshape(n, n_label + 1, -1)
            per_unit = SPEED_UNIT / C_KM_S / arm.ln_step
            first, weight, by_shift = shift_weights(x[:, -1] * per_unit)
            n_pix = part.stop - part.start
            model[:, part] = slope[:, :, part] = 0
            for i in range(n):
                for k in range(4):
                    four = rows[i, :, first[i] + k:first[i] + k + n_pix]
                    slope[i, :-1, part] += weight[i, k] / STEP * four[1:]
                    slope[i, -1, part] += by_shift[i, k] * per_unit * four[0]
                    model[i, part] += weight[i, k] * four[0]
            slope[:, :-1, part] -= model[:, None, part] / STEP
        return model, slope

    def misfit(self, data, x):
        """Sum of squares [n] (infinite: not possible), normal matrix and right-hand side."""
        n = len(x)
        total = np.full(n, np.inf)
        normal, right = np.zeros((n, self.n_par, self.n_par)), np.zeros((n, self.n_par))
        step = min(arm.ln_step for arm in self.library.arm)
        good = np.abs(x[:, -1]) * SPEED_UNIT / C_KM_S / step < MAX_SHIFT
        good &= np.isfinite(self.library.unmap(x)).all(axis=1)
        if good.any():
            model, slope = self.model(x[good])
            rest = self.flat(data[good] - model)
            self.flat(slope)
            total[good] = (rest**2).sum(axis=1)
            normal[good] = slope @ slope.swapaxes(1, 2)
            right[good] = (slope @ rest[:, :, None])[:, :, 0]
        return np.where(np.isfinite(total), total, np.inf), normal, right

    def search(self, data, x):
        """Levenberg-Marquardt from x [n, n_par] to the least sums near it: x and normal matrices
        there.  Steps are at most 1 along each parameter."""
        x = x.copy()
        now, normal, right = self.misfit(data, x)
        damping, active = np.full(len(x), 1e-3), np.isfinite(now)
        for _ in range(MAX_STEP):
            i = np.flatnonzero(active)
            if not len(i):
                break
            size = np.sqrt(np.maximum(np.einsum("ikk->ik", normal[i]), 1e-300))
            damped = normal[i] / (size[:, :, None] * size[:, None])
            damped += damping[i, None, None] * np.eye(self.n_par)
            way = np.linalg.solve(damped, (right[i] / size)[:, :, None])[:, :, 0] / size
            trial = x[i] + way / np.maximum(np.abs(way).max(axis=1, keepdims=True), 1)
            total, next_normal, next_right = self.misfit(data[i], trial)
            better = total < now[i]
            done = np.abs(now[i] - total) < ENOUGH * now[i]
            k = i[better]
            x[k], now[k] = trial[better], total[better]
            normal[k], right[k] = next_normal[better], next_right[better]
            damping[i] = np.where(better, np.maximum(0.1 * damping[i], 1e-7), 10 * damping[i])
            active[i] = ~done & (damping[i] < 1e6)
        return x, normal

    def result(self, x, normal, sn):
        """Labels in their units and velocity in km/s [n, n_par], and their errors at that S/N; NaN
        where a fit has none."""
        found = np.column_stack([self.library.unmap(x[:, :-1]), SPEED_UNIT * x[:, -1]])
        unit = np.full(found.shape, SPEED_UNIT)
        for i, label in enumerate(self.library.label):
            unit[:, i] = label.std * (found[:, i] * np.log(10) if label.mapping else 1)
        variance = np.full(found.shape, np.nan)
        for i in range(len(x)):
            try:
                np.linalg.cholesky(normal[i])
                variance[i] = np.diag(np.linalg.inv(normal[i]))
            except np.linalg.LinAlgError:
                pass
        with np.errstate(invalid="ignore"):
            return found, unit * np.sqrt(variance) / sn


def fit_all(library, labels, flux, all_sn):
    """For each S/N (found, sigma, own) [n, n_label + 1]: labels and velocity found in spectra with
    noise, their errors, and what is found in the emulator's own spectra of the same labels with the
    same noise.  NaN: a fit did not end at finite labels.

    labels [n, n_label]; flux: of each arm [n, n_pix], above 0
    """
    fitter = Fitter(library)
    random = np.random.default_rng(1)
    n, n_par = len(labels), fitter.n_par
    out = [tuple(np.empty((3, n, n_par))) for _ in all_sn]
    size = max(1, BLOCK // (fitter.n_pix * n_par))
    for first in range(0, n, size):
        block = slice(first, first + size)
        true = np.pad(library.map(labels[block]), ((0, 0), (0, 1)))
        spectra = np.concatenate([np.log(f[block, EDGE:-EDGE].astype(float)) for f in flux], axis=1)
        own = fitter.templates(labels[block])
        noise = random.standard_normal(spectra.shape)
        x = found_before = None
        for (found, sigma, own_found), sn in zip(out, all_sn):
            data = fitter.flat(spectra + noise / sn)
            start = fitter.start(data)
            if x is not None:  # from what was found at the S/N before
                good = np.isfinite(found_before).all(axis=1)
                start[good] = x[good]
            x, normal = fitter.search(data, start)
            found[block], sigma[block] = fitter.result(x, normal, sn)
            found_before = found[block] + sigma[block]
            own_x, own_normal = fitter.search(fitter.flat(own + noise / sn), true)
            own_found[block], own_sigma = fitter.result(own_x, own_normal, sn)
            own_found[block] += 0 * own_sigma  # NaN where it has no error
    return out
