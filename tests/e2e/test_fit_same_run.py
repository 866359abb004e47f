# SPDX-License-Identifier: BSD-3-Clause
"""Fits whose ranks differ in settings; continued fits whose rows or settings changed; retries."""

from common import *  # noqa: F403


class Redrock(EndToEnd):
    """The redrock file selects other rows, as many as before, when the run continues."""

    ROWS = [3, 60, 100, 150]

    def setUp(self):
        self.stars = cut("coadd-same.fits", self.ROWS)
        self.ids = [int(i) for i in pyfits.getdata(self.stars, "FIBERMAP")["TARGETID"]]
        self.redrock = tmp("redrock-same.fits")

    def write(self, kept, path=None):
        """Write a redrock file: kept rows are stars.  All such files agree in size and time."""
        path, n = path or self.redrock, len(self.ids)
        write_redrock(path, self.ids, np.full(n, 0.5), ["STAR" if i in kept else "GALAXY" for i in range(n)])
        os.utime(path, (1.7e9, 1.7e9))

    def refused(self, *parts, select=("--redrock",), ranks=0):
        before = content(self.path)
        self.ends(4, "fit", "--library", library(), "--output", self.path, *select, self.stars,
                  ranks=ranks, says=[self.path, self.stars, "--overwrite", *parts])
        self.assertEqual(content(self.path), before)

    def begin(self, out, ranks=0):
        self.write([0, 1])
        self.fit(out, "--redrock", self.stars, ranks=ranks)
        self.assertEqual([int(i) for i in read(self.path)["TARGETID"]], self.ids[:2])
        unfinish(self.path)

    def test_other_rows_are_refused(self):
        self.begin("rows.h5", ranks=2)
        self.write([1, 2])
        for ranks in 0, 2:
            self.refused("its selected rows have changed", self.redrock, ranks=ranks)
        self.write([0, 1])
        self.fit("rows.h5", "--redrock", self.stars)  # the right ones still continue
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 2)

    def test_another_redrock_file_is_refused(self):
        self.begin("file.h5")
        files = read(self.path, "catalog/files")
        self.assertEqual([p.decode() for p in files["REDROCK"]], [self.redrock])
        self.assertEqual(list(files["REDROCK_SIZE"]), [os.path.getsize(self.redrock)])
        self.assertEqual(list(files["REDROCK_MTIME"]), [1.7e9])
        os.utime(self.redrock, (1.8e9, 1.8e9))
        self.refused("the time of change of its redrock file differs", self.redrock)
        os.remove(self.redrock)
        zbest = tmp("zbest-same.fits")
        self.write([0, 1], zbest)
        self.refused("its redrock file was", self.redrock, f"now {zbest}", ranks=2)
        os.remove(zbest)

    def test_file_that_only_classifies_must_stay_too(self):
        """Else a result mixes rows with and without CLASS."""
        self.fit("columns.h5", self.stars)
        unfinish(self.path)
        self.write([0, 1])
        self.refused(f"its redrock file was none, now {self.redrock}", select=())
        os.remove(self.redrock)
        self.fit("columns.h5", self.stars)  # as it was begun
        self.assertFalse((read(self.path)["RVS_WARN"] & 32768).any())
        self.write([0, 1])
        self.fit("columns.h5", "--overwrite", self.stars)
        self.assertEqual(list(read(self.path)["RVS_WARN"] & 32768 > 0), [False, False, True, True])
        unfinish(self.path)
        os.utime(self.redrock, (1.8e9, 1.8e9))
        self.refused(f"with {self.redrock}: the time of change of its redrock file differs",
                     select=())
        os.remove(self.redrock)
        self.refused(f"its redrock file was {self.redrock}, now none", select=())


