# SPDX-License-Identifier: BSD-3-Clause
"""A limit on address space (ulimit -v, a batch system's) ends a run with a message, or not at all.

OpenBLAS asks for its 128 MiB a thread again and again for ever, so a fit must not need them.
"""

import resource

from common import *  # noqa: F403


class Limit(EndToEnd):
    def run_within(self, n_mib, *args):
        """The process of a run within a limit, which has ended and, if badly, says why."""
        n_byte = n_mib << 20
        done = subprocess.run(
            command(*args), env=ENVIRONMENT, timeout=PATIENCE, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (n_byte, n_byte)))
        if done.returncode != 0:
            self.assertIn(done.returncode, (70, 1))  # 1: OpenMP's own message
            self.assertRegex(done.stderr.splitlines()[-1], "memory|thread|Thread", n_mib)
        return done

    def test_fit_works_or_says_why(self):
        stars = cut("limit.fits", [3, 60])
        statuses = []
        for n_mib in (200, 300, 400, 420, 450, 550, 700):
            path = tmp(f"limit{n_mib}.h5")
            done = self.run_within(n_mib, "fit", "--library", library(), "--threads", 1, "--output",
                                   path, stars)
            statuses.append(done.returncode)
            if done.returncode == 0:
                self.assertEqual(list(read(path)["STATUS"]), [FITTED] * 2)
        self.assertEqual(statuses[0], 70)
        self.assertEqual(statuses[-1], 0)


if __name__ == "__main__":
    main()
