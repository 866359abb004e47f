# SPDX-License-Identifier: BSD-3-Clause
"""A run that is stopped or killed is continued by the same command.

What comes out at the end is what an uninterrupted run gives, bit for bit."""

from common import *  # noqa: F403
import kill_runs

# at least a second of work for each rank: it must still run when the first rows are seen
N_MANY = 200  # of nelder-mead
N_KILL = 8
N_STAR = {"nelder-mead": 20, "hybrid": 160}
OFTEN = ["--config", put("often.yaml", "write_interval: 0.1\n")]


@functools.cache
def options(optimizer):
    """Options and input that all runs with an optimizer share."""
    return [*OFTEN, "--optimizer", optimizer, "--threads", 1, "--slots", 1,
            cut(f"{optimizer}.fits", range(N_STAR[optimizer]))]


@functools.cache
def undisturbed(optimizer):
    """Rows and catalogue of an undisturbed run; it also leaves its models."""
    path = tmp(f"{optimizer}.h5")
    run("fit", "--library", library(), "--output", path, "--models", path + ".models",
        *options(optimizer))
    return read(path), read(path, "catalog")


class Stop(EndToEnd):
    def interrupt(self, optimizer, number, ranks):
        """Start a fit and send the signal once it has rows; return its arguments and output."""
        path = tmp(f"{optimizer}-{number}-{ranks}.h5")
        args = ["--library", library(), "--output", path, *options(optimizer)]
        process = start("fit", *args, ranks=ranks)
        wait_until(lambda: has_rows(path), process)
        self.assertIn("continue", self.said_by(process, 75, number)[0])
        return args, path

    def assertContinues(self, optimizer, number, ranks):
        args, path = self.interrupt(optimizer, number, ranks)
        part = read(path)
        done = part["STATUS"] == FITTED
        self.assertTrue(0 < done.sum() < len(done), f"{done.sum()} of {len(done)}")
        run("fit", *args, ranks=2)
        table, catalog = read(path), read(path, "catalog")
        self.assertTrue((table["STATUS"] == FITTED).all())
        whole, whole_catalog = undisturbed(optimizer)
        self.assertEqual((differing(table, whole), differing(catalog, whole_catalog)), ([], []))
        # and so were the rows that were there before
        self.assertEqual(differing(part, whole, done), [])

    def test_sigterm(self):
        self.assertContinues("nelder-mead", signal.SIGTERM, 0)

    def test_sigusr1_under_mpirun(self):
        self.assertContinues("hybrid", signal.SIGUSR1, 2)


