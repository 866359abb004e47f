# SPDX-License-Identifier: BSD-3-Clause
"""Is a library complete, finite, consistent and within the limits?"""

import numpy as np

from starmill.cli.basics import USAGE, Failure
from starmill.templates.library_data import (MAX_ARM, MAX_AXIS, MAX_CENTER, MAX_COEF, MAX_ERROR,
                                             MAX_FACET, MAX_FRACTION, MAX_GUESS, MAX_HULL,
                                             MAX_LABEL, MAX_LAYER, MAX_NODE, MAX_PIX,
                                             MAX_SIGMA_WIDTH, MAX_VSINI, MAX_WIDTH, MIN_PIX,
                                             SplineGrid, hull_distance, n_poly)


def check(library, where):
    """Raise a Failure unless the library is complete, finite, consistent and within the limits."""
    def need(good, message):
        if not good:
            raise Failure(USAGE, f"{where}: {message}")

    need(printable(library.name) and len(library.name) < 128,
         "the library's name is too long or has unprintable characters")
    need(library.report is None or len(library.report) < 32768
         and printable(library.report.replace("\n", "")),
         "attribute report is too long or has unprintable characters")
    _check_labels(need, library)
    _check_hulls(need, library)
    need(1 <= len(library.arm) <= MAX_ARM,
         f"has {len(library.arm)} arms, this program takes 1 to {MAX_ARM}")
    for i, arm in enumerate(library.arm):
        need(is_name(arm.name) and arm.name == arm.name.lower(),
             f"the name of arm {i} is not made of lower-case letters, digits and _")
        need(arm.name not in [other.name for other in library.arm[:i]],
             f"two arms are called {arm.name}")
        _check_arm(need, arm)
        _check_emulator(need, library, arm)
        if arm.error is not None:
            _check_error(need, arm)
    guess, vsini = np.asarray(library.guess_label), np.asarray(library.guess_vsini_km_s)
    need(guess.ndim == 2 and 1 <= len(guess) <= MAX_GUESS and guess.shape[1] == library.n_label,
         f"has templates of the initial guess of shape {guess.shape}, expected 1 to {MAX_GUESS} "
         f"of {library.n_label} labels")
    with np.errstate(invalid="ignore", divide="ignore"):
        outside = ~(hull_distance(library, guess) <= 1e-9)  # labels of points on a facet round
    need(not outside.any(), f"template {np.argmax(outside)} of the initial guess is not finite or "
                            "outside the hulls")
    need(vsini.ndim == 1 and 1 <= len(vsini) <= MAX_VSINI and np.isfinite(vsini).all()
         and (vsini >= 0).all(), "the v sin i of the initial guess are impossible")


def is_name(text):
    """Return whether a text can be a name, which becomes a configuration key and a column."""
    return 0 < len(text) < 32 and text.isascii() and text.replace("_", "a").isalnum()


def printable(text):
    return text.isascii() and (text.isprintable() or not text)


def _check_labels(need, library):
    need(1 <= library.n_label <= MAX_LABEL,
         f"has {library.n_label} labels, this program takes 1 to {MAX_LABEL}")
    for i, label in enumerate(library.label):
        need(is_name(label.name) and is_name(label.column),
             f"name or column of label {i} is not made of letters, digits and _")
        need(printable(label.unit) and len(label.unit) < 32,
             f"the unit of label {label.name} is too long or has unprintable characters")
        need(label.name not in ("vrad", "vsini") and label.column not in ("VRAD", "VSINI"),
             f"a label may not be called {label.name} (column {label.column}), every fit has one "
             "already")
        need(all(label.name != other.name and label.column != other.column
                 for other in library.label[:i]),
             f"label {label.name} (column {label.column}) appears twice")
        need(label.mapping in (0, 1), f"mapping {label.mapping} of label {label.name}, expected 0 "
                                      "(linear) or 1 (log10)")
        need(np.isfinite(label.mean) and np.isfinite(label.std) and label.std > 0,
             f"label {label.name} has mean {label.mean:g} and std {label.std:g}; they must be "
             "finite and std above 0")
        need(np.isfinite([label.min, label.max]).all() and label.min < label.max
             and (label.mapping == 0 or label.min > 0),
             f"label {label.name} has the impossible range {label.min:g} to {label.max:g}")
        need(np.isfinite(label.scale) and label.scale > 0,
             f"the scale {label.scale:g} of label {label.name} is not above 0")
        need(np.isfinite(label.floor) and label.floor >= 0,
             f"the floor {label.floor:g} of label {label.name} is below 0")


