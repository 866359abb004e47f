# SPDX-License-Identifier: BSD-3-Clause
"""Which rows are fitted: selection, S/N, exposures; real files (defects: test_hostile.py)."""

from common import *  # noqa: F403
from starmill.products.models import Models
from starmill.products.result import Result
from starmill.surveys import generic
from starmill.surveys.spectra import Inputs


class Selection(EndToEnd):
    ROWS = [3, 60, 100, 150]

    def setUp(self):
        def edit(hdus):
            hdus["FIBERMAP"].data["OBJTYPE"][1] = "SKY"
            hdus["FIBERMAP"].data["COADD_FIBERSTATUS"][2] = 1 << 9
            hdus["FIBERMAP"].data["COADD_FIBERSTATUS"][3] = 1 << 3 | 1 << 20
        self.stars = cut("select.fits", self.ROWS, edit)
        self.ids = [int(i) for i in pyfits.getdata(self.stars, "FIBERMAP")["TARGETID"]]

    def kept(self, *args, status=0):
        self.done = self.fit("select.h5", "--overwrite", *args, self.stars, status=status)
        return [int(i) for i in read(self.path)["TARGETID"]]

    def test_object_type_and_fiber_status(self):
        self.assertEqual(self.kept(), [self.ids[0], self.ids[3]])
        self.assertEqual(self.kept("--objtype", "SKY,BAD"), [self.ids[1]])

    def test_target_ids(self):
        self.assertEqual(self.kept("--object", self.ids[3], "--object", self.ids[1], "--object", 77), [self.ids[3]])
        self.assertIn("2 of 3 listed stars have no selected row in the inputs, the first '77'", self.done.stderr)
        put("ids.txt", f"# wanted\r\n {self.ids[0]} \n\n-4\n{self.ids[0]}\n")
        self.assertEqual(self.kept("--object-file", tmp("ids.txt")), [self.ids[0]])
        both = ["--object-file", tmp("ids.txt"), "--object", self.ids[3]]
        self.assertEqual(self.kept(*both), [self.ids[0], self.ids[3]])
        for name, status in ("TARGETID", 0), ("ID", 2):  # the list may be a FITS table
            pyfits.BinTableHDU.from_columns([pyfits.Column(name, "K", array=[self.ids[0], -4])]).writeto(
                tmp("ids.fits"), overwrite=True)
            done = self.ends(status, "fit", "--library", library(), "--output", tmp("ids.h5"),
                             "--object-file", tmp("ids.fits"), self.stars)
        self.assertIn("needs a column TARGETID", done.stderr)
        self.assertEqual([int(i) for i in read(tmp("ids.h5"))["TARGETID"]], [self.ids[0]])

    def test_no_star_is_selected(self):
        for ranks in (1, 3):
            done = self.fit(f"empty{ranks}.h5", "--object", "77", self.stars, ranks=ranks, status=3)
            self.assertOneLine(done, "no star to fit", "the selection", "objtypes, target_classes, minexpid, maxexpid",
                               "minsn with minsn_from", status=3)
            table = read(self.path)
            self.assertEqual({len(v) for v in table.values()}, {0})
            self.assertIn("STATUS", table)
            again = self.fit(f"empty{ranks}.h5", "--object", "77", self.stars, status=3)
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
        self.assertEqual(differing(low, table, expected == FITTED), [])


