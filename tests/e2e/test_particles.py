# SPDX-License-Identifier: BSD-3-Clause
"""`starmill particles`: densities against solutions; the same bytes from any number of ranks and
after a kill.  Emulated GPUs give the CPU's results.  A refusal is one line that says what to do.
Limits of the emulation: tests/cuda_emulation/cuda_runtime.h."""

import math
from unittest import mock

import base
from base import *  # noqa: F403

EMULATED = os.environ.get("STARMILL_EMULATED", "")

OU = """particles: 4000
steps: 20
step: 0.05
seed: 7
scheme: heun
potential: harmonic
rate: 1
start_centre: 1
start_spread: 0.5
grid: 40
times: [0, 0.5, 1]
"""
BOX = "boundary: reflecting\nlow: 0\nhigh: 1\nstart_centre: 0.5\n"


class Particles(ProgramTest):
    def job(self, out, text, *options, status=0, ranks=0, env=None):
        return self.ends(status, "particles", put("config.yaml", text), "--output", tmp(out),
                         "--threads", 1, *options, ranks=ranks, env=env)

    def refused(self, text, *says, status=2, more=(), **environment):
        done = self.job("refused.h5", text, *more, status=status, **environment)
        self.assertOneLine(done, "starmill particles: ", *says, status=status)
        self.assertEqual([n for n in os.listdir(TMP) if n.startswith("refused")], [])

    def test_ornstein_uhlenbeck(self):
        """Within 5 standard errors of 4000 particles, plus the error of Heun's scheme, 1e-3."""
        self.job("ou.h5", OU + "positions: true\n")
        with h5py.File(tmp("ou.h5"), "r") as f:
            np.testing.assert_array_equal(f["STATUS"], 1)
            np.testing.assert_allclose(f["TIME"], [0, 0.5, 1])
            x, density, moments = f["X1"][:], f["DENSITY"][0], f["MOMENTS"][0]
            position = f["POSITION"][0, :, 0]
        for k, t in enumerate((0, 0.5, 1)):
            mean, var = math.exp(-t), 0.25 * math.exp(-2 * t) + 1 - math.exp(-2 * t)
            m = moments[round(t / 0.05)]
            self.assertEqual(m[0], 1)
            self.assertLess(abs(m[1] - mean), 5 * math.sqrt(var / 4000) + 1e-3)
            self.assertLess(abs(m[4] - var), 5 * var * math.sqrt(2 / 4000) + 1e-3)
            h = math.sqrt(var) * 4000**-0.2
            truth = np.exp(-0.5 * (x - mean) ** 2 / (var + h * h)) / math.sqrt(
                2 * math.pi * (var + h * h))
            error = 5 * np.sqrt(truth / (2 * math.sqrt(math.pi) * h * 4000)) + 1e-3
            self.assertTrue(np.all(abs(density[k] - truth) < error))
        self.assertAlmostEqual(position.mean(), moments[-1, 1], places=12)
        self.assertAlmostEqual(position.var(ddof=1), moments[-1, 4], places=12)

    def test_problems_ranks_and_a_kill(self):
        text = OU + "problems:\n" + "".join(
            f"  - {{rate: {1 + i / 4}, diffusion: {2 - i / 4}}}\n" for i in range(5))
        self.job("one.h5", text)
        for ranks in (2, 6):
            self.job("ranks.h5", text, "--overwrite", ranks=ranks)
            self.assertEqual(content(tmp("ranks.h5")), content(tmp("one.h5")))
        # a run that died leaves a file in which some problems are not done
        for options in (), ("--overwrite",):
            with h5py.File(tmp("ranks.h5"), "r+") as f:
                f["STATUS"][1:4] = 0
                f["DENSITY"][1:4] = -1
            done = self.job("ranks.h5", text, *options)
            self.assertIn("problems     5, 2 of them already done\n", done.stdout)
            self.assertEqual(differing(read(tmp("ranks.h5"), "/"), read(tmp("one.h5"), "/")), [])
        # --overwrite begins a finished run again
        self.assertIn("problems     5\n", self.job("ranks.h5", text, "--overwrite").stdout)
        before = content(tmp("ranks.h5"))
        done = self.job("ranks.h5", text + "# other\n", status=4)
        self.assertOneLine(done, "starmill particles: ", "another configuration", status=4)
        self.assertEqual(content(tmp("ranks.h5")), before)

    def test_killed_while_it_writes(self):
        text = OU + "problems: 3\n"
        self.job("whole.h5", text)
        for fault in ("write:killed.h5$:2:0", "sync:killed.h5$:1:1"):
            self.job("killed.h5", text, "--overwrite", status=-signal.SIGKILL,
                     env=faults("kill:" + fault))
        with h5py.File(tmp("killed.h5"), "r") as f:  # data reach the disk before STATUS is written
            self.assertTrue(f["DENSITY"][:].any() and not f["STATUS"][:].any())
        done = self.job("killed.h5", text, status=4, env=faults("EIO:sync:killed.h5$:2:1"))
        self.assertIn("cannot be flushed to disk", done.stderr)
        self.job("killed.h5", text)
        self.assertEqual(differing(read(tmp("killed.h5"), "/"), read(tmp("whole.h5"), "/")), [])

    def test_an_output_that_is_not_the_own_one_any_more(self):
        process = start("particles", put("config.yaml", OU + "problems: 6\n"), "--output", tmp("held.h5"),
                        "--threads", 1, env=faults("stop:write:/held.h5$:3:1"))
        wait_until(lambda: is_suspended(process.pid), process)
        os.rename(tmp("held.h5"), tmp("taken.h5"))
        put("held.h5", "another file")
        self.assertIn("was moved while", self.said_by(process, 4, signal.SIGCONT)[1])
        self.assertEqual(content(tmp("held.h5")), b"another file")
        self.assertOneLine(self.job("held.h5", OU, status=4), "is not an HDF5 file; give another", status=4)
        os.symlink("real.h5", tmp("link.h5"))
        self.job("link.h5", OU)
        self.assertTrue(os.path.islink(tmp("link.h5")) and os.path.exists(tmp("real.h5")))

    def test_a_signal_stops_a_job_of_short_problems(self):
        text = OU.replace("steps: 20", "steps: 20000") + "problems: 40\n"
        process = start("particles", put("config.yaml", text), "--output", tmp("stop.h5"),
                        "--threads", 1)
        wait_until(lambda: os.path.exists(tmp("stop.h5")), process)
        self.said_by(process, 75, signal.SIGTERM)
        self.assertTrue(1 <= np.sum(read(tmp("stop.h5"), "/")["STATUS"] == 1) < 40)

    def test_full_disk(self):
        for fault in ("ENOSPC:alloc:full.h5:1:0", "ENOSPC:write:full.h5:1:0"):
            done = self.job("full.h5", OU, "--overwrite", status=4, env=faults(fault))
            self.assertIn("full.h5", done.stderr)
            self.assertIn("room", done.stderr)
        self.job("full.h5", OU, "--overwrite")

    def test_a_library_that_never_ends(self):
        """OpenBLAS does so if it gets no memory for its threads."""
        config, hang = put("config.yaml", OU), faults("hang:exit:-:1:0", FAULTS_COUNT=tmp("hung"))
        args = ("particles", config, "--output", tmp("end.h5"), "--overwrite", "--quiet")
        done = starmill(*args, env={**hang, "STARMILL_WATCHDOG_S": "2"})
        self.assertOneLine(done, "the end of the program has not returned for 2 s", status=70)
        os.unlink(tmp("hung"))
        process = start(*args, env=hang)
        wait_until(lambda: os.path.exists(tmp("hung")), process)
        process.terminate()
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 75, said)
        self.assertIn("stopped by signal 15: the end of the program has not returned", said)

    def field(self, name, x, u, **more):
        with h5py.File(tmp(name), "w") as f:
            f["X1"], f["U"] = x, u
            for key, value in more.items():
                f[key] = value
        return tmp(name)

    def test_potential_and_samples_from_files(self):
        x = np.linspace(-8, 8, 33)
        start = np.random.default_rng(1).normal(1, 0.5, (4000, 1))
        with h5py.File(tmp("start.h5"), "w") as f:
            f["X"] = start
        text = OU + f"start: samples\nsamples_file: {tmp('start.h5')}\n"
        self.job("named.h5", text)
        # parabolas are their own splines
        file = self.field("u.h5", x, x**2 / 2)
        text = text.replace("harmonic", "grid") + f"potential_file: {file}\n"
        self.job("gridded.h5", text)
        self.field("u.h5", x + 1, x**2 / 2)
        moved = self.job("gridded.h5", text, status=4)
        slices = np.array([x**2 / 2, x**2])
        self.field("u.h5", x, slices, TIME=[0.0, 1.0])
        self.job("slices.h5", text)
        self.field("u.h5", x, slices, TIME=[0.0, 2.0])
        for done in (moved, self.job("slices.h5", text, status=4)):
            self.assertIn("another configuration", done.stderr)
        named, gridded = (read(tmp(name), "/")["MOMENTS"] for name in ("named.h5", "gridded.h5"))
        np.testing.assert_allclose(named, gridded, rtol=1e-9, atol=1e-9)
        bad = x**2 / 2
        bad[5] = np.nan
        for new, says in (((x, bad), "value 5 of the potential"),
                          ((x**3, x), "even spacing"), ((x[:3], x[:3]), "4 or more")):
            self.field("u.h5", *new)
            self.refused(text, "u.h5", says)
        self.field("u.h5", x, np.array([x, x]), TIME=[1.0, 1.0])
        self.refused(text, "TIME [1] is 1")
        put("u.h5", b"no HDF5")
        self.refused(text, "u.h5")
        with h5py.File(tmp("start.h5"), "w") as f:
            f["X"] = start[:50]
        text = OU + f"start: samples\nsamples_file: {tmp('start.h5')}\n"
        self.refused(text, "50 elements")
        start[7] = np.nan
        with h5py.File(tmp("start.h5"), "w") as f:
            f["X"] = start
        self.refused(text, "start.h5: X [7][0] is nan")

    def test_bad_input(self):
        self.job("far.h5", "particles: 100\nsteps: 3\nstep: 0.001\nstart_time: 1.0e+10\n")  # the end is not refused
        for text, *says in (
                ("particles: 0\n", ":1: particles takes an integer from 1 to"),
                ("steps: 3\nparticle: 7\n", ":2: no key 'particle'"),
                ("steps: 3\nsteps: 7\n", ":2: steps appears twice"),
                ("step: .nan\n", ":1: step takes a number above 0"),
                ("boundary: mirror\n", "takes open, reflecting, periodic or absorbing"),
                ("grid: [10, 20]\n", "grid has 2 values for 1 dimensions"),
                ("boundary: periodic\n", "axis 1 has ends at 0 and 0"),
                ("times: [0.005]\n", "times: 0.005 is not at the end of a step of 0.01"),
                ("times: [500.0004]\nsteps: 1000000\nstep: 0.001\n", "500.0004 is not at the end of a step"),
                ("potential: grid\n", "problem 0 needs a file: give potential_file"),
                ("problems:\n  - {steps: 7}\n", ":2: no key 'steps' of a problem"),
                ("potential: harmonic\nrate: 200\n", "a step of 0.01 is too large for the drift",
                 "give a step of 0.005 or less"),
                ("step: 0.1\npotential: double-well\nbarrier: 1\nhalf: 1\nstart_spread: 0.5\n",
                 "give a step of 0.0141 or less"),  # U'' = 4 b / a^2 (3 (x / a)^2 - 1) at five spreads: 71
                ("dimensions: 2\ndensity: binned\n", "along the axes only"),
                ("dimensions: 2\ndensity: binned\nalong_axes: true\nnodes: [1048576, 16]\ngrid: [40, 4096]\n",
                 "needs an array of 4294967296 numbers"),
                ("grid_low: -4\ngrid_high: -9\n", "from -4 to -9"),
                (BOX + "grid_high: 1.5\n", "go from 0 to 1.5: ", "grid_high, both within 0 to 1"), ("start_spread: -1\n", "a spread of -1"),
                ("bandwidth: given\nwidth: 1e-308\n", "width takes"),
                (BOX + "bandwidth: given\nwidth: 1.5\n", "the kernel's width along axis 1 is 1.5", "up to 1"),
                ("steps: 3\nwidth: 0.2\n", ":2: width needs bandwidth: given"),
                ("nodes: 64\ndensity: exact\n", ":1: nodes needs density: binned"),
                ("dimensions: 2\nlow: 0\n", ":2: low needs a boundary that is not open"), ("high: 1\n", ":1: high needs"),
                ("start_spread: 1e154\n", "start_spread takes 0 or a number of absolute "), ("", "is empty")):
            self.refused(text, *says)
        self.job("one-end.h5", "dimensions: 2\nparticles: 10\ngrid: 4\nboundary: [open, periodic]\n"
                               "low: 0\nhigh: 1\nstart_centre: 0.5\n")  # one axis is not open
        with h5py.File(tmp("one-end.h5"), "r") as f:  # the grid ends where a box ends
            np.testing.assert_allclose([f["X1"], f["X2"]], np.linspace([-5, 0], [5, 1], 4).T)
        done = starmill("particles", tmp("config.yaml"))
        self.assertOneLine(done, "starmill particles: ", "give --output", status=2)

    @unittest.skipUnless(os.access(EMULATED, os.X_OK),
                         "no starmill with emulated GPUs: only a build without CUDA has one")
    def test_gpus(self):
        """float32 random numbers round differently, 1e-7 of a step's noise."""
        text = OU.replace("4000", "300") + "positions: true\nproblems: 3\n"
        self.job("cpu.h5", text)
        with mock.patch.object(base, "STARMILL", EMULATED):
            one = self.job("gpu.h5", text, "--backend", "cuda", env={"MILL_EMULATED_GPUS": "1"})
            two = self.job("gpus.h5", text, "--backend", "auto", ranks=2,
                           env={"MILL_EMULATED_GPUS": "2"})
            none = self.job("none.h5", text, "--backend", "auto", env={"MILL_EMULATED_GPUS": "0"})
            self.refused(text, "backend cuda", "--backend cpu", more=("--backend", "cuda"),
                         env={"MILL_EMULATED_GPUS": "0"})
        self.refused(text, "built without CUDA", more=("--backend", "cuda"))
        for done, device in ((one, "cuda"), (two, "cuda"), (none, "cpu x86-64-v.")):
            self.assertRegex(done.stdout, rf"threads? each, {device}\)\n")
        self.assertIn("backend auto: the CPU, since", none.stderr)
        self.assertEqual(content(tmp("gpus.h5")), content(tmp("gpu.h5")))
        self.assertEqual(content(tmp("none.h5")), content(tmp("cpu.h5")))
        with h5py.File(tmp("gpu.h5"), "r") as a, h5py.File(tmp("cpu.h5"), "r") as b:
            for name in ("DENSITY", "MOMENTS", "POSITION"):
                np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(a["STATUS"], 1)

    def test_a_step_that_is_too_long(self):
        box = BOX + "particles: 100\npositions: true\npotential: harmonic\n"
        done = self.job("long.h5", box + "problems:\n  - {diffusion: 1.0e6}\n  - {diffusion: 1.0}\n")
        self.assertIn("too large for 1 of 2 problems", done.stderr)
        with h5py.File(tmp("long.h5"), "r") as f:
            np.testing.assert_array_equal(f["STATUS"], [2, 1])
            np.testing.assert_array_equal(f["BAD_STEP"], [1, -1])
            np.testing.assert_array_equal(np.isnan(f["POSITION"]).all(axis=(1, 2)), [True, False])
        for _ in range(2):  # also when nothing is left to do
            done = self.job("all.h5", box + "diffusion: 1.0e6\n", status=2)
            self.assertIn("give a shorter step", done.stderr)
