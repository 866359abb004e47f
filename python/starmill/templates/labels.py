# SPDX-License-Identifier: BSD-3-Clause
"""Makes a library's labels from the labels of its models: column, unit, mapping, range."""

import math
import re

import numpy as np

from starmill.cli.basics import INPUT, Failure
from starmill.templates.library_data import Label

# column, unit and typical uncertainty of the labels of synthetic spectra
KNOWN = {"teff": ("TEFF", "K", 60.0), "logg": ("LOGG", "log(cm s**-2)", 0.15),
         "feh": ("FEH", "dex", 0.1), "alpha": ("ALPHAFE", "dex", 0.05)}


def describe(name):
    """Return a Label of that name; scale 0 if the name is not in KNOWN."""
    column, unit, scale = KNOWN.get(name, (re.sub("[^A-Z0-9]", "_", name.upper()), "", 0.0))
    return Label(name, column, unit, scale=scale)


def make_labels(names, values):
    """Return (labels, mapped labels [n][n_label]) of models with values [n][n_label]."""
    labels = [measure(describe(name), values[:, i]) for i, name in enumerate(names)]
    return labels, np.stack([label.map(values[:, i]) for i, label in enumerate(labels)], axis=1)


def measure(label, value):
    """Set mapping, range, mean, std and scale of a label from values [n]; return the label."""
    label.min, label.max = float(value.min()), float(value.max())
    label.mapping = int(label.name == "teff")
    if label.mapping and not label.min > 0:
        raise Failure(INPUT, f"label teff goes down to {label.min:g}; it must be above 0")
    x = label.map(value)
    label.mean = math.fsum(x) / len(x)
    std = math.sqrt(math.fsum((x - label.mean) ** 2) / len(x))
    if not std > 1e-9 * (1 + abs(label.mean)):
        raise Failure(INPUT, f"label {label.name} is {label.min:g} in all {len(value)} spectra in "
                             "use; leave it out or keep a wider range")
    label.std = std
    if not label.scale > 0:
        label.scale = 0.1 * (label.max - label.min) / math.sqrt(12)
    return label
