# SPDX-License-Identifier: BSD-3-Clause
"""Shared by end-to-end tests without test data: running the program, reading results.

To run a test by hand, in this folder: STARMILL=PROGRAM python3 -m unittest -v test_X[.CLASS.TEST].
A test script skips as a whole (exit 77) if the program or a Python package is missing.  All files
are written below one temporary folder."""

import atexit
import contextlib
import fcntl
import functools  # noqa: F401, for the scripts, as re
import gc
import glob
import hashlib
import importlib
import json
import os
import re  # noqa: F401
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
import unittest.mock
import warnings
import zlib


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(77)


try:
    import h5py
    import numpy as np
    from astropy.io import fits as pyfits
except ImportError as missing:
    skip(f"{missing} (Debian: python3-h5py python3-astropy)")

FILTERS = warnings.filters[:]  # of a script, before unittest changes them
STARMILL = os.environ.get("STARMILL", "")
if not os.access(STARMILL, os.X_OK):
    skip("the variable STARMILL does not name the built program")
os.environ["STARMILL_PROGRAM"] = STARMILL  # the package finds libstarmill next to it

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get("MILL_SOURCE_DIR", os.path.join(HERE, "..", ".."))
DATA = os.environ.get("STARMILL_TEST_DATA") or os.path.join(SOURCE, "..", "shared", "data")
sys.path[1:1] = [os.path.join(SOURCE, folder)
                 for folder in ("python", "tests/reference", "campaigns")]
PACKAGE = {"PYTHONPATH": os.path.join(SOURCE, "python")}  # of what is no job
from starmill.cli import jobs  # noqa: E402

SCRIPTS = ("simulate", "library", "merge", "export", "report", "plot", "show", "select", "status",
           "compare", "convert")
MPIRUN = os.environ.get("MPIRUN") or shutil.which("mpirun") or "mpirun"

TMP = tempfile.mkdtemp(prefix="starmill-e2e.")
atexit.register(shutil.rmtree, TMP, ignore_errors=True)
atexit.register(gc.freeze)  # else Python's end searches all imports for cycles, 0.1 s

SHIM = os.environ.get("FAULT_SHIM", "")  # tests/faults/fault_shim.c
PATIENCE = 240  # s; what takes longer hangs, also on a slow and busy machine

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1",
                   OMPI_MCA_orte_tmpdir_base=TMP, OMPI_MCA_btl_vader_backing_directory=TMP,
                   OPENBLAS_NUM_THREADS="1", MPLCONFIGDIR=TMP)

# as kernels/data/result.h has them
(FITTED, LOW_SN, NO_ARM, UNREADABLE, NO_RESOLUTION, OUTSIDE, FIT_FAILED, BAD_LSF,
 NO_FIT, OTHER_SPECTRUM) = range(1, 11)
WARN_CHISQ, WARN_VEL_ERR, WARN_BAD_SPECTRUM = 1, 4, 32
WARN_NEGATIVE, WARN_OUTLIER, WARN_POOR_FIT = 512, 1024, 2048


def tmp(name):
    return os.path.join(TMP, name)


def new_folder(name):
    os.mkdir(tmp(name))
    return tmp(name)


def content(path, mode="rb"):
    with open(path, mode) as f:
        return f.read()


def put(name, data):
    """Write text or bytes to name, a path or a name in the temporary folder; return the path."""
    path = tmp(name)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, (bytes, bytearray)) else data.encode())
    return path


def faults(what, **more):
    """Return the environment that injects faults (fault_shim.c); skip the test without the shim."""
    if not SHIM:
        raise unittest.SkipTest("the variable FAULT_SHIM does not name the library of faults")
    return {"LD_PRELOAD": SHIM, "FAULTS": what, **more}


def wait_until(condition, process=None, seconds=PATIENCE, pause=0.01):
    """Wait for a condition that a started process brings about; the process must not end before."""
    end = time.time() + seconds
    while not condition():
        if time.time() > end or process and process.poll() is not None:
            raise AssertionError("too late" if time.time() > end else "it ended too early")
        time.sleep(pause)


