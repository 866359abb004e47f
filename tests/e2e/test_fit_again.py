# SPDX-License-Identifier: BSD-3-Clause
"""The same command on a result that is there: damaged rows are noticed and fitted again, and an input is
the same by any spelling of its path."""

from base import *  # noqa: F403

LIBRARY, SURVEY = coarse_survey(40)
ROWS = [3, 17, 38, 39, 5]


class Damaged(ProgramTest):
    def damage(self, path):
        """A value, the key, a STATUS that does not exist, a row of which key and STATUS are zeroed, and
        one of which STATUS alone is."""
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
        says = "5 rows (3, 5, 17, 38, 39) are damaged: their CRC or STATUS is wrong"
        status = starmill("status", path)
        self.assertEqual(status.returncode, 75, status.stdout)
        self.assertIn(says, status.stdout)
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
        """What is known of a star is not another star's, and only --overwrite mends it."""
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
        self.assertEqual(len(select.stdout.split()), 39, select.stdout)
        self.assertIn("damaged", starmill("show", self.path, read(self.path)["TARGETID"][5]).stdout)
        self.fit("known.h5", "--quiet", "--overwrite", SURVEY, lib=LIBRARY)
        run("status", self.path)


class SameInput(ProgramTest):
    def test_spellings(self):
        folder, other = tmp("one"), tmp("two")
        os.mkdir(folder)
        os.mkdir(other)
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
        # rows that are left are fitted by another spelling too, and the path stays as it was given
        with h5py.File(self.path, "r+") as f:
            f["fits/STATUS"][3] = 0
            f["provenance/FINISHED"][...] = 0
        self.fit("spelling.h5", whole, lib=LIBRARY, cwd=other, ranks=2)
        self.assertEqual(read(self.path, "catalog/files")["PATH"][0], b"b.fits")
        with h5py.File(self.path, "r") as f:
            self.assertEqual(f["provenance/FINISHED"][()].ravel()[0], 1)
        # another file of the same name and size is another input
        shutil.copy2(whole, os.path.join(other, "b.fits"))
        done = self.fit("spelling.h5", os.path.join(other, "b.fits"), lib=LIBRARY, status=4)
        self.assertIn("other inputs", done.stderr)
        self.assertNotEqual(content(self.path), before)  # N_RUN counts
