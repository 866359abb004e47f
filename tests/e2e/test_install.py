# SPDX-License-Identifier: BSD-3-Clause
"""`cmake --install` makes a tree that works from anywhere and can be moved.  Tests of the installed
libstarmill: names, header, pkg-config, CMake, the same bits as the program, and the Python module
in a fresh virtual environment.  Also a test of `make dist`."""

import tarfile

from base import *  # noqa: F403
import starmill as libstarmill

CMAKE = shutil.which("cmake")
BUILD = os.path.dirname(STARMILL)
if not CMAKE or not os.path.exists(os.path.join(BUILD, "cmake_install.cmake")):
    skip("no cmake, or the program is in no build folder")

# environment without the build's folders and the user's variables
CLEAN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": TMP, "LC_ALL": "C.UTF-8", "TMPDIR": TMP,
         "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MPIRUN": MPIRUN,
         "ASAN_OPTIONS": ENVIRONMENT.get("ASAN_OPTIONS", "")}


def call(*args, env=None, cwd=TMP):
    return subprocess.run([str(a) for a in args], env={**CLEAN, **(env or {})}, cwd=cwd,
                          timeout=PATIENCE, **PIPES)


HAS_PAGES = os.path.isdir(os.path.join(BUILD, "help", "man1"))


@unittest.skipUnless(HAS_PAGES, "the man pages are not made (target help_pages)")
class Installed(ProgramTest):
    @classmethod
    def setUpClass(cls):
        first = tmp("first")
        done = call(CMAKE, "--install", BUILD, "--prefix", first)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.prefix = tmp("moved")
        os.rename(first, cls.prefix)
        cls.program = os.path.join(cls.prefix, "bin", "starmill")

    def path(self, *names):
        path = os.path.join(self.prefix, *names)
        self.assertTrue(os.path.isfile(path), path)
        return path

    def works(self, *args, **how):
        done = call(*args, **how)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_files(self):
        for name in ("starmill/libraries/fgk.h5", "starmill/config/lamost.yaml",
                     "starmill/slurm/job.sh", "starmill/config/templates/desi.yaml",
                     "man/man1/starmill.1", "man/man1/starmill-fit.1", "doc/starmill/LICENSE",
                     "doc/starmill/use/install.md"):
            self.path("share", name)

    def test_what_is_not_built_is_named(self):
        """Before anything is installed."""
        script = content(os.path.join(BUILD, "cmake_install.cmake"), "r").replace(BUILD, tmp("empty"))
        put("cmake_install.cmake", script)
        done = call(CMAKE, f"-DCMAKE_INSTALL_PREFIX={tmp('nowhere')}", "-P",
                    tmp("cmake_install.cmake"))
        self.assertNotEqual(done.returncode, 0)
        said = " ".join(done.stderr.split())
        self.assertIn(f"{tmp('empty')}/lib/libstarmill.so is not built", said)
        self.assertIn(f"--build {tmp('empty')} --target to_install", said)
        self.assertFalse(os.path.exists(tmp("nowhere")))

    def test_is_the_program_that_was_built(self):
        self.assertEqual(self.works(self.program, "--version"), run("--version").stdout)

    def runpath(self, program):
        said = self.works("readelf", "-d", program)
        return [folder for path in re.findall(r"\((?:RUN|R)PATH\).*\[(.*)\]", said)
                for folder in path.split(":")]

    @unittest.skipUnless(shutil.which("readelf"), "no readelf (Debian: binutils)")
    def test_libraries_are_found_without_the_build_folder(self):
        """Those of modules and private folders too."""
        self.assertNotIn("not found", self.works("ldd", self.program))
        # CMake pads the build's path in the program with colons
        linked = [folder for folder in self.runpath(STARMILL)
                  if folder and not folder.startswith(BUILD)]
        self.assertEqual([f for f in self.runpath(self.program) if not f.startswith("$ORIGIN")], linked)

    def test_smoke_test_finds_program_and_library(self):
        """The smoke test uses the installed library, not the checkout's."""
        said = self.works(self.path("share", "starmill", "smoke-test"))
        self.assertIn("four stars fitted alone, and with two ranks\n", said)

    def test_images_have_what_the_smoke_test_needs(self):
        """The images copy all of /usr/local, or some of its folders."""
        for name in ("Containerfile", "Containerfile.cuda", "starmill.def"):
            with self.subTest(name=name):
                text = content(os.path.join(SOURCE, "packaging", name), "r")
                copied = re.findall(r"(?m)^ *(?:COPY --from=build )?/usr/local(\S*) /usr", text)
                self.assertTrue(copied)
                for folder in copied:
                    shutil.copytree(self.prefix + folder, tmp(name) + folder, symlinks=True)
                self.works(os.path.join(tmp(name), "share", "starmill", "smoke-test"))

    def test_smoke_test_fails_where_the_library_is_missing(self):
        other = tmp("without")
        for name in ("bin/starmill", "share/starmill/smoke-test"):
            os.makedirs(os.path.dirname(os.path.join(other, name)), exist_ok=True)
            shutil.copy(self.path(*name.split("/")), os.path.join(other, name))
        shutil.copytree(os.path.join(self.prefix, "share/starmill/python"),
                        os.path.join(other, "share/starmill/python"))
        done = call(os.path.join(other, "share/starmill/smoke-test"))
        self.assertOneLine(done, "smoke-test", "simulate ended with status 2", status=1)
        self.assertIn("share/starmill/libraries/fgk.h5", done.stderr)

    def test_configurations_are_read(self):
        for name in ("4most", "desi", "lamost", "lamost-mrs", "sdss", "weave"):
            said = self.works(self.program, "fit", "--print-config", "--config",
                              self.path("share", "starmill", "config", f"{name}.yaml"))
            self.assertIn("npoly", said)

    def test_tools_run(self):
        folder = {"PYTHONPATH": os.path.join(self.prefix, "share", "starmill", "python")}
        said = self.works(sys.executable, "-B", "-m", "starmill.templates.real_library", "--help",
                          env=folder)
        self.assertIn("usage", said.lower())
        said = self.works(self.program, "grid", "plan", "--models", "3")
        self.assertEqual(len(said.splitlines()), 3)

    def test_submit_finds_its_scripts(self):
        said = self.works(self.path("bin", "starmill-submit"), "--dry-run", "--rows", "1000", "cpu",
                          "--library", self.path("share", "starmill", "libraries", "fgk.h5"),
                          "--output", tmp("OUT.h5"), "no-such-coadd.fits")
        self.assertIn("#SBATCH", said)

    @unittest.skipUnless(shutil.which("man"), "no man (Debian: man-db)")
    def test_man_finds_the_pages(self):
        said = self.works("man", "-M", os.path.join(self.prefix, "share", "man"), "starmill-merge")
        self.assertIn("STARMILL-MERGE(1)", said)

    def test_bash_finds_the_completion(self):
        path = self.path("share", "bash-completion", "completions", "starmill")
        self.assertIn("-F _starmill starmill", self.works("bash", "-c", '. "$1"; complete -p starmill',
                                                          "bash", path))
        self.assertEqual(content(path, "r"), run("help", "completion").stdout)


