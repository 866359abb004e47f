# SPDX-License-Identifier: BSD-3-Clause
"""starmill library train on emulated GPUs has the losses of the CPU, by one rank and by two, and
refuses wrong options.  Limits of the emulation: tests/cuda_emulation/cuda_runtime.h."""

import math

import base
from base import *  # noqa: F403

EMULATED = os.environ.get("STARMILL_EMULATED", "")
if not os.access(EMULATED, os.X_OK):
    skip("no starmill with emulated GPUs: only a build without CUDA has one")
WITHOUT_CUDA, base.STARMILL = base.STARMILL, EMULATED

from test_library_train import make_grid  # noqa: E402

FEW = ("--hidden", "9,7", "--batch", 16, "--epochs", 4, "--guess-templates", 20, "--threads", 1)


class TrainOnGpus(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.grid = make_grid("gpu-grid.h5", n=60)

    def losses(self, name, *options, ranks=0, n_gpu=1):
        path = tmp(name)
        run("library", "train", self.grid, "--output", path, *FEW, *options, ranks=ranks,
            env={"MILL_EMULATED_GPUS": str(n_gpu)})
        table = np.genfromtxt(path + ".losses.csv", delimiter=",", names=True, dtype=None,
                              encoding="utf-8")
        return np.array([table["loss"], table["loss_left_out"]])

    def test_losses_are_those_of_the_cpu(self):
        cpu = self.losses("cpu.h5")
        self.assertEqual(cpu.shape, (2, 8))
        # float32 sums in another order, some ten steps long
        for name, options, how in (("one", (), {}), ("two", (), {"ranks": 2, "n_gpu": 2}),
                                   ("pixels", ("--last", "pixels"), {})):
            with self.subTest(name=name):
                expected = self.losses("cpu-pixels.h5", *options) if options else cpu
                got = self.losses(f"{name}.h5", "--backend", "cuda", *options, **how)
                np.testing.assert_allclose(got, expected, rtol=1e-4)
        rough = self.losses("bf16.h5", "--backend", "cuda", "--products", "bf16")
        np.testing.assert_allclose(rough, cpu, rtol=0.1)
        self.assertGreater(np.abs(rough / cpu - 1).max(), 1e-4)

    def test_auto(self):
        """auto takes the GPU for trainings at least as large as the stored crossover, else the CPU.
        If no crossover is stored, auto takes the CPU.  A training begun on a GPU needs a GPU."""
        kept = tmp("crossover")
        known = {"STARMILL_CROSSOVER": kept, "MILL_EMULATED_GPUS": "1"}
        line = ["library", "train", self.grid, *FEW, "--overwrite", "--output"]
        self.assertNotIn("GPU", run(*line, tmp("auto.h5"), env=known).stderr)
        run("bench", "crossover", "--work", "train", "--most", 5, "--repeat", 1, "--threads", 1,
            "--keep", env=known)
        head, measured = content(kept, "r").splitlines()
        field = measured.split("\t")
        self.assertEqual(field[:3], ["train", "0", "1"])

        def crossover(size):
            put(kept, "\n".join([head, "\t".join(["fit", "7", *field[2:]]),
                                 "\t".join(["train", str(size), *field[2:]])]) + "\n")
        # 4 operations per weight of the first layer, 6 per other weight; at most 256 components
        size = math.ceil(16 * (4 * 3 * 9 + 6 * (9 * 7 + 7 * 256)) / 1e6)
        for least, where in ((size + 1, "CPU"), (size, "GPU")):
            crossover(least)
            said = run(*line, tmp("auto.h5"), env=known).stderr
            self.assertIn(f"backend auto: the {where} for {size} million operations", said)
        again = [*line, tmp("begun.h5"), "--epochs", 1000000, "--checkpoint-interval", 0]
        process = start(*again, env=known)
        wait_until(lambda: os.path.exists(tmp("begun.h5.training")), process)
        self.said_by(process, 75, signal.SIGTERM)
        done = starmill(*again, env={**known, "MILL_EMULATED_GPUS": "0"})
        self.assertOneLine(done, "begun.h5.training", "begun on a GPU", "remove this file", status=4)

    def test_refusals(self):
        line = ["library", "train", self.grid, "--output", tmp("refused.h5")]
        done = starmill(*line, "--backend", "cuda", env={"MILL_EMULATED_GPUS": "0"})
        self.assertOneLine(done, "backend cuda", "--backend cpu", status=2)
        self.ends(2, *line, "--products", "tf32", says=["--products tf32", "--backend cuda"])
        base.STARMILL = WITHOUT_CUDA
        self.addCleanup(setattr, base, "STARMILL", EMULATED)
        self.assertOneLine(starmill(*line, "--backend", "cuda"), "built without CUDA", status=2)
