# SPDX-License-Identifier: BSD-3-Clause
"""Faults of disks, files and processes, each with what the program must make of it.

For test_fit_faults.py, which runs every case once, and campaigns/kill, which repeats them
with other numbers of ranks.  A case is a function of a Site and a number of ranks (0: without
mpirun); it raises Failed.  Faults are injected by the shim (tests/faults/fault_shim.c)."""

from base import *  # noqa: F403
from kill_runs import Failed, descendants, kill_all, remove


class Hang(Failed):
    """A run did not come to its end."""


class Outcome:
    def __init__(self, case, path, status, out, errors):
        self.case, self.path, self.status, self.out, self.errors = case, path, status, out, errors

    def fail(self, text):
        raise Failed(f"{self.case}: {text}\nstatus {self.status}\n{self.out}\n{self.errors}")

    def ends(self, *statuses, says=(), says_not=()):
        """The run ended with one of these statuses and said each of these texts."""
        if self.status not in statuses:
            self.fail(f"status {self.status} instead of {statuses}")
        for text in says:
            if text not in self.errors:
                self.fail(f"nothing says '{text}'")
        for text in says_not:
            if text in self.errors:
                self.fail(f"something says '{text}'")
        return self

    def leaves(self, *ends):
        """The output's files (but for its status file) have exactly these suffixes."""
        there = {n[len(self.path):] for n in glob.glob(glob.escape(self.path) + "*")}
        there -= {".status.json", ".status.json.tmp"}
        if there != set(ends):
            self.fail(f"left are {sorted(there)}")
        return self


class Site:
    """A folder with a library, inputs and the result that an undisturbed run gives."""

    def __init__(self, lib, first, second, folder, bound=60):
        self.lib, self.first, self.second = lib, first, second
        self.folder, self.bound, self.n = folder, bound, 0
        self.config = os.path.join(folder, "faults.yaml")
        put(self.config, "write_interval: 0.1\n")
        self.reference = os.path.join(folder, "reference.h5")
        started = time.time()
        self.run("reference", 0, path=self.reference, models=True).ends(0)
        # the watchdog allows a call three times this whole run's time, so slow machines pass
        seconds = time.time() - started
        self.watchdog, self.bound = max(3, 3 * seconds), max(bound, 30 * seconds)
        self.fits, self.catalog = read(self.reference), read(self.reference, "catalog")

    def remove_all(self):
        """All that cases have left but the reference."""
        for name in glob.glob(os.path.join(glob.escape(self.folder), "*-*.h5*")):
            os.remove(name)

    def copy(self, name):
        """Copies of the inputs that a case may damage."""
        copies = [os.path.join(self.folder, f"{name}-{i}.fits") for i in (1, 2)]
        for source, target in zip((self.first, self.second), copies):
            shutil.copy(source, target)
        return copies

    def run(self, case, ranks, faults="", options=(), path=None, inputs=None, models=False,
            watchdog=None, prefix=(), during=None):
        """Run a fit with faults to its end; during(process) may meddle."""
        if path is None:
            self.n += 1
            path = os.path.join(self.folder, f"{case}-{self.n}.h5")
        launch = [MPIRUN, "-n", str(ranks)] if ranks else []
        shim = ["env", f"LD_PRELOAD={SHIM}", f"FAULTS={faults}"] if faults else []
        line = [*prefix, *launch, *shim, STARMILL, "fit", "--library", self.lib, "--output", path,
                "--config", self.config, "--threads", "1", "--optimizer", "levenberg-marquardt",
                *(["--models", path + ".models"] if models else []), *options,
                *(inputs or [self.first, self.second])]
        process = begun(line, {"STARMILL_WATCHDOG_S": str(watchdog)} if watchdog else None)
        try:
            if during:
                during(process)
            out, errors = process.communicate(timeout=self.bound)
        except subprocess.TimeoutExpired:
            kill_all(process)
            raise Hang(f"{case}, {ranks} ranks, {faults}: does not end") from None
        return Outcome(case, path, process.returncode, out, errors)

    def continues(self, outcome, ranks, status=0, **how):
        """Done rows are whole, and the same command ends as an undisturbed run does."""
        if os.path.exists(outcome.path):
            fits = read(outcome.path)
            if not_whole(outcome.path):
                outcome.fail(f"rows {not_whole(outcome.path)} are not whole")
            done = fits["STATUS"] == FITTED
            if differing(self.fits, fits, done):
                outcome.fail(f"{differing(self.fits, fits, done)} of a done row differ")
        again = self.run(outcome.case, ranks, path=outcome.path, **how)
        again.ends(status)
        if differing(read(again.path), self.fits) or differing(read(again.path, "catalog"),
                                                               self.catalog):
            again.fail("the end is not that of an undisturbed run")
        return again


