# SPDX-License-Identifier: BSD-3-Clause
"""Arms of template spectra, from a YAML file (config/templates/)."""

import re
from dataclasses import dataclass, fields

import numpy as np
import yaml

from starmill.cli.basics import USAGE, Failure, as_failure, need
from starmill.templates.library_data import MAX_ARM, MAX_PIX, MIN_PIX
from starmill.templates.spectra_options import number
from starmill.wavelength import FWHM_PER_SIGMA

MAX_POINT = 64
MAX_BYTES = 1 << 20


@dataclass
class SetupArm:
    """An arm to make.  sigma and resolving_power: [(wavelength, value)] to interpolate between, or
    [(None, value)] for all wavelengths; both None: the arm keeps the input's resolution."""

    name: str = ""
    min: float = 0.0  # vacuum A
    max: float = 0.0
    ln_step: float = 0.0
    sigma: list = None  # of a Gaussian, A
    resolving_power: list = None  # wavelength / FWHM
    at_instrument: bool = False  # templates at the instrument's resolution: fits smooth no further

    @property
    def n_pix(self):
        """Return the number of pixels; the first is at min, the last at or just beyond max."""
        return int(np.ceil(np.log(self.max / self.min) / self.ln_step - 1e-9)) + 1

    def sigma_aa(self, wave):
        """Return the requested Gaussian sigma in A at wave, or None to keep the input's."""
        points = self.sigma or self.resolving_power
        if not points:
            return None
        at, value = zip(*points)
        value = np.full(len(wave), value[0]) if at[0] is None else np.interp(wave, at, value)
        return value if self.sigma else wave / (FWHM_PER_SIGMA * value)


class Wrong(Exception):
    """(node, message)"""


def items(node):
    return node.value if isinstance(node, yaml.SequenceNode) else None


def text(node):
    return node.value if isinstance(node, yaml.ScalarNode) else ""


def read_number(node, key):
    value = number(text(node))
    if not 0 < value < np.inf:
        raise Wrong(node, f"{key}: expected a number above 0, got '{text(node)[:40]}'")
    return value


def read_points(node, key):
    """Return the (wavelength, value) of a list of points, or [(None, value)] of a number."""
    pairs = items(node)
    if pairs is None:
        return [(None, read_number(node, key))]
    if not 1 <= len(pairs) <= MAX_POINT:
        raise Wrong(node, f"{key}: expected 1 to {MAX_POINT} points, got {len(pairs)}")
    points = []
    for pair in pairs:
        if len(items(pair) or ()) != 2:
            raise Wrong(pair, f"{key}: expected points [[wavelength, value], ...]")
        points.append(tuple(read_number(n, key) for n in items(pair)))
        if points[-1][0] <= (points[-2][0] if len(points) > 1 else 0):
            raise Wrong(pair, f"{key}: the points' wavelengths must ascend")
    return points


def read_field(arm, key, node):
    name = text(key)
    if name == "name":
        if not re.fullmatch("[a-z0-9_]{1,31}", text(node)):
            raise Wrong(node, f"name: '{text(node)[:40]}': expected small letters, digits and _, "
                              "at most 31 of them")
        arm.name = text(node)
    elif name in ("min", "max", "ln_step"):
        setattr(arm, name, read_number(node, name))
    elif name in ("sigma", "resolving_power"):
        if arm.sigma or arm.resolving_power:
            raise Wrong(key, f"{name}: an arm has one sigma or one resolving_power")
        setattr(arm, name, read_points(node, name))
    elif name == "at_instrument":
        if text(node).lower() not in ("true", "false"):
            raise Wrong(node, f"{name}: expected true or false, got '{text(node)[:40]}'")
        arm.at_instrument = text(node).lower() == "true"
    else:
        known = ", ".join(f.name for f in fields(SetupArm))
        raise Wrong(key, f"'{name[:40]}' is unknown in an arm; an arm takes {known}")


def read_arm(node):
    if not isinstance(node, yaml.MappingNode):
        raise Wrong(node, "expected an arm {name: b, min: 3550, max: 5860, ln_step: 6e-5, sigma: "
                          "0.5}")
    arm = SetupArm()
    for key, value in node.value:
        read_field(arm, key, value)
    if not (arm.name and arm.min and arm.max and arm.ln_step):
        raise Wrong(node, "an arm needs name, min, max and ln_step")
    if not 100 <= arm.min < arm.max <= 1e6:
        raise Wrong(node, f"arm {arm.name}: {arm.min:g} to {arm.max:g} A: expected 100 <= min < "
                          "max <= 1e6")
    n_pix = np.log(arm.max / arm.min) / arm.ln_step
    if not MIN_PIX <= n_pix < MAX_PIX:
        raise Wrong(node, f"arm {arm.name}: ln_step {arm.ln_step:g} makes {n_pix:.0f} pixels, "
                          f"expected {MIN_PIX} to {MAX_PIX}")
    return arm


def read_arms(root):
    arms = None
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if text(key) != "arms" or arms:
            raise Wrong(key, f"'{text(key)[:40]}': only the key arms is expected, once")
        arms = value
    if not arms or not 1 <= len(items(arms) or ()) <= MAX_ARM:
        raise Wrong(None, f"expected a key arms with a list of 1 to {MAX_ARM} arms")
    out = []
    for node in items(arms):
        arm = read_arm(node)
        if arm.name in [other.name for other in out]:
            raise Wrong(node, f"arm {arm.name} appears twice")
        out.append(arm)
    return out


def read_setup(path):
    """Read [SetupArm] from a YAML file; a Failure of USAGE says "FILE:LINE: what is wrong"."""
    try:
        with as_failure(USAGE, f"{path}: cannot be read", OSError), \
                open(path, encoding="utf-8-sig") as file:
            content = file.read(MAX_BYTES + 1)
        need(len(content) <= MAX_BYTES, USAGE, f"{path}: is longer than {MAX_BYTES} characters")
        return read_arms(yaml.compose(content, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise Failure(USAGE, f"{path}{f':{mark.line + 1}' if mark else ''}: is not YAML: "
                             f"{getattr(error, 'problem', None) or error}") from error
    except Wrong as wrong:
        node, message = wrong.args
        at = f":{node.start_mark.line + 1}" if node else ""
        raise Failure(USAGE, f"{path}{at}: {message}") from wrong
