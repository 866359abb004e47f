# SPDX-License-Identifier: BSD-3-Clause
"""`starmill show`, `select`, `plot` and `report` print what numpy and h5py read from the result,
and plot the spectra of the inputs.  Damaged rows are left out; refusals take one line."""

import tracemalloc

from base import *  # noqa: F403

try:
    import matplotlib.image
    import scipy.ndimage  # noqa: F401
except ImportError as missing:
    skip(f"{missing} (Debian: python3-matplotlib python3-scipy)")
from starmill import Result as starmill_result  # noqa: E402
from starmill.cli.basics import Failure  # noqa: E402
from starmill.products import charts, report, survey  # noqa: E402
from starmill.products.models import Models  # noqa: E402
from starmill.products.result import Result  # noqa: E402
from starmill.products.selection import Expression, Selection  # noqa: E402
from starmill.surveys import generic  # noqa: E402
from starmill.surveys.spectra import Inputs, SpectraFile  # noqa: E402
from starmill.wavelength import vacuum  # noqa: E402

LIBRARY, SURVEY = coarse_survey(16)
SMALL = ("--range", "5800,7000", "--dpi", 60)  # of a plot: one arm of three, which is quicker
FIT, MODELS = tmp("fit.h5"), tmp("models.h5")
run("fit", "--library", LIBRARY, "--output", FIT, "--models", MODELS, "--quiet", SURVEY)
FITS, CATALOG = read(FIT), read(FIT, "catalog")


def copied(name, n=None, edit=None, damaged=()):
    """Copy the result, with its rows repeated until there are n, and changed by edit (see edited).
    damaged: rows whose radial velocity gets a wrong last bit."""
    tiled(FIT, tmp(name), n or len(FITS["STATUS"]))
    edited(tmp(name), edit)
    with h5py.File(tmp(name), "r+") as f:
        for row in damaged:
            vrad = f["fits/VRAD"][row:row + 1]
            f["fits/VRAD"][row] = (vrad.view(np.uint64) ^ np.uint64(1)).view(float)[0]
    return tmp(name)


class Look(ProgramTest):
    def job(self, *args, status=0, env=None):
        return self.ends(status, *args, env=env, cwd=TMP).stdout

    def refused(self, *args, said, status=2, env=None):
        self.assertOneLine(starmill(*args, env=env, cwd=TMP), *said, status=status)


class Show(Look):
    def test_every_column_with_its_value_unit_and_words(self):
        row = 5
        out = self.job("show", FIT, FITS["TARGETID"][row])
        self.assertIn(f"row {row} of {len(FITS['STATUS'])}", out)
        with h5py.File(FIT) as f:
            for group in ("fits", "catalog"):
                for name, column in f[group].items():
                    if not isinstance(column, h5py.Dataset):
                        continue
                    found = re.findall(rf"^  {name} +(.*)$", out, re.MULTILINE)
                    self.assertTrue(found, name)
                    self.assertTrue(any(column.attrs["description"].decode() in w for w in found))
                    value = column[row]
                    if value.ndim if hasattr(value, "ndim") else False:
                        continue
                    if "unit" in column.attrs:
                        self.assertIn(column.attrs["unit"].decode(), found[0], name)
                    if not isinstance(value, bytes):  # printed with nine digits
                        shown = float(found[0].split()[0])
                        np.testing.assert_allclose(shown, value, rtol=1e-8, err_msg=name)
        self.assertIn("FITTED: fitted", out)
        self.assertIn(SURVEY, out)

    def test_the_covariance_is_that_of_the_file(self):
        out = self.job("show", FIT, FITS["TARGETID"][3])
        order = ["VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE"]
        lines = out[out.index("correlations below it"):].splitlines()[2:8]
        shown = np.array([[float(w) for w in line.split()[1:]] for line in lines])
        self.assertEqual([line.split()[0] for line in lines], order)
        whole = np.zeros((6, 6))
        whole[np.triu_indices(6)] = FITS["COVAR"][3]
        whole += np.triu(whole, 1).T
        sigma = np.sqrt(np.diag(whole))
        with np.errstate(invalid="ignore"):
            correlation = whole / np.outer(sigma, sigma)
        np.testing.assert_allclose(np.triu(shown), np.triu(whole), rtol=1e-4)  # five digits
        np.testing.assert_allclose(shown[np.tril_indices(6, -1)],
                                   correlation[np.tril_indices(6, -1)], atol=5.1e-4)

    def test_flags_in_words_and_all_rows_of_a_star(self):
        def edit(fits, catalog):
            fits["RVS_WARN"][4] = 8 + 256
            fits["TARGETID"][9] = fits["TARGETID"][4]
            catalog["OBJECT"][4] = b"\x1b[31mred\x07"
        out = self.job("show", copied("flags.h5", edit=edit, damaged=[9]), FITS["TARGETID"][4])
        self.assertEqual(out.count(", row "), 2)
        self.assertRegex(out, r"LABEL_EDGE: a label at the edge.*\n +HULL: labels at or outside")
        self.assertEqual(out.count("This row is damaged"), 1)
        self.assertIn("\\x1b[31mred\\x07", out)  # a terminal must not obey a file
        self.assertNotIn("\x1b", out)

    def test_a_star_by_its_identifier(self):
        self.assertIn("row 7 of", self.job("show", FIT, CATALOG["IDENTIFIER"][7].decode()))
        self.refused("show", FIT, "1", said=["no row has the TARGETID", "'1'", "--print identifier"])
        self.refused("show", LIBRARY, "1", said=["is not a result of starmill"], status=4)

    def test_a_negative_targetid(self):
        path = copied("negative.h5", edit=lambda fits, _: fits["TARGETID"].put([6, 7], [-5, -1]))
        self.assertIn("row 6 of", self.job("show", path, "-5"))
        self.assertEqual(starmill_result(path).star("-5").rows.tolist(), [6])
        self.refused("show", path, "-1", said=["no row has the TARGETID", "'-1'"])  # none

    def test_names_that_are_no_utf_8(self):
        def edit(_, catalog):
            catalog["IDENTIFIER"][7], catalog["OBJECT"][7] = b"G\xe4a", b"$x_{"
        path, name = copied("n\udcfe.h5", edit=edit), "G\udce4a"
        out = self.job("show", path, name)
        self.assertIn("n\\xfe.h5, row 7 of", out)
        self.assertRegex(out, r"IDENTIFIER +G\\xe4a ")
        self.refused("show", path, "\udce4", said=["n\\xfe.h5: no row has", "OBJECT '\\xe4'"])
        said = self.job("plot", path, name, "--models", MODELS, *SMALL)
        self.assertEqual((said, os.path.exists(tmp(name + ".png"))), ("G\\xe4a.png\n", True))
        out = self.job("select", path, f"IDENTIFIER == '{name}'", "--print", "identifier")
        self.assertEqual(out, "G\\xe4a\n")
        self.job("merge", "--output", tmp("m\udcff.h5"), path)
        self.assertIn("finished already", self.job("merge", "--output", tmp("m\udcff.h5"), path))


