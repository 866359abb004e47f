"""--overwrite destroys nothing: the old file stays until the new one is worth more, and what is not
starmill's is never replaced."""

import glob
import signal
import time

from base import *  # noqa: F403

SHIM = os.environ.get("FAULT_SHIM", "")
LIBRARY, SURVEY = coarse_survey(40)
SHORT = tmp("short.fits")
with open(SHORT, "wb") as f:
    f.write(content(SURVEY)[:100000])
CONFIG = tmp("slow.yaml")
with open(CONFIG, "w") as f:
    f.write("write_interval: 0.1\n")
# slow enough to be stopped between two writes
SLOW = ["--config", CONFIG, "--optimizer", "nelder-mead", "--threads", 1, "--slots", 1]


def families(*paths):
    return sorted(os.path.basename(found) for path in paths
                  for found in glob.glob(glob.escape(path) + "*") if ".status.json" not in found)


class Overwrite(ProgramTest):
    def fit(self, *args, status=0, **how):
        return super().fit("old.h5", "--models", tmp("models.h5"), "--overwrite", *args, lib=LIBRARY,
                           status=status, **how)

    def setUp(self):
        self.out, self.models = tmp("old.h5"), tmp("models.h5")
        for name in families(self.out, self.models):
            os.unlink(tmp(name))
        self.fit("--quiet", SURVEY)
        self.before = content(self.out), content(self.models)

    def assertKept(self, *more):
        """Both files are as they were, and beside them these."""
        self.assertTrue((content(self.out), content(self.models)) == self.before)
        self.assertEqual(families(self.out, self.models), sorted(["models.h5", "old.h5", *more]))

    def test_nothing_fitted_replaces_nothing(self):
        """No input is there, is whole, or has a star that is bright enough."""
        for ranks in (0, 2):
            for args in ([tmp("none.fits")], [SHORT], ["--minsn", 1e6, SURVEY]):
                done = self.fit(*args, status=3, ranks=ranks)
                self.assertIn("was not overwritten: no row has been fitted", done.stderr)
                self.assertIn("old.h5 is as it was", done.stdout)
                self.assertKept()
        # the run that would give no row without it is no success either, and makes its file
        alone = super().fit("alone.h5", "--minsn", 1e6, SURVEY, lib=LIBRARY, status=3)
        self.assertIn("LOW_SN", alone.stdout)
        self.assertEqual(len(read(tmp("alone.h5"))["STATUS"]), 40)

    def test_merge_of_nothing_fitted_replaces_nothing(self):
        super().fit("faint.h5", "--quiet", "--minsn", 1e6, SURVEY, lib=LIBRARY, status=3)
        done = starmill("merge", "--overwrite", "--output", self.out, tmp("faint.h5"))
        self.assertOneLine(done, self.out, "stays as it is", status=2)
        self.assertKept()
        run("merge", "--output", tmp("faint-merged.h5"), tmp("faint.h5"))

    def test_failure_replaces_nothing(self):
        if not SHIM:
            self.skipTest("FAULT_SHIM is not set")
        done = self.fit("--npoly", 9, SURVEY, status=4,
                        env={"LD_PRELOAD": SHIM, "FAULTS": "ENOSPC:write:old.h5.new$:3:0"})
        self.assertIn("old.h5.new", done.stderr)
        self.assertTrue((content(self.out), content(self.models)) == self.before)

    def test_stopped_run_is_continued_beside_the_old_result(self):
        args = ["--npoly", 9, *SLOW, SURVEY]
        line = command("fit", "--library", LIBRARY, "--output", self.out, "--models", self.models,
                       "--overwrite", *args)
        process = subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        limit = time.time() + 100
        new = self.out + ".new"
        while not (os.path.exists(new) and (read(new)["STATUS"] == FITTED).any()):
            self.assertLess(time.time(), limit)
            self.assertIsNone(process.poll(), process.stderr)
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 75, out + errors)
        self.assertIn("old.h5.new, which replaces", out)
        self.assertKept("models.h5.new", "old.h5.new")
        status = starmill("status", self.out)
        self.assertEqual(status.returncode, 75, status.stdout + status.stderr)
        self.assertIn("overwritten  when " + new, status.stdout)
        # the same command goes on with what it has begun
        n_done = (read(new)["STATUS"] == FITTED).sum()
        again = self.fit(*args)
        self.assertIn("an earlier start with --overwrite has begun it", again.stderr)
        self.assertLess(0, n_done)
        self.assertEqual(families(self.out, self.models), ["models.h5", "old.h5"])
        super().fit("whole.h5", "--models", tmp("whole-models.h5"), *args, lib=LIBRARY)
        self.assertEqual(differing(read(self.out), read(tmp("whole.h5"))), [])
        for arm in ("b", "r", "z"):
            self.assertEqual(read(self.models, "models/" + arm)["flux"].tobytes(),
                             read(tmp("whole-models.h5"), "models/" + arm)["flux"].tobytes())
        self.assertEqual(starmill("status", self.out).returncode, 0)

    def test_what_is_not_ours_stays(self):
        text, data, lib = tmp("notes.txt"), tmp("data.h5"), tmp("kept-library.h5")
        with open(text, "w") as f:
            f.write("hello\n")
        with h5py.File(data, "w") as f:
            f["fits/VRAD"] = np.arange(4.0)
        shutil.copy(LIBRARY, lib)
        os.symlink(text, tmp("link.h5"))
        foreign = [text, data, lib, tmp("link.h5")]
        kept = [content(path) for path in foreign]
        for path in foreign:
            # a library is a library's to replace, and nothing else's
            calls = [["fit", "--library", LIBRARY, "--overwrite", "--output", path, SURVEY],
                     ["fit", "--library", LIBRARY, "--overwrite", "--output", tmp("n.h5"),
                      "--models", path, SURVEY],
                     ["merge", "--overwrite", "--output", path, self.out],
                     ["fit", "--library", LIBRARY, "--overwrite", "--output", tmp("n.h5"),
                      "--models", self.out, SURVEY]]
            if path != lib:
                calls += [["library", "demo", "--coarse", "--overwrite", "--output", path],
                          ["library", "import", "--overwrite", "--output", path, LIBRARY],
                          ["library", "spectra", "--overwrite", "--output", path, SURVEY]]
            for call in calls:
                with self.subTest(call=call):
                    self.assertOneLine(starmill(*call), "exists and is no starmill", "remove it",
                                       status=2)
            self.assertEqual([content(name) for name in foreign], kept)
        for path in (text, lib):
            done = starmill("bench", "fit", "--library", LIBRARY, "--repeat", 1, "--json", path,
                            SURVEY)
            self.assertOneLine(done, "--json", "not made by starmill bench", status=2)
        self.assertEqual([content(name) for name in foreign], kept)
        self.assertFalse(os.path.exists(tmp("n.h5")))


if __name__ == "__main__":
    main()
