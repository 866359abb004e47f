# SPDX-License-Identifier: BSD-3-Clause
"""libstarmill as it is installed: names, header, pkg-config, CMake, the program's bits; and the
Python module in a fresh virtual environment."""

import re

from base import *  # noqa: F403

BUILD = os.path.dirname(STARMILL)
PREFIX = tmp("installed")
HEADER = os.path.join(PREFIX, "include", "starmill", "starmill.h")
N_STAR = 5


def called(*args, cwd=None, env=None, timeout=PATIENCE):
    """Run another program; .returncode, and .stdout with what it said."""
    return subprocess.run([str(a) for a in args], cwd=cwd, env={**os.environ, **(env or {})},
                          timeout=timeout, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)


def of_installed(what):
    """A file of the installed tree, whatever its library folder is called."""
    (path,) = glob.glob(os.path.join(PREFIX, "**", what), recursive=True)
    return path


class Installed(ProgramTest):
    @classmethod
    def setUpClass(cls):
        done = called("cmake", "--install", BUILD, "--prefix", PREFIX)
        if done.returncode != 0:
            raise RuntimeError(done.stdout)
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
        """The program's fit of the survey."""
        if not os.path.exists(tmp("result.h5")):
            self.fit("result.h5", "--backend", "cpu", "--threads", 1, self.survey,
                     lib=self.library)
        return tmp("result.h5")

    def flags(self, *options):
        return self.does("pkg-config", *options, "starmill").split()

    def build(self, source, out, *more, compiler="cc"):
        """Compile a C file against the installed library."""
        self.does(compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", tmp(out), source,
                  *self.flags("--cflags"), *more)
        return tmp(out)

    def test_names_are_those_that_are_listed(self):
        listed = content(os.path.join(SOURCE, "tests", "libstarmill", "abi.txt"), "r").split()
        found = self.does("nm", "-D", "--defined-only", self.shared).splitlines()
        names = sorted(line.split()[2].replace("@@", "@") for line in found
                       if not re.search(r" A STARMILL_[0-9.]+$", line))
        self.assertEqual(names, listed)
        # the header declares these and no more, and so has the static library
        declared = re.findall(r"STARMILL_API [^;(]*?(starmill_\w+)\(", content(HEADER, "r"))
        self.assertEqual(sorted(declared), [name.split("@")[0] for name in listed])
        static = self.does("nm", "-g", "--defined-only", of_installed("libstarmill.a"))
        self.assertEqual(sorted(re.findall(r" [A-Z] (\w+)$", static, re.MULTILINE)),
                         sorted(declared))

    def test_the_header_is_c11_and_cxx17(self):
        for compiler, standard in (("cc", "c11"), ("c++", "c++17")):
            if not shutil.which(compiler):
                continue
            self.does(compiler, f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror",
                      "-fsyntax-only", "-x", "c++" if "+" in compiler else "c", HEADER)
        for compiler, standard in (("mpicc", "c11"), ("mpicxx", "c++17")):
            if not shutil.which(compiler):
                continue
            # without MPI's own classes of C++
            self.does(compiler, f"-std={standard}", "-DOMPI_SKIP_MPICXX", "-Wall", "-Wextra",
                      "-Werror", "-fsyntax-only", "-x", "c++" if "xx" in compiler else "c",
                      *self.flags("--cflags"), HEADER.replace("starmill.h", "starmill_mpi.h"))

    def test_stars_of_a_file_are_fitted_as_by_the_program(self):
        program = self.build(os.path.join(SOURCE, "tests", "libstarmill", "fit_file.c"), "fit_file",
                             *self.flags("--libs"))
        config = "format: desi\nthreads: 2\nslots: 3\n"
        said = self.does(program, self.library, config, self.survey, self.result())
        self.assertRegex(said, rf"^{N_STAR} rows, \d+ columns, 0 differ\n$")
        # without the format the dichroic would not be masked
        done = called(program, self.library, "npoly: 10\n", self.survey, self.result())
        self.assertIn("format: desi", done.stdout)

    def test_ranks_share_a_fit_and_fail_together(self):
        if not shutil.which("mpicc"):
            self.skipTest("no mpicc")
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
        folder = tmp("by-cmake")
        os.makedirs(folder)
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
            os.path.join(folder, "build", "starmill_example"),
            os.path.join(folder, "build", "static_example"),
        ]
        said = {self.does(program, self.library, tmp("star.txt")) for program in programs}
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said.pop(), r"(?s)VRAD -?\d.*km/s\nVSINI .*TEFF \d+.*-2 ln L -?\d")
        done = called(programs[0], tmp("no library"), tmp("star.txt"))
        self.assertIn("no library", done.stdout)

    def test_the_python_module_in_a_fresh_environment(self):
        python = os.path.join(tmp("venv"), "bin", "python")
        made = called(sys.executable, "-m", "venv", tmp("venv"))
        if made.returncode == 0:
            made = called(python, "-m", "pip", "install", "-q", "--no-compile", "--retries", 1,
                          "--timeout", 20, "numpy", "cffi", "pytest", "setuptools", "wheel",
                          timeout=400)
        if made.returncode != 0:
            self.skipTest("no virtual environment with cffi, numpy and pytest can be made: "
                          + (made.stdout.strip().splitlines() or ["no reason"])[-1])
        package = shutil.copytree(os.path.join(SOURCE, "python"), tmp("python"),
                                  ignore=shutil.ignore_patterns("build", "*.egg-info"))
        # its dependencies are there
        self.does(python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-index",
                  "--no-deps", package)
        data = {"STARMILL_TEST_LIBRARY": self.library, "STARMILL_TEST_SURVEY": self.survey,
                "STARMILL_TEST_RESULT": self.result()}
        said = self.does(python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                         os.path.join(package, "tests"), env={**self.env, **data})
        self.assertRegex(said, r"\d+ passed")
        self.assertNotRegex(said, "skipped|failed")
