# SPDX-License-Identifier: BSD-3-Clause
"""Models on a grid of labels; nodes without a model are filled from their neighbours."""

import numpy as np

from starmill.cli.basics import INPUT, Failure
from starmill.templates.library_data import MAX_NODE

SAME_NODE = 1e-6  # closer values are one node; fraction of the label's range
MAX_NAMED = 3


class Lattice:
    """Models on a grid of labels.  node: list of each label's mapped values; model [n_node of label
    0][n_node of label 1]...: index of the model at each node, -1 without."""

    def __init__(self, labels, mapped, names):
        self.labels, self.node, at = labels, [], []
        for i, label in enumerate(labels):
            node = distinct(mapped[:, i])
            if len(node) > MAX_NODE:
                raise Failure(INPUT, f"label {label.name} has {len(node)} values in {len(mapped)} "
                                     f"models; a grid has {MAX_NODE} at most: use --emulator "
                                     "radial or network for scattered labels")
            self.node.append(node)
            at.append(np.abs(mapped[:, i, np.newaxis] - node).argmin(axis=1))
        shape = [len(node) for node in self.node]
        if np.prod(shape, dtype=float) > 2 * len(mapped):
            raise Failure(INPUT, f"{len(mapped)} models at {np.prod(shape, dtype=float):.0f} nodes "
                                 "of a grid: more than half of them are missing; take --emulator "
                                 "radial or network for scattered labels")
        self.at = np.ravel_multi_index(at, shape)  # the node of each model
        order = np.argsort(self.at, kind="stable")
        twice = np.flatnonzero(np.diff(self.at[order]) == 0)
        if len(twice):
            a, b = (names[order[i]] for i in (twice[0], twice[0] + 1))
            raise Failure(INPUT, f"models {a} and {b} have the same labels; leave one of them out")
        self.model = np.full(shape, -1)
        self.model.flat[self.at] = np.arange(len(mapped))
        self.n_gap = self.model.size - len(mapped)

    def refuse_gaps(self):
        if self.n_gap == 0:
            return
        gaps = np.argwhere(self.model < 0)
        text = "; ".join(" ".join(f"{label.name} {label.unmap(node[i]):.6g}"
                                  for label, node, i in zip(self.labels, self.node, gap))
                         for gap in gaps[:MAX_NAMED])
        raise Failure(INPUT, f"{self.n_gap} of {self.model.size} nodes of the grid have no model "
                             f"({text}{'; ...' if len(gaps) > MAX_NAMED else ''}); --gaps fill "
                             "fills them from their neighbours, --emulator radial and network need "
                             "no grid")

    def line(self, i_node, axis):
        """Return the indices of the nodes on the line along label `axis` through a node."""
        at = list(np.unravel_index(i_node, self.model.shape))
        at[axis] = np.arange(self.model.shape[axis])
        return np.ravel_multi_index(np.broadcast_arrays(*at), self.model.shape)

    def is_inner(self, i_node, left_out):
        """Return whether both neighbours along every label have models and none is left out
        [n_model].  Labels of one or two nodes may lack a neighbour."""
        for axis, c in enumerate(np.unravel_index(i_node, self.model.shape)):
            line = np.pad(self.model.flat[self.line(i_node, axis)], 1, constant_values=-1)
            models = line[[c, c + 2]]  # of the nodes before and after
            if len(line) > 4 and min(models) < 0 or left_out[models[models >= 0]].any():
                return False
        return True

    def fill(self, value, cubic):
        """Set value [nodes][n_out] at nodes without a model from their neighbours
        (docs/use/libraries.md).  Interpolate where possible, else extrapolate from two neighbours,
        else copy one.  A filled node counts as known from the next pass on."""
        known, way = self.model.ravel() >= 0, 0
        while not known.all():
            filled = []
            for i in np.flatnonzero(~known):
                terms = (self.between(i, known, 4 if cubic else 2) if way == 0 else
                         self.beyond(i, known, 3 - way))
                if terms:
                    total = sum(weight for weight, _, _ in terms)
                    value[i] = sum(weight * (part @ value[nodes])
                                   for weight, nodes, part in terms) / total
                    filled.append(i)
            known[filled] = True
            way = 0 if filled else way + 1

    def around(self, i_node, known):
        """Yield for each label: axis, place c of the node on its line along this label, and the
        known places below and above c, nearest first."""
        at = np.unravel_index(i_node, self.model.shape)
        for axis, c in enumerate(at):
            places = np.flatnonzero(known[self.line(i_node, axis)])
            yield axis, c, places[places < c][::-1], places[places > c]

    def between(self, i_node, known, most):
        """Return the interpolations (weight, nodes, factors) along labels with known values on both
        sides; only those of the highest order."""
        found = []
        for axis, c, below, above in self.around(i_node, known):
            if len(below) and len(above):
                use = [below[0], above[0], *below[1:2], *above[1:2]][:most]
                found.append((len(use), (above[0] - below[0]) ** -2.0,
                              *self.through(i_node, axis, c, use)))
        best = max((n for n, *_ in found), default=0)
        return [term for n, *term in found if n == best]

    def beyond(self, i_node, known, n_point):
        """Return extrapolations (weight, nodes, factors) from the nearest n_point values of one
        side, if the first is adjacent to the node."""
        return [(1.0, *self.through(i_node, axis, c, side[:n_point]))
                for axis, c, *sides in self.around(i_node, known) for side in sides
                if len(side) >= n_point and abs(side[0] - c) == 1]

    def through(self, i_node, axis, c, places):
        """Return the nodes at `places` of a line, and the factors of their values in the polynomial
        through them at place c."""
        x = self.node[axis][places]
        factor = [np.prod([(self.node[axis][c] - other) / (own - other)
                           for j, other in enumerate(x) if j != i]) for i, own in enumerate(x)]
        return self.line(i_node, axis)[places], np.array(factor)


def distinct(x):
    """Return the sorted values of x, without those within SAME_NODE of the range of another."""
    x = np.sort(x)
    same, node = SAME_NODE * (x[-1] - x[0]), [x[0]]
    for value in x:
        if value - node[-1] > same:
            node.append(value)
    return np.array(node)
