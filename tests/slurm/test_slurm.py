# SPDX-License-Identifier: BSD-3-Clause
"""The job scripts in a private Slurm on this machine: they run, are requeued and finish.
Skipped if Slurm's daemons are missing or cannot run.  Tests that mostly wait run in parallel."""

import shlex
import threading

from survey import *

# SIGTERM raises KeyboardInterrupt, which no test catches, so that Slurm's daemons are stopped
signal.signal(signal.SIGTERM, signal.default_int_handler)

# Slurm looks at time limits every 30 s.  A job of 1 min that asks for a warning 25 s before its
# end gets this warning 5 to 35 s after its start, later on a busy machine.  The work takes longer.
LONG_WORK_S = 56.0
WARN_S = 25
PER_FILE = 12

PACE = '''#!{python}
"""Run starmill on a share of a CPU, so that little work takes long; pass on signals."""
import os, signal, subprocess, sys, time
SHARE, TICK_S = {share}, 0.5  # a tick is the same for all ranks, lest they wait for each other
if "--output" not in sys.argv:  # help, for starmill-submit
    os.execv({starmill!r}, [{starmill!r}] + sys.argv[1:])
output = sys.argv[sys.argv.index("--output") + 1]
child = subprocess.Popen([{starmill!r}] + sys.argv[1:])
asked = []
def forward(number, frame):
    asked.append(number)
    child.send_signal(signal.SIGCONT)
    child.send_signal(number)
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, forward)
def cpu_s():
    with open("/proc/%d/stat" % child.pid) as f:
        word = f.read().rpartition(")")[2].split()
    return (int(word[11]) + int(word[12])) / os.sysconf("SC_CLK_TCK")
used = None
while child.poll() is None:
    end = (time.time() // TICK_S + 1) * TICK_S
    if asked or not os.path.exists(output):
        time.sleep(0.02)
        continue
    used = cpu_s() if used is None else used + SHARE * TICK_S
    while child.poll() is None and cpu_s() < used and not asked:
        time.sleep(0.01)
    if child.poll() is None and not asked and time.time() < end:
        child.send_signal(signal.SIGSTOP)
        while time.time() < end and not asked:
            time.sleep(0.01)
        child.send_signal(signal.SIGCONT)
status = child.returncode
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
'''

