# SPDX-License-Identifier: BSD-3-Clause
"""A fit selects rows as survey pipelines do: by target bits or redrock, S/N in SCORES, exposures,
arms.  The catalogue takes columns of the survey and of Gaia.  Needs no test data."""

from base import *  # noqa: F403

N_STAR, CLASS = 6, 32768
MWS_ANY, STD_WD, SCND_ANY, BGS_ANY = 1 << 61, 1 << 34, 1 << 62, 1 << 60
DESI = [MWS_ANY, BGS_ANY, STD_WD, BGS_ANY, SCND_ANY, 0]
MWS = [1 << 8, 0, 0, 1 << 33, 0, 0]  # MWS_MAIN_BLUE, GAIA_STD_FAINT
SN_B = [5.0, 1.0, np.nan, 1.5, 3.0, 9.0]
SN_R = [1.0, 2.5, 1.0, np.nan, 2.0, 9.0]
GAIA = {"PMRA": "mas/yr", "PMDEC": "mas/yr", "PARALLAX": "mas", "GAIA_PHOT_G_MEAN_MAG": "mag",
        "GAIA_PHOT_BP_MEAN_MAG": "mag", "GAIA_PHOT_RP_MEAN_MAG": "mag"}


def add_columns(hdu, **columns):
    """The table with these columns added, or replaced if it has them."""
    kept = [c for c in hdu.columns if c.name not in columns]
    new = [pyfits.Column(name, form, array=np.array(value))
           for name, (form, value) in columns.items()]
    return pyfits.BinTableHDU.from_columns(kept + new, name=hdu.name)


