# SPDX-License-Identifier: BSD-3-Clause
"""Ranks with a GPU and ranks without one in one run (backend cuda+cpu), on emulated GPUs.

Each row must have the same bits as in a run on its backend alone, also if the run was killed and
continued.  Limits of the emulation: tests/cuda_emulation/cuda_runtime.h."""

import base
from base import *  # noqa: F403
from kill_runs import kill_all

EMULATED = os.environ.get("STARMILL_EMULATED", "")
if not os.access(EMULATED, os.X_OK):
    skip("no starmill with emulated GPUs: only a build without CUDA has one")
WITHOUT_CUDA, base.STARMILL = base.STARMILL, EMULATED

CPU, GPU = 1, 2  # BACKEND
N_STAR = 45
MIXED = "cuda+cpu"
# A rank's share of rows follows its speed: 127 stars a second per thread, 10,000 for a GPU
# (src/ranks/schedule.h).  A rank with few threads and no GPU would get none of these few rows.
MANY_THREADS = 64


def gpus(n):
    return {"MILL_EMULATED_GPUS": str(n), "OMP_WAIT_POLICY": "passive"}


def same_rows(rows, alone):
    """Columns in which rows differ from a run on the row's backend alone (CRC covers BACKEND)."""
    return [name for kind in (CPU, GPU) for name in differing(
        rows, alone[kind], rows["BACKEND"] == kind, {"BACKEND", "CRC"})]


