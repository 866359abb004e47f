"""The same stars give the same rows, bit for bit, however the work is shared out."""

from common import *  # noqa: F403


class SameResult(EndToEnd):
    def test_ranks_threads_and_slots(self):
        # several files, so that ranks read different ones; a bad one among them
        inputs = [cut("a.fits", [0, 20, 40]), cut("b.fits", range(60, 64)), tmp("missing.fits"),
                  cut("c.fits", [7])]
        with open(tmp("list.txt"), "w") as f:
            f.write("# a comment\n\n" + "\n".join(inputs[1:]) + "\n")
        args = [inputs[0], "--catalog", tmp("list.txt")]
        self.fit("reference.h5", "--threads", 1, *args, status=3)
        fits, catalog = read(self.path), read(self.path, "catalog")
        self.assertEqual(list(fits["STATUS"]), [FITTED] * 8)
        self.assertEqual(list(catalog["FILE"]), [0] * 3 + [1] * 4 + [3])
        for ranks, threads, slots in (
            (1, 2, 0), (2, 1, 0), (3, 1, 0), (1, 1, 1), (1, 2, 7), (2, 2, 1), (11, 1, 0),
        ):
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
        # equal spectra, equal rows, whoever fitted them
        self.assertEqual(len({v.tobytes() for v in fits["VRAD"][fits["STATUS"] == FITTED]}), 1)
        for ranks in (2, 3):
            self.fit(f"large{ranks}.h5", path, ranks=ranks)
            self.assertEqual(differing(read(self.path), fits), [])


if __name__ == "__main__":
    main()
