# SPDX-License-Identifier: BSD-3-Clause
"""What every job of the program's own list owes its user; a new job needs a line here.

An output that is an input is refused.  A full disk, a damaged input or a standard output that
cannot be written ends the job with one line and the documented status.  A job ended by a signal
leaves no partial output."""

import itertools
import textwrap

from base import *  # noqa: F403

LIBRARY, SURVEY = coarse_survey(4)
RESULT, MODELS = tmp("result.h5"), tmp("models.h5")
run("fit", "--quiet", "--library", LIBRARY, "--output", RESULT, "--models", MODELS, SURVEY)
FAINT = tmp("faint.h5")  # without a fitted row: a report of it draws nothing, so it is quick
starmill("fit", "--quiet", "--library", LIBRARY, "--output", FAINT, "--minsn", 1e6, SURVEY)
STAR = str(read(RESULT)["TARGETID"][0])
SETUP = put("setup.yaml", "arms: [{name: b, min: 5010, max: 5190, ln_step: 8e-5, sigma: 0.6}]\n")
TEXT = put("star.txt", "".join(f"{5000 + i} {1 + i % 7 / 100}\n" for i in range(50)))
CONFIG = put("particles.yaml", "particles: 2000\nsteps: 20\nstep: 0.05\npotential: harmonic\n"
                               "rate: 1\ngrid: 40\ntimes: [0, 1]\n")


def labelled(path, n=40):
    """Write spectra of two lines whose depths follow the labels, as one image and one table."""
    wave = 5000 + 0.25 * np.arange(800)
    labels = np.random.default_rng(5).uniform([5000, 3, -1], [6000, 5, 0], (n, 3))
    depth = 0.2 + 0.1 * (labels - [5500, 4, -0.5]) @ np.array([[1e-3, 0], [0, 0.1], [0.5, 0.5]])
    lines = np.exp(-0.5 * ((wave - np.array([[5060], [5140]])) / 1.5) ** 2)
    image = pyfits.PrimaryHDU(1 - depth @ lines)
    image.header.update(CRVAL1=wave[0], CRPIX1=1, CDELT1=0.25)
    pyfits.HDUList([image, bintable(dict(zip(("TEFF", "LOGG", "FEH"), labels.T)))]).writeto(path)
    return path


SPECTRA, GRID = labelled(tmp("spectra.fits")), tmp("grid.h5")
MADE_OF = ("--medium", "vacuum", "--labels", "teff=TEFF,logg=LOGG,feh=FEH")
BUILD = ("--setup", SETUP, *MADE_OF, "--native-sigma", 0.58, "--normalise", "none", SPECTRA)
run("library", "build", "--output", GRID, *BUILD)
OF_SPECTRA = (*MADE_OF, "--sigma", 0.6, SPECTRA)
ONE_ARM = tmp("one-arm.h5")
run("library", "spectra", "--output", ONE_ARM, *OF_SPECTRA)

SKY = tmp("sky.fits")  # fibres with a line that varies
FLUX = np.random.default_rng(6).normal(size=(10, 60))
FLUX[:, 30] += 30 * np.arange(-5, 5)
write_desi(SKY, {"B": {"WAVELENGTH": 4000.0 + np.arange(60), "FLUX": FLUX, "IVAR": np.ones(FLUX.shape)}}, "SKY")

# by job: arguments without --output (None: it has no output), and the files that it reads
JOBS = {
    "fit": (("--library", LIBRARY, SURVEY), (LIBRARY, SURVEY)),
    "sample": (("--fit", RESULT, "--library", LIBRARY, "--max-evaluations", 6400, SURVEY),
               (RESULT, LIBRARY, SURVEY)),
    "library build": (BUILD, (SETUP, SPECTRA)),
    "library import": ((LIBRARY,), (LIBRARY,)),
    "library spectra": (OF_SPECTRA, (SPECTRA,)),
    "library train": (("--emulator", "radial", "--components", 4, "--left-out", 0, GRID), (GRID,)),
    "library correct": (("--spectra", SPECTRA, "--medium", "vacuum", "--components", 0, ONE_ARM),
                        (SPECTRA, ONE_ARM)),
    "library model-error": (("--spectra", SPECTRA, "--medium", "vacuum", ONE_ARM), (SPECTRA, ONE_ARM)),
    "library sky": ((SKY,), (SKY,)),
    "convert": (("--medium", "vacuum", TEXT), (TEXT,)),
    "simulate": (("--stars", 3, "--library", LIBRARY), (LIBRARY,)),
    "particles": ((CONFIG,), (CONFIG,)),
    "report": (("--no-spectra", RESULT), (RESULT,)),
    "plot": (("--range", "8500,8560", "--dpi", 20, RESULT, STAR), (RESULT, LIBRARY, SURVEY)),
    "select": ((RESULT, "TEFF > 0"), (RESULT,)),
    "export": (("--to", "fits", RESULT), (RESULT,)),
    "merge": ((RESULT,), (RESULT,))}
