# SPDX-License-Identifier: BSD-3-Clause
"""Memory: a limit on address space (ulimit -v, a batch system's) ends a run with a message, or not at
all; and what a run takes does not grow with its stars, the short version of a campaign."""

from common import *  # noqa: F403


class Memory(EndToEnd):
    def test_a_limit_that_a_job_keeps_or_says_why(self):
        """OpenBLAS's own threads ask for 128 MiB each again and again for ever."""
        config = put("p.yaml", "particles: 1000\nsteps: 10\nproblems: [{diffusion: 1}]\n")
        for job in (("fit", "--library", library(), "--threads", 1, cut("limit.fits", [3, 60])),
                    ("particles", "--threads", 4, config), ("particles", "--threads", 64, config)):
            for n_mib in (140, 200, 250, 300, 400, 450, 550, 900):
                path, n_byte = tmp(f"{job[0]}{n_mib}.h5"), n_mib << 20
                done = starmill(*job, "--output", path, env={"OPENBLAS_NUM_THREADS": "2"}, preexec_fn=lambda:
                                resource.setrlimit(resource.RLIMIT_AS, (n_byte, n_byte)))
                good = {140: [70], 900: [0]}.get(n_mib, [0, 70])
                self.assertIn(done.returncode, good, (job, n_mib, done.stderr))
                if done.returncode:
                    self.assertIn("memory", done.stderr.splitlines()[-1])
                else:
                    self.assertTrue(job[0] != "fit" or (read(path)["STATUS"] == FITTED).all(), n_mib)
                    os.unlink(path)

    def test_800_stars(self):
        """A leak of a star's spectrum would be 6 kB a star, of its slot more."""
        coarse_library("lib.h5")  # which it does not make then
        done = ended(
            [sys.executable, "-B", os.path.join(SOURCE, "tests", "campaigns", "memory_slope.py"),
             "--starmill", STARMILL, "--folder", TMP, "--stars", 800, "--per-file", 50,
             "--limit", 1500], timeout=500)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"800 generic .* bytes a star")
