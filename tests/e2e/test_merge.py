# SPDX-License-Identifier: BSD-3-Clause
"""`starmill merge`: results of a survey's parts become the result of a single run, bit for bit."""

import gzip

from astropy.table import Table

from base import *  # noqa: F403
from starmill import Result
from starmill.cli import running
from starmill.surveys import generic
from survey_stats import half_width

LIBRARY, SURVEY = tmp("lib.h5"), tmp("survey")
UNRESOLVED, PRIOR = 1, 1024  # FIT_INFO
FILES = [os.path.join(SURVEY, "coadd-mock-%05d.fits" % i) for i in range(4)]
# the third is cut, and has a longer path than the others
FILES.insert(2, os.path.join(SURVEY, "coadd-that-cannot-be-read.fits"))


def setUpModule():
    coarse_library("lib.h5")
    run("simulate", "--library", LIBRARY, "--output", SURVEY, "--stars", 16, "--per-file", 4,
        "--seed", 3, "--sn", "20,60", "--quiet")
    put(FILES[2], content(FILES[0])[:2000])


class Merge(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.one = cls().part("one.h5", FILES[:1])

    def part(self, name, files, *options, status=0):
        self.fit(name, "--threads", 1, "--slots", 2, *options, *files, status=status, lib=LIBRARY)
        return self.path

    def merge(self, out, *parts, options=(), status=0, **how):
        return self.ends(status, "merge", "--output", tmp(out), *options, *parts, **how)

    def assertRefused(self, *parts, says, status=2, options=()):
        done = self.merge("refused.h5", *parts, options=options, status=status)
        self.assertOneLine(done, "starmill merge: ", *says, status=status)
        self.assertEqual([n for n in os.listdir(TMP) if n.startswith("refused")], [])

    def test_results_of_two_versions(self):
        """Merging parts of two versions warns; one version may continue another's result."""
        path = self.part("older.h5", FILES[1:2])
        self.assertNotIn("differ", self.merge("same.h5", self.one, path).stderr)
        with h5py.File(path, "r+") as f:
            f["provenance"].attrs.modify("REVISION", np.bytes_("older"))
            f["fits/STATUS"][0] = f["provenance/FINISHED"][0] = 0
        for begun in (True, False):  # the second time it is finished
            done = self.fit("older.h5", "--threads", 1, "--slots", 2, FILES[1], lib=LIBRARY)
            self.assertEqual("(older) and is continued by" in done.stderr, begun, done.stderr)
        self.assertIn("older: rows may differ", self.merge("versions.h5", self.one, path).stderr)

    def test_as_one_run(self):
        whole = self.part("whole.h5", FILES, status=3)
        parts = [self.one, self.part("b.h5", FILES[1:4], status=3), self.part("c.h5", FILES[4:])]
        self.assertIn("rows         16\n", self.merge("all.h5", *parts).stdout)
        with h5py.File(whole, "r") as one, h5py.File(tmp("all.h5"), "r") as all_parts:
            self.assertEqual((read(whole)["STATUS"] == FITTED).sum(), 16)
            for group in ("fits", "catalog", "catalog/exposures", "catalog/files"):
                self.assertEqual(differing(read(whole, group), read(tmp("all.h5"), group)), [])
                self.assertEqual(sorted(one[group]), sorted(all_parts[group]))
                for name, column in one[group].items():
                    other = all_parts[group][name]
                    self.assertEqual(sorted(column.attrs), sorted(other.attrs), name)
                    for key in column.attrs:
                        np.testing.assert_array_equal(column.attrs[key], other.attrs[key])
                    if isinstance(column, h5py.Dataset):
                        self.assertEqual(column.dtype, other.dtype)
                        np.testing.assert_array_equal(column.fillvalue, other.fillvalue)
                        self.assertIsNone(other.chunks)
            said = {k: v[()] for k, v in all_parts["provenance"].items()}
            self.assertEqual(len({one["provenance"].attrs["RUN_ID"],
                                  all_parts["provenance"].attrs["RUN_ID"]}), 2)
            for name in ("IDENTITY", "CONFIG", "FRAMES"):
                self.assertEqual(said[name], one["provenance"][name][()], name)
            commands = said["COMMAND"].decode().split("\n")
            self.assertRegex(commands[0], "^starmill merge ")
            self.assertEqual(len(commands), 4)
            self.assertTrue(all(re.match("starmill fit ", c) for c in commands[1:]))
            self.assertEqual(said["N_RUN"].tolist(), [3])
        # it is the finished result of the fit of all inputs
        before = content(tmp("all.h5"))
        done = self.fit("all.h5", "--threads", 1, *FILES, status=3, lib=LIBRARY)
        self.assertIn("finished already", done.stdout)
        self.assertEqual(content(tmp("all.h5")), before)
        run("status", tmp("all.h5"))
        # an output that is there is kept, unless it is to be replaced
        self.merge("all.h5", *parts[:2], status=4, says=[tmp("all.h5"), "--overwrite"])
        self.assertEqual(content(tmp("all.h5")), before)
        self.merge("all.h5", *reversed(parts), options=["--overwrite", "--quiet"])
        np.testing.assert_array_equal(
            read(tmp("all.h5"))["VRAD"],
            np.concatenate([read(part)["VRAD"] for part in reversed(parts)]))
        # one of the parts is never written to
        before = content(parts[0])
        done = starmill("merge", "--overwrite", "--output", parts[0], *parts)
        self.assertOneLine(done, "--output", "the part " + parts[0], status=2)
        self.assertEqual(content(parts[0]), before)

    def test_killed_at_its_end(self):
        """The same command says that all is done, and removes the lock that a kill left."""
        part, out = shutil.copy(self.one, tmp("killed.h5")), tmp("killed-all.h5")
        self.merge(out, part)
        before = content(out)
        for path in (part, out):
            stale_lock(path)
        self.assertIn("is finished already", self.merge(out, part).stdout)
        done = self.fit("killed.h5", "--threads", 1, "--slots", 2, FILES[0], lib=LIBRARY)
        self.assertIn("is finished already", done.stdout)
        self.assertEqual(content(out), before)
        for path in (part, out):
            self.assertFalse(os.path.exists(path + ".lock"))
        # parts made again give another result, so the old one is not replaced
        self.part("killed.h5", FILES[:1], "--overwrite")
        self.assertOneLine(self.merge(out, part, status=4), "killed-all.h5 exists", status=4)
        # a result of nothing is in nobody's way
        void = self.part("void.h5", FILES[2:3], status=3)
        self.merge("void.h5", part)
        self.assertEqual((read(void)["STATUS"] == FITTED).sum(), 4)

    def test_primary(self):
        """A survey that saw four stars again: fainter, brighter, equally bright, masked."""
        with pyfits.open(FILES[0], memmap=False) as hdus:
            for arm in "BRZ":
                hdus[f"{arm}_IVAR"].data[0] *= 0.5
                hdus[f"{arm}_IVAR"].data[1] *= 2.0
                hdus[f"{arm}_MASK"].data[3] = 1
            hdus.writeto(tmp("coadd-again.fits"))
        parts = [self.part("first.h5", FILES[:2]), self.part("again.h5", [tmp("coadd-again.fits")])]
        self.merge("survey.h5", *parts, options=["--primary"])
        table, catalog = read(tmp("survey.h5")), read(tmp("survey.h5"), "catalog")
        self.assertEqual(catalog["PRIMARY"].tolist(), [1, 0, 1, 1] + [1] * 4 + [0, 1, 0, 0])
        self.assertEqual(table["STATUS"].tolist(), [FITTED] * 11 + [NO_ARM])
        self.assertEqual(run("select", tmp("survey.h5"), "~PRIMARY", "--print", "row").stdout.split(),
                         ["1", "8", "10", "11"])
        # the best row of each star, found in another way
        sn = np.sqrt(sum(np.maximum(table[k], 0) ** 2 for k in table if k.startswith("SN_")))
        best = {}
        for i in np.lexsort((-np.arange(len(sn)), sn, table["VRAD_GOOD"],
                             table["STATUS"] == FITTED)):
            best[table["TARGETID"][i]] = i
        self.assertEqual(sorted(best.values()), np.flatnonzero(catalog["PRIMARY"]).tolist())
        # a part's PRIMARY is not taken over, and a merge without --primary has none
        two = tmp("survey.h5"), self.part("third.h5", FILES[3:4])
        self.assertEqual(self.merge("more.h5", *two, options=["--primary"]).stderr, "")
        primary = read(tmp("more.h5"), "catalog")["PRIMARY"]
        self.assertEqual(primary.sum(), 12)
        self.merge("plain.h5", *two, says=["warning: what an earlier merge --primary added", "is left out"])
        self.assertNotIn("PRIMARY", read(tmp("plain.h5"), "catalog"))
        # PRIMARY and calibration of a single part are kept
        part = tmp("more.h5")
        for option, n_kept in ("--calibrate", 0), ("--primary", 7), ("--quiet", 7):
            self.merge(option[2:] + ".h5", part, options=[option])
            with h5py.File(part) as was, h5py.File(tmp(option[2:] + ".h5")) as made:
                self.assertEqual(made["catalog/PRIMARY"][:].tolist(), primary.tolist())
                kept = {key: made["fits"].attrs[key] for key in was["fits"].attrs}
                self.assertEqual(len(kept), n_kept)
                np.testing.assert_equal(kept, dict(was["fits"].attrs))
                part = made.filename
        # TARGETID goes before OBJECT: SDSS-V's OBJECT changes with the version of the catalogue
        with h5py.File(parts[0], "r+") as f:
            ra, dec = (f[f"catalog/TARGET_{x}"][0] for x in ("RA", "DEC"))
            f["fits/TARGETID"][:5] = [-5, 6, -5, -1, -1]
            f["catalog/OBJECT"][:5] = [b"a", b"a", b"b", b"c", b"c"]
            f["catalog/TARGET_RA"][4] = np.nan
        # a row far from the first row of its TARGETID is another star; (0, 0) is no position
        for place, told in (((ra, dec + 4 / 60), True), ((ra, dec + 0.9 / 60), False), ((0, 0), False)):
            with h5py.File(parts[0], "r+") as f:
                f["catalog/TARGET_RA"][2], f["catalog/TARGET_DEC"][2] = place
                f["fits/TARGETID"][4] = -1 if told else 7  # row 3 without one is the same object
                seal(f, slice(5))
            done = self.merge("named.h5", parts[0], options=["--primary", "--overwrite"])
            self.assertEqual("groups of rows over 1 arcmin from the first row of their TARGETID or name: 1;"
                             in done.stderr, told, done.stderr)
            primary = read(tmp("named.h5"), "catalog")["PRIMARY"]
            self.assertEqual(primary.tolist(), [
                int(told or sn[0] >= sn[2]), 1, int(told or sn[2] > sn[0]),
                int(sn[3] >= sn[4]), int(sn[4] > sn[3]), 1, 1, 1])

    def test_refused(self):
        one = self.one
        self.assertRefused(one, one, says=[FILES[0], "is the same input", "--latest"])
        self.assertRefused(one, tmp("absent.h5"), says=[tmp("absent.h5"), "No such file"], status=4)
        self.assertRefused(one, FILES[0], says=[FILES[0]], status=4)
        self.assertRefused(one, LIBRARY, says=[LIBRARY, "not a result of starmill"], status=4)
        self.assertRefused(says=["one or more results"])
        self.assertRefused(one, says=["--wrong"], options=["--wrong"])
        other = self.part("other.h5", FILES[1:2], "--npoly", 8)
        self.assertRefused(one, other, says=[one, other, "different settings", "npoly"])
        unfinish(shutil.copy(one, tmp("unfinished.h5")), slice(0))  # FINISHED alone
        self.assertRefused(tmp("unfinished.h5"), says=["is not finished", "leave it out"])
        with h5py.File(shutil.copy(one, tmp("less.h5")), "r+") as f:
            del f["fits/VRAD"]
        self.assertRefused(one, tmp("less.h5"), says=[tmp("less.h5"), "no column VRAD"], status=4)
        with h5py.File(shutil.copy(one, tmp("more.h5")), "r+") as f:
            f["fits/MORE"] = np.zeros(4)
        self.assertRefused(one, tmp("more.h5"), says=[tmp("more.h5"), "fits/MORE", "lacks"])
        put("cut.h5", content(one)[:20000])
        self.assertRefused(one, tmp("cut.h5"), says=[tmp("cut.h5"), "truncated"], status=4)

    def test_the_same_input_by_other_names(self):
        # three files of one size and time; the first and the last are the same file
        def place(folder, make):
            os.mkdir(tmp(folder))
            path = os.path.join(tmp(folder), "coadd.fits")
            make(path)
            return path
        first = place("d1", lambda path: shutil.copy2(FILES[0], path))
        second = place("d2", lambda path: shutil.copy2(FILES[1], path))
        os.mkdir(tmp("d3"))
        third = tmp("d3/link-of-another-name.fits")
        os.symlink(first, third)
        at = os.stat(first)
        os.utime(second, ns=(at.st_atime_ns, at.st_mtime_ns))
        self.assertEqual(os.stat(second).st_size, at.st_size)
        parts = [self.part(f"named{i}.h5", [path]) for i, path in enumerate((first, second, third))]
        self.assertRefused(*parts, says=["coadd.fits", "another-name", "same input"])
        self.merge("two.h5", *parts[:2])
        # a copy is the same input, as its size, time and rows are the same
        parts += [self.part("copied.h5", [place("d4", lambda path: shutil.copy2(first, path))])]
        for options in [], ["--latest"]:  # which takes a path's last fit
            self.assertRefused(parts[0], parts[3], options=options,
                               says=["coadd.fits", "same input"])
        shutil.rmtree(tmp("d1"))  # the results still tell size, time and rows of a removed input
        self.assertRefused(parts[0], parts[2], says=["another-name", "same input"])

    def test_nights_of_the_same_stars_at_one_time(self):
        """Files that agree in size, time and list of stars, but not in spectra, are two inputs."""
        other, was = tmp("coadd-other-night.fits"), os.stat(FILES[0])
        with pyfits.open(FILES[0], memmap=False) as hdus:
            hdus["B_IVAR"].data *= 0.5
            hdus.writeto(other)
        os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
        both = self.part("both.h5", [FILES[0], other])
        files = read(both, "catalog/files")
        for name in ("SIZE", "MTIME", "ROWS_HASH"):
            self.assertEqual(*files[name])
        self.merge("of-both.h5", both)
        night = self.part("night.h5", [other])
        self.merge("of-nights.h5", self.one, night)
        self.assertEqual(len(read(tmp("of-nights.h5"))["VRAD"]), 8)
        self.assertRefused(both, night, says=[other, "is the same input"])
        with h5py.File(night, "r+") as f:  # fits of another version are not compared
            f["provenance"].attrs.modify("REVISION", np.bytes_("older"))
        self.assertRefused(self.one, night, says=[other, "is the same input"])

    def test_latest(self):
        """If an input changed twice and was fitted each time, --latest merges only the last fit."""
        path = shutil.copy(FILES[1], tmp("coadd-new.fits"))
        nights = [self.part("night0.h5", [path, FILES[0]])]
        os.utime(path, (0, 0))
        nights += [self.part("night1.h5", [path])]
        self.assertRefused(*nights, says=[path, *nights, "give --latest"])
        pyfits.append(path, np.zeros(9))  # another size
        nights += [self.part("night2.h5", [path])]
        self.merge("wanted.h5", self.one, nights[2])
        for out, parts, time in (("latest1.h5", nights, None), ("latest2.h5", nights[::-1], b"2")):
            for i, part in enumerate(nights):
                with h5py.File(part, "r+") as f:  # else times, to the second, may be equal
                    f["provenance/END_TIME"][...] = f"{time.decode()}{i}" if time else "2"
            done = self.merge(out, *parts, options=["--latest"])
            self.assertIn("rows         8\ndropped      8 rows", done.stdout)
            for group in ("fits", "catalog", "catalog/exposures", "catalog/files"):
                made, wanted = (read(tmp(name), group) for name in (out, "wanted.h5"))
                if time:  # the other order of inputs
                    wanted = {k: np.roll(v, len(v) // 2, 0) for k, v in wanted.items()}
                    wanted.update({k: made[k] for k in ("FILE", "FIRST_EXPOSURE", "ROW_START") if k in made})
                self.assertEqual(differing(made, wanted), [], group)
            run("status", tmp(out))
        self.assertIn("rows         4\n",
                      self.merge("one-of-two.h5", self.one, self.one, options=["--latest"]).stdout)

    def test_an_input_that_was_tried_twice(self):
        self.merge("tried.h5", *[self.part("once.h5", [FILES[0], FILES[2]], status=3),
                                 self.part("twice.h5", [FILES[2], FILES[1]], status=3)])
        self.assertEqual(read(tmp("tried.h5"), "catalog/files")["N_ROW"].tolist(), [4, 0, 0, 4])

    def test_parts_of_several_folders(self):
        """Parts name inputs relative to their own folders; the merged result's paths open them."""
        parts = []
        for i, folder in enumerate(("night1", "a-later-night")):
            os.mkdir(tmp(folder))
            shutil.copy(FILES[i], tmp(folder))
            parts.append(os.path.join(tmp(folder), "o.h5"))
            self.ends(0, "fit", "--library", LIBRARY, "--output", "o.h5", "--threads", 1,
                      os.path.basename(FILES[i]), cwd=tmp(folder))
        self.merge("nights.h5", *parts)
        self.assertEqual([os.path.join(os.fsencode(tmp("night1")), p) for p in
                          read(tmp("nights.h5"), "catalog/files")["PATH"]],
                         [os.fsencode(os.path.join(os.path.dirname(part), os.path.basename(path)))
                          for part, path in zip(parts, FILES)])
        done = self.ends(0, "export", "--output", tmp("of-nights"), tmp("nights.h5"))
        self.assertIn("written      2\n", done.stdout)

    def test_a_part_without_a_readable_input(self):
        """A part without rows may differ in arms, device and an automatic wave_mask.  The merged
        result takes these three from the part with rows, in either order of the parts."""
        wave = np.arange(5000, 5500, 1.0)
        generic.write(tmp("generic.fits"), [{
            "NAME": f"star {i}", "WAVELENGTH": wave, "FLUX": np.cos(wave / 9 + i) + 9,
            "IVAR": 0 * wave + 1, "LSF_SIGMA": 0 * wave + 1} for i in range(4)], "vacuum")
        self.fit("void.h5", FILES[2], lib=LIBRARY, status=3)
        void = self.path
        self.merge("calibrated-void.h5", void, options=["--calibrate", "--primary"])
        self.assertTrue(np.isnan(attributes(tmp("calibrated-void.h5"), "fits")["CAL_FLOOR"]).all())
        with h5py.File(void, "r+") as f:
            f["provenance"].attrs.modify("DEVICE", np.bytes_("another"))
        for file in FILES[0], tmp("generic.fits"):
            self.fit("some.h5", "--overwrite", file, lib=LIBRARY)
            some = self.path
            for out, parts in (("before.h5", [void, some]), ("after.h5", [some, void])):
                self.merge(out, *parts, options=["--overwrite"])
                self.assertEqual(differing(read(some), read(tmp(out))), [])
                with h5py.File(some) as one, h5py.File(tmp(out)) as made:
                    for name in "IDENTITY", "CONFIG":
                        self.assertEqual(*(f[f"provenance/{name}"][()] for f in (one, made)))
                    self.assertEqual(*(f["provenance"].attrs["DEVICE"] for f in (one, made)))
                    self.assertEqual([int(n) for n in made["catalog/files/N_ROW"]],
                                     [0, 4] if parts[0] == void else [4, 0])
        self.fit("masked.h5", "--config", put("mask.yaml", "wave_mask: [[5000, 5010]]\n"), FILES[2],
                 lib=LIBRARY, status=3)
        self.assertRefused(some, self.path, says=["different settings", "wave_mask: [[5000, 5010]]"])

    def test_stopped_and_killed(self):
        """A merge of several blocks of rows: if stopped, it leaves no file; if killed, it leaves
        files that the same command takes over."""
        big, out = tmp("long.h5"), tmp("stopped.h5")
        tiled(self.one, big, 30000)
        for number, status in ((signal.SIGTERM, 75), (signal.SIGKILL, -signal.SIGKILL)):
            child = start("merge", "--output", out, big,
                          env=faults("stop:write:stopped.h5.tmp-:9:1"))
            wait_until(lambda: is_suspended(child.pid), child)
            child.send_signal(number)
            self.said_by(child, status, signal.SIGCONT)
            self.assertEqual(len(glob.glob(out + "*")), 2 * (status != 75))
        self.merge("stopped.h5", big)
        self.assertEqual(glob.glob(out + "*"), [out])
        self.assertEqual(differing(read(big), read(out)), [])

    def test_the_lock_of_another_host(self):
        """Its run may be alive: the lock is kept while it is young."""
        put("held.h5.lock", "host elsewhere\npid 1\njob -\nrestart 0\nstart 1\nspace -\n")
        self.merge("held.h5", self.one, status=4, says=["elsewhere", "wait for it"])
        self.assertEqual(glob.glob(tmp("held*")), [tmp("held.h5.lock")])
        os.utime(tmp("held.h5.lock"), (0, 0))
        with unittest.mock.patch.object(running, "BEAT_S", 0.1):
            self.merge("held.h5", self.one)


class Calibration(ProgramTest):
    """Two visits of each star, with errors that are wrong by a known factor and floor."""

    N, TRUE = 3000, {"VRAD": (1.4, 0.8), "TEFF": (0.7, 0.0), "LOGG": (1.0, 0.1), "VSINI": (1.0, 0.0)}

    def edit(self, fits, catalog):
        rng, n = np.random.default_rng(7), self.N
        print("seed 7")
        fits["STATUS"][:], fits["RVS_WARN"][:], fits["FIT_INFO"][:] = FITTED, 0, 0
        fits["TARGETID"] = np.arange(n) // 2
        catalog["TARGET_RA"], catalog["TARGET_DEC"] = np.arange(n) // 2 * 0.1, np.full(n, 20.0)
        fits["TARGETID"][1:400:2] = -1  # by place
        catalog["OBJECT"][:] = b""
        for name, (factor, floor) in self.TRUE.items():
            error = 10 ** rng.uniform(-1, 1, n) * {"TEFF": 50, "LOGG": 0.1}.get(name, 1)
            star = np.repeat(rng.uniform(50, 90, n // 2), 2)
            fits[name] = star + rng.normal(0, 1, n) * np.hypot(factor * error, floor)
            fits[name + "_ERR"] = error
        fits["VRAD"][:150:2] += 300  # binaries
        fits["VSINI"][500::2] += 1e4
        fits["FIT_INFO"][500::2] |= UNRESOLVED
        fits["TEFF"][-400:], fits["FIT_INFO"][-400:] = 5000, PRIOR
        for arm in "BRZ":
            fits["SN_" + arm][:] = np.resize(np.geomspace(5, 100, 16), n)
        fits["FEH_ERR"][:] = np.nan
        fits["FEH_ERR"][:16] = 0.1
        fits["ALPHAFE"][:] = 0.4  # of no width: no error is 0
        for name in (*self.TRUE, "FEH", "ALPHAFE"):  # one spectrum in two inputs
            fits[name][1001:1041:2] = fits[name][1000:1040:2]

    def test_known_wrong_errors_are_put_right(self):
        path, made = tmp("visits.h5"), tmp("calibrated.h5")
        self.fit("few.h5", FILES[0], lib=LIBRARY)
        tiled(self.path, path, self.N)
        edited(path, self.edit)
        out = run("merge", "--calibrate", "--output", made, path).stdout
        for group in "fits", "catalog":
            self.assertEqual(differing(read(path, group), read(made, group)), [])
        said = attributes(made, "fits")
        names = [name.decode() for name in said["CAL_PARAMETERS"]]
        fits = read(made)
        sn = np.max([fits["SN_B"], fits["SN_R"], fits["SN_Z"]], axis=0)
        for name, (factor, floor) in self.TRUE.items():
            with self.subTest(name):
                k = names.index(name)
                n = (250 if name == "VSINI" else self.N // 2 - 220)
                self.assertEqual(said["CAL_PAIRS"][k], n)
                # limits: six standard errors of a width; 0.1 more for a floor, which few pairs show
                few = 6 / np.sqrt(2 * n / len(said["CAL_SN"]))
                self.assertLess(np.abs(said["CAL_FACTOR"][k] / factor - 1).max(), few)
                self.assertLessEqual(abs(said["CAL_FLOOR"][k] - floor), (few + 0.1) * floor)
                self.assertTrue(0.9 < said["CAL_CHI"][k] < 1.1)
                line = re.search(rf"^{name}_ERR .*$", out, re.MULTILINE).group().split()
                self.assertTrue(all(0.8 < float(third) < 1.2 for third in line[4:7]), line)
        self.assertEqual(said["CAL_PAIRS"][names.index("FEH")], 8)
        for name in "FEH", "ALPHAFE":
            self.assertTrue(np.isnan(said["CAL_FLOOR"][names.index(name)]))
        done = run("export", "--to", "fits", "--calibrated", "--output", tmp("calibrated.fits"), made)
        self.assertOneLine(done, made, "no factor for FEH_ERR, ALPHAFE_ERR, which stay", status=0)
        table, header = pyfits.getdata(tmp("calibrated.fits"), 1, header=True)
        for name in fits:
            wanted = fits[name]
            k = names.index(name[:-4]) if name[:-4] in names else None
            if k is not None and name.endswith("_ERR") and np.isfinite(said["CAL_FLOOR"][k]):
                at = np.interp(np.log(sn), np.log(said["CAL_SN"]), said["CAL_FACTOR"][k])
                held = PRIOR | UNRESOLVED * (name == "VSINI_ERR")  # these errors stay
                free = fits["FIT_INFO"] & held == 0
                wanted = np.where((wanted > 0) & free, np.hypot(at * wanted, said["CAL_FLOOR"][k]), wanted)
                self.assertIn("by repeats", header[f"TCOMM{table.names.index(name) + 1}"])
            np.testing.assert_array_equal(table[name].reshape(wanted.shape), wanted, name)
        with self.assertWarnsRegex(UserWarning, "FEH_ERR, ALPHAFE_ERR, which stay"):
            found = Result(made, calibrated=True).select("VRAD_ERR < 2")
        self.assertEqual(found.rows.tolist(), np.flatnonzero(table["VRAD_ERR"] < 2).tolist())
        with h5py.File(path, "r+") as f:
            f["catalog/files/FRAME"][0] = b"topocentric"
        done = run("merge", "--calibrate", "--overwrite", "--output", tmp("sky.h5"), path)
        self.assertIn(f"{self.N // 2 - 220} pairs of rows are topocentric", done.stderr)
        n = dict(zip(names, attributes(tmp("sky.h5"), "fits")["CAL_PAIRS"]))
        self.assertEqual([n["VRAD"], n["LOGG"]], [0, self.N // 2 - 220])
        self.ends(2, "export", "--to", "fits", "--calibrated", "--output", tmp("no.fits"), path,
                  says=["no calibration", "merge --calibrate"])
        few = tmp("few-calibrated.h5")  # of four stars, each with one row
        run("merge", "--calibrate", "--output", few, self.path)
        done = self.ends(2, "export", "--to", "fits", "--calibrated", "--output", tmp("no.fits"), few)
        self.assertOneLine(done, few, "no factor for VRAD_ERR, VSINI_ERR", "more results", status=2)
        self.assertFalse(os.path.exists(tmp("no.fits")))

    def test_priors_and_flags_do_not_shrink_errors(self):
        """True Teff is drawn from the prior.  Spectra scatter by 0.6 of their stated errors.  Rows of
        a star agree too well, and must not count, in Teff if the prior decides it, and in [alpha/Fe]
        if flagged."""
        path, made, rng, true = tmp("prior.h5"), tmp("of-prior.h5"), np.random.default_rng(8), 0.6
        floor = 10
        self.fit("priors.h5", "--config", put("prior.yaml", "priors: [{param: teff, mean: 5500, sigma: 30}]"),
                 FILES[0], lib=LIBRARY)
        tiled(self.path, path, self.N)
        truth, error = np.repeat(rng.normal(5500, 30, self.N // 2), 2), 30 * 10 ** rng.uniform(-1, 1, self.N)
        share, flagged = 30**2 / (30**2 + error**2), np.arange(self.N) // 2 % 3 == 0

        def edit(fits, catalog):
            self.edit(fits, catalog)
            fits["FIT_INFO"][:], fits["ALPHAFE_ERR"][:] = 0, 0.1
            spectrum = truth + np.hypot(true * error, floor) * rng.normal(size=self.N)
            fits["TEFF"] = 5500 + share * (spectrum - 5500)
            fits["TEFF_ERR"] = fits["TEFF_ERR_FORMAL"] = np.sqrt(share) * error
            fits["ALPHAFE"] = np.where(flagged, 0.2, rng.normal(0, 0.1 * true, self.N))
        edited(path, edit)
        with h5py.File(path, "r+") as f:  # as of an element
            f["fits/ALPHAFE_FLAG"] = flagged * 2
            f["fits/ALPHAFE_FLAG"].attrs.update({"BITS": [2], "NAMES": [b"WEAK"], "MEANINGS": [b"-"]})
        run("merge", "--calibrate", "--output", made, path)
        found, sound = Result(made, calibrated=True), {"TEFF": share > 0.5, "ALPHAFE": ~flagged}
        pull = (found["TEFF"] - truth) / found["TEFF_ERR"]
        fits = read(path)
        for name, use in sound.items():
            np.testing.assert_array_equal(found[name + "_ERR"][~use], fits[name + "_ERR"][~use])
        said = attributes(made, "fits")
        k = said["CAL_PARAMETERS"].tolist().index(b"TEFF")
        sn = np.max([fits["SN_" + arm] for arm in "BRZ"], axis=0)
        self.assertLess(abs(said["CAL_FLOOR"][k] / floor - 1), 0.3)  # FLOOR decides half of 357 pairs
        # TEFF weights the spectrum by `share`, the prior by the rest; errors add in quadrature
        factor = np.interp(np.log(sn), np.log(said["CAL_SN"]), said["CAL_FACTOR"][k])
        wanted = np.hypot(share * np.hypot(factor * error, said["CAL_FLOOR"][k]), (1 - share) * 30)
        use = sound["TEFF"]
        np.testing.assert_allclose(found["TEFF_ERR"][use], wanted[use], rtol=1e-6)
        for name, n, factor in zip(said["CAL_PARAMETERS"].astype(str), said["CAL_PAIRS"], said["CAL_FACTOR"]):
            if name in sound:  # six standard deviations of a width from n pairs
                self.assertEqual(n, sound[name].reshape(-1, 2).all(axis=1).sum())
                self.assertLess(np.abs(factor / true - 1).max(), 6 / np.sqrt(2 * n / len(factor)))
        self.assertLess(abs(half_width(pull[sound["TEFF"]]) - 1), 6 / np.sqrt(2 * self.N / 2))


class Compare(ProgramTest):
    """`starmill compare` of results and tables that are damaged, or differ in their columns."""

    @classmethod
    def setUpClass(cls):
        cls().fit("to-compare.h5", "--threads", 1, FILES[0], lib=LIBRARY)

    def setUp(self):
        self.path = shutil.copy(tmp("to-compare.h5"), tmp("compared.h5"))
        self.n = len(read(self.path)["STATUS"])

    def test_a_damaged_table_is_refused(self):
        """A damaged file in a list of files must not pass for a file without stars."""
        run("export", "--to", "fits", "--output", tmp("whole.fits"), self.path)
        whole = content(tmp("whole.fits"))
        at, packed = whole.index(b"XTENSION"), gzip.compress(whole)
        form = whole.index(b"TFORM2  = ")
        for name, data, said in (
                ("data.fits", whole[:whole.rindex(b"XTENSION") - 2980], "is truncated: copy the file again"),
                ("header.fits", whole[:at + 1000], "copy this one again if it was cut"),
                ("packed.fits.gz", packed[:200], "is no whole gzip file"),
                ("end.fits.gz", packed[:-4], "is no whole gzip file"),
                ("form.fits", whole[:form + 11] + b"Z" * 4 + whole[form + 15:], "cannot be read: ")):
            done = starmill("compare", f"{put(name, data)},{tmp('whole.fits')}", self.path)
            self.assertOneLine(done, name, said, status=4)

    def test_parts_with_other_labels(self):
        """Only common columns of numbers count: COVAR has another shape, SUCCESS another type."""
        n, table = self.n, Table({
            "TARGETID": 10**6 + np.arange(4), "VRAD": np.zeros(4), "RVS_WARN": np.zeros(4, int),
            "SUCCESS": np.ones(4, bool), "COVAR": np.zeros((4, 15))})
        pyfits.BinTableHDU(table, name="RVTAB").writeto(tmp("few.fits"))
        said = run("compare", f"{self.path},{tmp('few.fits')}", self.path).stdout
        self.assertIn(f"matched by TARGETID: {n} stars; rows {n + 4} and {n}", said)

    def test_stars_without_a_name_are_not_one_star(self):
        a, b = (shutil.copy(self.path, tmp(f"unnamed{row}.h5")) for row in (1, 3))
        edited(a, lambda fits, _: fits["TARGETID"].put(1, -1))
        edited(b, lambda fits, _: fits["TARGETID"].put(3, -1))
        self.assertIn(f"{self.n - 2} stars; rows {self.n} and {self.n}, of them without TARGETID "
                      "1 and 1, not unique 0 and 0, in one file only 1 and 1\n",
                      run("compare", a, b).stdout)
        for path in a, b:  # now they have a name, which has one TARGETID in the other file
            edited(path, lambda _, catalog: catalog["OBJECT"].put([1, 3], [b"one", b"three"]))
        self.assertIn(f"{self.n} stars; rows {self.n} and {self.n}, of them without TARGETID 0 and 0",
                      run("compare", a, b).stdout)

    def test_differences_are_b_less_a(self):
        """B has other chi-squares, in some rows from more pixels.  Its Teff is 0.4 errors higher,
        its TEFF_ERR is doubled, and one row has one warning more."""
        b, row, at = shutil.copy(self.path, tmp("edited.h5")), read(self.path), np.arange(self.n)

        def edit(fits, _):
            fits["CHISQ_DATA"] += np.where(at % 3 == 0, -2, 2)
            fits["CHISQ_TOT"] = 9  # contains model errors: not compared
            fits["NPIX_TOT"][at % 4 == 1] += 1
            fits["TEFF"] += 0.4 * fits["TEFF_ERR"]
            fits["TEFF_ERR"] *= 2
            fits["RVS_WARN"][np.flatnonzero(row["RVS_WARN"] & 8 == 0)[0]] |= 8
        edited(b, edit)
        same = at[np.isfinite(row["VRAD"]) & (at % 4 != 1)] % 3
        n_a, n_b, edge = (same > 0).sum(), (same == 0).sum(), (row["RVS_WARN"] & 8 > 0).sum()
        self.assertNotEqual(n_a, n_b)
        for files, pull, *n in (((self.path, b), "0.200", n_a, n_b),
                                ((b, self.path), "-0.200", n_b, n_a)):
            said = run("compare", "--all", *files).stdout
            self.assertIn(f"{n_a + n_b} stars; A lower by more than 1 in {n[0]}, B in {n[1]}", said)
            self.assertRegex(said, rf"\| TEFF \[K\] \| .* \| {pull} \| 0\.000 \| 0 \|\n")
        self.assertRegex(said, rf"\| 8 \w+ \| {edge + 1} \| {edge} \| {edge} \|\n")

    def test_visits_are_matched_by_target_and_exposure(self):
        path, at = shutil.copy(self.path, tmp("visits-of-stars.h5")), np.arange(self.n)

        def edit(fits, catalog):
            fits["TARGETID"], catalog["EXPID"] = at // 2, at % 2
        edited(path, edit)
        done = run("compare", path, path)
        self.assertIn(f"matched by TARGETID+EXPID: {self.n} stars;", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_without_names_and_in_two_frames(self):
        """Without TARGETID and OBJECT rows are matched by IDENTIFIER."""
        def edit(fits, catalog):
            fits["TARGETID"][:], catalog["OBJECT"][:] = -1, b""
        edited(self.path, edit)
        other = shutil.copy(self.path, tmp("frame.h5"))
        for frame, n in (b"heliocentric", 0), (b"topocentric", self.n):
            with h5py.File(other, "r+") as f:
                del f["catalog/files/FRAME"]  # heliocentric is longer
                f["catalog/files/FRAME"] = np.array([frame])
            done = run("compare", self.path, other)
            self.assertIn(f"matched by IDENTIFIER: {self.n} stars;", done.stdout)
            self.assertEqual(f"velocities of {self.n} stars are in two frames" in done.stderr, n > 0)
