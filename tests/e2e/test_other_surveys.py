# SPDX-License-Identifier: BSD-3-Clause
"""SDSS and LAMOST files of the test data, fitted: what the result says of them against astropy.

The templates are those of the small library, so only what comes from the files is looked at:
catalog columns, good pixels and S/N.  tests/io compares the pixels themselves bit for bit.
"""

import glob

from common import *

for _folder in ("real/sdss", "real/lamost"):
    if not os.path.isdir(data(_folder)):
        skip(f"no test data at {data(_folder)} (set STARMILL_TEST_DATA)")

LITE = data("real/sdss/spec-0266-51602-0031.fits.gz")
BOSS = data("real/sdss/spec-3586-55181-0500.fits.gz")
LAMOST = sorted(glob.glob(data("real/lamost/*.fits.gz")))
N_LAMOST = 25

# pixels used, A; inside the small library's arms and apart from each other
RANGE = {"B": (3820, 5650), "R": (5900, 7500)}
# pixels at an end of an arm whose line-spread function reaches beyond it: a few sigma
LSF_EDGE = 8
# fibre: unplugged, bad trace, flat, arc, columns, rejected; pixel: rejected, no or bright sky,
# rejected by the combination, low flux factor, bad sky chi-square, contiguous bad sky
SDSS_BAD = sum(1 << bit for bit in (0, 1, 2, 3, 4, 5, 18, 22, 23, 25, 26, 27, 28))


def sdss_spectrum(path, hdu):
    """Wavelength, flux, ivar and what is good of one table."""
    table = pyfits.getdata(path, hdu)
    mask = table["and_mask" if "and_mask" in table.names else "mask"]
    good = ((mask & SDSS_BAD) == 0) & (table["wdisp"] > 0) & (table["wdisp"] <= 10)
    return 10.0 ** table["loglam"].astype(float), table["flux"], table["ivar"], good


def lamost_spectrum(path):
    table = pyfits.getdata(path, "COADD")
    wave, flux, ivar, mask = (table[k][0] for k in ("WAVELENGTH", "FLUX", "IVAR", "ANDMASK"))
    return wave.astype(float), flux, ivar, mask == 0


def expected(spectrum, arm):
    """Good pixels of an arm, and their median flux times square root of ivar."""
    wave, flux, ivar, good = spectrum
    low, high = RANGE[arm]
    good = good & (wave >= low) & (wave <= high) & np.isfinite(flux) & np.isfinite(ivar) & (ivar > 0)
    sn = np.median(flux[good].astype(float) * np.sqrt(ivar[good].astype(float)))
    return good.sum(), sn


