# SPDX-License-Identifier: BSD-3-Clause
"""A template library in memory, as in kernels/data/library.h.  Shapes: slowest axis first."""

from dataclasses import dataclass, field

import numpy as np

MAX_LABEL, MAX_AXIS, MAX_HULL, MAX_FACET, MAX_ARM = 16, 6, 16, 100000, 8
MIN_PIX, MAX_PIX, MAX_LAYER, MAX_WIDTH, MAX_NODE = 8, 1 << 20, 12, 1024, 256
MAX_COEF = 1 << 28
MAX_SIGMA_WIDTH = 0.25  # largest plausible sigma of the templates, over the width of the arm


@dataclass
class Label:
    name: str
    column: str = ""
    unit: str = ""
    mapping: int = 0  # 0: linear, 1: log10
    mean: float = 0.0  # of the mapped value
    std: float = 1.0
    min: float = 0.0  # of the training stars, in the label's unit
    max: float = 0.0
    scale: float = 0.0  # typical uncertainty, in the label's unit
    floor: float = 0.0  # least error of a fit that counts model error, in the label's unit

    def map(self, value):
        return ((np.log10(value) if self.mapping else np.asarray(value)) - self.mean) / self.std

    def unmap(self, mapped):
        x = np.asarray(mapped) * self.std + self.mean
        return 10.0 ** x if self.mapping else x


@dataclass
class Hull:
    label: np.ndarray  # int [n]: which labels it spans
    facet: np.ndarray  # [n_facet][n + 1]: unit normals and offsets, inside a.x + b <= 0, mapped


@dataclass
class SplineGrid:
    """Tensor-product B-splines of the labels; they feed the last layer."""
    degree: int  # 1 or 3
    knot: list  # of each label [n_node + degree + 1], mapped
    coef: np.ndarray  # float32 [n_node of label 0]...[n_out]


@dataclass
class Radial:
    """Inputs of the last layer: |u - u_i|^3 for all centers u_i, a polynomial in u = x / length."""
    degree: int
    length: np.ndarray  # [n_label]
    center: np.ndarray  # [n_center][n_label], mapped
    coef: np.ndarray  # float32 [n_center + n_poly][n_out]


@dataclass
class Emulator:
    weight: list  # of each layer, float32 [n_out][n_in]; the first takes mapped labels or front
    bias: list  # float32 [n_out]
    front: object = None  # SplineGrid or Radial; None: a network
    log_flux: int = 1  # flux = exp(y)


@dataclass
class ModelError:
    fraction: np.ndarray  # float32 [n_pix]: rms error outside the components, relative to flux
    correlation: float = 0.0  # pixels
    component: np.ndarray = None  # float32 [n_component][n_pix], or None
    sigma: np.ndarray = None  # [n_component]

    def size(self):
        """Return its rms over the pixels, and the fraction of its variance outside components."""
        rest = np.square(self.fraction, dtype=float).mean()
        total = rest if self.component is None else rest + (
            (self.sigma[:, None] * self.component) ** 2).sum() / len(self.fraction)
        return np.sqrt(total), rest / total if total > 0 else 0


@dataclass
class Arm:
    name: str
    setup: str
    ln_wave0: float  # of the first vacuum wavelength in A
    ln_step: float
    wave_aa: np.ndarray  # [n_pix]
    emulator: Emulator = None
    error: ModelError = None
    template_sigma_aa: float = -1.0  # Gaussian of the templates; negative: the instrument's own
    sigma_origin: str = ""
    source: str = ""
    revision: str = ""

    @property
    def n_pix(self):
        return len(self.wave_aa)

    def resolution(self):
        """Return a text on the templates' resolution and its origin."""
        origin = f" ({self.sigma_origin})" if self.sigma_origin else ""
        if self.template_sigma_aa < 0:
            return f"the instrument's own, no resolution of spectra applies{origin}"
        return (f"sigma {self.template_sigma_aa:.5g} A of the templates, removed from that of the "
                f"spectra to be fitted{origin}")

    def white_error(self, wave_aa, width):
        """Return the relative rms of white noise that, over many pixels, acts like the correlated
        error ModelError.fraction.  wave_aa: rest wavelengths; width: of a pixel, ln wavelength."""
        fraction = np.interp(wave_aa, self.wave_aa, self.error.fraction)
        return fraction * np.sqrt(self.error.correlation * self.ln_step / width)


@dataclass
class Library:
    label: list = field(default_factory=list)
    hull: list = field(default_factory=list)
    arm: list = field(default_factory=list)
    # labels [n_guess][n_label], in their units, and v sin i of the templates of the initial guess
    guess_label: np.ndarray = None
    guess_vsini_km_s: np.ndarray = field(default_factory=lambda: np.array([0.0, 100.0]))
    name: str = ""
    hash: str = ""
    path: str = ""
    report: str = None  # lines of text: errors measured on spectra left out

    @property
    def n_label(self):
        return len(self.label)

    def map(self, values):
        """Return the mapped labels of values [..., n_label]."""
        return np.stack([label.map(np.asarray(values)[..., i])
                         for i, label in enumerate(self.label)], axis=-1)

    def unmap(self, mapped):
        """Return the labels [..., n_label], in their units, from mapped labels."""
        return np.stack([label.unmap(mapped[..., i])
                         for i, label in enumerate(self.label)], axis=-1)


def wavelengths(ln_wave0, ln_step, n_pix):
    return np.exp(ln_wave0 + np.arange(n_pix) * ln_step)


def hull_distance(library, values):
    """Return how far values [n][n_label] are outside the hulls: the largest a.x + b of any facet in
    mapped labels, 0 inside all hulls."""
    mapped = library.map(values)
    distance = np.zeros(len(mapped))
    for hull in library.hull:
        for block in np.array_split(np.arange(len(mapped)), len(mapped) // 1024 + 1):
            x = mapped[np.ix_(block, hull.label)]
            value = (x @ hull.facet[:, :-1].T + hull.facet[:, -1]).max(axis=1)
            distance[block] = np.maximum(distance[block], value)
    return distance


def inside_hulls(library, values):
    """Return the mask [n] of the values [n][n_label] inside all hulls."""
    return hull_distance(library, values) <= 1e-9  # rounding errors keep no corner outside
