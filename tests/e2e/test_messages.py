# SPDX-License-Identifier: BSD-3-Clause
"""Messages name the errors that users make most often: wrong units, line-spread functions or medium
of the wavelengths, files that are cut or badly made."""

from base import *  # noqa: F403
from starmill.surveys import generic

N_STAR = 16
LIBRARY, SURVEY = coarse_survey(N_STAR)
C_KM_S = 299792.458


def stars(velocity_km_s=None):
    """The survey's red spectra as rows of the generic layout.  With velocity_km_s the stars are
    moved from their own velocities to this one."""
    folder = os.path.dirname(SURVEY)
    with pyfits.open(SURVEY) as h, pyfits.open(os.path.join(folder, "truth.fits")) as t:
        true = dict(zip(t[1].data["TARGETID"], t[1].data["VRAD"]))
        wave = h["R_WAVELENGTH"].data.astype("f8")
        rows = []
        for i, target in enumerate(h["FIBERMAP"].data["TARGETID"]):
            v = 0.0 if velocity_km_s is None else velocity_km_s[i] - true[target]
            rows.append({"NAME": f"star-{i}", "WAVELENGTH": wave * (1 + v / C_KM_S),
                         "FLUX": h["R_FLUX"].data[i],
                         # without its cosmics, as these rows have no mask
                         "IVAR": np.where(h["R_MASK"].data[i] == 0, h["R_IVAR"].data[i], 0),
                         "LSF_SIGMA": np.full(wave.size, 0.8)})
    return rows


def write(name, rows, medium="vacuum", **factor):
    """Write rows with columns multiplied by factors; a column of factor None is left out."""
    path = tmp(name)
    keep = [k for k in rows[0] if factor.get(k, 1) is not None]
    generic.write(path, [{k: row[k] * factor[k] if k in factor else row[k] for k in keep}
                              for row in rows], medium)
    return path


