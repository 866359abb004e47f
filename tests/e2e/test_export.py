# SPDX-License-Identifier: BSD-3-Clause
"""`starmill export`: what other programs read is what the result holds, value for value.

The reference is the result itself through h5py, and the inputs through astropy."""

import csv
import io
import types

from astropy.io.votable import validate
from astropy.io.votable.ucd import check_ucd
from astropy.table import Table

from base import *  # noqa: F403
from starmill.products.table import words
from starmill.surveys import generic

LIBRARY, SURVEY = tmp("lib.h5"), tmp("survey")
FILES = [os.path.join(SURVEY, "coadd-mock-%05d.fits" % i) for i in range(3)]
OUT, MODELS, PRODUCTS = tmp("out.h5"), tmp("models.h5"), tmp("products")

# RVTAB: name, FITS type, unit.  Columns before VSINI_ERR are rvspecfit's, in its order.
RVTAB = [
    ("VRAD", "1D", "km s-1"), ("VRAD_ERR", "1D", "km s-1"), ("VRAD_SKEW", "1D", None),
    ("VRAD_KURT", "1D", None), ("VSINI", "1D", "km s-1"), ("LOGG", "1D", None),
    ("LOGG_ERR", "1D", None), ("TEFF", "1D", "K"), ("TEFF_ERR", "1D", "K"), ("FEH", "1D", None),
    ("FEH_ERR", "1D", None), ("ALPHAFE", "1D", None), ("ALPHAFE_ERR", "1D", None),
    ("CHISQ_TOT", "1D", None), ("CHISQ_C_TOT", "1D", None), ("NPIX_TOT", "1K", None),
    ("CHISQ_B", "1D", None), ("CHISQ_C_B", "1D", None), ("CHISQ_R", "1D", None),
    ("CHISQ_C_R", "1D", None), ("CHISQ_Z", "1D", None), ("CHISQ_C_Z", "1D", None),
    ("VRAD_CCF", "1D", "km s-1"), ("RVS_WARN", "1K", None), ("FIBER", "1J", None),
    ("REF_ID", "1K", None), ("REF_CAT", "16A", None), ("TARGET_RA", "1D", "deg"),
    ("TARGET_DEC", "1D", "deg"), ("TARGETID", "1K", None), ("EXPID", "1J", None),
    ("SN_B", "1E", None), ("SN_R", "1E", None), ("SN_Z", "1E", None), ("SUCCESS", "1L", None),
    ("RR_Z", "1D", None), ("RR_SPECTYPE", "8A", None), ("RR_SUBTYPE", "24A", None),
    ("VSINI_ERR", "1D", "km s-1"), ("M2LL", "1D", None), ("CHISQ_DATA", "1D", None), ("VRAD_GOOD", "1L", None),
    ("FIT_INFO", "1J", None), ("STATUS", "1J", None), ("OBJECT", "32A", None),
    ("TILEID", "1J", None), ("NIGHT", "1J", None)]
RENAMED = {"RR_Z": "Z", "RR_SPECTYPE": "SPECTYPE", "RR_SUBTYPE": "SUBTYPE"}
# units that FITS does not know; the export puts them into the description
NO_UNIT = ("dex", "log(cm s**-2)", "product of the units of the parameters")


# right ascension, declination, pixel by astropy-healpix 1.1
PIXELS = [(0.5, 0.25, 1273033126320358896), (123.4, -41.9, 2766709273490490906),
          (-10.0, 41.7, 962244621124498778), (200.0, 41.9, 762705093322799898),
          (300.1, 89.99, 1152921498057000472), (45.0, -90.0, 2305843009213693952),
          (359.9, -66.6, 3194552010396872500), (np.nan, 0.0, -1), (0.0, 0.0, -1)]
FIRST = ["TARGETID", "IDENTIFIER", "OBJECT", "TARGET_RA", "TARGET_DEC"]


def setUpModule():
    coarse_library("lib.h5")
    run("simulate", "--library", LIBRARY, "--output", SURVEY, "--stars", 9, "--per-file", 3,
        "--seed", 3, "--sn", "20,60", "--quiet")
    run("fit", "--library", LIBRARY, "--output", OUT, "--models", MODELS, "--threads", 1, *FILES)
    run("export", "--output", PRODUCTS, OUT)
    run("export", "--to", "rvmod", "--models", MODELS, "--output", PRODUCTS, OUT)