class Exposures(EndToEnd):
    """A target's three exposures (copies of one coadded spectrum) are fitted singly or jointly."""

    ROWS = [3, 100, 3, 3]

    @classmethod
    def setUpClass(cls):
        cls.spectra = cut("spectra-x.fits", cls.ROWS, as_spectra)

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
        self.assertEqual(differing(table, single, 1), [])  # the other target has one exposure
        with h5py.File(tmp("joint-models.h5")) as f:
            self.assertEqual([len(f[f"models/{a.lower()}/flux"]) for a in ARMS], [4] * 3)
            # one model row per exposure, target by target
            self.assertEqual(list(f["models/fits_row"][...]), [0, 0, 0, 1])

    def test_the_best_exposure_is_drawn(self):
        """The best exposure has the largest median S/N; bad pixels and cosmic rays do not count."""
        def edit(hdus):
            as_spectra(hdus)
            for arm in ARMS:
                hdus[f"{arm}_IVAR"].data[2] *= 1.5
            hdus["B_FLUX"].data[2, 700], hdus["B_IVAR"].data[2, 700] = np.nan, 0
            hdus["R_FLUX"].data[3, 100] = 1e5
        self.fit("best.h5", "--exposures", "joint", "--models", tmp("best-models.h5"),
                 cut("best.fits", self.ROWS, edit))
        result = Result(self.path)
        arms, note = Inputs(result).star(0, Models(tmp("best-models.h5"), result).of(0))
        self.assertEqual(note, "exposure 2 of 3, the best")
        self.assertTrue(np.isnan(arms[0].flux[arms[0].bad]).any())
        # pixel 700 is bad in the best exposure; the other two have one good pixel more each
        self.assertEqual(3 * (~arms[0].bad).sum() + 2, read(self.path)["NPIX_B"][0])

    def test_one_identifier_of_several_stars(self):
        """Rows 0, 2, 3 share a TARGETID.  Row 2 moves or loses its RA, or TARGETID is -7 or -1."""
        for column, row, value, n_exposure in (
                ("TARGET_DEC", 2, 12, [2, 1, 1]), ("TARGET_RA", 2, np.nan, [3, 1]),
                ("TARGETID", [0, 2, 3], -7, [3, 1]), ("TARGETID", slice(None), -1, [1] * 4)):
            def edit(hdus):
                as_spectra(hdus)
                hdus["FIBERMAP"].data[column][row] = value
            done = self.fit("apart.h5", "--exposures", "joint", "--overwrite", cut("apart.fits", self.ROWS, edit))
            self.assertEqual(list(read(self.path, "catalog")["N_EXPOSURE"]), n_exposure)
            self.assertEqual("more than 1 arcmin" in done.stderr, value == 12, done.stderr)