def is_suspended(pid):
    """Whether a process is stopped as by Ctrl-Z; false for one that has ended."""
    with contextlib.suppress(OSError):
        return content(f"/proc/{pid}/stat", "r").rsplit(") ", 1)[1][0] == "T"
    return False


def small_files(n_byte):
    """For preexec_fn: no file may be larger."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_byte, n_byte))


def command(*args, ranks=0, program=None):
    """Command line of the program; ranks 0: without mpirun."""
    launch = [MPIRUN, "-n", str(ranks)] if ranks else []
    return launch + [program or STARMILL] + [str(a) for a in args]


# what the jobs in Python import when they need it
LATER = {"library": ("scipy.interpolate", "astropy.table"), "export": ("astropy.table",),
         "status": ("starmill.products.result",)}


def run_job(line, cwd, files):
    """In a fork: run a Python job to its end, as if it had been started alone."""
    atexit._clear()
    warnings.filters[:] = FILTERS
    os.environ.update(ENVIRONMENT)
    sys.argv, status = line, 1
    try:
        os.chdir(cwd or os.getcwd())
        for target, file in enumerate((os.devnull, *files)):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), target)
        runpy.run_path(line[0], run_name="__main__")
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        os._exit(status)  # an ordinary end takes as long to free the imports as they took


def python_line(*args, **how):
    """The process that shows how the program starts Python for a job, and the words for Python,
    which are none if the program does the job itself."""
    done = starmill(*args, env={"STARMILL_PYTHON": os.path.join(HERE, "print-arguments")}, **how)
    done.stdout, *words = done.stdout.split("\0")
    return done, words[1:]


starter = functools.cache(lambda: python_line("status")[1][0])


def forked(args, cwd, timeout):
    """Run a job in a fork of this script if it is written in Python; else return None.  The fork
    has NumPy and Astropy imported, which saves 0.8 s a start.  The program only passes its words
    on, but for library.  test_every_job.py and the making of libraries start jobs as users do."""
    if not args or args[0] not in SCRIPTS:
        return None
    done, line = subprocess.CompletedProcess(args, 0, "", ""), [starter(), *args]
    if args[0] == "library":
        done, line = python_line(*args, cwd=cwd)
    if not line:
        return done
    files = tmp(".out"), tmp(".err")
    with contextlib.suppress(jobs.Failure):
        for name in (jobs.find_job(line[1:])[0].module, *LATER.get(line[1], ())):
            importlib.import_module(name)
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        run_job(line, cwd, files)
    end, (ended, status) = time.time() + timeout, os.waitpid(process, os.WNOHANG)
    while not ended:
        if time.time() > end:
            os.kill(process, signal.SIGKILL)
            raise subprocess.TimeoutExpired(done.args, timeout)
        time.sleep(0.003)
        ended, status = os.waitpid(process, os.WNOHANG)
    out, errors = (content(file, "r") for file in files)
    return subprocess.CompletedProcess(done.args, os.waitstatus_to_exitcode(status),
                                       done.stdout + out, done.stderr + errors)


@contextlib.contextmanager
def without_pictures():
    """Reports made inside have empty charts, as charts take most of their time."""
    importlib.import_module("starmill.products.report")
    with unittest.mock.patch("starmill.products.charts.png", return_value=b""):
        yield


PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
         "text": True, "errors": "surrogateescape"}


def ended(line, env=None, **how):
    """Run a command line to its end; .returncode, .stdout and .stderr are text.  env: more
    variables; how: as in subprocess.run."""
    return subprocess.run([str(word) for word in line], env={**ENVIRONMENT, **(env or {})},
                          **{**PIPES, "timeout": PATIENCE, **how})


def starmill(*args, ranks=0, cwd=None, timeout=PATIENCE, env=None, program=None, **how):
    done = None
    if not (ranks or env or how) and program in (None, STARMILL):
        done = forked(tuple(str(a) for a in args), cwd, timeout)
    return done or ended(command(*args, ranks=ranks, program=program), env=env, cwd=cwd,
                         timeout=timeout, **how)


def begun(line, env=None, **how):
    """Start a command line, with pipes for what it says."""
    return subprocess.Popen([str(word) for word in line], env={**ENVIRONMENT, **(env or {})},
                            **{**PIPES, **how})


def start(*args, ranks=0, env=None, **how):
    return begun(command(*args, ranks=ranks), env, **how)


def run(*args, **how):
    """Run the program, which must succeed, for what a test starts from."""
    done = starmill(*args, **how)
    if done.returncode != 0:
        raise RuntimeError(f"{args}:\n{done.stdout}{done.stderr}")
    return done


def kept(out, maker, key, make):
    """Make a library by make(path), or copy it if another script has made it.  Return its path and
    the ended process that made it, with its output.

    MILL_TEST_SHARED: the folder where the build lets scripts share libraries; without it every
    script makes its own.  maker: the program; key: what else the library depends on."""
    folder, path = os.environ.get("MILL_TEST_SHARED"), tmp(out)
    if not folder:
        return path, make(path)
    program = hashlib.sha256(content(maker)).hexdigest()[:16]
    master = os.path.join(
        folder, f"{program}-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.h5")
    os.makedirs(folder, exist_ok=True)
    # a lock for each library: one script makes it, and only scripts that need it wait
    with open(master + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (os.path.exists(master) and os.path.exists(master + ".said")):
            done = make(path)
            with open(master + ".said", "w", encoding="utf-8") as said:
                json.dump([done.stdout, done.stderr], said)
            shutil.copy(path, master + ".tmp")
            os.rename(master + ".tmp", master)
        else:
            shutil.copy(master, path)
    with open(master + ".said", encoding="utf-8") as said:
        return path, subprocess.CompletedProcess([], 0, *json.load(said))


def age(name):
    return name, os.stat(name).st_mtime_ns


def shared_and_said(out, *args, inputs=()):
    """Path of the library that `starmill library ARGS INPUTS` makes, and the process that made it.
    The program for CPUs makes it, even if the script tests emulated GPUs."""
    maker = os.environ["STARMILL"]
    made = ["library", *args, *inputs, "--output"]
    return kept(out, maker, (args, [age(name) for name in inputs]),
                lambda path: run(*made, path, timeout=500, program=maker, env=ENVIRONMENT))


def shared(out, *args, inputs=()):
    """The same: the path alone."""
    return shared_and_said(out, *args, inputs=inputs)[0]


def miles_library(out, miles):
    """Path of a library made from a file of MILES spectra, and the process that made it."""
    return shared_and_said(out, "spectra", "--range", "3950,7380", inputs=[miles])


def coarse_library(out="library.h5"):
    """Path of a small library, cut from the shipped one by tests/small_library.py."""
    shipped = os.path.join(SOURCE, "libraries", "fgk.h5")
    maker = os.path.join(SOURCE, "tests", "small_library.py")

    def make(path):
        return subprocess.run([sys.executable, "-B", maker, shipped, path], check=True,
                              capture_output=True, text=True)
    return kept(out, maker, age(shipped), make)[0]


def narrow_library(out, n):
    """The small library with only n inputs of each network's last layer.  Products with this layer
    are most of the work of emulated and simulated GPUs."""
    from starmill.templates import library_file
    library = library_file.read(coarse_library())
    for arm in library.arm:
        layers = arm.emulator
        main = np.argsort((layers.weight[-1] ** 2).sum(0))[-n:]
        layers.weight[-2:] = layers.weight[-2][main], layers.weight[-1][:, main]
        layers.bias[-2] = layers.bias[-2][main]
    library_file.write(tmp(out), library, overwrite=True)
    return tmp(out)


def coarse_survey(n_star, library=None):
    """Paths of a small library (or the one given) and a file of n_star stars made with it."""
    library, survey = library or coarse_library(), tmp("survey")
    run("simulate", "--stars", n_star, "--library", library, "--pathological", 0, "--quiet",
        "--output", survey, program=os.environ["STARMILL"])
    (path,) = glob.glob(os.path.join(survey, "**", "coadd*.fits*"), recursive=True)
    return library, path


def bintable(columns, name=None):
    """A table of {name: values}, or (format of FITS, values)."""
    made = []
    for key, of in columns.items():
        form, values = of if isinstance(of, tuple) else (None, np.asarray(of))
        made.append(pyfits.Column(key, form or {"f": "D", "i": "K"}.get(values.dtype.kind, "64A"), array=values))
    return pyfits.BinTableHDU.from_columns(made, name=name)


def write_redrock(path, targets, z, kinds, zwarn=0):
    bintable({"TARGETID": targets, "Z": z, "ZWARN": ("K", np.full(len(z), zwarn)), "SPECTYPE": ("6A", kinds),
              "SUBTYPE": ("20A", [""] * len(kinds))}, "REDSHIFTS").writeto(path, overwrite=True)


def write_desi(path, arms, objtype="TGT"):
    """Stars of targets 100, 101 ... in DESI's layout; arms: {name: {WAVELENGTH, FLUX, IVAR ...}}."""
    n = len(next(iter(arms.values()))["FLUX"])
    hdus = [pyfits.PrimaryHDU(), bintable({
        "TARGETID": np.arange(n) + 100, "TARGET_RA": np.zeros(n), "TARGET_DEC": np.zeros(n),
        "OBJTYPE": ("3A", [objtype] * n), "COADD_FIBERSTATUS": ("J", np.zeros(n, int))}, "FIBERMAP")]
    for arm, arrays in arms.items():
        for name, array in {**arrays, "MASK": np.zeros(arrays["FLUX"].shape, "i4")}.items():
            array = array if name in ("WAVELENGTH", "MASK") else array.astype("f4")
            hdus.append(pyfits.ImageHDU(array, name=f"{arm}_{name}"))
    pyfits.HDUList(hdus).writeto(path, overwrite=True)


