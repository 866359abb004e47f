# SPDX-License-Identifier: BSD-3-Clause
"""`starmill fit --plan` says what the run then does, and writes nothing."""

from common import *  # noqa: F403

UNIT = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def entries(folder):
    """Names, sizes and times of the files of a folder, without the folders that MPI makes."""
    return sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns)
                  for e in os.scandir(folder) if e.is_file())


class Plan(EndToEnd):
    def plan(self, out, *args, status=0, ranks=0):
        """Return a plan's lines by their first words.  The plan may not change files of TMP."""
        library()
        before = entries(TMP)
        done = self.fit(out, "--plan", *args, status=status, ranks=ranks)
        self.assertEqual(entries(TMP), before)
        return dict(re.findall(r"(?m)^(\w+) +(\S.*)$", done.stdout))

    def assertSize(self, line, path):
        """The size in a line of the plan is that of the file within a twentieth, or 8 kB."""
        number, unit = re.search(r"about ([0-9.]+) (\w+)$", line).groups()
        size = os.path.getsize(path)
        self.assertLess(abs(float(number) * UNIT[unit] - size), max(size / 20, 8000),
                        f"{line} for {size} bytes")

    def test_what_is_planned_is_done(self):
        # two files, of which a target list takes some rows
        files = [cut("a.fits", range(0, 30)), cut("b.fits", range(30, 45))]
        with pyfits.open(files[0]) as a, pyfits.open(files[1]) as b:
            ids = list(a["FIBERMAP"].data["TARGETID"][:7]) + list(b["FIBERMAP"].data["TARGETID"][:3])
        put("ids.txt", "".join(f"{i}\n" for i in ids))
        put("files.txt", "".join(p + "\n" for p in files))
        args = ["--catalog", tmp("files.txt"), "--object-file", tmp("ids.txt"), "--models",
                tmp("models.h5"), "--log", tmp("plan.log")]
        plan = self.plan("plan.h5", *args)
        size = sum(os.path.getsize(p) for p in files)
        self.assertRegex(plan["inputs"], r"^2 files, ")
        self.assertAlmostEqual(float(re.search(r"([0-9.]+) MB", plan["inputs"])[1]), size / 1e6,
                               delta=0.51)
        self.assertEqual(plan["rows"], "45 in the files, 10 selected, 10 exposures")
        self.assertEqual(plan["work"], "1 rank draws 1 chunk, about 10 rows each rank")
        self.assertIn("10 rows", plan["time"])
        self.fit("plan.h5", *args)
        self.assertEqual(len(read(self.path)["STATUS"]), 10)
        self.assertSize(plan["result"], self.path)
        self.assertSize(plan["models"], tmp("models.h5"))
        again = self.plan("plan.h5", *args)
        self.assertIn("10 of 10 rows done", again["existing"])
        self.assertIn("0 rows", again["time"])
        self.assertIn("replaced", self.plan("plan.h5", *args, "--overwrite")["existing"])

    def test_many_files_for_many_ranks(self):
        star = content(cut("many.fits", [0, 1, 2]))
        os.mkdir(tmp("many"))
        for i in range(60):
            put(f"many/{i}.fits", star)
        put("many.txt", "".join(tmp(f"many/{i}.fits") + "\n" for i in range(60)))
        args = ["--catalog", tmp("many.txt"), "--threads", 2]
        plan = self.plan("many.h5", *args, "--ranks", 7, "--rate", 2.5)
        # first chunks are even shares, as a rank's slots and readers can hold more rows than this
        n_chunk = int(re.fullmatch(r"7 ranks draw (\d+) chunks, about 26 rows each rank",
                                   plan["work"])[1])
        self.assertTrue(7 <= n_chunk <= 14, n_chunk)
        # 180 rows / (7 ranks of 2.5 a second), and opening 60 files
        self.assertIn("about 10s for 180 rows: 7 ranks of 2.5 stars/s (as given)", plan["time"])
        self.assertIn("2 threads each", plan["ranks"])
        # by two ranks, each of which has indexed its share
        self.assertEqual(self.plan("many.h5", *args, "--ranks", 7, "--rate", 2.5, ranks=2), plan)
        self.assertRegex(self.plan("many.h5", *args, ranks=2)["work"],
                         r"^2 ranks draw \d chunks, about 90 rows each rank$")
        # more ranks than can have work
        work = self.plan("many.h5", *args, "--ranks", 500, "--rate", 2.5)["work"]
        n_chunk, n_idle = map(int, re.search(r"draw (\d+) chunks; (\d+) of the ranks would be "
                                             "idle", work).groups())
        self.assertEqual(n_chunk + n_idle, 500)
        self.assertLessEqual(n_chunk, 60)

    def test_unreadable_input_is_counted(self):
        put("bad.fits", "no FITS")
        plan = self.plan("bad.h5", tmp("bad.fits"), cut("good.fits", [3]), status=3)
        self.assertIn("2 files", plan["inputs"])
        self.assertIn("1 cannot be read", plan["inputs"])
        self.assertTrue(plan["rows"].startswith("1 in the files, 1 selected"))