class Ranks(EndToEnd):
    """Ranks that were not started alike end together, at once, and write nothing."""

    def mpmd(self, common, first=(), second=(), program=STARMILL):
        """Two ranks of one job, each with a command line of its own."""
        one, two = ([STARMILL, "fit", *common, *first], [program, "fit", *common, *second])
        return ended([MPIRUN, "-n", 1, *one, ":", "-n", 1, *two])

    def assertRefused(self, done, *parts):
        self.assertOneLine(done, "starmill fit: rank 0 on ", "rank 1 on ", *parts, status=2)
        self.assertFalse(os.path.exists(tmp("alike.h5")))

    def test_other_command_line(self):
        stars, other = cut("alike.fits", [3]), cut("other.fits", [60])
        common = ["--library", library(), "--output", tmp("alike.h5")]
        for more in (["--models", tmp("alike-models.h5")], ["--plan"], ["--overwrite"],
                     ["--print-config"], ["--help"]):
            with self.subTest(more=more):
                done = self.mpmd([*common, stars], second=more)
                self.assertRefused(done, "different command lines", f'"no {more[0]}', f'"{more[0]}')
        done = self.mpmd(common, [stars], [other])
        self.assertRefused(done, f'"input {stars}" and "input {other}"')
        done = self.mpmd([*common, stars], second=["--no-such-option"])
        self.assertOneLine(done, "starmill fit: ", "no-such-option", status=2)

    def test_other_library(self):
        copy = tmp("stale.h5")
        emulators = [data(f"emulator/nnrm_desi_{arm}.h5") for arm in "brz"]
        run("library", "import", "--output", copy, "--guess-templates", 21, *emulators)
        common = ["--output", tmp("alike.h5"), cut("alike.fits", [3])]
        done = self.mpmd(common, ["--library", library()], ["--library", copy])
        self.assertRefused(done, "different libraries")

    def test_other_settings(self):
        common = ["--library", library(), "--output", tmp("alike.h5"), cut("alike.fits", [3])]
        done = self.mpmd(common, second=["--config", put("stale.yaml", "npoly: 11\n")])
        self.assertRefused(done, "different settings", '"npoly: 10" and "npoly: 11"')
        done = self.mpmd(common, ["--threads", 1])
        self.assertRefused(done, "different settings", '"threads: given" and "threads: 0"')

    def test_what_may_differ(self):
        path, copy = tmp("may-differ.h5"), put("same-library.h5", content(library()))
        done = self.mpmd(["--output", path, "--quiet", cut("alike.fits", [3, 60])],
                         ["--library", library(), "--threads", 1, "--slots", 1],
                         ["--library", copy, "--threads", 2, "--log", tmp("second.log")])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(read(path)["STATUS"]), [FITTED] * 2)
        unfinish(path)
        with h5py.File(path, "r+") as f:  # a newer processor goes on as the older one
            f["provenance"].attrs["DEVICE"] = np.bytes_("cpu x86-64-v2")
        self.assertIn("cpu x86-64-v2", self.fit("may-differ.h5", tmp("alike.fits"), ranks=2).stdout)


SURVEY = cut("survey.fits", [3, 60, 100])


