# SPDX-License-Identifier: BSD-3-Clause
"""Readers of spectra read bit for bit what was written, and refuse wrong files with a reason."""

import itertools

from base import *  # noqa: F403
from survey_faults import WRONG
from survey_files import *  # noqa: F403
from starmill.surveys.spectra import SpectraFile  # noqa: E402

class Alike(Formats):
    """What is the same of all formats."""

    def test_what_is_written_is_read(self):
        for kind in KINDS:
            for seed in range(1, 21):
                with self.subTest(kind=kind, seed=seed):
                    s = Sample(kind, seed)
                    # WEAVE's sky is no star: all fibres that are on a target
                    answer = self.read(s, "objtypes: [T, C]\n" if kind == "weave" else "", each=True)
                    self.assertEqual((answer["format"], answer["frame"]), (s.format, s.frame))
                    self.assertEqual(len(answer["rows"]), len(s.rows))
                    for got, row in zip(answer["rows"], s.rows):
                        for name, value in row.items():
                            if isinstance(value, float):
                                self.assertSame(np.array([float(got[name])]), [value], name)
                            else:
                                self.assertEqual(got[name], value, name)
                    self.assertSegments(answer["segments"], s.spectra)
                    for e, alone in enumerate(answer["each"]):
                        self.assertSegments(alone["segments"], [
                            {**p, "exposure": 0} for p in s.spectra if p["exposure"] == e])
                        self.assertTrue(alone["waves"])
                        for segment in alone["waves"]:
                            self.assertIsNone(segment["flux"])
                    self.assertEqual([a["error"] for a in answer["beyond"]], [70, 70])
                    self.assertDrawn(s, answer)

    def assertDrawn(self, s, answer):
        """Plots read the same spectra."""
        file = SpectraFile(tmp("coadd-x.fits"), f"format: {s.format}\n")
        drawn = [c for i in answer["exposure_row"] for c in file.channels(int(i), 0)]
        self.assertEqual(len(drawn), len(s.spectra))
        for got, c in zip(answer["segments"], drawn):
            self.assertSame(c.wave, got["wave"])
            self.assertSame(c.flux.astype("f4"), got["flux"])

    def test_units_of_flux(self):
        for kind, edits, unit in (
                ("desi", "B_FLUX+BUNIT   = 'u';R_FLUX+BUNIT   = 'u'", "u"), ("desi", "", ""),
                ("sdss", "+BUNIT   = 'u'", "u"), ("lamost image", "+BUNIT   = 'u'", "u"),
                ("pfs", "FLUX+BUNIT   = 'nJy'", "nJy"), ("generic", "SPECTRA FLUX#Jy", "Jy"),
                ("4most", "", "erg/(s*cm^2*Angstrom)"), ("weave", "RED_SENSFUNC+BUNIT   = 'u'", "10**-17 u"),
                *((kind, "", "10**-17 erg / (Angstrom s cm2)") for kind in ("weave", "4most single"))):
            s = Sample(kind, edits=edits)
            row = int(self.read(s)["exposure_row"][0])
            file = SpectraFile(tmp("coadd-x.fits"), f"format: {s.format}\n")
            file.channels(row, 0)
            self.assertEqual(file.unit, unit, (kind, edits))

    def test_stars_are_selected_by_any_of_their_names(self):
        for kind in KINDS:
            s = Sample(kind)
            whole = self.read(s)
            for row in whole["rows"]:
                for by in {"target_id", "object", "identifier"} & {k for k, v in row.items() if v not in (-1, "")}:
                    answer = self.read(s, f"objects: [none, '{row[by]}', 7]\n")
                    same = [r for r in whole["rows"] if r[by] == row[by]]
                    self.assertEqual([r["identifier"] for r in answer["rows"]], [r["identifier"] for r in same])

    def test_formats_know_their_own(self):
        for kind, edits, known in (
                *((kind, "", True) for kind in KINDS), ("sdss", "SPECOBJ+COMMENT", True),
                ("sdss", "-SPECOBJ", False), ("sdss", "-COADD", False),
                ("sdss", "COADD/1", False),  # as LAMOST has it
                ("lamost", "COADD/2", False), ("lamost image", "!TELESCOP;+TELESCOP= 'SDSS 2.5-M'", False),
                ("lamost image", "/5,4", False), ("lamost-mrs", "-COADD_B;-COADD_R", True),
                ("lamost-mrs", "!TELESCOP", False), ("weave", "-FIBTABLE", False), ("generic", "-SPECTRA", False),
                ("4most", "-SPECTAB", False), ("4most single", "!INSTRUME", False),
                ("weave", "-BLUE_DATA", True), ("desi", "-FIBERMAP", True)):  # cut, which opening refuses
            s = Sample(kind, edits=edits)
            found = Reader.read(self.path(s))["recognised"]
            self.assertEqual(s.format in found, known, (kind, edits))
            if not edits:
                self.assertEqual(found, [s.format])

    def test_files_that_are_wrong_are_refused(self):
        for kind, files in WRONG.items():
            for edits, *parts in files:
                with self.subTest(kind=kind, edits=edits):
                    s = Sample(kind, edits=edits)
                    single = "exposures: single\n" if "@" in edits[:2] else ""
                    self.refused(s, *parts, config=f"format: {s.format}\n" + single)
        for kind in KINDS:  # forced on a file of another format
            for other in ("desi", "sdss", "lamost", "lamost-mrs", "weave", "4most", "pfs", "generic"):
                if KINDS[kind][0] != other:
                    self.refused(Sample(kind), " has ", config=f"format: {other}\n")

    def test_cuts_between_hdus_are_noticed(self):
        """Refused, or a whole file of fewer arms."""
        for kind in ("desi", "sdss", "lamost", "weave", "4most"):
            s = Sample(kind)
            data, starts = packed(s.hdus)
            for i in range(1, len(starts)):
                # A DESI file that ends with hdus[4], [5] or [6] is read: arm b has its flux, arm r
                # nothing.  SDSS files are read if they have lost only unwanted exposures.
                whole = 5 <= i <= 7 if kind == "desi" else kind == "sdss" and i >= 3
                answer = Reader.read(put("cut.fits", data[:starts[i][0]]), f"format: {s.format}\n",
                                     lsf=s.lsf and not whole)
                self.assertEqual(answer.get("error"), None if whole else 3, (kind, i, answer))

    def test_frames_of_the_headers(self):
        for kind, edits, exposures, frame in (
                ("sdss", "!HELIO_RV;+HELIO_RV= NaN", "coadd", UNKNOWN),
                ("sdss", "+HELIO   =                    F", "coadd", TOPOCENTRIC),
                ("sdss", "!HELIO_RV", "joint", HELIOCENTRIC),
                ("lamost", "!HELIO;+HELIO   =                    F", "coadd", TOPOCENTRIC),
                ("lamost", "!HELIO;+HELIO_RV=            -29.28083", "coadd", HELIOCENTRIC),
                ("lamost", "!HELIO", "coadd", UNKNOWN), ("lamost", "!HELIO;+HELIO_RV= -9999", "coadd", UNKNOWN),
                ("weave", "+SPECSYS = 'BARYCENT'", "coadd", BARYCENTRIC),
                ("desi", "B_WAVELENGTH+SPECSYS = 'TOPOCENT'", "coadd", TOPOCENTRIC),
                ("4most", "!SPECSYS;SPECTAB+SPECSYS = 'TOPOCENT'", "coadd", TOPOCENTRIC),
                ("generic", "SPECTRA!FRAME", "coadd", UNKNOWN)):
            answer = self.read(Sample(kind, edits=edits), f"exposures: {exposures}\n")
            self.assertEqual(answer["frame"], frame, (kind, edits))

    def test_medium_of_the_headers(self):
        for kind, edits, medium, is_air in (
                ("sdss", "+VACUUM  =                    F", "auto", True), ("sdss", "", "auto", False),
                ("sdss", "", "air", True), ("sdss", "+VACUUM  =                    F", "vacuum", False),
                ("lamost", "+VACUUM  =                    F", "auto", True),
                ("desi", "B_WAVELENGTH+AIRORVAC= 'air     '", "auto", True),
                ("desi", "B_WAVELENGTH+AIRORVAC= 'vac     '", "auto", False),
                ("weave", "BLUE_DATA!CTYPE1;BLUE_DATA!CRPIX1;BLUE_DATA!CUNIT1;"
                          "BLUE_DATA+CTYPE1  = 'LINEAR'", "vacuum", False), ("weave", "", "auto", True),
                ("4most", "SPECTAB!1CTYP1", "vacuum", False), ("4most", "", "auto", True),
                ("4most single", "PHASE3SPECTRUM!TUCD1;PHASE3SPECTRUM+TUCD1   = 'em.wl,obs.atmos'", "auto", True),
                ("4most single", "PHASE3SPECTRUM!TUCD1", "vacuum", False),
                ("generic", "SPECTRA!MEDIUM;SPECTRA+MEDIUM  = 'Air'", "auto", True),
                ("generic", "SPECTRA!MEDIUM", "vacuum", False)):
            s = Sample(kind, edits=edits)
            # samples have vacuum wavelengths, but weave and 4most store them in air
            wave = s.spectra[0]["wave"]
            if kind in ("weave", "4most"):
                wave = (3650.0 + 0.25 * np.arange(4) if kind == "weave" else
                        (370.0 + np.arange(len(wave)) * 0.025) * 10)
            got = self.read(s, f"medium: {medium}\n")["segments"][0]["wave"]
            self.assertSame(got, vacuum(wave) if is_air else wave)

    def test_rows_that_are_selected(self):
        sky, cards = "SPECOBJ OBJTYPE@0=SKY", "!FIB_TYPE;+FIB_TYPE= '%-8s'"
        for kind, edits, objtype, targets, n_row in (
                ("sdss", "", "", 0, 1), ("sdss", sky, "", 0, 0), ("sdss", sky, "SKY", 0, 1),
                ("sdss", "", "SKY", 0, 0), ("sdss", "", "", 1, 0), ("lamost", cards % "Obj", "Obj", 0, 1),
                ("lamost", cards % "F-std", "", 0, 1), ("lamost", cards % "F-std", "F-STD", 0, 1),
                *(("lamost", cards % kind, "", 0, 0) for kind in ("Sky", "Unused", "PosErr", "Dead")),
                ("lamost", "!FIB_TYPE;+FIBERTYP= 'Sky     '", "", 0, 0), ("lamost", "", "F-STD", 0, 0),
                ("desi", "FIBERMAP COADD_FIBERSTATUS@0=9;FIBERMAP+TNULL3  = 9",
                 "]\nfiberstatus_allowed_bits: [0, 3, 20", 0, 4), ("weave", "", "", 0, 3), ("weave", "", "SKY", 0, 1),
                ("weave", "", "C", 0, 1), ("weave", "FIBTABLE FIBREID>NSPEC;" + ";".join(
                    f"FIBTABLE NSPEC@{i}={i + 1}" for i in range(5)), "", 0, 3),
                ("4most", "FIBMETATAB+TNULL4  = 1;FIBMETATAB+TNULL5  = 4", "", 0, 2), ("4most", "", "SKY", 0, 1), ("4most", "", "REF", 0, 1),
                ("4most", "FIBMETATAB OBJ_UID@1=20", "", 1, 1), ("desi", "", "", 0, 5), ("desi", "", "", 1, 2),
                ("pfs", "", "SCIENCE", 0, 1), *(
                    ("pfs", "TARGET!HIERARCH TARGETTYPE;TARGET+HIERARCH TARGETTYPE = 2", objtype, 0, n)
                    for objtype, n in (("", 0), ("SKY", 1))),
                ("desi", "", "SKY", 0, 0), ("generic", "SPECTRA TARGETID@2=20", "", 1, 1)):
            config = f"objtypes: [{objtype}]\n" if objtype else ""
            answer = self.read(Sample(kind, edits=edits), config + targets * "objects: [20, 30]\n")
            self.assertEqual(len(answer["rows"]), n_row, (kind, edits, objtype))

    def test_keys_by_which_a_file_has_nothing_to_select(self):
        """A file without the values that select rows is refused, as all rows would fail or pass."""
        no_class = {"sdss": "SPECOBJ-Z;SPECOBJ-CLASS", "sdss-v": "SPALL-Z;SPALL-CLASS"}
        for kind in KINDS:
            edits = no_class.get(kind, "!Z  ;!CLASS" if "lamost" in kind else "-FIBERMAP" * (kind == "desi"))
            s = Sample(kind, edits=edits)
            self.refused(s, "no class or redshift", "redrock", config="redrock: true\n")
            if kind == "desi" or "mwm" in kind or "generic" in kind:
                self.refused(s, "no target type", "objtypes", config="objtypes: [TGT]\n")
                self.assertEqual(len(self.read(s)["rows"]), len(s.rows))
            if "lamost" in kind and kind != "lamost-mrs" or kind in no_class:  # Z or class suffices
                for half in edits.split(";"):
                    self.assertEqual(len(self.read(Sample(kind, edits=half), "redrock: true\n")["rows"]), 1)
        for kind, edits in ("sdss", "SPECOBJ-OBJTYPE"), ("lamost", "!FIB_TYPE"):
            self.refused(Sample(kind, edits=edits), "no target type", config="objtypes: [TGT]\n")
        s = Sample("weave")  # target_classes alone may select, unless select_by is all
        s.hdus[-1].columns.append(Column("TARGCAT", "5A", ["GA_LR", "", "GA_HR", "GA_LR", ""]))
        config = "redrock: true\ntarget_classes: [GA_LR]\n"
        self.assertEqual([r["fits_row"] for r in self.read(s, config)["rows"]], [0])
        self.refused(s, "no class or redshift", config=config + "select_by: all\n")