class Mixed(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.lib, cls.stars = coarse_survey(N_STAR, narrow_library("narrow.h5", 16))
        # the emulated GPU is slow, so only a part of an arm is fitted; rows must show soon
        cls.config = put("short.yaml", "arms: [{name: b, min: 5100, max: 5200}]\nmax_starts: 1\n"
                         "npoly: 3\nwrite_interval: 0.1\nslots: 16\n")
        cls.alone, cls.device = {}, {}
        for kind, backend in ((CPU, "cpu"), (GPU, "cuda")):
            path = tmp(f"alone-{backend}.h5")
            run("fit", "--library", cls.lib, "--output", path, "--backend", backend, "--threads", 2,
                "--config", cls.config, cls.stars, env=gpus(1))
            cls.alone[kind] = read(path)
            cls.device[kind] = text(attributes(path, "provenance")["DEVICE"])
        cls.log, cls.two = tmp("mixed.log"), tmp("mixed.h5")
        cls.said = run("fit", "--library", cls.lib, "--output", cls.two, "--log", cls.log, "--config",
                       cls.config, "--backend", MIXED, "--threads", MANY_THREADS, cls.stars,
                       ranks=2, env=gpus(1)).stdout

    def mixed(self, out, *args, ranks=3, n_gpu=1, status=0, stars=None, backend=MIXED):
        return self.fit(out, "--config", self.config, "--backend", backend, "--threads",
                        MANY_THREADS, *args, stars or self.stars, lib=self.lib, ranks=ranks, status=status,
                        env=gpus(n_gpu))

    def assertMixed(self, path):
        """A finished result has rows of both backends, each as in a run on its backend alone."""
        rows = read(path)
        self.assertTrue((rows["STATUS"] == FITTED).all())
        self.assertEqual(set(rows["BACKEND"]), {CPU, GPU})
        self.assertEqual(same_rows(rows, self.alone), [])
        self.assertEqual(not_whole(path), [])
        return rows

    def test_0_the_two_backends_differ_in_every_row(self):
        """Else equal bits would say nothing."""
        a, b = self.alone[CPU], self.alone[GPU]
        self.assertNotIn("BACKEND", a)
        self.assertTrue((a["M2LL"] != b["M2LL"]).all())
        # and they agree where float32 allows it
        np.testing.assert_allclose(a["M2LL"], b["M2LL"], rtol=0, atol=0.05)

    def test_rows_are_those_of_their_own_backend(self):
        rows = self.assertMixed(self.two)
        both = f"{self.device[GPU]} + {self.device[CPU]}"
        self.assertEqual(text(attributes(self.two, "provenance")["DEVICE"]), both)
        attrs = attributes(self.two, "fits/BACKEND")
        self.assertEqual(list(attrs["CODES"]), [0, CPU, GPU])
        self.assertEqual([text(t) for t in attrs["NAMES"]], ["NONE", "CPU", "GPU"])
        self.assertEqual([text(t) for t in attrs["MEANINGS"]][1:], [self.device[CPU], self.device[GPU]])
        for kind in (GPU, CPU):
            self.assertRegex(self.said, rf"(?m)^  {(rows['BACKEND'] == kind).sum()} +rows by 1 rank "
                             rf"with .* in all, {re.escape(self.device[kind])}$")
        self.assertIn("1 of 2 ranks has a GPU, 1 fits on the CPU", content(self.log, "r"))
        state = json.loads(content(self.two + ".status.json", "r"))
        self.assertEqual(state["backend"], both)
        self.assertEqual([rank["backend"] for rank in state["ranks"]],
                         [self.device[GPU], self.device[CPU]])
        said = starmill("status", "--ranks", self.two).stdout
        for rank, kind in enumerate((GPU, CPU)):
            self.assertRegex(said, rf"(?m)^  rank {rank} .* {re.escape(self.device[kind])} ")

    def test_killed_and_continued(self):
        path = tmp("killed.h5")
        process = start("fit", "--library", self.lib, "--output", path, "--config", self.config,
                        "--backend", MIXED, "--threads", MANY_THREADS, self.stars, ranks=3, env=gpus(1))
        wait_until(lambda: has_rows(path, 15), process)
        kill_all(process)
        before = read(path)
        done = before["STATUS"] != 0
        self.assertTrue(done.any() and not done.all(), done)
        self.assertTrue(before["BACKEND"][done].all())
        self.assertEqual(same_rows(before, self.alone), [])
        # only as it was begun
        for backend in ("cpu", "cuda"):
            refused = self.mixed("killed.h5", backend=backend, ranks=0, status=4)
            self.assertIn(self.device[GPU] + " + " + self.device[CPU], refused.stderr)
            self.assertIn("--backend", refused.stderr)
        # more ranks; rank 0's GPU is now another rank's
        self.mixed("killed.h5", "--log-level", "debug", backend="auto", ranks=4, n_gpu=2)
        rows = self.assertMixed(path)
        self.assertEqual(differing(rows, before, done), [])

    def test_parts_are_merged(self):
        with pyfits.open(self.stars) as hdus:
            hdus["FIBERMAP"].data["TARGETID"] += N_STAR  # other stars
            hdus.writeto(tmp("part.fits"))
        self.mixed("part.h5", stars=tmp("part.fits"), ranks=2)
        self.assertEqual(set(read(self.path)["BACKEND"]), {CPU, GPU})
        parts = [self.two, self.path]
        merged = tmp("merged.h5")
        run("merge", "--output", merged, *parts)
        for name, values in read(merged).items():
            both = np.concatenate([read(part)[name] for part in parts])
            self.assertEqual(values.tobytes(), both.tobytes(), name)
        meaning, of_part = (attributes(path, "fits/BACKEND") for path in (merged, parts[0]))
        for key in ("CODES", "NAMES", "MEANINGS"):
            self.assertEqual(list(meaning[key]), list(of_part[key]))
        done = starmill("merge", "--output", tmp("no.h5"), parts[1], tmp("alone-cuda.h5"))
        self.assertOneLine(done, "different devices", self.device[CPU], status=2)

    def test_it_must_be_asked_for(self):
        # two ranks, of which one finds no GPU
        line = [MPIRUN]
        for rank, n_gpu in enumerate((1, 0)):
            line += [":"] * rank + ["-n", "1", "env", f"MILL_EMULATED_GPUS={n_gpu}", EMULATED, "fit",
                                    "--library", self.lib, "--output", tmp("no.h5"), "--backend",
                                    "cuda", self.stars]
        self.assertOneLine(ended(line), "sees no GPU", "--backend cuda+cpu", status=2)
        self.assertFalse(os.path.exists(tmp("no.h5")))

    def test_refusals(self):
        self.mixed("no.h5", n_gpu=0, status=2, ranks=2)
        done = self.mixed("no.h5", n_gpu=0, status=2, ranks=0)
        self.assertOneLine(done, "backend cuda+cpu: no rank sees a GPU", "--backend cpu", status=2)
        done = starmill("fit", "--library", self.lib, "--output", tmp("no.h5"), "--backend", MIXED,
                        self.stars, program=WITHOUT_CUDA)
        # the program was built without CUDA, or there is no GPU
        self.assertOneLine(done, "cuda+cpu", status=2)

    def test_plan_and_doctor(self):
        done = self.mixed("no.h5", "--plan", n_gpu=0, ranks=0)
        self.assertRegex(done.stdout, r"(?m)^ranks .*, cuda\+cpu$")
        done = run("doctor", "--backend", MIXED, "--output", TMP, ranks=3, env=gpus(2))
        self.assertRegex(done.stdout, r"gpus_of_ranks +2 ")
        self.assertRegex(done.stdout, r"ranks_on_cpu +1 ")
        self.assertRegex(done.stdout, r"(?m)backend +cuda .* on rank 0 \(asked for: cuda\+cpu\)")