class Repaired(EndToEnd):
    def retry(self, *inputs, out="out.h5", **how):
        return self.fit(out, "--retry-failed", *inputs, **how)

    def setUp(self):
        if os.path.exists(tmp("out.h5")):
            os.unlink(tmp("out.h5"))
        self.good = cut("good.fits", [3, 60, 100], compress_masks)
        self.bad = cut("bad.fits", [3, 60, 100], compress_masks)

    def test_a_file_of_which_nothing_was_fitted(self):
        damage_tiles(self.bad, range(3))
        self.fit("out.h5", self.bad, self.good, status=3)
        self.assertEqual(list(read(self.path)["STATUS"]), 3 * [UNREADABLE] + 3 * [FITTED])
        with pyfits.open(SURVEY) as hdus:  # of another size, with other positions
            hdus["FIBERMAP"].data["TARGET_RA"] += 90
            hdus["FIBERMAP"].data["FIBER"] += 7
            hdus.writeto(self.bad, overwrite=True)
        before = content(self.path)
        self.fit("out.h5", self.bad, self.good, status=4, says=[self.bad, "size has changed"])
        self.assertEqual(content(self.path), before)
        with h5py.File(self.path, "r+") as f:
            f["catalog/TARGET_RA"][4] += 1  # of the other file
        self.retry(self.bad, self.good, status=4, says=["1 row (4) is damaged"])
        put(self.path, before)
        self.retry(self.bad, self.good)
        again = read(self.path)
        files = read(self.path, "catalog/files")
        self.assertEqual(files["SIZE"][0], os.stat(self.bad).st_size)
        self.assertEqual(files["MTIME"][0], os.stat(self.bad).st_mtime)
        self.assertIn("finished already", self.fit("out.h5", self.bad, self.good).stdout)
        self.fit("undisturbed.h5", self.bad, self.good)
        self.assertEqual(differing(again, read(self.path)), [])
        for group in ("catalog", "catalog/exposures"):
            self.assertEqual(differing(read(tmp("out.h5"), group), read(self.path, group)), [], group)

    def test_a_start_that_fits_few_rows_says_nothing_of_all(self):
        """Only good.fits, fitted before the retry, has arm r and uses the resolving power."""
        def without(name, part):
            return cut(name, [3, 60, 100], lambda hdus: [hdus.pop(hdu) for hdu in [*hdus] if part in hdu])
        good, power = without("good.fits", "_RESOLUTION"), ("--resolving-power", 3000)
        damage_tiles(self.bad, range(3))
        self.fit("out.h5", *power, self.bad, good, status=3)
        without("bad.fits", "R_")
        retried = self.retry(*power, self.bad, good)
        alone = self.fit("alone.h5", *power, self.bad)
        for said in "arm r got no spectrum", "resolving_power and fwhm are not used":
            self.assertNotIn(said, retried.stderr)
            self.assertIn(said, alone.stderr)

    def test_a_file_in_another_frame(self):
        """A result has one velocity frame for all its files, so a retry in another is refused."""
        damage_tiles(self.bad, range(3))
        self.fit("out.h5", self.bad, self.good, status=3)
        with pyfits.open(SURVEY) as hdus:
            for hdu in hdus:
                hdu.header["SPECSYS"] = "TOPOCENT"
            hdus.writeto(self.bad, overwrite=True)
        self.assertOneLine(self.retry(self.bad, self.good, status=4), self.bad,
                           "desi barycentric, now desi topocentric", "output of its own", status=4)

    def test_a_file_of_which_rows_were_fitted(self):
        self.fit("whole.h5", self.good)
        whole = read(self.path)
        damage_tiles(self.bad, [1])
        self.fit("out.h5", self.bad, status=3, says=[self.bad, "R_MASK", "UNREADABLE"])
        table = read(self.path)
        self.assertEqual(list(table["STATUS"]), [FITTED, UNREADABLE, FITTED])
        # a damaged row costs its neighbours nothing
        self.assertEqual(differing(table, whole, [0, 2]), [])
        before = content(self.path)
        shutil.copy(self.good, self.bad)
        self.assertOneLine(self.retry(self.bad, status=4), self.bad,
                           "2 of its 3 rows are already fitted", "restore it", status=4)
        self.assertEqual(content(self.path), before)

    def test_a_file_that_could_not_be_indexed(self):
        put(self.bad, b"no FITS file")
        self.fit("out.h5", self.bad, self.good, status=3)
        before = content(self.path)
        shutil.copy(SURVEY, self.bad)
        self.retry(self.bad, self.good, status=4, says=[self.bad, "3 selected rows now and had 0", "another --output"])
        self.assertEqual(content(self.path), before)
        # as it says
        self.fit("repaired.h5", self.bad)
        run("merge", "--output", tmp("both.h5"), tmp("out.h5"), self.path)
        self.assertEqual(list(read(tmp("both.h5"))["STATUS"]), 6 * [FITTED])

    def test_a_file_that_one_start_cannot_read(self):
        inputs, unread, late = (self.bad, self.good), faults("EIO:open:bad.fits$:1:0"), tmp("late.fits")
        # the first start: the result goes on without the file
        self.fit("out.h5", *inputs, status=3, env=unread)
        for ranks in 0, 2:
            unfinish(self.path)
            self.fit("out.h5", *inputs, status=3, ranks=ranks, says=[self.bad, "when the result was begun"])
            self.assertEqual(list(read(self.path)["STATUS"]), 3 * [FITTED])
        self.retry(*inputs, status=4, says=["it could not be read then"])
        # a later start that cannot read or find the file stops; one that can read it continues
        self.fit("late.h5", *inputs)
        self.fit("late.h5", *inputs, status=4, env=unread, says=[self.bad, "could be read when"])
        unfinish(self.path)
        self.fit("late.h5", *inputs, status=75, env=unread, says=[self.bad, "could be read when"])
        os.rename(self.bad, late)
        self.retry(*inputs, out="late.h5", status=75, says=[self.bad, "could be read when"])
        os.rename(late, self.bad)
        self.fit("late.h5", *inputs)
        # nothing can be read: the arms are then unknown, too
        self.fit("one.h5", self.bad)
        unfinish(tmp("one.h5"))
        self.fit("one.h5", self.bad, status=75, env=unread, says=[self.bad, "could be read when"])

    def test_one_that_still_has_no_rows(self):
        put(self.bad, b"no FITS file")
        self.fit("out.h5", self.bad, self.good, status=3)
        put(self.bad, b"nor is this")
        self.retry(self.bad, self.good, status=3)
        files = read(self.path, "catalog/files")
        self.assertEqual(files["SIZE"][0], len("nor is this"))
        self.assertTrue(files["ERROR"][0])
        self.assertIn("finished already", self.fit("out.h5", self.bad, self.good, status=3).stdout)

    def test_other_inputs_are_no_repaired_ones(self):
        self.fit("out.h5", self.good)
        self.retry(self.bad, status=4, says=["other inputs", self.good, self.bad])
        self.retry(self.good, self.bad, status=4, says=["1 files, now 2"])
