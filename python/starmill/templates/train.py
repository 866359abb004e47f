# SPDX-License-Identifier: BSD-3-Clause
"""starmill library train: make a library of networks that the program has trained, or of functions
of the labels (docs/use/libraries.md).  The functions are radial functions, splines or linear
interpolation; they give the scores of principal components of ln flux."""

import contextlib
import os
import time
from copy import copy

import h5py
import numpy as np
from scipy.interpolate import krogh_interpolate, make_interp_spline
from scipy.linalg import eigh, qr

from starmill.cli.basics import INPUT, Failure, catch_stops, need
from starmill.templates import library_file, residuals
from starmill.templates.grid_file import open_grid
from starmill.templates.labels import make_hulls, make_labels, spread
from starmill.templates.library_data import (MAX_AXIS, MAX_COEF, MAX_NODE, MAX_WIDTH, Emulator,
                                             Library, Radial, SplineGrid)
from starmill.templates.measure import MAX_SPECTRA, ModelSet, report, reporting
from starmill.templates.radial import SMOOTHINGS, RadialFit

N_COMPONENT = 128  # of an arm, by default
LEFT = 1e-5  # linear interpolation: components are added until no model has a larger rms residual
SMOOTHING = 1e-8  # nearly none: models have no errors, so functions pass through them
MIN_MODEL, MAX_RADIAL = 12, 20000  # models; the time of radial functions grows as their cube
SPARE = 16  # extra directions of the iteration, so that the last components kept converge too
N_ITERATION = 3
BLOCK = 128  # spectra at once
SAME_NODE = 1e-6  # of a label's range: closer values are one node
MAX_NAMED = 3
MAX_LENGTH, N_LENGTH = 32, 250  # largest ratio of two length scales; models used to choose them


