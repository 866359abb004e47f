# SPDX-License-Identifier: BSD-3-Clause
"""Memory: a limit on address space (ulimit -v, a batch system's) ends a run with a message, or not at
all; and what a run takes does not grow with its stars, the short version of a campaign."""

from common import *  # noqa: F403


class Memory(EndToEnd):
    def test_a_limit_that_a_fit_keeps_or_says_why(self):
        """OpenBLAS asks for its 128 MiB a thread again and again for ever, so a fit must not need them."""
        stars = cut("limit.fits", [3, 60])
        statuses = []
        for n_mib in (200, 300, 400, 420, 450, 550, 700):
            path, n_byte = tmp(f"limit{n_mib}.h5"), n_mib << 20
            done = starmill("fit", "--library", library(), "--threads", 1, "--output", path, stars,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (n_byte, n_byte)))
            statuses.append(done.returncode)
            if done.returncode == 0:
                self.assertEqual(list(read(path)["STATUS"]), [FITTED] * 2)
            else:
                self.assertIn(done.returncode, (70, 1))  # 1: OpenMP's own message
                self.assertRegex(done.stderr.splitlines()[-1], "memory|thread|Thread", n_mib)
        self.assertEqual((statuses[0], statuses[-1]), (70, 0))

    def test_800_stars(self):
        """A leak of a star's spectrum would be 6 kB a star, of its slot more."""
        coarse_library("lib.h5")  # which it does not make then
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(SOURCE, "tests", "campaigns", "memory_slope.py"),
             "--starmill", STARMILL, "--folder", TMP, "--stars", "800", "--per-file", "50",
             "--limit", "1500"], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=500, check=False)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"800 generic .* bytes a star")


if __name__ == "__main__":
    main()