@unittest.skipUnless(HAS_PAGES, "the man pages are not made (target help_pages)")
class Distribution(ProgramTest):
    def test_version_stands_in_one_place(self):
        (version,) = re.findall(r"^version: (.*)$", content(os.path.join(SOURCE, "CITATION.cff"), "r"),
                                re.M)
        self.assertRegex(run("--version").stdout, rf"\A\S+ +{re.escape(version)}\b")

    def test_archive_is_whole_and_knows_its_commit(self):
        def git(*args):
            return subprocess.run(["git", "-C", SOURCE, *args], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, timeout=PATIENCE)
        top = git("rev-parse", "--show-toplevel") if shutil.which("git") else None
        if not top or os.path.realpath(top.stdout.strip()) != os.path.realpath(SOURCE):
            self.skipTest("the source is no checkout of git")
        archive = tmp("starmill-1.2.3.tar.gz")
        done = call(CMAKE, f"-DGIT={shutil.which('git')}", f"-DSOURCE_DIR={SOURCE}",
                    f"-DOUTPUT={archive}", "-P", os.path.join(SOURCE, "cmake", "dist.cmake"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with tarfile.open(archive) as tar:
            names = {m.name for m in tar.getmembers() if not m.isdir()}
            tar.extractall(TMP, [m for m in tar.getmembers() if "/cmake" in m.name])
        tracked = git("ls-tree", "-r", "--name-only", "HEAD").stdout.split()
        self.assertEqual(names, {f"starmill-1.2.3/{name}" for name in tracked})
        unpacked = tmp("starmill-1.2.3")
        done = call(CMAKE, f"-DGIT={shutil.which('git')}", f"-DSOURCE_DIR={unpacked}",
                    f"-DOUTPUT={tmp('revision.h')}", "-P", os.path.join(unpacked, "cmake", "revision.cmake"))
        self.assertEqual(done.returncode, 0, done.stderr)
        commit = git("rev-parse", "HEAD").stdout[:12]
        self.assertEqual(content(tmp("revision.h"), "r"), f'#define MILL_REVISION "{commit}"\n')


PREFIX = tmp("installed")
HEADER = os.path.join(PREFIX, "include", "starmill", "starmill.h")
N_STAR = 5
WHEEL = os.environ.get("STARMILL_WHEEL")


def called(*args, **how):
    """Run another program; .returncode, and .stdout with what it said."""
    return ended(args, stderr=subprocess.STDOUT, **how)


def of_installed(what):
    """A file of the installed tree, whatever its library folder is called."""
    (path,) = glob.glob(os.path.join(PREFIX, "**", what), recursive=True)
    return path


class InstalledLibrary(ProgramTest):
    @classmethod
    def setUpClass(cls):
        done = called("cmake", "--install", BUILD, "--prefix", PREFIX)
        assert done.returncode == 0, done.stdout
        cls.shared = of_installed("libstarmill.so")
        if "__asan" in called("nm", "-D", cls.shared).stdout:
            raise unittest.SkipTest("a build with sanitizers cannot be linked with other programs")
        cls.env = {"PKG_CONFIG_PATH": os.path.dirname(of_installed("starmill.pc"))}
        cls.library, cls.survey = coarse_survey(N_STAR)

    def does(self, *args, **how):
        """A program ends well; what it said."""
        done = called(*args, **{"env": self.env, **how})
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def result(self):
        if not os.path.exists(tmp("result.h5")):
            self.fit("result.h5", "--backend", "cpu", "--threads", 1, self.survey, lib=self.library)
        return tmp("result.h5")

    def flags(self, *options):
        return self.does("pkg-config", *options, "starmill").split()

    def build(self, source, out, *more, compiler="cc"):
        self.does(compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", tmp(out), source,
                  *self.flags("--cflags"), *more)
        return tmp(out)

    def test_names_are_those_that_are_listed(self):
        listed = content(os.path.join(SOURCE, "tests", "libstarmill", "abi.txt"), "r").split()
        found = self.does("nm", "-D", "--defined-only", self.shared).splitlines()
        self.assertEqual(sorted(line.split()[2].replace("@@", "@") for line in found
                                if not re.search(r" A STARMILL_[0-9.]+$", line)), listed)
        # header and static library have exactly these functions
        declared = re.findall(r"STARMILL_API [^;(]*?(starmill_\w+)\(", content(HEADER, "r"))
        self.assertEqual(sorted(declared), [name.split("@")[0] for name in listed])
        static = self.does("nm", "-g", "--defined-only", of_installed("libstarmill.a"))
        self.assertEqual(sorted(re.findall(r" [A-Z] (\w+)$", static, re.MULTILINE)),
                         sorted(declared))

    def test_the_header_is_c11_and_cxx17(self):
        # without MPI's own classes of C++
        of_mpi = ("-DOMPI_SKIP_MPICXX", *self.flags("--cflags"),
                  HEADER.replace("starmill.h", "starmill_mpi.h"))
        for compiler, standard, what in (
                ("cc", "c11", ("-pedantic", HEADER)), ("c++", "c++17", ("-pedantic", HEADER)),
                ("mpicc", "c11", of_mpi), ("mpicxx", "c++17", of_mpi)):
            if shutil.which(compiler):
                self.does(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror",
                          "-fsyntax-only", "-x", standard[:-2], *what)

    def test_stars_of_a_file_are_fitted_as_by_the_program(self):
        library = libstarmill.Library(self.library, format="desi", threads=2, slots=3)
        file, result = library.open(self.survey), libstarmill.open_result(self.result())
        table = libstarmill.fit(list(file))
        self.assertEqual((len(table), len(result)), (N_STAR, N_STAR))
        self.assertEqual((table.units, table.descriptions), (result.units, result.descriptions))
        for name in result.names:
            self.assertEqual(table[name].dtype, result[name].dtype, name)
            self.assertEqual(table[name].tobytes(), result[name].tobytes(), name)
        self.assertEqual([file.row(i)[0] for i in range(N_STAR)],
                         [x.decode() for x in result["catalog/IDENTIFIER"]])
        made = result.to_astropy(["catalog/TARGET_RA", "TEFF"])
        self.assertEqual((str(made["catalog/TARGET_RA"].unit), made["TEFF"].tolist()),
                         ("deg", result["TEFF"].tolist()))
        with self.assertRaisesRegex(KeyError, "no column catalog/NONE"):
            result.to_astropy(["catalog/NONE"])
        # without the format the dichroic would not be masked
        with self.assertRaisesRegex(libstarmill.StarmillError, "format: desi"):
            list(libstarmill.Library(self.library, npoly=10).open(self.survey))

    @unittest.skipUnless(shutil.which("mpicc"), "no mpicc")
    def test_ranks_share_a_fit_and_fail_together(self):
        program = self.build(os.path.join(SOURCE, "tests", "libstarmill", "fit_ranks.c"), "fit_ranks",
                             *self.flags("--libs"), compiler="mpicc")
        args = [program, self.library, "format: desi\n", self.survey, self.result()]
        for n in (2, N_STAR + 1):  # the last has a rank without a star
            said = self.does(MPIRUN, "-n", n, *args, env=ENVIRONMENT)
            self.assertRegex(said, rf"{n} ranks, {N_STAR} rows, \d+ columns, 0 differ")
        done = called(MPIRUN, "-n", 2, *args, 1, env=ENVIRONMENT)
        # STARMILL_USAGE, told by both
        self.assertEqual(len(re.findall("1: the table: no column NOTHING", done.stdout)), 2,
                         done.stdout)

    def test_the_example_by_pkg_config_and_by_cmake(self):
        source = os.path.join(SOURCE, "libstarmill", "examples", "fit_star.c")
        self.assertLessEqual(content(source, "r").count("\n"), 50)
        with pyfits.open(self.survey) as f:
            wave, ivar = f["R_WAVELENGTH"].data, f["R_IVAR"].data[0].astype(float)
            error = np.where(ivar > 0, 1 / np.sqrt(np.where(ivar > 0, ivar, 1)), 0)
            np.savetxt(tmp("star.txt"), np.array([wave, f["R_FLUX"].data[0], error]).T)
        folder = new_folder("by-cmake")
        put(os.path.join(folder, "CMakeLists.txt"), f"""cmake_minimum_required(VERSION 3.22)
project(example C)
find_package(starmill 0.1 REQUIRED)
foreach(kind starmill static)
  add_executable(${{kind}}_example "{source}")
  target_link_libraries(${{kind}}_example PRIVATE starmill::${{kind}})
endforeach()
""")
        self.does("cmake", "-S", folder, "-B", os.path.join(folder, "build"),
                  f"-DCMAKE_PREFIX_PATH={PREFIX}")
        self.does("cmake", "--build", os.path.join(folder, "build"))
        programs = [
            self.build(source, "shared", *self.flags("--libs"),
                       f"-Wl,-rpath,{os.path.dirname(self.shared)}"),
            self.build(source, "static", of_installed("libstarmill.a"),
                       *[f for f in self.flags("--libs", "--static") if f != "-lstarmill"]),
            *(os.path.join(folder, "build", kind + "_example") for kind in ("starmill", "static"))]
        said = {self.does(program, self.library, tmp("star.txt")) for program in programs}
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said.pop(), r"(?s)VRAD -?\d.*km/s\nVSINI .*TEFF \d+.*-2 ln L -?\d")
        failed = called(programs[0], tmp("no library"), tmp("star.txt")).stdout
        self.assertRegex(failed, r"(?s)^(?!.*ln L).*no library")

    def test_the_python_module_in_a_fresh_environment(self):
        """The module is the installed tree's, or of the wheel that packaging/wheel-test names."""
        python = os.path.join(tmp("venv"), "bin", "python")
        made = called(sys.executable, "-m", "venv", tmp("venv"))
        if made.returncode == 0:
            made = called(python, "-m", "pip", "install", "-q", "--no-compile", "--retries", 1,
                          "--timeout", 20, "pytest", WHEEL or "numpy", "cffi", timeout=400)
        if made.returncode != 0:
            self.skipTest("no virtual environment with cffi, numpy and pytest can be made: "
                          + (made.stdout.strip().splitlines() or ["no reason"])[-1])
        env = {"STARMILL_TEST_LIBRARY": self.library, "STARMILL_TEST_SURVEY": self.survey,
               "STARMILL_TEST_RESULT": self.result(), "STARMILL_PROGRAM": ""}
        if not WHEEL:
            env["PYTHONPATH"] = os.path.join(PREFIX, "share", "starmill", "python")
        said = self.does(python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                         os.path.join(SOURCE, "python", "tests"), env=env)
        self.assertRegex(said, r"\d+ passed")
        self.assertNotRegex(said, "skipped|failed")
        if WHEEL:
            self.use_wheel(os.path.dirname(python))

    def use_wheel(self, folder):
        """The command and the module, with neither the checkout nor another starmill."""
        def does(name, *args):
            return self.does("env", "-i", f"HOME={TMP}", os.path.join(folder, name), *args, cwd=TMP)
        coadds = [os.path.join(DATA, f"sim/coadd-dev{part}.fits.gz") for part in ("", "-patho")]
        if not os.path.exists(coadds[0]):
            self.skipTest(f"no test data at {DATA}")
        fit = ("fit", "--quiet", "--backend", "cpu", *coadds, "--output")
        does("starmill", *fit, "wheel.h5")
        run(*fit, tmp("mpi.h5"), ranks=2)
        for group in ("fits", "catalog"):
            self.assertEqual(differing(read(tmp("wheel.h5"), group), read(tmp("mpi.h5"), group)), [])
        star = read(tmp("wheel.h5"))["TARGETID"][0]
        does("starmill", "sample", "--quiet", "--fit", "wheel.h5", "--output", "post.h5",
             "--object", star, *coadds)
        self.assertEqual(read(tmp("post.h5"))["STATUS"].tolist(), [FITTED])
        does("starmill", "simulate", "--quiet", "--stars", 1, "--output", "simulated")
        does("starmill", "report", "wheel.h5")
        does("starmill", "plot", "wheel.h5", star)
        does("python", "-c", "import starmill; starmill.Library('fgk.h5'); "
             f"starmill.Result('wheel.h5').plot({star}).savefig('star.pdf')")
        for name in ("wheel.h5.html", f"{star}.png", "star.pdf"):
            self.assertGreater(os.path.getsize(tmp(name)), 10000)
        # ranks would each do all of the work
        done = called(MPIRUN, "-n", 2, os.path.join(folder, "starmill"), *fit, tmp("ranks.h5"),
                      env=ENVIRONMENT)
        self.assertIn("built without MPI (MILL_MPI=OFF)", done.stdout)
        self.assertFalse(os.path.exists(tmp("ranks.h5")))
