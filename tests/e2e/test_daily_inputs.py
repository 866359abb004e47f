# SPDX-License-Identifier: BSD-3-Clause
"""A survey's daily use: inputs by --pattern, also with --numbers; a table of inputs; runs that
leave out inputs already fitted.  Needs no test data."""

from base import *  # noqa: F403
from starmill.surveys import generic

HEAD = ["STATUS", "ROWS", "FITTED", "SIZE", "MTIME", "REDROCK_SIZE", "REDROCK_MTIME", "TIME",
        "SETTINGS", "RESULT", "INPUT", "REASON"]
QUICK = ("--minsn", 1e6)  # no star is that bright: rows are read, and not fitted
LIBRARY, STAR = coarse_survey(1)


class Daily(ProgramTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=TMP)
        self.table = os.path.join(self.folder, "inputs.tsv")
        self.daily = ("--pattern", self.at("tiles/*/*/coadd-*.fits"), "--input-table", self.table,
                      "--skip-done")

    def at(self, *parts):
        return os.path.join(self.folder, *parts)

    def add(self, *parts):
        """A file of one star in DESI's layout of folders."""
        os.makedirs(os.path.dirname(self.at(*parts)), exist_ok=True)
        return shutil.copy(STAR, self.at(*parts))

    def add_tile(self, tile, night):
        return self.add("tiles", str(tile), str(night), f"coadd-0-{tile}-thru{night}.fits")

    def run_fit(self, out, *args, status=0, **how):
        path = self.at(out)
        return self.ends(status, "fit", "--library", LIBRARY, "--output", path, *args, **how)

    def inputs(self, out):
        names = read(self.at(out), "catalog/files")["PATH"]
        return [os.path.relpath(n.decode(), self.folder) for n in names]

    def lines(self):
        text = content(self.table, "r").splitlines()
        self.assertEqual(text[0], "# starmill inputs 1")
        self.assertEqual(text[1], "#" + "\t".join(HEAD))
        return [dict(zip(HEAD, line.split("\t"))) for line in text if not line.startswith("#")]

    def test_patterns(self):
        for pixel in (7, 123, 45678):
            self.add("healpix", "main", "dark", str(pixel // 100), str(pixel),
                     f"coadd-main-dark-{pixel}.fits")
        self.add("perexp", "00000045", "spectra-0.fits")
        pattern = self.at("healpix/main/dark/*/*/coadd-*.fits")
        self.run_fit("all.h5", "--pattern", pattern, *QUICK, status=3)
        names = sorted(os.path.relpath(p, self.folder) for p in glob.glob(pattern))
        self.assertEqual(self.inputs("all.h5"), names)
        self.assertEqual(len(names), 3)
        put(self.at("{x}.fits"), b"")
        for pattern, expected in (("healpix/*/*/[4]*/?????/*", [names[-1]]), ("{x}*", ["{x}.fits"])):
            self.run_fit(f"{len(pattern)}.h5", "--pattern", self.at(pattern), *QUICK, status=3)
            self.assertEqual(self.inputs(f"{len(pattern)}.h5"), expected)
        # in the order of the numbers
        put(self.at("numbers"), "# pixels\n45678\n")
        self.run_fit("some.h5", "--pattern", self.at("perexp/{n:8}/spectra-*.fits"), "--pattern",
                     self.at("healpix/*/dark/{n/100}/{n}/coadd-*-{n}.fits"), "--numbers", "122-123",
                     "--numbers-file", self.at("numbers"), *QUICK, status=3)
        self.assertEqual([n for n in self.inputs("some.h5") if "*" not in n],
                         ["healpix/main/dark/1/123/coadd-main-dark-123.fits",
                          "healpix/main/dark/456/45678/coadd-main-dark-45678.fits"])
        # a missing file is an unreadable input with its name in the list
        self.assertIn("healpix/*/dark/1/122/coadd-*-122.fits", self.inputs("some.h5"))
        self.assertIn("perexp/00000122/spectra-*.fits", self.inputs("some.h5"))
        self.assertEqual(sum(e != b"" for e in read(self.at("some.h5"), "catalog/files")["ERROR"]), 4)

    def test_patterns_that_are_wrong(self):
        self.add_tile(1, 20260101)
        for args, says in (
            (["--pattern", self.at("nothing-*.fits")], "matches no file"),
            (["--pattern", self.at("tiles/{n}/*/*.fits")], "with --numbers"),
            (["--pattern", self.at("tiles/*/*/*.fits"), "--numbers", "1"], "no --pattern contains {n}"),
            (["--numbers", "1"], "--numbers needs --pattern"),
            *((["--pattern", self.at("tiles/{n}/*/*.fits"), "--numbers", numbers], "not a list of numbers")
              for numbers in ("1,5-4", "1,", "1.5", "1 2", 20 * "9")),
            (["--pattern", self.at("tiles/{n}/*/*.fits"), "--numbers", "1,2,1"], "appears twice"),
            (["--pattern", self.at("tiles/{n}/*/*.fits"), "--numbers-file", put("n.txt", "1\n2 3\n")], "line 2"),
            *((["--pattern", self.at(bad), "--numbers", "1"], "is not a placeholder for a number")
              for bad in ("a{n:0}", "{n/0}", "{n:19}", "{n", "{night}")),
            (["--pattern", self.at(3000 * "x") + "*"], "too long"),
            (["--skip-done"], "needs --input-table"),
            (["--skip-done", "--input-table", self.table, "--overwrite", STAR], "exclude each other"),
            (["--input-table", self.table, "--join-by-name", STAR], "join_by_name")):
            self.assertOneLine(self.run_fit("wrong.h5", *args, status=2), says, status=2)
        put(self.table, "notes of mine\n")
        # a file that is no table is neither read nor appended to
        for args in (["--skip-done", "--input-table", self.table], ["--input-table", self.table],
                     ["--input-table", STAR]):
            before = content(args[-1])
            done = self.run_fit("wrong.h5", *args, STAR, status=2)
            self.assertOneLine(done, args[-1], "not a table of inputs", status=2)
            self.assertEqual(content(args[-1]), before)
        done = self.run_fit("wrong.h5", "--input-table", self.at("nowhere", "inputs.tsv"), STAR, status=4)
        self.assertOneLine(done, "--input-table", "create it first", status=4)
        self.assertFalse(os.path.exists(self.at("wrong.h5")))

    def test_night_after_night(self):
        first = [self.add_tile(1, 20260101), self.add_tile(2, 20260101)]
        os.truncate(first[1], 5000)
        # the first night: one of two files is cut
        self.run_fit("night1.h5", *self.daily, ranks=2, status=3)
        one, two = self.lines()
        self.assertEqual([one["STATUS"], two["STATUS"]], ["done", "failed"])
        self.assertEqual([one["ROWS"], one["FITTED"], one["REASON"]], ["1", "1", ""])
        self.assertEqual([one["INPUT"], one["RESULT"]],
                         [os.path.realpath(first[0]), os.path.realpath(self.at("night1.h5"))])
        self.assertEqual(int(one["SIZE"]), os.stat(first[0]).st_size)
        self.assertAlmostEqual(float(one["MTIME"]), os.stat(first[0]).st_mtime, delta=1e-3)
        self.assertIn("20260101", two["REASON"])
        # the same command again leaves the table as it is
        before = content(self.table)
        self.run_fit("night1.h5", *self.daily, status=3)
        self.assertEqual(content(self.table), before)
        # the second night brings a file; its result has this file and the failed one
        second = self.add_tile(1, 20260102)
        done = self.run_fit("night1.h5", *self.daily, status=2)
        self.assertOneLine(done, "night1.h5 is finished", "another --output", status=2)
        shutil.copy(STAR, first[1])
        done = self.run_fit("night2.h5", *self.daily)
        self.assertIn("skipped      1 inputs that are done", done.stdout)
        self.assertEqual(self.inputs("night2.h5"),
                         [os.path.relpath(p, self.folder) for p in (second, first[1])])
        # now all is done, whichever output is named
        for out in ("night2.h5", "night3.h5"):
            self.assertIn("all 3 are done: nothing to fit", self.run_fit(out, *self.daily).stdout)
        self.assertFalse(os.path.exists(self.at("night3.h5")))
        # fitted again: a changed input, other settings, a lost result
        os.utime(second, (1, 1))
        self.run_fit("night4.h5", *self.daily)
        self.assertEqual(self.inputs("night4.h5"), [os.path.relpath(second, self.folder)])
        self.run_fit("other.h5", *self.daily, "--npoly", 9)
        self.assertEqual(len(self.inputs("other.h5")), 3)
        os.remove(self.at("other.h5"))
        self.run_fit("again.h5", *self.daily, "--npoly", 9)
        self.assertEqual(len(self.inputs("again.h5")), 3)

    def test_an_interrupted_run_keeps_its_inputs(self):
        files = [self.add_tile(2, 20260101), self.add_tile(3, 20260101)]
        self.run_fit("whole.h5", *self.daily[:2])
        unfinish(self.at("whole.h5"), 1)
        later = self.add_tile(1, 20260102)
        self.assertIn("the other 1 inputs later", self.run_fit("whole.h5", *self.daily).stderr)
        self.assertEqual(self.inputs("whole.h5"), [os.path.relpath(p, self.folder) for p in files])
        self.assertEqual([line["INPUT"] for line in self.lines()],
                         [os.path.realpath(p) for p in files])
        self.run_fit("next.h5", *self.daily)
        self.assertEqual(self.inputs("next.h5"), [os.path.relpath(later, self.folder)])
        # a run that ended early, whose inputs another run has fitted since
        self.run_fit("dead.h5", *self.daily[:2])
        unfinish(self.at("dead.h5"), 1)
        self.assertOneLine(self.run_fit("dead.h5", *self.daily, status=2), "dead.h5 is unfinished",
                           "remove the unfinished file", status=2)
        # an unfinished run is continued if the table says that this run fitted its inputs
        with h5py.File(self.at("next.h5"), "r+") as f:
            f["provenance/FINISHED"][...] = 0
        self.run_fit("next.h5", *self.daily)
        self.assertEqual(read(self.at("next.h5"), "provenance")["FINISHED"], 1)

    def test_redrock_belongs_to_the_input(self):
        star = self.add("coadd-x.fits")
        target = pyfits.getdata(star, "FIBERMAP")["TARGETID"]
        daily = ("--redrock", "--input-table", self.table, "--skip-done", star)
        write_redrock(self.at("redrock-x.fits"), target, [0.5], ["GALAXY"])
        self.run_fit("a.h5", *daily, status=3)
        self.assertEqual([(e["STATUS"], e["ROWS"]) for e in self.lines()], [("done", "0")])
        self.assertIn("nothing to fit", self.run_fit("b.h5", *daily).stdout)
        write_redrock(self.at("redrock-x.fits"), target, [0.5], ["STAR"])
        os.utime(self.at("redrock-x.fits"), (1, 1))
        self.run_fit("b.h5", *daily)
        self.assertEqual(self.lines()[1]["ROWS"], "1")
        # without --redrock the redrock file only sets a warning; it exists for d.h5, not for e.h5
        beside, daily = self.at("redrock-y.fits"), (*daily[1:-1], self.add("coadd-y.fits"))
        self.run_fit("c.h5", *daily)
        write_redrock(beside, target, [0.5], ["GALAXY"])
        for out in "d.h5", "e.h5":
            self.run_fit(out, *daily)
            self.assertEqual(read(self.at(out))["RVS_WARN"][0] & 32768 > 0, os.path.exists(beside))
            self.assertIn("nothing to fit", self.run_fit("f.h5", *daily).stdout)
            if out == "d.h5":
                os.remove(beside)
        put(beside, "no FITS file")  # not readable, so the input stays done until the file is mended
        self.run_fit("g.h5", *daily, "--npoly", 9)
        for text, expected in ("no FITS file", True), ("another", True), (None, False):
            put(beside, text) if text else write_redrock(beside, target, [0.5], ["GALAXY"])
            self.assertEqual("nothing to fit" in self.run_fit("h.h5", *daily, "--npoly", 9).stdout, expected)

    def test_a_result_that_has_lost_its_input(self):
        star, other = self.add("coadd-x.fits"), self.add("coadd-y.fits")
        daily = ("--input-table", self.table, "--skip-done", star)
        self.run_fit("a.h5", *daily)
        self.run_fit("a.h5", "--overwrite", other)
        self.run_fit("b.h5", *daily)
        self.run_fit("b.h5", "--overwrite", "--npoly", 9, star)
        self.run_fit("c.h5", *daily)
        os.remove(self.at("c.h5"))
        self.run_fit("c.h5", self.at("misspelt.fits"), status=3)
        self.run_fit("d.h5", *daily)
        for out in ("b.h5", "d.h5"):
            self.assertEqual(self.inputs(out), ["coadd-x.fits"])
        self.assertIn("nothing to fit", self.run_fit("e.h5", *daily).stdout)

    def test_inputs_of_another_survey_are_skipped_too(self):
        """wave_mask: auto masks nothing in them."""
        with pyfits.open(STAR) as hdus:
            generic.write(self.at("coadd-x.fits"), [{
                "NAME": "star", "ARM": arm, "WAVELENGTH": hdus[f"{arm}_WAVELENGTH"].data.astype(float),
                "FLUX": hdus[f"{arm}_FLUX"].data[0], "IVAR": hdus[f"{arm}_IVAR"].data[0]} for arm in "BRZ"], "vacuum")
        put(self.at("off.yaml"), "lsf: off\n")
        daily = ("--config", self.at("off.yaml"), "--input-table", self.table, "--skip-done", self.at("coadd-x.fits"))
        self.run_fit("a.h5", *daily)
        write_redrock(self.at("redrock-x.fits"), [1], [0.5], ["GALAXY"])  # not read for this format
        self.assertIn("nothing to fit", self.run_fit("b.h5", *daily).stdout)
        self.run_fit("c.h5", *daily, "--npoly", 9)
        self.assertEqual(len(self.lines()), 2)

    def test_an_empty_result_waits_for_nobody(self):
        daily = ("--input-table", self.table, "--skip-done")
        self.run_fit("a.h5", *daily, self.at("coadd-z.fits"), status=3)
        self.run_fit("a.h5", *daily, self.add("coadd-x.fits"))
        self.assertEqual(self.inputs("a.h5"), ["coadd-x.fits"])

    def test_an_outcome_that_the_table_lacks(self):
        daily = ("--input-table", self.table, self.add("coadd-x.fits"))
        self.run_fit("a.h5", *daily)
        os.utime(daily[-1], (1, 1))
        self.run_fit("a.h5", *daily, "--overwrite", status=4, env=faults("ENOSPC:write:inputs.tsv$:1:0"),
                     says=["cannot be written", "without --overwrite"])
        for _ in range(2):  # as it says; then all is recorded
            self.assertIn("finished already", self.run_fit("a.h5", *daily).stdout)
            self.assertEqual([line["MTIME"] for line in self.lines()][1:], ["1"])

    def test_a_table_that_was_cut(self):
        daily = ("--input-table", self.table, "--skip-done", self.add("coadd-x.fits"))
        self.run_fit("a.h5", *daily)
        whole = content(self.table)
        for n, size in enumerate((1, 9, len(whole.splitlines()[-1]))):
            put(self.table, whole[:-size])
            self.run_fit(f"b{n}.h5", *daily)  # once more, on a line of its own
            self.assertEqual(len(self.lines()), 2)
            done = self.run_fit(f"c{n}.h5", *daily)
            self.assertIn("nothing to fit", done.stdout)
            self.assertEqual("line 3 is damaged" in done.stderr, n > 0)  # a newline alone costs nothing

    def test_texts_that_a_table_cannot_hold(self):
        """Tabs end columns, newlines lines: reasons lose them, paths with them are refused."""
        bad = shutil.copy(STAR, self.at("a\tb.fits"))
        self.run_fit("tab.h5", "--input-table", self.table, bad, status=2, says=["a", "tab"])
