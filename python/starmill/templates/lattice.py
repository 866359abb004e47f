# SPDX-License-Identifier: BSD-3-Clause
"""Models on a grid of labels; nodes without a model are filled from their neighbours."""

import numpy as np
from scipy.interpolate import barycentric_interpolate

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
                terms = list(self.estimates(i, known, value, 4 if cubic else 2, way))
                if terms:
                    order = max(n for n, _, _ in terms)
                    _, weight, own = zip(*(term for term in terms if term[0] == order))
                    value[i] = np.average(own, axis=0, weights=weight)
                    filled.append(i)
            known[filled] = True
            way = 0 if filled else way + 1

    def estimates(self, i_node, known, value, most, way):
        """Yield (nodes used, weight, value) of a node by polynomials along each label.  way 0: of
        up to `most` nodes on both sides; 1: of two on a side, the first adjacent; 2: of one."""
        for axis, c in enumerate(np.unravel_index(i_node, self.model.shape)):
            line, x, uses = self.line(i_node, axis), self.node[axis], []
            places = np.flatnonzero(known[line])
            below, above = places[places < c][::-1], places[places > c]
            if way:
                uses = [(side[:3 - way], 1.0) for side in (below, above)
                        if len(side) >= 3 - way and abs(side[0] - c) == 1]
            elif len(below) and len(above):
                uses = [([below[0], above[0], *below[1:2], *above[1:2]][:most],
                         (above[0] - below[0]) ** -2.0)]
            for use, weight in uses:
                yield len(use), weight, barycentric_interpolate(x[use], value[line[use]], x[c])


def distinct(x):
    """Return the sorted values of x, without those within SAME_NODE of the range of another."""
    x = np.sort(x)
    same, node = SAME_NODE * (x[-1] - x[0]), [x[0]]
    for value in x:
        if value - node[-1] > same:
            node.append(value)
    return np.array(node)
