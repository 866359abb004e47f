# SPDX-License-Identifier: BSD-3-Clause
"""The reader of generic input: all types of values, rows of an exposure, faults."""

import itertools

from base import *  # noqa: F403
from survey_files import *  # noqa: F403
from starmill.surveys.spectra import SpectraFile  # noqa: E402


class Generic(Formats):
    N_ROW, N_PIX = 3, 4
    TWINS = "".join(f"SPECTRA NAME@{i}={name};SPECTRA TARGETID@{i}=5;SPECTRA RA@{i}=1;SPECTRA DEC@{i}=1;"
                    for i, name in enumerate(("twin", "lone", "twin")))

    def sample(self, edits="", **values):
        """A sample in which these columns have the given values, not random ones."""
        s = Sample("generic", edits=edits)
        for name, of in values.items():
            column = s.hdus[1].column(name)
            column.set(column.form, of)
        return s

    def plain(self, *args, config="", **values):
        """Read without a line-spread function."""
        return self.read(self.sample(*args, **values), config, lsf=False)

    def test_what_is_not_there_is_missing(self):
        answer = self.plain("SPECTRA-MASK;SPECTRA-LSF_SIGMA;SPECTRA-TARGETID;SPECTRA-RA")
        segment, row = answer["segments"][0], answer["rows"][0]
        self.assertEqual((segment["mask"], segment["sigma"]), (None, None))
        self.assertEqual((row["target_id"], row["ra"]), (-1, "nan"))

    def test_numbers_of_other_types(self):
        flux = [0.1, 1e300, -1e300, np.nan, *range(1, 9)]
        ivar = [0, 1, 2, 1 << 30, *range(4, 12)]
        got = self.plain("SPECTRA WAVELENGTH~4I;SPECTRA FLUX~4D;SPECTRA IVAR~4J",
                         WAVELENGTH=range(1, 13), FLUX=flux, IVAR=ivar)["segments"][0]
        self.assertSame(got["flux"], [0.1, np.inf, -np.inf, np.nan])
        self.assertSame(got["ivar"], ivar[:4])
        self.assertSame(got["wave"], [1, 2, 3, 4])

    def test_errors_that_are_none(self):
        """No error, and one whose square is beyond float32."""
        error = np.array([0.5, 0, np.nan, -1, np.inf, 1e-30, 3, 1e-9, 0.1, 0.2, 0.3, 1e30])
        ivar = np.where((error > 0) & np.isfinite(error), 1 / (error * error), 0)
        found = self.plain("SPECTRA IVAR>ERROR;SPECTRA ERROR~4D", ERROR=error)["segments"]
        self.assertSame(np.concatenate([s["ivar"] for s in found]), ivar)

    def test_masks_of_all_types(self):
        top, low = -2**31, -2**63
        for form, values, first in (
                ("4L", list("FTFFFFFFFFTF"), [0, -1, 0, 0]), ("4B", [0, 255, 1], [0, 255, 1, 0]),
                ("4I", [0, -1, 4], [0, -1, 4, 0]), ("4K", [0, 1 << 40, 3, low], [0, top, 3, top]),
                # stored as unsigned integers are: less 2^63 and 2^15
                ("4K;SPECTRA+TZERO5  =  9223372036854775808", [low, low + 1, -1], [0, 1, -1, top]),
                ("4I;SPECTRA+TZERO5  =                32768", [-2**15, -2**15 + 1, 2**15 - 1],
                 [0, 1, 65535, 32768])):
            values = list(values) + [0] * (12 - len(values))
            got = self.plain("SPECTRA MASK~" + form, MASK=values)["segments"][0]["mask"]
            self.assertEqual(list(got), first, form)

    def test_bad_pixels_need_no_wavelength(self):
        """Bad pixels without a wavelength are left out at the ends and interpolated elsewhere."""
        nan = np.nan
        for turn, (wave, mask, left) in itertools.product((1, -1), (
                ([0, 4001, nan, 4003], [1, 0, 1, 0], [4001, 4002, 4003]),
                ([0, 4001, 4002, 4003], [1, 0, 0, 1], [4001, 4002, 4003]),
                *(([4000, 4001, pad, pad], [0, 0, 1, 1], [4000, 4001]) for pad in (nan, 0, 9e4)),
                *(([pad, pad, 4000, 4001], [1, 1, 0, 0], [4000, 4001]) for pad in (nan, 0, 1)),
                ([nan, 4001, 4002, nan], [4, 0, 0, 2], [4001, 4002]), ([nan] * 4, [1] * 4, None))):
            s = Sample("generic")
            sigma = s.spectra[0]["sigma"][:4]
            for name, of_first, rest in (
                    ("WAVELENGTH", wave, range(4000, 4008)), ("MASK", mask, [0] * 8), ("FLUX", range(4), [1] * 8),
                    ("IVAR", [1] * 4, [1] * 8), ("LSF_SIGMA", sigma, [1] * 8)):
                s.hdus[1].column(name).set(s.hdus[1].column(name).form, [*of_first[::turn], *rest])
            found = [p for p in self.read(s)["segments"] if p["exposure"] == 0]
            self.assertEqual([list(p["wave"]) for p in found], [left] if left else [])
            for p in found:
                first = wave.index(left[0])
                sigma = np.where(np.isnan(wave), np.roll(sigma, 1), sigma)
                self.assertSame(p["sigma"], sigma[first:first + len(left)])
                self.assertSame(p["flux"], np.arange(4)[first:first + len(left)])
                self.assertEqual(list(p["mask"]), mask[first:first + len(left)])
        s.edit("SPECTRA MASK@1=0")
        self.assertIn("variable length", Reader.read(self.path(s), each=True)["each"][0]["message"])

    def test_missing_widths_mark_the_pixel(self):
        s = self.sample("SPECTRA LSF_SIGMA~4E;SPECTRA IVAR~4E;SPECTRA IVAR@1=7;SPECTRA IVAR@10=8",
                        LSF_SIGMA=[np.nan, 0.6, 0, -1, 1, 1, 1, 1, 2, 2, 2, np.inf])
        found = self.read(s)["segments"]
        self.assertSame(found[0]["sigma"], [0.6] * 4)
        self.assertSame(found[0]["ivar"][:3], [0, 7, 0])
        self.assertSame(found[2]["ivar"][2:], [8, 0])
        self.assertEqual(found[2]["sigma"][3], 2)

    def test_shared_wavelengths(self):
        """WAVELENGTH as an HDU: an image, a table with one row a pixel."""
        wave, cards = np.array([400.0, 400.5, 401.25, 402.0]), ["BUNIT   = 'nm'"]
        for hdu in (image("WAVELENGTH", "D", wave, cards), table("WAVELENGTH", ("WAVELENGTH", "D", wave, "nm")),
                    *(image("WAVELENGTH", "D", wave / nm, [f"BUNIT   = '{unit}'"])
                      for unit, nm in (("um", 1e3), ("micron", 1e3), ("m", 1e9)))):
            s = self.sample("SPECTRA-WAVELENGTH")
            s.hdus.append(hdu)
            found = self.read(s, lsf=False)["segments"]
            self.assertEqual(len({p["wave_at"] for p in found}), 1)
            np.testing.assert_allclose(found[0]["wave"], wave * 10.0, rtol=3e-16)  # two roundings
        for pad in (0, np.nan, -9999, 402.0):  # bad pixels need none
            s = self.sample("SPECTRA-WAVELENGTH", MASK=[0, 0, 0, 1] * 3, FLUX=[1] * 12, IVAR=[1] * 12)
            s.hdus.append(image("WAVELENGTH", "D", [400, 400.5, 402, pad], cards))
            self.assertEqual([list(p["wave"]) for p in self.read(s)["segments"]], [[4000, 4005, 4020]] * 3)
        for edits, values, unit, *parts in (
                ("", wave, cards, "a column and an HDU", "WAVELENGTH"),
                ("SPECTRA-WAVELENGTH", wave, [], "HDU 3 (WAVELENGTH)", "no unit"),
                ("SPECTRA-WAVELENGTH", wave[:3], cards, "FLUX has 4 values", "WAVELENGTH has 3"),
                ("SPECTRA-WAVELENGTH", wave[:1], cards, "HDU 3 (WAVELENGTH)", "2 to"),
                ("SPECTRA-WAVELENGTH", wave[::-1], cards, "HDU 3 (WAVELENGTH)", "ascending")):
            s = self.sample(edits)
            s.hdus.append(image("WAVELENGTH", "D", values, unit))
            self.refused(s, *parts)

    def test_arms_of_an_exposure_are_one_row(self):
        s = self.sample(self.TWINS + "SPECTRA RA>ARM;SPECTRA ARM~1A;SPECTRA ARM@0=R;SPECTRA ARM@1=b;"
                        "SPECTRA ARM@2=B")
        answer = self.read(s)
        self.assertEqual([(r["object"], r["n_exposure"]) for r in answer["rows"]],
                         [("twin", 1), ("lone", 1)])
        # of one NAME and EXPOSURE, but far apart
        s = self.sample(self.TWINS + "".join(f"SPECTRA {c}@{i}={10 * i};" for c in ("RA", "DEC") for i in range(1, 3)))
        self.assertEqual(len(self.read(s, "exposures: joint\n")["segments"]), 3)
        # by exposure, then by arm of the library: b, r
        self.assertSegments(answer["segments"], [
            {**s.spectra[row], "arm": arm, "exposure": e}
            for row, arm, e in ((2, B, 0), (0, R, 0), (1, B, 1))])

    def test_many_channels_keep_their_names(self):
        names = [f"o{i:02d}" for i in range(40)]  # as of an echelle spectrum
        spectra = table("SPECTRA", ("NAME", "3A", ["one"] * 40), ("ARM", "3A", names), *(
            (name, f"2{code}", np.arange(80.0).reshape(40, 2) + 4000, unit)
            for name, code, unit in (("WAVELENGTH", "D", "AA"), ("FLUX", "E", "Jy"), ("IVAR", "E", ""))),
                        cards=["MEDIUM  = 'vacuum'"])
        file = SpectraFile(put("many.fits", packed([Hdu("", []), spectra])[0]), "")
        self.assertEqual([c.name for c in file.channels(0, 0)], names)
        self.assertEqual(file.unit, "Jy")

    def test_exposures_alone_and_together(self):
        s = self.sample(self.TWINS + "SPECTRA RA>EXPOSURE;SPECTRA EXPOSURE~J", EXPOSURE=[9, 5, 7])
        rows = self.read(s, lsf=False)["rows"]
        self.assertEqual([(r["fits_row"], r["exp_id"]) for r in rows], [(0, 9), (1, 5), (2, 7)])
        answer = self.read(s, "exposures: joint\n")
        self.assertEqual([(r["object"], r["n_exposure"], r["exp_id"], r["first_exposure"])
                          for r in answer["rows"]], [("twin", 2, -1, 0), ("lone", 1, 5, 2)])
        # ascending EXPOSURE
        self.assertEqual(list(answer["exposure_id"]), [7, 9, 5])
        self.assertEqual(list(answer["exposure_row"]), [2, 0, 1])
        self.assertSegments(answer["segments"], [
            {**s.spectra[row], "exposure": e} for e, row in enumerate((2, 0, 1))])

    def test_a_bad_row_is_alone(self):
        def vectors(**length):
            s = self.sample("SPECTRA-MASK;SPECTRA-LSF_SIGMA")
            for name, code in (("WAVELENGTH", "D"), ("FLUX", "E"), ("IVAR", "E")):
                column, n = s.hdus[1].column(name), length.get(name, [4] * 3)
                column.set(f"1P{code}(4)", [v[:k] for v, k in zip(column.values.reshape(3, 4), n)])
            return s
        sigma = "".join(f"SPECTRA LSF_SIGMA@{i}={v};" for i, v in zip(range(4, 8), (0, "nan", -1, 0)))
        error = "SPECTRA IVAR>ERROR" + "".join(f";SPECTRA ERROR@{i}=1e-25" for i in (8, 9, 10))
        # two inverse variances near the largest float32, 3.4e38: 4e38 is above it, 1e38 is not
        above = "SPECTRA IVAR>ERROR;SPECTRA ERROR@8=5e-20;SPECTRA ERROR@9=1e-19"
        # of 4 values two may be below float32's 1.2e-38 (row 1), not 3 (row 2); one may be above
        below = [1] * 6 + [1e-39] * 2 + [1e39] + [1e-39] * 3
        pieces = ("SPECTRA RA>ARM;SPECTRA ARM~1A;SPECTRA ARM@0=b;SPECTRA ARM@1=r;SPECTRA ARM@2=r;"
                  "SPECTRA TARGETID@2=6")
        good = "".join(f";SPECTRA {c}@{i}={v}" for i in range(4, 8) for c, v in (
            ("MASK", 0), ("FLUX", 1), ("IVAR", 1)))
        one = dict.fromkeys(("WAVELENGTH", "FLUX", "IVAR"), [4, 4, 1])
        for s, config, lsf, bad, part in (
                (self.sample(self.TWINS), "", 0, 2, "and row 0 (counted from 0) with NAME 'twin'"),
                (self.sample(self.TWINS), "exposures: joint\n", 0, 2, "and row 0 (counted from 0) with NAME 'twin'"),
                # pieces of one exposure, but of other stars
                (self.sample(self.TWINS + pieces), "", 0, 2, "different TARGETIDs"),
                *((self.sample("SPECTRA WAVELENGTH@" + value + good), "", 0, 1, "WAVELENGTH")
                  for value in ("6=4000", "6=nan", "4=-1", "7=inf")),
                (self.sample("SPECTRA NAME@1= "), "", 0, 1, "NAME of row 1 (counted from 0) is ''"),
                (self.sample(error), "", 0, 2, "in a unit 10^-17 times as large"),
                (self.sample(above), "", 0, 2, "in a unit 10^-17 times as large"),
                (self.sample("SPECTRA IVAR~4D", IVAR=below), "", 0, 2, "in a unit 10^17 times as large"),
                (self.sample(sigma), "", 1, 1, "LSF_SIGMA"),
                (vectors(IVAR=[4, 3, 4]), "", 0, 1, "4 values of FLUX, but 3 of IVAR"),
                (vectors(**one), "", 0, 2, "1 pixels")):
            answer = Reader.read(self.path(s), config, lsf=lsf, each=True)
            self.assertEqual(len(answer["rows"]), 3)
            for i, found in enumerate(answer["each"]):
                self.assertEqual(found.get("error"), 3 if i == bad else None, found)
            for text in (part, f"row {bad}", "HDU 2 (SPECTRA)", tmp("coadd-x.fits")):
                self.assertIn(text, answer["each"][bad]["message"])

    def test_vectors_in_the_heap(self):
        """Rows may share wavelengths, but not fluxes, and all lie in the heap."""
        for shared, shift, part in (
                ("WAVELENGTH", 0, None),
                # rows that share one vector could claim any number of pixels
                ("FLUX", 0, "rows 0 to 1 of column FLUX have more values"),
                # the heap has 192 bytes, the first vector 32
                *(("", shift, "lies outside the table") for shift in (161, -1, 2**31 - 201))):
            s = self.sample("SPECTRA-MASK;SPECTRA-LSF_SIGMA")
            s.shift = shift
            for name, code in (("WAVELENGTH", "D"), ("FLUX", "E"), ("IVAR", "E")):
                if shared in ("", name):
                    column = s.hdus[1].column(name)
                    column.set(f"1P{code}(4)", column.values.reshape(3, 4))
                    column.shared = bool(shared)
            if part:
                self.refused(s, part, "HDU 2 (SPECTRA)", lsf=False)
            else:
                answer = self.read(s, lsf=False)
                self.assertEqual(len(answer["rows"]), 3)
                self.assertEqual(len({p["wave_at"] for p in answer["segments"]}), 1)