def text(value):
    return value.decode().rstrip("\0 ") if isinstance(value, bytes) else str(value).rstrip()


def texts(column):
    return [text(value) for value in column]


def read(path, group="fits"):
    with h5py.File(path, "r") as f:
        return {k: v[...] for k, v in f[group].items() if isinstance(v, h5py.Dataset)}


def attributes(path, of="/"):
    """Attributes of a group or column of an HDF5 file."""
    with h5py.File(path, "r") as f:
        return dict(f[of].attrs)


def seal(f, rows=slice(None)):
    """Write the checksums of rows that a test has changed in an open result."""
    for table, crc in (f["fits"], "CRC"), (f["catalog"], "CATALOG_CRC"):
        values = [table[name][...] for name in table[crc].attrs["COLUMNS"].decode().split()]
        packed = np.concatenate([v.reshape(len(v), -1).view(np.uint8) for v in values], axis=1)
        table[crc][rows] = np.array([zlib.crc32(row) for row in packed])[rows]


def not_whole(path):
    """Done rows with a wrong CRC.  CRC covers the columns that its COLUMNS names, in this order."""
    fits = read(path)
    names = attributes(path, "fits/CRC")["COLUMNS"].decode().split()
    assert sorted([*names, "CRC", "STATUS"]) == sorted(fits), set(names) ^ set(fits)
    return [int(row) for row in np.flatnonzero(fits["STATUS"]) if fits["CRC"][row] != zlib.crc32(
        b"".join(fits[name][row:row + 1].tobytes() for name in names))]


