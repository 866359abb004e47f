# SPDX-License-Identifier: BSD-3-Clause
"""Generic input, written by astropy as docs/use/formats.md says and by `starmill convert`; WEAVE's
L1 files, where a field has a blue and a red file; and 4MOST's files.

The same pixels of simulated stars are given in the generic layout and in that of DESI, WEAVE or
4MOST: the fits agree bit for bit.  Needs no test data."""

import itertools

from base import *  # noqa: F403
from starmill.cli.basics import Failure
from starmill.products.models import Models
from starmill.products.result import Result
from starmill.surveys.generic import write
from starmill.surveys.spectra import Channel, Inputs, matched

N_STAR = 3
ARMS = ("B", "R", "Z")
POWER = 3000.0
# a configuration that leaves no difference between the formats: no matrix, no default mask
CONFIG = f"""lsf: resolving_power
resolving_power: {POWER}
wave_mask: []
"""
LIBRARY, SURVEY = coarse_survey(N_STAR)


def rows_of(desi, star):
    """The arms of a star of a coadd as rows of the generic layout."""
    with pyfits.open(desi) as f:
        target = int(f["FIBERMAP"].data["TARGETID"][star])
        return [{"NAME": f"star-{star}", "ARM": arm, "TARGETID": target,
                 "RA": float(f["FIBERMAP"].data["TARGET_RA"][star]),
                 "DEC": float(f["FIBERMAP"].data["TARGET_DEC"][star]), "MJD": 59000.25 + star,
                 "WAVELENGTH": f[f"{arm}_WAVELENGTH"].data.astype(float),
                 "FLUX": f[f"{arm}_FLUX"].data[star], "IVAR": f[f"{arm}_IVAR"].data[star],
                 "MASK": f[f"{arm}_MASK"].data[star].astype("i4")} for arm in ARMS]


def three_stars(name):
    """Three stars of the survey without TARGETID."""
    with pyfits.open(SURVEY) as h:
        wave = h["R_WAVELENGTH"].data.astype("f8")
        return written(name, [
            {"NAME": f"star-{i}", "WAVELENGTH": wave, "FLUX": h["R_FLUX"].data[i],
             "IVAR": h["R_IVAR"].data[i], "LSF_SIGMA": np.full(wave.size, 0.8)}
            for i in range(3)])


def written(name, rows, *how, **more):
    write(tmp(name), rows, "vacuum", *how, **more)
    return tmp(name)


def run_snippet(code, folder, **names):
    """Python of the documentation, in a folder."""
    here = os.getcwd()
    os.chdir(folder)
    try:
        exec(code, names)
    finally:
        os.chdir(here)