def leave_nothing(name, fault, *says):
    """A case of a run that ends with status 4 and leaves nothing that could be continued."""
    return lambda site, ranks: site.run(name, ranks, fault).ends(4, says=says).leaves()


def never_return(name, fault, *says):
    """A case: the watchdog ends a run, then the same command continues this run."""
    def case(site, ranks):
        more = ["--log", os.path.join(site.folder, "hang.log")] if ".log" in fault else ()
        site.continues(site.run(name, ranks, fault, more, watchdog=site.watchdog)
                       .ends(70, says=says), ranks)
    return case


case_no_room_to_create = leave_nothing("create", "ENOSPC:alloc:.h5.tmp-:1:0",
                                       "No space left on device", "make room")


def case_no_room_to_fill(site, ranks):
    # the file system cannot allocate: the first write fails, or a later one
    for first in (1, 60):
        site.run("fill", ranks,
                 f"EOPNOTSUPP:alloc:.h5.tmp-:1:0;ENOSPC:write:.h5.tmp-:{first}:0").ends(
                     4, says=["make room"]).leaves()


case_no_room_for_lock = leave_nothing("lock", "ENOSPC:write:.lock:1:0", "No space left on device",
                                      "make room")


def case_no_room_in_the_middle(site, ranks):
    # space is allocated at the start, but a later write may fail (quotas, copy-on-write)
    for first in (1, 5):  # HDF5 writes when it opens
        outcome = site.run("middle", ranks, f"ENOSPC:write:.h5$:{first}:0")
        outcome.ends(4, says=["cannot write", ": No space left on device; ", "make room"]).leaves("")
        site.continues(outcome, ranks)
        remove(outcome.path)


def case_no_room_at_close(site, ranks):
    # rank 0's last writes mark the file as finished: the last write fails, or the last four
    counts = os.path.join(site.folder, "counts.txt")
    if os.path.exists(counts):
        os.remove(counts)
    clean = site.run("counted", ranks, "count:write:.h5$:1:0:0",
                     prefix=["env", f"FAULTS_COUNT={counts}"]).ends(0)
    n_write = max(int(line.split()[2]) for line in content(counts, "r").splitlines())
    remove(clean.path)
    for back in (0, 3):
        outcome = site.run("close", ranks, f"ENOSPC:write:.h5$:{max(n_write - back, 1)}:0",
                           watchdog=2 * site.watchdog)
        if outcome.status == 0:
            continue  # this time it took fewer writes
        outcome.ends(4, says=["make room"]).leaves("")
        site.continues(outcome, ranks)
        remove(outcome.path)


case_disk_fails_at_flush = leave_nothing("flush", "EIO:sync:.h5.tmp-pid:1:0:0", "disk")
case_no_name = leave_nothing("rename", "EIO:rename:.h5$:1:0:0", "cannot be renamed",
                             "Input/output error")


def case_folder_is_not_shared(site, ranks):
    def suspend(process):
        # rank 1 looks for the file for 20 s, and rank 0 would wait busily
        wait_until(lambda: glob.glob(os.path.join(site.folder, "unshared-*.tmp-*")), process)
        time.sleep(1)
        rank0 = [pid for pid in descendants(process.pid)
                 if b"OMPI_COMM_WORLD_RANK=0\0" in content(f"/proc/{pid}/environ")]
        for number, pause in (signal.SIGSTOP, 17), (signal.SIGCONT, 0):
            for pid in rank0:
                os.kill(pid, number)
            time.sleep(pause if rank0 else 0)
    # rank 1 never sees the file that rank 0 has made; in the second run it sees it at its 4th try
    site.run("unshared", 2, "ENOENT:open:.h5.tmp-pid:1:0:1", during=suspend).ends(
        4, says=["rank 1 on host", "does not see", "all hosts share"]).leaves()
    site.run("late", 2, "ENOENT:open:.h5.tmp-pid:1:3:1").ends(0)


