# SPDX-License-Identifier: BSD-3-Clause
"""The place of the output: nothing that another run has left there or in the node's shared memory
stops a fit, and a result that is not there at the end is no success.
"""

import random
import signal

from common import *  # noqa: F403

N_KILL = 15


class Neighbours(EndToEnd):
    """What other runs have left, or do at the same time."""

    @classmethod
    def setUpClass(cls):
        cls.few = cut("few.fits", range(4))

    def line(self, path):
        return ["fit", "--library", library(), "--output", path, "--threads", 1, "--optimizer",
                "levenberg-marquardt", self.few]

    def test_same_name_in_two_folders_at_once(self):
        runs = []
        for folder in "one", "two":
            os.mkdir(tmp(folder))
            # Open MPI 4.1 gives up where two starts make its session folder at the same instant
            environment = {"OMPI_MCA_orte_tmpdir_base": tmp(folder),
                           "HDF5_USE_FILE_LOCKING": "TRUE"}  # as a site may set it
            runs.append(start(*self.line(tmp(f"{folder}/twin.h5")), ranks=2, env=environment,
                              stderr=subprocess.STDOUT))
        for run in runs:
            out, _ = run.communicate(timeout=PATIENCE)
            self.assertEqual(run.returncode, 0, out)
        one, two = read(tmp("one/twin.h5")), read(tmp("two/twin.h5"))
        self.assertEqual(differing(one, two), [])

    def test_killed_while_it_starts(self):
        path = tmp("start.h5")
        seed = os.getpid()
        print("seed", seed)
        draw = random.Random(seed)
        for i in range(N_KILL):  # one in each part of the first second
            process = start(*self.line(path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(draw.uniform(i, i + 1) / N_KILL)
            process.kill()
            process.wait()
        run(*self.line(path))
        self.assertTrue((read(path)["STATUS"] == FITTED).all())
        self.assertEqual(sorted(glob.glob(glob.escape(path) + "*")), [path, path + ".status.json"])


class Moved(EndToEnd):
    """A result that is removed, moved or replaced while it is written is told of."""

    @classmethod
    def setUpClass(cls):
        cls.stars = cut("stars.fits", range(24))
        put("moved.yaml", "write_interval: 0.1\n")

    def disturbed(self, name, disturb, *says, interval="0.1"):
        """Run, disturb(folder) once the first rows are there, or where these come at the end its
        files: status 4 and one line that says so."""
        folder = tmp(name)
        os.mkdir(folder)
        path, models = os.path.join(folder, "out.h5"), os.path.join(folder, "models.h5")
        put("moved.yaml", f"write_interval: {interval}\n")
        process = start("fit", "--library", library(), "--output", path, "--models", models,
                        "--threads", 1, "--slots", 1, "--optimizer", "nelder-mead", "--config",
                        tmp("moved.yaml"), self.stars)
        wait_until(lambda: os.path.exists(path) and os.path.exists(models)
                   and (interval == "600" or has_rows(path)), process)
        process.send_signal(signal.SIGSTOP)  # it has more to write
        disturb(folder)
        process.send_signal(signal.SIGCONT)
        out, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 4, out + errors)
        self.assertNotIn("result ", out)
        for text in says:
            self.assertIn(text, errors)
        return path

    def test_removed_or_replaced(self):
        def replace(folder):
            shutil.copy(self.stars, folder + "/other")
            os.replace(folder + "/other", folder + "/out.h5")

        for name, disturb, says, interval in (
            ("removed", lambda f: os.remove(f + "/out.h5"), "out.h5 was removed", "0.1"),
            # before the first rows are written: seen at the end, too
            ("late", lambda f: os.remove(f + "/out.h5"), "out.h5 was removed", "600"),
            ("models", lambda f: os.remove(f + "/models.h5"), "models.h5 was removed", "0.1"),
            ("replaced", replace, "out.h5 was removed", "0.1"),
        ):
            with self.subTest(name):
                self.disturbed(name, disturb, says, interval=interval)

    def test_folder_moved_and_back(self):
        path = self.disturbed("here", lambda f: os.rename(f, f + "-moved"), "is now ",
                              "here-moved/out.h5", "move it back")
        os.rename(tmp("here-moved"), tmp("here"))
        run("fit", "--library", library(), "--output", path, "--models",
            tmp("here/models.h5"), "--optimizer", "nelder-mead", "--config",
            tmp("moved.yaml"), self.stars)
        self.assertTrue((read(path)["STATUS"] == FITTED).all())
