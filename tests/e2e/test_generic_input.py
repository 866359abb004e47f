# SPDX-License-Identifier: BSD-3-Clause
"""Generic input: files written by astropy, as docs/use/formats.md and `starmill convert` do.

The same pixels of simulated stars are given once as a DESI file and once in the generic
layout; the fits of the two must agree bit for bit.  Needs no test data.
"""

import re

from base import *  # noqa: F403
from starmill.surveys.generic import write

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
        return [
            {
                "NAME": f"star-{star}",
                "ARM": arm,
                "TARGETID": target,
                "RA": float(f["FIBERMAP"].data["TARGET_RA"][star]),
                "DEC": float(f["FIBERMAP"].data["TARGET_DEC"][star]),
                "MJD": 59000.25 + star,
                "WAVELENGTH": f[f"{arm}_WAVELENGTH"].data.astype(float),
                "FLUX": f[f"{arm}_FLUX"].data[star],
                "IVAR": f[f"{arm}_IVAR"].data[star],
                "MASK": f[f"{arm}_MASK"].data[star].astype("i4"),
            }
            for arm in ARMS
        ]


def generic(name):
    """Three stars of the survey without TARGETID."""
    with pyfits.open(SURVEY) as h:
        wave = h["R_WAVELENGTH"].data.astype("f8")
        write(tmp(name), [
            {"NAME": f"star-{i}", "WAVELENGTH": wave, "FLUX": h["R_FLUX"].data[i],
             "IVAR": h["R_IVAR"].data[i], "LSF_SIGMA": np.full(wave.size, 0.8)}
            for i in range(3)], "vacuum")
    return tmp(name)


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