def _check_hulls(need, library):
    need(1 <= len(library.hull) <= MAX_HULL,
         f"has {len(library.hull)} hulls, this program takes 1 to {MAX_HULL}")
    for i, hull in enumerate(library.hull):
        spans = [int(label) for label in hull.label]
        n = len(spans)
        need(n >= 1 and len(set(spans)) == n and all(0 <= j < library.n_label for j in spans),
             f"hull {i} spans the labels {spans} of {library.n_label}")
        need(hull.facet.ndim == 2 and hull.facet.shape[1] == n + 1
             and n < len(hull.facet) <= MAX_FACET,
             f"hull {i} over {n} labels has facets of shape {hull.facet.shape}, expected {n + 1} "
             f"to {MAX_FACET} facets")
        length = np.sqrt((hull.facet[:, :-1] ** 2).sum(axis=1))
        need((np.abs(length - 1) <= 1e-6).all() and np.isfinite(hull.facet).all(),
             f"a normal of hull {i} has not the length 1, or its offset is not finite")
    inside = {int(label) for hull in library.hull for label in hull.label}
    for i, label in enumerate(library.label):
        need(i in inside, f"label {label.name} is in no hull, so a fit could leave the training "
                          "stars")


def _check_arm(need, arm):
    name = arm.name
    for text, size in ((arm.setup, 32), (arm.sigma_origin, 160), (arm.source, 128),
                       (arm.revision, 64)):
        need(printable(text) and len(text) < size,
             f"a text of arm {name} is too long or has unprintable characters")
    need(MIN_PIX <= arm.n_pix <= MAX_PIX,
         f"arm {name} has {arm.n_pix} pixels, this program takes {MIN_PIX} to {MAX_PIX}")
    need(np.isfinite([arm.ln_wave0, arm.ln_step]).all() and arm.ln_step > 0,
         f"the step of arm {name} in ln wavelength is {arm.ln_step:g}, expected above 0")
    with np.errstate(invalid="ignore", divide="ignore"):
        off = ~(np.abs(np.log(arm.wave_aa) - (arm.ln_wave0 + np.arange(arm.n_pix) * arm.ln_step))
                <= 1e-6 * arm.ln_step)
    need(not off.any(), f"the wavelengths of arm {name} are not uniform in ln wavelength (pixel "
                        f"{np.argmax(off)} at {arm.wave_aa[np.argmax(off)]:.9g} A)")
    most = MAX_SIGMA_WIDTH * (arm.wave_aa[-1] - arm.wave_aa[0])
    need(np.isfinite(arm.template_sigma_aa) and arm.template_sigma_aa <= most,
         f"the templates of arm {name} have a sigma of {arm.template_sigma_aa:g} A, expected at "
         f"most {most:.3g}")


def _check_emulator(need, library, arm):
    emulator, front = arm.emulator, arm.emulator.front
    n_in, before = library.n_label, "the labels"
    if front is not None:
        what = "grid" if isinstance(front, SplineGrid) else "radial functions"
        need(library.n_label <= MAX_AXIS, f"the emulator of arm {arm.name} ({what}) has "
                                          f"{library.n_label} labels, this program takes 1 to "
                                          f"{MAX_AXIS}")
        need(len(emulator.weight) == 1, f"the {what} of arm {arm.name} must have one layer behind")
        (_check_grid if isinstance(front, SplineGrid) else _check_radial)(need, library, arm)
        n_in, before = front.coef.shape[-1], f"components of the {what}"
        need(n_in <= MAX_WIDTH, f"the {what} of arm {arm.name} has {n_in} components, this program "
                                f"takes 1 to {MAX_WIDTH}")
        need(front.coef.size <= MAX_COEF and np.isfinite(front.coef).all(),
             f"the {what} of arm {arm.name} has a coefficient that is not finite, or more than "
             f"{MAX_COEF}")
    need(1 <= len(emulator.weight) <= MAX_LAYER and len(emulator.bias) == len(emulator.weight),
         f"the emulator of arm {arm.name} has {len(emulator.weight)} layers, this program takes 1 "
         f"to {MAX_LAYER}")
    need(emulator.log_flux in (0, 1), f"log_flux of arm {arm.name} is not 0 or 1")
    for i, (weight, bias) in enumerate(zip(emulator.weight, emulator.bias)):
        last = i == len(emulator.weight) - 1
        need(weight.shape[1] == n_in, f"layer {i} of arm {arm.name} takes {weight.shape[1]} "
                                      f"inputs, expected {n_in} ({before})")
        need(len(weight) == arm.n_pix if last else len(weight) <= MAX_WIDTH,
             f"layer {i} of arm {arm.name} gives {len(weight)} outputs, expected "
             + (f"{arm.n_pix} pixels" if last else f"at most {MAX_WIDTH}"))
        need(bias.shape == (len(weight),) and np.isfinite(weight).all()
             and np.isfinite(bias).all(),
             f"layer {i} of arm {arm.name} has a weight or bias that is not finite")
        n_in, before = len(weight), "outputs of the layer before"


