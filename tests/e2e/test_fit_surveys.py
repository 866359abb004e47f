# SPDX-License-Identifier: BSD-3-Clause
"""Other surveys from file to row: SDSS and LAMOST stars, their names, frames, exposures."""

from common import *  # noqa: F403
import starmill
from survey_files import B, COADD, HELIOCENTRIC, NO_WIDTH, R, SDSS_BAD, Formats, Reader

FGK = os.path.join(SOURCE, "libraries", "fgk.h5")
SDSS = [data(f"real/sdss/{n}.fits.gz") for n in ("spec-0266-51602-0031", "spec-3586-55181-0500")]
LAMOST = sorted(data("real/lamost/" + n) for n in (
    os.listdir(data("real/lamost")) if os.path.isdir(data("real/lamost")) else [])
    if n.endswith(".fits.gz"))
if not LAMOST or not all(map(os.path.exists, SDSS)):
    skip("no test data of SDSS and LAMOST")


def config(name, text):
    return ["--config", put(name, text)]


class Surveys(EndToEnd):
    def test_a_row_of_wavelengths_that_do_not_ascend(self):
        """The star's row says so, the others are fitted."""
        path = tmp("bad.fits")
        with pyfits.open(LAMOST[0]) as hdus:
            hdus["COADD"].data["WAVELENGTH"][0][100] = 1.0
            hdus.writeto(path, output_verify="ignore")  # the survey's own NAXIS1 of nothing
        self.fit("bad.h5", "--resolving-power", 1800, path, LAMOST[1], status=3,
                 says=[path, "WAVELENGTH", "pixel 100"])
        self.assertEqual(list(read(self.path)["STATUS"]), [UNREADABLE, FITTED])

    def test_every_star_of_mixed_formats_is_fitted(self):
        stars = [*SDSS, *LAMOST[::3]]
        done = self.fit("mixed.h5", "--resolving-power", 1800, *stars, ranks=2)
        table, catalog = read(self.path), read(self.path, "catalog")
        files = read(self.path, "catalog/files")
        self.assertEqual(list(table["STATUS"]), [FITTED] * len(stars))
        self.assertEqual(list(catalog["TARGETID"]), [-1] * len(stars))
        names = texts(catalog["OBJECT"])
        self.assertEqual(names[:2], ["spec-0266-51602-0031", "spec-3586-55181-0500"])
        self.assertTrue(all(names))
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(texts(files["FORMAT"]), ["sdss"] * 2 + ["lamost"] * (len(stars) - 2))
        self.assertEqual(set(texts(files["FRAME"])), {"heliocentric"})
        for survey in ("sdss", "lamost"):
            self.assertOneLine(done, f"format {survey}", "heliocentric", "nothing is corrected",
                               status=0)
        with h5py.File(self.path) as f:
            self.assertEqual(f["provenance/FRAMES"][()].decode(),
                             "sdss heliocentric\nlamost heliocentric\n")
            # no mask of DESI's dichroic here
            self.assertIn("wave_mask: []", f["provenance/IDENTITY"][()].decode())
        # each star by itself gives the same row, bit for bit
        for i in (1, 5):
            self.fit("alone.h5", "--overwrite", "--resolving-power", 1800, stars[i])
            alone = read(self.path)
            for name in table:
                self.assertEqual(alone[name][0].tobytes(), table[name][i].tobytes(), name)

    def test_files_of_one_name_whose_spectra_have_names(self):
        """test_fit_start has the warning where IDENTIFIERs contain the files' name."""
        night = data("real/lamost-mrs/med-58408-TD230151N343645T01_sp01-015.fits.gz")
        os.makedirs(tmp("again"), exist_ok=True)
        done = run("fit", "--plan", "--library", os.path.join(SOURCE, "libraries", "fgk-hr.h5"), "--output",
                   tmp("no.h5"), "--object", "lamost 58408-TD230151N343645T01-01-015", night,
                   shutil.copy(night, tmp("again")))
        self.assertNotIn("have the same name", done.stderr)

    def test_default_mask_is_desis(self):
        desi = cut("desi.fits", [3])
        self.fit("both.h5", desi, SDSS[1], status=2, says=["wave_mask", "spec-3586", "sdss"])
        self.fit("both.h5", *config("mask.yaml", "wave_mask: [[4300, 4450]]\n"), desi, SDSS[1])
        both = read(self.path)
        self.assertEqual(list(both["STATUS"]), [FITTED] * 2)
        self.fit("desi.h5", desi)
        self.assertEqual(differing(read(self.path), both, 0), [])

    def test_a_library_of_one_arm_is_cut_into_the_cameras_of_the_first_format(self):
        self.fit("cameras.h5", cut("desi.fits", [3]), SDSS[1], status=3, lib=FGK,
                 says=[os.path.basename(SDSS[1]), "first input's format, desi", "the key arms"])
        table = read(self.path)
        self.assertEqual(list(table["STATUS"]), [FITTED])
        for arm in "BRZ":
            self.assertGreater(table["NPIX_" + arm][0], 1000)
        for arms, first in ("b,q", "q"), ("R", "R"):
            self.fit("named.h5", "--arms", arms, cut("desi.fits", [3]), status=2,
                     lib=FGK, says=[f"no arm {first};", "cameras b r z of desi"])
        for arms in ("b,r,z", "b,r", "b"):  # some or all of them by name
            self.fit("named.h5", "--overwrite", "--arms", arms, cut("desi.fits", [3]), lib=FGK)
            named = read(self.path)
            self.assertEqual([named["NPIX_" + arm][0] for arm in arms.upper().split(",")],
                             [table["NPIX_" + arm][0] for arm in arms.upper().split(",")])
            self.assertEqual(named["NPIX_TOT"][0], sum(named["NPIX_" + arm][0] for arm in arms.upper().split(",")))
            self.assertEqual(differing(table, named) == [], arms == "b,r,z")

    def test_c_and_python_cut_it_as_well(self):
        """libstarmill and Python give the program's bits, also with chosen arms or grids."""
        one_arm = starmill.Library(FGK, wave_mask=[])
        for name, keys, files in (
                ("desi", {"velocity_offsets": True}, [cut("desi.fits", [3])]),
                ("desi", {"arms": ["b", "r"]}, [cut("desi.fits", [3])]),
                ("lamost", {"arms": [{"name": "b", "fwhm": 2.7}, {"name": "r", "resolving_power": 1650}]},
                 LAMOST[:2]), ("lamost", {"resolving_power": 1000, "lsf": "resolving_power"}, LAMOST[:1]),
                ("sdss", {}, SDSS)):
            keys["format"] = name
            self.fit("program.h5", "--overwrite", "--backend", "cpu", *files,
                     *config("keys.yaml", json.dumps(keys)), lib=FGK)
            library = starmill.Library(FGK, **keys)
            table, expected = starmill.fit([star for f in files for star in library.open(f)]), read(self.path)
            self.assertEqual(sorted(table.names), sorted(expected))
            self.assertEqual([n for n in expected if expected[n].tobytes() != table[n].tobytes()], [])
            with self.assertRaisesRegex(starmill.StarmillError, f"format: {name}"):
                one_arm.open(files[0])
        whole = starmill.Library(FGK, wave_mask=[], arms=["opt"])  # on purpose
        self.assertEqual(starmill.fit([whole.open(files[0])[0]])["STATUS"][0], FITTED)

    def test_a_camera_without_an_arm_of_its_name_goes_to_the_arm_that_covers_it(self):
        desi = cut("desi.fits", [3])
        n_pix = 0  # good pixels of cameras R and Z between 5900 and 9000 A
        with pyfits.open(desi) as hdus:
            for x in "RZ":
                wave, ivar, mask = (hdus[f"{x}_{name}"].data for name in ("WAVELENGTH", "IVAR", "MASK"))
                n_pix += ((wave > 5900) & (wave < 9000) & (ivar[0] > 0) & (mask[0] == 0)).sum()
        for b, r in ("b", "r"), ("b", "red"), ("blue", "red"):
            arms = f"arms: [{{name: {b}, max: 5700}}, {{name: {r}, min: 5900, max: 9000}}]\nwave_mask: []\n"
            done = self.fit("parts.h5", "--overwrite", *config("arms.yaml", arms), desi, lib=FGK)
            # the fit leaves out a few pixels of its own (outliers)
            self.assertAlmostEqual(read(self.path)[f"NPIX_{r.upper()}"][0] / n_pix, 1, delta=0.01, msg=arms)
            self.assertNotIn("WARN", done.stderr)
        arms = arms.replace("9000", "9000, channel: q")
        done = self.fit("parts.h5", "--overwrite", *config("arms.yaml", arms), desi, lib=FGK)
        self.assertIn("arm red got no spectrum: the inputs", done.stderr)

    def test_without_a_line_spread_function_nothing_is_fitted(self):
        self.assertOneLine(self.fit("no-lsf.h5", LAMOST[0], status=3), os.path.basename(LAMOST[0]),
                           "resolving_power", "lsf: off", status=3)
        self.assertEqual(list(read(self.path)["STATUS"]), [NO_RESOLUTION])

    def test_unknown_format(self):
        put("plain.fits", pyfits.PrimaryHDU(np.zeros(9, "f4")).header.tostring().encode() +
                          np.zeros(2880, "u1").tobytes())
        self.assertOneLine(self.fit("unknown.h5", tmp("plain.fits"), status=3), "no known format",
                           "desi", "sdss", "lamost", "weave", "4most", "generic", status=3)