def leading(x, n_component):
    """Find the leading principal components of x, float32 [n][n_pix], by subspace iteration;
    overwrite x.  Return for x = score @ weight.T + bias: weight [n_pix][n_component] and bias
    [n_pix], float32; score [n][n_component] of mean square 1; the largest rms residual of a row."""
    n, most = len(x), min(x.shape) - 1  # subtracting the mean costs one dimension
    n_component = min(n_component, most)
    bias = x.mean(axis=0, dtype=float).astype("f4")
    x -= bias
    n_direction = min(n_component + SPARE, most)
    start = x[np.arange(n_direction) * n // n_direction]
    direction = qr(start.T.astype(float), mode="economic")[0]
    for _ in range(N_ITERATION):
        score = x @ direction.astype("f4")
        direction = qr((x.T @ score).astype(float), mode="economic")[0]
    score = (x @ direction.astype("f4")).astype(float)
    variance, vector = eigh(score.T @ score / n)
    variance, vector = variance[::-1][:n_component], vector[:, ::-1][:, :n_component]
    need(variance[0] > 0, INPUT, f"the {n} spectra are all equal")
    rms = np.sqrt(np.maximum(variance, 1e-14 * variance[0]))  # above 0, to be divided by
    weight, score = (direction @ (vector * rms)).astype("f4"), score @ (vector / rms)
    left = 0.0
    for first in range(0, n, BLOCK):
        rest = x[first:first + BLOCK] - score[first:first + BLOCK].astype("f4") @ weight.T
        left = max(left, np.sqrt((rest.astype(float) ** 2).mean(axis=1).max()))
    return weight, bias, score, left


def enough(weight, score, left, limit):
    """Return how many components bring the rms residual of every spectrum to `limit` (all if these
    do not suffice), and the largest residual then.  left: residual with all components."""
    power = (weight.astype(float) ** 2).mean(axis=0) * score ** 2  # [n][n_component]
    rest = np.cumsum(power[:, ::-1], axis=1)[:, ::-1] + left ** 2  # with the first k components
    rest = np.append(np.sqrt(rest.max(axis=0)), left)
    n = next((k for k in range(1, len(rest)) if rest[k] <= limit), len(rest) - 1)
    return n, rest[n]


def choose_length(x, score, degree, smoothing):
    """Return the length scales [n_label], the shortest 1, with which radial functions of mapped
    labels x [n, n_label] best predict the scores [n, n_component] of models left out in turn."""
    some = np.linspace(0, len(x) - 1, min(len(x), N_LENGTH)).astype(int)

    def error(power):  # power: log2 of the lengths
        fit = RadialFit(x[some], 2.0**power, np.ones(len(some)), score[some], degree, smoothing)
        return np.log((fit.left_out**2).sum(axis=1) + np.finfo(float).tiny).mean()
    best = np.zeros(x.shape[1])
    least = error(best)
    for step in (1.0, 0.5):
        moves = [s * e for e in np.eye(len(best)) for s in (step, -step)]
        i = failed = 0
        while failed < len(moves):  # repeat a move that is better, else try the next
            power = best + moves[i]
            power -= power.min()
            e = error(power) if power.max() <= np.log2(MAX_LENGTH) else np.inf
            if e < least - 1e-3:
                best, least, failed = power, e, 0
            else:
                i, failed = (i + 1) % len(moves), failed + 1
    return 2.0**best


class Lattice:
    """Models on a grid of labels.  node: each label's mapped values; at [n_model]: each model's
    node; model [n_node of label 0][n_node of label 1]...: each node's model, -1 without one."""

    def __init__(self, labels, mapped, names):
        self.labels, self.node, at = labels, [], []
        for i, label in enumerate(labels):
            node = distinct(mapped[:, i])
            need(len(node) <= MAX_NODE, INPUT,
                 f"label {label.name} has {len(node)} different values, but a grid takes at most "
                 f"{MAX_NODE} of a label: use --emulator radial or network for scattered labels")
            self.node.append(node)
            at.append(np.abs(mapped[:, i, np.newaxis] - node).argmin(axis=1))
        shape = [len(node) for node in self.node]
        n_node = np.prod(shape, dtype=float)
        need(n_node <= 2 * len(mapped), INPUT, f"{len(mapped)} models, {n_node:.0f} nodes of a "
             "grid: more than half of the nodes lack a model; take --emulator radial or network "
             "for scattered labels")
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
        gaps = np.argwhere(self.model < 0)
        text = "; ".join(" ".join(f"{label.name} {label.unmap(node[i]):.6g}"
                                  for label, node, i in zip(self.labels, self.node, gap))
                         for gap in gaps[:MAX_NAMED])
        need(self.n_gap == 0, INPUT, f"{self.n_gap} of {self.model.size} nodes of the grid have no "
             f"model ({text}{'; ...' if len(gaps) > MAX_NAMED else ''}); give --gaps fill, or "
             "--emulator radial or network, which need no full grid")

    def line(self, i_node, axis):
        """Return the nodes on the line along label `axis` through a node."""
        at = list(np.unravel_index(i_node, self.model.shape))
        at[axis] = np.arange(self.model.shape[axis])
        return np.ravel_multi_index(np.broadcast_arrays(*at), self.model.shape)

    def is_inner(self, i_node, left_out):
        """Return whether a node has both neighbours along every label of three or more nodes, and
        no neighbour is left_out [n_model]."""
        for axis, c in enumerate(np.unravel_index(i_node, self.model.shape)):
            line = np.pad(self.model.flat[self.line(i_node, axis)], 1, constant_values=-1)
            models = line[[c, c + 2]]  # of the nodes before and after
            if len(line) > 4 and min(models) < 0 or left_out[models[models >= 0]].any():
                return False
        return True

    def fill(self, value, cubic):
        """Set value [n_node][n_out] at nodes without a model, in passes, from known neighbours:
        interpolate where possible, else extrapolate from two, else copy one."""
        known, way = self.model.ravel() >= 0, 0
        while not known.all():
            filled = []
            for i in np.flatnonzero(~known):
                terms = list(self.estimates(i, known, value, 4 if cubic else 2, way))
                if terms:  # only estimates from the most nodes count
                    order = max(n for n, _, _ in terms)
                    _, weight, own = zip(*(term for term in terms if term[0] == order))
                    value[i] = np.average(own, axis=0, weights=weight)
                    filled.append(i)
            known[filled] = True
            way = 0 if filled else way + 1

    def estimates(self, i_node, known, value, most, way):
        """Yield (number of nodes used, weight in the mean, estimate) of a node's value, by
        polynomials along each label.  way 0: interpolate from up to `most` nodes on both sides; 1:
        extrapolate from the next two on one side; 2: copy the next one."""
        for axis, c in enumerate(np.unravel_index(i_node, self.model.shape)):
            line, x, uses = self.line(i_node, axis), self.node[axis], []  # uses: (nodes, weight)
            places = np.flatnonzero(known[line])
            below, above = places[places < c][::-1], places[places > c]
            if way:
                uses = [(side[:3 - way], 1.0) for side in (below, above)
                        if len(side) >= 3 - way and abs(side[0] - c) == 1]
            elif len(below) and len(above):
                uses = [([below[0], above[0], *below[1:2], *above[1:2]][:most],
                         (above[0] - below[0]) ** -2.0)]
            for use, weight in uses:
                yield len(use), weight, krogh_interpolate(x[use], value[line[use]], x[c])


def distinct(x):
    """Return the sorted values of x; of values closer than SAME_NODE keep the least."""
    x = np.sort(x)
    same, node = SAME_NODE * (x[-1] - x[0]), [x[0]]
    for value in x:
        if value - node[-1] > same:
            node.append(value)
    return np.array(node)


class Maker:
    """Makes emulators of one kind from the models of a grid file."""

    def __init__(self, options):
        self.kind = options.emulator
        self.hulls = options.hulls or "pairs"
        self.n_guess = int(options.guess_templates or 300)
        self.n_component = int(options.components or 0)
        self.degree = int(options.degree or 2)
        smoothing = float(options.smoothing or SMOOTHING)
        self.smoothing = np.array([smoothing]) if smoothing > 0 else SMOOTHINGS

    def make(self, grid, models, library, fill_gaps):
        """Complete a library by emulators, labels and hulls; return lines of text about them."""
        n = len(models)
        need(1 <= len(grid.label) <= MAX_AXIS, INPUT,
             f"the models have {len(grid.label)} labels; this emulator takes 1 to {MAX_AXIS}")
        need(n >= MIN_MODEL, INPUT, f"{n} good models; a library needs at least {MIN_MODEL}")
        need(self.kind != "radial" or n <= MAX_RADIAL, INPUT, f"{n} models; radial functions take "
             f"{MAX_RADIAL} at most: use --emulator network, splines or linear")
        values = grid.values[models]
        library.label, mapped = make_labels(grid.label, values)
        library.hull = make_hulls(library.label, mapped, self.hulls)
        spread(library, values, self.n_guess)
        if self.kind != "radial":
            lattice = Lattice(library.label, mapped, [grid.name[i] for i in models])
            for label, node in zip(library.label, lattice.node):
                need(len(node) >= (2 if self.kind == "linear" else 4), INPUT, f"label {label.name} "
                     f"has {len(node)} values, splines need 4 and linear 2: use --emulator radial")
            if not fill_gaps:
                lattice.refuse_gaps()
        layers = [self.make_layer(grid, i, models) for i in range(len(library.arm))]
        if self.kind == "radial":
            size = [np.linalg.norm(weight, axis=0) for weight, _, _, _ in layers]
            fronts, lines = self.make_radial(mapped, [score for _, _, score, _ in layers],
                                             np.concatenate(size))
        else:
            fronts = [self.make_grid(lattice, score) for _, _, score, _ in layers]
            what = "linear interpolation" if self.kind == "linear" else "cubic splines"
            over = ", ".join(f"{len(node)} of {name}"
                             for node, name in zip(lattice.node, grid.label))
            lines = [f"{what} over {over}; {lattice.n_gap} nodes filled from their neighbours"]
        for arm, front, (weight, bias, score, left) in zip(library.arm, fronts, layers):
            arm.emulator = Emulator([weight], [bias], front)
            lines.append(f"  {arm.name:<8} {score.shape[1]} components, which leave "
                         f"{100 * left:.2g} % (rms) of the flux of the worst model")
        return lines

    def make_layer(self, grid, i_arm, models):
        """Return weight, bias, scores and residual of leading() for ln flux of an arm."""
        def try_layer(n):
            x = grid.flux(i_arm, models)
            np.log(x, out=x)
            return leading(x, n)
        if self.kind != "linear" or self.n_component:
            return try_layer(self.n_component or N_COMPONENT)
        weight, bias, score, left = try_layer(2 * N_COMPONENT)
        if left > LEFT and score.shape[1] == 2 * N_COMPONENT:
            weight, bias, score, left = try_layer(MAX_WIDTH)
        n, left = enough(weight, score, left, LEFT)
        return np.ascontiguousarray(weight[:, :n]), bias, score[:, :n], left

    def make_grid(self, lattice, score):
        """Return splines (or linear interpolation) through the scores at all nodes."""
        shape, n_out = lattice.model.shape, score.shape[1]
        need(lattice.model.size * n_out <= MAX_COEF, INPUT, f"a grid of {lattice.model.size} nodes "
             f"and {n_out} components has more than {MAX_COEF} numbers; give fewer --components")
        value = np.zeros((lattice.model.size, n_out))
        value[lattice.at] = score
        lattice.fill(value, cubic=self.kind == "splines")
        coef, degree = value.reshape(*shape, n_out), 1 if self.kind == "linear" else 3
        knots = []
        for axis, node in enumerate(lattice.node):
            spline = make_interp_spline(node, coef, degree, axis=axis)  # cubic: not-a-knot
            knots.append(spline.t)
            coef = np.moveaxis(spline.c, 0, axis)
        return SplineGrid(degree, knots, np.ascontiguousarray(coef, "f4"))

    def make_radial(self, mapped, scores, size):
        """Return one set of radial functions per arm, and lines of text about them.  One fit serves
        all arms, as its slow part needs only labels.  size [n_score]: norms of components."""
        score = np.concatenate(scores, axis=1)
        length = choose_length(mapped, score * size, self.degree, self.smoothing)
        fit = RadialFit(mapped, length, np.ones(len(mapped)), score, self.degree, self.smoothing)
        ends = np.cumsum([score.shape[1] for score in scores])[:-1]
        fronts = [Radial(fit.degree, length, mapped, np.ascontiguousarray(coef, "f4"))
                  for coef in np.split(fit.coef, ends, axis=1)]
        return fronts, [f"radial functions, smoothing {fit.smooth.min():.3g} to "
                        f"{fit.smooth.max():.3g}, lengths {', '.join(f'{x:.3g}' for x in length)}"]

    def choose_left_out(self, grid, models, n_wanted, seed):
        """Return the mask [n] of up to n_wanted random models to leave out.  A model stays in if it
        has the lowest or highest value of a label that has three or more values.  On a grid
        the neighbours of a model left out stay in, too."""
        values, out = grid.values[models], np.zeros(len(models), bool)
        order = np.random.default_rng(seed).permutation(len(models))
        low, high = values.min(axis=0), values.max(axis=0)
        within = (values > low) & (values < high)
        inner = (within | ~within.any(axis=0)).all(axis=1)  # labels of two values do not count
        lattice = None
        if self.kind != "radial":
            labels, mapped = make_labels(grid.label, values)
            lattice = Lattice(labels, mapped, [grid.name[i] for i in models])
        for i in order:
            if out.sum() == n_wanted:
                break
            out[i] = lattice.is_inner(lattice.at[i], out) if lattice else inner[i]
        return out


def main(options):
    catch_stops()
    if options.emulator in (None, "network"):
        finish_networks(options)
    else:
        train_functions(options)


def train_functions(options):
    """Make a library of functions of the labels of a grid file, and measure it."""
    path, start = options.arguments[0], time.monotonic()
    library_file.writable(options.output, options.overwrite,
                          [("the grid file", path), ("--validation", options.validation or "")])
    grid = open_grid(path)
    models = good_models(grid, options.unfinished)
    validation = options.validation and open_validation(options, grid)
    maker, library = Maker(options), frame(grid)
    lines = maker.make(grid, models, library, options.gaps == "fill")
    print(f"made in {time.monotonic() - start:.1f} s", *lines, sep="\n", flush=True)
    name_it(library, options.emulator, path)
    if validation:
        measure(options, library, *validation, f"of {os.path.basename(options.validation)[:200]}; "
                f"the library is made of {len(models)} models", library)
    elif float(options.left_out or 0.1) > 0:
        report_left_out(options, maker, grid, models, library)
    if library.report:
        print(f"made and measured in {time.monotonic() - start:.1f} s")
    keep(options, library)


def finish_networks(options):
    """Make the library from networks that the program wrote (io/library/train_file.h)."""
    path = options.arguments[0]
    checkpoint = options.checkpoint or options.output + ".training"
    trained = checkpoint + ".networks"
    grid = open_grid(path)
    library = frame(grid)
    with h5py.File(trained, "r") as file:
        models, n_train = file["models"][...], int(file.attrs["n_train"])
        values = grid.values[models]
        library.label, _ = make_labels(grid.label, values)
        for label, mean, std in zip(library.label, file["mean"], file["std"]):
            label.mean, label.std = float(mean), float(std)  # the training's values, bit by bit
        for i, arm in enumerate(library.arm):
            group = file[f"arm{i}"]
            layers = range(int(group.attrs["n_layer"]))
            arm.emulator = Emulator([group[f"weight{k}"][...] for k in layers],
                                    [group[f"bias{k}"][...] for k in layers],
                                    log_flux=int(group.attrs["log_flux"]))
    library.hull = make_hulls(library.label, library.map(values), options.hulls or "pairs")
    spread(library, values, int(options.guess_templates or 300))
    name_it(library, "network", path)
    if n_train < len(models):
        with reporting(options.model_error):
            measure(options, library, grid, np.sort(models[n_train:]), f"of {len(models)} models; "
                    "the others were learned, and these chose the best epoch", library)
    print(f"losses: {options.output}.losses.csv")
    keep(options, library)
    for done in (trained, checkpoint):
        with contextlib.suppress(OSError):  # a leftover file does no harm
            os.remove(os.path.realpath(done))


def good_models(grid, unfinished):
    models = grid.good(unfinished)
    n, n_arm = len(grid.status), len(grid.arm)
    need(len(models), INPUT, f"{grid.path}: all {n} models are marked bad or missing: "
         "make the grid file again")
    skipped = f"; {n - len(models)} bad or missing ones are skipped" if len(models) < n else ""
    print(f"{grid.path}: {len(models)} models, {n_arm} arm{'s' if n_arm > 1 else ''}{skipped}",
          flush=True)
    return models


def frame(grid):
    """Return a library with copies of a grid file's arms, without labels and emulators."""
    return Library(arm=[copy(arm) for arm in grid.arm])


def name_it(library, kind, path):
    library.name = f"{kind} of {os.path.basename(path)[:100]}"
    for arm in library.arm:
        arm.revision = kind


def report_left_out(options, maker, grid, models, library):
    """Make a second library like this one without some models; report how it predicts these."""
    n = len(models)
    n_wanted = min(int(float(options.left_out or 0.1) * n + 0.5), MAX_SPECTRA)
    with reporting(options.model_error):
        out = maker.choose_left_out(grid, models, n_wanted, int(options.seed or 1))
        need(out.any(), INPUT, f"--left-out of {n_wanted} of {n} models found no model with others "
             "on all sides: give a larger --left-out, or --validation GRID.h5 instead")
        without = frame(grid)
        # fill gaps: the models left out leave empty nodes
        maker.make(grid, models[~out], without, True)
        filled = "" if options.emulator == "radial" else \
            ", whose nodes are filled from their neighbours"
        measure(options, without, grid, models[np.flatnonzero(out)],
                f"of {n} models; measured with a library made without them{filled}; this one uses "
                "all", library)


def open_validation(options, grid):
    """Open --validation, which must have the labels and arms of `grid`; return it and good rows."""
    def must(good, message):
        need(good, INPUT, f"--validation {options.validation}: {message}")
    other = open_grid(options.validation)
    rows = good_models(other, True)
    must(other.label == grid.label and len(other.arm) == len(grid.arm),
         f"its labels or number of arms are not those of {grid.path}")
    for a, b in zip(grid.arm, other.arm):
        tolerance = 1e-6 * a.ln_step
        must(a.n_pix == b.n_pix and abs(a.ln_wave0 - b.ln_wave0) <= tolerance
             and abs(a.ln_step - b.ln_step) * a.n_pix <= tolerance,
             f"the pixels of its arm {b.name} are not those of {grid.path}: build it with them")
        sigma_a, sigma_b = a.template_sigma_aa, b.template_sigma_aa
        must(abs(sigma_a - sigma_b) <= 1e-6 * abs(sigma_a),
             f"its arm {b.name} has a sigma of {sigma_b:g} A, {grid.path} one of {sigma_a:g} A")
    return other, rows


def measure(options, library, grid, models, how, to):
    """Measure a library by models of a grid file; store report and model error in library `to`."""
    n, n_error = min(len(models), MAX_SPECTRA), int(options.model_error or 0)
    least = max(residuals.LEAST_SPECTRA, 2 * n_error)
    need(not options.model_error or n >= least, INPUT,
         f"{n} models measure the library, but --model-error {n_error} needs {least}: "
         "give more by --left-out or --validation, or drop --model-error")
    models = models[np.arange(n) * len(models) // n]
    arms = range(len(grid.arm))
    print(f"measuring it on {n} models", flush=True)
    spectra = ModelSet(grid.values[models], [grid.name[i] for i in models],
                       [grid.flux(i, models) for i in arms],
                       [grid.flux(i, models, "continuum") for i in arms])
    text, errors = report(library, spectra, n_error if options.model_error else
                          residuals.N_COMPONENT, how)
    print(text, end="", flush=True)
    if options.model_error:
        for arm, error in zip(to.arm, errors):
            need(error is not None, INPUT,
                 f"arm {arm.name} has too few pixels for a model error, or too few of {n} models "
                 "lie in the library's hulls: give more models, or drop --model-error")
            arm.error = error
    to.report = text


def keep(options, library):
    library_file.write(options.output, library, options.overwrite, options.program)
    n = len(library.arm)
    print(f"{options.output}: {library.n_label} labels, {n} arm{'s' if n > 1 else ''}, hash "
          f"{library.hash}")
