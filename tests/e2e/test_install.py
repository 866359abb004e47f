# SPDX-License-Identifier: BSD-3-Clause
"""cmake --install makes a tree that works from anywhere, and that may be moved; make dist."""

import re
import tarfile

from base import *  # noqa: F403

CMAKE = shutil.which("cmake")
BUILD = os.path.dirname(STARMILL)
if not CMAKE or not os.path.exists(os.path.join(BUILD, "cmake_install.cmake")):
    skip("no cmake, or the program is in no build folder")
if not os.path.isdir(os.path.join(BUILD, "help", "man1")):
    skip("the man pages are not made (target help_pages)")

# nothing of the folders that it was built in, nor of the user's
CLEAN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": TMP, "LC_ALL": "C.UTF-8", "TMPDIR": TMP,
         "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MPIRUN": MPIRUN,
         "ASAN_OPTIONS": ENVIRONMENT.get("ASAN_OPTIONS", "")}


def call(*args, env=None, cwd=TMP):
    return subprocess.run([str(a) for a in args], env={**CLEAN, **(env or {})}, cwd=cwd, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=PATIENCE)


class Installed(ProgramTest):
    @classmethod
    def setUpClass(cls):
        first = tmp("first")
        done = call(CMAKE, "--install", BUILD, "--prefix", first)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
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
        data = ("share", "starmill")
        for names in (data + ("libraries", "fgk.h5"), data + ("config", "lamost.yaml"),
                      data + ("config", "templates", "desi.yaml"), data + ("slurm", "job.sh"),
                      ("share", "man", "man1", "starmill.1"),
                      ("share", "man", "man1", "starmill-fit.1"),
                      ("share", "doc", "starmill", "LICENSE"),
                      ("share", "doc", "starmill", "use", "install.md")):
            self.path(*names)

    def test_what_is_not_built_is_named(self):
        """Before anything is installed."""
        with open(os.path.join(BUILD, "cmake_install.cmake"), encoding="utf-8") as f:
            script = f.read().replace(BUILD, tmp("empty"))
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

    def test_libraries_are_found_without_the_build_folder(self):
        """Those of modules and private folders too."""
        if not shutil.which("readelf"):
            self.skipTest("no readelf (Debian: binutils)")
        self.assertNotIn("not found", self.works("ldd", self.program))
        # CMake fills the path of the build up with colons
        linked = [folder for folder in self.runpath(STARMILL)
                  if folder and not folder.startswith(BUILD)]
        self.assertEqual([f for f in self.runpath(self.program) if not f.startswith("$ORIGIN")], linked)

    def test_smoke_test_finds_program_and_library(self):
        """The library of the installation, not that of the checkout."""
        said = self.works(self.path("share", "starmill", "smoke-test"))
        self.assertIn("four stars fitted alone, and with two ranks\n", said)

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

        def tool(name, *args):
            return self.works(sys.executable, "-B", "-m", f"starmill.{name}", *args, env=folder)
        for name in ("templates.rvspecfit", "templates.real_library"):
            self.assertIn("usage", tool(name, "--help").lower())
        said = self.works(self.program, "grid", "plan", "--models", "3")
        self.assertEqual(len(said.splitlines()), 3)

    def test_submit_finds_its_scripts(self):
        said = self.works(self.path("bin", "starmill-submit"), "--dry-run", "--rows", "1000", "cpu",
                          "--library", self.path("share", "starmill", "libraries", "fgk.h5"),
                          "--output", tmp("OUT.h5"), "no-such-coadd.fits")
        self.assertIn("#SBATCH", said)

    def test_man_finds_the_pages(self):
        if not shutil.which("man"):
            self.skipTest("no man (Debian: man-db)")
        said = self.works("man", "-M", os.path.join(self.prefix, "share", "man"), "starmill-merge")
        self.assertIn("STARMILL-MERGE(1)", said)

    def test_bash_finds_the_completion(self):
        path = self.path("share", "bash-completion", "completions", "starmill")
        self.assertIn("-F _starmill starmill", self.works("bash", "-c", '. "$1"; complete -p starmill',
                                                          "bash", path))
        self.assertEqual(content(path, "r"), run("help", "completion").stdout)


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
