# SPDX-License-Identifier: BSD-3-Clause
"""Adds abundances of elements to a library: labels [X/Fe] of the models of plan "elements".

An abundance changes ln flux by a * q: a is its departure from the library's value; q, its response,
is a smooth function of Teff, log g, [Fe/H] and [alpha/Fe].  The responses of a pixel are Gaussian
processes.  They are put into the library's network without training:
  pairs of SiLU units give squares, silu(z) + silu(-z) = z tanh(z / 2), about z^2 / 2 for small z;
  two squares give a product, a * q = (a + q)^2 / 4 - (a - q)^2 / 4.
"""

import numpy as np

from starmill.cli.basics import USAGE, need
from starmill.grids import plan
from starmill.templates import emulate, library_file
from starmill.templates.grid_file import open_grid
from starmill.templates.library_data import Hull, Label

N_FOUR = 4  # labels of the library
N_COMPONENT = 36  # of all responses together
N_SAMPLE = 800  # label points whose responses give the components
SMOOTH_AA = 300.0  # wavelength per term of the smooth part, which a fit's continuum removes
NOISE = 0.007  # of ln flux: errors of the library at the models' four labels
NOISE_SHARE = 0.05  # a further error, as a share of a line's absorption
LENGTH = 2.0  # correlation length of the processes, in mapped labels
PENALTY = 50.0  # lowers variances, so that elements without lines get almost none
STEP = 6  # variances are found at every sixth pixel, and interpolated
SMALL = 0.0625  # scale of the arguments of products: errors of SMALL^2 / 12
LINEAR = 20.0  # silu(z + LINEAR) - LINEAR is z for small z
CARBON = 0.2  # largest [C/Fe] - [alpha/Fe]; above it C and O reverse roles in cool stars


class Models:
    """Models of a grid file: four labels, abundances, and the changes of ln flux that these cause.

    values    [n][4]           labels
    a         [n][9]           departures from the library's [X/Fe] (ELEMENTS), microturbulence
    change    [n][n_pix]       ln(flux / the library's flux), less its smooth part in wavelength
    strength  [n][n_pix]       absorption() at the models' labels
    continuum [n_term][n_pix]  coefficients of ln continuum for monomials of the labels
    """

    def __init__(self, grid, library):
        """Take arm 0 of the grid's good models, except cool carbon-rich ones (CARBON)."""
        rows = grid.good(False)
        labels = grid.values[rows]
        a = labels[:, N_FOUR:] - np.column_stack(
            [labels[:, 3] * e[3] for e in plan.ELEMENTS]
            + [[plan.microturbulence(*row[:2]) for row in labels]])
        keep = (a[:, 0] - labels[:, 3] < CARBON) | (labels[:, 0] > 5500)
        rows, self.values, self.a = rows[keep], labels[keep, :N_FOUR], a[keep]
        self.library = library
        level = np.log(grid.flux(0, rows, "continuum").astype(float))
        self.continuum = np.linalg.lstsq(self.terms(self.values), level, rcond=None)[0]
        wave = library.arm[0].wave_aa
        self.smooth = np.polynomial.chebyshev.chebvander(
            np.linspace(-1, 1, len(wave)), round((wave[-1] - wave[0]) / SMOOTH_AA))
        base = emulate.ln_flux(library, 0, self.values)
        flux = np.log(grid.flux(0, rows).astype(float))
        self.change = self.level_out(flux - base, level - flux)
        self.strength = self.absorption(self.values)

    def level_out(self, y, absorption):
        """Return y [n][n_pix] less its smooth part, fitted mainly where absorption is small."""
        out = np.empty_like(y)
        for i, weight in enumerate(1 / (0.02 + abs(absorption))):
            coef = np.linalg.lstsq(self.smooth * weight[:, None], y[i] * weight, rcond=None)[0]
            out[i] = y[i] - self.smooth @ coef
        return out

    def terms(self, values):
        """Return the terms of the continuum, which [alpha/Fe] hardly changes."""
        return emulate.monomials(self.library.map(values)[:, :3], 3)

    def absorption(self, values):
        """Return the absorption by lines, ln continuum - ln flux, of the library's spectra.  It is
        reduced in strong lines, which respond less to abundances."""
        depth = self.terms(values) @ self.continuum - emulate.ln_flux(self.library, 0, values)
        depth = np.maximum(depth - np.percentile(depth, 5, axis=1)[:, None], 0)
        return 1.5 * depth / (1 + 2 * depth)