class Join(EndToEnd):
    """join_by_name: rows of one object in several files become one row."""

    def test_exposures_in_several_files_as_in_one(self):
        self.fit("one.h5", "--exposures", "joint",
                 cut("spectra-one.fits", [3, 60, 100, 60, 60, 150], as_spectra))
        expected = read(self.path)
        self.assertEqual(list(expected["STATUS"]), [FITTED] * 4)
        files = [cut("join-a.fits", [3, 60]), cut("join-b.fits", [100, 60]),
                 cut("join-c.fits", [60, 150])]
        for ranks in (0, 3):
            models = tmp(f"join-models{ranks}.h5")
            self.fit(f"join{ranks}.h5", "--join-by-name", *files, "--models", models, ranks=ranks)
            self.assertEqual(differing(read(self.path), expected), [])
            catalog = read(self.path, "catalog")
            self.assertEqual(list(catalog["FILE"]), [0, 0, 1, 2])
            self.assertEqual(list(catalog["FITS_ROW"]), [0, 1, 0, 1])
            self.assertEqual(list(catalog["N_EXPOSURE"]), [1, 3, 1, 1])
            self.assertEqual(list(catalog["FIRST_EXPOSURE"]), [0, 1, 4, 5])
            exposures = read(self.path, "catalog/exposures")
            self.assertEqual(list(exposures["FILE"]), [0, 0, 1, 2, 1, 2])
            self.assertEqual(list(exposures["FITS_ROW"]), [0, 1, 1, 0, 0, 1])
            self.assertEqual(list(read(models, "models")["fits_row"]), [0, 1, 1, 1, 2, 3])
            self.assertTrue(np.isfinite(read(models, "models/r")["flux"]).all())
        # the same command finds it finished, another setting is refused
        self.assertIn("finished already", self.fit("join0.h5", "--join-by-name", *files).stdout)
        self.fit("join0.h5", *files, status=4)

    def test_arms_in_files_of_their_own(self):
        def lacking(arms):
            return without(*(f"{arm}_{name}" for arm in arms for name in HDUS))
        rows = [3, 60, 100, 150]
        self.fit("whole.h5", cut("whole.fits", rows))
        expected = read(self.path)
        files = [cut("blue.fits", rows, lacking("RZ")), cut("red.fits", rows[::-1], lacking("B"))]
        self.fit("arms.h5", "--join-by-name", *files, ranks=2)
        self.assertEqual(list(read(self.path, "catalog")["N_EXPOSURE"]), [2] * 4)
        self.assertEqual(differing(read(self.path), expected), [])

    def test_row_whose_other_file_is_damaged_is_unreadable(self):
        first, second = cut("good.fits", [3, 60, 100]), cut("damaged.fits", [60, 150], compress_masks)
        damage_tiles(second, [0])
        done = self.fit("damaged.h5", "--join-by-name", first, second, status=3)
        self.assertOneLine(done, "damaged.fits", "R_MASK", "UNREADABLE", status=3)
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED, UNREADABLE, FITTED, FITTED])
        done = self.fit("without.h5", "--join-by-name", first, put("none.fits", b"SIMPLE"), status=3)
        self.assertOneLine(done, "none.fits is left out", "files are fitted without", status=3)
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 3)

    def test_the_first_part_with_priors_or_a_start_counts(self):
        def number(first):
            def edit(hdus):
                hdus["FIBERMAP"].data["TARGETID"] = [first, first + 1]
            return edit
        files = [cut(f"part-{n}.fits", [3, 60], number(n)) for n in (1000, 2000)]
        teff = {2000: 5100.0, 1001: 5600.0, 2001: 5700.0}  # sigma 0.1 K: spectra move TEFF by below 1 K
        bintable({"TARGETID": list(teff), "TEFF": list(teff.values()), "TEFF_ERR": [0.1] * 3}).writeto(tmp("parts.fits"))
        self.fit("start.h5", files[1])
        tables = ("--prior-table", tmp("parts.fits"), "--start", self.path)
        for ranks, order, expected in (0, files, [5100, 5600]), (2, files, [5100, 5600]), (0, files[::-1], [5100, 5700]):
            done = self.fit("parts.h5", "--overwrite", "--join-by-name", "--join-radius", 1, *tables, *order, ranks=ranks)
            self.assertIn("2 rows have priors", done.stdout)
            fits = read(self.path)
            self.assertTrue((fits["FIT_INFO"] & 64 > 0).all())  # GIVEN_START
            np.testing.assert_allclose(fits["TEFF"], expected, atol=1)
        # two rows of a prior table have the second star's position, so only its fit is refused
        ra, dec = (pyfits.getdata(files[0], "FIBERMAP")[f"TARGET_{name}"] for name in ("RA", "DEC"))
        bintable({"RA": [*ra, ra[1]], "DEC": [*dec, dec[1]], "TEFF": [5100.0] * 3,
                  "TEFF_ERR": [0.1] * 3}).writeto(tmp("doubled.fits"))
        one = "--join-by-name", "--overwrite", "--prior-table", tmp("doubled.fits"), files[0], "--object"
        self.fit("parts.h5", *one, 1000)
        np.testing.assert_allclose(read(self.path)["TEFF"], 5100, atol=1)
        self.assertIn("are both within 1 arcsec", self.fit("parts.h5", *one, 1001, status=2).stderr)

    def objects(self, *files, config=""):
        """The exposures of each row, as (file, row)."""
        put("join.yaml", "lsf: off\nwave_mask: []\njoin_by_name: true\nminsn: 1.0e6\n" + config)
        self.done = self.fit(os.path.basename(files[0]) + ".h5", "--config", tmp("join.yaml"), *files, status=3)
        e = read(self.path, "catalog/exposures")
        exposures = list(zip(map(int, e["FILE"]), map(int, e["FITS_ROW"])))
        catalog = read(self.path, "catalog")
        return [exposures[first:first + n] for first, n in
                zip(catalog["FIRST_EXPOSURE"], catalog["N_EXPOSURE"])]

    def generic(self, name, objects):
        wave = np.linspace(4000, 5000, 100)
        generic.write(tmp(name), [{"NAME": "x", "TARGETID": -1, "RA": 0.0, "DEC": 0.0, **known,
                                        "WAVELENGTH": wave, "FLUX": wave, "IVAR": wave}
                                       for known in objects], "vacuum", "barycentric")
        return tmp(name)

    def test_names_go_before_numbers(self):
        one = self.generic("one.fits", [{"NAME": "A"}, {"NAME": "B", "TARGETID": 100}])
        two = self.generic("two.fits", [{"NAME": "A", "TARGETID": 99}])
        wave = np.linspace(4000, 5000, 100)
        for name in ("three.fits", "four.fits"):  # of targets 100 and -7, which have no name
            write_desi(tmp(name), {"B": {"WAVELENGTH": wave, "FLUX": np.ones((2, 100)),
                                         "IVAR": np.ones((2, 100))}})
            with pyfits.open(tmp(name), mode="update") as hdus:
                hdus["FIBERMAP"].data["TARGETID"][1] = -7
        self.assertEqual(self.objects(one, tmp("three.fits"), two, tmp("four.fits")), [
            [(0, 0), (2, 0)], [(0, 1)], [(1, 0), (3, 0)], [(1, 1), (3, 1)]])

    def test_a_listed_star_keeps_all_its_rows(self):
        """A list may name a star by any name of any of its rows.  Unknown names are counted."""
        one = self.generic("listed-1.fits", [{"NAME": "A", "TARGETID": 5}, {"NAME": "B", "RA": 10.0}])
        two = self.generic("listed-2.fits", [{"NAME": "C", "RA": 10.0}, {"NAME": "A"}])
        a, b = [(0, 0), (1, 1)], [(0, 1), (1, 0)]  # B and C are at one place
        for name, expected in ("5", a), ("A", a), ("listed-2.fits:1", a), ("B", b), ("C", b):
            self.assertEqual(self.objects(one, two, config=f"objects: ['{name}', none]\njoin_radius: 1\n"), [expected])
            self.assertIn("1 of 2 listed stars have no selected row in the inputs, the first 'none'", self.done.stderr)

    def test_positions(self):
        """Within join_radius they are one object, whatever their names."""
        s = 1 / 3600  # arcsec
        # Distances are known by hand.  Along a meridian: the difference in dec.  Along the equator:
        # the difference in RA; at dec 60 half of it.  Across the pole: the sum of polar distances.
        places = [(10, 20), (10, 20 + 0.9 * s),  # 0.9: joined
                  (10, 20 + 1.8 * s),  # 0.9 from the second: joined too
                  (10, 20 + 2.9 * s),  # 1.1: not
                  (359.9999, 0), (0.0001, 0),  # 0.72 across RA 0: joined
                  (50, 60), (50 + 1.9 * s, 60),  # 0.95: joined
                  (80, 60), (80 + 2.1 * s, 60),  # 1.05: not
                  (0, 90 - 0.4 * s), (180, 90 - 0.5 * s),  # 0.9: joined
                  (np.nan, np.nan), (np.nan, np.nan), (np.nan, 20)]  # nowhere
        path = self.generic("places.fits", [{"NAME": f"visit {i}", "RA": ra, "DEC": dec}
                                            for i, (ra, dec) in enumerate(places)])
        self.assertEqual([[row for _, row in of] for of in self.objects(path, config="join_radius: 1\n")],
                         [[0, 1, 2], [3], [4, 5], [6, 7], [8], [9], [10, 11], [12], [13], [14]])