class Test(ProgramTest):
    """One library for all of them."""

    @classmethod
    def setUpClass(cls):
        cls.lib = coarse_library()
        cls.config = tmp("surveys.yaml")
        with open(cls.config, "w", encoding="utf-8") as f:
            # these templates are of no star of theirs, and no search for the best is looked at
            f.write("max_eval: 30\narms:\n")
            for arm, (low, high) in RANGE.items():
                f.write(f"  - {{name: {arm.lower()}, min: {low}, max: {high}}}\n")

    def run_fit(self, out, *args, **how):
        done = self.fit(out, "--overwrite", "--config", self.config, *args, lib=self.lib, **how)
        return done, read(self.path), read(self.path, "catalog")

    def assertPixels(self, fits, row, arm, spectrum, lsf):
        """Good pixels and S/N of one arm; with a line-spread function the outermost are bad."""
        n_pix, sn = expected(spectrum, arm)
        if lsf == "off":
            self.assertEqual(fits[f"NPIX_{arm}"][row], n_pix)
            # the program multiplies in float32
            self.assertAlmostEqual(fits[f"SN_{arm}"][row] / sn, 1.0, delta=1e-6)
        else:
            self.assertIn(n_pix - fits[f"NPIX_{arm}"][row], range(2, 2 * LSF_EDGE + 1))

    def assertCatalog(self, catalog, row, **values):
        for name, value in values.items():
            found = catalog[name][row]
            if isinstance(value, str):
                found = found.decode()
            self.assertEqual(found, value, name)

    def test_sdss_coadds(self):
        for lsf in ("off", "auto"):
            with self.subTest(lsf=lsf):
                self.compare_sdss_coadds(lsf)

    def compare_sdss_coadds(self, lsf):
        _, fits, catalog = self.run_fit("coadd.h5", "--lsf", lsf, LITE, BOSS)
        self.assertEqual(len(fits["STATUS"]), 2)
        for row, (path, table) in enumerate(((LITE, "SPECOBJ"), (BOSS, "SPALL"))):
            star = pyfits.getdata(path, table)[0]
            self.assertEqual(fits["TARGETID"][row], -1)
            self.assertCatalog(
                catalog, row, OBJECT=os.path.basename(path).split(".")[0], EXPID=-1,
                FIBER=star["FIBERID"], TARGET_RA=star["PLUG_RA"], TARGET_DEC=star["PLUG_DEC"],
                Z=float(star["Z"]), SPECTYPE=star["CLASS"], SUBTYPE=star["SUBCLASS"])
            self.assertEqual(fits["STATUS"][row], FITTED)
            for arm in RANGE:
                self.assertPixels(fits, row, arm, sdss_spectrum(path, "COADD"), lsf)

    def test_sdss_exposures_one_by_one(self):
        """Each row is the blue and the red spectrum of one exposure number."""
        _, fits, catalog = self.run_fit("single.h5", "--lsf", "off", "--exposures", "single", BOSS)
        with pyfits.open(BOSS) as hdus:
            names = [h.name for h in hdus if h.name.startswith(("B1-", "R1-"))]
        numbers = sorted({int(name.split("-")[1]) for name in names})
        self.assertEqual(len(names), 14)
        np.testing.assert_array_equal(catalog["EXPID"], numbers)
        self.assertTrue((fits["STATUS"] == FITTED).all())
        for row, number in enumerate(numbers):
            for arm in RANGE:
                name, = (n for n in names if n.startswith(f"{arm}1-{number:08d}"))
                self.assertPixels(fits, row, arm, sdss_spectrum(BOSS, name), "off")

    def test_sdss_exposures_jointly(self):
        _, fits, catalog = self.run_fit("joint.h5", "--lsf", "off", "--exposures", "joint", BOSS)
        self.assertEqual(len(fits["STATUS"]), 1)
        self.assertEqual(fits["STATUS"][0], FITTED)
        self.assertCatalog(catalog, 0, OBJECT="spec-3586-55181-0500", EXPID=-1)
        with pyfits.open(BOSS) as hdus:
            names = [h.name for h in hdus if h.name.startswith(("B1-", "R1-"))]
        for arm in RANGE:
            n_pix = sum(expected(sdss_spectrum(BOSS, n), arm)[0] for n in names if n[0] == arm)
            self.assertEqual(fits[f"NPIX_{arm}"][0], n_pix)

    def test_a_lite_file_has_no_exposures(self):
        done, fits, catalog = self.run_fit("lite.h5", "--exposures", "joint", LITE, BOSS, status=3)
        self.assertOneLine(done, LITE, "holds no single exposures", status=3)
        self.assertEqual(len(fits["STATUS"]), 1)
        self.assertCatalog(catalog, 0, OBJECT="spec-3586-55181-0500")

    def test_lamost(self):
        self.assertEqual(len(LAMOST), N_LAMOST)
        for lsf in ("off", "resolving_power"):
            with self.subTest(lsf=lsf):
                self.compare_lamost(lsf)

    def compare_lamost(self, lsf):
        _, fits, catalog = self.run_fit("lamost.h5", "--lsf", lsf, "--resolving-power", 1800,
                                        *LAMOST)
        self.assertEqual(len(fits["STATUS"]), N_LAMOST)
        self.assertTrue((fits["STATUS"] == FITTED).all())
        for row, path in enumerate(LAMOST):
            header = pyfits.getheader(path)
            self.assertEqual(fits["TARGETID"][row], -1)
            self.assertCatalog(
                catalog, row, OBJECT=header["DESIG"], EXPID=header["OBSID"],
                FIBER=header["FIBERID"], TARGET_RA=header["RA"], TARGET_DEC=header["DEC"],
                Z=header["Z"], SPECTYPE=header["CLASS"], SUBTYPE=header["SUBCLASS"])
            for arm in RANGE:
                self.assertPixels(fits, row, arm, lamost_spectrum(path), lsf)

    def test_a_row_of_wavelengths_that_do_not_ascend(self):
        """The star's row says so, the others are fitted."""
        path = tmp("bad.fits")
        with pyfits.open(LAMOST[0]) as hdus:
            hdus["COADD"].data["WAVELENGTH"][0][100] = 1.0
            hdus.writeto(path, output_verify="ignore")  # the survey's own NAXIS1 of nothing
        done = self.fit("bad.h5", "--config", self.config, "--resolving-power", 1800, path,
                        LAMOST[1], lib=self.lib, status=3)
        self.assertOneLine(done, path, "WAVELENGTH", "pixel 100", status=3)
        np.testing.assert_array_equal(read(self.path)["STATUS"], [UNREADABLE, FITTED])


if __name__ == "__main__":
    main()
