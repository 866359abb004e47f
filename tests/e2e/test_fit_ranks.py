# SPDX-License-Identifier: BSD-3-Clause
"""The same stars give the same rows, bit for bit, however the work is shared out."""

from common import *  # noqa: F403


class Starts(ProgramTest):
    def test_side_by_side_without_a_launcher(self):
        folder = new_folder("sessions")
        # Open MPI fails if the environment names one session folder for all
        environment = {k: v for k, v in ENVIRONMENT.items() if k != "OMPI_MCA_orte_tmpdir_base"}
        runs = [subprocess.Popen(command("fit", "--print-config"), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True,
                                 env={**environment, "TMPDIR": folder}) for _ in range(8)]
        for run in runs:
            self.said_by(run, 0)
        self.assertEqual(os.listdir(folder), [])  # each has removed its own

    def test_tasks_that_are_each_alone(self):
        batch = {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}  # of a batch script, which starts one on purpose
        for more, status in (({"SLURM_STEP_NUM_TASKS": "4"}, 2), ({"PMI_SIZE": "3"}, 2), (batch, 0),
                             ({"OMPI_COMM_WORLD_SIZE": "2"}, 2), ({"SLURM_STEP_NUM_TASKS": "1", **batch}, 0)):
            done = self.ends(status, "fit", "--print-config", env=more)
            self.assertEqual("srun --mpi=pmix" in done.stderr, status == 2, done.stderr)


class SameResult(EndToEnd):
    def test_uneven_files(self):
        """Files of 1 to 40 rows, one compressed, one missing: rows do not depend on ranks."""
        inputs = [cut("u1.fits", [0]), cut("u2.fits", range(1, 41)), cut("u3.fits", range(41, 44)),
                  cut("u4.fits", range(44, 56)), tmp("missing.fits"), cut("u5.fits", [56])]
        inputs[3] = put(inputs[3] + ".gz", gzip.compress(content(inputs[3]), 1))
        put("list.txt", "# a comment\r\n\r\n" + "\r\n".join(inputs[1:]) + "\n")
        args = ["--log-level", "debug", inputs[0], "--catalog", tmp("list.txt")]
        alone = self.fit("reference.h5", "--threads", 1, *args, status=3)
        self.assertRegex(alone.stdout, r"(?m)^balance +waited [0-9.]+ % for spectra, [0-9.]+ % for writing$")
        fits, catalog = read(self.path), read(self.path, "catalog")
        self.assertEqual(list(catalog["FILE"]), [0] + [1] * 40 + [2] * 3 + [3] * 12 + [5])
        # threads and slots: test_hosts.py
        for ranks, threads, slots in ((2, 2, 1), (5, 1, 0)):
            log = tmp(f"log{ranks}.txt")
            done = self.fit(f"r{ranks}.h5", "--threads", threads, "--slots", slots, "--log", log, *args,
                            ranks=ranks, status=3)
            self.assertEqual(differing(read(self.path), fits), [])
            self.assertEqual(differing(read(self.path, "catalog"), catalog), [])
            tail, n, least, most = re.search(
                r"(?m)^balance +idle tail ([0-9.]+) % \((\d+) ranks fitted for ([0-9.]+) to ([0-9.]+) s\); "
                "waited", done.stdout).groups()
            self.assertEqual(int(n), ranks)
            self.assertTrue(0 <= float(tail) <= 100 and float(least) <= float(most), done.stdout)
            text = content(log, "r")
            found = np.array(re.findall(r"fitted (\d+) rows of (\d+) chunks.*files opened (\d+) times",
                                        text)).astype(int)
            n_chunk = int(re.search(r"57 rows are grouped into (\d+) chunks", text)[1])
            n_rows, n_chunks, n_opened = found.sum(axis=0)
            self.assertEqual((len(found), n_rows, n_chunks), (ranks, 57, n_chunk), text)
            # each file once, and once more for a chunk that begins within it
            self.assertTrue(5 <= n_opened <= 5 + n_chunk, text)

    def test_work_blocks_of_one_large_file(self):
        # more rows than a work block, most of them settled without a fit, quickly
        def faint(hdus):
            for arm in ARMS:
                hdus[arm + "_FLUX"].data[np.arange(300) % 50 != 0] *= 0
        path = cut("large.fits", np.arange(300) % 50, faint)
        self.fit("large1.h5", path)
        fits = read(self.path)
        self.assertEqual(list(np.flatnonzero(fits["STATUS"] == FITTED)), [0, 50, 100, 150, 200, 250])
        self.assertEqual(int((fits["STATUS"] == NO_ARM).sum()), 294)
        # equal spectra, equal rows, on any rank
        self.assertEqual(len({v.tobytes() for v in fits["VRAD"][fits["STATUS"] == FITTED]}), 1)
        self.fit("large3.h5", "--readers", 1, path, ranks=3)
        self.assertEqual(differing(read(self.path), fits), [])

    def test_several_readers_of_many_files(self):
        # The inputs are plain and compressed files; one is cut within a data unit.  In the file of
        # 70 rows only the first 12 rows have flux.
        def faint(hdus):
            for arm in ARMS:
                hdus[arm + "_FLUX"].data[12:] *= 0
        inputs = [cut(f"many{i}.fits", range(10 * i, 10 * i + n), faint)
                  for i, n in enumerate((3, 1, 70, 2, 5))]
        for at in (1, 2):
            inputs[at] = put(inputs[at] + ".gz", gzip.compress(content(inputs[at]), 1))
        os.truncate(inputs[3], os.path.getsize(inputs[3]) // 2)
        for name, more, ranks, readers in (("plain", [], 1, 4), ("joined", ["--join-by-name"], 2, 16)):
            self.fit(f"{name}.h5", "--readers", 1, *more, *inputs, status=3)
            fits, catalog = read(self.path), read(self.path, "catalog")
            self.assertGreater(int((fits["STATUS"] == FITTED).sum()), 15)
            self.assertGreater(len(fits["STATUS"]), 70)
            self.fit(f"{name}-other.h5", "--readers", readers, *more, *inputs, ranks=ranks, status=3)
            self.assertEqual(differing(read(self.path), fits), [])
            self.assertEqual(differing(read(self.path, "catalog"), catalog), [])
