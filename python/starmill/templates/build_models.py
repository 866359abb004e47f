# SPDX-License-Identifier: BSD-3-Clause
"""The models of a grid: labels, names, selection by --keep and --exclude, and defects."""

import os

import numpy as np

from starmill.cli.basics import INPUT, need
from starmill.cli.running import each, tell
from starmill.templates.grid_models import BAD, TO_DO
from starmill.templates.grid_write import WHY, Models, short
from starmill.templates.spectra_options import read_ranges

N_SERIAL = 500  # files; up to here one process is faster than starting several


def inside(ranges, labels, names):
    """Return which models [n] have their labels inside all of the ranges."""
    out = np.full(len(labels), True)
    for name, (low, high) in ranges.items():
        x = labels[:, names.index(name)]
        out &= (x >= low) & (x <= high)
    return out


def select_models(source, options, n_worker):
    """Return the wanted Models and their indices in the source; models with bad labels are kept, so
    that the file says why they are bad."""
    request = source.request
    keep = read_ranges("keep", options.keep, request.labels) if options.keep else {}
    exclude = [read_ranges("exclude", text, request.labels)
               for text in (options.exclude or "").split(";") if text]
    tell(f"reading the labels of {source.n} models")
    name, label, stamp, why = zip(*each(source.entry, range(source.n),
                                        n_worker if source.n > N_SERIAL else 1))
    name = np.array([os.fsencode(n) for n in name])
    models = Models(np.array(label) + 0.0, name, np.array(stamp, "u8"),  # -0 is 0
                    np.array([short(w, WHY) for w in why], f"S{WHY}"),
                    np.array([BAD if w else TO_DO for w in why], "u1"))
    wanted = inside(keep, models.label, source.names)
    for ranges in exclude:
        wanted &= ~inside(ranges, models.label, source.names)
    wanted |= models.status == BAD
    need(wanted.any(), INPUT, f"--keep and --exclude leave none of {source.n} models")
    return Models(*(values[wanted] for values in vars(models).values())), np.flatnonzero(wanted)


def mark_doubles(models):
    """Of models with equal labels keep one and mark the others bad.  A model already marked good is
    kept, else the first."""
    todo_last = np.argsort(models.status == TO_DO, kind="stable")
    first = {}
    for i in todo_last:
        if models.status[i] == BAD:
            continue
        j = first.setdefault(models.label[i].tobytes(), i)
        if j != i:
            models.status[i] = BAD
            models.why[i] = short(f"it has the same labels as {os.fsdecode(models.name[j])}", WHY)


def check_labels(models, names):
    good = models.label[models.status == TO_DO]
    need(len(good), INPUT, f"none of the {len(models)} models can be used; "
         f"{os.fsdecode(models.name[0])}: {os.fsdecode(models.why[0])}")
    for name, values in zip(names, good.T):
        need(not (values == values[0]).all(), INPUT,
             f"label {name} is {values[0]:g} in all models, so it cannot be learned: omit it from "
             "--labels, or give models in which it varies")
