#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Time and memory of indexing a large catalog (docs/develop/scaling.md).

    scale_index.py --starmill PROGRAM --library LIB.h5 --folder DIR [--files 100000] [--rows 100]

Makes FITS files in DESI's layout with a table of fibers and a few pixels (29 kB for 100 rows), and
plans a fit of them on 1 and 2 ranks: seconds, and the largest resident memory of a rank.  With
--create a fit is started too and stopped when its result file is there, which shows the memory
and time of writing /catalog.  Prints Markdown; DIR keeps the files.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

import numpy as np
from astropy.io import fits

for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
             "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle",
             "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
N_PIX = 7


def template(n_row):
    """Bytes of a file, and where the TARGETIDs are: (offset, bytes from row to row)."""
    fibermap = np.zeros(n_row, dtype=[("TARGETID", ">i8"), ("FIBER", ">i4"),
                                      ("COADD_FIBERSTATUS", ">i4"), ("TARGET_RA", ">f8"),
                                      ("TARGET_DEC", ">f8"), ("REF_ID", ">i8"), ("REF_CAT", "S2"),
                                      ("OBJTYPE", "S3")])
    fibermap["FIBER"] = np.arange(n_row)
    fibermap["TARGET_RA"] = np.linspace(10, 11, n_row)
    fibermap["OBJTYPE"] = b"TGT"
    pixels = np.ones((n_row, N_PIX), dtype=">f4")
    hdus = fits.HDUList([fits.PrimaryHDU(), fits.BinTableHDU(fibermap, name="FIBERMAP"),
                         fits.ImageHDU(4000 + np.arange(N_PIX, dtype=">f8"), name="B_WAVELENGTH"),
                         fits.ImageHDU(pixels, name="B_FLUX"),
                         fits.ImageHDU(pixels, name="B_IVAR")])
    path = f"/tmp/scale-index-{os.getpid()}.fits"
    hdus.writeto(path, overwrite=True)
    with fits.open(path) as f:
        at = f["FIBERMAP"].fileinfo()["datLoc"]
    with open(path, "rb") as f:
        content = np.frombuffer(f.read(), dtype=np.uint8).copy()
    os.unlink(path)
    return content, at, fibermap.dtype.itemsize


def make_files(folder, n_file, n_row):
    listed = os.path.join(folder, f"catalog-{n_file}x{n_row}.txt")
    if os.path.exists(listed):
        return listed
    content, at, step = template(n_row)
    ids = np.lib.stride_tricks.as_strided(content[at:].view(), (n_row, 8), (step, 1))
    paths = []
    for i in range(n_file):
        if i % 1000 == 0:
            os.makedirs(os.path.join(folder, f"{i // 1000}"), exist_ok=True)
        path = os.path.join(folder, f"{i // 1000}", f"coadd-{i}.fits")
        ids[:] = (i * n_row + np.arange(n_row, dtype=">i8")).astype(">i8").view(np.uint8).reshape(
            n_row, 8)
        with open(path, "wb") as f:
            f.write(content.tobytes())
        paths.append(path)
    with open(listed + ".tmp", "w") as f:
        f.writelines(p + "\n" for p in paths)
    os.rename(listed + ".tmp", listed)
    return listed


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []


def peaks(pid, starmill, seen):
    """VmHWM in MiB of every starmill below a process."""
    for child in children(pid):
        try:
            with open(f"/proc/{child}/status") as f:
                status = dict(line.split(":", 1) for line in f if ":" in line)
            if status["Name"].strip() == os.path.basename(starmill)[:15] and "VmHWM" in status:
                seen[child] = int(status["VmHWM"].split()[0]) / 1024
        except OSError:
            pass
        peaks(child, starmill, seen)


def run(args, catalog, n_rank, plan):
    out = os.path.join(args.folder, "out.h5")
    for end in ["", ".lock", ".status.json"]:
        if os.path.exists(out + end):
            os.unlink(out + end)
    command = [args.mpirun, "-n", str(n_rank), "--bind-to", "none", args.starmill, "fit",
               "--library", args.library, "--output", out, "--catalog", catalog, "--threads", "1"]
    command += ["--plan"] if plan else []
    start = time.monotonic()
    seen, created = {}, None
    with open(os.path.join(args.folder, "log.txt"), "w") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log)
        while job.poll() is None:
            peaks(job.pid, args.starmill, seen)
            if created is None and os.path.exists(out):
                created = time.monotonic() - start
                job.send_signal(signal.SIGTERM)
            time.sleep(0.05)
    seconds = created or time.monotonic() - start
    if job.returncode not in (0, 1, 75, 143, -signal.SIGTERM):
        sys.exit(f"{' '.join(command)} ended with {job.returncode}; see {args.folder}/log.txt")
    return seconds, sorted(seen.values())[-n_rank:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--starmill", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--mpirun", default=os.environ.get("MPIRUN", "mpirun"))
    parser.add_argument("--files", type=int, default=100000)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--create", action="store_true")
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    os.makedirs(args.folder, exist_ok=True)
    catalog = make_files(args.folder, args.files, args.rows)
    print("| files | rows | ranks | what | s | MiB of a rank at most |\n|---|---|---|---|---|---|")
    for n_rank in map(int, args.ranks.split(",")):
        for plan in [True] + [False] * args.create:
            seconds, mib = run(args, catalog, n_rank, plan)
            print(f"| {args.files} | {args.files * args.rows} | {n_rank} | "
                  f"{'--plan' if plan else 'until /fits is there'} | {seconds:.1f} | "
                  f"{', '.join(f'{m:.0f}' for m in sorted(mib))} |", flush=True)


if __name__ == "__main__":
    main()
