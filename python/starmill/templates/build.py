# SPDX-License-Identifier: BSD-3-Clause
"""`starmill library build`: write spectra with labels to one grid file, the input of `library
train` (docs/use/libraries.md, "A grid of models")."""

import os
import re
import time
from contextlib import closing
from dataclasses import dataclass, fields

import numpy as np
import yaml

from starmill.cli.basics import (INPUT, STOPPED, USAGE, Failure, as_failure, ascii_of, need,
                                 printable, refuse_foreign, version)
from starmill.cli.running import OutputLock, Progress, Stop, check_roles, each, n_workers, tell
from starmill.templates.grid_file import (BAD, GOOD, TO_DO, WHY, Models, Writer, create,
                                          describe_models, finish, open_grid, revise, short)
from starmill.templates.labels import describe, measure
from starmill.templates.library_data import (MAX_ARM, MAX_LABEL, MAX_PIX, MAX_SIGMA_WIDTH, MIN_PIX,
                                             Arm)
from starmill.templates.resample import ArmCut, level_of
from starmill.templates.spectra_files import Source
from starmill.templates.spectra_options import list_files, number, read_ranges, request_of
from starmill.wavelength import FWHM_PER_SIGMA

N_TRIED = 3  # models tried before a file is made; if none is good, no file
N_SERIAL = 500  # files; up to here one process is faster than starting several
FLOAT32 = np.finfo("f4")
MAX_POINT, MAX_BYTES = 64, 1 << 20  # of --setup


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
        raise Wrong(node, "expected an arm {name: b, min: 3550, max: 5860, ln_step: 6e-5}")
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


def main(options):
    start = time.monotonic()
    paths, is_many = list_files(options.arguments, request := request_of(options, 3, MAX_LABEL))
    target = os.path.realpath(options.output) if os.path.islink(options.output) else options.output
    check_roles(target, [
        ("--setup", options.setup), ("--table", request.table), ("--wave-file", request.wave_file),
        ("--stop-file", options.stop_file), *(("the input", p) for p in paths)])
    stop = Stop(options.stop_file)
    setup = read_setup(options.setup)
    with closing(Source(paths, is_many, request)) as source:
        job = Job(options, setup, source)
        job.frame_arms()
        job.run(target, stop, start)


def inside(ranges, labels, names):
    """Return which models [n] have their labels inside all of the ranges."""
    out = np.full(len(labels), True)
    for name, (low, high) in ranges.items():
        x = labels[:, names.index(name)]
        out &= (x >= low) & (x <= high)
    return out


def select_models(source, options, n_worker):
    """Return the wanted Models and their indices in the source.  Keep models with bad labels too:
    the file says why they are bad."""
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
    """Of models with equal labels keep one, if possible one that is done; mark the others bad."""
    done_first = np.argsort(models.status == TO_DO, kind="stable")
    kept = {}
    for i in done_first[models.status[done_first] != BAD]:
        j = kept.setdefault(models.label[i].tobytes(), i)
        if j != i:
            models.status[i] = BAD
            models.why[i] = short(f"it has the same labels as {os.fsdecode(models.name[j])}", WHY)


def check_labels(models, names):
    good = models.label[models.status == TO_DO]
    need(len(good), INPUT, f"none of the {len(models)} models can be used; "
         f"{os.fsdecode(models.name[0])}: {os.fsdecode(models.why[0])}")
    for name, values in zip(names, good.T):
        measure(describe(name), values)