class Process:
    """Gaussian processes f_k(labels) and g(labels) of a pixel, whose ln flux changes by
    sum_k a_k f_k + 0.3 g.  a_k: Models.a[:, k], an element's departure (dex); 0.3 g: the library's
    own error.  The variance of process k is models.strength^2 x variance[k]."""

    def __init__(self, models):
        self.models, self.n = models, len(models.a)
        self.factor = np.column_stack([models.a, np.full(self.n, 0.3)])
        self.kernel = np.einsum("ik,jk,ij->kij", self.factor, self.factor,
                                self.nearness(models.values))

    def nearness(self, values):
        """Return the correlation of values [n][4] with the models [n][n_model]."""
        x, y = (self.models.library.map(v) / LENGTH for v in (values, self.models.values))
        return np.exp(-0.5 * ((x[:, None] - y) ** 2).sum(axis=-1))

    def inverse(self, pixel, variance):
        """Return the inverse covariance matrix of the models at a pixel."""
        s = self.models.strength[:, pixel]
        matrix = np.tensordot(variance, self.kernel, 1) * np.outer(s, s)
        matrix.flat[::self.n + 1] += NOISE ** 2 + (NOISE_SHARE * s) ** 2
        return np.linalg.inv(matrix)

    def variances(self, pixel, n_step=6):
        """Return the variances at a pixel that maximise the likelihood (MacKay's iteration)."""
        s, out = self.models.strength[:, pixel], np.full(len(self.kernel), 0.5)
        for _ in range(n_step):
            inverse = self.inverse(pixel, out)
            x = s * (inverse @ self.models.change[:, pixel])
            found = np.einsum("i,kij,j->k", x, self.kernel, x)
            trace = np.tensordot(self.kernel, inverse * np.outer(s, s), 2)
            out = np.clip(out * found / (trace + PENALTY), 1e-5, 30)
        return out

    def run(self):
        """Set variance [k][n_pix] of the processes and coef [n][n_pix], the models' weights."""
        change = self.models.change
        pixels = np.arange(change.shape[1])
        at = np.unique(np.append(pixels[::STEP], pixels[-1]))
        known = np.log([self.variances(pixel) for pixel in at])
        self.variance = np.exp([np.interp(pixels, at, v) for v in known.T])
        self.coef = np.empty_like(change)
        for i in pixels:
            self.coef[:, i] = self.inverse(i, self.variance[:, i]) @ change[:, i]
        self.coef *= self.models.strength

    def responses(self, values):
        """Yield d ln flux / d [X/Fe] [n][n_pix] of each element."""
        near, strength = self.nearness(values), self.models.absorption(values)
        for k in range(len(plan.ELEMENTS)):
            yield strength * self.variance[k] * ((near * self.factor[:, k]) @ self.coef)


def parts_of(process, values, n_component=N_COMPONENT):
    """Return the largest principal components of the elements' responses at labels `values`
    [n][4]: [(index of the element, factor [n] with the largest value 1, pattern [n_pix])]."""
    library = process.models.library
    weight = np.sqrt(emulate.flux(library, 0, values).mean(axis=0))  # faint pixels count less
    found = []
    for k, y in enumerate(process.responses(values)):
        y *= weight
        square, vector = np.linalg.eigh(y @ y.T)
        square /= np.sqrt(square.sum())  # so that elements with weak lines get components too
        for size, score in zip(square[:-n_component - 1:-1], vector.T[::-1]):
            most = abs(score).max()
            found.append((size, k, score / most, most * (score @ y) / weight))
    found.sort(key=lambda part: -part[0])
    left = sum(part[0] for part in found[n_component:]) / sum(part[0] for part in found)
    print(f"{n_component} components of the responses leave {left:.2%} of the variance")
    return [part[1:] for part in found[:n_component]]


def add_labels(library, floors):
    """Append the elements' labels and hulls; templates of the initial guess get no departures."""
    alpha, guess = library.label[3], [library.guess_label]
    for (card, _, _, is_alpha, (low, high)), floor in zip(plan.ELEMENTS, floors):
        from_alpha = (is_alpha, is_alpha)  # whether the lower and upper limit follow [alpha/Fe]
        if card == "CFE":
            high, from_alpha = CARBON, (False, True)
        label = Label(card.lower(), card, "dex", std=0.25, scale=0.1, floor=float(floor),
                      min=low + alpha.min * from_alpha[0], max=high + alpha.max * from_alpha[1])
        facets = [[-1, 0, alpha.map(alpha.min)], [1, 0, -alpha.map(alpha.max)]]
        # the facet sign * (label - [alpha/Fe] * follows - limit) <= 0, in mapped values of both
        for sign, limit, follows in zip((-1, 1), (low, high), from_alpha):
            facet = sign * np.array([-alpha.std * follows, label.std,
                                     -alpha.mean * follows - limit])
            facets.append(facet / np.hypot(*facet[:2]))
        library.hull.append(Hull(np.array([3, library.n_label]), np.array(facets)))
        library.label.append(label)
        guess.append(library.guess_label[:, 3:4] * is_alpha)
    library.guess_label = np.hstack(guess)


