# SPDX-License-Identifier: BSD-3-Clause
"""The same stars give the same rows, bit for bit, however the work is shared out."""

import gzip
import os
import shutil

from common import *  # noqa: F403


class Starts(ProgramTest):
    def test_side_by_side_without_a_launcher(self):
        folder = tmp("sessions")
        os.mkdir(folder)
        runs = [subprocess.Popen(command("fit", "--print-config"), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True,
                                 env={**ENVIRONMENT, "TMPDIR": folder}) for _ in range(8)]
        for run in runs:
            _, errors = run.communicate(timeout=PATIENCE)
            self.assertEqual(run.returncode, 0, errors)
        self.assertEqual(os.listdir(folder), [])  # each has removed its own


class SameResult(EndToEnd):
    def test_ranks_threads_and_slots(self):
        # several files, so that ranks read different ones; a bad one among them
        inputs = [cut("a.fits", [0, 20, 40]), cut("b.fits", range(60, 64)), tmp("missing.fits"),
                  cut("c.fits", [7])]
        put("list.txt", "# a comment\n\n" + "\n".join(inputs[1:]) + "\n")
        args = [inputs[0], "--catalog", tmp("list.txt")]
        self.fit("reference.h5", "--threads", 1, *args, status=3)
        fits, catalog = read(self.path), read(self.path, "catalog")
        self.assertEqual(list(fits["STATUS"]), [FITTED] * 8)
        self.assertEqual(list(catalog["FILE"]), [0] * 3 + [1] * 4 + [3])
        # threads and slots: test_fit_same_bits.py
        for ranks, threads, slots in ((2, 2, 1), (11, 1, 0)):
            with self.subTest(ranks=ranks, threads=threads, slots=slots):
                out = f"r{ranks}t{threads}s{slots}.h5"
                self.fit(out, "--threads", threads, "--slots", slots, *args, ranks=ranks, status=3)
                self.assertEqual(differing(read(self.path), fits), [])
                self.assertEqual(differing(read(self.path, "catalog"), catalog), [])

    def test_work_blocks_of_one_large_file(self):
        # more rows than a work block, most of them settled without a fit, quickly
        def faint(hdus):
            for arm in ARMS:
                hdus[arm + "_FLUX"].data[np.arange(300) % 50 != 0] *= 0
        rows = np.arange(300) % 50
        path = cut("large.fits", rows, faint)
        self.fit("large1.h5", path)
        fits = read(self.path)
        self.assertEqual(list(np.flatnonzero(fits["STATUS"] == FITTED)), [0, 50, 100, 150, 200, 250])
        self.assertEqual(int((fits["STATUS"] == NO_ARM).sum()), 294)
        # equal spectra, equal rows, on any rank
        self.assertEqual(len({v.tobytes() for v in fits["VRAD"][fits["STATUS"] == FITTED]}), 1)
        for ranks, readers in ((3, 1), (2, 3)):
            with self.subTest(ranks=ranks, readers=readers):
                self.fit(f"large{ranks}-{readers}.h5", "--readers", readers, path, ranks=ranks)
                self.assertEqual(differing(read(self.path), fits), [])

    def test_several_readers_of_many_files(self):
        # plain and compressed, one of them damaged, one cut in a data unit, and joined rows; of
        # the large file only the first rows are fitted
        def faint(hdus):
            for arm in ARMS:
                hdus[arm + "_FLUX"].data[12:] *= 0
        inputs = [cut(f"many{i}.fits", range(10 * i, 10 * i + n), faint)
                  for i, n in enumerate((3, 1, 70, 2, 5))]
        for at in (1, 2):
            with open(inputs[at], "rb") as f, gzip.open(inputs[at] + ".gz", "wb", 1) as g:
                shutil.copyfileobj(f, g)
            inputs[at] += ".gz"
        with open(inputs[3], "r+b") as f:
            f.truncate(os.path.getsize(inputs[3]) // 2)
        for name, more, ranks, readers in (("plain", [], 1, 4), ("joined", ["--join-by-name"], 2, 16)):
            self.fit(f"{name}.h5", "--readers", 1, *more, *inputs, status=3)
            fits, catalog = read(self.path), read(self.path, "catalog")
            self.assertGreater(int((fits["STATUS"] == FITTED).sum()), 15)
            self.assertGreater(len(fits["STATUS"]), 70)
            self.fit(f"{name}-other.h5", "--readers", readers, *more, *inputs, ranks=ranks, status=3)
            self.assertEqual(differing(read(self.path), fits), [])
            self.assertEqual(differing(read(self.path, "catalog"), catalog), [])


if __name__ == "__main__":
    main()