class RealFiles(EndToEnd):
    """DESI files without a star: skies, stuck fibers, faint galaxies, compressed masks."""

    def test_they_are_fitted_and_nothing_crashes(self):
        """test_fit_surveys.py compares what is read, and which rows are."""
        names = ["coadd-4-80613-thru20210324", "coadd-5-169-thru20210419",
                 "coadd-special-dark-27247", "coadd-sv3-dark-26065", "spectra-sv3-dark-26065"]
        paths = [data(f"real/desi/{n}.fits.gz") for n in names]
        self.fit("real.h5", *paths)
        table = read(self.path)
        self.assertTrue(set(table["STATUS"]) <= {FITTED, NO_ARM})
        self.assertGreater(int((table["STATUS"] == FITTED).sum()), 0)
        self.assertWhole(table)

    def test_redrock(self):
        for name in ("4-80613-thru20210324", "special-dark-27247"):
            path = data(f"real/desi/coadd-{name}.fits.gz")
            zbest = pyfits.getdata(data(f"real/desi/redrock-{name}.fits.gz"), "REDSHIFTS")
            self.fit(f"redrock-{name}.h5", "--redrock", path, status=3)
            kept = {int(t) for t in read(self.path)["TARGETID"]}
            star = ((np.char.strip(zbest["SPECTYPE"]) == "STAR")
                    | (np.abs(zbest["Z"]) * 299792.458 < 1500))
            self.assertTrue(kept <= {int(t) for t in zbest["TARGETID"][star]})
            # without selection these galaxies are fitted, and say what they are
            self.fit(f"galaxy-{name}.h5", path)
            fits = read(self.path)
            self.assertEqual((fits["RVS_WARN"] & 32768 != 0).tolist(), (~star).tolist())
            self.assertEqual((fits["VRAD_GOOD"] & ~star).tolist(), fits["VRAD_GOOD"].tolist())