class Generic(ProgramTest):
    """All tests use one library and one small survey."""

    @classmethod
    def setUpClass(cls):
        cls.lib, cls.desi = LIBRARY, SURVEY
        cls.config = put("run.yaml", CONFIG)
        cls.rows = sum((rows_of(cls.desi, i) for i in range(N_STAR)), [])
        cls.expected, _ = cls().fit_it("desi.h5", cls.desi)

    def fit_it(self, out, path, *args, **how):
        self.fit(out, "--config", self.config, *args, path, lib=self.lib, **how)
        return read(self.path), read(self.path, "catalog")

    def test_same_pixels_give_the_same_fit(self):
        path = written("generic.fits", self.rows, "barycentric")
        table, catalog = self.fit_it("generic.h5", path)
        self.assertIn(FITTED, table["STATUS"])
        self.assertEqual(differing(table, self.expected), [])
        self.assertEqual(texts(catalog["OBJECT"]), [f"star-{i}" for i in range(N_STAR)])
        np.testing.assert_array_equal(read(self.path, "catalog/exposures")["MJD"], 59000.25 + np.arange(N_STAR))

    def test_missing_pixels_of_an_even_grid_are_bad_pixels(self):
        """On linear and logarithmic grids, holes of up to 16 pixels count as bad pixels; wider holes stay."""
        for name in "linear", "log", "sparse":
            whole, part = [], []
            for row in self.rows:
                wave, n = row["WAVELENGTH"], row["WAVELENGTH"].size
                if name == "log":
                    even, good = np.geomspace(wave[0], wave[-1], n), (row["MASK"] == 0) & (row["IVAR"] > 0)
                    row = {**row, "WAVELENGTH": even, "FLUX": np.interp(even, wave[good], row["FLUX"][good]),
                           "IVAR": np.interp(even, wave[good], row["IVAR"][good]), "MASK": np.zeros(n, "i4")}
                bad = np.isin(np.arange(n) % 40, (7, 20, 21, 22))
                bad[100:116] = True
                if name == "sparse":
                    bad = np.isin(np.arange(n) % 5, (1, 3))
                left = np.maximum.accumulate(np.where(bad, 0, np.arange(n)))  # readers repeat this pixel
                whole.append({**row, "FLUX": row["FLUX"][left], "IVAR": np.where(bad, 0, row["IVAR"])})
                part.append({k: v[~bad] if np.size(v) == n else v for k, v in row.items()})
            full, _ = self.fit_it(name + "-whole.h5", written(name + "-whole.fits", whole))
            less, _ = self.fit_it(name + "-part.h5", written(name + "-part.fits", part))
            np.testing.assert_array_equal(full["STATUS"], FITTED)
            np.testing.assert_array_equal(less["NPIX_TOT"], full["NPIX_TOT"])
            # Wavelengths in holes differ by rounding, so a polish may end a step earlier.  Then F
            # may be 0.01 higher, and parameters may shift by sqrt(0.01) = 0.1 errors.
            for column in "VRAD", "TEFF", "LOGG":
                off = abs(less[column] - full[column]) / full[column + "_ERR"]
                self.assertLess(off.max(), 0.1, (name, column))
            np.testing.assert_allclose(less["M2LL"], full["M2LL"], rtol=0, atol=0.01)
        n_good = [self.fit_it(f"{end}.h5", written(f"{end}.fits", [
            {k: np.delete(v, np.s_[100:end]) if np.size(v) > end else v for k, v in row.items()}
            for row in self.rows]))[0]["NPIX_TOT"] for end in (116, 117)]
        # the hole of 17 pixels is not filled: an arm loses the 17th and two or more on each side
        self.assertTrue((n_good[1] <= n_good[0] - 5 * len(ARMS)).all(), n_good)

    def test_stars_without_targetid_are_sampled_by_name(self):
        path = written("named.fits", [{k: v for k, v in row.items() if k != "TARGETID"}
                                      for row in self.rows])
        table, _ = self.fit_it("named.h5", path)
        best = int(np.argmax(table["SN_R"] * (table["STATUS"] == FITTED)))
        sample = ("sample", "--fit", self.path, "--library", self.lib, "--ess", 50,
                  "--max-evaluations", 1000, "--backend", "cpu", "--quiet", path)
        for star, by in ((f"star-{best}", "name"), (f"named.fits:{best * len(ARMS)}", "file")):
            run(*sample, "--output", tmp(f"by-{by}.h5"), "--object", star)
            one = read(tmp(f"by-{by}.h5"))
            self.assertEqual(read(tmp(f"by-{by}.h5"), "catalog")["OBJECT"].tolist(),
                             [f"star-{best}".encode()])
            self.assertTrue(np.isfinite(one["POST_MEAN"]).all())
        self.assertEqual(differing(one, read(tmp("by-name.h5"))), [])
        for text, says, status in ((f"star-{best - 1}", "by-name.h5", 4), ("star-99", "star-99", 2)):
            self.ends(status, *sample, "--output", tmp("by-name.h5"), "--object", text, says=[says])

    def test_objects_in_several_frames_are_not_joined(self):
        paths = {frame: written(f"{frame}.fits", self.rows[: len(ARMS)], frame)
                 for frame in ("barycentric", "heliocentric", "topocentric")}
        args = ("--config", self.config, "--join-by-name", paths["barycentric"])
        done = self.fit("mixed.h5", *args, paths["topocentric"], lib=self.lib, status=2)
        self.assertOneLine(done, paths["barycentric"], paths["topocentric"], "frame", status=2)
        self.fit("solar.h5", *args, paths["heliocentric"], lib=self.lib)
        self.assertEqual(list(read(self.path, "catalog")["N_EXPOSURE"]), [2])
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED])
        self.fit("apart.h5", *args[:2], args[3], paths["topocentric"], lib=self.lib)

    def test_stars_of_one_name_far_from_each_other_are_told_of(self):
        args = ("--config", self.config, "--join-by-name", written("first.fits", self.rows[: len(ARMS)]))
        for away, told in ((1.02 / 60, True), (0.98 / 60, False)):
            rows = [dict(row, DEC=row["DEC"] + away) for row in self.rows[: len(ARMS)]]
            done = self.fit("far.h5", *args, "--overwrite", written("second.fits", rows), lib=self.lib)
            self.assertEqual("a row more than 1 arcmin away" in done.stderr, told, done.stderr)
            both = [dict(row, EXPOSURE=k) for k, part in enumerate((self.rows[: len(ARMS)], rows)) for row in part]
            done = self.fit("far.h5", "--config", self.config, "--exposures", "joint", "--overwrite",
                            written("both.fits", both), lib=self.lib)
            self.assertEqual("more than 1 arcmin" in done.stderr, told, done.stderr)
            self.assertEqual(read(self.path, "catalog")["N_EXPOSURE"].tolist(), [1, 1] if told else [2])

    def test_the_example_of_the_documentation(self):
        text = content(os.path.join(SOURCE, "docs", "use", "formats.md"), "r")
        section = text[text.index("## Generic input"):]
        run_snippet(re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1), TMP)
        self.fit("example.h5", tmp("mine.fits"), lib=self.lib)
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 2)
        self.assertEqual(texts(read(self.path, "catalog")["OBJECT"]), ["star-1", "star-2"])

    def test_a_csv_becomes_labels(self):
        row = self.rows[1]
        ok = row["IVAR"] > 0
        wave, flux, error = row["WAVELENGTH"][ok], row["FLUX"][ok], row["IVAR"][ok] ** -0.5
        table = np.transpose([wave / 10, flux, error])
        np.savetxt(tmp("csv-1.csv"), table, "%.9g", ",", header="wave_nm,flux,flux_err", comments="")
        np.savetxt(tmp("csv-2.csv"), table * [1, 1, np.nan], "%.9g", ",")
        done = run("convert", "--medium", "vacuum", "--resolving-power", POWER, "--unit", "nm",
                   "--output", tmp("csv.fits"), tmp("csv-1.csv"), tmp("csv-2.csv"))
        self.assertIn("1 spectra have no errors (csv-2): estimated from the noise", done.stderr)
        made = pyfits.getdata(tmp("csv.fits"), "SPECTRA")
        self.assertEqual(made["ERROR_ESTIMATED"].tolist(), [False, True])
        estimate, median = made["IVAR"][1][0] ** -0.5, np.median(error)
        self.assertLess(abs(estimate / median - 1), 0.2)
        table, catalog = self.fit_it("csv.h5", tmp("csv.fits"))
        self.assertEqual(texts(catalog["OBJECT"]), ["csv-1", "csv-2"])
        same, _ = self.fit_it("one.h5", written("one.fits", [
            {"NAME": "one", "WAVELENGTH": wave, "FLUX": flux, "ERROR": error}]))
        np.testing.assert_array_equal(table["STATUS"], FITTED)
        for name in ("TEFF", "LOGG", "FEH", "VRAD"):
            # a polish ends where -2 ln L is within 1e-2 of its minimum: 0.1 errors
            self.assertLess(abs(table[name][0] - same[name][0]), 0.1 * same[name + "_ERR"][0])
            self.assertLess(abs(table[name][1] - same[name][0]), same[name + "_ERR"][0])

    def test_files_of_many_kinds_become_the_same_rows(self):
        folder, wave = new_folder("kinds"), 4000 * np.exp(1e-4 * np.arange(300))
        flux = 1e-17 * (2 + np.sin(np.arange(300)))
        error = np.full(300, 1e-18)

        def image(name, cards, *more):
            hdu = pyfits.PrimaryHDU(flux)
            hdu.header.update(CRPIX1=1, **cards)
            pyfits.HDUList([hdu, *more]).writeto(os.path.join(folder, name))
        errors = pyfits.ImageHDU(error**-2, name="IVAR")
        image("paper-iii.fits", {"CTYPE1": "WAVE-LOG", "CUNIT1": "nm", "CRVAL1": 400, "CDELT1": 0.04},
              errors)
        image("iraf.fits", {"DC-FLAG": 1, "CRVAL1": np.log10(4000), "CD1_1": 1e-4 / np.log(10)}, errors)
        sdp = pyfits.ColDefs([pyfits.Column(name, "300D", unit, array=[values]) for name, unit, values in (
            ("WAVE", "um", wave / 1e4), ("FLUX", "erg", flux), ("ERR", "erg", error))])
        pyfits.BinTableHDU.from_columns(sdp).writeto(os.path.join(folder, "sdp.fits"))
        columns = np.transpose([wave, flux, error])
        np.save(os.path.join(folder, "array.npy"), columns)
        np.savetxt(os.path.join(folder, "text.dat"), columns, header="lambda [AA] flux (erg) error")
        np.savetxt(os.path.join(folder, "units.csv"), columns[:, [2, 0, 1]] ** [[2, 1, 1]], delimiter=";",
                   header='"VAR";"Wavelength [Angstrom]";"Flux"', comments="")
        run("convert", "--medium", "vacuum", "--output", tmp("kinds.fits"), folder)
        rows = pyfits.getdata(tmp("kinds.fits"), "SPECTRA")
        self.assertEqual(len(rows), 6)
        for row in rows:
            np.testing.assert_allclose(row["WAVELENGTH"], wave, rtol=1e-9, err_msg=row["NAME"])
            np.testing.assert_allclose(row["FLUX"] * row["FLUX_SCALE"], flux, rtol=1e-6)
            np.testing.assert_allclose(row["IVAR"], (row["FLUX_SCALE"] / error) ** 2, rtol=1e-6)

    def test_masks_nulls_units_and_names(self):
        """A pixel is bad where a known mask is not 0, or a scaled integer's raw number is the null."""
        folder, wave = new_folder("masks"), np.arange(4000.0, 4300)
        flux, error, bad = 2 + np.round(np.sin(wave), 2), np.full(300, 0.1), np.arange(300) % 50 == 7
        cards = {"CRVAL1": 4000.0, "CRPIX1": 1, "CDELT1": 1.0, "CUNIT1": "Angstrom"}

        def images(name, **parts):
            hdus = [pyfits.ImageHDU(values, name=what) for what, values in parts.items()]
            for hdu in hdus:
                hdu.header.update(cards)
            hdus[-1].header["BUNIT"], hdus[-2].header["BUNIT"] = "10**-17 erg", "10**-18 erg"
            pyfits.HDUList([pyfits.PrimaryHDU(), *hdus]).writeto(os.path.join(folder, name))

        def text(name, head, *columns, **how):
            np.savetxt(os.path.join(folder, name), np.transpose(columns), header=head, **how)
        images("swapped.fits", MASK=bad.astype("i4"), IVAR=error**-2 / 100, FLUX=flux)  # (1e-18 erg)^-2
        pyfits.setval(os.path.join(folder, "swapped.fits"), "BUNIT", value="10**36 erg-2", extname="IVAR")
        images("error.fits", QUAL=bad.astype("i4"), ERR=error * 10, FLUX=flux)
        table = bintable({"WAVE": wave, "FLUX": flux, "ERR": error * 10, "AND_MASK": ("K", bad << 18 | 1 << 10)})
        table.columns[1].unit, table.columns[2].unit = "10**-17 erg", "10**-18 erg"  # bit 10 of SDSS is no fault
        table.writeto(os.path.join(folder, "table.fits"))
        raw = np.where(bad, -99, np.round(flux * 100)).astype("i2")
        pyfits.BinTableHDU.from_columns([pyfits.Column("WAVE", "D", array=wave), pyfits.Column(
            "FLUX", "I", array=raw, null=-99), pyfits.Column("ERR", "D", array=error)]).writeto(tmp("null.fits"))
        with pyfits.open(tmp("null.fits"), do_not_scale_image_data=True) as hdus:
            hdus[1].header["TSCAL2"] = 0.01
            content_of = hdus[1].header.tostring(), hdus[1].data.tobytes()
        with open(os.path.join(folder, "null.fits"), "wb") as file:
            file.write(content(tmp("null.fits"))[:2880] + content_of[0].encode())
            file.write(content_of[1].ljust(-(-len(content_of[1]) // 2880) * 2880, b"\0"))
        text("m.csv", "wave,flux,err,mask", wave, flux, error, bad, delimiter=",", comments="")
        text("below.txt", "wave flux ivar mask\n---- ---- ---- ----", wave, flux, error**-2, bad)
        text("word.txt", "columns: wave flux ivar mask", wave, flux, error**-2, bad)
        run("convert", "--medium", "vacuum", "--output", tmp("masks.fits"), folder)
        rows = pyfits.getdata(tmp("masks.fits"))
        self.assertEqual(len(rows), 7)
        for row in rows:
            np.testing.assert_allclose(row["WAVELENGTH"], wave)
            np.testing.assert_allclose(row["FLUX"][~bad], flux[~bad], rtol=1e-6, err_msg=row["NAME"])  # float32
            np.testing.assert_allclose(row["IVAR"], np.where(bad, 0, error**-2), rtol=1e-6, err_msg=row["NAME"])
        table.columns[2].unit = "s"
        table.writeto(tmp("second.fits"))
        self.assertOneLine(starmill("convert", "--medium", "vacuum", "--output", tmp("no.fits"), tmp("second.fits")),
                           "second.fits", "the unit of ERR, 's'", status=3)

    def test_the_width_has_its_own_unit_or_that_of_the_wavelengths(self):
        wave, one, path = np.arange(400, 420, 0.5), np.ones(40), tmp("own.fits")
        for unit, sigma in ("_aa", 1), ("_nm", 10), ("", 10):
            names = "wave_nm", "flux", "error", "lsf_sigma" + unit
            np.savetxt(tmp("own.txt"), np.transpose([wave, one, one, one]), header=" ".join(names), comments="")
            table = bintable(dict(zip(names[:3], (wave, one, one)), LSF_SIGMA=one))
            table.columns[0].unit, table.columns[3].unit = "nm", {"_aa": "Angstrom"}.get(unit, unit[1:])
            table.writeto(path, overwrite=True)
            for name in path, tmp("own.txt"):
                run("convert", "--medium", "vacuum", "--overwrite", "--output", tmp("width.fits"), name)
                np.testing.assert_allclose(pyfits.getdata(tmp("width.fits"))["LSF_SIGMA"][0], sigma)

    def test_sigma_is_the_error_only_where_there_is_no_other(self):
        wave, ivar, path = np.arange(4000, 4200, 5.0), np.linspace(25, 50, 40), tmp("sigma.txt")
        for names, third, sigma in (
                ("sigma", ivar**-0.5, None), ("sigma ivar", 2 + wave / 4e3, ivar),
                ("ivar sigma", ivar, 2 + wave / 4e3), ("err sigma", ivar**-0.5, 2 + wave / 4e3),
                ("ivar sigma", ivar, ivar**-0.5)):
            with self.subTest(names=names):
                columns = [c for c in (wave, np.sin(wave), third, sigma) if c is not None]
                np.savetxt(path, np.transpose(columns), "%.9g", header="wave flux " + names,
                           comments="")
                done = starmill("convert", "--medium", "vacuum", "--overwrite", "--output",
                                tmp("s.fits"), path)
                if sigma is not None and sigma[0] == 0.2:
                    self.assertOneLine(done, path, "SIGMA equals the error", status=3)
                    continue
                row = pyfits.getdata(tmp("s.fits"))[0]
                np.testing.assert_allclose(row["IVAR"], ivar, rtol=1e-6)  # float32
                self.assertEqual("LSF_SIGMA" in row.array.names, sigma is not None)
                if sigma is not None:
                    np.testing.assert_allclose(row["LSF_SIGMA"], 2 + wave / 4e3, rtol=1e-6)

    def test_files_that_cannot_be_converted(self):
        lines = "".join(f"{500 + i} {1 + i % 3}\n" for i in range(20))
        for text, says in (
                (lines, "--unit nm"), (lines + "600 x", "line 21: expected 2 numbers"), ("", "expected columns of 2+ pixels"),
                ("a,b\n1,2\n2,3\n", "columns a, b"), ("\0\1", "expected columns of 2"),
                ("4000 1\n4001 1\n", "has no errors"), ("4001 1\n4000 1\n", "ascend")):
            with self.subTest(text[:20]):
                path = put("bad.txt", text)
                self.assertOneLine(starmill("convert", "--medium", "air", "--output", tmp("no.fits"), path),
                                   path, says, status=3)
        good = put("good.txt", lines)
        done = starmill("convert", "--medium", "air", "--unit", "nm", "--output", tmp("part.fits"), path, good, good)
        self.assertEqual((done.returncode, done.stdout), (3, tmp("part.fits: 1 spectra of 3 files\n")))
        self.assertIn(f"left out: {path}", done.stderr)


class Identifier(ProgramTest):
    """Rows of /catalog and models have lasting identifiers, which the documentation uses."""

    def identifiers(self, *files):
        self.fit("ids.h5", "--overwrite", "--quiet", "--models", tmp("ids-models.h5"), *files,
                 lib=LIBRARY)
        with h5py.File(self.path, "r") as f, h5py.File(tmp("ids-models.h5"), "r") as m:
            ids = list(f["catalog/IDENTIFIER"].asstr()[:])
            self.assertEqual([ids[i] for i in m["models/fits_row"]],
                             list(m["models/IDENTIFIER"].asstr()[:]))
        return ids

    def test_file_and_row(self):
        os.mkdir(tmp("elsewhere"))
        one = three_stars("one.fits")
        ids = self.identifiers(one)
        self.assertEqual(ids, [f"one.fits:{i}" for i in range(3)])
        # the same wherever the file lies, packed or not
        moved = os.path.join(tmp("elsewhere"), "one.fits.gz")
        with open(moved, "wb") as f:
            subprocess.run(["gzip", "-c", one], stdout=f, check=True)
        self.assertEqual(self.identifiers(moved), ids)

    def test_long_names_stay_apart(self):
        stem = "x" * 60
        ids = self.identifiers(three_stars(stem + "a.fits"), three_stars(stem + "b.fits"))
        self.assertEqual(len(set(ids)), 6)
        for name in ids:
            self.assertRegex(name, r"^x+~[0-9a-f]{8}:[0-2]$")

    def test_snippets_of_the_documentation(self):
        ids = self.identifiers(three_stars("docs.fits"))
        folder = new_folder("docs")
        os.rename(self.path, os.path.join(folder, "OUT.h5"))
        os.rename(tmp("ids-models.h5"), os.path.join(folder, "MODELS.h5"))
        n_run = 0
        for page in ("docs/use/results.md", "README.md"):
            text = content(os.path.join(SOURCE, page), "r")
            for code in re.findall(r"```python\n(.*?)```", text, re.S):
                n_run += 1
                run_snippet(code, folder, h5py=h5py, IDENTIFIER=ids[1])
        self.assertEqual(n_run, 3)


N_FIBER = 6
FIBERS = (0, 2, 5)  # these fibres see stars; the others see the sky or nothing
CAMERAS = {"BLUE": "B", "RED": "R"}
SENS = 0.5  # a power of two, so that nothing is rounded
STEP_AA = 0.75
WEAVE = """lsf: resolving_power
resolving_power: 3000
wave_mask: []
arms:
  - {name: b, channel: blue}
  - {name: r, channel: red}
"""


class Weave(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.lib, cls.desi = LIBRARY, SURVEY
        cls.config = put("weave.yaml", WEAVE)
        cls.pixels = {arm: cls.resample(arm) for arm in CAMERAS}
        cls.paths = [cls.write(arm) for arm in CAMERAS]

    @classmethod
    def resample(cls, arm):
        """Wavelength, flux and ivar of the stars, at equal steps that are exact in float64."""
        with pyfits.open(cls.desi) as f:
            x = CAMERAS[arm]
            wave = f[f"{x}_WAVELENGTH"].data.astype(float)
            start = np.ceil(wave[0])
            grid = start + STEP_AA * np.arange(int((wave[-1] - start) / STEP_AA))
            flux = np.array([np.interp(grid, wave, row) for row in f[f"{x}_FLUX"].data])
            good = (f[f"{x}_MASK"].data == 0) * f[f"{x}_IVAR"].data
            ivar = np.array([np.interp(grid, wave, row) for row in good])
        return grid, flux.astype("f4"), ivar.astype("f4")

    @classmethod
    def write(cls, arm):
        grid, flux, ivar = cls.pixels[arm]
        data = np.full((N_FIBER, grid.size), 1000.0, "f4")
        weight = np.ones_like(data)
        for i, fiber in enumerate(FIBERS):
            data[fiber], weight[fiber] = flux[i] / SENS, ivar[i] * SENS**2
        name = np.array([f"WVE_{i:08d}+0000000" for i in range(N_FIBER)])
        table = bintable({
            "Nspec": ("J", np.arange(N_FIBER) + 1), "FIBREID": ("J", np.arange(N_FIBER) + 101), "CNAME": ("20A", name),
            "TARGID": ("30A", ["x"] * N_FIBER), "TARGRA": np.linspace(10, 11, N_FIBER),
            "TARGDEC": np.linspace(-1, 1, N_FIBER), "STATUS": ("1A", list("AAAPAA")), "TARGUSE": ("1A", list("TSTTST")),
            "TARGCAT": ("30A", ["GA_LRdisc", "", "GA_LRhighlat", "", "", "GA_HRdisc"])}, "FIBTABLE")
        hdus = [pyfits.PrimaryHDU()]
        for what, image in (("DATA", data), ("IVAR", weight), ("DATA_NOSS", data), ("IVAR_NOSS", weight),
                            ("SENSFUNC", np.full_like(data, SENS))):
            hdus.append(pyfits.ImageHDU(image, name=f"{arm}_{what}"))
            if what != "SENSFUNC":
                hdus[-1].header.update(CTYPE1="WAVE", CUNIT1="Angstrom", CRPIX1=1.0, CRVAL1=grid[0], CD1_1=STEP_AA)
        path = tmp(f"stack_{arm.lower()}.fit")
        pyfits.HDUList(hdus + [table]).writeto(path, overwrite=True)
        return path

    def write_4most(self):
        """The blue arm as a container of 4MOST, in physical units."""
        grid, flux, ivar = self.pixels["BLUE"]
        n = grid.size
        data = np.ones((N_FIBER, n))
        weight = np.ones_like(data)
        for i, fiber in enumerate(FIBERS):
            data[fiber], weight[fiber] = flux[i].astype(float) / 1e17, ivar[i].astype(float) * 1e34
        spectra = bintable({"FLUX": (f"{n}D", data), "FLUX_IVAR": (f"{n}D", weight),
                            "QUAL": (f"{n}I", np.zeros((N_FIBER, n)))}, "SPECTAB")
        spectra.header.update({"1CTYP1": "WAVE", "1CUNI1": "Angstrom", "1CRPX1": 1.0,
                               "1CRVL1": grid[0], "1CDLT1": STEP_AA})
        target = bintable({"OBJ_NME": ("20A", [f"QMST_{i}" for i in range(N_FIBER)]),
                           "FIB_ST": ("I", [2, 2, 2, 1, 2, 2]), "FIB_USE": ("I", [1, 3, 1, 1, 3, 2])}, "FIBMETATAB")
        pyfits.HDUList([pyfits.PrimaryHDU(), spectra, target]).writeto(tmp("20261126_LB11_1.fits"))
        return tmp("20261126_LB11_1.fits")

    def generic(self, out, arms, *options):
        path = written(out + ".fits", [
            {"NAME": f"star-{fiber}", "ARM": arm, "WAVELENGTH": self.pixels[arm][0],
             "FLUX": self.pixels[arm][1][i], "IVAR": self.pixels[arm][2][i]}
            for i, fiber in enumerate(FIBERS) for arm in arms])
        self.fit(out + ".h5", "--config", self.config, *options, path, lib=self.lib)
        return read(self.path)

    def check_shown(self, out, models, arms):
        """What `starmill plot` draws: the pixels of the files and the models of the fit."""
        result = Result(tmp(out))
        catalog = read(tmp(out), "catalog")
        for row in range(N_STAR):
            first = catalog["FIRST_EXPOSURE"][row]
            shown, _ = Inputs(result).star(row, Models(models, result).of(row))
            self.assertEqual([a.name for a in shown], [CAMERAS[arm].lower() for arm in arms])
            for arm, drawn in zip(arms, shown):
                grid, flux, ivar = self.pixels[arm]
                with h5py.File(models) as f:
                    model = f[f"models/{drawn.name}/flux"][first:first + catalog["N_EXPOSURE"][row]]
                model = model[np.isfinite(model).any(axis=1)][0]  # a file of WEAVE has one arm
                at = np.searchsorted(grid, drawn.wave)  # those that were fitted
                self.assertEqual(np.count_nonzero(np.isfinite(model)), at.size)
                np.testing.assert_array_equal(grid[at], drawn.wave)
                np.testing.assert_array_equal(flux[row][at], drawn.flux)
                np.testing.assert_array_equal(ivar[row][at], drawn.ivar)
                np.testing.assert_array_equal(ivar[row][at] > 0, ~drawn.bad)
                np.testing.assert_array_equal(model[np.isfinite(model)], drawn.model)

    def test_an_arm_of_several_spectra(self):
        """An arm's model joins its spectra's models in any order; matched() finds each again."""
        wave = 5000 + 0.5 * np.arange(200)
        parts = wave[:80], wave[60:140], wave[150:]
        channels = [Channel("x", w, w + 1, np.ones(len(w)), np.zeros(len(w), bool)) for w in parts]
        for order in itertools.permutations(range(3)):
            joined = np.concatenate([parts[i] for i in order])
            arms = matched(channels, {"opt": (joined, joined + 2)}, "a.fits")
            self.assertEqual(len(arms), 3)
            for i, arm in zip(order, arms):
                np.testing.assert_array_equal([arm.wave, arm.flux, arm.model], parts[i] + [[0], [1], [2]])
        with self.assertRaisesRegex(Failure, "a.fits changed"):
            matched(channels, {"opt": (joined + 0.1, joined)}, "a.fits")

    def test_an_arm_in_two_cameras(self):
        """Two cameras with different parts are both drawn; a weaker exposure of one part is not."""
        grid, flux, ivar = self.pixels["RED"]
        parts = slice(100, 1200), slice(1100, 2300), slice(120, 1180)
        paths = [written(f"part{i}.fits", [{"NAME": "star", "WAVELENGTH": grid[at],
                                            "FLUX": flux[0][at], "IVAR": ivar[0][at] / (1 + i)}])
                 for i, at in enumerate(parts)]
        config = put("parts.yaml", "lsf: off\nwave_mask: []\narms: [r]\njoin_by_name: true\n")
        self.fit("parts.h5", "--config", config, "--models", tmp("parts-models.h5"), *paths, lib=self.lib)
        result = Result(self.path)
        arms, note = Inputs(result).star(0, Models(tmp("parts-models.h5"), result).of(0))
        self.assertEqual([(a.wave[0], a.wave[-1]) for a in arms], [(grid[at][0], grid[at][-1]) for at in parts[:2]])
        self.assertEqual(note, "3 exposures, the best of each arm")

    def test_one_arm(self):
        expected = self.generic("blue", ["BLUE"])
        self.fit("weave.h5", "--config", self.config, "--models", tmp("weave-models.h5"),
                 self.paths[0], lib=self.lib)
        self.check_shown("weave.h5", tmp("weave-models.h5"), ["BLUE"])
        table, catalog = read(self.path), read(self.path, "catalog")
        self.assertIn(FITTED, table["STATUS"])
        self.assertEqual(differing(table, expected), [])
        self.assertEqual(texts(catalog["OBJECT"]), [f"WVE_{i:08d}+0000000" for i in FIBERS])
        np.testing.assert_array_equal(catalog["FIBER"], np.array(FIBERS) + 101)
        self.fit("4most.h5", "--config", self.config, "--models", tmp("4most-models.h5"),
                 self.write_4most(), lib=self.lib)
        self.assertEqual(differing(read(self.path), expected), [])
        self.check_shown("4most.h5", tmp("4most-models.h5"), ["BLUE"])

    def test_both_arms_by_name(self):
        expected = self.generic("both", list(CAMERAS), "--models", tmp("both-models.h5"))
        self.check_shown("both.h5", tmp("both-models.h5"), list(CAMERAS))
        put("join.yaml", WEAVE + "join_by_name: true\n")
        self.fit("joined.h5", "--config", tmp("join.yaml"), "--models", tmp("joined-models.h5"),
                 *self.paths, lib=self.lib)
        table = read(self.path)
        self.assertEqual(len(table["VRAD"]), N_STAR)
        self.assertEqual(differing(table, expected), [])
        self.check_shown("joined.h5", tmp("joined-models.h5"), list(CAMERAS))

    def test_surveys_within_weave(self):
        for classes, fibers in (("GA_LRhighlat,GA_LRdisc", [0, 2]), ("GA_.*disc", [0, 5]),
                                ("GA_HR", [5])):
            self.fit("survey.h5", "--overwrite", "--config", self.config, "--target-class", classes,
                     self.paths[0], lib=self.lib)
            np.testing.assert_array_equal(read(self.path, "catalog")["FITS_ROW"], fibers)
