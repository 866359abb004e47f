# SPDX-License-Identifier: BSD-3-Clause
"""Work is drawn by the ranks of a run: uneven files change nothing but who fits what."""

import gzip
import re

from common import *  # noqa: F403


class Balance(EndToEnd):
    def uneven(self):
        """Files of 1 to 40 rows, one of them compressed."""
        files = [cut("u1.fits", [0]), cut("u2.fits", range(1, 41)), cut("u3.fits", range(41, 44)),
                 cut("u4.fits", range(44, 56)), cut("u5.fits", [56])]
        packed = files[3] + ".gz"
        with gzip.open(packed, "wb", compresslevel=1) as f:
            f.write(content(files[3]))
        return files[:3] + [packed] + files[4:]

    def test_every_row_once_and_who_was_idle(self):
        library()
        files = self.uneven()
        alone = self.fit("alone.h5", *files)
        self.assertRegex(alone.stdout, r"(?m)^balance +waited [0-9.]+ % for spectra, [0-9.]+ % for "
                                       "writing$")
        one = content_of_fits(self.path)
        for n_rank in (2, 3):
            log = tmp(f"log{n_rank}.txt")
            done = self.fit(f"shared{n_rank}.h5", "--log", log, "--config", self.debug(), *files,
                            ranks=n_rank)
            m = re.search(r"(?m)^balance +idle tail ([0-9.]+) % \((\d) ranks fitted for ([0-9.]+) "
                          r"to ([0-9.]+) s\); waited", done.stdout)
            self.assertEqual(int(m[2]), n_rank)
            self.assertTrue(0 <= float(m[1]) < 100 and float(m[3]) <= float(m[4]), m[0])
            self.assertEqual(content_of_fits(self.path), one)
            with open(log) as f:
                text = f.read()
            ranks = re.findall(r"fitted (\d+) rows of (\d+) chunks.*files opened (\d+) times", text)
            self.assertEqual(len(ranks), n_rank, text)
            self.assertEqual(sum(int(r[0]) for r in ranks), 57)
            n_chunk = int(re.search(r"57 rows are grouped into (\d+) chunks", text)[1])
            self.assertEqual(sum(int(r[1]) for r in ranks), n_chunk)
            # each file once, and once more for a chunk that begins within it
            self.assertTrue(5 <= sum(int(r[2]) for r in ranks) <= 5 + n_chunk, text)

    def debug(self):
        path = tmp("debug.yaml")
        put(path, "log_level: debug\n")
        return path


def content_of_fits(path):
    """All of /fits, bit for bit."""
    with h5py.File(path) as f:
        return {name: f["fits"][name][()].tobytes() for name in f["fits"]}


if __name__ == "__main__":
    main()