def case_no_room_for_models(site, ranks):
    outcome = site.run("models", ranks, "ENOSPC:alloc:.models.tmp:1:0", models=True)
    outcome.ends(4, says=["models", "make room"]).leaves()
    outcome = site.run("models", ranks, "ENOSPC:write:.models$:2:0", models=True)
    outcome.ends(4, says=["models", "make room"]).leaves("", ".models")
    site.continues(outcome, ranks, models=True)


def case_no_room_for_log(site, ranks):
    log = os.path.join(site.folder, "full.log")
    outcome = site.run("log", ranks, "ENOSPC:write:full.log:1:0", options=["--log", log])
    outcome.ends(0, says=["the frame of the wavelengths"])  # lines go to standard error instead
    if outcome.errors.count("No space left on device") > max(ranks, 1):
        outcome.fail("it is said more than once")


def case_no_room_for_status(site, ranks):
    outcome = site.run("status", ranks, "ENOSPC:write:.status.json:1:0")
    outcome.ends(0, says=["cannot write the status", "No space left on device"])
    if outcome.errors.count("cannot write the status") != 1:
        outcome.fail("it is said more than once")


case_read_only = leave_nothing("readonly", "EROFS:open:.tmp-:1:0", "Read-only file system",
                               "choose another output")


def case_full_file_system(site, ranks):
    """A real full file system, where this user may mount one; else nothing is tried."""
    folder = os.path.join(site.folder, "small")
    os.makedirs(folder, exist_ok=True)
    unshare = ["unshare", "--mount", "--map-root-user", "sh", "-c",
               'mount -t tmpfs -o size=48k none "$0" && exec "$@"', folder]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False,
                                                     capture_output=True).returncode != 0:
        print("SKIPPED: no file system of 48 kB may be mounted here")
        return
    path = os.path.join(folder, "full.h5")
    site.run("full", ranks, path=path, prefix=unshare).ends(4, says=["No space left", "make room"])


def case_slow_file_system(site, ranks):
    # each write takes less time than the watchdog allows, all seventy take more: the run goes on
    started = time.time()
    outcome = site.run("slow", ranks, f"slow={int(30 * site.watchdog)}:write:.h5$:1:0",
                       watchdog=site.watchdog)
    outcome.ends(0, says_not=["has not returned"])
    if time.time() - started < 1.5 * site.watchdog:
        outcome.fail("it was not slow")
    if differing(read(outcome.path), site.fits):
        outcome.fail("the result differs")
    # rank 0 waits for longer than that while rank 1 writes its models
    site.run("slowmodels", max(ranks, 2), f"slow={int(700 * site.watchdog)}:write:.models$:1:3:1",
             models=True, watchdog=site.watchdog).ends(0, says_not=["has not returned"])


case_write_never_returns = never_return(
    "hang", "hang:write:.h5$:4:1:0", "a collective write has not returned",
    "the same command continues")
case_creation_never_returns = never_return("hangnew", "hang:write:.h5.tmp-pid:3:1:0",
                                           "opening the output has not returned")
case_log_never_returns = never_return("hanglog", "hang:write:hang.log:1:1", "has not returned")


def case_suspended_for_longer_than_the_watchdog(site, ranks):
    def wake(process):
        # the fault has stopped all processes, which sleep longer than the watchdog allows
        time.sleep(2.5 * site.watchdog)
        os.kill(process.pid, signal.SIGCONT)
    outcome = site.run("asleep", 0, "stop:write:.h5$:3:1", watchdog=site.watchdog, during=wake)
    outcome.ends(0, says_not=["has not returned"])