class Messages(ProgramTest):
    def fit(self, *args, **how):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(tmp("messages.h5"))
        return super().fit("messages.h5", *args, lib=LIBRARY, **how)

    def test_a_closed_pipe_stops_no_fit(self):
        done = ended(["bash", "-c", '"$@" 2>&1 | true; exit ${PIPESTATUS[0]}', "-", STARMILL, "fit", "--library",
                      LIBRARY, "--output", tmp("pipe.h5"), SURVEY])
        self.assertEqual((done.returncode, set(read(tmp("pipe.h5"))["STATUS"])), (0, {FITTED}))

    def assertStatuses(self, code):
        self.assertEqual(set(read(self.path)["STATUS"]), {code})

    def test_unit_of_wavelengths(self):
        rows = stars()[:3]
        for factor, unit in ((0.1, "nm"), (1e-4, "um"), (10, "tenths of A"), (1, "log10 of A"),
                             (2.302585093, "ln of A")):
            if factor == 1:
                rows = [dict(row, WAVELENGTH=np.log10(row["WAVELENGTH"])) for row in rows]
            path = write("unit.fits", rows, WAVELENGTH=factor, LSF_SIGMA=factor)
            first, last = rows[0]["WAVELENGTH"][[0, -1]] * factor
            n = 3 if last < 100 else 0
            self.fit(path, status=3, says=[path, f"its spectra, {first:.{n}f} to {last:.{n}f} A",
                                           f"are these {unit}?", LIBRARY])
            self.assertStatuses(OUTSIDE)

    def test_errors_far_from_the_noise(self):
        for factor, odd in ((1, 0), (0.015, 1), (100, 1)):  # 0.015: of a star whose IVAR was the variance
            done = self.fit(write("noise.fits", stars()[:3], IVAR=factor))
            self.assertEqual("3 of 3 fitted rows have ODD_NOISE" in done.stderr, bool(odd), done.stderr)
            self.assertEqual(list(read(self.path)["FIT_INFO"] & 8192), [8192 * odd] * 3)

    def test_a_width_that_is_not_used(self):
        for lsf, says in ("auto", "functions of their own"), ("off", "lsf is off"), ("resolving_power", ""):
            done = self.fit("--resolving-power", 3000, "--lsf", lsf, write("own.fits", stars()[:3]))
            self.assertEqual("fwhm are not used" in done.stderr, bool(says), done.stderr)
            self.assertIn(says, done.stderr)

    def test_absurd_sigma(self):
        rows = stars()[:3]
        path = write("wide.fits", rows, LSF_SIGMA=200)
        done = self.fit(path, status=3, says=[path, "sigma of the line-spread function is 160 A",
                                              "0.8 A wide", "unit"])
        self.assertIn("BAD_LSF", done.stdout)
        self.assertStatuses(BAD_LSF)
        path = write("narrow.fits", rows, LSF_SIGMA=1e-3)
        self.fit(path, says=[path, "sigma of the line-spread function is 0.0008 A"])
        self.assertNotIn("sigma of the line-spread", self.fit(write("good.fits", rows)).stderr)

    def test_templates_broader_than_the_spectra(self):
        """If most rows are affected, one message gives the numbers."""
        with h5py.File(LIBRARY, "r") as f:
            (templates,) = {arm.attrs["template_sigma"] for arm in f["arms"].values()
                            if arm.attrs["name"] == b"r"}
        rows = stars()[:12]
        for n_narrow, says in ((12, True), (7, True), (6, False)):
            sigma = [(0.7 if i < n_narrow else 1.5) * templates for i in range(12)]
            path = write("broad.fits", [{**row, "LSF_SIGMA": np.full(row["FLUX"].size, s)}
                                        for row, s in zip(rows, sigma)])
            for ranks in (0, 2) if n_narrow == 12 else (0,):
                done = self.fit(path, ranks=ranks)
                self.assertEqual((read(self.path)["FIT_INFO"] & 16 != 0).sum(), n_narrow)
                if says:
                    self.assertOneLine(done, f"{n_narrow} of 12 fitted rows have LSF_NARROW",
                                       f"arm r: templates' sigma {templates:.3g} A, spectra's "
                                       f"{0.7 * templates:.3g} A", status=0)
                else:
                    self.assertNotIn("LSF_NARROW:", done.stderr)

    def test_missing_line_spread_function_comes_first(self):
        beyond = [{**row, "WAVELENGTH": row["WAVELENGTH"] + 9000} for row in stars()[:3]]
        path = write("pieces.fits", [{**row, "ARM": arm} for pieces in zip(stars()[:3], beyond)
                                     for row, arm in zip(pieces, ("one", "two"))], LSF_SIGMA=None)
        self.assertIn("set resolving_power", self.fit(path, status=3).stderr)
        self.assertStatuses(NO_RESOLUTION)

    def test_air_and_vacuum(self):
        # the median of 16 stars has an error of 2 km/s; the message needs 10 (jobs/fit/hints.c)
        rows = stars(np.random.default_rng(4).normal(0, 5, N_STAR))
        self.assertNotIn("median velocity", self.fit(write("right.fits", rows)).stderr)
        done = self.fit(write("wrong.fits", rows, medium="air"))
        self.assertOneLine(done, "the median velocity of", "in vacuum", "--medium vacuum", status=0)
        self.assertNotIn("median velocity",
                         self.fit("--medium", "vacuum", write("wrong.fits", rows, "air")).stderr)
        for row in rows:  # the inverse of the conversion, well enough
            s2 = (1e4 / row["WAVELENGTH"]) ** 2
            row["WAVELENGTH"] = row["WAVELENGTH"] / (
                1 + 8.336624212083e-5 + 0.02408926869968 / (130.1065924522 - s2)
                + 1.599740894897e-4 / (38.92568793293 - s2))
        self.fit(write("air.fits", rows), says=["the median velocity of", "in air", "--medium air"])

    def test_fetch_it_again(self):
        """The message says so of files that are cut, and of no others."""
        whole = content(write("whole.fits", stars()[:2]))
        header = whole.index(b"TTYPE1")
        for name, data, is_cut in (
            ("cut.fits", whole[:-3000], True), ("header.fits", whole[:header + 100], True),
            ("empty.fits", b"", True),
            ("keyword.fits", whole.replace(b"TTYPE1", b"ttype1", 1), False),
            ("column.fits", whole.replace(b"'FLUX ", b"'FLOX ", 1), False)):
            with self.subTest(name=name):
                put(name, data)
                done = self.fit(tmp(name), status=3)
                self.assertEqual("fetch it again" in done.stderr, is_cut, done.stderr)
