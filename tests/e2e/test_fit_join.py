# SPDX-License-Identifier: BSD-3-Clause
"""join_by_name: rows of one object in several files become one row."""

from common import *  # noqa: F403


def as_spectra(hdus):
    """A coadd as a spectra file, each row an exposure."""
    fibermap = hdus["FIBERMAP"]
    columns = [pyfits.Column("EXPID", "J", array=np.arange(11, 11 + len(fibermap.data)))]
    columns += [c for c in fibermap.columns if c.name != "COADD_FIBERSTATUS"]
    columns += [pyfits.Column("FIBERSTATUS", "J", array=fibermap.data["COADD_FIBERSTATUS"])]
    hdus["FIBERMAP"] = pyfits.BinTableHDU.from_columns(columns, name="FIBERMAP")
    hdus.pop("EXP_FIBERMAP")
    hdus.pop("SCORES")


class Join(EndToEnd):
    def test_exposures_in_several_files_as_in_one(self):
        """The rows that a spectra file gives whose exposures are fitted jointly, bit for bit."""
        self.fit("one.h5", "--exposures", "joint",
                 cut("spectra-one.fits", [3, 60, 100, 60, 60, 150], as_spectra))
        expected = read(self.path)
        self.assertEqual(list(expected["STATUS"]), [FITTED] * 4)
        files = [cut("join-a.fits", [3, 60]), cut("join-b.fits", [100, 60]),
                 cut("join-c.fits", [60, 150])]
        for ranks in (0, 2, 3):
            self.fit(f"join{ranks}.h5", "--join-by-name", *files, "--models",
                     tmp(f"join-models{ranks}.h5"), ranks=ranks)
            self.assertEqual(differing(read(self.path), expected), [])
            catalog = read(self.path, "catalog")
            self.assertEqual(list(catalog["FILE"]), [0, 0, 1, 2])
            self.assertEqual(list(catalog["FITS_ROW"]), [0, 1, 0, 1])
            self.assertEqual(list(catalog["N_EXPOSURE"]), [1, 3, 1, 1])
            self.assertEqual(list(catalog["FIRST_EXPOSURE"]), [0, 1, 4, 5])
            exposures = read(self.path, "catalog/exposures")
            self.assertEqual(list(exposures["FILE"]), [0, 0, 1, 2, 1, 2])
            self.assertEqual(list(exposures["FITS_ROW"]), [0, 1, 1, 0, 0, 1])
            with h5py.File(tmp(f"join-models{ranks}.h5")) as f:
                self.assertEqual(list(f["models/fits_row"][...]), [0, 1, 1, 1, 2, 3])
                self.assertTrue(np.isfinite(f["models/r/flux"][...]).all())
        # the same command finds it finished, another setting is refused
        again = self.fit("join0.h5", "--join-by-name", *files)
        self.assertIn("finished already", again.stdout)
        self.fit("join0.h5", *files, status=4)

    def test_arms_in_files_of_their_own(self):
        def only(arms):
            def edit(hdus):
                for arm in set(ARMS) - set(arms):
                    for name in HDUS:
                        hdus.pop(f"{arm}_{name}")
            return edit

        rows = [3, 60, 100, 150]
        self.fit("whole.h5", cut("whole.fits", rows))
        expected = read(self.path)
        files = [cut("blue.fits", rows, only("B")), cut("red.fits", rows[::-1], only("RZ"))]
        self.fit("arms.h5", "--join-by-name", *files, ranks=2)
        table = read(self.path)
        self.assertEqual(list(read(self.path, "catalog")["N_EXPOSURE"]), [2] * 4)
        self.assertEqual(differing(table, expected), [])

    def test_row_whose_other_file_is_damaged_is_unreadable(self):
        first, second = cut("good.fits", [3, 60, 100]), cut("damaged.fits", [60, 150], compress_masks)
        damage_tiles(second, [0])
        done = self.fit("damaged.h5", "--join-by-name", first, second, status=3)
        self.assertOneLine(done, "damaged.fits", "R_MASK", "UNREADABLE", status=3)
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED, UNREADABLE, FITTED, FITTED])


if __name__ == "__main__":
    main()