class Job:
    """Makes a grid file.  models: those to make; index [n]: where the source has their spectra."""

    def __init__(self, options, setup, source):
        self.options, self.setup, self.source = options, setup, source
        self.n_worker = n_workers(options.workers)
        self.parts = ("flux", "continuum")[:1 + (len(source.request.columns or ()) == 3)]
        self.models, self.index = select_models(source, options, self.n_worker)
        mark_doubles(self.models)
        check_labels(self.models, source.names)

    def frame_arms(self):
        """Set the arms, the sigmas of their resolution and their ArmCuts.  Cut up to N_TRIED models
        on trial: if each fails, raise the first failure before a file is made."""
        self.cut, failures = None, []
        for i in np.flatnonzero(self.models.status == TO_DO)[:N_TRIED]:
            try:
                spectrum = self.source.read(self.index[i])
                if not self.cut:
                    self.origin = spectrum.origin
                    self.arms, self.sigmas, self.cut = zip(*map(self.frame_arm, self.setup))
                self.cut_spectrum(spectrum)
                return
            except Failure as failure:
                if failure.status != INPUT:
                    raise
                failures.append(Failure(INPUT, f"{os.fsdecode(self.models.name[i])}: "
                                               f"{self.source.why(self.index[i], failure)}"))
        raise failures[0]

    def frame_arm(self, want):
        """Return the Arm of a SetupArm, its sigma [n_pix] (None: a constant) and its ArmCut."""
        o = self.options
        if o.native_sigma is None and not (o.native_resolving_power or self.origin.fwhm_aa > 0):
            raise Failure(USAGE, f"{self.source.paths[0]} does not give its resolution (no card "
                                 "FWHM); give --native-sigma A or --native-resolving-power R")
        wave = np.exp(np.log(want.min) + np.arange(want.n_pix) * want.ln_step)
        of_card = self.origin.fwhm_aa / FWHM_PER_SIGMA
        native = np.full(len(wave), of_card if o.native_sigma is None else o.native_sigma)
        if o.native_resolving_power:
            native = wave / (FWHM_PER_SIGMA * o.native_resolving_power)
        asked, pixel = want.sigma_aa(wave), want.ln_step * wave
        least = np.sqrt(native**2 + pixel**2 / 12)  # the mean over a pixel broadens lines too
        sigma = least if asked is None else asked
        i = np.argmin(sigma - least)
        need(sigma[i] > least[i] or asked is None, USAGE, f"{o.setup}: arm {want.name} asks for "
             f"sigma {sigma[i]:.4g} A at {wave[i]:.6g} A, but the input's {native[i]:.4g} A and "
             f"the pixel's width already make {least[i]:.4g} A: give a larger sigma or none")
        i = np.argmax(pixel / sigma)
        need(1.2 * pixel[i] <= sigma[i] * (1 + 1e-9), USAGE, f"{o.setup}: arm {want.name} has "
             f"pixels of {pixel[i]:.4g} A at {wave[i]:.6g} A, wider than sigma / 1.2 of "
             f"its templates, {sigma[i] / 1.2:.4g} A: give a smaller ln_step or a larger sigma")
        middle, varies = sigma[want.n_pix // 2], (abs(sigma - sigma[0]) > 1e-9 * sigma[0]).any()
        need(middle <= MAX_SIGMA_WIDTH * (wave[-1] - wave[0]), USAGE, f"{o.setup}: arm {want.name} "
             f"must be at least {1 / MAX_SIGMA_WIDTH:g} times as wide as its sigma {middle:.4g} A")
        kind = ("as the input" if asked is None else "convolved to this sigma" if want.sigma
                else "convolved to a resolving power")
        if want.at_instrument:
            middle, kind = -1, "at_instrument: convolved to the instrument's resolution"
        elif varies:
            kind += "; that of the middle of the arm, it varies"
        kernel = np.sqrt(np.maximum(0, sigma**2 - least**2))
        return (Arm(want.name, want.name, np.log(want.min), want.ln_step, wave,
                    template_sigma_aa=middle, sigma_origin=kind), sigma if varies else None,
                ArmCut(want.n_pix, np.log(want.min), want.ln_step, kernel,
                       FWHM_PER_SIGMA * sigma.max()))

    def cut_spectrum(self, spectrum):
        """Return [flux] or [flux, continuum] of each arm, float32, divided by the flux's level."""
        o, fwhm = self.options, spectrum.origin.fwhm_aa
        need(o.native_sigma is not None or o.native_resolving_power
             or abs(fwhm - self.origin.fwhm_aa) <= 1e-6 * self.origin.fwhm_aa, INPUT,
             f"its card FWHM is {fwhm:g} A, that of the first model {self.origin.fwhm_aa:g} A; "
             "build them separately, or give --native-sigma")
        out = []
        for arm, cut in zip(self.arms, self.cut):
            cut.prepare(spectrum.wave)
            out.append([])
            for what, given in zip(self.parts, (spectrum.flux, *spectrum.extra)):
                flux = cut.apply(given)
                self.check_pixels(what, arm, flux, (flux > 0) & np.isfinite(flux), "above 0")
                if what == "flux":
                    level = level_of(flux, o.normalise)
                flux = flux / level
                help_ = "; see --normalise" if o.normalise == "none" else ""
                self.check_pixels(what, arm, flux, (flux >= FLOAT32.tiny) & (flux <= FLOAT32.max),
                                  f"in the range of float32{help_}")
                out[-1].append(flux.astype("f4"))
        return out

    def check_pixels(self, what, arm, flux, good, must):
        """Refuse a spectrum unless `good` [n_pix] is all true.  must: what a good pixel is."""
        i = np.argmin(good)
        need(good[i], INPUT, f"its {what} in arm {arm.name} is {flux[i]:g} at "
             f"{arm.wave_aa[i]:.6g} A; it must be {must}")

    def write_model(self, i):
        """Write the spectra of model i, in a worker.  Return why the model is bad, or b""."""
        try:
            arms = self.cut_spectrum(self.source.read(self.index[i]))
        except Failure as failure:
            if failure.status != INPUT:
                raise
            return short(self.source.why(self.index[i], failure), WHY)
        for a, spectra in enumerate(arms):
            for name, row in zip(self.parts, spectra):
                self.writer.put(f"arms/arm{a}/{name}", i, row)
        return b""

    def settings(self):
        """Return the settings as text; a run continues a file only if they are equal."""
        o, request = self.options, self.source.request
        lines = [f"input: {os.path.basename(os.path.normpath(o.arguments[0]))}, {self.source.n} "
                 "models", *(f"label {name}: {column}" for name, column in request.labels)]
        lines += [f"{what}: {value}" for what, value in (
            ("name pattern", request.name_pattern),
            ("table", request.table and f"{request.table}, names in {request.name_column}"),
            ("columns", ", ".join(request.columns or ()))) if value]
        if request.wave_file:
            about = os.stat(request.wave_file)
            lines.append(f"file of wavelengths: {request.wave_file}, {about.st_size} bytes of "
                         + time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(about.st_mtime)))
        native = (f"sigma: {o.native_sigma:.17g} A" if o.native_sigma is not None else
                  f"resolving power: {o.native_resolving_power:.17g}" if o.native_resolving_power
                  else f"resolution: card FWHM, {self.origin.fwhm_aa:.17g} A")
        lines += [str(self.origin), f"native {native}", f"normalise: {o.normalise}"]
        for arm, want in zip(self.arms, self.setup):
            lines.append(f"arm {arm.name}: {arm.n_pix} pixels, ln from {arm.ln_wave0:.17g} by "
                         f"{arm.ln_step:.17g}")
            kind = ("sigma" if want.sigma else "resolving power" if want.resolving_power
                    else "as the input")
            points = ", ".join(f"{v:.17g}" + (f" at {w:.17g}" if w else "")
                               for w, v in want.sigma or want.resolving_power or ())
            kind += ", the instrument's" if want.at_instrument else ""
            lines.append(f"arm {arm.name}: resolution, pixels included, {kind} {points}".rstrip())
        return ascii_of("\n".join(lines) + "\n")

    def run(self, target, stop, start):
        """Make or continue the file, under the name TARGET.new with --overwrite."""
        output = target + ".new" if self.options.overwrite else target
        with OutputLock(target) as lock:
            for path in (target, output):
                refuse_foreign(path, "starmill grid")
                if os.path.lexists(path) and not os.path.isfile(path):
                    raise Failure(USAGE, f"{path}: exists and is not a regular file")
            complete = False
            if os.path.exists(output) and os.path.getsize(output):
                complete = self.continue_file(output)
            else:
                create(output, self.source.names, self.models, list(zip(self.arms, self.sigmas)),
                       self.parts, self.settings(), version(self.options.program))
            if complete:
                print(f"{output} is complete already; nothing was done")
            else:
                self.write_models(output, stop, lock)
                finish(output)
            self.end(target, output)
        if not complete:
            print(f"{target}: {time.monotonic() - start:.1f} s, {self.n_worker} worker"
                  f"{'s' if self.n_worker > 1 else ''}")

    def write_models(self, output, stop, lock):
        """Write the models still to do, until a stop is asked for."""
        models, todo = self.models, np.flatnonzero(self.models.status == TO_DO).tolist()
        progress = Progress(len(models), "models", len(models) - len(todo))
        n_bad = int((models.status == BAD).sum())
        self.writer = Writer(output)
        results = each(self.write_model, todo, self.n_worker)
        try:
            for n, (i, why) in enumerate(zip(todo, results), len(models) - len(todo) + 1):
                lock.keep()
                self.writer.put("models/why", i, why)
                self.writer.put("models/status", i, BAD if why else GOOD)  # last: all is written
                n_bad += bool(why)
                progress.update(n, n_bad)
                if n < len(models) and stop.asked():
                    raise Failure(STOPPED, f"stopped: {n} of {len(models)} models are done and "
                                           f"kept in {output}; the same command continues")
        finally:
            results.close()
            progress.end()
            self.writer.close()

    def end(self, target, output):
        """Print what the file holds.  With --overwrite, replace the old file if a model is good."""
        grid = open_grid(output)
        grid.file.close()
        print(self.origin)
        for line in describe_models(grid):
            print(printable(line))
        if (grid.status == BAD).all():
            if self.options.overwrite:
                os.unlink(output)
            kept = "; nothing was overwritten" if self.options.overwrite else ""
            raise Failure(INPUT, f"{target}: no model is good; {grid.name[0]}: {grid.why[0]}{kept}")
        if self.options.overwrite:
            os.replace(output, target)

    def continue_file(self, output):
        """Continue an existing file: take its models' status; return whether all are done."""
        help_ = "give the same options and input to continue it, " + (
            f"or remove {output}" if self.options.overwrite else
            "another name, or --overwrite to begin again")
        grid = open_grid(output)
        there = {name: grid.file[f"models/{name}"][...]
                 for name in ("label", "name", "stamp", "why", "status")}
        grid.file.close()
        for was, now in zip(grid.settings.split("\n"), self.settings().split("\n")):
            need(was == now, USAGE,
                 f"{output} was begun with other settings ('{was}', now '{now}'): {help_}")
        need(len(there["status"]) == len(self.models), USAGE, f"{output} was begun with "
             f"{len(there['status'])} models, now there are {len(self.models)}: {help_}")
        self.compare_models(output, there, help_)
        complete = self.take_status(output, there, grid.complete)
        if not complete:
            tell(f"{output} is continued")
        return complete

    def compare_models(self, output, there, help_):
        """Refuse to continue `output` unless its table of models, `there`, has the input's models.
        Labels and contents of bad models may differ, as their files may have been repaired."""
        now, names = self.models, [os.fsdecode(n) for n in self.models.name]
        was_bad = there["status"] == BAD
        other = there["name"] != now.name
        i = np.argmax(other)
        need(not other[i], USAGE, f"{output} was begun with other models "
             f"({os.fsdecode(there['name'][i])}, now {names[i]}): {help_}")
        other = (there["label"] != now.label).any(axis=1) & ~was_bad
        i = np.argmax(other)
        need(not other[i] or now.status[i] != BAD, INPUT, f"{output} was begun with {names[i]}, "
             f"which cannot be used now: {os.fsdecode(now.why[i])}")
        need(not other[i], USAGE, f"{output} was begun with other labels of {names[i]}: {help_}")
        other = (there["stamp"] != now.stamp) & (there["stamp"] > 0) & (now.stamp > 0) & ~was_bad
        need(not other.any(), USAGE, f"the file of {names[np.argmax(other)]} has changed since "
             f"{output} was begun (size, modification time or contents): {help_}")

    def take_status(self, output, there, complete):
        """Take the status of done models from the file, and return whether all are done.  With
        --retry-bad, a bad model counts as not done if its labels have become usable."""
        bad = there["status"] == BAD
        done = ~bad if self.options.retry_bad else np.full(len(bad), True)
        self.models.status[done], self.models.why[done] = there["status"][done], there["why"][done]
        if not self.options.retry_bad or not bad.any():
            return complete
        mark_doubles(self.models)
        n_again = int((bad & (self.models.status == TO_DO)).sum())
        tell(f"{output}: {n_again} of {bad.sum()} bad models are read again")
        if n_again:
            revise(output, self.models)
        return complete and not n_again