class Test(ProgramTest):
    """One library and one small survey for all of them."""

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
        names = [n.decode().rstrip("\0") for n in catalog["OBJECT"]]
        self.assertEqual(names, [f"star-{i}" for i in range(N_STAR)])
        np.testing.assert_array_equal(read(self.path, "catalog/exposures")["MJD"], 59000.25 + np.arange(N_STAR))

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
            self.assertOneLine(starmill(*sample, "--output", tmp("by-name.h5"), "--object", text),
                               says, status=status)

    def test_objects_in_several_frames_are_not_joined(self):
        paths = {}
        for frame in ("barycentric", "heliocentric", "topocentric"):
            paths[frame] = written(f"{frame}.fits", self.rows[: len(ARMS)], frame)
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
            self.assertEqual("1 rows are more than 1 arcmin" in done.stderr, told, done.stderr)
            both = [dict(row, EXPOSURE=k) for k, part in enumerate((self.rows[: len(ARMS)], rows)) for row in part]
            done = self.fit("far.h5", "--config", self.config, "--exposures", "joint", "--overwrite",
                            written("both.fits", both), lib=self.lib)
            self.assertEqual("more than 1 arcmin" in done.stderr, told, done.stderr)
            self.assertEqual(read(self.path, "catalog")["N_EXPOSURE"].tolist(), [1, 1] if told else [2])

    def test_the_example_of_the_documentation(self):
        text = content(os.path.join(SOURCE, "docs", "use", "formats.md"), "r")
        section = text[text.index("## Generic input"):]
        code = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
        run_snippet(code, TMP)
        self.fit("example.h5", tmp("mine.fits"), lib=self.lib)
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 2)
        catalog = read(self.path, "catalog")
        self.assertEqual([n.decode().rstrip("\0") for n in catalog["OBJECT"]], ["star-1", "star-2"])

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
        with pyfits.open(tmp("csv.fits")) as hdus:
            made = hdus["SPECTRA"].data
            self.assertEqual(made["ERROR_ESTIMATED"].tolist(), [False, True])
            estimate, median = made["IVAR"][1][0] ** -0.5, np.median(error)
            self.assertLess(abs(estimate / median - 1), 0.2)
        table, catalog = self.fit_it("csv.h5", tmp("csv.fits"))
        self.assertEqual([n.decode().rstrip("\0") for n in catalog["OBJECT"]], ["csv-1", "csv-2"])
        same, _ = self.fit_it("one.h5", written("one.fits", [
            {"NAME": "one", "WAVELENGTH": wave, "FLUX": flux, "ERROR": error}]))
        np.testing.assert_array_equal(table["STATUS"], FITTED)
        for name in ("TEFF", "LOGG", "FEH", "VRAD"):
            # a polish ends where -2 ln L is within 1e-2 of its minimum: 0.1 errors
            self.assertLess(abs(table[name][0] - same[name][0]), 0.1 * same[name + "_ERR"][0])
            self.assertLess(abs(table[name][1] - same[name][0]), same[name + "_ERR"][0])

    def test_files_of_many_kinds_become_the_same_rows(self):
        folder, wave = tmp("kinds"), 4000 * np.exp(1e-4 * np.arange(300))
        os.mkdir(folder)
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
        with pyfits.open(tmp("kinds.fits")) as hdus:
            rows = hdus["SPECTRA"].data
            self.assertEqual(len(rows), 6)
            for row in rows:
                np.testing.assert_allclose(row["WAVELENGTH"], wave, rtol=1e-9, err_msg=row["NAME"])
                np.testing.assert_allclose(row["FLUX"] * row["FLUX_SCALE"], flux, rtol=1e-6)
                np.testing.assert_allclose(row["IVAR"], (row["FLUX_SCALE"] / error) ** 2, rtol=1e-6)

    def test_files_that_cannot_be_converted(self):
        lines = "".join(f"{500 + i} {1 + i % 3}\n" for i in range(20))
        for text, says in (
                (lines, "--unit nm"), (lines + "600 x", "line 21: '600 x'"), ("", "no columns"),
                ("a,b\n1,2\n2,3\n", "columns a, b"), ("\0\1", "no columns"),
                ("4000 1\n4001 1\n", "neither errors"), ("4001 1\n4000 1\n", "ascend")):
            with self.subTest(text[:20]):
                path = put("bad.txt", text)
                self.assertOneLine(starmill("convert", "--medium", "air", "--output", tmp("no.fits"), path),
                                   path, says, status=3)
        good = put("good.txt", lines)
        done = starmill("convert", "--medium", "air", "--unit", "nm", "--output", tmp("part.fits"), path, good, good)
        self.assertEqual((done.returncode, done.stdout), (3, tmp("part.fits: 1 spectra of 3 files\n")))
        self.assertIn(f"left out: {path}", done.stderr)


class Identifier(ProgramTest):
    """Every row has one that lasts, in /catalog and in the models, and the snippets of the documentation
    work with it."""

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
        one = generic("one.fits")
        ids = self.identifiers(one)
        self.assertEqual(ids, [f"one.fits:{i}" for i in range(3)])
        # the same wherever the file lies, packed or not
        moved = os.path.join(tmp("elsewhere"), "one.fits.gz")
        with open(moved, "wb") as f:
            subprocess.run(["gzip", "-c", one], stdout=f, check=True)
        self.assertEqual(self.identifiers(moved), ids)

    def test_long_names_stay_apart(self):
        stem = "x" * 60
        ids = self.identifiers(generic(stem + "a.fits"), generic(stem + "b.fits"))
        self.assertEqual(len(set(ids)), 6)
        for name in ids:
            self.assertRegex(name, r"^x+~[0-9a-f]{8}:[0-2]$")

    def test_snippets_of_the_documentation(self):
        ids = self.identifiers(generic("docs.fits"))
        folder = tmp("docs")
        os.mkdir(folder)
        os.rename(self.path, os.path.join(folder, "OUT.h5"))
        os.rename(tmp("ids-models.h5"), os.path.join(folder, "MODELS.h5"))
        n_run = 0
        for page in ("docs/use/results.md", "README.md"):
            text = content(os.path.join(SOURCE, page), "r")
            for code in re.findall(r"```python\n(.*?)```", text, re.S):
                n_run += 1
                run_snippet(code, folder, h5py=h5py, IDENTIFIER=ids[1])
        self.assertEqual(n_run, 3)
