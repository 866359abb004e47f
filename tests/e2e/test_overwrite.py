# SPDX-License-Identifier: BSD-3-Clause
"""Runs whose result exists already.  --overwrite keeps the old file until the new file is finished
and has a fitted row, and never replaces a file of another program.  The same command fits damaged
rows again.  An input is the same by any spelling of its path."""

from base import *  # noqa: F403

N_STAR = 24
LIBRARY, SURVEY = coarse_survey(N_STAR)
SHORT = put("short.fits", content(SURVEY)[:100000])
CONFIG = put("slow.yaml", "write_interval: 0.1\n")
# slow enough to be stopped between two writes
SLOW = ["--config", CONFIG, "--optimizer", "nelder-mead", "--threads", 1, "--slots", 1]


def families(*paths):
    return sorted(os.path.basename(found) for path in paths
                  for found in glob.glob(glob.escape(path) + "*") if ".status.json" not in found)


class Overwrite(ProgramTest):
    def fit(self, *args, status=0, **how):
        return super().fit("old.h5", "--models", tmp("models.h5"), "--overwrite", *args, lib=LIBRARY,
                           status=status, **how)

    @classmethod
    def setUpClass(cls):
        run("fit", "--library", LIBRARY, "--output", tmp("old.h5"), "--models", tmp("models.h5"),
            "--quiet", SURVEY)
        for name in ("old.h5", "models.h5"):
            os.rename(tmp(name), tmp("made-" + name))

    def setUp(self):
        self.out, self.models = tmp("old.h5"), tmp("models.h5")
        for name in families(self.out, self.models):
            os.unlink(tmp(name))
        for name in ("old.h5", "models.h5"):
            shutil.copy(tmp("made-" + name), tmp(name))
        self.before = content(self.out), content(self.models)

    def assertKept(self, *more):
        """Both files are unchanged, and of their kin only `more` exist."""
        self.assertTrue((content(self.out), content(self.models)) == self.before)
        self.assertEqual(families(self.out, self.models), sorted(["models.h5", "old.h5", *more]))

    def test_nothing_fitted_replaces_nothing(self):
        """The input is missing, is cut, or has no star that is bright enough."""
        for ranks in (0, 2):
            for args in ([tmp("none.fits")], [SHORT], ["--minsn", 1e6, SURVEY]):
                done = self.fit(*args, status=3, ranks=ranks)
                self.assertIn("was not overwritten: no row has been fitted", done.stderr)
                self.assertIn("old.h5 is unchanged", done.stdout)
                self.assertKept()
        # without --overwrite, fitting no row is a failure too, but the file is written
        alone = super().fit("alone.h5", "--minsn", 1e6, SURVEY, lib=LIBRARY, status=3)
        self.assertIn("LOW_SN", alone.stdout)
        self.assertEqual(len(read(tmp("alone.h5"))["STATUS"]), N_STAR)

    def test_merge_of_nothing_fitted_replaces_nothing(self):
        super().fit("faint.h5", "--quiet", "--minsn", 1e6, SURVEY, lib=LIBRARY, status=3)
        done = starmill("merge", "--overwrite", "--output", self.out, tmp("faint.h5"))
        self.assertOneLine(done, self.out, "is not replaced", status=2)
        self.assertKept()
        run("merge", "--output", tmp("faint-merged.h5"), tmp("faint.h5"))

    def test_failure_replaces_nothing(self):
        done = self.fit("--npoly", 9, SURVEY, status=4, env=faults("ENOSPC:write:old.h5.new$:3:0"))
        self.assertIn("old.h5.new", done.stderr)
        self.assertTrue((content(self.out), content(self.models)) == self.before)

    def stop_between(self, *args, new=None):
        """Stop the fit with --overwrite when it has some rows; return what it prints."""
        process = start("fit", "--library", LIBRARY, "--output", self.out, "--models", self.models,
                        "--overwrite", *args)
        wait_until(lambda: has_rows(new or self.out + ".new"), process)
        return self.said_by(process, 75, signal.SIGTERM)[0]

    def test_stopped_run_is_continued_beside_the_old_result(self):
        args, new = ["--npoly", 9, *SLOW, SURVEY], self.out + ".new"
        out = self.stop_between(*args)
        self.assertIn("old.h5.new, which replaces", out)
        self.assertIn("models.h5.new", out)
        self.assertIn("give the same command again to continue", out)
        self.assertKept("models.h5.new", "old.h5.new")
        status = self.ends(75, "status", self.out)
        self.assertIn("overwritten  by --overwrite when " + new, status.stdout)
        n_done = (read(new)["STATUS"] == FITTED).sum()
        plan = self.fit("--plan", *args).stdout
        self.assertIn(f"{new} has {n_done} of {N_STAR} rows done", plan)
        n_left = N_STAR - n_done
        self.assertIn(f"{n_left} rows:" if n_left else "about 0 rows", plan)
        # runs with other settings or another device must refuse, and so keep the fitted rows
        with h5py.File(new, "r+") as f:
            device = f["provenance"].attrs["DEVICE"]
            f["provenance"].attrs["DEVICE"] = np.bytes_("cuda NVIDIA Nothing sm_99")
        begun = content(new)
        for more in (["--npoly", 8], ["--minsn", 7], ["--backend", "auto"], ["--backend", "cpu"]):
            done = self.fit(*args, *more, status=4, says=[new, "remove"])
        self.assertIn("was begun on ", done.stderr)
        self.assertTrue(content(new) == begun)
        with h5py.File(new, "r+") as f:
            f["provenance"].attrs["DEVICE"] = device
        # the same command continues the new file, on the device that began it
        part = read(new)
        again = self.fit(*args, "--backend", "auto", "--log-level", "debug")
        self.assertIn(f"backend auto: {new} was begun on", again.stderr)
        self.assertIn("an earlier start with --overwrite began", again.stderr)
        self.assertLess(0, n_done)
        self.assertEqual(families(self.out, self.models), ["models.h5", "old.h5"])
        done, whole = part["STATUS"] == FITTED, read(self.out)
        self.assertTrue((whole["STATUS"] == FITTED).all())
        for name, values in part.items():
            self.assertEqual(values[done].tobytes(), whole[name][done].tobytes(), name)
        run("status", self.out)

    def test_killed_while_it_replaces(self):
        """A kill between two steps leaves a whole result; the same command does the rest."""
        args = ["--npoly", 9, "--quiet", SURVEY]
        super().fit("other.h5", "--models", tmp("other-models.h5"), *args, lib=LIBRARY)
        for name in ("models.h5", "old.h5"):
            with self.subTest(name=name):
                self.setUp()
                self.fit(*args, status=-9, env=faults(f"kill:rename:/{name}$:1:1"))
                self.assertTrue(content(self.out) == self.before[0])
                self.assertEqual(starmill("status", self.out).returncode, 75)
                done = self.fit(*args, ranks=2 if name == "old.h5" else 0)
                self.assertIn("continuing the result", done.stderr)
                self.assertEqual(families(self.out, self.models), ["models.h5", "old.h5"])
                self.assertEqual(differing(read(self.out), read(tmp("other.h5"))), [])
                for arm in ("b", "r", "z"):
                    self.assertEqual(read(self.models, "models/" + arm)["flux"].tobytes(),
                                     read(tmp("other-models.h5"), "models/" + arm)["flux"].tobytes())
                self.assertEqual(attributes(self.out, "provenance")["RUN_ID"],
                                 attributes(self.models)["RUN_ID"])

    def test_models_that_another_run_writes_stay(self):
        """A run neither removes nor renames a MODELS.h5.new that it may not write."""
        new = self.models + ".new"
        for args in ([SURVEY], ["--npoly", 9, SURVEY]):
            self.setUp()
            if len(args) > 1:  # a killed run leaves a finished OUT.h5.new
                self.fit(*args, status=-9, env=faults("kill:rename:/models.h5$:1:1"))
            put(new, "hello\n")
            for ranks in (0, 2):
                done = self.fit(*args, status=2, ranks=ranks)
                self.assertIn(new + " exists and is not a starmill models file", done.stderr)
                self.assertEqual(content(new), b"hello\n")
                self.assertKept("models.h5.new", *["old.h5.new"] * (len(args) > 1))
        self.setUp()
        other = start("fit", "--library", LIBRARY, "--output", tmp("beside.h5"), "--models",
                      self.models, "--overwrite", *SLOW, SURVEY,
                      env=faults(f"stop:open:{os.path.basename(new)}$:2:1"))
        self.addCleanup(other.communicate)
        self.addCleanup(other.kill)
        wait_until(lambda: is_suspended(other.pid), other)
        begun = content(new)
        self.assertOneLine(self.fit(SURVEY, status=4), self.models, "is being written", status=4)
        self.assertTrue(content(new) == begun)

    def test_two_starts_at_once(self):
        """After taking the lock a run looks again: another run may have made the file meanwhile."""
        for name in families(self.out, self.models):
            os.unlink(tmp(name))
        args = ["fit", "--library", LIBRARY, "--output", self.out, "--overwrite", "--quiet", SURVEY]
        late = start(*args, "--minsn", 1e6, env=faults("stop:open:old.h5.lock:1:1"))
        # it has looked, and is about to take the lock
        wait_until(lambda: is_suspended(late.pid))
        run(*args)
        before = content(self.out)
        self.assertIn("was not overwritten", self.said_by(late, 3, signal.SIGCONT)[1])
        self.assertTrue(content(self.out) == before)

    def test_stopped_before_a_row(self):
        """No message advises to leave out --overwrite: such a command would keep the old result."""
        unfinish(self.out, 7)
        self.before = content(self.out), self.before[1]
        process = start("fit", "--library", LIBRARY, "--output", self.out, "--models", self.models,
                        "--overwrite", SURVEY, env=faults("stop:open:models.h5.new$:1:1"))
        wait_until(lambda: is_suspended(process.pid), process)
        process.send_signal(signal.SIGTERM)
        self.assertIn(f"left         {N_STAR}; give the same command again to continue",
                      self.said_by(process, 75, signal.SIGCONT)[0])
        self.assertKept()
        self.assertNotIn("without --overwrite", self.ends(75, "status", self.out).stdout)

    def test_a_result_that_is_called_new(self):
        super().fit("mine.h5.new", "--quiet", SURVEY, lib=LIBRARY)
        self.assertNotIn("overwritten", starmill("status", self.path).stdout)
        # it is another run's where it would replace something
        done = starmill("fit", "--library", LIBRARY, "--output", self.out + ".new", SURVEY)
        self.assertOneLine(done, "--output", "old.h5.new", "give another", status=2)
        self.ends(2, "fit", "--library", LIBRARY, "--output", tmp("n.h5"), "--models",
                  self.models + ".new", SURVEY, says=["--models", "models.h5.new", "give another"])
        self.assertKept()

    def test_new_result_that_was_left(self):
        """After a later run without --overwrite, status no longer mentions OUT.h5.new."""
        self.stop_between("--npoly", 9, *SLOW, SURVEY)
        self.assertEqual(starmill("status", self.out).returncode, 75)
        os.utime(self.out, (time.time() + 10,) * 2)
        self.assertNotIn("overwritten", run("status", self.out).stdout)

    def test_stopped_where_there_was_nothing(self):
        """The message says to continue without --overwrite; such a command finds the rows."""
        for name in families(self.out, self.models):
            os.unlink(tmp(name))
        args = ["--npoly", 9, *SLOW, SURVEY]
        out = self.stop_between(*args, new=self.out)
        self.assertIn("give the same command again, without --overwrite, to continue", out)
        self.assertIn("continued    by that command without --overwrite",
                      starmill("status", self.out).stdout)
        n_done = (read(self.out)["STATUS"] == FITTED).sum()
        self.assertIn(f"{n_done} of {N_STAR} rows done", super().fit(
            "old.h5", "--models", self.models, "--plan", *args, lib=LIBRARY).stdout)

    def test_a_result_that_cannot_be_continued(self):
        """Results of another version and damaged ones are replaced only with --overwrite."""
        def version(number):
            with h5py.File(self.out, "r+") as f:
                f.attrs.modify("FORMAT_VERSION", f.attrs["FORMAT_VERSION"].dtype.type(number))
        for change, says in ((lambda: version(99), "newer starmill"),
                             (lambda: version(1), "older starmill"),
                             (lambda: put(self.out, self.before[0][:len(self.before[0]) // 2]),
                              "damaged or truncated")):
            change()
            before = content(self.out)
            done = super().fit("old.h5", SURVEY, lib=LIBRARY, status=4)
            self.assertOneLine(done, self.out, says, "--overwrite", status=4)
            self.assertTrue(content(self.out) == before)
        self.fit("--quiet", SURVEY)
        self.assertTrue((read(self.out)["STATUS"] == FITTED).all())
        self.assertEqual(families(self.out, self.models), ["models.h5", "old.h5"])

    def test_what_is_not_ours_stays(self):
        text, data, lib = put("notes.txt", "hello\n"), tmp("data.h5"), tmp("kept-library.h5")
        with h5py.File(data, "w") as f:
            f["fits/VRAD"] = np.arange(4.0)
        shutil.copy(LIBRARY, lib)
        os.symlink(text, tmp("link.h5"))
        foreign = [text, data, lib, tmp("link.h5")]
        kept = [content(path) for path in foreign]
        for path in foreign:
            # only `starmill library` may replace a library, and no other file
            calls = [["fit", "--library", LIBRARY, "--overwrite", "--output", path, SURVEY],
                     ["fit", "--library", LIBRARY, "--overwrite", "--output", tmp("n.h5"),
                      "--models", path, SURVEY],
                     ["merge", "--overwrite", "--output", path, self.out],
                     ["fit", "--library", LIBRARY, "--overwrite", "--output", tmp("n.h5"),
                      "--models", self.out, SURVEY]]
            if path != lib:
                calls += [["library", *job, "--overwrite", "--output", path] for job in (
                    ("import", LIBRARY), ("spectra", SURVEY),
                    ("model-error", "--spectra", SURVEY, "--medium", "vacuum", LIBRARY))]
            for call in calls:
                with self.subTest(call=call):
                    self.ends(2, *call, says=["exists and is not a starmill", "remove it"])
            self.assertEqual([content(name) for name in foreign], kept)
        self.assertFalse(os.path.exists(tmp("n.h5")))


ROWS = [3, 17, 22, 23, 5]


class Damaged(ProgramTest):
    def damage(self, path):
        """Damage five rows: VRAD; TARGETID; an unknown STATUS; STATUS and TARGETID 0; STATUS 0."""
        with h5py.File(path, "r+") as f:
            for name, row in zip(("VRAD", "TARGETID"), ROWS):
                values = f["fits/" + name]
                bits = values[row : row + 1].view(np.uint64) ^ np.uint64(1 << 40)
                values[row] = bits.view(values.dtype)[0]
            f["fits/STATUS"][ROWS[2]] = 77
            f["fits/STATUS"][ROWS[3]] = f["fits/TARGETID"][ROWS[3]] = 0
            f["fits/STATUS"][ROWS[4]] = 0

    def test_finished_result(self):
        path, whole = tmp("finished.h5"), tmp("whole.h5")
        self.fit("finished.h5", "--quiet", SURVEY, lib=LIBRARY)
        shutil.copy(path, whole)
        self.damage(path)
        says = "5 rows (3, 5, 17, 22, 23) are damaged: their CRC or STATUS is wrong"
        self.assertIn(says, self.ends(75, "status", path).stdout)
        merge = ["merge", "--overwrite", "--output", put("merged.h5", content(whole)), path]
        self.assertOneLine(starmill(*merge), path, says, status=4)
        self.assertEqual(content(tmp("merged.h5")), content(whole))
        damaged = content(path)
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                put(path, damaged)
                done = self.fit("finished.h5", "--quiet", SURVEY, lib=LIBRARY, ranks=ranks)
                self.assertIn("fitted again", done.stderr)
                if not ranks:
                    self.assertIn(says, done.stderr)
                self.assertEqual(differing(read(path), read(whole)), [])
        run("status", path)
        run(*merge)

    def test_catalog(self):
        """A changed catalogue value damages its row, and only --overwrite mends the row."""
        self.fit("known.h5", "--quiet", SURVEY, lib=LIBRARY)
        whole = content(self.path)
        for name, value in (("TARGETID", 7), ("TARGET_RA", 7.0), ("OBJECT", b"Vega")):
            put(self.path, whole)
            with h5py.File(self.path, "r+") as f:
                f["catalog/" + name][5] = value
            says = "1 row (5) is damaged: its CATALOG_CRC, CRC or STATUS is wrong"
            self.assertIn(says, starmill("status", self.path).stdout)
            done = self.fit("known.h5", "--quiet", SURVEY, lib=LIBRARY, status=4)
            self.assertOneLine(done, says, "--overwrite", status=4)
        merge = starmill("merge", "--output", tmp("none.h5"), self.path)
        self.assertOneLine(merge, says, "with --overwrite", status=4)
        select = starmill("select", self.path, "STATUS >= 0")
        self.assertIn("row (5) is damaged", select.stderr)
        self.assertEqual(len(select.stdout.split()), N_STAR - 1, select.stdout)
        self.assertIn("damaged", starmill("show", self.path, read(self.path)["TARGETID"][5]).stdout)
        self.fit("known.h5", "--quiet", "--overwrite", SURVEY, lib=LIBRARY)
        run("status", self.path)


class SameInput(ProgramTest):
    def test_spellings(self):
        folder, other = new_folder("one"), new_folder("two")
        shutil.copy(SURVEY, os.path.join(folder, "b.fits"))
        os.symlink(os.path.join(folder, "b.fits"), os.path.join(other, "link.fits"))
        self.fit("spelling.h5", "--quiet", "b.fits", lib=LIBRARY, cwd=folder)
        before = content(self.path)
        whole = os.path.join(folder, "b.fits")
        for name, cwd in (("./b.fits", folder), ("../one//b.fits", folder), (whole, folder),
                          (whole, other), ("../one/b.fits", other), ("link.fits", other)):
            with self.subTest(name=name, cwd=cwd):
                done = self.fit("spelling.h5", name, lib=LIBRARY, cwd=cwd)
                self.assertIn("finished already", done.stdout)
        # with another spelling of the path the rest is fitted; the stored path stays
        unfinish(self.path, 3)
        self.fit("spelling.h5", whole, lib=LIBRARY, cwd=other, ranks=2)
        self.assertEqual(read(self.path, "catalog/files")["PATH"][0], b"b.fits")
        self.assertEqual(read(self.path, "provenance")["FINISHED"].ravel()[0], 1)
        # another file of the same name and size is another input
        shutil.copy2(whole, os.path.join(other, "b.fits"))
        done = self.fit("spelling.h5", os.path.join(other, "b.fits"), lib=LIBRARY, status=4)
        self.assertIn("other inputs", done.stderr)
        self.assertNotEqual(content(self.path), before)  # N_RUN counts