class Slurm:
    def __init__(self):
        self.dir = None
        self.tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mini-slurm")
        self.environment = dict(ENVIRONMENT)

    def check(self):
        missing = [p for p in ("munged", "slurmctld", "slurmd", "sbatch", "srun")
                   if not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
        if missing:
            skip("no %s (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)"
                 % " ".join(missing))

    def start(self):
        self.dir = tempfile.mkdtemp(prefix="mill-slurm.", dir="/tmp")  # a short path for sockets
        atexit.register(self.stop)  # after Ctrl-C too, and before the folder of the jobs goes
        # as many CPUs and GPUs a node as the shipped scripts ask for
        settings = {"NODES": "5", "CPUS": "64", "GPUS": "4", "OWNER": str(os.getpid())}
        done = subprocess.run(
            [self.tool, "start", self.dir], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE,
            env=dict(os.environ, **{"MINI_SLURM_" + k: v for k, v in settings.items()}))
        if done.returncode != 0:
            shutil.rmtree(self.dir, ignore_errors=True)
            skip("a private Slurm cannot run here: " + done.stderr[-2000:])
        for line in done.stdout.splitlines():
            for word in shlex.split(line.replace("export ", "", 1)):
                name, _, value = word.partition("=")
                self.environment[name] = value

    def stop(self):
        if not self.dir:
            return
        subprocess.run([self.tool, "discard", self.dir], check=False, timeout=PATIENCE)
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir = None

    def call(self, *args, cwd=None, **more):
        done = subprocess.run(
            list(args), env=dict(self.environment, **more), cwd=cwd, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE)
        if done.returncode != 0:
            raise AssertionError("%s\n%s%s" % (" ".join(args), done.stdout, done.stderr))
        return done.stdout

    def submit(self, *args, **how):
        return re.search(r"Submitted batch job (\d+)", self.call(*args, **how)).group(1)

    def states(self, job):
        return self.call("squeue", "--noheader", "--jobs", job, "--states", "all", "--array",
                         "--format", "%T").split()

    def wait(self, job, *want, limit_s=150):
        """Wait until every task of the job is in one of these states."""
        end = time.time() + limit_s
        while True:
            states = self.states(job)
            if states and all(s in want for s in states):
                return states
            if time.time() > end:
                raise AssertionError("job %s is %s, not %s" % (job, states, want))
            time.sleep(0.2)

    def finish(self, job, limit_s=150):
        return self.wait(job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL",
                         "OUT_OF_MEMORY", "DEADLINE", limit_s=limit_s)

    def field(self, job, name):
        return re.findall(r"\b%s=(\S+)" % name, self.call("scontrol", "show", "job", job))


SYSTEM = Slurm()
LONG = {}  # the job that is requeued


BY_MPIRUN = shlex.quote(MPIRUN) + ' -n "${SLURM_NTASKS:-1}"'


def launcher():
    """srun where it can start this machine's MPI."""
    version = subprocess.run([MPIRUN, "--version"], stdout=subprocess.PIPE, text=True,
                             check=False).stdout
    if "Open MPI" in version and "pmix" in subprocess.run(
            ["srun", "--mpi=list"], env=SYSTEM.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False).stdout:
        return "srun --mpi=pmix --kill-on-bad-exit=1"
    return BY_MPIRUN


def site(name, program, *more):
    return put(name, "\n".join((
        "SITE_PROGRAM=" + shlex.quote(program),
        "SITE_LAUNCHER=(%s)" % launcher(),
        "SITE_GPU_BACKEND=cpu # the GPUs here are make-believe",
        "SITE_WARN_S=%d" % WARN_S,
        "SITE_CPU_NODE_RANKS=2",
        "SITE_POLL_S=1",
        # more ranks than cores: their threads would only be in each other's way
        "site_setup() { export OMP_NUM_THREADS=1; }") + more) + "\n")


class Beside(threading.Thread):
    """A daemon thread for a test that runs from the start, in parallel with other tests."""

    waiting = []  # tests that are to run so

    def __init__(self, test):
        super().__init__(daemon=True)
        self.test, self.reason = test, None

    def run(self):
        try:
            self.test(Submitted(self.test.__name__))
        except BaseException as reason:
            self.reason = reason

    def result(self):
        self.join(300)
        if self.is_alive():
            raise AssertionError("%s does not end" % self.test.__name__)
        if self.reason:
            raise self.reason


def beside(test):
    """Of a test of Submitted that mostly waits."""
    thread = Beside(test)
    Beside.waiting.append(thread)
    return functools.wraps(test)(lambda self: thread.result())


def setUpModule():
    SYSTEM.check()
    prepare()
    SYSTEM.start()
    try:
        write_sites()
        submit_long()
        for thread in Beside.waiting:
            thread.start()
    except BaseException:
        SYSTEM.stop()
        raise


def tearDownModule():
    SYSTEM.stop()


def prepare():
    """Library, survey, and what every job's result must be."""
    run("simulate", "--library", coarse_library("lib.h5"), "--output", tmp("survey"), "--stars",
        8 * PER_FILE, "--per-file", PER_FILE, "--seed", 3, "--sn", "20,60", "--quiet")
    for name, n_file in (("few.txt", 2), ("one.txt", 1)):
        put(name, "".join("survey/coadd-mock-%05d.fits\n" % i for i in range(n_file)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = starmill("fit", *FIT, "--catalog", tmp("survey/catalog.txt"), "--output",
                    tmp("reference.h5"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    LONG["cpu_s"] = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def write_sites():
    site("site.conf", STARMILL)
    for name, work_s, n_rank in (("long", LONG_WORK_S, 1), ("slow", 60.0, 1), ("two", 120.0, 2),
                                 ("four", 30.0, 4)):
        pace = write_script("pace-" + name, PACE.format(
            python=sys.executable, share=LONG["cpu_s"] / work_s / n_rank, starmill=STARMILL))
        # "slow" is launched by mpirun, which also has to pass signals on
        site("site-%s.conf" % name, pace,
             *(["SITE_LAUNCHER=(%s)" % BY_MPIRUN] if name == "slow" else []))


def submit_long():
    """Slurm first checks time limits after 30 s: the first start is long, the second short."""
    LONG["job"] = submit("long", "gpu", "--time", 1, fit=("--output", tmp("long.h5"), "--catalog",
                                                         tmp("survey/catalog.txt")))
    LONG["begin"] = time.time()


# one thread, a slow optimizer and frequent writes, so that it has rows when it stops
FIT = ("--library", tmp("lib.h5"), "--threads", "1", "--slots", "4", "--optimizer", "nelder-mead",
       "--config", tmp("fit.yaml"))
put("fit.yaml", "write_interval: 0.2\n")


def submit(site_name, kind, *options, fit, cwd=None):
    name = "site.conf" if site_name == "site" else "site-%s.conf" % site_name
    args = [SUBMIT, "--site", tmp(name), "--rows", 96, *options, kind, *FIT, *fit]
    return SYSTEM.submit(*(str(a) for a in args), cwd=cwd)


class Jobs(ProgramTest):
    def log(self, path):
        return content(path, "r")

    def assertSame(self, path, want="reference.h5", rows=slice(None)):
        """/fits and /catalog have the bits of an undisturbed run."""
        for group in ("fits", "catalog"):
            have, all_rows = read(path, group), read(tmp(want), group)
            self.assertEqual(differing(have, {k: v[rows] for k, v in all_rows.items()}), [], group)

    def assertState(self, job, state, log, code="0:0"):
        self.assertEqual(SYSTEM.finish(job), [state], self.log(log))
        self.assertEqual(SYSTEM.field(job, "ExitCode"), [code], self.log(log))


class Scripts(Jobs):
    def by_hand(self, script, out):
        """Submit a shipped script unchanged, from the folder above slurm/."""
        return SYSTEM.submit(
            "sbatch", "--output", tmp(out + ".log"), os.path.join("slurm", script), *FIT, "--catalog",
            tmp("one.txt"), "--output", tmp(out), cwd=os.path.dirname(SLURM), STARMILL_SITE=tmp("site.conf"))

    def test_as_they_come(self):
        jobs = [(script, self.by_hand(script + ".sbatch", script + ".h5"))
                for script in ("cpu", "gpu", "node", "nodes", "requeue")]
        for script, job in jobs:
            with self.subTest(script=script):
                out = tmp(script + ".h5")
                self.assertState(job, "COMPLETED", out + ".log")
                self.assertSame(out, rows=slice(0, PER_FILE))
                n_rank = {"gpu": 1, "nodes": 8}.get(script, 4)
                self.assertIn("(%d rank" % n_rank, self.log(out + ".log"))

    def test_slurm_takes_every_script(self):
        for name in sorted(os.listdir(SLURM)):
            if name.endswith(".sbatch"):
                SYSTEM.call("sbatch", "--test-only", os.path.join(SLURM, name))


class Submitted(Jobs):
    def test_array(self):
        job = submit("site", "array", "--parts", 3, "--at-once", 2, fit=(
            "--catalog", tmp("survey/catalog.txt"), "--output", tmp("array.h5")))
        states = SYSTEM.finish(job)
        log = "".join(self.log(tmp("array.parts/part-%04d.log" % i)) for i in range(3))
        self.assertEqual(states, ["COMPLETED"] * 3, log)
        parts = [tmp("array.parts/part-%04d.h5" % i) for i in range(3)]
        self.assertEqual(sorted(len(read(p)["STATUS"]) for p in parts), [24, 36, 36])
        # the second job makes of them the table of one run
        wait_until(lambda: os.path.exists(tmp("array.h5")))
        self.assertSame(tmp("array.h5"))

    @beside
    def test_array_task_is_requeued(self):
        # One task gets the signal by which Slurm warns of the time limit; the other is untouched.
        # The last task, job_1, has the job number of the array itself.
        job = submit("slow", "array", "--parts", 2, "--no-merge", fit=(
            "--catalog", tmp("few.txt"), "--output", tmp("task.h5")))
        self.some_rows(tmp("task.parts/part-0001.h5"))
        SYSTEM.call("scancel", "--batch", "--signal=USR1", job + "_1")
        states = SYSTEM.finish(job)
        log = self.log(tmp("task.parts/part-0001.log"))
        self.assertEqual(states, ["COMPLETED"] * 2, log)
        self.assertIn("requeued", log)
        self.assertIn("start 1", log)
        self.assertNotIn("requeued", self.log(tmp("task.parts/part-0000.log")))
        whole = read(tmp("reference.h5"))
        for i in range(2):
            rows = slice(i * PER_FILE, (i + 1) * PER_FILE)
            self.assertEqual(differing(read(tmp("task.parts/part-%04d.h5" % i)),
                                       {k: v[rows] for k, v in whole.items()}), [])

    @beside
    def test_a_node_is_lost(self):
        """One of two of a job, which is requeued."""
        out, log = tmp("lost.h5"), tmp("lost.h5.log")
        job = submit("four", "cpu", "--nodes", 2, fit=(
            "--catalog", tmp("survey/catalog.txt"), "--output", out))
        self.some_rows(out)
        nodes = SYSTEM.call("scontrol", "show", "hostnames", SYSTEM.field(job, "NodeList")[0])
        SYSTEM.call(SYSTEM.tool, "lose", SYSTEM.dir, nodes.split()[-1])
        self.assertState(job, "COMPLETED", log)
        self.assertIn("start 1", self.log(log))
        self.assertSame(out)

    def some_rows(self, path):
        """Wait until some rows of a result are done, and not all."""
        wait_until(lambda: has_rows(path), pause=0.1)  # the jobs need the cores
        self.assertFalse((read(path)["STATUS"] == FITTED).all())

    def test_names_are_only_names(self):
        """No character of a path means anything to a shell or to Slurm."""
        folder = new_folder("it's $(touch pwned) \"%j\" `touch pwned` ; touch pwned #")
        os.symlink(tmp("survey"), os.path.join(folder, "a b*"))
        put(os.path.join(folder, "list&.txt"),
            "a b*/coadd-mock-00000.fits\na b*/coadd-mock-00001.fits\n")
        job = submit("site", "gpu", "--time", 5, cwd=folder, fit=(
            "--catalog", "list&.txt", "--output", "out $HOME.h5"))
        out = os.path.join(folder, "out $HOME.h5")
        states = SYSTEM.finish(job)
        self.assertEqual(sorted(os.listdir(folder)), sorted([
            "a b*", "list&.txt", *("out $HOME.h5" + end for end in (
                "", ".log", ".sbatch", ".status.json"))]))
        self.assertEqual(states, ["COMPLETED"], self.log(out + ".log"))
        self.assertEqual(differing(read(out), {
            k: v[:2 * PER_FILE] for k, v in read(tmp("reference.h5")).items()}), [])

    def test_rows_are_counted(self):
        """Only those that are selected, by the program."""
        ids = pyfits.getdata(tmp("survey/coadd-mock-00000.fits"), "FIBERMAP")["TARGETID"][:5]
        put("ids.txt", "".join("%d\n" % i for i in ids))
        here = put("here.conf", "SITE_PROGRAM=no\nsite_setup() { SITE_PROGRAM=%s; }\n"
                          % shlex.quote(STARMILL))
        args = [SUBMIT, "--site", here, "--dry-run"]
        fit = [*FIT, "--catalog", tmp("few.txt"), "--output", tmp("plan.h5")]
        put("bad.txt", content(tmp("few.txt"), "r") + "absent.fits\n")
        ids = pyfits.getdata(tmp("survey/coadd-mock-00001.fits"), "FIBERMAP")["TARGETID"]
        priors = put("priors.fits", "")
        bintable({"TARGETID": ids, "TEFF": ("D", ids * 0 + 5000), "TEFF_ERR": ("D", ids * 0 + 100)}
                 ).writeto(priors, overwrite=True)
        for before, after, status, says in (
                ([], ["--object-file", tmp("ids.txt")], 0, " 5 rows in 2 files;"),
                (["--count", 1], ["--object-file", tmp("ids.txt")], 0, " 10 rows in 2 files, counted in 1 of them;"),
                (["--count", 1], ["--prior-table", priors], 0, " 24 rows in 2 files, counted in 1"),
                ([], ["--prior-table", priors, "--catalog", tmp("one.txt")], 2, "--plan ended with"),
                ([], ["--catalog", tmp("bad.txt")], 0, f" {2 * PER_FILE} rows in 3 files;"),
                ([], ["--object", 7], 2, "finds no rows"), ([], ["--npoly", "none"], 2, "--plan ended with status 2")):
            done = ended([*args, *before, "gpu", *fit, *after])
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(says, done.stderr)

    @beside
    def test_stop_file_and_cancel(self):
        out, log = tmp("stop.h5"), tmp("stop.h5.log")
        fit = ("--catalog", tmp("survey/catalog.txt"), "--output", out)
        job = submit("two", "cpu", "--time", 5, fit=fit)
        self.some_rows(out)
        open(out + ".stop", "w").close()
        self.assertState(job, "FAILED", log, code="75:0")
        self.assertEqual(SYSTEM.field(job, "Restarts"), ["0"])
        self.assertIn("(2 ranks", self.log(log))
        os.remove(out + ".stop")
        # a cancelled job stays cancelled, and what it had is kept
        done = read(out)["STATUS"] == FITTED
        self.assertTrue(0 < done.sum() < len(done))
        job = submit("slow", "gpu", "--time", 5, fit=fit)
        wait_until(lambda: "job %s start 0: " % job in self.log(log), seconds=60, pause=0.1)
        SYSTEM.call("scancel", job)
        self.assertEqual(SYSTEM.finish(job), ["CANCELLED"])
        time.sleep(1)
        self.assertEqual(SYSTEM.states(job), ["CANCELLED"])
        self.assertState(submit("site", "gpu", "--time", 5, fit=fit), "COMPLETED", log)
        self.assertSame(out)
        # three jobs, one log
        self.assertEqual(len(set(re.findall(r"job (\d+) start", self.log(log)))), 3)


class TimeLimit(Jobs):
    """Named to run last: its job has been running since the start."""

    def test_work_longer_than_the_limit(self):
        out, log = tmp("long.h5"), tmp("long.h5.log")
        job = LONG["job"]
        self.assertState(job, "COMPLETED", log)
        text = self.log(log)
        n_start = int(SYSTEM.field(job, "Restarts")[0])
        print("%.0f s, %d requeues" % (time.time() - LONG["begin"], n_start))
        self.assertGreaterEqual(n_start, 1)
        # the last start may be warned too, and finish before it has to stop
        self.assertIn(text.count("the warning before the time limit") - n_start, (0, 1), text)
        # the log of every start is there
        self.assertEqual(sorted(set(re.findall(r"start (\d+): ", text)), key=int),
                         [str(i) for i in range(n_start + 1)])
        self.assertNotIn("--overwrite", text)
        self.assertSame(out)
