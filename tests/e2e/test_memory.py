# SPDX-License-Identifier: BSD-3-Clause
"""Too little memory or disk.  With a limited address space (ulimit -v, as a batch system sets it) a
run succeeds or ends with a message.  Memory does not grow with the number of stars;
campaigns/memory_slope.py has the long test.  With a small scratch folder only .gz inputs that do
not fit into it fail; all others are fitted."""

from common import *  # noqa: F403


class Memory(EndToEnd):
    def test_a_limit_that_a_job_keeps_or_says_why(self):
        """OpenBLAS's own threads ask for 128 MiB each again and again for ever."""
        config = put("p.yaml", "particles: 1000\nsteps: 10\nproblems: [{diffusion: 1}]\n")
        for job in (("fit", "--library", library(), "--threads", 1, cut("limit.fits", [3, 60])),
                    ("particles", "--threads", 4, config), ("particles", "--threads", 64, config)):
            for n_mib in (140, 200, 250, 300, 400, 450, 550, 900):
                # the program itself is mapped: up to 80 MB with machine code for several GPUs
                path, n_byte = tmp(f"{job[0]}{n_mib}.h5"), (n_mib << 20) + os.path.getsize(STARMILL)
                done = starmill(*job, "--output", path, env={"OPENBLAS_NUM_THREADS": "2"}, preexec_fn=lambda:
                                resource.setrlimit(resource.RLIMIT_AS, (n_byte, n_byte)))
                good = {140: [70], 900: [0]}.get(n_mib, [0, 70])
                self.assertIn(done.returncode, good, (job, n_mib, done.stderr))
                if done.returncode:
                    self.assertIn("memory", done.stderr.splitlines()[-1])
                else:
                    self.assertTrue(job[0] != "fit" or (read(path)["STATUS"] == FITTED).all(), n_mib)
                    os.unlink(path)

    def test_2000_stars(self):
        """A leak of a star's spectrum would be 6 kB a star, of its slot more."""
        coarse_library("lib.h5")  # which it does not make then
        done = ended([sys.executable, "-B", os.path.join(SOURCE, "campaigns", "memory_slope.py"),
                      "--starmill", STARMILL, "--folder", TMP, "--stars", 2000, "--per-file", 50,
                      "--limit", 1500], timeout=500)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"2000 generic .* bytes a star")


def packed(path):
    return put(path + ".gz", gzip.compress(content(path), 1))


@unittest.skipUnless(os.geteuid() == 0, "only root can mount a small file system")
class Scratch(EndToEnd):
    @classmethod
    def setUpClass(cls):
        cls.plain = [cut(f"coadd-{i}.fits", [3 * i, 3 * i + 1]) for i in range(4)]
        cls.packed = [packed(path) for path in cls.plain]
        cls.bytes = os.path.getsize(cls.plain[0])
        cls.folder = new_folder("scratch")

    def setUp(self):
        # one of the files fits, two do not
        size = self.bytes + (self.bytes >> 1)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.folder])
        if done.returncode != 0:
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", self.folder], check=True)
        put("scratch.yaml", f"scratch: {self.folder}\nreaders: 2\n")
        self.config = ["--config", tmp("scratch.yaml")]

    def test_a_file_that_does_not_fit_costs_itself(self):
        big = packed(cut("big.fits", range(100, 104)))
        self.fit("expected-big.h5", *self.plain[:2])
        expected = read(self.path)
        done = self.fit("big.h5", *self.config, self.packed[0], big, self.packed[1], status=3)
        needs = f"needs {os.path.getsize(big[:-3]) / 2**20:.1f} MiB"
        for text in ("big.fits.gz", needs, self.folder, "set scratch"):
            self.assertIn(text, done.stderr)
        self.assertEqual(differing(read(self.path), expected), [])
        errors = [e.decode() for e in read(self.path, "catalog/files")["ERROR"]]
        self.assertEqual([bool(e) for e in errors], [False, True, False])
        self.assertIn(needs, errors[1])

    def test_files_that_do_not_fit_together_wait(self):
        self.fit("expected-wait.h5", *self.plain)
        expected = read(self.path)
        self.fit("one.h5", *self.config, *self.packed)
        self.assertEqual(differing(read(self.path), expected), [])
        self.fit("three.h5", *self.config, *self.packed, ranks=3)
        self.assertEqual(differing(read(self.path), expected), [])

    def test_files_of_one_object_that_do_not_fit_together(self):
        other = packed(cut("red.fits", [0, 1], without(*("B_" + name for name in HDUS))))
        self.fit("expected-joined.h5", "--join-by-name", self.plain[0], other)
        expected = read(self.path)
        self.fit("joined.h5", *self.config, "--join-by-name", self.packed[0], other)
        self.assertEqual(differing(read(self.path), expected), [])
