# SPDX-License-Identifier: BSD-3-Clause
"""`starmill bench`: counts and times of a fit add up; no test depends on the machine's speed.
`starmill doctor` says the same about this machine as Python."""

import socket

from base import *

N_STAR, N_SLOT = 6, 4
STAGES = ("read", "load", "prepare", "guess", "simplex", "polish", "profile", "final", "write",
          "other")
LIBRARY, SURVEY = coarse_survey(N_STAR)
FOLDER, BAD = new_folder("results"), put("bad.fits", content(SURVEY)[:5000])


def cells(text):
    """The cells of the rows of all tables."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()
            if line.startswith("| ")]


def tables(text):
    """Rows of all tables, as lists of texts, by their first cell."""
    return {row[0]: row for row in cells(text)}


def bench_fit(*args, **how):
    return starmill("bench", "fit", "--library", LIBRARY, "--threads", 1, "--slots", N_SLOT,
                    *args, SURVEY, timeout=900, **how)


class Fit(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.done = bench_fit("--repeat", 2, "--output", FOLDER, BAD)
        cls.rows = tables(cls.done.stdout)

    def test_unreadable_file_beside_a_good_one(self):
        self.assertEqual(self.done.returncode, 3, self.done.stdout + self.done.stderr)
        self.assertIn(str(N_STAR), self.rows)
        self.assertEqual(re.findall(r"^run (\d) of 2", self.done.stderr, re.M), ["1", "2"])
        self.assertEqual(os.listdir(FOLDER), [])  # nothing is left behind

    def test_evaluations_are_those_of_the_results(self):
        self.fit("fit.h5", "--quiet", SURVEY, lib=LIBRARY)
        table, rows = read(tmp("fit.h5")), self.rows
        n_value, n_jac = (sum(float(rows[s][k] or 0) for s in STAGES) for k in (1, 2))
        # printed with two digits
        self.assertAlmostEqual(n_value + n_jac, table["NEVAL"].mean(), delta=0.06)
        self.assertAlmostEqual(n_jac, table["NJAC"].mean(), delta=0.06)
        overview = rows[str(N_STAR)]
        self.assertAlmostEqual(float(overview[5]), table["NEVAL"].mean(), delta=0.051)
        self.assertAlmostEqual(float(overview[6]), table["NJAC"].mean(), delta=0.051)
        self.assertEqual(rows["simplex"][1:3], ["", ""])
        # a star has one or more profiles and one final evaluation; only the polish has Jacobians
        self.assertEqual(float(rows["final"][1]), 1)
        self.assertGreaterEqual(float(rows["profile"][1]), 1)
        self.assertGreaterEqual(float(rows["polish"][2]), 1)
        self.assertEqual([float(rows[s][2]) for s in ("final", "profile")], [0, 0])
        simplex = tables(bench_fit("--optimizer", "nelder-mead", "--repeat", 1).stdout)["simplex"]
        self.assertGreater(float(simplex[1]), 10)

    def test_stages_sum_to_the_time_of_a_star(self):
        self.assertEqual([s for s in self.rows if s in STAGES], list(STAGES))
        total = self.rows["total"]
        parts = sum(float(self.rows[s][3]) for s in STAGES)
        self.assertAlmostEqual(parts, float(total[3]), delta=0.0051)
        self.assertAlmostEqual(float(total[3]), float(self.rows[str(N_STAR)][3]), delta=0.006)
        for stage in STAGES:
            row = self.rows[stage]
            self.assertGreater(float(row[3]), -0.2)
            if row[4]:
                self.assertLessEqual(float(row[4]), float(row[3]))
        once = list(map(float, self.rows["CPU ms"][1:]))
        self.assertAlmostEqual(sum(once[:-1]), once[-1], delta=0.4)

    def test_head_says_what_ran_where(self):
        for part in (r"Measured on \d{4}-\d\d-\d\d with starmill", r"revision \w+", r"backend \w+",
                     re.escape(SURVEY), r"hybrid, 1 thread, 4 slots; median of 2 runs"):
            self.assertRegex(self.done.stdout, part)

    def test_a_signal_ends_it_and_leaves_nothing(self):
        folder = new_folder("stopped")
        process = start("bench", "fit", "--library", LIBRARY, "--optimizer", "nelder-mead",
                        "--repeat", 1000, "--output", folder, SURVEY)
        wait_until(lambda: glob.glob(os.path.join(folder, "*", "result.h5")), process)
        self.said_by(process, 75, signal.SIGTERM)
        self.assertEqual(os.listdir(folder), [])


class Crossover(ProgramTest):
    def measure(self, *args, n_gpu=None, keep=None):
        program = command("bench", "crossover", "--threads", 1, "--repeat", 1, *args)
        env = {"STARMILL_CROSSOVER": keep or tmp("none")}
        if n_gpu is not None:
            program[program.index(STARMILL)] = os.environ["STARMILL_EMULATED"]
            env["MILL_EMULATED_GPUS"] = str(n_gpu)
        done = ended(program, env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, [row for row in cells(done.stdout)
                             if row[0] in ("fit", "train", "particles")]

    def test_fits_of_all_stars_of_the_inputs(self):
        kept = tmp("kept")
        said, rows = self.measure("--library", LIBRARY, "--work", "fit", "--keep",
                                  SURVEY, keep=kept)
        # 1, 4, 16 of the 6 that there are
        self.assertEqual([row[:2] for row in rows], [["fit", "1"], ["fit", "4"], ["fit", "6"]])
        self.assertTrue(all(float(row[2]) > 0 for row in rows))
        if "GPU: SKIPPED: " in said:
            self.assertEqual({row[3] for row in rows}, {"SKIPPED"})
            self.assertIn("Nothing is kept", said)
            self.assertFalse(os.path.exists(kept))

    def test_without_inputs_fits_are_left_out(self):
        _, rows = self.measure("--most", 1000)
        self.assertEqual([row[:2] for row in rows],
                         [["train", "2"], ["train", "5"], ["train", "17"], ["train", "65"],
                          ["train", "259"], ["particles", "1000"]])

    @unittest.skipUnless(os.access(os.environ.get("STARMILL_EMULATED", ""), os.X_OK),
                         "only a build without CUDA has a starmill with emulated GPUs")
    def test_an_emulated_gpu(self):
        """An emulated GPU is slower than the CPU, so the measured choice is the CPU."""
        kept = tmp("kept-emulated")
        said, rows = self.measure("--work", "train", "--most", 20, "--keep", n_gpu=1, keep=kept)
        for row in rows:
            self.assertAlmostEqual(float(row[2]) / float(row[3]), float(row[4]), delta=0.1)
        self.assertIn("train: the CPU is faster at the largest size", said)
        self.assertEqual(content(kept, "r").splitlines()[1].split("\t")[:3], ["train", "0", "1"])
        short = put("short.yaml", "arms: [{name: b, min: 5100, max: 5200}]\nmax_starts: 1\n")
        said, rows = self.measure("--library", LIBRARY, "--config", short, "--work", "fit",
                                  "--most", 1, SURVEY, n_gpu=1)
        self.assertTrue(float(rows[0][3]) > 0, said)
        self.assertIn("SKIPPED", self.measure("--work", "particles", "--most", 1, n_gpu=0)[0])


class Write(ProgramTest):
    def test_ranks_write_together(self):
        for ranks in (0, 3):
            row = tables(run("bench", "write", "--rows", 2000, "--output", FOLDER,
                             ranks=ranks, timeout=300).stdout)[str(ranks or 1)]
            self.assertEqual(row[1], "2000")
            # one epoch writes all rows: each column in one piece
            self.assertLess(int(row[7]), 100 * (ranks or 1))
            self.assertEqual(os.listdir(FOLDER), [])


class Usage(ProgramTest):
    def test_mistakes(self):
        fit, here = ["fit", "--library", LIBRARY], [SURVEY]
        for args, parts, status in (
            ([], ["'fit', 'crossover' or 'write'"], 2), (fit, ["no input"], 2),
            (["crossover", "--work", "fit"], ["no input"], 2),
            (fit + ["--repeat", "0"] + here, ["--repeat", "0"], 2),
            (fit + ["--output", tmp("nowhere")] + here, [tmp("nowhere"), "--output"], 4),
            (["fit", "--library", tmp("none.h5")] + here, [tmp("none.h5")], 2),
            (["write"] + here, ["'write' takes no input"], 2),
            (["write", "--output", tmp("nowhere")], [tmp("nowhere"), "--output"], 4),
            (["crossover", "--backend", "cpu"] + here, ["--backend", "'crossover'"], 2)):
            self.assertOneLine(starmill("bench", *args), "starmill bench: ", *parts, status=status)
        done = starmill("bench", "crossover", ranks=2)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("one rank", done.stderr)


class Auto(ProgramTest):
    """--backend auto, where nothing was measured."""

    def run_fit(self, path, *args, status=0):
        return self.ends(status, "fit", "--library", LIBRARY, "--output", path,
                         "--log-level", "debug", "--quiet", SURVEY, *args,
                         env={"STARMILL_CROSSOVER": tmp("nothing-measured")})

    def test_auto_says_what_it_takes_and_continues_on_it(self):
        path = tmp("auto.h5")
        self.assertIn("backend auto: the CPU, as ", self.run_fit(path).stderr)
        self.assertTrue(attributes(path, "provenance")["DEVICE"].startswith(b"cpu"))
        unfinish(path, slice(1, None))
        self.assertIn(f"backend auto: {path} was begun on cpu", self.run_fit(path).stderr)
        # a result begun on a GPU that is not here is not continued on the CPU
        unfinish(path, slice(1, None))
        with h5py.File(path, "r+") as f:
            f["provenance"].attrs["DEVICE"] = np.bytes_("cuda NVIDIA Nothing sm_99")
        done = self.run_fit(path, status=4)
        # a GPU of this machine is of another kind
        self.assertRegex(done.stderr, "was begun on (a GPU|another device)")
        self.assertOneLine(done, path, "overwrite", status=4)
        self.assertNotIn("--backend cpu", done.stderr)
        # a plan needs no GPU
        for args in ([], ["--backend", "cuda"]):
            plan = self.run_fit(path, "--plan", *args)
            self.assertRegex(plan.stdout, r"(?m)^ranks +.* cuda$")
            self.assertRegex(plan.stdout, r"(?m)^time +unknown for cuda")
        self.run_fit(path, "--overwrite")


class OneRank(ProgramTest):
    def test_what_one_of_two_ranks_refuses(self):
        """If one rank refuses, both ranks end and one line says why; no rank waits."""
        odd = ["env", "STARMILL_WATCHDOG_S=10min"]
        write = command("bench", "write", "--rows", 50, "--output", FOLDER, "--config")
        one, two = (put(f"{n}.yaml", f"particles: 99\nproblems: {n}\n") for n in (1, 2))
        move = command("particles", "--overwrite", "--output", tmp("p.h5"), "--threads")
        fit = command("fit", "--output", tmp("f.h5"), "--library", LIBRARY, SURVEY)
        for good, bad, *says in (
                ([*move, 1, one], [*move, 5000, one], "starmill particles: --threads takes"),
                ([*move, 1, one], [*move, 1, two], "starmill particles: ", 'different configurations ("'),
                ([*move, 1, one], [*odd, *move, 1, one], "starmill particles: ", "STARMILL_WATCHDOG_S"),
                ([*write, put("w.yaml", "threads: 1\n")], [*write, tmp("no.yaml")], "starmill bench: ", "no.yaml"),
                (fit, odd + fit, "starmill fit: ", "STARMILL_WATCHDOG_S"),
                (command("doctor"), command("doctor", "--limit", 0), "starmill doctor: --limit takes")):
            for first, second in (good, bad), (bad, good):
                with self.subTest(first=first, second=second):
                    done = ended([MPIRUN, "-n", 1, *first, ":", "-n", 1, *second], timeout=60, cwd=TMP)
                    self.assertOneLine(done, *says, status=2)
                    self.assertEqual(done.stderr.count("starmill "), 1, done.stderr)


# Stands in for NVIDIA's management library: two GPUs, the second with broken memory.
DRIVER = r"""
#include <stdio.h>
#include <string.h>
typedef struct { char legacy[16]; unsigned number[5]; char bus[32]; } pci_info;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { snprintf(text, n, "570.1"); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, unsigned long *device) { *device = i + 1; return 0; }
int nvmlDeviceGetName(unsigned long device, char *text, unsigned n)
{ snprintf(text, n, "Make-believe %lu", device); return 0; }
int nvmlDeviceGetPciInfo_v3(unsigned long device, pci_info *pci)
{ memset(pci, 0, sizeof *pci); snprintf(pci->bus, 32, "00000000:%02lX:00.0", device); return 0; }
int nvmlDeviceGetMemoryInfo(unsigned long device, unsigned long long *memory)
{ memory[0] = 80000000000; memory[2] = device == 1 ? 20000000000 : 50000000000;
  memory[1] = memory[0] - memory[2]; return 0; }