class Desi(Formats):
    def assertFirst(self, edits, name, values):
        self.assertSame(self.read(Sample("desi", edits=edits))["segments"][0][name][:4], values, edits)

    def test_images_of_other_types(self):
        for edits, first in (
                ("B_FLUX ~D;B_FLUX @0=nan;B_FLUX @1=inf;B_FLUX @2=-1e300;B_FLUX @3=3",
                 [np.nan, np.inf, -np.inf, 3]),
                ("B_FLUX ~I;B_FLUX @0=-10;B_FLUX @1=4;B_FLUX @3=7;B_FLUX+BSCALE  = 0.5;"
                 "B_FLUX+BZERO   = 5.0;B_FLUX+BLANK   = -10", [np.nan, 7, 5, 8.5]),
                # floats too, which are read as stored when they have no scale
                ("B_FLUX ~E;B_FLUX @1=4;B_FLUX @3=7;B_FLUX+BSCALE  = 0.5;B_FLUX+BZERO   = 5.0",
                 [5, 7, 5, 8.5])):
            self.assertFirst(edits, "flux", first)

    def test_wavelengths_in_nm(self):
        s = Sample("desi")
        s.hdus[2].column("").values /= 10
        self.assertSame(self.read(s.edit("B_WAVELENGTH+BUNIT   = 'nm'"))["segments"][0]["wave"],
                        s.spectra[0]["wave"].astype(">f8") / 10 * 10)

    def test_masks_of_any_integer(self):
        top = -2**31  # a bit beyond the 32 that are kept
        for edits, first in (
                (f"B_MASK ~J;B_MASK @1=1;B_MASK @2={top}", [0, 1, top, 0]),
                ("B_MASK ~B;B_MASK @1=255", [0, 255, 0, 0]),
                ("B_MASK ~I;B_MASK @1=-1;B_MASK @2=4", [0, -1, 4, 0]),
                ("B_MASK ~I;B_MASK @0=-32768;B_MASK @1=32767;B_MASK+BZERO   = 32768",
                 [0, 65535, 32768, 32768]),
                (f"B_MASK ~J;B_MASK @0={top};B_MASK @1=0;B_MASK @2=1;B_MASK+BZERO   = 2147483648",
                 [0, top, top + 1, top]),
                ("B_MASK ~K;B_MASK @1=1099511627776;B_MASK @2=2", [0, top, 2, 0]),
                (f"B_MASK ~K;B_MASK @0={-2**63};B_MASK @1={-2**63 + 1};B_MASK @2=-1;"
                 f"B_MASK+BZERO   = {2**63}", [0, 1, -1, top])):
            self.assertFirst(edits, "mask", first)

    def test_compressed_images(self):
        """Tiled images are read: Rice (B_MASK), lossless gzip (B_FLUX); edge tiles are smaller."""
        mask = (5 * np.arange(20) % 7).astype("i4").reshape(5, 4)
        flux = (0.1 * np.arange(20)).astype("f4").reshape(5, 4)
        mask[1, 3], flux[0, 3] = -2**31, np.nan
        new = "tile_shape" in pyfits.CompImageHDU.__init__.__code__.co_varnames  # of astropy 5.3
        tiles = {"tile_shape": (2, 3)} if new else {"tile_size": (3, 2)}
        for name, values, kind in (("mask", mask, "RICE_1"), ("flux", flux, "GZIP_2")):
            hdu = pyfits.CompImageHDU(values, name="B_" + name.upper(), compression_type=kind,
                                      quantize_level=0.0, **tiles)
            pyfits.HDUList([pyfits.PrimaryHDU(), hdu]).writeto(tmp("tiles.fits"), overwrite=True)
            s = Sample("desi", edits="-B_" + name.upper())
            data = packed(s.hdus)[0] + content(tmp("tiles.fits"))[2880:]
            for i, segment in enumerate(Reader.read(put("coadd-x.fits", data))["segments"][::2]):
                self.assertSame(segment[name], values[i])
            # PLIO_1 is refused: its decoder does not check for the end of its input
            at = data.index(b"ZCMPTYPE")
            answer = Reader.read(put("coadd-x.fits", data[:at] + b"ZCMPTYPE= 'PLIO_1'".ljust(80)
                                     + data[at + 80:]))
            self.assertIn("'PLIO_1'", answer["message"])

    def test_notices_a_cut_while_reading(self):
        s = Sample("desi")  # in the middle of the second row of R_FLUX, HDU 9
        at = packed(s.hdus)[1][8][1] + 4 * len(s.spectra[1]["flux"]) + 6
        self.refused(s, "R_FLUX", "shorter", cut=at)

    def test_a_library_of_other_arms(self):
        s = Sample("desi")
        answer = self.read(s, "npoly: 1\n", arms=["optical:3900:9000"])
        self.assertSegments(answer["segments"], [{**p, "arm": 0} for p in s.spectra])

    def test_times_of_exposures(self):
        for kind, key in ("weave", "MJD-OBS"), ("4most", "MJD-OBS"), ("4most single", "MJD-OBS"), ("lamost", "MJD"):
            with self.subTest(kind):
                for edits in "", f"+{key:<8}= 0.0", f"+{key:<8}= 'NaN'", f"+{key:<8}= -NaN":
                    self.assertTrue(np.isnan(self.read(Sample(kind, edits=edits))["exposure_mjd"]).all())
                answer = self.read(Sample(kind, edits=f"+{key:<8}= 59000.25"))
                self.assertEqual(set(answer["exposure_mjd"]), {59000.25})
        for times, mjd in ([59000.25, 59000.25005], 59000.25005), ([59000.25, 59000.26], np.nan):
            s = Sample("4most")
            s.hdus.append(table("OBMETATAB", ("MJD-OBS", "D", times)))
            np.testing.assert_array_equal(self.read(s)["exposure_mjd"], [mjd] * 2)
        tai, no_middle = "+MJD     = 51602;+TAI     = 4458436689.5", ";+TAI-BEG = NaN;+TAI-END = NaN"
        middles = "".join(f";@{i}+TAI-BEG = {4458e6 + i};@{i}+TAI-END = {4458e6 + i + 10}" for i in (3, 4))
        for kind, edits, mjd in (
                ("lamost", "+MJD     = 55877;+DATE-OBS= '2011-11-11T21:26:04.25'", 55876 + 77164.25 / 86400),
                ("lamost", "+MJD     = 55877;+DATE-OBS= '2011-11-11'", 55877),
                ("sdss", tai[:17], 51602), ("sdss", tai + no_middle, 4458436657.5 / 86400),
                ("sdss", tai + middles + no_middle.replace("NaN", "4458000000.0"), 4457999976.5 / 86400),
                ("sdss", tai + no_middle.replace("NaN", "4458000000.0"), 4457999968 / 86400),
                ("sdss-v", "", 5184020670 / 86400), ("sdss-v", "SPALL MJD_FINAL@0=60000.5", 60000.5 - 37 / 86400),
                ("4most single", "PHASE3SPECTRUM+MJD-OBS = 59000.25", 59000.25),
                *(("sdss", f"+TAI     = {57754 * 86400 + s}.0", 57754 + (s - leap) / 86400)
                  for s, leap in ((-10**8, 35), (35, 36), (37, 37)))):
            np.testing.assert_allclose(self.read(Sample(kind, edits=edits))["exposure_mjd"], [mjd], rtol=1e-14)

    def exposures(self, s, config=""):
        answer = self.read(s, config)
        self.assertEqual(answer["file_size"], os.path.getsize(tmp("coadd-x.fits")))
        return answer, list(answer["exposure_row"]), list(answer["exposure_id"])

    def test_exposures_of_a_coadd(self):
        s = Sample("desi")
        s.hdus.append(table("EXP_FIBERMAP", ("TARGETID", "K", [10, 30, 10, 20]),
                            ("EXPID", "J", [201, 202, 203, 204]), ("NIGHT", "J", [5, 5, 6, 5]),
                            ("FIBERSTATUS", "J", [0, 0, 1 << 20, 0]), ("MJD", "D", [5.5, 6, 9.5, 8])))
        answer, row, ids = self.exposures(s, "exposures: joint\n")  # means nothing here
        expected = [202, -1, -1, 204, -1]  # 10 has two, -5 and 40 none
        self.assertEqual((row, ids), ([0, 1, 2, 3, 4], expected))
        self.assertEqual([r["exp_id"] for r in answer["rows"]], expected)
        self.assertEqual([r["night"] for r in answer["rows"]], [5, -1, -1, 5, -1])
        for config, mjd in ("", [6, 7.5, np.nan, 8, np.nan]), ("fiberstatus_allowed_bits: [3]\n", [6, 5.5, 8]):
            np.testing.assert_array_equal(self.read(s, config)["exposure_mjd"], mjd)

    def test_missing_columns_have_missing_values(self):
        edits = ";".join("FIBERMAP-" + name for name in ("FIBER", "TARGET_RA", "REF_CAT",
                                                         "COADD_FIBERSTATUS"))
        s = Sample("desi", edits=edits)
        row = self.read(s)["rows"][2]
        self.assertEqual((row["fiber"], row["ref_id"], row["ref_cat"], row["ra"]), (-1, -1, "", "nan"))
        # without a status bad fibers would pass unseen
        self.refused(s, "neither FIBERSTATUS nor COADD_FIBERSTATUS",
                     config="fiberstatus_allowed_bits: [3]\n")

    def test_exposures_of_a_spectra_file(self):
        """Rows of targets 30, 10, 30, 20, 10; the config `few` refuses the fiber status of rows 2 and 4."""
        s = Sample("desi", edits="FIBERMAP TARGETID@2=30;FIBERMAP TARGETID@4=10;FIBERMAP FIBER>EXPID;"
                   "FIBERMAP COADD_FIBERSTATUS>FIBERSTATUS;"
                   + ";".join(f"FIBERMAP EXPID@{i}={101 + i};FIBERMAP TARGET_DEC@{i}=90" for i in range(5)))
        few = "fiberstatus_allowed_bits: [3]\n"
        for joint, config, targets, rows, count in (
                ("single", "", [30, 10, 30, 20, 10], [0, 1, 2, 3, 4], [1] * 5),
                ("joint", "", [30, 10, 20], [0, 2, 1, 4, 3], [2, 2, 1]),
                ("joint", few, [30, 10, 20], [0, 1, 3], [1] * 3),
                ("single", few, [30, 10, 20], [0, 1, 3], [1] * 3)):
            answer, row, ids = self.exposures(s, f"{config}exposures: {joint}\n")
            self.assertEqual((row, ids), (rows, [101 + r for r in rows]))
            first = np.cumsum([0] + count)[:-1]
            self.assertEqual(
                [(r["target_id"], r["n_exposure"], r["first_exposure"], r["fits_row"], r["exp_id"])
                 for r in answer["rows"]],
                [(t, n, f, rows[f], 101 + rows[f] if n == 1 else -1)
                 for t, n, f in zip(targets, count, first)])

    def test_selects_by_redrock(self):
        def save(name, hdu, real="D"):  # 10 again: the first counts
            put(name, packed([Hdu("", []), table(
                hdu, ("TARGETID", "K", [40, 10, 30, 77, 10]), ("Z", real, [0.0004, 0.5, -0.0051, 0, 0]),
                ("ZWARN", "J" if real == "E" else "K", [0] * 5),
                ("SPECTYPE", "6A", ["GALAXY", "STAR", "STAR", "STAR", "QSO"]),
                ("SUBTYPE", "1A", ["", "M", "A", "B", "C"]))])[0])

        def rows(config):
            return [(r["target_id"], float(r["z"]), r["spectype"], r["subtype"])
                    for r in self.read(s, config)["rows"]]
        s, by = Sample("desi"), "redrock: true\nredrock_max_vel: 1500\n"
        self.refused(s, "no redrock file (same name", config=by)
        save("redrock-x.fits", "REDSHIFTS")
        stars = [(30, -0.0051, "STAR", "A"), (10, 0.5, "STAR", "M")]
        self.assertEqual(rows(by), stars + [(40, 0.0004, "GALAXY", "")])
        self.assertEqual(rows(by.replace("1500", "100")), stars)  # the galaxy has 120 km/s
        # not asked for, it still fills the columns
        all_rows = rows("")
        self.assertEqual((len(all_rows), all_rows[0]), (5, stars[0]))
        self.assertTrue(np.isnan(all_rows[3][1]) and all_rows[3][2] == "")
        # a bad redrock file costs nothing if no key needs it; else the coadd is refused
        save("redrock-x.fits", "WRONG")
        self.assertTrue(np.isnan([row[1] for row in rows("")]).all())
        self.refused(s, "no HDU REDSHIFTS or ZBEST", config=by, name="redrock-x.fits")
        # a named one
        for real in "DE":  # in single precision since 2026
            save("other.fits", "ZBEST", real)
            self.assertEqual([row[0] for row in rows(by + f"redrock_file: {tmp('other.fits')}\n")], [30, 10, 40])
        self.refused(s, name="other.fitsx", config=f"redrock_file: {tmp('other.fitsx')}\n")
        os.remove(tmp("redrock-x.fits"))

    def test_plots_need_no_fiber_status(self):
        """A file without fiber status is read if every status is allowed, and it can be plotted."""
        answer = self.read(Sample("desi", edits="FIBERMAP-COADD_FIBERSTATUS"))
        drawn = SpectraFile(tmp("coadd-x.fits"), "format: desi\n").channels(0, 0)
        for got, c in itertools.zip_longest(answer["segments"][:2], drawn):
            self.assertSame(c.flux.astype("f4"), got["flux"])

    def test_redrock_file_beside_the_input(self):
        folder, data = new_folder("beside"), packed(Sample("desi").hdus)[0]

        def found(name):
            """Which one, by its Z of the first row."""
            return float(Reader.read(put(os.path.join(folder, name), data))["rows"][0]["z"])
        self.assertTrue(np.isnan(found("coadd-a.fits")))
        for z, name, inputs in (
                (1, "zbest-a.fits", ["coadd-a.fits"]),
                (2, "redrock-a.fits.gz", ["coadd-a.fits", "coadd-a.fits.gz", "spectra-a.fits.gz"]),
                (3, "redrock-a.fits", ["coadd-a.fits.gz"])):
            put(os.path.join(folder, name), packed([Hdu("", []), table(
                "REDSHIFTS", ("TARGETID", "K", [30]), ("Z", "D", [z]), ("SPECTYPE", "6A", ["STAR"]),
                ("SUBTYPE", "1A", [""]))])[0])
            self.assertEqual([found(name) for name in inputs], [z] * len(inputs))
        for name in ("mycoadd-a.fits", "coadd-c.fits"):  # only at the beginning of the name
            self.assertTrue(np.isnan(found(name)))


