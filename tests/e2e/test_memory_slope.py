# SPDX-License-Identifier: BSD-3-Clause
"""A run's memory does not grow with its stars: the short version of a campaign.

A leak of a star's spectrum would be 6 kB a star, of its slot more.
"""

from base import *  # noqa: F403


class MemorySlope(unittest.TestCase):
    def test_800_stars(self):
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