READ_ONLY = {
    "library info": ((LIBRARY,), (LIBRARY,)), "status": ((RESULT,), (RESULT,)),
    "show": ((RESULT, STAR), (RESULT,)), "compare": ((RESULT, RESULT), (RESULT,)),
    "grid": (("plan", "--models", 3), ()), "doctor": ((), ()),
    "bench": (("crossover", "--work", "particles", "--repeat", 1, "--most", 1000), ())}
THAT_RUN = [name for name in JOBS if name != "library import"]  # LIBRARY is no emulator to import
ENDS = {"plot": ".png", "select": ".txt", "report": ".html", "export": ".fits", "convert": ".fits", "simulate": ""}
WITHOUT = {"fit", "sample", "library train"}  # which continue or say what there is


def job(name, output, *more, files=None, **how):
    args = [files.get(a, a) if files else a for a in (JOBS.get(name) or READ_ONLY[name])[0]]
    return starmill(*name.split(), *args, *(("--output", output) if output else ()), *more, **how)


def output_of(name, before=""):
    return tmp(before + name.replace(" ", "-") + ENDS.get(name, ".h5"))


class EveryJob(ProgramTest):
    def assertSaid(self, done, name, *status):
        """It ended so, and with one line."""
        self.assertIn(done.returncode, status, f"{name}: {done.stdout}{done.stderr}")
        self.assertNotIn("Traceback", done.stderr)
        self.assertRegex(done.stderr, rf"(?m)^starmill {name.split()[0]}.*: .+")

    def test_all_jobs_are_here(self):
        said = starmill("--help").stdout.split("jobs\n")[1].split("\n\n")[0]
        names = {line.split()[0] for line in textwrap.dedent(said).splitlines() if line[:1] != " "}
        usage = starmill("library", "--help").stdout
        parts = re.search(r"starmill library (\S+\|\S+)", usage)[1].split("|")
        self.assertEqual({*JOBS, *READ_ONLY},
                         (names - {"library"}) | {"library " + part for part in parts})

    def test_an_output_that_is_an_input(self):
        os.makedirs(tmp("sub"), exist_ok=True)

        def link(make, path):
            other = tmp("sub/" + make.__name__ + os.path.basename(path))
            if os.path.lexists(other):
                os.unlink(other)
            make(path, other)
            return other
        spellings = itertools.cycle((
            lambda path: link(os.symlink, path), lambda path: link(os.link, path),
            lambda path: tmp("sub/../" + os.path.relpath(path, TMP))))
        for name, (_, reads) in JOBS.items():
            for path in reads:
                with self.subTest(job=name, path=path):
                    before, output = content(path), next(spellings)(path)
                    more = () if name == "simulate" else ("--overwrite",)
                    # simulate's output is a folder, and this is none
                    self.assertSaid(job(name, output, *more), name, 4 if name == "simulate" else 2)
                    self.assertEqual(content(path), before)

    def test_a_full_disk(self):
        for name in THAT_RUN:
            with self.subTest(job=name):
                output = output_of(name, "full-")
                done = job(name, output, files={RESULT: FAINT} if name == "report" else None,
                           env=faults("ENOSPC:write:/full-:1:0;ENOSPC:alloc:/full-:1:0"))
                self.assertSaid(done, name, 4)
                if os.path.isfile(output) and name not in WITHOUT:
                    self.assertEqual(os.path.getsize(output), 0)

    def assertRefused(self, name, damaged, *says):
        """A job refuses a damaged result, and writes nothing."""
        with self.subTest(job=name, says=says):
            done = job(name, output_of(name, "lacking-") if name in JOBS else None,
                       files={RESULT: damaged})
            self.assertSaid(done, name, 2 if name == "sample" else 4)  # its --fit is an option
            for text in (damaged, *says):
                self.assertIn(text, done.stderr)
            self.assertEqual(glob.glob(tmp("lacking-*")), [])

    def test_damaged_results(self):
        """All jobs meet a file that was cut.  Other defects meet two of the jobs in Python, in turn,
        as these open results alike (products/result.py)."""
        names = [name for name, (_, reads) in {**JOBS, **READ_ONLY}.items() if RESULT in reads]
        for name in names:
            self.assertRefused(name, put("damaged.h5", content(RESULT)[:-5000]))
        in_turn = itertools.cycle(name for name in names if name != "sample")

        def without(name):
            return lambda f: f.__delitem__(name)

        def instead(name, value):
            return lambda f: (f.__delitem__(name), f.__setitem__(name, value))

        def flipped(f):
            start = h5py.h5o.get_info(f["fits/TEFF"].id).addr
            f.close()
            data = bytearray(content(tmp("lacking.h5")))
            data[data.index(b"\x11\x20\x3f\x00\x08\0\0\0", start) + 4] = 4  # bytes of a number
            put("lacking.h5", data)
        for what, spoil in (
                ("ROWS_HASH", without("catalog/files/ROWS_HASH")), ("TEFF", without("fits/TEFF")),
                ("provenance", without("provenance")), ("CONFIG", without("provenance/CONFIG")),
                ("ORDER", lambda f: f["fits/COVAR"].attrs.__delitem__("ORDER")),
                ("NAMES", lambda f: f["fits/RVS_WARN"].attrs.__setitem__("NAMES", 7)),
                ("VRAD", instead("fits/VRAD", np.full(4, b"1"))),
                ("SN_B", instead("fits/SN_B", np.zeros((4, 3)))),
                ("no UTF-8", lambda f: f.move("fits/VSINI", b"VS\xffNI")),
                ("no UTF-8", lambda f: h5py.h5a.create(
                    f["fits"].id, b"\xff", h5py.h5t.STD_I8LE, h5py.h5s.create(h5py.h5s.SCALAR))),
                ("epochs", lambda f: f.create_group("epochs")), ("TEFF", flipped)):
            with h5py.File(shutil.copy(RESULT, tmp("lacking.h5")), "r+") as f:
                spoil(f)
            for name in itertools.islice(in_turn, 2):
                self.assertRefused(name, tmp("lacking.h5"), "is damaged: ", what)

    def test_names_like_those_of_temporary_files(self):
        """A job deletes what it made itself."""
        build = [SETUP + ".h5.tmp-a.yaml" if a == SETUP else a for a in BUILD]
        for args, kept in (
                (("merge", "--output", "ALL.h5", "ALL.h5.tmp-1"), {"ALL.h5.tmp-1": RESULT}),
                (("export", "--to", "fits", "--output", "T.fits", "T.fits.tmp"),
                 {"T.fits.tmp": RESULT}),
                (("export", "--output", ".", RESULT), {"rvtab-coadd-mock-00000.fits.tmp": SETUP}),
                (("library", "build", "--output", SETUP + ".h5", *build),
                 {SETUP + ".h5.tmp-a.yaml": SETUP, SETUP + ".h5.tmp-1.fits": SETUP}),
                (("simulate", "--stars", 2, "--quiet", "--output", tmp("D"), "--library",
                  tmp("D/coadd-mock-00009.fits.tmp-lib.h5")),
                 {"D/coadd-mock-00009.fits.tmp-lib.h5": LIBRARY})):
            with self.subTest(args=args):
                os.makedirs(tmp("D"), exist_ok=True)
                for name, of in kept.items():
                    shutil.copy(of, tmp(name))
                done = run(*args, cwd=TMP)
                for name, of in kept.items():
                    self.assertEqual(content(tmp(name)), content(of), name)
        shutil.copy(RESULT, tmp("L.h5.lock"))
        for args in (("merge",), ("export", "--to", "fits")):  # nobody is told to remove an input
            done = starmill(*args, "--output", "L.h5", "L.h5.lock", cwd=TMP)
            self.assertOneLine(done, "are one file: give", status=2)

    def test_surroundings(self):
        """A closed standard output, variables and modules for another Python, little memory."""
        for module in ("look", "types", "lock", "site", "random"):
            os.makedirs(tmp("foreign"), exist_ok=True)
            put(f"foreign/{module}.py", "raise RuntimeError\n")
        os.mkdir(tmp("broken"))
        put("broken/numpy.py", "raise RuntimeError('none')\n")
        limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS,
                                                            (300000 << 10,) * 2)}
        for name, says, status, how in (
                ("show", None, 0, {"env": {"PYTHONSAFEPATH": "1"}}),
                ("show", None, 0, {"env": {"PYTHONHOME": tmp("none")}}),
                ("show", None, 0, {"env": {"PYTHONPATH": tmp("foreign")}}),
                ("show", "unset OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK and SLURM_PROCID", 0,
                 {"env": {"SLURM_PROCID": "3"}}),
                ("show", "broken/numpy.py", 2, {"env": {"PYTHONPATH": tmp("broken")}}),
                ("show", "standard output is closed", 4, {"preexec_fn": lambda: os.close(1)}),
                ("simulate", "out of memory", 70, limited),
                ("report", "out of memory", 70, limited)):
            with self.subTest(job=name, how=how):
                done = job(name, output_of(name, "odd-") if name in JOBS else None, **how)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertEqual(done.stderr.count("\n"), says is not None, done.stderr)
                self.assertIn(says or "", done.stderr)

    def test_a_standard_output_that_takes_no_more(self):
        for name, (args, _) in {**READ_ONLY, "select": JOBS["select"]}.items():
            with self.subTest(job=name), open("/dev/full", "w", encoding="ascii") as full:
                self.assertSaid(starmill(*name.split(), *args, stdout=full), name, 4)

    def test_a_signal_leaves_no_half_output(self):
        for name in THAT_RUN:
            with self.subTest(job=name):
                output = output_of(name, "stopped-")
                process = start(*name.split(), *JOBS[name][0], "--output", output)
                time.sleep(0.4)
                process.send_signal(signal.SIGTERM)
                _, said = process.communicate(timeout=PATIENCE)
                self.assertIn(process.returncode, (0, 75, -signal.SIGTERM), said)
                if os.path.isfile(output) and name not in WITHOUT:
                    done = job(name, output)  # the output is whole: the job continues or keeps it
                    self.assertIn(done.returncode, (0, 4), done.stderr)