class Others(Formats):
    """What only SDSS, LAMOST or WEAVE has."""

    def test_sdss_marks_missing_widths(self):
        """A missing wdisp is interpolated between neighbours, else the nearest, else one pixel."""
        for more, widths, missing in (
                ("", [1] * 6, [1] * 6),
                (";".join(f";COADD wdisp@{i}={v}" for i, v in enumerate(("1.25", 0, "nan", 2, 11, -3))),
                 [1.25, 1.5, 1.75, 2, 2, 2], [0, 1, 1, 0, 1, 1])):
            got = self.read(Sample("sdss", edits="COADD/6;COADD wdisp~E" + more))["segments"][0]
            self.assertEqual(list((got["mask"] & NO_WIDTH) != 0), list(map(bool, missing)))
            sigma = np.array(widths) * 1e-4 * np.log(10) * got["wave"]
            np.testing.assert_allclose(got["sigma"], sigma, rtol=6e-8)  # float32's rounding

    def test_widths_beside_holes(self):
        """Pixels have the same widths in a file that lacks other pixels and in one that marks them as bad."""
        n = 320
        keep = np.isin(np.arange(n) % 16, (5, 11, 12), invert=True)
        for kind, coarser in ("sdss", 1), ("pfs wave", 1), ("pfs wave", 2):  # steps may stay wider
            found, steps = [], np.cumsum(np.where(np.arange(n) < n // 2, 1, coarser))
            for kept in np.ones(n, bool), keep:
                s = Sample(kind, edits="COADD/320" if kind == "sdss" else "")
                for hdu in s.hdus[1:]:
                    for c in hdu.columns if hdu.name in ("COADD", "FLUX", "MASK", "COVAR", "WAVELENGTH") else ():
                        hdu.n_row, hdu.shape = hdu.n_row and kept.sum(), hdu.shape and (*hdu.shape[:-1], kept.sum())
                        values = {"LogLam": 3.6 + 1e-3 * steps, "WAVELENGTH": 600 + 0.3 * steps,
                                  "wdisp": np.linspace(1, 3, n)}.get(c.name or hdu.name, np.ones(n))
                        c.set(c.form, np.tile(values[kept], (hdu.shape or [1])[0] if hdu.name == "COVAR" else 1))
                found.append(self.read(s)["segments"][0])
            whole, part = found
            self.assertEqual([got["wave"].size for got in found], [n, n])
            np.testing.assert_allclose(part["wave"], whole["wave"], rtol=1e-6)  # loglam is in float32
            np.testing.assert_array_equal(part["ivar"] > 0, keep)
            self.assertSame(part["sigma"][keep], whole["sigma"][keep], kind)

    def test_sdss_single_exposures(self):
        """Exposure 5 is blue alone, 7 blue and red.  One has descending wavelengths."""
        for joint in (False, True):
            s = Sample("sdss")
            for column in s.hdus[4].columns:
                column.values = column.values[::-1]
            answer = self.read(s, f"exposures: {'joint' if joint else 'single'}\n")
            self.assertEqual(list(answer["exposure_id"]), [5, 7])
            self.assertEqual(
                [(r["n_exposure"], r["first_exposure"], r["exp_id"], r["object"]) for r in answer["rows"]],
                [(2, 0, -1, "spec-0266-51602-0031")] if joint else
                [(1, i, 5 + 2 * i, "spec-0266-51602-0031") for i in range(2)])
            self.assertSegments(answer["segments"], [
                {**s.single[name], "exposure": e, "arm": arm} for name, e, arm in (
                    ("B1-00000005", 0, B), ("B1-00000007", 1, B), ("R1-00000007", 1, R))])
        s.hdus[5].name = "B2-00000007-00000001-00000002"  # two blue cameras of one exposure
        self.refused(s, "HDUs 5 (B1-00000007-00000001-00000002) and 6 (B2", "channel b of exposure 7",
                     config="exposures: joint\n")

    def test_sdss_v_exposures(self):
        for joint in (False, True):
            s = Sample("sdss-v")
            answer = self.read(s, f"exposures: {'joint' if joint else 'single'}\n")
            self.assertEqual([(r["n_exposure"], r["exp_id"], r["target_id"]) for r in answer["rows"]],
                             [(2, -1, 56789012)] if joint else [(1, 353048, 56789012), (1, 353049, 56789012)])
            np.testing.assert_allclose(answer["exposure_mjd"], (5184020170 + 1000 * np.arange(2)) / 86400, rtol=1e-14)
            self.assertSegments(answer["segments"], s.single)
        s.edit("SPALL SDSS_ID@0=-999")
        self.assertEqual(self.read(s)["rows"][0]["target_id"], -1)
        answer = self.read(Sample("mwm visit"), "exposures: joint\n")
        self.assertEqual([r["n_exposure"] for r in answer["rows"]], [3])
        np.testing.assert_allclose(answer["exposure_mjd"], 5184020220 / 86400 + np.arange(3), rtol=1e-14)

    def test_astra_widths_contain_the_pixel(self):
        for kind in "mwm star", "mwm visit":  # without a parallax
            s = Sample(kind, edits="+PLX     = 'NaN'")
            self.assertSegments(self.read(s, "lsf_factor: 1.12\n")["segments"], s.spectra)

    def test_long_names_are_cut(self):
        for kind, column in ("weave", "CNAME"), ("4most", "OBJ_NME"):
            s = Sample(kind)
            names = next(c for hdu in s.hdus for c in hdu.columns if c.name == column)
            names.set("39A", ["x" * 39, *names.values[1:]])
            cut = "x" * 22 + "~" + hashlib.sha256(b"x" * 39).hexdigest()[:8]
            self.assertEqual([row["object"] for row in self.read(s)["rows"]], [cut, *s.of_rows("object")[1:]])
        edits = f"!PLANID;+PLANID  = '{'x' * 30}';!FIBERID;+FIBERID = "  # differ only in what is cut
        self.assertEqual(len({self.read(Sample("lamost-mrs", edits=f"{edits}{n}"), "exposures: single\n")["rows"][0][
            "identifier"] for n in (1, 2)}), 2)

    def test_pfs_observations(self):
        """Arms r and m have line widths of their own; times are means of the visits."""
        for arm, fwhm, visits, found in ("r", 2.7, (7, 8), -1), ("m", 1.6, (7, 7), 7):
            s = Sample("pfs wave", edits=f"OBSERVATIONS arm@1={arm};OBSERVATIONS visit@1={visits[1]}")
            s.hdus[-1].columns[0].values += 300  # nm: red
            answer = self.read(s)
            self.assertEqual(answer["rows"][0]["exp_id"], found)
            np.testing.assert_allclose(answer["exposure_mjd"], [60757 + 640 / 1440], rtol=1e-14)
            np.testing.assert_allclose(answer["segments"][0]["sigma"], fwhm / np.sqrt(8 * np.log(2)), rtol=1e-6)
        row = self.read(Sample("pfs", edits="OBSERVATIONS/0"))["rows"][0]
        self.assertEqual([row["exp_id"], row["fiber"]], [-1, -1])  # without a visit

    def test_lamost_exposures(self):
        """84107305 is blue alone, 84107317 blue and red.  Numbers are begins in local minutes."""
        for joint in (False, True):
            s = Sample("lamost-mrs")
            answer = self.read(s, f"exposures: {'joint' if joint else 'single'}\n")
            self.assertEqual([(r["n_exposure"], r["first_exposure"], r["exp_id"]) for r in answer["rows"]],
                             [(2, 0, -1)] if joint else [(1, 0, 84107305), (1, 1, 84107317)])
            np.testing.assert_allclose(answer["exposure_mjd"], [58407 + (12 * 60 + m + 10) / 1440 for m in (25, 37)],
                                       rtol=1e-12)
            self.assertSegments(answer["segments"], [
                {**s.single[name], "exposure": e, "arm": arm} for name, e, arm in (
                    ("B-84107305", 0, B), ("B-84107317", 1, B), ("R-84107317", 1, R))])
        s = Sample("lamost-mrs", edits="@3!EXPTIME")
        for name in ("LOGLAM", "WAVELENGTH"):  # in A, as later releases may have it
            s.hdus[1].column("LOGLAM").name = name
        (first,) = [p["wave"] for p in self.read(s)["segments"] if p["arm"] == B]
        self.assertSame(first, s.hdus[1].column("WAVELENGTH").values)

    def test_lamost_names_without_cards(self):
        for edits, expected in (
                ("!DESIG", ("3703110", 3703110, 110)),
                ("!DESIG;!OBSID", ("spec-55877-B7708_sp03-110.fits", -1, 110)),
                ("!DESIG;!OBSID;!FILENAME;!FIBERID", ("coadd-x.fits", -1, -1))):
            (row,) = self.read(Sample("lamost", edits=edits))["rows"]
            self.assertEqual((row["object"], row["exp_id"], row["fiber"]), expected)

    def test_lamost_has_no_resolution_of_its_own(self):
        """No resolution is made up: without one in the configuration nothing is fitted."""
        s = Sample("lamost")
        self.assertEqual(self.read(s, lsf=True)["segments"][0]["use"], NO_LSF)
        (got,) = self.read(s, "resolving_power: 1800\n", lsf=True)["segments"]
        self.assertEqual(got["use"], FIT)
        # FWHM of a Gaussian in sigma; float32's rounding
        np.testing.assert_allclose(got["sigma"], got["wave"] / (1800 * np.sqrt(8 * np.log(2))), rtol=6e-8)

    def test_weave_integers_with_blank(self):
        s = Sample("weave", edits="BLUE_DATA ~I;BLUE_DATA @0=1;BLUE_DATA @1=-999;"
                   "BLUE_DATA+BLANK   =                 -999")
        found = self.read(s, "arms: [blue]\n")["segments"]  # and one arm alone
        self.assertEqual(len(found), 3)
        self.assertSame(found[0]["flux"][:3], [0.5, np.nan, 0])

    def test_nulls_of_integers_are_bad_pixels(self):
        for kind, hdu, name, number in (("4most", "SPECTAB", "FLUX_IVAR", 2), ("lamost", "COADD", "IVAR", 2)):
            s = Sample(kind)
            n = s.hdus[1].column(name).repeat
            s.edit(f"{hdu} {name}~{n}J;{hdu} {name}@1=2147483647;{hdu} {name}@2=3;"
                   f"{hdu}+TNULL{number}  =           2147483647")
            self.assertSame(self.read(s)["segments"][0]["ivar"][:3], [0, np.nan, 3])

    def test_identifiers_and_placeholders_that_are_none(self):
        for kind, edits, name, values in (
                ("desi", "FIBERMAP+TNULL1  = 10", "target_id", [30, -1, -5, 20, 40]),
                ("desi", "FIBERMAP FIBER>REF_ID;FIBERMAP REF_ID@0=7;FIBERMAP REF_ID@1=999999;"
                 "FIBERMAP+TNULL4  = 999999", "ref_id", [7, -1]),
                ("desi", "FIBERMAP FIBER@0=7;FIBERMAP FIBER@1=999999;FIBERMAP+TNULL4  = 999999", "fiber", [7, -1]),
                ("4most", "FIBMETATAB OBJ_UID@0=7;FIBMETATAB+TNULL2  = 7", "target_id", [-1]),
                ("generic", f"SPECTRA TARGETID@0={5 - 2**63};SPECTRA TARGETID@1={7 - 2**63};"
                 f"SPECTRA TARGETID@2={9 - 2**63};SPECTRA+TZERO7  = {2**63};SPECTRA+TNULL7  = {7 - 2**63}",
                 "target_id", [5, -1, 9]),
                *((kind, edits, name, [none]) for kind, edits in (
                    ("sdss-v", "SPALL CATALOGID@0=-999"), ("sdss-v", "SPALL CATALOGID@0=0"),
                    ("mwm star", "!SDSS_ID;+SDSS_ID = 0;!CAT_ID;+CAT_ID  = -1"),
                    ("pfs", "TARGET!OBJID;TARGET+OBJID   = -1"))
                  for name, none in (("object", ""), ("identifier", f"coadd-x.fits:{int(kind != 'mwm star')}"))),
                *(("lamost", f"!{key};+{key:<8}= {value}", name, [none]) for key, value, name, none in (
                    ("Z  ", -9999.0, "z", "nan"), ("RA ", -9999, "ra", "nan"), ("OBSID", -9999, "exp_id", -1),
                    ("DESIG", "'-9999.0'", "object", "3703110"), ("FIBERID", -9999, "identifier", "coadd-x.fits:1")))):
            rows = self.read(Sample(kind, edits=edits))["rows"]
            self.assertEqual([row[name] for row in rows][:len(values)], values, (kind, edits))

    def test_4most_signal_to_noise(self):
        by = "minsn_from: scores\nminsn: 10\n"
        self.assertEqual([row["fits_row"] for row in self.read(Sample("4most"), by)["rows"]], [1])
        self.refused(Sample("4most", edits="FIBMETATAB-SNR"), "no column SNR", config=by)
        self.refused(Sample("4most single"), "no keyword SNR", config=by)
        for sn, n_row in ((9, 0), (11, 1)):
            self.assertEqual(len(self.read(Sample("4most single", edits=f"+SNR     = {sn}"), by)["rows"]), n_row)

    def test_4most_spectrum_without_a_mask(self):
        s = Sample("4most single", edits="PHASE3SPECTRUM-QUAL")
        self.assertSegments(self.read(s)["segments"], [{**p, "mask": None} for p in s.spectra])

    def test_4most_cameras_by_wavelength(self):
        """Whatever the file is called."""
        arms = ["blue", "green", "red", "joined"]
        for first, last, arm in ((3700, 5540, 0), (5240, 7200, 1), (6900, 9500, 2), (3926, 4355, 0),
                                 (5160, 5730, 1), (6100, 6790, 2), (3700, 9500, 3)):
            s = Sample("4most", edits="SPECTAB!1C;SPECTAB+1CUNI1  = 'Angstrom';SPECTAB+1CTYP1  = 'WAVE';"
                       f"SPECTAB+1CRVL1  = {first};SPECTAB+1CDLT1  = {(last - first) / 199}")
            for c in s.hdus[1].columns:
                c.set(f"200{c.code}", np.ones(1000))
            self.assertEqual([p["arm"] for p in self.read(s, arms=arms)["segments"]], [arm] * 2)
