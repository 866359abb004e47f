# SPDX-License-Identifier: BSD-3-Clause
"""Code shared by long jobs: checks of file roles, stopping in good order, worker processes."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from starmill.cli.basics import INTERNAL, STOPPED, STOP_SIGNALS, USAGE, Failure, need, refuse_input


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
