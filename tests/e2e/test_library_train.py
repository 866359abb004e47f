# SPDX-License-Identifier: BSD-3-Clause
"""starmill library train, from a grid file to networks: losses of ten epochs against NumPy
(tests/reference/train_losses.py), stops, kills, continued runs, refusals."""

import csv

from base import *  # noqa: F403
from starmill.templates import emulate, library_file
import train_losses


class TrainReferenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.grid = tmp("reference.h5")
        train_losses.make_grid(cls.grid)
        cls.cases = []
        for case in train_losses.CASES:
            options = train_losses.options_of(case)
            problem = train_losses.make_problem(cls.grid, options)
            cls.cases.append((case, np.array(train_losses.train(problem, options))))

    def losses(self, options, threads=2):
        """[[loss, loss of models left out]] of the epochs by starmill."""
        run("library", "train", "--overwrite", "--threads", threads, "--output", tmp("lib.h5"),
            *train_losses.words_for_starmill(train_losses.options_of(options)), self.grid)
        with open(tmp("lib.h5.losses.csv"), newline="", encoding="ascii") as file:
            return np.array([[float(row["loss"]), float(row["loss_left_out"])]
                             for row in csv.DictReader(file)])

    def test_losses_are_those_of_numpy(self):
        for case, expected in self.cases:
            with self.subTest(case):
                found = self.losses(case)
                self.assertEqual(found.shape, (10, 2))
                off = np.abs(found / expected - 1)
                print(case, "differs from NumPy by", np.nanmax(off))
                np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
                # float32 leaves 1e-6; L1's slope jumps where a residual changes sign: 1e-4
                self.assertLess(np.nanmax(off), 1e-2 if "l1" in case.values() else 1e-5)
                self.assertLess(expected[-1, 0], 0.9 * expected[0, 0])  # something was learned

    def test_random_numbers(self):
        """Random123's known answers for counter and key 0; orders hold every model once."""
        self.assertEqual([int(x) for x in train_losses.words(0, 0, "\0\0\0\0", 4)],
                         [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])
        order, n_train = train_losses.split(50, 0.3, 4)
        self.assertEqual((sorted(order), n_train), (list(range(50)), 35))
        self.assertEqual(sorted(train_losses.shuffled(50, 4, 1, "shuf")), list(range(50)))


N_MODEL, N_PIX = 160, 130
ARMS = {"b": (8.3, 2e-4), "r": (8.7, 1.5e-4)}
LABELS = ("teff", "logg", "feh")
FEW = ("--hidden", "12,12", "--batch", 32, "--epochs", 150, "--guess-templates", 20)


def flux_of(label, i_arm):
    """Spectra [model][pixel] with lines whose strength depends on all labels."""
    t, g, z = ((label[:, k, None] - m) / s for k, (m, s) in
               enumerate(((5500, 800), (3, 1.2), (-0.5, 0.6))))
    p = np.arange(N_PIX)
    y = 0.3 * t * (p / N_PIX - 0.5) + i_arm
    for k, at in enumerate((20, 55, 80, 110)):
        strength = 0.3 + 0.08 * (z - 0.5 * t + 0.2 * k * g) / (1 + 0.1 * t**2)
        y = y - strength * np.exp(-0.5 * ((p - at) / (3 + 0.3 * g))**2)
    return np.exp(y)


def make_grid(name, n=N_MODEL, edit=None):
    label = np.random.default_rng(18).uniform((4000, 0.5, -2), (7000, 5, 0.5), (n, 3))
    path = train_losses.write_grid(tmp(name), LABELS, label, {
        arm: (first, step, 0.5, flux_of(label, i), False)
        for i, (arm, (first, step)) in enumerate(ARMS.items())})
    if edit:
        with h5py.File(path, "r+") as f:
            edit(f)
    return path


def evaluate(path, label):
    """Spectra [model][pixel] of each arm."""
    library = library_file.read(path)
    return [emulate.flux(library, i, label) for i in range(len(library.arm))]


def digest(path):
    return attributes(path)["hash"]


