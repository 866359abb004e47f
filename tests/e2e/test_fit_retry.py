# SPDX-License-Identifier: BSD-3-Clause
"""--retry-failed after an input was repaired: what may have changed, and what comes of it."""

from common import *  # noqa: F403

SURVEY = cut("survey.fits", [3, 60, 100])


class Repaired(EndToEnd):
    def retry(self, *inputs, status=0):
        return self.fit("out.h5", "--retry-failed", *inputs, status=status)

    def setUp(self):
        if os.path.exists(tmp("out.h5")):
            os.unlink(tmp("out.h5"))
        self.good = cut("good.fits", [3, 60, 100], compress_masks)
        self.bad = cut("bad.fits", [3, 60, 100], compress_masks)

    def test_a_file_of_which_nothing_was_fitted(self):
        damage_tiles(self.bad, range(3))
        self.fit("out.h5", self.bad, self.good, status=3)
        self.assertEqual(list(read(self.path)["STATUS"]), 3 * [UNREADABLE] + 3 * [FITTED])
        shutil.copy(SURVEY, self.bad)  # of another size
        before = content(self.path)
        done = self.fit("out.h5", self.bad, self.good, status=4)
        self.assertOneLine(done, self.bad, "size has changed", status=4)
        self.assertEqual(content(self.path), before)
        self.retry(self.bad, self.good)
        again = read(self.path)
        files = read(self.path, "catalog/files")
        self.assertEqual(files["SIZE"][0], os.stat(self.bad).st_size)
        self.assertEqual(files["MTIME"][0], os.stat(self.bad).st_mtime)
        self.assertIn("finished already", self.fit("out.h5", self.bad, self.good).stdout)
        self.fit("undisturbed.h5", self.bad, self.good)
        self.assertEqual(differing(again, read(self.path)), [])

    def test_a_file_of_which_rows_were_fitted(self):
        self.fit("whole.h5", self.good)
        whole = read(self.path)
        damage_tiles(self.bad, [1])
        done = self.fit("out.h5", self.bad, status=3)
        self.assertOneLine(done, self.bad, "R_MASK", "UNREADABLE", status=3)
        table = read(self.path)
        self.assertEqual(list(table["STATUS"]), [FITTED, UNREADABLE, FITTED])
        for name, values in whole.items():  # a damaged row costs its neighbours nothing
            self.assertEqual(table[name][[0, 2]].tobytes(), values[[0, 2]].tobytes(), name)
        before = content(self.path)
        shutil.copy(self.good, self.bad)
        done = self.retry(self.bad, status=4)
        self.assertOneLine(done, self.bad, "2 of its 3 rows are already fitted", "restore it",
                           status=4)
        self.assertEqual(content(self.path), before)

    def test_a_file_that_could_not_be_indexed(self):
        put(self.bad, b"no FITS file")
        self.fit("out.h5", self.bad, self.good, status=3)
        before = content(self.path)
        shutil.copy(SURVEY, self.bad)
        done = self.retry(self.bad, self.good, status=4)
        self.assertOneLine(done, self.bad, "3 selected rows now and had 0", "merge", status=4)
        self.assertEqual(content(self.path), before)
        # as it says
        self.fit("repaired.h5", self.bad)
        run("merge", "--output", tmp("both.h5"), tmp("out.h5"), self.path)
        self.assertEqual(list(read(tmp("both.h5"))["STATUS"]), 6 * [FITTED])

    def test_one_that_still_has_no_rows(self):
        put(self.bad, b"no FITS file")
        self.fit("out.h5", self.bad, self.good, status=3)
        put(self.bad, b"nor is this")
        self.retry(self.bad, self.good, status=3)
        files = read(self.path, "catalog/files")
        self.assertEqual(files["SIZE"][0], len("nor is this"))
        self.assertTrue(files["ERROR"][0])
        done = self.fit("out.h5", self.bad, self.good, status=3)
        self.assertIn("finished already", done.stdout)

    def test_other_inputs_are_no_repaired_ones(self):
        self.fit("out.h5", self.good)
        self.assertOneLine(self.retry(self.bad, status=4), "other inputs", self.good, self.bad,
                           status=4)
        self.assertOneLine(self.retry(self.good, self.bad, status=4), "1 files, now 2", status=4)
