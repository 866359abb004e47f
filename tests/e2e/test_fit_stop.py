"""A stop by signal is in good order, and the same command continues."""

import os
import signal
import time

from common import *  # noqa: F403


class Stop(EndToEnd):
    def run_and_stop(self, number, ranks):
        """Start a long fit, send the signal once rows are being fitted."""
        self.path = tmp(f"stop-{number}-{ranks}.h5")
        with open(tmp("stop.yaml"), "w") as f:
            f.write("write_interval: 0.1\n")
        args = ["--library", library(), "--output", self.path, "--config", tmp("stop.yaml"),
                "--optimizer", "nelder-mead", "--threads", 1, "--slots", 1,
                cut("many.fits", range(12))]
        process = subprocess.Popen(command("fit", *args, ranks=ranks), env=ENVIRONMENT,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        limit = time.time() + 100
        while not (os.path.exists(self.path) and (read(self.path)["STATUS"] == FITTED).any()):
            self.assertLess(time.time(), limit)
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(number)
        out, errors = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 75, out + errors)
        self.assertIn("continue", out)
        return args, read(self.path)

    def assertContinues(self, number, ranks):
        args, part = self.run_and_stop(number, ranks)
        done = part["STATUS"] == FITTED
        self.assertTrue(0 < done.sum() < len(done), f"{done.sum()} of {len(done)}")
        again = starmill("fit", *args, ranks=2)
        self.assertEqual(again.returncode, 0, again.stderr)
        table = read(self.path)
        self.assertTrue((table["STATUS"] == FITTED).all())
        for name in table:
            self.assertEqual(table[name][done].tobytes(), part[name][done].tobytes(), name)

    def test_sigterm(self):
        self.assertContinues(signal.SIGTERM, 0)

    def test_sigusr1_under_mpirun(self):
        self.assertContinues(signal.SIGUSR1, 2)


if __name__ == "__main__":
    main()