int nvmlDeviceGetUtilizationRates(unsigned long device, unsigned *percent)
{ percent[0] = percent[1] = 7; return 0; }
int nvmlDeviceGetEccMode(unsigned long device, int *now, int *later) { *now = *later = 1; return 0; }
int nvmlDeviceGetTotalEccErrors(unsigned long device, int type, int counter, unsigned long long *n)
{ *n = device == 2 && type == 1 && counter == 0 ? 3 : 0; return 0; }
"""


class Doctor(ProgramTest):
    def ask(self, *args, status=0, ranks=0, env=None):
        """{"topic.name": (value, mark)} of all lines."""
        done = self.ends(status, "doctor", *args, ranks=ranks, cwd=TMP, env=env)
        found, topic, key = {}, "", ""
        *lines, last = done.stdout.splitlines()
        for line in lines:
            if line.startswith("    "):
                found[key] = (found[key][0], line.strip())
            elif line.startswith("  "):
                name, value = re.fullmatch(r"  (\S+) +(.*)", line).groups()
                key = f"{topic}.{name}"
                found[key] = (value, "")
            else:
                topic = line
        marks = [mark for _, mark in found.values()]
        n_failure, n_warning = (sum(mark.startswith(kind) for mark in marks)
                                for kind in ("failure", "warning"))
        self.assertRegex(last, rf"^{'ready' if status == 0 else 'not ready'}: {n_failure} failures?, "
                               rf"{n_warning} warnings?$")
        return found

    def test_this_machine(self):
        os.mkdir(tmp("out"))
        found = self.ask("--output", tmp("out"), "--library", os.path.join(SOURCE, "libraries", "fgk.h5"))
        self.assertEqual(os.listdir(tmp("out")), [])
        self.assertEqual(found["machine.host"][0], socket.gethostname())
        self.assertIn(f"{len(os.sched_getaffinity(0))} of them for rank 0", found["machine.cores"][0])
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertAlmostEqual(float(found["machine.memory"][0].split()[0]) / (memory / 1e9), 1,
                               places=3)
        disk = os.statvfs(tmp("out"))
        # others write to this disk too
        self.assertAlmostEqual(float(found["output.free"][0].split()[0]),
                               disk.f_bavail * disk.f_frsize / 1e9, delta=2)
        self.assertIn("yes", found["ranks.threads_of_mpi"][0])
        self.assertRegex(found["fit.backend"][0], "^(cpu x86-64-v|cuda )")
        self.assertRegex(found["fit.crossover"][0], "^none, so the CPU: .|measured 2")
        self.assertRegex(found["library.read"][0], r"^\d+ labels, \d+ arms?$")
        version = starmill("--version").stdout
        self.assertIn(found["program.HDF5"][0], version)
        if "built without CUDA" in version:
            self.assertEqual(found["cuda.devices"][0], "built without CUDA")

    def test_two_ranks_write_together(self):
        found = self.ask("--output", TMP, ranks=2)
        self.assertEqual(found["ranks.count"][0], "2")
        self.assertEqual(found["ranks.hosts"][0], "1, at most 2 ranks on one")
        self.assertIn("read back by all ranks", found["output.collective_write"][0])
        self.assertEqual([n for n in os.listdir(TMP) if "doctor" in n], [])

    def test_folders_that_cannot_be_used(self):
        mark = self.ask("--output", tmp("absent"), status=4)["output.writable"][1]
        self.assertRegex(mark, "^failure: .*" + re.escape(tmp("absent")))
        self.ask("--output", "/proc", status=4, ranks=2)
        found = self.ask("--output", TMP, status=4, ranks=2,
                         env=faults("EIO:write:/together$:1:0:1"))
        self.assertRegex(found["output.collective_write"][1], "^failure: .*together: cannot write")

    def test_gpus_that_only_the_driver_knows(self):
        cc = shutil.which("cc")
        if not cc:
            self.skipTest("no C compiler")
        os.mkdir(tmp("driver"))
        subprocess.run([cc, "-shared", "-fPIC", "-x", "c", "-", "-o",
                        tmp("driver/libnvidia-ml.so.1")], input=DRIVER, text=True, check=True)
        found = self.ask("--backend", "cpu", env={"LD_LIBRARY_PATH": tmp("driver")})
        self.assertEqual(found["gpu.driver"][0], "570.1")
        self.assertEqual(found["gpu.0"],
                         ("Make-believe 1, 80 GB (20 in use), ECC on, 00000000:01:00.0", ""))
        self.assertIn("3 uncorrected memory errors", found["gpu.1"][1])
        # and this program has no use for them
        self.assertIn("warning", found["cuda.devices"][1])

    def test_a_launcher_of_another_mpi(self):
        found = self.ask(status=70, env={"SLURM_STEP_NUM_TASKS": "4"})
        self.assertRegex(found["ranks.count"][1], "^failure: .*4 tasks")

    def test_an_environment_of_one_rank_alone(self):
        done = ended([MPIRUN, "-n", 1, *command("doctor"), ":", "-n", 1, "env", "STARMILL_WATCHDOG_S=10min",
                      *command("doctor")], cwd=TMP)
        self.assertEqual(done.returncode, 70, done.stdout)
        self.assertIn("    failure: the environment variable STARMILL_WATCHDOG_S", done.stdout)

    def test_limits_of_memory(self):
        """The least limit of the control group and its parents counts (Slurm sets such limits)."""
        own = ["unshare", "-m", "sh", "-c", """
            mount -t tmpfs none /sys/fs/cgroup && echo "$1" > /sys/fs/cgroup/self &&
            mount --bind /sys/fs/cgroup/self /proc/$$/cgroup && mkdir -p "/sys/fs/cgroup/$2" &&
            mkdir -p "/sys/fs/cgroup/$4" && echo "$3" > "/sys/fs/cgroup/$2/$0" &&
            echo "$5" > "/sys/fs/cgroup/$4/$0" && shift 5 && exec "$@" """]
        v1, v2 = "memory.limit_in_bytes", "memory.max"
        if ended([*own, v2, "0::/", ".", "max", ".", "max", "true"]).returncode != 0:
            self.skipTest("this user may not mount (unshare -m)")
        for name, group, *files, says in (
                (v2, "0::/job_1/step_0/task_0", "job_1/step_0/task_0", "max", "job_1", "3000000000", "3 GB"),
                (v2, "0::/job_1/step_0", "job_1/step_0", "4000000000", "job_1", "3000000000", "3 GB"),
                (v2, "0::/job_1/step_0", "job_1/step_0", "1000000000", "job_1", "3000000000", "1 GB"),
                (v2, "0::/", ".", "1000000000", "other", "4096", "1 GB"),
                (v1, "7:memory:/job_1/step_0", "memory/job_1/step_0", str(2**63 - 4096),
                 "memory/job_1", "2000000000", "2 GB"), (v2, "0::/job_1", "job_1", "max", ".", "max", "")):
            with self.subTest(group=group, files=files):
                done = ended([*own, name, group, *files, *command("doctor", "--output", TMP)])
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(re.findall("memory_limit +(.*) for this job", done.stdout), [says] * bool(says))

    def test_a_backend_that_is_not_there(self):
        if "built without CUDA" not in starmill("--version").stdout:
            self.skipTest("built with CUDA")
        self.assertIn("without CUDA", self.ask("--backend", "cuda", status=2)["fit.backend"][1])

    def test_usage(self):
        for args, part in ((["--outputt"], "--outputt"), (["here"], "here"),
                           (["--limit", "0"], "--limit"), (["--backend", "gpu"], "gpu"),
                           (["--library", tmp("absent.h5")], tmp("absent.h5"))):
            done = self.ends(2, "doctor", *args)
            self.assertRegex(done.stderr, r"\Astarmill doctor: .*" + re.escape(part) + r".*\n\Z")