def stale_lock(output):
    """Write the lock of a process that is gone."""
    put(output + ".lock", f"host {os.uname().nodename}\npid 4194304\njob -\nrestart 0\nstart 1\n"
        f"space {os.readlink('/proc/self/ns/pid')}\n")


def has_rows(path, n=1):
    """Whether a result has n fitted rows or more by now.  Reads one column, so polling is cheap."""
    if not os.path.exists(path):
        return False
    with h5py.File(path, "r") as f:
        return (f["fits/STATUS"][...] == FITTED).sum() >= n


def tiled(path, out, n_row):
    """Write to out a result of n_row rows: the rows of path again and again."""
    with h5py.File(path, "r") as few, h5py.File(out, "w") as many:
        few.copy("provenance", many)
        few.copy("catalog", many)
        many.attrs.update(few.attrs)
        for group in ("fits", "catalog"):
            for name, column in few[group].items():
                if isinstance(column, h5py.Dataset):
                    many.pop(group + "/" + name, None)
                    rows = np.resize(column[...], (n_row, *column.shape[1:]))
                    many.create_dataset(group + "/" + name, data=rows, dtype=column.dtype)
                    many[group + "/" + name].attrs.update(column.attrs)


def edited(path, edit):
    """Change a result; edit(fits, catalog), if any, changes columns by name."""
    with h5py.File(path, "r+") as f:
        tables = {g: {k: v[...] for k, v in f[g].items() if isinstance(v, h5py.Dataset)}
                  for g in ("fits", "catalog")}
        if edit:
            edit(*tables.values())
            for g, t in tables.items():
                for k, v in t.items():
                    f[g][k][...] = v
            seal(f)