def columns(path=OUT):
    """{name: (values, unit, description)} of /fits and /catalog of a result."""
    found = {}
    with h5py.File(path) as f:
        for group in ("catalog", "fits"):
            for name, column in f[group].items():
                if isinstance(column, h5py.Dataset):
                    found[name] = (column[...], column.attrs.get("unit", ""),
                                   column.attrs["description"])
        frames = f["catalog/files/FRAME"][...][f["catalog/FILE"][...]]
        found["FRAME"] = frames, "", "frame of VRAD, the input's"
    return found


@functools.cache
def large():
    """A result that takes some time to export."""
    tiled(OUT, tmp("large.h5"), 60000)
    return tmp("large.h5")


def described(unit, description):
    """Return the unit and comment of a FITS column for a unit and a description of HDF5."""
    unit, description = text(unit), text(description).replace("'", '"')
    if unit in NO_UNIT:
        return "", description + "; unit: " + unit
    return unit.replace("km/s", "km s-1"), description


def tree(folder):
    return {os.path.relpath(p, folder): content(p)
            for p in glob.glob(os.path.join(folder, "**", "*"), recursive=True)
            if os.path.isfile(p)}


def plain(path):
    """Names and data of all HDUs, without headers: checksum cards hold the time."""
    with pyfits.open(path, memmap=False) as hdus:
        return [(h.name, None if h.data is None else h.data.tobytes()) for h in hdus]


