# SPDX-License-Identifier: BSD-3-Clause
"""The lock file of an output, OUTPUT.lock, which names its holder (as io/files/lock_file.h)."""

import contextlib
import fcntl
import glob
import os
import re
import shutil
import socket
import sys
import time

from starmill.cli.basics import OUTPUT, Failure, need, printable, process

# s: between renewals, age of a suspect lock, age of a stale empty lock; renewals to watch for
BEAT_S, DEAD_S, EMPTY_S, WATCH_BEATS = 10, 1800, 2, 3
FORM = re.compile(r"host (\S+)\npid (\d+)\njob (\S+)\nrestart (-?\d+)\nstart (\d+)\nspace (\S+)")


def is_alive(pid):
    """Return whether a local process runs; a zombie does not."""
    try:
        if pid <= 0:
            return False
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    found = process(pid)
    return found is None or found[0] not in "ZX"


def own_text():
    job = os.environ.get("SLURM_JOB_ID", "")
    job = job if re.fullmatch("[0-9A-Za-z_-]{1,63}", job) else "-"
    restart = os.environ.get("SLURM_RESTART_COUNT", "")
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = "-"
    return f"host {socket.gethostname()}\npid {os.getpid()}\njob {job}\n" \
        f"restart {restart if restart.isdigit() else 0}\n" \
        f"start {(process(os.getpid()) or (0, 0))[1]}\nspace {space}\n"


def judge(who, age_s):
    """Return "gone" or "lives" for the holder of a lock of age age_s, or "watch" if age or restart
    count only suggest that the holder is gone: clocks differ, and a lost host may still run."""
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
    print(printable(f"{path}: watching for {WATCH_BEATS * BEAT_S} s whether its job still runs"),
          file=sys.stderr, flush=True)
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
    """The process that holds an output's lock.  is_held: whether the lock exists.  host, pid: of
    the process, "" and 0 if unknown.  is_gone: whether it ran on this host and has ended."""

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
                                      "the folder or make it writable, or choose another output"
                              ) from error
            try:
                os.write(fd, self.text.encode())
                os.fsync(fd)
            except OSError as error:
                os.unlink(self.path)
                raise Failure(OUTPUT, f"{self.path} cannot be written: {error.strerror}: make room "
                                      "or choose another output") from error
            finally:
                os.close(fd)
            self._touched = time.monotonic()
            return self
        raise Failure(OUTPUT, f"{self.path}: the lock of this output cannot be taken: if no job "
                              "writes it, remove that file")

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
        if not self._is_ours():
            raise Failure(OUTPUT, f"{self.path} was taken over by another job, as this one had not "
                                  "touched it for long (was it suspended?): this job stops writing")
        with contextlib.suppress(OSError):
            os.utime(self.path)
        self._touched = time.monotonic()

    def _remove_stale(self):
        """Remove a stale lock.  If several processes try, only one removes the lock, and none
        removes a newer lock than the one it has read."""
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
            need(who or not text, OUTPUT, f"{self.output} is locked, and {self.path} does not say "
                 "by whom: if no job writes this output, remove that file and start again")
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
                    # remove the holder's half-made files, see basics.temporary_name
                    for path in glob.glob(f"{folder}/*.tmp-{who[2]}-{who[5]}") if who else ():
                        with contextlib.suppress(FileNotFoundError):
                            (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)