@functools.cache
def large(n_row):
    """A result of n_row rows, two of each star."""
    def edit(fits, catalog):
        rng = np.random.default_rng(3)
        n = len(fits["STATUS"])
        for name, low, high in (("SN_R", 0, 40), ("FEH", -3, 0.5), ("TEFF", 4000, 7000)):
            fits[name] = rng.uniform(low, high, n)
        fits["FEH"][::7] = np.nan
        fits["SN_B"][::3] = -1e9  # the arm has no good pixel
        fits["RCHISQ_TOT"] = rng.permutation(n).astype(float)
        fits["RVS_WARN"] = (rng.integers(0, 512, n) * (np.arange(n) % 3 == 0)).astype(
            fits["RVS_WARN"].dtype)
        fits["SUCCESS"][::5] = 0
        fits["TARGETID"] = 2**60 + np.arange(n) // 2
        catalog["TARGET_RA"] = catalog["TARGET_DEC"] = np.arange(n) // 2 * 0.008
        catalog["SPECTYPE"][::3] = b"STAR"
        catalog["SPECTYPE"][1::3] = b"GALAXY"
    return copied(f"large-{n_row}.h5", n_row, edit)


class Select(Look):
    def test_the_rows_that_numpy_finds(self):
        path = large(20000)  # more than one block of 16,384
        result = Result(path)
        f, c = read(path), read(path, "catalog")
        bright, poor, success = f["SN_R"] > 10, f["FEH"] < -2, f["SUCCESS"] != 0
        hull = f["RVS_WARN"] & 256 != 0
        for expression, wanted in (
                ("SN_R > 10 and FEH < -2", bright & poor),
                ("(sn_r > 10) & (feh < -2)", bright & poor),
                ("SN_R > 10 && !(FEH >= -2)", bright & ~(f["FEH"] >= -2)),  # true of a NaN
                ("isnan(FEH)", np.isnan(f["FEH"])),
                ("SN_B < 1e4", f["SN_B"] >= 0),
                ("SUCCESS", success),
                ("not SUCCESS or SN_R > 10", ~success | bright),
                ("~SUCCESS & (SN_R > 10)", ~success & bright),
                ("!SUCCESS & (SN_R > 10) # dim\n or !RVS_WARN", ~success & bright | (f["RVS_WARN"] == 0)),
                ("0 < (RVS_WARN & 256) < 300", hull),
                ("(RVS_WARN & 256) != 0 and STATUS == 1", hull),
                ("RVS_WARN & 256 and SUCCESS", hull & success),
                ("SPECTYPE == 'STAR' and TEFF > 6.5e3",
                 (c["SPECTYPE"] == b"STAR") & (f["TEFF"] > 6500)),
                ("5000 < TEFF <= 5500", (f["TEFF"] > 5000) & (f["TEFF"] <= 5500)),
                ("abs(TEFF - 5000) ** 2 < 1e4", np.abs(f["TEFF"] - 5000) ** 2 < 1e4),
                ("(TEFF / 1000) ** 2 + SN_R % 3 > 30", (f["TEFF"] / 1000) ** 2 + f["SN_R"] % 3 > 30),
                (f"TARGETID == {2**60 + 17}", np.arange(20000) // 2 == 17),  # more than a double holds
                ("SUCCESS + (SN_R > 10) == 2", success & bright),
                ("(SN_R > 10)" + " and (FEH < -2)" * 1200, bright & poor),
                ("COVAR[0] < 1", f["COVAR"][:, 0] < 1)):
            selection = Selection(result, Expression(expression, result), "row")
            found = [int(row) for row in b"".join(selection.lines()).split()]
            self.assertEqual(found, np.flatnonzero(wanted).tolist(), expression)
        out = self.job("select", path, expression, "--print", "row")
        self.assertEqual([int(row) for row in out.split()], found)

    def test_a_list_that_a_fit_reads(self):
        median = np.median(FITS["TEFF"])
        wanted = FITS["TARGETID"][FITS["TEFF"] > median]
        out = self.job("select", FIT, f"TEFF > {float(median)!r}", "--output", tmp("list.txt"))
        self.assertIn(f"{len(wanted)} of {len(FITS['TEFF'])} rows", out)
        self.assertEqual(content(tmp("list.txt"), "r").split(), [str(t) for t in wanted])
        self.assertEqual([n for n in os.listdir(TMP) if n.startswith("list.txt.")], [])
        self.refused("select", FIT, "TEFF > 1", "--output", tmp("list.txt"), said=["exists"],
                     status=4)
        self.fit("again.h5", "--object-file", tmp("list.txt"), SURVEY, "--quiet", lib=LIBRARY)
        self.assertEqual(read(tmp("again.h5"))["TARGETID"].tolist(), wanted.tolist())

    def test_what_means_nothing(self):
        result = Result(FIT)
        for expression, said in (
                ("FEHH < -2", ["has FEHH, which is no column", "FEH", "SPECTYPE"]),
                ("COVAR > 1", ["COVAR has 21, COVAR[0] is the first"]),
                ("COVAR[21] > 1", ["COVAR[0] to COVAR[20]"]),
                ("SN_R > 10 & FEH < -2", ["write comparisons that & or | join in parentheses"]),
                # Python's & goes before a comparison: these would be true of other rows than asked for
                *((words, ["write comparisons that & or | join in parentheses"]) for words in (
                    "TEFF > 5000 & SUCCESS", "RVS_WARN == 0 & FIT_INFO == 0", "0 < (RVS_WARN) | FIT_INFO > 3",
                    "!STATUS == 1", "(STATUS == 1) & RVS_WARN & 256", "where(SUCCESS & RVS_WARN == 0, 1, 0) > 0")),
                ("TEFF >", ["cannot be understood"]),
                ("TEFF", ["neither true nor false"]),
                ("1 == TARGETID == 3.2e17", ["equals a real number beyond 2**53", "all digits"]),
                ("__import__('os').system('true') and TEFF > 1", ["which is not one of"]),
                ("TEFF.__class__", ["which means nothing here"]),
                ("TEFF > " + "+".join("1" * 12000), ["nested too deeply"]),
                ("(TEFF > 1)" + " | (TEFF > 2)" * 12000, ["(TEFF…' is nested too deeply"]),
                ("not " * 12000 + "SUCCESS", ["nested too deeply"]),
                ("9" * 300 + "**" + "9" * 300 + " > TEFF", ["no number of 64 bits"]),
                ("9**9**9**9 > TEFF", ["9 ** 9 ** 9, which is beyond integers of 64 bits"]),
                ("TARGETID < 10**19", ["10 ** 19, which is beyond integers of 64 bits"]),
                ("'%1000000000d' % 1 == SPECTYPE", ["cannot be evaluated"]),
                ("TARGETID == '100' or TEFF > 0", ["TARGETID == '100': a text is never equal"]),
                ("sqrt(TEFF, LOGG) > 0", ["sqrt(TEFF, LOGG): sqrt takes 1 value"]),
                ("where(TEFF > 0)", ["where takes 3 values"]),
                ("[TEFF for TEFF in 'ab']", ["which means nothing here"])):
            with self.assertRaises(Failure) as caught:
                Expression(expression, result)
            for words in said:
                self.assertIn(words, str(caught.exception))
        self.refused("select", FIT, expression, said=said)

    def test_stars_without_targetid(self):
        def edit(fits, catalog):
            fits["TARGETID"].fill(-1)
            catalog["OBJECT"][2:4] = b"two words", b"# no remark"
        path = copied("nameless.h5", edit=edit)
        names = [n.decode() for n in CATALOG["IDENTIFIER"]]
        for what, third in ("identifier", names[2]), ("star", "two words"):
            self.assertEqual(self.job("select", path, "TEFF > 0", "--print", what).split("\n"),
                             [*names[:2], third, *names[3:], ""])
        self.job("export", "--to", "fits", "--output", "nameless.fits", path)  # FITS pads names by spaces
        said = run("compare", path, tmp("nameless.fits"), cwd=TMP).stdout
        self.assertIn("matched by OBJECT: 2 stars", said)


class DamagedRows(Look):
    def test_they_are_left_out_and_told(self):
        path = copied("damaged.h5", damaged=[3, 5])
        done = run("select", path, "STATUS > 0", "--print", "row", cwd=TMP)
        self.assertIn(f"{path}: 2 rows (3, 5) are damaged: ", done.stderr)
        kept = [r for r in range(len(FITS["STATUS"])) if r not in (3, 5)]
        self.assertEqual([int(r) for r in done.stdout.split()], kept)
        done = run("plot", path, *FITS["TARGETID"][2:5], "--models", MODELS, "--output",
                   tmp("two.pdf"), *SMALL, cwd=TMP)
        self.assertIn(f"{path}: 1 row (3) is damaged: ", done.stderr)
        pdf = content(tmp("two.pdf"))  # a page for each row
        self.assertTrue(pdf.startswith(b"%PDF"))
        self.assertEqual(len(re.findall(rb"/Type /Page\b", pdf)), 2)
        self.assertEqual(survey.Survey(Result(path)).n_fitted, (FITS["STATUS"] == FITTED).sum() - 2)
        self.refused("plot", path, FITS["TARGETID"][3], said=["all rows of these stars are damaged"],
                     status=4)


class Compare(Look):
    def test_files_stay_and_rows_that_are_not_whole_are_left_out(self):
        n, warned = len(FITS["STATUS"]), copied("warned.h5", edit=lambda fits, _: fits["RVS_WARN"].fill(1 << 18))
        part = copied("part.h5", damaged=[2])
        unfinish(part, 1)
        done = run("compare", FIT, part, "--list", "stars.csv", "--figure", "stars.pdf", cwd=TMP)
        self.assertIn(f"{n - 2} stars; rows {n} and {n - 2}", done.stdout)
        self.assertIn("1 row (2) is damaged", done.stderr)
        self.assertEqual(len(content(tmp("stars.csv")).splitlines()), n - 1)
        os.symlink(FIT, tmp("link.png"))
        for name, how, said, status in (
                ("stars.csv", ["--list"], "exists", 4), ("stars.pdf", ["--figure"], "exists", 4),
                (part, ["--overwrite", "--list"], "are one file", 2),
                ("link.png", ["--overwrite", "--figure"], "are one file", 2),
                ("x.xyz", ["--figure"], "ends in .png or .pdf", 2)):
            self.refused("compare", FIT, part, *how, name, said=[name, said], status=status)
        self.job("export", "--to", "fits", "--output", "warned.fits", warned)
        pyfits.PrimaryHDU().writeto(tmp("empty.fits"))  # rvspecfit's product of no star
        done = run("compare", warned, "empty.fits,warned.fits", "--figure", "none.png", cwd=TMP)
        self.assertIn(f"| 262144 ARMS_DIFFER | {n} | {n} | {n} |", done.stdout)
        self.assertIn("none.png is not written: no star", done.stderr)
        self.assertIn("warning: empty.fits has no table", done.stderr)


class Outputs(Look):
    def test_no_file_that_is_read_is_replaced(self):
        target = FITS["TARGETID"][0]
        before = content(MODELS)
        self.refused("select", FIT, "TEFF > 0", "--overwrite", "--output", MODELS,
                     said=[f"--output {MODELS} and ", "are one file"])
        other, pipe = shutil.copy(SURVEY, tmp("other.png")), tmp("pipe")  # no file of the result
        os.mkfifo(pipe)
        for job in (("select", FIT, "TEFF > 0"), ("report", FIT), ("plot", FIT, target)):
            self.refused(*job, "--overwrite", "--output", other, said=["is FITS, gzip or HDF5"])
        self.refused("select", FIT, "TEFF > 0", "--overwrite", "--output", pipe, status=4,
                     said=["is no regular file"])
        self.assertEqual(content(MODELS), before)


class Plot(Look):
    def test_with_the_models_file_and_without(self):
        target = FITS["TARGETID"][2]
        self.job("plot", FIT, target, "--models", MODELS, "--output", tmp("plot.png"))
        image = matplotlib.image.imread(tmp("plot.png"))
        self.assertGreater(image.shape[0], 900)
        self.assertGreater(image.shape[1], 1300)
        colours = (image[..., :3] * 255).round().astype(int).reshape(-1, 3)
        for colour in ((213, 94, 0), (0, 114, 178)):  # a model and its residuals are drawn
            self.assertGreater((np.abs(colours - colour) < 24).all(axis=1).sum(), 1000, colour)
        # without stored models each star is fitted again, with the same bits on one kind of device
        os.rename(MODELS, MODELS + ".away")
        self.addCleanup(os.rename, MODELS + ".away", MODELS)
        self.job("plot", FIT, target, "--output", tmp("again.png"))
        np.testing.assert_array_equal(matplotlib.image.imread(tmp("again.png")), image)

    def test_a_range_and_its_size(self):
        target, more = FITS["TARGETID"][2], ("--models", MODELS, "--output", tmp("range.png"))
        self.job("plot", FIT, target, *SMALL, *more)
        image = matplotlib.image.imread(tmp("range.png"))
        self.assertEqual(image.shape[1], 660)
        self.assertLess(image.shape[0], 400)  # one arm
        for says, given in (("between 100 and 200 A", ("--range", "100,200")),
                            ("--range takes LOW,HIGH", ("--range", "7000,5800")),
                            ("--dpi takes an integer", ("--dpi", "5")),
                            ("does not apply to --corner", ("--range", "5800,7000", "--corner"))):
            self.refused("plot", FIT, target, *given, "--overwrite", *more, said=[says])

    def test_spectra_and_models_are_those_of_the_files(self):
        result = Result(FIT)
        row = 11
        arms, note = Inputs(result).star(row, Models(MODELS, result).of(row))
        self.assertEqual(([a.name for a in arms], note), (["b", "r", "z"], ""))
        i = int(CATALOG["FITS_ROW"][row])
        with pyfits.open(SURVEY) as f, h5py.File(MODELS) as m:
            for a in arms:
                x = a.name.upper()
                np.testing.assert_array_equal(a.wave, f[f"{x}_WAVELENGTH"].data)
                np.testing.assert_array_equal(a.flux, f[f"{x}_FLUX"].data[i])
                bad = (f[f"{x}_MASK"].data[i] != 0) | ~(f[f"{x}_IVAR"].data[i] > 0)
                if a.name == "b":  # the dichroic, which auto masks for DESI
                    bad |= (a.wave > 4300) & (a.wave < 4450)
                bad[:5] = bad[-5:] = True  # edge_pix, as the library takes resolution matrices
                np.testing.assert_array_equal(a.bad, bad)
                np.testing.assert_array_equal(a.ivar == 0, bad)
                np.testing.assert_array_equal(a.model, m[f"models/{a.name}/flux"][row])
                self.assertEqual((~bad).sum(), FITS[f"NPIX_{x}"][row])

    def test_the_last_bit_of_a_mask(self):
        bits = np.array([1 << 31, 1 << 30, 0], np.uint32)
        with pyfits.open(SURVEY) as f:
            f["B_MASK"].data[0, :3] = bits.view(np.int32)
            f.writeto(tmp("mask.fits"))
        file = SpectraFile(tmp("mask.fits"), "format: desi\n")
        for ignored in (0, *map(int, bits), 0xffffffff):
            self.assertEqual(file.channels(0, ignored)[0].bad[:3].tolist(),
                             (bits & ~np.uint32(ignored) != 0).tolist())

    def test_wavelengths_in_air(self):
        # Ciddor's index of air differs from ours, another fit of the same data, by 0.5 m/s at most
        wave = np.linspace(3500.0, 10000.0, 500)
        s2 = (1e4 / wave) ** 2
        for _ in range(3):
            n = 1 + 0.05792105 / (238.0185 - s2) + 0.00167917 / (57.362 - s2)
            s2 = (1e4 / (wave * n)) ** 2
        np.testing.assert_allclose(vacuum(wave), wave * n, rtol=5e-8)

    def test_links_are_followed_before_dots(self):
        os.makedirs(tmp("real/deep"))
        os.symlink("real/deep", tmp("link"))
        shutil.copy(SURVEY, tmp("real/x.fits"))
        self.job("fit", "--library", LIBRARY, "--output", "dots.h5", "--quiet", "link/../x.fits")
        # which fits it again
        self.job("plot", "dots.h5", FITS["TARGETID"][0], *SMALL, "--output", "dots.png")

    def test_an_input_that_changed_and_models_of_another_fit(self):
        target = FITS["TARGETID"][0]
        was = os.stat(SURVEY)
        try:
            for change in (lambda: os.utime(SURVEY), lambda: os.truncate(SURVEY, was.st_size + 2880)):
                change()
                self.refused("plot", FIT, target, "--models", MODELS, "--output", tmp("x.png"),
                             said=[SURVEY, "another file now"], status=3)
        finally:
            os.truncate(SURVEY, was.st_size)
            os.utime(SURVEY, ns=(was.st_atime_ns, was.st_mtime_ns))
        other = shutil.copy(MODELS, tmp("other-models.h5"))
        with h5py.File(other, "a") as f:
            f.attrs["RUN_ID"] = np.bytes_("0" * 32)
        self.refused("plot", FIT, target, "--models", other, "--output", tmp("x.png"),
                     said=[other, "a result other than"])

    def test_damaged_models(self):
        whole, models = content(MODELS), h5py.File(MODELS)["models"]
        place = models["b/wavelength"].id.get_offset().to_bytes(8, "little")
        lists = [m.end() + 12 for m in re.finditer(b"HEAP", whole)][:2]  # where free lists begin
        for name, at in (("root", lists[0]), ("group", lists[1]), ("values", whole.index(place))):
            path = put(f"{name}-models.h5", whole[:at] + b"\7" * 8 + whole[at + 8:])
            self.refused("plot", FIT, FITS["TARGETID"][0], "--models", path, "--output", tmp("x.png"),
                         said=[f"{path} cannot be read as a models file"], status=4)

    def test_python_that_lacks_packages(self):
        target = FITS["TARGETID"][0]
        self.refused("plot", FIT, target, said=["cannot start Python", "STARMILL_PYTHON"],
                     env={"STARMILL_PYTHON": tmp("no-python")})
        bare = tmp("bare-python")
        put(bare, f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')  # without the distribution's packages
        os.chmod(bare, 0o755)
        for job in (("plot", FIT, target), ("report", FIT), ("show", FIT, target),
                    ("select", FIT, "TEFF > 0")):
            self.refused(*job, said=["lacks ", "numpy", "python3-h5py", "pip install"],
                         env={"STARMILL_PYTHON": bare})


def figures(page):
    """{key: value} of a report's numbers."""
    return {k: float(v) for k, v in re.findall(r'data-key="([^"]+)" data-value="([^"]+)"', page)}


class Report(Look):
    def test_the_numbers_are_those_of_numpy(self):
        def edit(fits, catalog):
            rng = np.random.default_rng(8)
            n = len(fits["STATUS"])
            fits["TARGETID"] = 10**16 + np.arange(n) // 2 * 2
            fits["TARGETID"][: n // 2] += np.arange(n // 2) % 2  # the second half are pairs
            fits["VRAD"] = rng.normal(30, 5, n)
            fits["VRAD_ERR"][:] = 4.0
            catalog["OBJECT"][:] = b"<script>alert(1)</script>"
            catalog["TARGET_RA"] = (fits["TARGETID"] - 10**16) * 0.3
            catalog["TARGET_DEC"] = np.full(n, 60.0)
            fits["TARGETID"][1], catalog["TARGET_RA"][1] = -1, catalog["TARGET_RA"][3] + 2e-4
            catalog["OBJECT"][1] = b""
            # nothing tells to which of two neighbours row 7 belongs
            fits["TARGETID"][7], catalog["TARGET_RA"][7:10] = -2, catalog["TARGET_RA"][8] + (1e-4, 0, 2e-4)
            fits["RVS_WARN"][:] = 0
            fits["RVS_WARN"][::10] = 256 + 8
            fits["STATUS"][5], fits["VRAD"][5], fits["RVS_WARN"][5] = 4, np.nan, 32
            fits["SN_B"][::10] = -1e9  # no pixel
            fits["TEFF"][11], fits["LOGG"][21] = 1e308, -1e308  # count as missing
        path = copied("survey.h5", 1000, edit)
        f = read(path)
        with without_pictures():
            self.job("report", path, "--no-spectra")
        page = content(path + ".html", "r")
        got = figures(page)
        fitted = f["STATUS"] == FITTED
        good = fitted & (f["RVS_WARN"] == 0)
        best = np.max([f["SN_B"], f["SN_R"], f["SN_Z"]], axis=0)
        self.assertEqual((got["rows"], got["fitted"], got["good"]),
                         (1000, fitted.sum(), good.sum()))
        self.assertEqual(got["velocity-GOOD"], (f["VRAD_GOOD"][fitted] == 1).sum())
        self.assertEqual(got["status-UNREADABLE"], 1)
        self.assertEqual(got["warning-HULL"], (fitted & (f["RVS_WARN"] & 256 != 0)).sum())
        self.assertEqual(got["median-sn"], np.median(best[fitted & (best > 0)]))
        for p in ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE"):
            for k in (16, 50, 84):
                found = f[p][good & (abs(f[p]) < 9e9)]
                self.assertEqual(got[f"p{k}-{p}"], np.percentile(found, k), p)
            self.assertEqual(got[f"error-{p}"], np.median(f[p + "_ERR"][good]), p)
        for a in "BRZ":
            at = fitted & (f["NPIX_" + a] > 0)
            self.assertEqual(got[f"n-{a}"], at.sum())
            known = at & (f["SN_" + a] > -1e9)
            self.assertEqual(got[f"SN_{a}-p5"], np.percentile(f["SN_" + a][known], 5))
            self.assertEqual(got[f"RCHISQ_{a}-p95"], np.percentile(f["RCHISQ_" + a][at], 95))
        # consecutive rows of a star are a pair; rows 1 and 3 are one by their position on the sky
        delta = [f["VRAD"][3] - f["VRAD"][1]]
        for t in np.unique(f["TARGETID"][good]):
            rows = np.flatnonzero(good & (f["TARGETID"] == t))
            delta += [f["VRAD"][b] - f["VRAD"][a] for a, b in zip(rows[::2], rows[1::2])]
        low, high = np.percentile(delta, [15.865, 84.135])
        self.assertGreater(len(delta), 150)
        # sums of other orders: the last digits
        np.testing.assert_allclose(got["repeat-scatter-VRAD"], (high - low) / 2 / np.sqrt(2), 1e-12)
        np.testing.assert_allclose(got["repeat-pull-VRAD"], (high - low) / 2 / np.hypot(4, 4), 1e-12)
        np.testing.assert_allclose(got["repeat-error-VRAD"], 4, 1e-12)
        self.assertIn("Spectra were not asked for", page)
        self.assertNotIn("<script", page)  # names of stars are text
        self.assertIn("&lt;script&gt;", page)

    def test_a_page_that_needs_nothing_else(self):
        few = {"N_WORST": 2, "N_TYPICAL": 2}  # test_a_large_survey_... has the usual number
        with unittest.mock.patch.multiple(survey, **few), \
                unittest.mock.patch.object(report, "N_WORST", 2):
            out = self.job("report", FIT, "--output", tmp("page.html"))
        self.assertEqual(out.strip(), tmp("page.html"))
        page = content(tmp("page.html"), "r")
        for name in ("Run", "Failures and flags", "Distributions", "Maps", "Repeated stars",
                     "Worst stars", "Typical stars"):
            self.assertIn(f"<h2>{name}</h2>", page)
        # nothing is fetched, and every link leads somewhere
        self.assertEqual([u for u in re.findall(r'(?:src|href)="([^"]{0,12})', page)
                          if not u.startswith(("data:image/p", "#"))], [])
        self.assertNotIn("http", page)
        anchors = re.findall(r'id="([^"]+)"', page)
        self.assertEqual(len(anchors), len(set(anchors)))
        self.assertLessEqual(set(re.findall(r'href="#([^"]+)"', page)), set(anchors))
        # the worst first, each with its spectrum
        worst = page[page.index("<h2>Worst"):page.index("<h2>Typical")]
        chi = np.argsort(-FITS["RCHISQ_TOT"], kind="stable")[:2]
        self.assertEqual(re.findall(r">row (\d+), S/N", worst), [str(r) for r in chi])
        self.assertEqual(worst.count("<img"), 2)
        self.assertNotIn('class="bad">No spectra', page)
        self.refused("report", FIT, "--output", tmp("page.html"), said=["exists"], status=4)

    def test_without_the_inputs_it_still_reports(self):
        # without fitted rows, as pictures would take most of a report's time
        path = copied("none-fitted.h5", edit=lambda fits, _: fits["STATUS"].fill(4))
        self.job("report", path, "--no-spectra")
        self.assertIn("Maps", content(tmp("none-fitted.h5.html"), "r"))
        os.rename(SURVEY, SURVEY + ".away")
        self.addCleanup(os.rename, SURVEY + ".away", SURVEY)
        flagged = copied("away.h5", edit=lambda fits, _: fits["RVS_WARN"].fill(8))  # has few pictures
        self.job("report", flagged, "--output", tmp("away.html"))
        self.assertIn("cannot be read: No such file", content(tmp("away.html"), "r"))

    def test_a_row_without_a_spectrum(self):
        empty = {"NAME": "empty", "WAVELENGTH": np.zeros(9), "FLUX": np.zeros(9), "IVAR": np.zeros(9)}
        generic.write(tmp("empty.fits"), [empty], "vacuum", "barycentric")
        starmill("fit", "--library", LIBRARY, "--output", "empty.h5", "--quiet", "empty.fits", cwd=TMP)
        self.refused("plot", "empty.h5", "empty", said=["row 0", "has no spectrum"], status=3)
        self.job("report", "empty.h5")
        self.assertIn("has no spectrum", content(tmp("empty.h5.html"), "r"))

    def test_one_star(self):
        def edit(fits, _):
            fits["ALPHAFE"][0] = fits["ALPHAFE_ERR"][0] = fits["FEH_ERR"][0] = np.nan
            fits["FEH"][0], fits["RVS_WARN"][0], fits["STATUS"][0] = -1.5, 0, FITTED
            fits["RCHISQ_TOT"][0], fits["CHISQ_DATA"][0] = 2.5, 1.23 * fits["NPIX_TOT"][0]
        path = copied("one.h5", 1, edit)
        with without_pictures():
            self.job("report", path, "--no-spectra")
        page = content(path + ".html", "r")
        card = page[page.index("<h2>Stars"):]
        for words in ("<p>1 row of 1 file, written", "1 file, 0 unreadable", "[Fe/H] −1.50 dex",
                      "square 2.5, without model error 1.23<", "<span>row</span>", "Too few fit"):
            self.assertIn(words, page)
        self.assertIn("orange the model", card)
        self.assertNotIn("[α/Fe]", card)

    def test_rows_of_one_placeholder_position_are_no_star(self):
        n = 1000

        def edit(fits, catalog):
            fits["STATUS"][:], fits["RVS_WARN"][:], fits["FIT_INFO"][:] = FITTED, 0, 0
            fits["TARGETID"][:], fits["VRAD"] = -1, np.arange(n, dtype=float)
            catalog["TARGET_RA"][:], catalog["TARGET_DEC"][:], catalog["OBJECT"][:] = ra, dec, name
            catalog["TARGET_RA"] += step * np.arange(n)
        for ra, dec, step, name, said in (
                (0, 0, 0, b"", []), (-999, -999, 0, b"", []), (np.nan, np.nan, 0, b"", []),
                (12, -30, 0.03, b"STAR", [f"{n - 1} of the rows are over 60 arcsec from the first"]),
                (12, -30, 0, b"", [f"{n} of the rows share their position with over 100 others"]),
                (12, -30, 1e-8, b"", [f"{n} of the rows share their position with over 100 others"])):
            with self.subTest((ra, dec, step)):
                made = survey.Survey(Result(copied("place.h5", n, edit)))
                made.result.file.close()
                self.assertEqual(made.repeats.n_pair, 0)
                self.assertEqual([w[:len(s)] for w, s in zip(made.repeats.unjoined, said)], said)
                with without_pictures():
                    self.assertEqual(charts.sky(made) is None, not said)
        done = run("merge", "--calibrate", "--output", tmp("place-merged.h5"), tmp("place.h5"))
        self.assertIn(f"warning: --calibrate: {said[0]}", done.stderr)

    def test_a_large_survey_is_read_in_blocks_and_sampled(self):
        path = large(8000)
        result = Result(path)
        result.block = 777
        with unittest.mock.patch.multiple(survey, MAX_SAMPLE=2000, MAX_KEYS=2000):
            s = survey.Survey(result)
            survey.MAX_SAMPLE = 400
            tracemalloc.start()
            few = survey.Survey(result)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        f = read(path)
        # memory peaks at twice the sample and a few blocks; all blocks would take 20 times this
        self.assertEqual(len(few.rows), 400)
        self.assertLess(peak, 2 * sum(v.nbytes for v in few.sample.values()) + 1_800_000)
        np.testing.assert_array_equal(s.rows, np.arange(0, 8000, 4))
        for name in ("VRAD", "TEFF_ERR", "SN_R"):
            np.testing.assert_array_equal(s.sample[name], f[name][::4])
        good = (f["STATUS"] == 1) & (f["RVS_WARN"] == 0)
        self.assertEqual((s.n_fitted, s.n_good), ((f["STATUS"] == 1).sum(), good.sum()))
        self.assertEqual([r for _, r in s.worst], np.argsort(-f["RCHISQ_TOT"])[:12].tolist())
        # every 4th star is drawn, so the number of pairs is binomial: within five sigma
        pairs = (good[::2] & good[1::2]).sum()
        self.assertLess(abs(s.repeats.n_pair - pairs / 4), 5 * np.sqrt(pairs * 3 / 16))
        self.assertEqual(len(s.repeats.delta["VRAD"]), s.repeats.n_pair)
