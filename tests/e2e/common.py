"""What the end-to-end tests share: running the program, cutting inputs, reading results.

A test script skips as a whole (exit 77) when the program, the test data or a
Python package is not there.  Everything is written below one temporary folder.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import unittest


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(77)


try:
    import h5py
    import numpy as np
    from astropy.io import fits as pyfits
except ImportError as missing:
    skip(f"{missing} (Debian: python3-h5py python3-astropy)")

STARMILL = os.environ.get("STARMILL", "")
if not os.access(STARMILL, os.X_OK):
    skip("the variable STARMILL does not name the built program")

SOURCE = os.environ.get(
    "MILL_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
)
DATA = os.environ.get("STARMILL_TEST_DATA") or os.path.join(SOURCE, "..", "shared", "data")
MPIRUN = os.environ.get("MPIRUN") or shutil.which("mpirun") or "mpirun"

for _folder in ("emulator", "sim", "real/desi"):
    if not os.path.isdir(os.path.join(DATA, _folder)):
        skip(f"no test data at {os.path.join(DATA, _folder)} (set STARMILL_TEST_DATA)")

TMP = tempfile.mkdtemp(prefix="starmill-e2e.")
atexit.register(shutil.rmtree, TMP, ignore_errors=True)

ENVIRONMENT = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
    OMPI_MCA_mpi_yield_when_idle="1",
    OMPI_MCA_orte_tmpdir_base=TMP,
    OMPI_MCA_btl_vader_backing_directory=TMP,
    OPENBLAS_NUM_THREADS="1",
)

# as kernels/result.h has them
FITTED, LOW_SN, NO_ARM, UNREADABLE, NO_RESOLUTION, OUTSIDE, FIT_FAILED = range(1, 8)
WARN_CHISQ, WARN_VEL_ERR, WARN_BAD_SPECTRUM = 1, 4, 32
WARN_NEGATIVE, WARN_OUTLIER, WARN_POOR_FIT = 512, 1024, 2048

ARMS = ("B", "R", "Z")
HDUS = ("WAVELENGTH", "FLUX", "IVAR", "MASK", "RESOLUTION")


def data(name):
    """Path of a file of the test data."""
    return os.path.join(DATA, name)


def tmp(name):
    """A path in the temporary folder."""
    return os.path.join(TMP, name)


def content(path, mode="rb"):
    """All of a file."""
    with open(path, mode) as f:
        return f.read()


def command(*args, ranks=0):
    """Command line of the program; ranks 0: without mpirun."""
    launch = [MPIRUN, "-n", str(ranks)] if ranks else []
    return launch + [STARMILL] + [str(a) for a in args]


def starmill(*args, ranks=0, cwd=None, timeout=240):
    """Run the program to its end; .returncode, .stdout and .stderr are text."""
    return subprocess.run(
        command(*args, ranks=ranks),
        env=ENVIRONMENT,
        cwd=cwd,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


_libraries = {}


def library(kind="nnrm"):
    """The library imported from the emulators of the test data, made once a script."""
    if kind not in _libraries:
        path = tmp(f"{kind}.h5")
        emulators = [data(f"emulator/{kind}_desi_{arm}.h5") for arm in "brz"]
        # few guess templates: the tests' stars are clean, and importing is quicker
        done = starmill("library", "import", "--output", path, "--guess-templates", 20, *emulators)
        if done.returncode != 0:
            raise RuntimeError(f"library import failed:\n{done.stdout}{done.stderr}")
        _libraries[kind] = path
    return _libraries[kind]


_sources = {}


def source(name):
    """All HDUs of a file of the test data, in memory."""
    if name not in _sources:
        with pyfits.open(data(name), memmap=False) as hdus:
            _sources[name] = [(h.name, h.header.copy(), None if h.data is None else h.data.copy())
                              for h in hdus]
    return _sources[name]


def cut(out, rows, edit=None, name="sim/coadd-dev.fits.gz"):
    """Write some rows of a DESI file to out (below the temporary folder).

    edit(hdus) may change the dictionary {HDU name: HDU} before it is written.
    Returns the path.
    """
    path = tmp(out)
    rows = np.asarray(rows)
    hdus = {}
    for hdu_name, header, table in source(name):
        if table is None:
            hdus[hdu_name] = pyfits.PrimaryHDU(header=header)
        elif table.dtype.names:
            hdus[hdu_name] = pyfits.BinTableHDU(table[rows], name=hdu_name)
        elif hdu_name.endswith("_WAVELENGTH"):
            hdus[hdu_name] = pyfits.ImageHDU(table.copy(), name=hdu_name)
        else:
            hdus[hdu_name] = pyfits.ImageHDU(table[rows], name=hdu_name)
    if edit:
        edit(hdus)
    pyfits.HDUList(list(hdus.values())).writeto(path, overwrite=True)
    return path


def read(path, group="fits"):
    """All datasets of a group of the result file as arrays."""
    with h5py.File(path, "r") as f:
        return {k: v[...] for k, v in f[group].items() if isinstance(v, h5py.Dataset)}


def differing(a, b):
    """Names of the columns that are not the same bit for bit."""
    names = sorted(set(a) | set(b))
    return [k for k in names if k not in a or k not in b or a[k].tobytes() != b[k].tobytes()]


class EndToEnd(unittest.TestCase):
    """Test case with the assertions that these tests need."""

    maxDiff = None

    def fit(self, out, *args, status=0, lib=None, **how):
        """Run a fit into the temporary folder, check its exit status, give the process."""
        self.path = tmp(out)
        options = ["--library", lib or library(), "--output", self.path]
        done = starmill("fit", *options, *args, **how)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def assertOneLine(self, done, *parts, status):
        """The program ended with status and said all parts in one line of standard error."""
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        lines = [line for line in done.stderr.splitlines() if all(p in line for p in parts)]
        self.assertEqual(len(lines), 1, f"one line with {parts} in:\n{done.stderr}")

    def assertWhole(self, table):
        """A fitted row has finite values, and SUCCESS goes with RVS_WARN."""
        good = table["STATUS"] == FITTED
        for name in ("VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE", "CHISQ_TOT", "M2LL"):
            self.assertTrue(np.isfinite(table[name][good]).all(), name)
            self.assertTrue(np.isnan(table[name][~good]).all(), name)
        np.testing.assert_array_equal(table["SUCCESS"] == 1, good & (table["RVS_WARN"] == 0))


def main():
    """Run the tests of the calling script."""
    unittest.main(verbosity=2)
