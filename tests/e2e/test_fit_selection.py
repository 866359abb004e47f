# SPDX-License-Identifier: BSD-3-Clause
"""Which rows are fitted: selection, S/N, exposures; real files (defects: test_patho.py)."""

from common import *  # noqa: F403


class Selection(EndToEnd):
    ROWS = [3, 60, 100, 150]

    def setUp(self):
        def edit(hdus):
            hdus["FIBERMAP"].data["OBJTYPE"][1] = "SKY"
            hdus["FIBERMAP"].data["COADD_FIBERSTATUS"][2] = 1 << 9
            hdus["FIBERMAP"].data["COADD_FIBERSTATUS"][3] = 1 << 3 | 1 << 20
        self.stars = cut("select.fits", self.ROWS, edit)
        with pyfits.open(self.stars) as hdus:
            self.ids = [int(i) for i in hdus["FIBERMAP"].data["TARGETID"]]

    def kept(self, *args, status=0):
        self.done = self.fit("select.h5", "--overwrite", *args, self.stars, status=status)
        return [int(i) for i in read(self.path)["TARGETID"]]

    def test_object_type_and_fiber_status(self):
        self.assertEqual(self.kept(), [self.ids[0], self.ids[3]])
        self.assertEqual(self.kept("--objtype", "SKY,BAD"), [self.ids[1]])

    def test_target_ids(self):
        self.assertEqual(self.kept("--targetid", f"{self.ids[3]},{self.ids[1]},77"), [self.ids[3]])
        put("ids.txt", f"# wanted\n{self.ids[0]}\n")
        self.assertEqual(self.kept("--targetid-file", tmp("ids.txt")), [self.ids[0]])
        both = ["--targetid-file", tmp("ids.txt"), "--targetid", self.ids[3]]
        self.assertEqual(self.kept(*both), [self.ids[0], self.ids[3]])

    def test_no_star_is_selected(self):
        for ranks in (1, 3):
            done = self.fit(f"empty{ranks}.h5", "--targetid", "77", self.stars, ranks=ranks,
                            status=3)
            self.assertOneLine(done, "no star to fit", "selection", status=3)
            table = read(self.path)
            self.assertEqual({len(v) for v in table.values()}, {0})
            self.assertIn("STATUS", table)
            again = self.fit(f"empty{ranks}.h5", "--targetid", "77", self.stars, status=3)
            self.assertIn("finished already", again.stdout)

    def test_minimum_signal_to_noise(self):
        self.kept()
        table = read(self.path)
        best = np.max([table["SN_" + a] for a in ARMS], axis=0)
        limit = float(np.mean(best))
        self.assertEqual(self.kept("--minsn", limit), [self.ids[0], self.ids[3]])
        low = read(self.path)
        expected = np.where(best < limit, LOW_SN, FITTED)
        self.assertEqual(sorted(expected), [FITTED, LOW_SN])
        np.testing.assert_array_equal(low["STATUS"], expected)
        self.assertWhole(low)
        for name in table:
            self.assertEqual(low[name][expected == FITTED].tobytes(),
                             table[name][expected == FITTED].tobytes(), name)


class Exposures(EndToEnd):
    """A spectra file, made from coadded stars: the exposures of a target one by one or jointly."""

    ROWS = [3, 100, 3, 3]

    @classmethod
    def setUpClass(cls):
        def edit(hdus):
            fibermap = hdus["FIBERMAP"]
            columns = [pyfits.Column("EXPID", "J", array=np.array([11, 12, 13, 14]))]
            columns += [c for c in fibermap.columns if c.name != "COADD_FIBERSTATUS"]
            columns += [pyfits.Column("FIBERSTATUS", "J",
                                      array=fibermap.data["COADD_FIBERSTATUS"])]
            hdus["FIBERMAP"] = pyfits.BinTableHDU.from_columns(columns, name="FIBERMAP")
            hdus.pop("EXP_FIBERMAP")
            hdus.pop("SCORES")
        cls.spectra = cut("spectra-x.fits", cls.ROWS, edit)

    def test_one_row_per_exposure(self):
        self.fit("single.h5", self.spectra, ranks=2)
        table, catalog = read(self.path), read(self.path, "catalog")
        self.assertEqual(list(catalog["EXPID"]), [11, 12, 13, 14])
        self.assertEqual(list(catalog["N_EXPOSURE"]), [1] * 4)
        self.assertEqual(list(table["STATUS"]), [FITTED] * 4)
        for i in (2, 3):
            self.assertEqual(table["VRAD"][i], table["VRAD"][0])

    def test_jointly(self):
        self.fit("single.h5", "--overwrite", self.spectra)
        single = read(self.path)
        self.fit("joint.h5", "--exposures", "joint", "--models", tmp("joint-models.h5"), self.spectra,
                 ranks=2)
        table, catalog = read(self.path), read(self.path, "catalog")
        self.assertEqual(list(catalog["N_EXPOSURE"]), [3, 1])
        self.assertEqual(list(table["TARGETID"]), list(single["TARGETID"][:2]))
        self.assertEqual(list(table["STATUS"]), [FITTED] * 2)
        # three times the same spectrum: the same optimum, errors smaller by sqrt(3)
        self.assertEqual(table["NPIX_TOT"][0], 3 * single["NPIX_TOT"][0])
        np.testing.assert_allclose(table["CHISQ_TOT"][0], 3 * single["CHISQ_TOT"][0], rtol=1e-3)
        self.assertLess(abs(table["VRAD"][0] - single["VRAD"][0]), 0.3 * single["VRAD_ERR"][0])
        np.testing.assert_allclose(table["VRAD_ERR"][0], single["VRAD_ERR"][0] / 3**0.5, rtol=0.1)
        # the other target has one exposure
        for name in table:
            self.assertEqual(table[name][1].tobytes(), single[name][1].tobytes(), name)
        with h5py.File(tmp("joint-models.h5")) as f:
            self.assertEqual([len(f[f"models/{a.lower()}/flux"]) for a in ARMS], [4] * 3)
            # one model row per exposure, target by target
            self.assertEqual(list(f["models/fits_row"][...]), [0, 0, 0, 1])