def join(library, parts, values):
    """Extend a library's network by `parts`, components that parts_of() made at labels `values`
    [n][4].  Each adds a * factor * pattern to ln flux.  a: its element's abundance less the
    library's (dex); factor: a function of the four labels; pattern: a function of wavelength."""
    emulator = library.arm[0].emulator
    weight, bias = ([w.astype(float) for w in x] for x in (emulator.weight, emulator.bias))
    n_element, n_part = len(plan.ELEMENTS), len(parts)
    label, alpha = library.label, library.label[3]
    mapped = np.stack([label[i].map(values[:, i]) for i in range(N_FOUR)], axis=1)
    unit = emulate.silu(mapped @ weight[0].T + bias[0])
    # layer 0: a + LINEAR, where a is an element's departure
    rows = np.zeros((n_element, library.n_label))
    shift = np.full(n_element, LINEAR)
    for k, element in enumerate(plan.ELEMENTS):
        rows[k, N_FOUR + k], rows[k, 3] = label[N_FOUR + k].std, -alpha.std * element[3]
        shift[k] += label[N_FOUR + k].mean - alpha.mean * element[3]
    weight[0] = np.vstack([np.pad(weight[0], ((0, 0), (0, n_element))), rows])
    bias[0] = np.append(bias[0], shift)
    # layer 1 has four units for each part: SiLU of SMALL (a + q), -SMALL (a + q), SMALL (a - q) and
    # -SMALL (a - q).  q is the part's factor, fitted by a linear function of layer 0's units.
    design = np.column_stack([unit, np.ones(len(unit))])
    score = np.column_stack([part[1] for part in parts])
    coef = np.linalg.solve(design.T @ design + 1e-6 * np.eye(design.shape[1]), design.T @ score).T
    size = [np.hypot.reduce(part[2]) for part in parts]
    off, all_of_it = ((y * size).std() for y in (score - design @ coef.T, score))
    print(f"the network's responses are off by {off / all_of_it:.2%}")
    of_a = np.kron([[1], [-1], [1], [-1]], np.eye(n_element)[[part[0] for part in parts]])
    of_q = np.kron([[1], [-1], [-1], [1]], coef)
    own = SMALL * np.hstack([of_q[:, :-1], of_a])
    bias[1] = np.append(bias[1], SMALL * (of_q[:, -1] - LINEAR * of_a.sum(axis=1)))
    weight[1] = np.vstack([np.pad(weight[1], ((0, 0), (0, n_element))), own])
    # layer 2: a q + LINEAR; last layer: the patterns
    product = np.kron([0.5, 0.5, -0.5, -0.5], np.eye(n_part)) / SMALL ** 2
    n, m = weight[2].shape
    weight[2] = np.block([[weight[2], np.zeros((n, 4 * n_part))], [np.zeros((n_part, m)), product]])
    bias[2] = np.append(bias[2], np.full(n_part, LINEAR))
    pattern = np.array([part[2] for part in parts]).astype("f4").astype(float)
    weight[3] = np.hstack([weight[3], pattern.T])
    bias[3] = bias[3] - LINEAR * pattern.sum(axis=0)
    emulator.weight, emulator.bias = ([w.astype("f4") for w in x] for x in (weight, bias))


def make(grid_path, uncorrected, base, floors, path, program):
    """Write to path a copy of library `base` that also has labels for the elements of a grid file.
    Responses come from ln flux of the grid's models less ln flux of `uncorrected`, which is base
    before its correction by real spectra.  floors: least errors of the elements, dex."""
    grid = open_grid(grid_path)
    bare, library = library_file.read(uncorrected), library_file.read(base)
    wanted = [label.name for label in library.label] + [e[0].lower() for e in plan.ELEMENTS]
    need(grid.label == wanted + ["vmicro"] and "arms/arm0/continuum" in grid.file, USAGE,
         f"{grid_path}: build it with a continuum and the labels {','.join(wanted)},vmicro, not "
         f"{','.join(grid.label)}")
    for one, name in ((bare, uncorrected), (library, base)):
        need((one.n_label, len(one.arm), len(one.arm[0].emulator.weight)) == (N_FOUR, 1, 4)
             and one.arm[0].n_pix == grid.arm[0].n_pix, USAGE, f"{name}: expected a library of "
             f"--plan fgk: four labels, four layers and one arm, with the pixels of {grid_path}")
    process = Process(Models(grid, bare))
    process.run()  # fits the responses to the models' ln flux less that of `uncorrected`
    values = np.array(plan.plan(N_SAMPLE))
    components = parts_of(process, values)
    add_labels(library, floors)
    join(library, components, values)
    library.report = f"elements of {process.n} models\n{library.report or ''}"
    library_file.write(path, library, True, program)