def unfinish(path, rows=0):
    """Make a finished result look like one that was stopped before it fitted these rows."""
    with h5py.File(path, "r+") as f:
        f["fits/STATUS"][rows] = f["provenance/FINISHED"][...] = 0


def differing(a, b, rows=..., but=()):
    """Names of the columns, but these, that are not the same bit for bit (in some rows)."""
    names = sorted((set(a) | set(b)) - set(but))
    return [k for k in names
            if k not in a or k not in b or a[k][rows].tobytes() != b[k][rows].tobytes()]


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def ends(self, status, *args, says=(), **how):
        """Run the program, check its exit status, give the process; says: as in assertOneLine."""
        done = starmill(*args, **how)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        if says:
            self.assertOneLine(done, *says, status=status)
        return done

    def fit(self, out, *args, status=0, lib, **how):
        """The same of a fit into the temporary folder."""
        self.path = tmp(out)
        return self.ends(status, "fit", "--library", lib, "--output", self.path, *args, **how)

    def said_by(self, process, status, number=None):
        """Send a process the signal `number`, if any; return its output once it ends with status."""
        if number:
            process.send_signal(number)
        said = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, status, said)
        return said

    def assertOneLine(self, done, *parts, status):
        """The program ended with status, and one line of standard error has all parts."""
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        lines = [line for line in done.stderr.splitlines() if all(p in line for p in parts)]
        self.assertEqual(len(lines), 1, f"one line with {parts} in:\n{done.stderr}")

    def assertVerified(self, *paths):
        """fitsverify finds nothing wrong with these files."""
        verify = shutil.which("fitsverify") or self.skipTest("no fitsverify (Debian: fitsverify)")
        self.assertTrue(paths)
        for path in paths:
            done = subprocess.run([verify, "-q", path], stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.stdout, f"verification OK: {path}\n")

    def assertWhole(self, table):
        """A fitted row has finite values, and SUCCESS goes with RVS_WARN."""
        good = table["STATUS"] == FITTED
        for name in ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE", "CHISQ_TOT", "M2LL"):
            self.assertTrue(np.isfinite(table[name][good]).all(), name)
            self.assertTrue(np.isnan(table[name][~good]).all(), name)
        np.testing.assert_array_equal(table["SUCCESS"] == 1, good & (table["RVS_WARN"] == 0))
