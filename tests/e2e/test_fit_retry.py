"""--retry-failed after an input was repaired: what may have changed, and what comes of it."""

import os
import shutil

from common import *  # noqa: F403  (every test script is made of these)

SURVEY = cut("survey.fits", [3, 60, 100])


def packed(name):
    """The survey with the masks of arm r in compressed tiles, one a row."""
    def compress(hdus):
        hdus["R_MASK"] = pyfits.CompImageHDU(hdus["R_MASK"].data, name="R_MASK",
                                             compression_type="GZIP_1")
    return cut(name, [3, 60, 100], compress)


def damage(path, rows):
    """The tiles of these rows cannot be unpacked: the file is indexed, the rows are not read."""
    with pyfits.open(path, disable_image_compression=True) as hdus:
        header, start = hdus["R_MASK"].header, hdus["R_MASK"].fileinfo()["datLoc"]
    heap = start + header.get("THEAP", header["NAXIS1"] * header["NAXIS2"])
    with open(path, "r+b") as f:
        for row in rows:
            f.seek(start + row * header["NAXIS1"])
            size, offset = np.frombuffer(f.read(8), ">i4")
            f.seek(heap + int(offset))
            f.write(b"\xff" * int(size))


class Repaired(EndToEnd):
    def retry(self, *inputs, status=0):
        return self.fit("out.h5", "--retry-failed", *inputs, status=status)

    def setUp(self):
        if os.path.exists(tmp("out.h5")):
            os.unlink(tmp("out.h5"))
        self.good = packed("good.fits")
        self.bad = packed("bad.fits")

    def test_a_file_of_which_nothing_was_fitted(self):
        damage(self.bad, range(3))
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
        damage(self.bad, [1])
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
        with open(self.bad, "wb") as f:
            f.write(b"no FITS file")
        self.fit("out.h5", self.bad, self.good, status=3)
        before = content(self.path)
        shutil.copy(SURVEY, self.bad)
        done = self.retry(self.bad, self.good, status=4)
        self.assertOneLine(done, self.bad, "3 selected rows now and had 0", "merge", status=4)
        self.assertEqual(content(self.path), before)
        # as it says
        self.fit("repaired.h5", self.bad)
        done = starmill("merge", "--output", tmp("both.h5"), tmp("out.h5"), self.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(read(tmp("both.h5"))["STATUS"]), 6 * [FITTED])

    def test_one_that_still_has_no_rows(self):
        with open(self.bad, "wb") as f:
            f.write(b"no FITS file")
        self.fit("out.h5", self.bad, self.good, status=3)
        with open(self.bad, "wb") as f:
            f.write(b"nor is this")
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


if __name__ == "__main__":
    main()