class Train(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.whole, cls.said = cls().train("whole.h5")

    def train(self, out, *args, status=0, grid=None, **how):
        path = tmp(out)
        return path, self.ends(status, "library", "train", "--threads", 1, *FEW, *args, "--output",
                               path, grid or GRID, **how)

    def start(self, path, *args):
        """Start a training that writes checkpoints as often as it can; wait for the first one."""
        process = start("library", "train", "--threads", 1, *FEW, "--checkpoint-interval", 0, *args,
                        "--output", path, GRID)
        wait_until(lambda: os.path.exists(path + ".training"), process)
        return process

    def test_networks(self):
        """Networks predict unseen spectra, trained by one rank or two, in ln flux or in flux."""
        label = np.random.default_rng(5).uniform((4300, 1, -1.7), (6700, 4.5, 0.2), (200, 3))
        cases = {
            "two.h5": ((), 2, 0.01),
            "pixels.h5": (("--last", "pixels", "--loss", "huber", "--unit", "spread",
                           "--rate", 0.01), 0, 0.05),
            "linear.h5": (("--linear-flux", "--schedule", "plateau"), 0, 0.02)}
        for (path, done), most in ((self.whole, self.said), 0.01), *(
                (self.train(name, *args, ranks=ranks), most)
                for name, (args, ranks, most) in cases.items()):
            for i, flux in enumerate(evaluate(path, label)):
                error = np.abs(flux / flux_of(label, i) - 1)
                self.assertLess(np.percentile(error, 90), most, (path, i))
            self.assertIn("error of models left out", done.stdout)
            self.assertNotIn("only rank 0", done.stderr)  # the second rank has trained
        self.assertNotIn("epoch 1 of", self.said.stdout)  # too slow to tell the time left
        info = run("library", "info", self.whole).stdout
        for word in (*LABELS, *ARMS):
            self.assertIn(word, info)
        table = list(csv.DictReader(content(self.whole + ".losses.csv", "r").splitlines()))
        self.assertEqual([row["arm"] for row in table], ["b"] * 150 + ["r"] * 150)
        self.assertLess(float(table[149]["loss"]), 0.1 * float(table[0]["loss"]))
        self.assertFalse(os.path.exists(self.whole + ".training"))

    def test_killed_and_stopped(self):
        """After a crash, kill, signal or the stop file the continued run makes the same library."""
        whole = digest(self.whole)
        path = tmp("killed.h5")
        process = self.start(path)
        process.send_signal(signal.SIGBUS)
        said = process.communicate()[1]
        self.assertIn("the process died of signal 7; please report", said)
        self.assertNotIn(GRID, said)
        self.assertFalse(os.path.exists(path))
        self.assertIn("continuing from this checkpoint", self.train("killed.h5")[1].stdout)
        self.assertEqual(digest(path), whole)
        # killed in the second arm: the first arm's last layer is solved again
        longer = ("--epochs", 400)
        path, checkpoint = tmp("second.h5"), tmp("second.h5.training")
        process = self.start(path, *longer)
        wait_until(lambda: attributes(checkpoint)["n_arm"] == 2, process)
        self.said_by(process, -9, signal.SIGKILL)
        self.train("second.h5", *longer)
        self.assertEqual(digest(path), digest(self.train("longer.h5", *longer)[0]))
        # through links to another folder, which stay links
        path, checkpoint = tmp("stopped.h5"), tmp("stopped.h5.training")
        os.mkdir(tmp("far"))
        for link in (path, checkpoint):
            os.symlink("far/" + os.path.basename(link), link)
        process = self.start(path)
        self.assertIn("the same command continues", self.said_by(process, 75, signal.SIGTERM)[1])
        self.train("stopped.h5")
        self.assertEqual(digest(path), whole)
        self.assertTrue(os.path.islink(path) and os.path.islink(checkpoint))
        self.assertEqual(os.listdir(tmp("far")), ["stopped.h5"])

    def test_a_crash_blames_the_grid_while_it_is_read(self):
        """The crash is at read 100 of the grid file, while training reads spectra (60 to 150)."""
        done = self.train("crash.h5", status=3, env=faults("abort:read:grid.h5$:100:1"))[1]
        self.assertIn(GRID + ": the process died of signal 6", done.stderr)

    def test_ended_before_the_library_is_made(self):
        """The trained state is kept; the same command makes the same library from it."""
        args = ("--epochs", 5, "--model-error", 2)
        whole = digest(self.train("whole-few.h5", *args)[0])
        path = tmp("late.h5")
        self.ends(1, "library", "train", "--threads", 1, *FEW, *args, "--output", path, GRID,
                  env=dict(STARMILL_PYTHON="/bin/false"))
        self.assertTrue(os.path.exists(path + ".training.networks"))
        self.assertFalse(os.path.exists(path))
        process = self.start(path, *args)
        process.stdout.readline()  # the training is done, or nearly
        self.said_by(process, 75, signal.SIGTERM)
        self.assertIn("continuing from this checkpoint", self.train("late.h5", *args)[1].stdout)
        self.assertEqual(digest(path), whole)
        self.assertEqual([name for name in os.listdir(TMP) if name.startswith("late.h5.training")],
                         [])
        self.assertIn("and 2 components", run("library", "info", path).stdout)

    def test_stop_file(self):
        path = tmp("file.h5")
        process = self.start(path, "--epochs", 1000000)
        open(path + ".stop", "w", encoding="utf-8").close()
        self.assertIn("the same command continues", self.said_by(process, 75)[1])
        self.train("file.h5", status=75, says=["file.h5.stop", "remove it"])

    def test_another_training(self):
        path = tmp("other.h5")
        process = self.start(path, "--epochs", 1000000)
        self.assertOneLine(self.train("other.h5", status=4)[1], "is being written by", status=4)
        self.said_by(process, -9, signal.SIGKILL)
        self.assertOneLine(self.train("other.h5", "--seed", 2, status=3)[1], "other.h5.training",
                           "the checkpoint of another training", "remove it", status=3)
        put(path + ".training", b"no checkpoint")
        self.assertOneLine(self.train("other.h5", status=3)[1], "other.h5.training", status=3)

    def test_refusals(self):
        def stored(name, at, value):
            return lambda f: f[name].__setitem__(at, value)

        def to_do(f):
            f["models/status"][3] = 0
            f.attrs["complete"] = np.int32(0)
        cases = [
            (make_grid("constant.h5", edit=stored("models/label", np.s_[:, 1], 4.5)), (), 3,
             "label logg is 4.5 in all"),
            (make_grid("nan.h5", edit=stored("arms/arm1/flux", (7, 3), np.nan)), (), 3,
             "nan at pixel 3 of model 7"),
            (make_grid("todo.h5", edit=to_do), (), 3, "1 of its 160 models are still to do"),
            (make_grid("few.h5", n=12), (), 3, "12 good models"),
            (GRID, ("--model-error", 9), 3, "16 of 160 models are left out; --model-error needs 18"),
            (GRID, ("--components", 144), 3, "144 principal components of 144 spectra"),
            (GRID, ("--loss", "l1"), 2, "give --last pixels"),
            (GRID, ("--hidden", "12,0"), 2, "--hidden 12,0"),
            (GRID, ("--hidden", "12,"), 2, "--hidden 12,"),
            (GRID, ("--rate", 1e-7), 2, "--least-rate"),
            (GRID, ("--huber", 2), 2, "--huber does not apply without --loss huber"),
            (GRID, ("--factor", 0.3), 2, "--factor does not apply without --schedule plateau"),
            (GRID, ("--unit", "spread", "--sn", 50), 2, "--sn does not apply with --unit spread"),
            (GRID, ("--memory", 1), 2, "--memory does not apply without --last pixels"),
            (GRID, ("--smoothing=1",), 2, "--smoothing does not apply to --emulator network"),
            (tmp("absent.h5"), (), 3, "absent.h5")]
        for i, (grid, args, status, words) in enumerate(cases):
            path, _ = self.train(f"refused{i}.h5", *args, status=status, grid=grid, says=[words])
            self.assertFalse(os.path.exists(path))
        path, done = self.train("todo-library.h5", "--unfinished", "--epochs", 2, "--left-out", 0,
                                grid=tmp("todo.h5"))
        self.assertIn("rms error of the models", done.stdout)
        self.assertNotIn("nan", done.stdout)
        self.assertOneLine(self.train("todo-library.h5", status=4)[1], "exists", status=4)
        os.remove(path)
        table = content(path + ".losses.csv")
        self.train("todo-library.h5", status=4, says=["todo-library.h5.losses.csv", "--overwrite"])
        self.assertEqual(content(path + ".losses.csv"), table)
        self.ends(2, "library", "train", "--output", GRID, "--overwrite", GRID)
        self.train("ranks.h5", "--components", 144, status=3, ranks=2,
                   says=["144 principal components"])


GRID = make_grid("grid.h5")
