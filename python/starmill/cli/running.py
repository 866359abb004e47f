# SPDX-License-Identifier: BSD-3-Clause
"""Code shared by long jobs: checks of the output's path, stopping in good order, worker processes,
progress on standard error, and OUTPUT.lock, the lock file of an output (io/files/lock_file.h)."""

import contextlib
import fcntl
import glob
import math
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections import deque

from starmill.cli.basics import (INTERNAL, OUTPUT, STOP_SIGNALS, STOPPED, USAGE, Failure,
                                 need, printable, process, refuse_input, writing)

REDRAW_S, LOG_S, WIDTH = 0.2, 60, 20  # s from one drawn bar, or log line, to the next; bar's width
SMOOTH_S = 20  # the rate averages over about this time
BEAT_S, WATCH_BEATS = 10, 3  # s between renewals of a lock by its holder; renewals to wait for
DEAD_S, EMPTY_S = 1800, 2  # s; the job of an older lock, or empty lock, may be gone
FORM = re.compile(r"host (\S+)\npid (\d+)\njob (\S+)\nrestart (-?\d+)\nstart (\d+)\nspace (\S+)")


def tell(message):
    print(message, file=sys.stderr, flush=True)


def check_roles(output, reads):
    """Refuse an output that is an input or a temporary file.  reads: as for refuse_input."""
    need(not output.endswith(".new") or not os.path.exists(output[:-4]), USAGE,
         f"--output {output} is the temporary file of --overwrite for {output[:-4]}: give another "
         "name; to continue a run begun with --overwrite, repeat its command")
    refuse_input(output, reads, ("", ".lock", ".new"))


class Stop:
    """Notes SIGTERM, SIGINT and SIGUSR1, and looks for a stop file.  A second signal ends the
    process, unless it comes within a second of the first: launchers often send signals twice."""

    def __init__(self, file=None):
        need(not file or not os.path.exists(file), STOPPED,
             f"not started: the stop file {file} is there; remove it")
        self._file, self._since = file, None
        for number in STOP_SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number, _):
        if self._since and time.monotonic() - self._since >= 1:
            os._exit(128 + number)
        self._since = self._since or time.monotonic()

    def asked(self):
        return self._since is not None or bool(self._file and os.path.exists(self._file))


_function = None  # forks inherit it: it need not be pickled


def n_workers(given):
    """Return the number of workers: --workers, or by default the cores this process may use."""
    return given or len(os.sched_getaffinity(0))


