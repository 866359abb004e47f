# SPDX-License-Identifier: BSD-3-Clause
"""A run is one: what continues it, and each of its ranks, has the same rows and settings."""

from common import *  # noqa: F403


def unfinish(path, row=0):
    """Make a finished result one that was stopped before it came to the row."""
    with h5py.File(path, "r+") as f:
        f["fits/STATUS"][row] = 0
        f["provenance/FINISHED"][...] = 0


class Redrock(EndToEnd):
    """The redrock file selects other rows, as many as before, between a stop and its continuation."""

    ROWS = [3, 60, 100, 150]

    def setUp(self):
        self.stars = cut("coadd-same.fits", self.ROWS)
        with pyfits.open(self.stars) as hdus:
            self.ids = [int(i) for i in hdus["FIBERMAP"].data["TARGETID"]]
        self.redrock = tmp("redrock-same.fits")

    def write(self, kept, path=None):
        """A redrock file by which the rows kept are stars; all such files have one size and time."""
        path, n = path or self.redrock, len(self.ids)
        write_redrock(path, self.ids, np.full(n, 0.5), ["STAR" if i in kept else "GALAXY" for i in range(n)])
        os.utime(path, (1.7e9, 1.7e9))

    def refused(self, *parts, more=()):
        before = content(self.path)
        for ranks in (0, 2):
            done = starmill("fit", "--library", library(), "--output", self.path, "--redrock",
                            self.stars, *more, ranks=ranks)
            self.assertOneLine(done, self.path, self.stars, "--overwrite", *parts, status=4)
            self.assertEqual(content(self.path), before)

    def begin(self, out, ranks=0):
        self.write([0, 1])
        self.fit(out, "--redrock", self.stars, ranks=ranks)
        self.assertEqual([int(i) for i in read(self.path)["TARGETID"]], self.ids[:2])
        unfinish(self.path)

    def test_other_rows_are_refused(self):
        self.begin("rows.h5", ranks=2)
        self.write([1, 2])
        self.refused("its selected rows have changed", self.redrock)
        self.write([0, 1])
        self.fit("rows.h5", "--redrock", self.stars)  # the right ones still continue
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 2)

    def test_another_redrock_file_is_refused(self):
        self.begin("file.h5")
        files = read(self.path, "catalog/files")
        self.assertEqual([p.decode() for p in files["REDROCK"]], [self.redrock])
        self.assertEqual(list(files["REDROCK_SIZE"]), [os.path.getsize(self.redrock)])
        self.assertEqual(list(files["REDROCK_MTIME"]), [1.7e9])
        os.utime(self.redrock, (1.8e9, 1.8e9))
        self.refused("the time of change of its redrock file differs", self.redrock)
        os.remove(self.redrock)
        zbest = tmp("zbest-same.fits")
        self.write([0, 1], zbest)
        self.refused("its redrock file was", self.redrock, f"now {zbest}")
        os.remove(zbest)

    def test_file_by_which_nothing_is_selected_may_change(self):
        self.write([0, 1])
        self.fit("columns.h5", self.stars)
        self.assertEqual([p.decode() for p in read(self.path, "catalog/files")["REDROCK"]], [self.redrock])
        unfinish(self.path)
        self.write([1, 2])
        os.utime(self.redrock, (1.8e9, 1.8e9))
        self.fit("columns.h5", self.stars)
        self.assertEqual(list(read(self.path)["STATUS"]), [FITTED] * 4)


class Ranks(EndToEnd):
    """Ranks that were not started alike end together, at once, and write nothing."""

    def mpmd(self, common, first=(), second=(), program=STARMILL):
        """Two ranks of one job, each with a command line of its own."""
        one, two = ([STARMILL, "fit", *common, *first], [program, "fit", *common, *second])
        return ended([MPIRUN, "-n", 1, *one, ":", "-n", 1, *two])

    def assertRefused(self, done, *parts):
        self.assertOneLine(done, "starmill fit: rank 0 on ", "rank 1 on ", *parts, status=2)
        self.assertFalse(os.path.exists(tmp("alike.h5")))

    def test_other_command_line(self):
        stars, other = cut("alike.fits", [3]), cut("other.fits", [60])
        common = ["--library", library(), "--output", tmp("alike.h5")]
        for more in (["--models", tmp("alike-models.h5")], ["--plan"], ["--overwrite"],
                     ["--print-config"], ["--help"]):
            with self.subTest(more=more):
                done = self.mpmd([*common, stars], second=more)
                self.assertRefused(done, "different command lines", f'"no {more[0]}', f'"{more[0]}')
        done = self.mpmd(common, [stars], [other])
        self.assertRefused(done, f'"input {stars}" and "input {other}"')
        done = self.mpmd([*common, stars], second=["--no-such-option"])
        self.assertOneLine(done, "starmill fit: ", "no-such-option", status=2)

    def test_other_library(self):
        copy = tmp("stale.h5")
        emulators = [data(f"emulator/nnrm_desi_{arm}.h5") for arm in "brz"]
        run("library", "import", "--output", copy, "--guess-templates", 21, *emulators)
        common = ["--output", tmp("alike.h5"), cut("alike.fits", [3])]
        done = self.mpmd(common, ["--library", library()], ["--library", copy])
        self.assertRefused(done, "different libraries")

    def test_other_settings(self):
        config = tmp("stale.yaml")
        put(config, "npoly: 11\n")
        common = ["--library", library(), "--output", tmp("alike.h5"), cut("alike.fits", [3])]
        done = self.mpmd(common, second=["--config", config])
        self.assertRefused(done, "different settings", '"npoly: 10" and "npoly: 11"')
        done = self.mpmd(common, ["--threads", 1])
        self.assertRefused(done, "different settings", '"threads: given" and "threads: 0"')

    def test_what_may_differ(self):
        path, copy = tmp("may-differ.h5"), tmp("same-library.h5")
        put(copy, content(library()))
        done = self.mpmd(["--output", path, "--quiet", cut("alike.fits", [3, 60])],
                         ["--library", library(), "--threads", 1, "--slots", 1],
                         ["--library", copy, "--threads", 2, "--log", tmp("second.log")])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(read(path)["STATUS"]), [FITTED] * 2)