def case_rank_dies(site, ranks):
    for what, first in (("kill", 3), ("abort", 20)):
        outcome = site.run("dies", max(ranks, 1),
                           f"{what}:write:.h5$:{first}:1:{max(ranks - 1, 0)}")
        if outcome.status == 0:  # the last rank had nothing to write any more
            continue
        site.continues(outcome, ranks)


def case_rank_dies_while_reading(site, ranks):
    last = max(ranks - 1, 0)
    site.continues(site.run("diesreading", max(ranks, 1),
                            f"kill:read:{os.path.basename(site.first)}:3:1:{last};"
                            f"kill:read:{os.path.basename(site.second)}:3:1:{last}"), ranks)


def check_second_is_lost(site, outcome, *parts):
    """Rows of the second input are UNREADABLE, as the run says; the others are undisturbed."""
    outcome.ends(3, says=parts)
    fits = read(outcome.path)
    lost = site.catalog["FILE"] == 1
    if not (fits["STATUS"][lost] == UNREADABLE).all():
        outcome.fail(f"STATUS {fits['STATUS']}")
    if differing(site.fits, fits, ~lost):
        outcome.fail(f"{differing(site.fits, fits, ~lost)} of the other input differ")


def retry(site, outcome, ranks, inputs):
    """Once the input is restored, --retry-failed gives the rows of an undisturbed run."""
    again = site.run(outcome.case, ranks, path=outcome.path, inputs=inputs,
                     options=["--retry-failed"]).ends(0)
    if differing(read(again.path), site.fits):
        again.fail("the rows tried again differ from an undisturbed run's")


def case_input_vanishes(site, ranks):
    # The file vanishes after the last rank has indexed it, so reading fails.  The last rank can
    # open the file once, the other ranks never.
    inputs = site.copy("vanish")
    last = max(ranks, 1) - 1
    faults = ["ENOENT:open:vanish-2.fits:%d:0:%d" % (1 + (rank == last), rank)
              for rank in range(last + 1)]
    outcome = site.run("vanish", ranks, ";".join(faults), inputs=inputs)
    check_second_is_lost(site, outcome, "vanish-2.fits", "No such file")
    retry(site, outcome, ranks, inputs)


def case_input_cannot_be_read(site, ranks):
    outcome = site.run("eio", ranks, "EIO:read:eio-2.fits:1:0", inputs=site.copy("eio"))
    outcome.ends(3, says=["eio-2.fits", "Input/output error"])


def case_input_changes_while_read(site, ranks):
    # the file's time changes, not its header, while the reader has it open
    n = 45 if ranks < 2 else 5
    outcome = site.run("touch", ranks, f"touch:read:touch-2.fits:{n}:1", inputs=site.copy("touch"))
    outcome.ends(3, says=["touch-2.fits", "changed while"])
    fits = read(outcome.path)
    lost = fits["STATUS"] == UNREADABLE
    if not lost.any() or (site.catalog["FILE"][lost] == 0).any():
        outcome.fail(f"STATUS {fits['STATUS']}")


def case_input_is_cut_while_read(site, ranks):
    ranks = min(ranks, 2)  # the rank that counts 45 reads must be the one that fits it
    outcome = site.run("cut", ranks, "cut:read:cut-2.fits:45:1", inputs=site.copy("cut"))
    outcome.ends(3, says=["cut-2.fits"])
    fits = read(outcome.path)
    if (fits["STATUS"][site.catalog["FILE"] == 0] != FITTED).any():
        outcome.fail(f"STATUS {fits['STATUS']}")


def case_input_never_answers(site, ranks):
    name = os.path.basename(site.second)
    for call, first, where in (("open", 1, "opening the file"), ("read", 3, "has not returned")):
        site.continues(site.run("silent", ranks, f"hang:{call}:{name}:{first}:1",
                                watchdog=site.watchdog).ends(70, says=[where, name]), ranks)


def case_library_never_answers(site, ranks):
    site.run("library", ranks, f"hang:open:{os.path.basename(site.lib)}:1:1:0",
             watchdog=site.watchdog).ends(70, says=["reading the library has not returned"]).leaves()


CASES = {k[len("case_"):]: v for k, v in list(globals().items()) if k.startswith("case_")}