class RealFiles(Formats):
    """Files of the surveys themselves, compared with what astropy reads of them."""

    def answer(self, name, config, **how):
        path = os.path.join(DATA, name + ".fits.gz")
        answer = Reader.read(path, config, **how)
        self.assertNotIn("error", answer, answer.get("message"))
        return answer, pyfits.open(path)

    def assertPixels(self, got, flux, ivar, mask):
        self.assertSame(got["flux"], flux)
        self.assertSame(got["ivar"], ivar)
        self.assertSame(got["mask"], mask)

    def test_desi(self):
        for name in ("real/desi/coadd-4-80613-thru20210324", "real/desi/coadd-5-169-thru20210419",
                     "real/desi/coadd-special-dark-27247", "real/desi/coadd-sv3-dark-26065",
                     "real/desi/spectra-sv3-dark-26065", "sim/coadd-dev-patho"):
            for config, skies, bad in (
                    ("", False, 0), ("objtypes: [SKY, BAD]\n", True, 0),
                    ("fiberstatus_allowed_bits: [3, 20]\n", False, ~(1 << 3 | 1 << 20))):
                answer, hdus = self.answer(name, config, arms=["b", "r", "z"])
                with hdus:
                    fibermap = hdus["FIBERMAP"].data
                    status = fibermap["COADD_" * ("spectra" not in name) + "FIBERSTATUS"]
                    is_sky = np.isin(np.char.strip(fibermap["OBJTYPE"]), ["SKY", "BAD"])
                    rows = np.flatnonzero((is_sky == skies) & (status & bad == 0))
                    arrays = {(x, key): hdus[f"{x}_{key}"].data for x in "BRZ" for key in (
                        "WAVELENGTH", "FLUX", "IVAR", "MASK", "RESOLUTION")}
                self.assertEqual([(r["target_id"], float(r["ra"])) for r in answer["rows"]],
                                 [(fibermap["TARGETID"][i], fibermap["TARGET_RA"][i]) for i in rows])
                self.assertEqual(len(answer["segments"]), 3 * len(rows))
                for k, got in enumerate(answer["segments"]):
                    row, x = rows[k // 3], "BRZ"[k % 3]
                    self.assertPixels(got, *(arrays[x, key][row] for key in ("FLUX", "IVAR", "MASK")))
                    self.assertSame(got["wave"], arrays[x, "WAVELENGTH"])
                    self.assertSame(got["resolution"], arrays[x, "RESOLUTION"][row].ravel())
        # its redrock file is found: a galaxy
        name = "real/desi/coadd-4-80613-thru20210324"
        self.assertEqual(self.answer(name, "redrock: true\n", arms=["b"])[0]["rows"], [])
        (row,) = self.answer(name, "", arms=["b"])[0]["rows"]
        self.assertEqual((row["z"], row["spectype"]), ("0.36874355163716493", "GALAXY"))

    def test_sdss(self):
        for name in ("sdss/spec-0266-51602-0031", "sdss/spec-3586-55181-0500", "sdss-more/spec-0618-52049-0372"):
            for exposures in ("coadd", "single", "joint") if "0266" not in name else ("coadd",):
                answer, hdus = self.answer("real/" + name, f"exposures: {exposures}\n")
                self.assertEqual((answer["frame"], answer["rows"][0]["spectype"]), (HELIOCENTRIC, "STAR"))
                tables = {}
                with hdus:
                    for hdu in hdus[1:2] if exposures == "coadd" else hdus[4:]:
                        number = -1 if exposures == "coadd" else int(hdu.name.split("-")[1])
                        arm = COADD if exposures == "coadd" else B if hdu.name[0] == "B" else R
                        tables[number, arm] = hdu.data.copy()
                self.assertEqual(len(answer["segments"]), len(tables))
                for got in answer["segments"]:
                    of = tables.pop((int(answer["exposure_id"][got["exposure"]]), got["arm"]))
                    if of["loglam"][0] > of["loglam"][-1]:  # blue exposures of SDSS-I
                        of = of[::-1]
                    mask = of["and_mask" if exposures == "coadd" else "mask"]
                    self.assertPixels({**got, "mask": got["mask"] & ~NO_WIDTH}, of["flux"], of["ivar"],
                                      mask.astype("i4") & SDSS_BAD)
                    # the rounding of the logarithm is far below float32's
                    self.assertSame(np.log10(got["wave"]).astype("f4"), of["loglam"])
                    self.assertTrue(((got["sigma"] > 0.5) & (got["sigma"] < 5)).all())  # R 1000 to 3000

    def test_lamost_mrs(self):
        for name, n in (("58408-TD230151N343645T01_sp01-015", 7), ("58644-TD192102N424113K01_sp12-076", 4)):
            for exposures, n_row in ("coadd", 1), ("single", n), ("joint", 1):
                answer, hdus = self.answer("real/lamost-mrs/med-" + name, f"exposures: {exposures}\n", lsf=False)
                self.assertEqual((answer["format"], answer["frame"], len(answer["rows"])),
                                 ("lamost-mrs", HELIOCENTRIC, n_row))
                with hdus:
                    self.assertTrue((np.abs(answer["exposure_mjd"] - hdus[0].header["MJD"] - 0.65) < 0.15).all())
                    self.assertEqual(len(answer["segments"]), 2 if exposures == "coadd" else 2 * n)
                    for got in answer["segments"]:
                        number = answer["exposure_id"][got["exposure"]]
                        of = hdus["COADD_" + "BR"[got["arm"] == R] if exposures == "coadd" else
                                  "BR"[got["arm"] == R] + f"-{number}"].data
                        of = of[np.argsort(of["LOGLAM"])]
                        self.assertPixels(got, of["FLUX"], of["IVAR"],
                                          of["ANDMASK" if exposures == "coadd" else "PIXMASK"])
                        self.assertSame(np.log10(got["wave"]).astype("f4"), of["LOGLAM"])

    def test_lamost(self):
        for folder, start in (("lamost", ""), ("cool", "spec-")):
            n = 0
            for name in sorted(os.listdir(os.path.join(DATA, "real", folder))):
                if not name.startswith(start) or not name.endswith(".fits.gz"):
                    continue
                answer, hdus = self.answer(f"real/{folder}/{name[:-len('.fits.gz')]}", "", lsf=False)
                self.assertEqual(answer["frame"], HELIOCENTRIC)
                with hdus:
                    of = hdus["COADD"].data[0] if folder == "lamost" else {
                        "WAVELENGTH": 10 ** (3.5682 + 1e-4 * np.arange(3904)),
                        **dict(zip(("FLUX", "IVAR", "", "ANDMASK"), hdus[0].data))}
                    (got,) = answer["segments"]
                    self.assertPixels(got, of["FLUX"], of["IVAR"], of["ANDMASK"])
                    np.testing.assert_allclose(got["wave"], of["WAVELENGTH"], rtol=1e-15)
                n += 1
            self.assertGreater(n, 0, folder)