class Export(ProgramTest):
    def export(self, *args, status=0, **how):
        return self.ends(status, "export", *args, **how)

    def assertSame(self, value, expected, name):
        """Two columns are equal bit for bit, whatever their byte order."""
        expected = np.asarray(expected)
        if expected.dtype.kind in "SO":
            self.assertEqual(texts(value), texts(expected), name)
        else:
            value = np.asarray(value)
            self.assertEqual(value.shape, expected.shape, name)
            self.assertEqual(value.astype(expected.dtype).tobytes(), expected.tobytes(), name)

    def test_rvtab_has_the_columns_of_rvspecfit(self):
        self.assertEqual(sorted(os.listdir(PRODUCTS)),
                         sorted(p + "-" + os.path.basename(f) for f in FILES
                                for p in ("rvtab", "rvmod")))
        result, row = columns(), 0
        for path in FILES:
            with pyfits.open(os.path.join(PRODUCTS, "rvtab-" + os.path.basename(path))) as hdus, \
                    pyfits.open(path) as inputs:
                self.assertEqual([h.name for h in hdus], ["PRIMARY", "RVTAB", "FIBERMAP", "SCORES", "EXP_FIBERMAP"])
                table = hdus["RVTAB"]
                self.assertEqual(hdus[0].header["SPECSYS"], "BARYCENT")
                self.assertEqual([(c.name, c.format, c.unit) for c in table.columns],
                                 [(n, f.lstrip("1") if len(f) == 2 else f, u) for n, f, u in RVTAB])
                self.assertEqual([table.header[f"TUCD{table.data.names.index(n) + 1}"] for n in RENAMED],
                                 ["src.redshift", "src.class", "src.class"])
                n = len(table.data)
                for i, (name, form, _) in enumerate(RVTAB):
                    values, unit, comment = result[RENAMED.get(name, name)]
                    values = values[row:row + n]
                    if form == "1E":
                        values = values.astype(np.float32)
                    elif form == "1L":
                        values = values == 1
                    self.assertSame(table.data[name], values, name)
                    self.assertEqual(table.header[f"TCOMM{i + 1}"], described(unit, comment)[1])
                for name in ("FIBERMAP", "SCORES", "EXP_FIBERMAP"):
                    self.assertEqual(hdus[name].columns.names, inputs[name].columns.names)
                    self.assertEqual(hdus[name].columns.formats, inputs[name].columns.formats)
                    self.assertEqual(hdus[name].columns.units, inputs[name].columns.units)
                rows = result["FITS_ROW"][0][row:row + n]
                for name in ("FIBERMAP", "SCORES"):
                    self.assertEqual(hdus[name].data.tobytes(), inputs[name].data[rows].tobytes())
                kept = np.isin(inputs["EXP_FIBERMAP"].data["TARGETID"], table.data["TARGETID"])
                self.assertEqual(hdus["EXP_FIBERMAP"].data.tobytes(),
                                 inputs["EXP_FIBERMAP"].data[kept].tobytes())
                row += n
        self.assertEqual(row, 9)

    def test_headers(self):
        said, command = attributes(OUT, "provenance"), read(OUT, "provenance")["COMMAND"][()]
        with pyfits.open(os.path.join(PRODUCTS, "rvtab-coadd-mock-00001.fits"),
                         checksum=True) as hdus, pyfits.open(FILES[1]) as inputs:
            head = hdus[0].header
            self.assertEqual(head["RUNID"], text(said["RUN_ID"]))
            self.assertEqual(head["RVS_CMD"], text(command).replace("'", '"'))
            self.assertEqual(words("/it's \xe9", True), "/it%27s %C3%A9")
            self.assertEqual(head["DEPNAM00"], "starmill")
            self.assertEqual([head[f"TMPLCON{i}"] for i in range(3)], ["b", "r", "z"])
            self.assertEqual(head["TMPLSVR2"], text(said["LIBRARY_HASH"]))
            self.assertEqual(head["RVS_CONF"], OUT + ":/provenance/CONFIG")
            self.assertEqual(head["RR_FILE"].strip(), "")
            for key in ("SPGRP", "SPGRPVAL", "HPXPIXEL", "HPXNSIDE", "HPXNEST", "SURVEY"):
                self.assertEqual(head[key], inputs[0].header[key])
            bits = hdus["RVTAB"].header
            self.assertEqual([bits["WARN05"], bits["INFO08"], bits["STATUS02"]],
                             ["BAD_SPECTRUM", "NEAR_HULL", "LOW_SN"])
            self.assertTrue(all(h._checksum_valid and h._datasum_valid for h in hdus))

    def test_rvmod_has_the_models(self):
        with h5py.File(MODELS) as models:
            for i, path in enumerate(FILES):
                with pyfits.open(os.path.join(PRODUCTS, f"rvmod-coadd-mock-0000{i}.fits")) as hdus:
                    self.assertEqual([h.name for h in hdus][1:], [
                        a + b for a in "BRZ" for b in ("_WAVELENGTH", "_MODEL")] + ["FIBERMAP"])
                    for arm in "brz":
                        self.assertSame(hdus[arm.upper() + "_WAVELENGTH"].data,
                                        models[f"models/{arm}/wavelength"][...], arm)
                        self.assertSame(hdus[arm.upper() + "_MODEL"].data,
                                        models[f"models/{arm}/flux"][3 * i:3 * i + 3], arm)
                    self.assertEqual(hdus["FIBERMAP"].data.tobytes(),
                                     pyfits.getdata(path, "FIBERMAP").tobytes())

    def test_rvmod_without_fibermap_names_the_spectra(self):
        part = shutil.copy(OUT, tmp("nameless.h5"))
        with h5py.File(part, "r+") as f:
            f["catalog/files/N_ROW"][2] = 0  # as of a file whose exposures joined rows of others
        done = self.export("--to", "rvmod", "--models", MODELS, "--no-fibermap", "--output",
                           tmp("nameless"), part)
        self.assertIn("written      2\nempty        1 inputs", done.stdout)
        self.assertEqual(len(os.listdir(tmp("nameless"))), 2)
        with pyfits.open(tmp("nameless/rvmod-coadd-mock-00001.fits")) as hdus, h5py.File(OUT) as f:
            table = hdus["EXPOSURES"].data
            self.assertEqual(texts(table["FILE"]), FILES[1:2] * 3)
            self.assertEqual(table["FITS_ROW"].tolist(), [0, 1, 2])
            self.assertEqual(list(table["IDENTIFIER"]), list(f["catalog/IDENTIFIER"][3:6].astype(str)))

    def test_rvmod_of_a_fit_continued_without_models(self):
        fit, models = shutil.copy(OUT, tmp("half.h5")), shutil.copy(MODELS, tmp("half-models.h5"))
        with h5py.File(fit, "r+") as f, h5py.File(models, "r+") as m:
            f["provenance/UNMODELLED"][...] = 1
            for arm in "brz":
                m[f"models/{arm}/flux"][3:5] = np.nan
            m["models/b/flux"][7] = np.nan  # a star without good pixels in one arm
        for _ in range(2):  # also when the products are there
            done = self.export("--to", "rvmod", "--models", models, "--output", tmp("half"), fit, status=3)
            self.assertOneLine(done, models, "no models of 2 stars", "without --models", status=3)

    def test_any_number_of_processes(self):
        folder = tmp("workers")
        done = self.export("--output", folder, "--workers", 1, OUT)
        self.assertIn("written      3\n", done.stdout)
        self.export("--to", "rvmod", "--models", MODELS, "--output", folder, "--workers", 5, OUT)
        self.assertEqual(sorted(os.listdir(folder)), sorted(os.listdir(PRODUCTS)))
        for name in os.listdir(folder):
            self.assertEqual(plain(os.path.join(folder, name)), plain(os.path.join(PRODUCTS, name)))

    def test_every_column_comes_back(self):
        result, fits = columns(), tmp("t.fits")
        self.export("--to", "fits", "--output", fits, OUT, ranks=2)
        with pyfits.open(fits) as hdus:
            data, head = hdus["STARMILL"].data, hdus["STARMILL"].header
            self.assertEqual(sorted(data.names), sorted(result))
            self.assertEqual(data.names[:5], FIRST)
            self.assertEqual(head[f"TUCD{data.names.index('TEFF_ERR') + 1}"],
                             "stat.error;phys.temperature.effective")
            for i in range(1, len(data.names) + 1):
                self.assertTrue(check_ucd(head[f"TUCD{i}"], True, True), head[f"TTYPE{i}"])
            self.assertEqual(texts(hdus["FILES"].data["PATH"]), FILES)
            self.assertEqual(head["PARORDER"], "VRAD VSINI TEFF LOGG FEH ALPHAFE")
            for i, name in enumerate(data.names):
                self.assertSame(data[name], result[name][0], name)
                self.assertEqual((head.get(f"TUNIT{i + 1}", ""), head[f"TCOMM{i + 1}"]),
                                 described(*result[name][1:]))

    def test_odd_contents(self):
        """Export a label named like a catalogue column, texts not in ASCII, and a long command."""
        odd = shutil.copy(OUT, tmp("odd.h5"))
        with h5py.File(odd, "r+") as f:
            f["catalog/OBJECT"][3:5] = ["\u03b1 Cen".encode(), b"\xe9" * 12]
            seal(f, slice(3, 5))
            f["catalog/files/PATH"][0] = "/\xe9".encode() * (f["catalog/files/PATH"].dtype.itemsize // 3)
            f["fits"].move("HULL_DIST", "Z")
            order = text(f["fits/CRC"].attrs["COLUMNS"]).replace("HULL_DIST", "Z")
            f["fits/CRC"].attrs["COLUMNS"] = np.bytes_(order)
            f["fits/POST_FLAG"], f["fits/BACKEND"] = np.zeros((2, len(f["fits/VRAD"])), "u1")
            for name, key in ("POST_FLAG", "BITS"), ("BACKEND", "CODES"):
                f[f"fits/{name}"].attrs.update({key: [2, 16], "NAMES": [b"ONE", b"MORE"],
                                                "MEANINGS": [b"-", b"-"]})
            del f["provenance/COMMAND"]
            f["provenance"].create_dataset("COMMAND", data=np.bytes_("starmill " + "x" * 9000))
        self.export("--to", "fits", "--output", tmp("odd.fits"), odd)
        table = Table.read(tmp("odd.fits"), hdu=1)
        self.assertEqual([table.meta[key] for key in ("POST01", "POST04", "BACKEN02", "BACKEN16")],
                         ["ONE", "MORE"] * 2)
        self.assertSame(table["Z"], columns()["HULL_DIST"][0], "Z")
        self.assertTrue(np.isnan(np.ma.filled(table["CATALOG_Z"], np.nan)).all())
        self.assertRegex("".join(table["OBJECT"][3:5]), "^%CE%B1 Cen *(%E9){7}%E~[0-9a-f]{8}$")  # 36 cut to 32 letters
        self.assertRegex(Table.read(tmp("odd.fits"), hdu=2)["PATH"][0], "^(/%C3%A9)+ *$")
        self.export("--to", "csv", "--output", tmp("odd.csv"), odd)
        self.assertEqual(list(Table.read(tmp("odd.csv"))["OBJECT"][3:5]), ["\u03b1 Cen", r"\xe9" * 12])
        self.assertEqual(pyfits.getheader(tmp("odd.fits"))["RVS_CMD"], "starmill " + "x" * 4083 + "...")

    def test_other_programs_open_them(self):
        self.export("--to", "fits", "--output", tmp("v.fits"), OUT)
        stilts = shutil.which("stilts")
        if stilts:
            for name, n_column in ((tmp("v.fits"), ".*"),
                                   (os.path.join(PRODUCTS, "rvtab-coadd-mock-00000.fits"), 46)):
                self.assertRegex(ended([stilts, "tpipe", "in=" + name, "omode=count"]).stdout,
                                 rf"columns: {n_column}   rows: [39]\n")
        self.assertVerified(*glob.glob(os.path.join(PRODUCTS, "*.fits")), tmp("v.fits"))

    def written(self, kind):
        """Export a result with values that formats may lack; (path, expected columns)."""
        gaps = shutil.copy(OUT, tmp("gaps.h5"))
        with h5py.File(gaps, "r+") as f:
            f["fits/SN_B"][3] = -1e9
            f["catalog/TARGET_RA"][5] = np.nan
            f["catalog/TARGET_RA"][[0, 7]] = 200, -10  # out of order; below zero
            f["catalog/OBJECT"][3] = "\u03b1 <Cen>,\"".encode()
            seal(f)
        result = {n: v for n, (v, _, _) in columns(gaps).items()}
        result["SN_B"][3] = np.nan
        path = tmp("gaps." + kind)
        self.export("--to", kind, "--output", path, gaps)
        self.export("--to", kind, "--output", path, gaps, status=4, says=[path, "exists"])
        return path, result

    def package(self, module, name, kind):
        """The module; without it the export says so, and the test is skipped."""
        try:
            return importlib.import_module(module)
        except ImportError as missing:
            done = self.export("--to", kind, "--output", tmp("x." + kind), OUT, status=2)
            self.assertRegex(done.stderr, f"^starmill export: .*: pip install {name}.*\n$")
            raise unittest.SkipTest(str(missing)) from None

    def assertColumns(self, found, result, ascii_only=False):
        """found: {name: values}."""
        self.assertEqual(list(found)[:5], FIRST)
        for name, values in found.items():
            expected = result[name]
            if expected.dtype.kind == "S":
                expected = [v.decode() for v in expected.tolist()]
                expected = [v.replace("\u03b1", "%CE%B1") for v in expected] if ascii_only else expected
                self.assertEqual([str(v) for v in values], expected, name)
            else:
                values = np.asarray(values)
                self.assertNotEqual(values.dtype.kind, "u", name)
                same = np.array_equal(values, expected, equal_nan=values.dtype.kind == "f")
                self.assertTrue(same, name)
                self.assertEqual(values.dtype.kind == "b", name in ("SUCCESS", "VRAD_GOOD"), name)

    def test_votable(self):
        path, result = self.written("votable")
        votable = Table.read(path, format="votable")
        found = {n: np.ma.filled(c, np.nan if c.dtype.kind == "f" else "") if c.dtype.kind in "fUSO"
                 else c for n, c in votable.columns.items()}
        self.assertEqual(sorted(found), sorted(result))
        self.assertColumns(found, result, ascii_only=True)
        column = votable["VRAD_ERR"]
        self.assertEqual((str(column.unit), column.meta["ucd"]),
                         ("km / s", "stat.error;spect.dopplerVeloc.opt"))
        self.assertIn("times ERR_SCALE", column.description)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertTrue(validate(path, sys.stdout), said.getvalue())

    def test_csv(self):
        path, result = self.written("csv")
        with open(path, encoding="utf-8", newline="") as file:
            names, *lines = csv.reader(file)
        self.assertEqual(set(result) - set(names), {"COVAR"})
        as_read = {"f": lambda v: float(v or "nan"), "i": int, "u": int}
        found = {}
        for name, texts_of in zip(names, zip(*lines)):
            kind = result[name].dtype.kind
            found[name] = [v == "True" for v in texts_of] if name in ("SUCCESS", "VRAD_GOOD") else \
                [as_read[kind](v) for v in texts_of] if kind in as_read else texts_of
        self.assertColumns(found, result)

    def test_parquet(self):
        pyarrow = self.package("pyarrow.parquet", "pyarrow", "parquet")
        path, result = self.written("parquet")
        made = pyarrow.read_table(path)
        pixel = made["_healpix_29"].to_numpy()
        order = [result["TARGETID"].tolist().index(t) for t in made["TARGETID"].to_pylist()]
        self.assertTrue((np.diff(pixel) >= 0).all())
        self.assertEqual(np.flatnonzero(pixel == -1).tolist(), [0])
        self.assertColumns({n: made[n].to_pylist() for n in made.column_names[1:]},
                           {n: v[order] for n, v in result.items()})
        self.assertEqual(made.schema.field("TEFF").metadata,
                         {b"unit": b"K", b"ucd": b"phys.temperature.effective",
                          b"description": b"teff of the best fit"})
        votable = io.BytesIO(made.schema.metadata[b"IVOA.VOTable-Parquet.content"])
        self.assertEqual(Table.read(votable, format="votable").colnames, made.column_names)

    def test_what_a_killed_job_left_goes(self):
        """A file, or the folder of a HATS catalogue."""
        from starmill.cli.running import OutputLock
        stale_lock(tmp("sky"))
        os.makedirs(tmp("sky.tmp-4194304-1/mapping"))
        put("other.tmp-4194304-1", "")
        with OutputLock(tmp("sky")):
            self.assertEqual(glob.glob(tmp("*.tmp-4194304-1")), [])

    def test_hats(self):
        self.package("hats_import", "(pyarrow|hats-import)", "hats")
        path, result = self.written("hats")
        files = glob.glob(os.path.join(path, "dataset", "**", "Npix*.parquet"), recursive=True)
        found = [t for name in files for t in Table.read(name)["TARGETID"].tolist()]
        self.assertEqual(sorted(found), sorted(np.delete(result["TARGETID"], 5).tolist()))

    def test_sn_of_an_arm_without_good_pixels(self):
        """Without good pixels SN_B is -1e9 in HDF5, NaN in FITS; compare takes other arms' S/N."""
        path = shutil.copy(OUT, tmp("no-b.h5"))
        edited(path, lambda fits, _: fits["SN_B"].put(3, -1e9))
        self.export("--to", "fits", "--output", tmp("no-b.fits"), path)
        for pair in (path, tmp("no-b.fits")), (tmp("no-b.fits"), path):
            self.assertIn("| SN | 9 | 0.00 | 0.00 |", run("compare", "--all", *pair).stdout)

    def test_pixels_of_the_sky(self):
        from starmill.products.sky import healpix
        ra, dec = np.array(PIXELS)[:, :2].T
        self.assertEqual(healpix(ra, dec).tolist(), [p for _, _, p in PIXELS])

    def test_products_that_are_there(self):
        folder = tmp("there")
        shutil.copytree(PRODUCTS, folder)
        first, second, third = (os.path.join(folder, "rvtab-" + os.path.basename(f)) for f in FILES)
        before = tree(folder)
        self.assertIn("written      0\nexisting     3", self.export("--output", folder, OUT).stdout)
        self.assertEqual(tree(folder), before)
        os.remove(first)  # missing
        os.utime(second, (1, 1))  # older than the result
        self.assertIn("written      2\nexisting     1", self.export("--output", folder, OUT).stdout)
        link = os.path.join(new_folder("links"), os.path.basename(first))  # stays a link
        os.symlink(tmp("linked.fits"), link)
        put("linked.fits", "")
        self.export("--output", tmp("links"), "--overwrite", OUT)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(plain(tmp("linked.fits")), plain(first))
        # of another result, and no export at all
        again = shutil.copy(OUT, tmp("again.h5"))
        with h5py.File(again, "r+") as f:
            f["provenance"].attrs.modify("RUN_ID", np.bytes_("0" * 32))
        shutil.copy(FILES[2], third)
        done = self.export("--output", folder, again, status=4)
        self.assertIn(first, done.stderr)
        self.assertIn(third, done.stderr)
        done = self.export("--output", folder, "--overwrite", again, status=4)
        self.assertOneLine(done, "starmill export: " + third, status=4)
        self.assertEqual(content(third), content(FILES[2]))
        self.assertEqual(pyfits.getheader(first)["RUNID"], "0" * 32)

    def test_one_file_replaces_nothing_else(self):
        own = tmp("own.fits")
        for args, says in (([], "rows         9\ntime"), ([], "existing     1"),
                           (["--overwrite"], "rows         9\ntime")):
            self.assertIn(says, self.export("--to", "fits", "--output", own, *args, OUT).stdout)
        other = put("other.fits", content(FILES[0]))
        for name, says, status in ((FILES[0], "one file", 2), (LIBRARY, "one file", 2),
                                   (other, "not an export of starmill", 4)):
            before = content(name)
            done = self.export("--to", "fits", "--output", name, "--overwrite", OUT, status=status)
            self.assertOneLine(done, "starmill export: ", name, says, status=status)
            self.assertEqual(content(name), before)

    def test_usage(self):
        for args, says in (
                (["--output", tmp("x")], "one result"), ([OUT], "give --output"),
                (["--to", "excel", "--output", tmp("x"), OUT], "--to"),
                (["--to", "rvmod", "--output", tmp("x"), OUT], "--models"),
                (["--models", MODELS, "--output", tmp("x"), OUT], "--models"),
                (["--to", "epochs", "--calibrated", "--output", tmp("x"), OUT], "not apply to --to epochs"),
                (["--to", "fits", "--subdirs", "--output", tmp("x"), OUT], "--subdirs"),
                (["--to", "rvmod", "--models", OUT, "--output", tmp("x"), OUT], "no models"),
                (["--prefix", "a/b", "--output", tmp("x"), OUT], "--prefix")):
            self.assertOneLine(self.export(*args, status=2), "starmill export: ", says, status=2)
        for path in (tmp("absent.h5"), LIBRARY):
            self.export("--output", tmp("x"), path, status=4, says=["starmill export: ", path])
        for folder, says in ((put("no-folder", ""), "is not a folder"), (tmp("x/y"), "made")):
            self.export("--output", folder, OUT, status=4, says=[folder, says])

    def test_names_of_products(self):
        from starmill.cli.basics import Failure
        from starmill.products.export import names_of
        for paths, subdirs, says in (
                (["a/x.fits", "a/y.fits", "b/z.fits.gz"], False, None),
                (["a/x.fits", "b/x.fits.gz"], False, "--subdirs"),
                (["a/x.fits", "b/x.fits.gz"], True, None),
                (["/d/100/1/x.fits", "/d/100/2/x.fits", "x.fits"], False, "x.fits"),
                (["/d/100/1/x.fits", "/d/100/2/x.fits", "x.fits"], True, None),
                (["/d/100/1/x.fits", "/e/100/1/x.fits"], True, "x.fits"),
                (["1/x.fits", "/d/2/x.fits", "x..y/x.fits"], True, None),
                (["../x.fits"], False, None), (["../x.fits"], True, "../x.fits"),
                (["/d/../a/x.fits"], True, "outside")):
            result = types.SimpleNamespace(files=paths, catalog={"files/N_ROW": np.ones(len(paths))})
            if says:
                self.assertRaisesRegex(Failure, says, names_of, result, subdirs, "")
            else:
                self.assertEqual(len(set(names_of(result, subdirs, "rvtab-"))), len(paths))
        result.files, result.catalog = ["a/x.fits", "b/x.fits"], {"files/N_ROW": np.arange(2)}
        self.assertEqual(names_of(result, False, ""), [None, "x.fits"])  # one has no product

    def moved(self, name):
        """A copy of the survey, and a fit of it."""
        folder = tmp(name)
        shutil.copytree(SURVEY, folder)
        files = [os.path.join(folder, os.path.basename(f)) for f in FILES]
        self.fit(name + ".h5", "--threads", 1, *files, lib=LIBRARY)
        return files

    def test_inputs_that_are_gone_or_changed(self):
        gone, changed, other = self.moved("moved")
        os.remove(gone)
        os.utime(changed)
        was = os.stat(other)
        with pyfits.open(other, mode="update") as hdus:
            hdus["FIBERMAP"].data["TARGETID"][1] += 1
        os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
        folder = tmp("moved-products")
        done = self.export("--output", folder, self.path, status=3)
        for path, says in ((gone, "cannot be read"), (changed, "has changed"),
                           (other, "but is another now")):
            self.assertOneLine(done, path, says, status=3)
        self.assertIn("written      0\nleft out     3 inputs, for the reasons above", done.stdout)
        self.assertEqual(os.listdir(folder), [])
        done = self.export("--no-fibermap", "--output", folder, self.path)
        self.assertIn("written      3", done.stdout)
        with pyfits.open(os.path.join(folder, "rvtab-coadd-mock-00000.fits")) as hdus:
            self.assertEqual([h.name for h in hdus], ["PRIMARY", "RVTAB"])
        # an export with FIBERMAP refuses to keep products without it
        self.assertIn("another export", self.export("--output", folder, self.path, status=4).stderr)

    def test_a_survey_that_was_moved(self):
        os.mkdir(tmp("here"))
        shutil.copytree(SURVEY, tmp("here/survey"))
        run("fit", "--library", LIBRARY, "--output", "out.h5", "--threads", 1,
            os.path.join("survey", os.path.basename(FILES[0])), cwd=tmp("here"))
        self.export("--output", tmp("from-elsewhere"), tmp("here/out.h5"), cwd=SURVEY)
        os.rename(tmp("here"), tmp("now"))
        self.export("--output", "products", "out.h5", cwd=tmp("now"))
        self.assertEqual(len(os.listdir(tmp("now/products"))), 1)

    def test_inputs_of_one_name(self):
        files = []
        for i, folder in enumerate(("100/10000", "100/10001")):
            os.makedirs(tmp("tiles/" + folder))
            files.append(os.path.join(tmp("tiles"), folder, "coadd.fits"))
            shutil.copy(FILES[i], files[-1])
        self.fit("tiles.h5", "--threads", 1, *files, lib=LIBRARY)
        done = self.export("--output", tmp("tiles-out"), self.path, status=2)
        self.assertOneLine(done, "coadd.fits", "--subdirs", status=2)
        self.export("--subdirs", "--prefix", "rvtab_", "--output", tmp("tiles-out"), self.path)
        self.assertEqual(sorted(tree(tmp("tiles-out"))),
                         ["100/10000/rvtab_coadd.fits", "100/10001/rvtab_coadd.fits"])

    def test_an_unfinished_fit(self):
        part = shutil.copy(OUT, tmp("part.h5"))
        unfinish(part, [1, 5])
        self.export("--output", tmp("part"), part, status=2, says=[part, "is not finished"])

    def test_a_damaged_row(self):
        bad = shutil.copy(OUT, tmp("bad.h5"))
        with h5py.File(bad, "r+") as f:
            f["fits/TEFF"][4] += 1
            f["fits/STATUS"][8] = 0
        rows = np.delete(np.arange(9), [4, 8])
        for kind, name in (("rvtab", "bad"), ("fits", "bad.fits"), ("rvmod", "bad"),
                           ("fits", "bad.fits")):  # what is there lacks them and is made again
            models = ["--models", MODELS] * (kind == "rvmod")
            done = self.export("--to", kind, *models, "--output", tmp(name), bad, status=3)
            self.assertOneLine(done, bad, "2 rows", "damaged and left out", status=3)
        expected = columns()["TARGETID"][0][rows]
        self.assertSame(pyfits.getdata(tmp("bad.fits"))["TARGETID"], expected, "table")
        for kind, table in (("rvtab", "RVTAB"), ("rvtab", "FIBERMAP"), ("rvmod", "FIBERMAP")):
            found = [pyfits.getdata(tmp(f"bad/{kind}-{os.path.basename(f)}"), table)["TARGETID"]
                     for f in FILES]
            self.assertSame(np.concatenate(found), expected, table)
        self.assertSame(pyfits.getdata(tmp("bad/rvmod-coadd-mock-00001.fits"), "B_MODEL"),
                        read(MODELS, "models/b")["flux"][[3, 5]], "model")
        shutil.copy2(OUT, bad)  # restored, older than the products
        for kind, name, says in (("rvtab", "bad", "written      2\nexisting     1"),
                                 ("fits", "bad.fits", "rows         9\ntime")):
            self.assertIn(says, self.export("--to", kind, "--output", tmp(name), bad).stdout)
        self.assertSame(pyfits.getdata(tmp("bad.fits"))["TARGETID"], columns()["TARGETID"][0], "table")

    def test_files_without_a_fibermap(self):
        """A plain table has none: RVTAB stands alone."""
        flux = 1 + 0.01 * np.sin(np.arange(900))
        generic.write(tmp("mine.fits"), [
            {"NAME": name, "WAVELENGTH": np.linspace(4000.0, 4400.0, 900), "FLUX": flux, "ERROR": 0.02 * flux,
             "LSF_SIGMA": np.full(900, 0.8)} for name in ("star-1", "star-2")], "vacuum", "barycentric")
        self.fit("mine.h5", "--threads", 1, tmp("mine.fits"), lib=LIBRARY)
        self.export("--output", tmp("mine"), self.path)
        with pyfits.open(tmp("mine/rvtab-mine.fits")) as hdus:
            self.assertEqual([h.name for h in hdus], ["PRIMARY", "RVTAB"])
            self.assertEqual(texts(hdus["RVTAB"].data["OBJECT"]), ["star-1", "star-2"])

    def test_a_wish_to_stop(self):
        out = tmp("stopped.fits")
        child = start("export", "--to", "fits", "--output", out, large())
        wait_until(lambda: any(map(os.path.getsize, glob.glob(out + ".tmp-*"))), child)
        self.assertIn("stopped in good order", self.said_by(child, 75, signal.SIGTERM)[1])
        self.assertEqual(glob.glob(out + "*"), [])

    def test_a_kill(self):
        """After a kill the same command works, and removes the temporary file that was left."""
        args = ["--to", "fits", "--output", tmp("killed.fits"), large()]
        child = start("export", *args)
        wait_until(lambda: glob.glob(tmp("killed.fits.tmp-*")), child)
        os.kill(child.pid, signal.SIGSTOP)
        self.assertOneLine(self.export(*args[:-1], OUT, status=4), "is being written by", status=4)
        child.kill()
        child.communicate(timeout=PATIENCE)
        for says in ("rows         60000\ntime", "existing     1 "):
            self.assertIn(says, self.export(*args).stdout)
        self.assertEqual(glob.glob(tmp("killed*")), [tmp("killed.fits")])