class RealFiles(EndToEnd):
    """DESI files without a star: skies, stuck fibers, faint galaxies, compressed masks."""

    def test_they_are_read_and_nothing_crashes(self):
        names = ["coadd-4-80613-thru20210324", "coadd-5-169-thru20210419",
                 "coadd-special-dark-27247", "coadd-sv3-dark-26065", "spectra-sv3-dark-26065"]
        paths = [data(f"real/desi/{n}.fits.gz") for n in names]
        self.fit("real.h5", *paths, ranks=2)
        table, catalog = read(self.path), read(self.path, "catalog")
        self.assertTrue(set(table["STATUS"]) <= {FITTED, NO_ARM})
        self.assertGreater(int((table["STATUS"] == FITTED).sum()), 0)
        self.assertWhole(table)
        expected = []
        for i, path in enumerate(paths):
            with pyfits.open(path) as hdus:
                fibermap = hdus["FIBERMAP"].data
                names = fibermap.names
                status = fibermap["FIBERSTATUS" if "FIBERSTATUS" in names else "COADD_FIBERSTATUS"]
                keep = (status & ~(1 << 3 | 1 << 20)) == 0
                if "OBJTYPE" in names:
                    keep &= ~np.isin(np.char.strip(fibermap["OBJTYPE"]), ["SKY", "BAD"])
                expected += [(i, int(row), int(fibermap["TARGETID"][row]))
                             for row in np.flatnonzero(keep)]
        found = list(zip(map(int, catalog["FILE"]), map(int, catalog["FITS_ROW"]),
                         map(int, catalog["TARGETID"])))
        self.assertEqual(found, expected)

    def test_compressed_masks_are_those_of_astropy(self):
        """The same spectra with their masks written out plainly give the same rows."""
        name = "real/desi/spectra-sv3-dark-26065.fits.gz"
        args = ["--objtype", "TGT,SKY,BAD"]
        self.fit("packed.h5", *args, data(name))
        packed = read(self.path)
        self.assertGreater(len(packed["STATUS"]), 0)
        with pyfits.open(data(name)) as hdus:
            masked = sum(int((hdus[a + "_MASK"].data != 0).sum()) for a in ARMS)
        self.assertGreater(masked, 0)
        rows = range(5)
        self.fit("plain.h5", *args, cut("spectra-plain.fits", rows, name=name))
        self.assertEqual(differing(read(self.path), packed), [])

    def test_redrock(self):
        for name in ("4-80613-thru20210324", "special-dark-27247"):
            path = data(f"real/desi/coadd-{name}.fits.gz")
            with pyfits.open(data(f"real/desi/redrock-{name}.fits.gz")) as hdus:
                zbest = hdus["REDSHIFTS"].data
            self.fit(f"redrock-{name}.h5", "--redrock", path, status=3)
            kept = {int(t) for t in read(self.path)["TARGETID"]}
            star = (np.char.strip(zbest["SPECTYPE"]) == "STAR") | (
                np.abs(zbest["Z"]) * 299792.458 < 1500
            )
            self.assertTrue(kept <= {int(t) for t in zbest["TARGETID"][star]})
        # a file without its redrock neighbour cannot be selected by it
        lonely = cut("coadd-lonely.fits", [3])
        done = self.fit("lonely.h5", "--redrock", lonely, status=3)
        self.assertOneLine(done, "coadd-lonely.fits", "redrock", status=3)


if __name__ == "__main__":
    main()