class Selection(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.lib, cls.plain = coarse_survey(N_STAR)
        cls.ids = [int(i) for i in pyfits.getdata(cls.plain, "FIBERMAP")["TARGETID"]]
        cls.coadd = cls.write("coadd-x.fits")
        cls.bare = tmp("coadd-bare.fits")
        with pyfits.open(cls.plain, memmap=False) as hdus:
            kept = [c for c in hdus["FIBERMAP"].columns
                    if "_TARGET" not in c.name and c.name not in GAIA]
            hdus["FIBERMAP"] = pyfits.BinTableHDU.from_columns(kept, name="FIBERMAP")
            del hdus["SCORES"]
            for key in ("SPGRP", "SPGRPVAL", "HPXPIXEL", "SURVEY", "PROGRAM"):
                del hdus[0].header[key]
            hdus.writeto(cls.bare)
        write_redrock(tmp("redrock-x.fits"), cls.ids, [0.0, 0.004, 0.5, 0.00499, 0.6, np.nan],
                      ["GALAXY", "GALAXY", "GALAXY", "GALAXY", "QSO", "STAR"], zwarn=[0, 0, 0, 0, 4, 0])

    @classmethod
    def write(cls, name, header=(), **fibermap):
        """The survey's file with the columns of targeting, SCORES and Gaia."""
        columns = {"DESI_TARGET": ("K", DESI), "MWS_TARGET": ("K", MWS),
                   "SCND_TARGET": ("K", [0] * N_STAR)}
        columns |= {key: ("E", np.arange(N_STAR) + i + 0.5) for i, key in enumerate(GAIA)}
        with pyfits.open(cls.plain, memmap=False) as hdus:
            hdus["FIBERMAP"] = add_columns(hdus["FIBERMAP"], **{**columns, **fibermap})
            hdus["SCORES"] = bintable({"TARGETID": cls.ids, **{f"MEDIAN_COADD_SNR_{arm}": np.array(sn, float)
                for arm, sn in (("B", SN_B), ("R", SN_R), ("Z", [0.0] * N_STAR))}}, "SCORES")
            hdus[0].header.update(header)
            hdus.writeto(tmp(name), overwrite=True)
        return tmp(name)

    def kept(self, *args, path=None, status=0):
        self.done = self.fit("selected.h5", "--overwrite", "--quiet", *args, path or self.coadd, lib=self.lib, status=status)
        return [self.ids.index(i) for i in read(self.path)["TARGETID"]]

    def test_expressions_as_of_python(self):
        """Names are matched as by re.match, which gives the expected rows."""
        desi = {"MWS_ANY": 61, "SCND_ANY": 62, "STD_WD": 34, "BGS_ANY": 60}
        mws = {"MWS_MAIN_BLUE": 8, "GAIA_STD_FAINT": 33}

        def mask(bits, classes):
            return sum(1 << bit for name, bit in bits.items()
                       if any(re.match(c, name) for c in classes))
        for classes in (["SCND_ANY", "MWS_ANY", "STD_*"], ["(BGS|GAIA)_", ".*WD$"]):
            expected = [i for i in range(N_STAR)
                        if DESI[i] & mask(desi, classes) or MWS[i] & mask(mws, classes)]
            self.assertEqual(self.kept("--target-class", ",".join(classes)), expected, classes)

    def test_either_or_both_with_redrock(self):
        stars = [0, 1, 3, 5]  # by redrock: small Z, or STAR; 0.004 c is 1199 km/s, 0.00499 c 1496
        classes = ("--target-class", "SCND_ANY,MWS_ANY,STD_*")
        self.assertEqual(self.kept("--redrock"), stars)
        self.assertEqual(self.kept(*classes), [0, 2, 4])
        self.assertEqual(self.kept("--redrock", *classes), [0, 1, 2, 3, 4, 5])
        self.assertEqual(list(np.flatnonzero(read(self.path)["RVS_WARN"] & CLASS)), [2])  # 4: ZWARN
        self.assertEqual(self.kept("--redrock", *classes, "--select-by", "all"), [0])

    def test_survey_validation_goes_before_the_main_survey(self):
        path = self.write("coadd-sv.fits", SV3_DESI_TARGET=("K", [0, MWS_ANY, 0, 0, 0, 0]),
                          SV3_MWS_TARGET=("K", [0, 0, 1 << 6, 0, 0, 0]))
        self.assertEqual(self.kept("--target-class", "MWS_ANY", path=path), [1])
        self.assertEqual(self.kept("--target-class", "MWS_BHB", path=path), [2])

    def test_what_cannot_select(self):
        self.kept("--target-class", "MWS_ANY,STARS", status=3)
        self.assertOneLine(self.done, self.coadd, "'STARS'", "no target bit", status=3)
        self.kept("--target-class", "MWS_ANY", path=self.bare, status=3)
        self.assertOneLine(self.done, self.bare, "no column of target bits", status=3)
        self.kept("--maxexpid", 7, status=3)
        self.assertOneLine(self.done, self.coadd, "no EXPID", status=3)
        for wrong in ("MWS_(", "MWS\\d"):
            done = self.fit("wrong.h5", "--target-class", wrong, self.coadd, lib=self.lib, status=2)
            self.assertOneLine(done, "target_classes", wrong, status=2)

    def test_scores(self):
        self.assertEqual(self.kept("--minsn-from", "scores", "--minsn", 2),
                         list(np.flatnonzero(np.fmax(SN_B, SN_R) >= 2)))
        self.assertEqual(set(read(self.path)["STATUS"]), {FITTED})
        # of the arms that are fitted
        self.assertEqual(self.kept("--minsn-from", "scores", "--minsn", 2, "--arms", "r"),
                         list(np.flatnonzero(np.nan_to_num(SN_R) >= 2)))
        self.assertEqual(set(read(self.path)["NPIX_B"]), {0})
        self.kept("--minsn-from", "scores", "--minsn", 2, path=self.bare, status=3)
        self.assertOneLine(self.done, self.bare, "SCORES", "minsn_from: pixels", status=3)

    def test_exposures(self):
        path = self.write("spectra-x.fits", EXPID=("J", [9, 10, 11, 12, 13, 14]))
        with pyfits.open(path, mode="update", memmap=False) as hdus:
            hdus["FIBERMAP"].columns.change_name("COADD_FIBERSTATUS", "FIBERSTATUS")
        self.assertEqual(self.kept("--minexpid", 10, "--maxexpid", 12, path=path), [1, 2, 3])
        self.assertEqual(self.kept("--minexpid", 13, path=path), [4, 5])
        done = self.fit("wrong.h5", "--minexpid", 13, "--maxexpid", 12, path, lib=self.lib, status=2)
        self.assertOneLine(done, "minexpid", "maxexpid", status=2)

    def test_other_formats_are_refused(self):
        from starmill.surveys import generic
        wave = np.linspace(4000, 5000, 100)
        generic.write(tmp("generic.fits"), [{"NAME": "x", "WAVELENGTH": wave,
                                                  "FLUX": wave, "IVAR": wave}], "vacuum")
        for option in (["--target-class", "MWS"], ["--minexpid", 3], ["--redrock"], ["--objtype", "TGT"],
                       ["--minsn-from", "scores", "--minsn", 1]):
            self.kept(*option, path=tmp("generic.fits"), status=3)
            self.assertOneLine(self.done, "generic", option[0][2:7], "leave this key out", status=3)

    def test_catalogue(self):
        path = self.write("coadd-main-dark-27247.fits", header=[
            ("SPGRP", "healpix"), ("HPXPIXEL", 27247), ("SURVEY", "main"), ("PROGRAM", "dark")])
        self.kept(path=path)
        catalog = read(self.path, "catalog")
        self.assertEqual(set(catalog["HEALPIX"]), {27247})
        self.assertEqual(set(catalog["SURVEY"]), {b"main"})
        self.assertEqual(set(catalog["PROGRAM"]), {b"dark"})
        with pyfits.open(path) as hdus, h5py.File(self.path, "r") as out:
            for name, unit in GAIA.items():
                np.testing.assert_array_equal(catalog[name], hdus["FIBERMAP"].data[name])
                self.assertEqual(out["catalog"][name].attrs["unit"].decode(), unit)
        # HEALPIX is the pixel of nside 64 around a smaller pixel, and -1 for a larger pixel
        paths, expected = [], []
        for nside, pixel, wanted in ((256, 435897, 27243), (16, 1702, -1), (64, 27247, 27247), (96, 5, -1)):
            unique = pixel + 4 * nside**2
            for header in ([("HPXPIXEL", pixel), ("HPXNSIDE", nside)], [("SPGRP", "uniqpix"), ("SPGRPVAL", unique)],
                           [("UNIQPIX", unique)])[:1 if nside == 96 else 3]:
                paths.append(self.write(f"coadd-uniqpix-{len(paths)}.fits", header=header))
                expected += [(wanted, -1 if nside == 96 else unique)] * N_STAR
        self.fit("pixels.h5", "--minsn", 1e6, *paths, lib=self.lib, status=3)  # fits no star
        catalog = read(self.path, "catalog")
        self.assertEqual(list(zip(catalog["HEALPIX"], catalog["UNIQPIX"])), expected)
        # columns of FIBERMAP go before the header; a tile's file has neither
        path = self.write("coadd-columns.fits", header=[("HPXPIXEL", 5), ("SURVEY", "main")],
                          HEALPIX=("J", [1, 2, -1, 4, 5, 6]), PROGRAM=("6A", ["bright"] * N_STAR))
        self.kept(path=path)
        catalog = read(self.path, "catalog")
        self.assertEqual(list(catalog["HEALPIX"]), [1, 2, 5, 4, 5, 6])
        self.assertEqual(set(catalog["PROGRAM"]), {b"bright"})
        self.kept(path=self.bare)
        catalog = read(self.path, "catalog")
        for name in ("HEALPIX", "TILEID", "NIGHT"):
            self.assertEqual(set(catalog[name]), {-1}, name)
        self.assertTrue(np.isnan(catalog["PARALLAX"]).all())

    def tiles_and_nights(self, *args, path):
        self.kept(*args, path=path)
        catalog = read(self.path, "catalog")
        return [(int(tile), int(night)) for tile, night in zip(catalog["TILEID"], catalog["NIGHT"])]

    def test_tiles_and_nights(self):
        # a tile's file: some stars were observed in several nights, one on no tile
        nights = [[20210406], [20210406] * 2, [20210406, 20210407], [20210408], [20210407], []]
        rows = [(star, night) for star, of_star in enumerate(nights) for night in of_star]
        rows = rows[1:] + rows[:1]
        header = [("SPGRP", "cumulative"), ("TILEID", 1234), ("NIGHT", 20210409)]
        path = self.write("coadd-0-1234-thru20210409.fits", header=header)
        exposures = [pyfits.Column("TARGETID", "K", array=[self.ids[star] for star, _ in rows]),
                     pyfits.Column("NIGHT", "J", array=[night for _, night in rows])]
        tiles = pyfits.Column("TILEID", "J", array=[7 if star == 4 else 1234 for star, _ in rows])

        def rewrite(columns, keys):
            with pyfits.open(path, memmap=False) as hdus:
                hdus["EXP_FIBERMAP"] = pyfits.BinTableHDU.from_columns(columns, name="EXP_FIBERMAP")
                hdus[0].header.update(keys)
                hdus.writeto(path, overwrite=True)
        rewrite(exposures + [tiles], [])
        self.assertEqual(self.tiles_and_nights(path=path), [
            (1234, 20210406), (1234, 20210406), (1234, -1), (1234, 20210408), (7, 20210407),
            (1234, -1)])
        # the header's night counts only if the file is of one night
        rewrite(exposures[:1], [("SPGRP", "pernight")])
        self.assertEqual(self.tiles_and_nights(path=path), [(1234, 20210409)] * N_STAR)
        # of exposures: FIBERMAP's own columns; two of a star, fitted together
        path = self.write("spectra-y.fits", header=header, EXPID=("J", range(N_STAR)),
                          TARGETID=("K", [5, 5, 6, 6, 7, 8]), TILEID=("J", [1, 1, 2, 3, 4, -1]),
                          TARGET_RA=("D", [5, 5, 6, 6, 7, 8]), TARGET_DEC=("D", [1] * N_STAR),
                          NIGHT=("J", [10, 11, 12, 12, 13, 14]))
        with pyfits.open(path, mode="update", memmap=False) as hdus:
            hdus["FIBERMAP"].columns.change_name("COADD_FIBERSTATUS", "FIBERSTATUS")
        self.fit("nights.h5", "--overwrite", "--exposures", "joint", path, lib=self.lib)
        catalog = read(self.path, "catalog")
        self.assertEqual(list(catalog["TILEID"]), [1, -1, 4, 1234])
        self.assertEqual(list(catalog["NIGHT"]), [-1, 12, 13, 14])
