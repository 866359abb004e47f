# SPDX-License-Identifier: BSD-3-Clause
"""Runs that are killed at random moments, what they leave, and whether they can be continued.

For test_fit_stop.py and campaigns/kill.  A run is killed at a random time, by SIGKILL to all its
processes; or at a random call on its files: the fault shim kills one rank while it creates, writes
or closes a file, and the launcher ends the others."""

import random

from base import *  # noqa: F403


def descendants(pid):
    """Processes that a process has started, and theirs."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in content(f"/proc/{pid}/task/{task}/children", "r").split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass  # ended meanwhile
    return found


def kill_all(process):
    """SIGKILL to a process and all that it has started, at once."""
    for pid in [process.pid, *descendants(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.communicate()


def remove(path):
    for name in glob.glob(glob.escape(path) + "*"):
        os.remove(name)


def read_models(path):
    """Columns of the models that a fit has written beside its result."""
    found = {}
    if os.path.exists(path + ".models"):
        with h5py.File(path + ".models", "r") as f:
            f["models"].visititems(
                lambda k, v: found.update({k: v[...]} if isinstance(v, h5py.Dataset) else {}))
    return found


class Failed(Exception):
    """A promise was broken."""


class Campaign:
    """inputs and options of one fit, its uninterrupted result, and what is counted."""

    def __init__(self, lib, inputs, options, folder, seed=1, bound=300, most_ranks=4):
        self.lib, self.inputs, self.options = lib, list(inputs), list(options)
        self.folder, self.bound, self.most_ranks = folder, bound, most_ranks
        self.random = random.Random(seed)
        self.count = {k: 0 for k in ("kills", "at_time", "at_call", "too_late", "no_file",
                                     "part_done", "all_done", "rows", "models")}
        self.reference = self.path("reference")
        started = time.time()
        done = self.fit(self.reference, 1, models=True)
        self.seconds = time.time() - started
        if done.returncode != 0:
            raise Failed(done.stderr)
        self.fits, self.catalog = read(self.reference), read(self.reference, "catalog")
        self.models = read_models(self.reference)
        self.calls = self.count_calls() if SHIM else 0

    def path(self, name):
        return os.path.join(self.folder, name + ".h5")

    def arguments(self, path, models):
        return ["fit", "--library", self.lib, "--output", path, *self.options,
                *(["--models", path + ".models"] if models else []), *self.inputs]

    def line(self, path, ranks, models, faults=None):
        if not faults:
            return command(*self.arguments(path, models), ranks=ranks)
        launch = [MPIRUN, "-n", str(ranks)] if ranks else []
        return [*launch, "env", f"LD_PRELOAD={SHIM}", f"FAULTS={faults}", STARMILL,
                *self.arguments(path, models)]

    def fit(self, path, ranks, models):
        return ended(self.line(path, ranks, models), timeout=self.bound)

    def count_calls(self):
        """Count a run's calls on its files; a kill draws one of them."""
        path, counts = self.path("calls"), os.path.join(self.folder, "calls.txt")
        ended(self.line(path, 0, True, "count:any:calls.h5:1:0"), {"FAULTS_COUNT": counts}, check=True,
              timeout=self.bound)
        remove(path)
        return max(int(line.split()[2]) for line in content(counts, "r").splitlines())

    def killed(self, path, ranks, models):
        """Start a run and kill it; False if it ended before the kill."""
        at_call = bool(SHIM) and self.random.random() < 0.5
        self.count["at_call" if at_call else "at_time"] += 1
        if at_call:
            # creation and closing are the first and the last of the calls
            call = self.random.randrange(1, self.calls + 1)
            rank = self.random.randrange(max(ranks, 1))
            faults = f"kill:any:{os.path.basename(path)}:{call}:1:{rank}"
            wait = self.bound
        else:
            faults, wait = None, self.random.uniform(0, 1.1 * self.seconds)
        process = begun(self.line(path, ranks, models, faults))
        try:
            # the run ends by itself if a rank was killed at a call, or if the fit is complete
            process.communicate(timeout=wait)
            return process.returncode != 0
        except subprocess.TimeoutExpired:
            if at_call:
                kill_all(process)
                raise Failed(f"{faults}, {ranks} ranks: does not end") from None
            kill_all(process)
            return True

    def check(self, path):
        """A kill leaves no file, or a file that opens and whose done rows are whole."""
        if not os.path.exists(path):
            self.count["no_file"] += 1
            return
        fits, catalog = read(path), read(path, "catalog")
        bad = not_whole(path)
        done = fits["STATUS"] != 0
        if differing(self.fits, fits, done):
            raise Failed(f"{path}: {differing(self.fits, fits, done)} of a done row differ")
        if bad or differing(catalog, self.catalog):
            raise Failed(f"{path}: rows {bad} are not whole, or /catalog differs")
        self.count["rows"] += int(done.sum())
        self.count["all_done" if done.all() else "part_done"] += 1

    def kill_once(self, name):
        """Kill a run once or several times, continue it to its end, compare its result."""
        path = self.path(name)
        models = self.random.random() < 0.3
        while True:
            if self.killed(path, self.random.randrange(self.most_ranks + 1), models):
                self.count["kills"] += 1
            else:
                self.count["too_late"] += 1
            self.check(path)
            if self.random.random() < 0.4:
                break
        # a finished file stays, with its lock if a kill came after the mark of the end
        was_finished = os.path.exists(path) and bool(read(path, "provenance")["FINISHED"][0])
        started = time.time()
        done = self.fit(path, self.random.randrange(self.most_ranks + 1), models)
        if not was_finished:  # the machine may be busy with other things for a while
            self.seconds += 0.3 * (time.time() - started - self.seconds)
        if done.returncode != 0:
            raise Failed(f"{path}: not continued, status {done.returncode}:\n{done.stderr}")
        if differing(read(path), self.fits) or differing(read(path, "catalog"), self.catalog):
            raise Failed(f"{path}: the end differs from that of an uninterrupted run")
        if models:
            self.count["models"] += 1
            if differing(read_models(path), self.models):
                raise Failed(f"{path}: the models differ from those of an uninterrupted run")
        left = [n for n in glob.glob(glob.escape(path) + "*")
                if n not in (path, path + ".models", path + ".status.json")
                and not (was_finished and n in (path + ".lock", path + ".models.lock",
                                                path + ".status.json.tmp"))]
        if left:
            raise Failed(f"left over: {left}")
        remove(path)
