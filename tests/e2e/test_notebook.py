# SPDX-License-Identifier: BSD-3-Clause
"""`starmill.Result` and spectra of astropy, as notebooks use them."""

import types
from concurrent.futures import ThreadPoolExecutor

import astropy.units as u
from astropy.nddata import StdDevUncertainty, VarianceUncertainty
from astropy.table import Table

from base import *  # noqa: F403
from starmill import Result
from test_export import FILES, LIBRARY, MODELS, OUT, columns, setUpModule  # noqa: F401


class Notebook(unittest.TestCase):
    def values(self, name):
        return columns()[name][0]

    def test_columns_are_those_of_the_file(self):
        result, names = Result(OUT), columns()
        found = dict(result)
        self.assertEqual(set(found), set(names))
        for name, (values, _, _) in names.items():
            if values.dtype.kind == "S":
                values = np.array([v.decode() for v in values.tolist()])
            np.testing.assert_array_equal(found[name], values, name)
        self.assertEqual(found["SUCCESS"].dtype, bool)
        self.assertTrue("TEFF" in result and "TEF" not in result)
        self.assertEqual((len(result), result.units["TEFF"], result.ucds["FEH"]),
                         (9, "K", "phys.abund.Z"))
        self.assertEqual(result.covariance(2)[0, 0], found["COVAR"][2, 0])

    def test_some_rows_and_columns(self):
        result = Result(OUT)
        warm = result[result["TEFF"] > 5000]
        at = np.flatnonzero(self.values("TEFF") > 5000)
        self.assertTrue(0 < len(at) < len(result))
        for found in (warm, result.select("TEFF > 5000"), result[at], result[at.tolist()]):
            self.assertEqual(found.rows.tolist(), at.tolist())
        np.testing.assert_array_equal(warm[1:]["VRAD"], self.values("VRAD")[at[1:]])
        self.assertEqual(warm[-1].rows.tolist(), [at[-1]])
        name = self.values("IDENTIFIER")[7].decode()
        for star in (name, int(self.values("TARGETID")[7]), str(self.values("TARGETID")[7])):
            self.assertEqual(result.star(star).rows.tolist(), [7])
        self.assertEqual(list(result[["TEFF", "VRAD"]]), ["TEFF", "VRAD"])
        self.assertEqual(result[[]]["TEFF"].tolist(), [])
        for error, says, call, given in (
                (KeyError, "did you mean TEFF", result.__getitem__, "TEF"),
                (KeyError, "no column X", result.__getitem__, ["TEFF", "X"]),
                (KeyError, "did you mean TEFF", result.to_astropy, ["TEF"]),
                (TypeError, "indexed by", result.__getitem__, 1.5),
                (TypeError, "indexed by", result.__getitem__, result["TEFF"]),
                (IndexError, "", result.__getitem__, [True]),
                (KeyError, "no row has", result.star, "nobody"),
                (KeyError, "no row here", result[:7].star, name),
                (ValueError, "cannot be understood", result.select, "TEFF >"),
                (ValueError, "9 rows", result.plot, None),
                (OSError, "not a result", Result, LIBRARY)):
            self.assertRaisesRegex(error, says, call, given)

    def test_gaps_and_damaged_rows(self):
        path = shutil.copy(OUT, tmp("notebook.h5"))
        with h5py.File(path, "r+") as f:
            f["fits/SN_B"][2] = -1e9
            seal(f, 2)
            f["fits/TEFF"][4] += 1
        with self.assertWarnsRegex(UserWarning, r"1 row \(4\) is damaged"):
            result = Result(path)
        self.assertEqual(result.rows.tolist(), [0, 1, 2, 3, 5, 6, 7, 8])
        self.assertEqual(np.flatnonzero(np.isnan(result["SN_B"])).tolist(), [2])
        self.assertEqual(result.select("isnan(SN_B)").rows.tolist(), [2])
        self.assertEqual(len(Result(path, check=False)), 9)
        path = shutil.copy(OUT, tmp("no-row.h5"))
        with h5py.File(path, "r+") as f:
            f["fits/TEFF"][...] += 1
        with self.assertWarnsRegex(UserWarning, "9 rows .* damaged"):
            self.assertEqual(Result(path)["IDENTIFIER"].dtype.kind, "U")

    def test_threads_open_results(self):
        """Opening a result forks a process, in which no lock of another thread may stay locked."""
        opened = ThreadPoolExecutor(4).map(lambda _: Result(OUT)["VRAD"], range(24), timeout=PATIENCE)
        self.assertEqual(len(list(opened)), 24)

    def test_tables_of_astropy_and_pandas(self):
        result = Result(OUT)
        made = result[:3].to_astropy()
        self.assertEqual((made.colnames, len(made)), (result.names, 3))
        self.assertEqual((str(made["VRAD"].unit), made["LOGG"].unit, made["VRAD"].meta["ucd"]),
                         ("km / s", None, "spect.dopplerVeloc.opt"))
        self.assertIn("log(cm s**-2)", made["LOGG"].description)
        read = Table.read(OUT, path="fits")
        np.testing.assert_array_equal(read["VRAD"], self.values("VRAD"))
        self.assertNotIn("IDENTIFIER", read.colnames)
        catalog = Table.read(OUT, path="catalog")
        self.assertNotIn("VRAD", catalog.colnames)
        with h5py.File(OUT) as f:
            np.testing.assert_array_equal(catalog["TARGETID"], f["catalog/TARGETID"])
        self.assertEqual(Table.read(OUT, path="/fits/").colnames, read.colnames)
        for path in "epochs", "catalog/files", "fit":
            with self.assertRaisesRegex(KeyError, f"no table at path {path}: give fits or catalog"):
                Table.read(OUT, path=path)
        self.assertIn("9 rows", repr(result))
        self.assertIn("<td>", result._repr_html_())
        with contextlib.suppress(ImportError):
            import pandas  # noqa: F401
            frame = result.to_pandas(["TARGETID", "COVAR"])
            np.testing.assert_array_equal(frame["COVAR"][4], self.values("COVAR")[4])

    def test_a_picture_of_a_star(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError as missing:
            self.skipTest(missing)
        result = Result(OUT)
        figure = result.plot(self.values("TARGETID")[3], models=MODELS)
        self.assertGreater(len(figure.axes), 6)
        words = " ".join(text.get_text() for text in figure.texts)
        self.assertRegex(words, r"flux \(.*10\^\{-17\}.*erg")
        part = result[3].plot(models=MODELS, limits=(5800, 7000))
        self.assertEqual(len(part.axes), 2)
        from starmill import Library, Spectrum
        star = Library(LIBRARY, format="desi").open(FILES[1])[0]
        for axes, drawn in zip(part.axes, star.plot(limits=(5800, 7000)).axes):
            for line, other in zip(axes.lines, drawn.lines):
                np.testing.assert_allclose(other.get_ydata(), line.get_ydata(), 1e-3, 0.01)
        self.assertRaisesRegex(ValueError, "no pixels of the star", star.plot, limits=(1, 2))
        spread = []
        for counted in (True, False):  # the library's own error
            library = Library(os.path.join(SOURCE, "libraries", "fgk.h5"), format="desi",
                              model_error=counted)
            figure = library.open(FILES[1])[0].plot(library.theta(vrad=20, teff=5500, logg=4))
            spread.append(np.nanmedian(np.abs(figure.axes[1].lines[0].get_ydata())))
        self.assertLess(spread[0], 0.9 * spread[1])
        star = star.library.star(Spectrum(np.arange(6000, 7000.0), *np.zeros((2, 1000)), sigma=1))
        self.assertRaisesRegex(ValueError, "cannot be fitted: STATUS 3", star.plot)
        with unittest.mock.patch("starmill.result.program", lambda: None), \
                unittest.mock.patch.object(type(result._file), "models_path", lambda _: None):
            self.assertRaisesRegex(ValueError, "no program starmill", result[3].plot)

    def test_spectra_of_astropy(self):
        from starmill import Spectrum  # of libstarmill
        table = {"wavelength": [500, 501.0] * u.nm, "flux": [1, 2.0] * u.Jy,
                 "flux_err": [500, 1000.0] * u.mJy}
        error = StdDevUncertainty([0.5, 1.0], unit=u.Jy)

        def spectrum(axis, flux=table["flux"], uncertainty=error):
            return types.SimpleNamespace(spectral_axis=axis, flux=flux, uncertainty=uncertainty,
                                         mask=np.array([False, True]))
        nm, hz = table["wavelength"], table["wavelength"].to("THz", u.spectral())
        rows = Table([c[None] for c in table.values()], names=list(table))
        for made in (Spectrum.from_table(table), Spectrum.from_table(rows),
                     Spectrum.from_specutils(spectrum(nm)),
                     Spectrum.from_specutils(spectrum(
                         hz, uncertainty=VarianceUncertainty([0.25, 1.0], unit=u.Jy**2)))):
            np.testing.assert_allclose(made.wave, [5000, 5010])
            np.testing.assert_allclose(made.flux, [1, 2])
            np.testing.assert_allclose(made.ivar, [4, 1], rtol=1e-6)
        backwards = Spectrum.from_specutils(spectrum(nm[::-1]), sigma=[1.0, 2.0], air=True,
                                            resolution=[[1, 2], [3, 4], [5, 6]])
        self.assertEqual([*backwards.flux, *backwards.ivar, *backwards.mask, *backwards.sigma,
                          backwards.air], [2, 1, 1, 4, -1, 0, 2, 1, True])
        self.assertEqual(backwards.resolution.tolist(), [[6, 5], [4, 3], [2, 1]])
        sdss = Spectrum.from_table({**table, "and_mask": [1 << 16, 1 << 22 | 1 << 24]})
        self.assertEqual(sdss.mask.tolist(), [0, 1 << 22])  # NOSKY alone is bad
        for kind, power in ("ivar", -2), ("flux_err", 1):
            made = Spectrum.from_table({"wave": nm, "flux": [1, 2.0], "sigma": [7, 8.0],
                                        kind: np.array([0.5, 1]) ** power})
            np.testing.assert_allclose(made.ivar, [4, 1])
        of = Spectrum
        for error, says, call, given in (
                (TypeError, "not list", of.from_specutils, [1, 2]),
                (TypeError, "not SimpleNamespace", of.from_table, spectrum(nm)),
                (TypeError, "know its units", of.from_table, rows.as_array().view(pyfits.FITS_rec)),
                (ValueError, "no flux, ivar or error", of.from_table, {"wave": nm}),
                (ValueError, "wavelength, lam; leave one", of.from_table, {**table, "lam": nm}),
                (ValueError, "err, flux_err; leave one", of.from_table, {**table, "err": [1, 1]}),
                (ValueError, "wave, loglam; leave", of.from_table, {"wave": nm, "loglam": [3, 4]}),
                (ValueError, "no ivar or error", of.from_table, {
                    "wave": nm, "flux": [1, 2.0], "sigma": [1, 1.0], "var": [4, 4.0]}),
                (ValueError, "no uncertainty", of.from_specutils, spectrum(nm, uncertainty=None)),
                (ValueError, r"spectrum\[i\]", of.from_specutils, spectrum(nm, np.ones((2, 2))))):
            self.assertRaisesRegex(error, says, call, given)
