"""A run that is stopped by a signal or killed is continued by the same command.

What comes out at the end is what an uninterrupted run gives, bit for bit.
"""

import os
import signal
import time

from common import *  # noqa: F403

INFO_GIVEN_START = 64  # as kernels/result.h has it

# a second of fitting or more for each rank: not over by the time that the first rows have been
# written (0.1 s) and seen
N_STAR = {"nelder-mead": 24, "hybrid": 100, "levenberg-marquardt": 60}


class Stop(EndToEnd):
    def options(self, optimizer):
        with open(tmp("stop.yaml"), "w") as f:
            f.write("write_interval: 0.1\n")
        return ["--config", tmp("stop.yaml"), "--optimizer", optimizer, "--threads", 1,
                "--slots", 1, cut(f"{optimizer}.fits", range(N_STAR[optimizer]))]

    def interrupt(self, optimizer, number, ranks):
        """Start a fit, once rows are there send the signal to the process that was started.

        SIGKILL goes to the rank that holds the lock.  Gives the arguments and the rows.
        """
        path = tmp(f"{optimizer}-{number}-{ranks}.h5")
        args = ["--library", library(), "--output", path, *self.options(optimizer)]
        process = subprocess.Popen(command("fit", *args, ranks=ranks), env=ENVIRONMENT,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        limit = time.time() + 100
        while not (os.path.exists(path) and (read(path)["STATUS"] == FITTED).any()):
            self.assertLess(time.time(), limit)
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        if number == signal.SIGKILL:
            os.kill(int(content(path + ".lock", "r").split()[3]), number)  # host H pid N
        else:
            process.send_signal(number)
        out, errors = process.communicate(timeout=100)
        if number == signal.SIGKILL:
            self.assertNotEqual(process.returncode, 0)
        else:
            self.assertEqual(process.returncode, 75, out + errors)
            self.assertIn("continue", out)
        return args, path

    def assertContinues(self, optimizer, number, ranks):
        args, path = self.interrupt(optimizer, number, ranks)
        part = read(path)
        done = part["STATUS"] == FITTED
        self.assertTrue(0 < done.sum() < len(done), f"{done.sum()} of {len(done)}")
        again = starmill("fit", *args, ranks=2)
        self.assertEqual(again.returncode, 0, again.stderr)
        table, catalog = read(path), read(path, "catalog")
        self.assertTrue((table["STATUS"] == FITTED).all())
        # as of a run that nothing happened to
        self.fit(f"{optimizer}.h5", "--overwrite", *self.options(optimizer))
        whole = read(self.path)
        self.assertEqual(differing(table, whole), [])
        self.assertEqual(differing(catalog, read(self.path, "catalog")), [])
        # and so were the rows that were there before
        for name in whole:
            self.assertEqual(part[name][done].tobytes(), whole[name][done].tobytes(), name)

    def test_sigterm(self):
        self.assertContinues("nelder-mead", signal.SIGTERM, 0)

    def test_sigusr1_under_mpirun(self):
        self.assertContinues("hybrid", signal.SIGUSR1, 2)

    def test_killed(self):
        self.assertContinues("levenberg-marquardt", signal.SIGKILL, 0)

    def test_one_rank_killed(self):
        self.assertContinues("hybrid", signal.SIGKILL, 2)

    def test_what_was_done_is_a_start(self):
        _, path = self.interrupt("levenberg-marquardt", signal.SIGTERM, 0)
        part = read(path)
        done = part["STATUS"] == FITTED
        self.assertTrue(0 < done.sum() < len(done), f"{done.sum()} of {len(done)}")
        # rows that the run had not come to have no values: they are guessed
        self.fit("refit.h5", "--start", path, *self.options("levenberg-marquardt"))
        table = read(self.path)
        np.testing.assert_array_equal(table["FIT_INFO"] & INFO_GIVEN_START > 0, done)
        self.assertTrue((table["STATUS"] == FITTED).all())


if __name__ == "__main__":
    main()