def each(function, items, n_worker):
    """Yield function(item) for each item, in order, computed by n_worker forks of this process."""
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
        raise Failure(INTERNAL, "a worker process was killed, perhaps for lack of memory: give "
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
        fade = math.exp(-passed / SMOOTH_S)  # older progress counts less in the rate
        self._n, self._s = self._n * fade + done - self._done, self._s * fade + passed
        self._last, self._done = now, done
        rate = self._n / self._s
        part = done / max(self.total, 1)
        words = (f"{100 * part:.1f} %  {done}/{self.total} {self.unit}  {bad} bad  "
                 f"{rate:.{2 if rate < 10 else 0}f}/s  "
                 f"{left((self.total - done) / rate if rate else math.inf)} left")
        if not self._is_bar:
            tell(words)
            return
        print(f"\r[{'=' * int(part * WIDTH):{WIDTH}}] {words}\033[K", end="", file=sys.stderr,
              flush=True)
        self._drawn = True

    def end(self):
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def is_alive(pid):
    """Return whether a local process runs; a zombie does not."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    found = process(pid)
    return found is None or found[0] not in "ZX"


def own_text():
    job = os.environ.get("SLURM_JOB_ID", "")
    job = job if re.fullmatch("[0-9_-]{1,63}", job) else "-"
    restart = os.environ.get("SLURM_RESTART_COUNT", "")
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = "-"
    return f"host {socket.gethostname()}\npid {os.getpid()}\njob {job}\n" \
        f"restart {restart if restart.isdigit() else 0}\n" \
        f"start {(process(os.getpid()) or (0, 0))[1]}\nspace {space}\n"


def judge(who, age_s):
    """Return "gone", "lives" or "watch" for the holder of a lock.  "watch": the lock is old (age_s)
    or the holder's Slurm job has restarted, but the holder may still run."""
    host, pid, job, restart, start, space = who
    me = FORM.match(own_text()).groups()
    if (host, space) == (me[0], me[5]):
        found = process(int(pid))
        if not is_alive(int(pid)) or (found is not None and found[1] != int(start)):
            return "gone"
    is_earlier_start = job != "-" and job == me[2] and int(restart) < int(me[3])
    return "watch" if age_s > DEAD_S or is_earlier_start else "lives"


def is_touched(path, before):
    """Return whether a lock is touched or replaced within WATCH_BEATS renewals."""
    tell(printable(f"{path} exists: watching for {WATCH_BEATS * BEAT_S} s whether the job that "
                   "made it still runs"))
    end = time.monotonic() + WATCH_BEATS * BEAT_S
    while time.monotonic() < end:
        time.sleep(0.1 * BEAT_S)
        try:
            with open(path, "rb") as file:  # reopened, so that NFS asks its server
                now = os.fstat(file.fileno())
        except OSError:
            return True
        if (now.st_ino, now.st_mtime_ns) != (before.st_ino, before.st_mtime_ns):
            return True
    return False


class Holder:
    """The process that holds an output's lock.  is_held: the lock exists.  host, pid: of the
    process, "" and 0 if unknown.  is_gone: the process ran on this host and has ended."""

    def __init__(self, output):
        path = f"{os.path.realpath(output)}.lock"
        self.is_held, self.is_gone, self.host, self.pid = os.path.lexists(path), False, "", 0
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            who = re.match(r"host (\S+)\s+pid (\d+)", file.read(1024))
            if who:
                self.host, self.pid = who[1], int(who[2])
                self.is_gone = self.host == socket.gethostname() and not is_alive(self.pid)

    @property
    def is_active(self):
        return self.is_held and not self.is_gone


class OutputLock:
    """Holds an output's lock: `with OutputLock(output) as lock`.  Failure if another job has it."""

    def __init__(self, output):
        self.output, self.path, self.text = output, output + ".lock", own_text()

    def __enter__(self):
        for _ in range(20):  # others may take and release it between tries
            try:
                fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            except FileExistsError:
                self._remove_stale()
                continue
            except OSError as error:
                raise Failure(OUTPUT, f"{self.path} cannot be created: {error.strerror}: create "
                              "the folder or make it writable, or choose another output") from error
            try:
                with writing(self.path):
                    os.write(fd, self.text.encode())
                    os.fsync(fd)
            except Failure:
                os.unlink(self.path)
                raise
            finally:
                os.close(fd)
            self._touched = time.monotonic()
            return self
        raise Failure(OUTPUT, f"{self.path}: this lock cannot be taken over: if no job writes "
                              "the output, remove this lock file")

    def __exit__(self, *_):
        if self._is_ours():
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def _is_ours(self):
        """Return whether this job still holds the lock; true if the file cannot be read."""
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                return file.read() == self.text
        except OSError:
            return True

    def keep(self):
        """Renew the lock; call it before each write, and at least every DEAD_S seconds."""
        if time.monotonic() - self._touched < BEAT_S:
            return
        need(self._is_ours(), OUTPUT, f"{self.path} was taken over by another job, since this job "
             "had not touched the lock for long (was the job suspended?): this job stops writing")
        with contextlib.suppress(OSError):
            os.utime(self.path)
        self._touched = time.monotonic()

    def _remove_stale(self):
        """Remove a stale lock, but not a newer lock that another process has made meanwhile."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Failure(OUTPUT, f"{self.path}: the lock file of the output cannot be read: "
                                  f"{error.strerror}") from error
        with open(fd, encoding="utf-8", errors="replace") as file:
            opened, text = os.fstat(fd), file.read(1024)
            age_s, who = time.time() - opened.st_mtime, FORM.match(text)
            if not text and age_s < EMPTY_S:  # being written, or its writer was killed
                time.sleep(EMPTY_S / 10)
                return
            need(who or not text, OUTPUT, f"{self.output} is locked, and {self.path} does not name "
                 "the job: if no job writes this output, remove the lock file and start again")
            verdict = judge(who.groups(), age_s) if who else "gone"
            if verdict == "lives" or verdict == "watch" and is_touched(self.path, opened):
                job = f", Slurm job {who[3]}" if who[3] != "-" else ""
                raise Failure(OUTPUT, f"{self.output} is being written by process {who[2]} on host "
                                      f"{who[1]}{job}: wait for it to end, or, if it no longer "
                                      f"runs, remove {self.path} and start again")
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(opened, os.lstat(self.path)):
                    os.unlink(self.path)
                    folder = glob.escape(os.path.dirname(self.path) or ".")
                    # the holder's half-made files: see basics.temporary_name
                    for path in glob.glob(f"{folder}/*.tmp-{who[2]}-{who[5]}") if who else ():
                        with contextlib.suppress(FileNotFoundError):
                            (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)