class Asked(EndToEnd):
    """Other ways to ask for an orderly stop, and the moments at which they may come."""

    @classmethod
    def setUpClass(cls):
        cls.few = options("nelder-mead")[-1]
        cls.two = cut("two.fits", range(2))
        cls.many = cut("many.fits", range(N_MANY))  # some ten seconds

    def line(self, path, *options, ranks=0, faults=None, hung="", stars=None):
        """Command line of a run, of few stars by default.  faults: for tests/faults/fault_shim.c,
        which makes the file `hung` once a call hangs."""
        launch = [MPIRUN, "-n", str(ranks)] if ranks else []
        if faults:
            launch += ["env", "LD_PRELOAD=" + SHIM, "FAULTS=" + faults, "FAULTS_COUNT=" + hung]
        return [*launch, STARMILL, "fit", "--library", library(), "--output", path, *OFTEN,
                "--optimizer", "nelder-mead", "--threads", "1", "--slots", "1",
                *options, stars or self.few]

    def start(self, path, *options, watchdog="600", **how):
        return begun(self.line(path, *options, **how), {"STARMILL_WATCHDOG_S": watchdog})

    def end(self, process, status, *says):
        out, errors = self.said_by(process, status)
        for text in says:
            self.assertIn(text, out + errors)

    def test_stop_file(self):
        path, stop = tmp("file.h5"), tmp("file.h5.stop")
        process = self.start(path, ranks=2, stars=self.many)
        wait_until(lambda: has_rows(path), process)
        open(stop, "w").close()
        self.end(process, 75, f"stop file {stop}", f"remove the stop file {stop}")
        self.assertLess((read(path)["STATUS"] == FITTED).sum(), N_MANY)
        # the stop file is the user's: it stays, and the next start says so
        again = ended(self.line(path, stars=self.many))
        self.assertOneLine(again, "not started", stop, "remove it", status=75)
        os.remove(stop)

    def test_stop_file_of_another_name(self):
        path, stop = tmp("named.h5"), tmp("halt")
        process = self.start(path, "--stop-file", stop, stars=self.many)
        wait_until(lambda: has_rows(path), process)
        open(stop, "w").close()
        self.end(process, 75, stop)

    def test_time_limit(self):
        # one second is less than it takes to end: nothing is begun
        path = tmp("limit.h5")
        self.end(self.start(path, "--time-limit", "1"), 75, "--time-limit", "command again")
        self.assertFalse(os.path.exists(path))
        # less than the work takes; a very slow machine does not even begin
        out, errors = self.said_by(self.start(path, "--time-limit", "0:00:07", stars=self.many,
                                              faults="slow=200:read:/many.fits$:50:0"), 75)
        self.assertIn("--time-limit", errors)
        self.assertTrue("continue" in out or "command again" in errors, out + errors)

    def test_time_limit_of_the_slurm_job(self):
        line = self.line(tmp("auto.h5"), "--time-limit", "auto")
        run = ended(line, {"SLURM_JOB_END_TIME": str(int(time.time()) + 2)})
        self.assertEqual(run.returncode, 75, run.stderr)
        self.assertIn("--time-limit", run.stderr)
        run = ended(["env", "-u", "SLURM_JOB_END_TIME", *line])
        self.assertOneLine(run, "SLURM_JOB_END_TIME", "give a time", status=2)

    def test_signal_while_indexing(self):
        files = [shutil.copy(self.two, tmp(f"index{i}.fits")) for i in range(6)]
        path = tmp("indexing.h5")
        process = self.start(path, *files, faults="stop:open:/index2.fits$:1:1")
        wait_until(lambda: is_suspended(process.pid), process)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        self.end(process, 75, "give the same command again")
        self.assertFalse(os.path.exists(path))

    def test_signal_while_the_output_is_opened(self):
        # the first open makes room for the file, the second is for HDF5
        cases = [("open", "hang:open:OUT.tmp-pid:2:1", 0, signal.SIGTERM, "signal 15"),
                 ("sync", "hang:sync:OUT.tmp-pid:1:1", 0, signal.SIGINT, "signal 2"),
                 # a call that holds its thread where no signal reaches it
                 ("deaf", "deaf:rename:OUT$:1:1", 0, signal.SIGTERM, "signal 15"),
                 ("rank", "hang:open:OUT$:1:1:1", 2, signal.SIGUSR1, "stopped")]
        paths = [tmp(f"hangs-{name}.h5") for name, *_ in cases]
        runs = [self.start(path, faults=fault.replace("OUT", os.path.basename(path)), ranks=ranks,
                           hung=tmp("hung-" + name), stars=self.two)
                for path, (name, fault, ranks, *_) in zip(paths, cases)]
        for run, (name, *_, number, _) in zip(runs, cases):
            wait_until(lambda: os.path.exists(tmp("hung-" + name)), run)
            run.send_signal(number)
        for run, (*_, says) in zip(runs, cases):
            self.end(run, 75, says, "opening the output has not returned",
                     "the same command continues")
        for path in paths:
            again = ended(self.line(path, stars=self.two))
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(sorted(glob.glob(glob.escape(path) + "*")),
                             [path, path + ".status.json"])

    def test_requeued_job_with_overwrite_keeps_its_models(self):
        path, (whole, _) = tmp("own.h5"), undisturbed("nelder-mead")
        options = ("--overwrite", "--models", path + ".models")
        job = {"SLURM_JOB_ID": "4711"}
        process = begun(self.line(path, *options), {**job, "SLURM_RESTART_COUNT": "0"})
        wait_until(lambda: has_rows(path), process)
        process.send_signal(signal.SIGUSR1)
        self.end(process, 75, "continue")
        again = ended(self.line(path, *options), {**job, "SLURM_RESTART_COUNT": "1"})
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("an earlier start of this Slurm job", again.stderr)
        self.assertEqual(differing(read(path), whole), [])
        self.assertEqual(differing(*map(kill_runs.read_models, (path, tmp("nelder-mead.h5")))), [])

    def test_second_signal_stops_at_once(self):
        # also where a write never returns
        path, hung = tmp("twice.h5"), tmp("twice.hung")
        process = self.start(path, faults=f"hang:write:{os.path.basename(path)}$:30:0", hung=hung)
        wait_until(lambda: os.path.exists(hung), process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)  # launchers pass one wish on twice
        time.sleep(1.2)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.end(process, 128 + signal.SIGTERM, "stopped at once by a second signal")
        # as after any kill
        self.assertTrue((read(path)["STATUS"] == 0).any())
        self.assertEqual(not_whole(path), [])


class Kill(EndToEnd):
    """Some kills of campaigns/kill: the file opens, its rows are whole, the run continues."""

    def test_killed_at_random(self):
        options = [*OFTEN, "--threads", "1", "--optimizer", "levenberg-marquardt", "--quiet"]
        campaign = kill_runs.Campaign(library(), [cut("a.fits", range(10)),
                                                  cut("b.fits", range(50, 60))],
                                      options, TMP, seed=os.getpid(), most_ranks=2)
        print("seed", os.getpid())
        life = 0
        try:
            while campaign.count["kills"] < N_KILL:
                life += 1
                campaign.kill_once(f"life{life}")
        except kill_runs.Failed as failure:
            self.fail(f"seed {os.getpid()}: {failure}")
        self.assertGreaterEqual(campaign.count["kills"], N_KILL)
