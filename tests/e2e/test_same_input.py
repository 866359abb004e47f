# SPDX-License-Identifier: BSD-3-Clause
"""An input is the same by any spelling of its path: a result is continued, and not refused."""

from base import *  # noqa: F403

LIBRARY, SURVEY = coarse_survey(8)


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


if __name__ == "__main__":
    main()
