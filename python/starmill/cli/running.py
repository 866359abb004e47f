# SPDX-License-Identifier: BSD-3-Clause
"""Code shared by long jobs: checks of file roles, stopping in good order, worker processes, progress
on standard error: on a terminal a bar, redrawn every REDRAW_S; in a log a line every LOG_S."""

import math
import os
import signal
import sys
import threading
import time
from collections import deque

from starmill.cli.basics import INTERNAL, STOPPED, STOP_SIGNALS, USAGE, Failure, need, refuse_input

REDRAW_S, LOG_S, WIDTH = 0.2, 60, 20
SMOOTH_S = 20  # the rate averages over about this time


def tell(message):
    print(message, file=sys.stderr, flush=True)


def check_roles(output, reads):
    """Check the output before any file is opened or made.  reads: as for refuse_input."""
    need(not output.endswith(".new") or not os.path.exists(output[:-4]), USAGE,
         f"--output {output} is the temporary file of --overwrite for {output[:-4]}: give another "
         "name; a run begun with --overwrite is continued by its own command")
    refuse_input(output, reads, ("", ".lock", ".new"))


class Stop:
    """Notes SIGTERM, SIGINT and SIGUSR1, and looks for a stop file.  A further signal ends the
    process at once unless it comes within a second, since launchers often send one signal twice."""

    def __init__(self, file=None):
        if file and os.path.exists(file):
            raise Failure(STOPPED, f"not started: the stop file {file} is there; remove it")
        self._file, self._since = file, None
        for number in STOP_SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number, _):
        if self._since and time.monotonic() - self._since >= 1:
            os._exit(128 + number)
        self._since = self._since or time.monotonic()

    def asked(self):
        return self._since is not None or bool(self._file and os.path.exists(self._file))


_function = None  # inherited by the worker processes when they start


def n_workers(given):
    """Return the number of workers: --workers, or by default the cores this process may use."""
    return given or len(os.sched_getaffinity(0))


def each(function, items, n_worker):
    """Yield function(item) for each item, in order, computed by n_worker forks of this process.
    Forks share this process's memory, so function may be any callable."""
    global _function
    if n_worker == 1:
        yield from map(function, items)
        return
    import multiprocessing  # not needed by `starmill status`, which starts often
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    _function, waiting = function, deque()
    pool = ProcessPoolExecutor(n_worker, multiprocessing.get_context("fork"), _begin,
                               (os.getpid(),))
    try:
        for item in items:
            waiting.append(pool.submit(_call, item))
            if len(waiting) > 4 * n_worker:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        for child in multiprocessing.active_children():
            child.kill()  # they ignore SIGTERM, and the pool would wait for them
        raise Failure(INTERNAL, "a worker process was killed, perhaps for want of memory: give "
                                "a lower --workers (simulate: --threads)") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(parent):
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # signals reach the whole group; the parent decides
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent):
    """End this worker when its parent is gone, which an idle worker would not notice."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _call(item):
    return _function(item)


def left(seconds):
    """Return a duration as "1h02m", "3m05s" or "12s"; "?" if it is unknown."""
    if not 0 <= seconds < 9999 * 3600:
        return "?"
    minutes, s = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{s}s"
    return f"{minutes}m{s:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


class Progress:
    """Shows how many of total units are done.  Call update() at any rate, then end()."""

    def __init__(self, total, unit, done=0):
        self.total, self.unit, self._done = total, unit, done
        self._is_bar = sys.stderr.isatty()
        self._every = REDRAW_S if self._is_bar else LOG_S
        self._last, self._n, self._s = time.monotonic(), 0.0, 0.0
        self._drawn = False

    def update(self, done, bad=0):
        now = time.monotonic()
        passed = now - self._last
        if passed < self._every:
            return
        fade = math.exp(-passed / SMOOTH_S)
        self._n, self._s = self._n * fade + done - self._done, self._s * fade + passed
        self._last, self._done = now, done
        rate = self._n / self._s
        part = done / max(self.total, 1)
        words = (f"{100 * part:.1f} %  {done}/{self.total} {self.unit}  {bad} bad  "
                 f"{rate:.{2 if rate < 10 else 0}f}/s  "
                 f"{left((self.total - done) / rate if rate else math.inf)} left")
        if not self._is_bar:
            print(words, file=sys.stderr, flush=True)
            return
        print(f"\r[{'=' * int(part * WIDTH):{WIDTH}}] {words}\033[K", end="", file=sys.stderr,
              flush=True)
        self._drawn = True

    def end(self):
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
