# SPDX-License-Identifier: BSD-3-Clause
"""Command line, configuration, output and library mistakes of `starmill fit`; a plain run."""

from common import *  # noqa: F403


class Help(EndToEnd):
    def test_version_names_what_it_was_built_with(self):
        done = run("--version")
        for part in ("starmill", "MPI", "HDF5", "CFITSIO", "BLAS", "CUDA"):
            self.assertIn(part, done.stdout)

    def test_unknown_job(self):
        self.assertOneLine(starmill("fiit"), "fiit", "--help", status=2)
        self.assertOneLine(starmill("help", "fiit"), "fiit", status=2)
        self.assertEqual(starmill().returncode, 2)


class LibraryThatComes(EndToEnd):
    """`fit` without --library, by copies of the program with and without a library next to them."""

    def program(self, folder):
        path = tmp(os.path.join(folder, "starmill"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(STARMILL, path)
        return path

    def fit_without(self, program, *args, out="came.h5", status=0, says=()):
        return self.ends(status, "fit", "--output", tmp(out), "--overwrite", *args, cut("came.fits", [0]),
                         program=program, says=says)

    def test_none_came(self):
        self.fit_without(self.program("alone/bin"), out="none-came.h5", status=2, says=[
            "no library", "--library", "template_lib", "share/starmill/libraries/fgk.h5"])
        self.assertFalse(os.path.exists(tmp("none-came.h5")))

    def test_found_beside_the_program(self):
        self.fit("named.h5", cut("came.fits", [0]))
        for folder, place in (("installed/bin", "installed/share/starmill/libraries"),
                              ("checkout/build/release", "checkout/libraries")):
            os.makedirs(tmp(place))
            there = [os.path.realpath(shutil.copy(library(), tmp(os.path.join(place, name))))
                     for name in ("fgk.h5", "oba.h5")]
            done = self.fit_without(self.program(folder))
            for path in there:
                self.assertIn(f"no --library: fitting with {path}, shipped with starmill",
                              done.stderr)
            self.assertEqual(*(read(tmp(name))["TEFF"][0] for name in ("came.h5", "named.h5")))

    def test_a_library_that_is_named_goes_first(self):
        os.makedirs(tmp("both/share/starmill/libraries"))
        for name in ("fgk.h5", "oba.h5"):
            put(f"both/share/starmill/libraries/{name}", "no library")
        program = self.program("both/bin")
        self.assertNotIn("shipped with", self.fit_without(program, "--library", library()).stderr)
        self.fit_without(program, status=2, says=["both/share/starmill/libraries/fgk.h5"])


class Usage(EndToEnd):
    def assertRefused(self, *args, parts, status=2, ranks=0):
        self.ends(status, "fit", *args, ranks=ranks, says=["starmill fit: ", *parts])
        self.assertFalse(os.path.exists(tmp("refused.h5")))

    def test_bad_options(self):
        # values that are wrong by themselves: tests/jobs/options/test_options.c
        star = cut("usage.fits", [0])
        good = ["--library", library(), "--output", tmp("refused.h5")]
        for args, parts in (
            (["--fit-harder"], ["unknown", "--fit-harder"]),
            (["--threads", "4096"], ["threads: 4096", f"{os.cpu_count()} cores"]),
            (["--object-file", tmp("nowhere.txt")], ["nowhere.txt"]),
            (["--object-file", put("cut.fits", content(star)[:3000])], ["--object-file: ", "cut.fits: HDU 2"]),
            (["--backend", "cuda"], ["cuda", "cpu"]),
            ([star], [star, "same file"]),
            (["--catalog", tmp("nowhere.txt")], ["nowhere.txt", "No such file"]),
            *((["--catalog", put(f"list{i}.txt", text)], [f"list{i}.txt", says]) for i, (text, says) in enumerate((
                ("", "holds no path"), ("# only\n\n", "holds no path"),
                ("/a\n/b\0c\n", "line 2: holds a zero byte"), ("/a\n" + 2000 * "x", "line 2: shorten the path")))),
            *((["--object-file", put(f"ids{i}.txt", text)], [f"ids{i}.txt", says])
              for i, (text, says) in enumerate((
                  ("1\n" + "x" * 64, "line 2: 'xx"), ("a\x07\n", "line 1"), ("\n", "holds no star")))),
        ):
            with self.subTest(args=args):
                self.assertRefused(*good, *args, star, parts=parts)

    def test_what_is_missing_is_named(self):
        self.assertRefused("--threads", parts=["--threads", "value"])
        self.assertRefused("--library", library(), cut("usage.fits", [0]), parts=["--output"])
        self.assertRefused("--output", tmp("refused.h5"), "--library", library(),
                           parts=["no input", "--catalog"])

    def test_every_rank_ends_alike_and_the_error_is_told_once(self):
        self.assertRefused("--fit-harder", parts=["unknown", "--fit-harder"], ranks=3)
        self.assertRefused("--library", tmp("none.h5"), "--output", tmp("refused.h5"),
                           cut("usage.fits", [0]), parts=["none.h5"], ranks=3)


class Configuration(EndToEnd):
    def test_bad_keys_and_values(self):
        star = cut("usage.fits", [0])
        for text, parts in (("min_vel: -500\nnpoly: many\n", ["run.yaml:2", "npoly"]),  # more: test_config.py
                            ("fix_param: [{param: vsinni, value: 0}]\n", ["vsinni"]),
                            ("fix_param: [{param: teff, value: 9}]\n",
                             ["teff = 9 is outside", f" in {library()};", "or --library FILE"])):
            self.ends(2, "fit", "--config", put("run.yaml", text), "--library", library(),
                      "--output", tmp("refused.h5"), star, says=["starmill fit: ", *parts])
            self.assertFalse(os.path.exists(tmp("refused.h5")))

    def test_sampling_that_resolution_matrices_do_not_allow(self):
        for sampling in 1, 2:
            done = self.fit("coarse.h5", "--overwrite", "--config",
                            put("run.yaml", f"arms: [{{name: b, sampling: {sampling}}}]\n"), cut("usage.fits", [60]))
            self.assertEqual("matrices of 1 spectra need all" in done.stderr, sampling > 1, done.stderr)

    def test_print_config_is_printed_once(self):
        done = run("fit", "--print-config", ranks=2)
        self.assertEqual(len(re.findall("^npoly:", done.stdout, re.M)), 1)

    def test_template_lib_serves_as_library(self):
        """template_lib names the library.  Files have byte order marks and \\r\\n (Windows)."""
        config = put("run.yaml", f"\ufefftemplate_lib: {library()}\r\n")
        out, star = tmp("from_yaml.h5"), cut("usage.fits", [0])
        ids = put("ids.txt", f"\ufeff{pyfits.getdata(star, 'FIBERMAP')['TARGETID'][0]}\r\n")
        run("fit", "--config", config, "--output", out, "--object-file", ids,
            "--catalog", put("list.txt", "\ufeffusage.fits \t\r\n"))
        self.assertEqual(list(read(out)["STATUS"]), [FITTED])


class Output(EndToEnd):
    def test_no_place_for_a_result(self):
        star = cut("usage.fits", [0])
        put("letter.h5", "not HDF5")
        for args, parts in (
            (["--output", tmp("no/such.h5")], ["--output", tmp("no"), "create"]),
            (["--output", tmp("refused.h5"), "--models", tmp("no/such.h5")],
             ["--models", tmp("no"), "create"]),
            (["--output", TMP], [TMP]), (["--output", tmp("letter.h5")], ["letter.h5"]),
            (["--output", "/dev/full"], ["/dev/full"])):
            with self.subTest(args=args):
                done = starmill("fit", "--library", library(), *args, star)
                self.assertOneLine(done, "starmill fit: ", *parts, status=4)
                self.assertFalse(os.path.exists(tmp("refused.h5")))
        self.assertEqual(content(tmp("letter.h5")), b"not HDF5")

    def test_a_limit_on_the_size_of_files(self):
        path = tmp("limited.h5")
        # PMIx and UCX would make shared files of some megabytes, beyond the limit under test
        self.ends(4, "fit", "--library", library(), "--output", path, cut("usage.fits", [0]),
                  env={"PMIX_MCA_gds": "hash", "UCX_TLS": "self,sysv"},
                  preexec_fn=small_files(20_000), says=[path, "make room"])
        self.assertEqual(glob.glob(path + "*"), [])


class Library(EndToEnd):
    def test_too_many_open_files(self):
        """At each limit the run succeeds, or fails with the reason."""
        for n in range(10, 22, 2):
            done = starmill("fit", "--library", library(), "--output", tmp("few.h5"), "--overwrite",
                            cut("usage.fits", [0]), env={"UCX_TLS": "self"},
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
            self.assertNotIn("damaged", done.stderr)
            if done.returncode != 0:
                self.assertIn("oo many open files", done.stderr, n)
        self.assertEqual(done.returncode, 0)

    def test_no_library_at_all(self):
        star = cut("usage.fits", [0])
        for path, part in ((tmp("none.h5"), "none.h5"), (star, "usage.fits"), (TMP, TMP)):
            done = starmill("fit", "--library", path, "--output", tmp("refused.h5"), star)
            self.assertOneLine(done, "starmill fit: ", part, status=2)


class PlainRun(EndToEnd):
    """Six stars; the same command again; other commands on the same output."""

    def setUp(self):
        self.rows = [3, 50, 60, 100, 150, 180]
        self.stars = cut("six.fits", self.rows)

    def test_results_identity_and_rerun(self):
        done = self.fit("six.h5", self.stars)
        for part in ("rows         6", "fitted       6", self.path, "stars/s"):
            self.assertIn(part, done.stdout)
        self.assertNotIn("ERROR", done.stderr)
        table = read(self.path)
        self.assertEqual(list(table["STATUS"]), [FITTED] * 6)
        self.assertWhole(table)
        truth = pyfits.getdata(data("sim/truth-dev.fits"), 1)[self.rows]
        np.testing.assert_array_equal(table["TARGETID"], truth["TARGETID"])
        for name, floor in (("VRAD", 0.5), ("TEFF", 15), ("LOGG", 0.06), ("FEH", 0.05)):
            pull = (table[name] - truth[name]) / np.hypot(table[name + "_ERR"], floor)
            self.assertTrue((np.abs(pull) < 5).all(), f"{name}: {pull}")
        self.assertTrue((table["NEVAL"] > 0).all())
        np.testing.assert_allclose(
            table["CHISQ_TOT"], table["CHISQ_B"] + table["CHISQ_R"] + table["CHISQ_Z"], rtol=1e-12)
        self.assertTrue((table["CHISQ_TOT"] / table["NPIX_TOT"] < 1.5).all())
        self.assertTrue((table["CHISQ_C_TOT"] > table["CHISQ_TOT"] + 50).all())
        before = content(self.path), os.stat(self.path).st_mtime_ns
        put(self.path + ".lock", "not ours")  # the run writes nothing, so another's lock does not stop it
        self.assertIn("finished already", self.fit("six.h5", self.stars).stdout)
        os.remove(self.path + ".lock")
        # what may change between runs of one identity
        self.fit("six.h5", "--threads", 2, "--slots", 3, "--log-level", "debug", self.stars, ranks=2)
        # what may not
        for args in (["--npoly", 9, self.stars], ["--minsn", 7, self.stars],
                     [self.stars, cut("usage.fits", [0])]):
            done = starmill("fit", "--library", library(), "--output", self.path, *args)
            self.assertOneLine(done, "starmill fit: ", "six.h5", "--overwrite", status=4)
        self.assertEqual((content(self.path), os.stat(self.path).st_mtime_ns), before)
        self.fit("six.h5", "--overwrite", "--npoly", 9, self.stars)
        self.assertNotEqual(list(read(self.path)["CHISQ_TOT"]), list(table["CHISQ_TOT"]))

    def test_quiet_and_log_file(self):
        log = tmp("six.log")
        done = self.fit("quiet.h5", "--quiet", "--log", log, "--log-level", "debug", self.stars)
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        self.assertIn("six.fits", content(log, "r"))