def _check_grid(need, library, arm):
    grid = arm.emulator.front
    need(grid.degree in (1, 3), f"the degree of the grid of arm {arm.name} is {grid.degree}, "
                                "expected 1 or 3")
    need(len(grid.knot) == library.n_label and grid.coef.ndim == library.n_label + 1,
         f"the grid of arm {arm.name} has not the library's {library.n_label} labels")
    d = grid.degree
    for label, knot, n_node in zip(library.label, grid.knot, grid.coef.shape):
        need(d < n_node <= MAX_NODE, f"the grid of arm {arm.name} has {n_node} nodes of label "
                                     f"{label.name}, this program takes {d + 1} to {MAX_NODE}")
        step = np.diff(knot)
        need(len(knot) == n_node + d + 1 and np.isfinite(knot).all() and (step[:d] == 0).all()
             and (step[d:-d] > 0).all() and (step[-d:] == 0).all(),
             f"the knots of label {label.name} of arm {arm.name} do not ascend between {d + 1} "
             "equal ones at each end")


def _check_radial(need, library, arm):
    radial = arm.emulator.front
    need(0 <= radial.degree <= 3, f"the polynomial of arm {arm.name} has degree {radial.degree}, "
                                  "this program takes 0 to 3")
    need(radial.center.shape[1] == library.n_label == len(radial.length),
         f"the radial functions of arm {arm.name} have not the library's {library.n_label} labels")
    need(len(radial.center) <= MAX_CENTER and np.isfinite(radial.center).all(),
         f"arm {arm.name} has more than {MAX_CENTER} centers, or one that is not finite")
    need(np.isfinite(radial.length).all() and (radial.length > 0).all(),
         f"a length of arm {arm.name} is not above 0")
    need(len(radial.coef) == len(radial.center) + n_poly(library.n_label, radial.degree),
         f"arm {arm.name} has {len(radial.coef)} coefficients for {len(radial.center)} centers and "
         f"a polynomial of degree {radial.degree}")


def _check_error(need, arm):
    error = arm.error
    need(len(error.fraction) == arm.n_pix and (error.fraction >= 0).all()
         and (error.fraction <= MAX_FRACTION).all(),
         f"the model error of arm {arm.name} has a pixel that is not 0 to {MAX_FRACTION:g} of the "
         "flux")
    need(0 <= error.correlation <= arm.n_pix, f"the model error of arm {arm.name} is correlated "
                                              f"over {error.correlation:g} pixels, expected 0 to "
                                              f"{arm.n_pix}")
    if error.component is None:
        return
    sigma = np.asarray(error.sigma)
    need(len(error.component) <= MAX_ERROR and error.component.shape[1] == arm.n_pix
         and np.isfinite(error.component).all(),
         f"the components of the model error of arm {arm.name} are more than {MAX_ERROR} or not "
         "finite")
    need(sigma.shape == (len(error.component),) and (sigma >= 0).all()
         and (sigma <= MAX_FRACTION).all(),
         f"a component of the model error of arm {arm.name} has a standard deviation that is not "
         f"0 to {MAX_FRACTION:g}")
