# SPDX-License-Identifier: BSD-3-Clause
"""starmill simulate: its files, equal bytes for any number of processes, its refusals, and a fit.
The class Shipped uses the shipped library, with its model error; the others use a small library."""

import dataclasses

from base import *
from starmill.templates import library_file

C_KM_S = 299792.458
N_PIX = {"B": 2751, "R": 2326, "Z": 2881}
LAYOUT = ["PRIMARY", "FIBERMAP", "EXP_FIBERMAP", "SCORES"] + [
    f"{arm}_{what}" for arm in "BRZ" for what in "WAVELENGTH FLUX IVAR MASK RESOLUTION".split()]
KINDS = ("sky bad_fiber allowed_fiber masked_arm nan_arm zero_arm no_arm inf_pixels noise negative "
         "spike half_masked fast_rotator high_velocity galaxy").split()

LIBRARY = coarse_library()

# every second row has a defect, so that each kind comes
SMALL = ["--stars", 40, "--per-file", 16, "--redrock", "--pathological", 500, "--seed", 7]
FAST = ["--stars", 24, "--per-file", 6, "--seed", 5]


def setUpModule():
    warnings.simplefilter("error", pyfits.verify.VerifyWarning)


def digests(out):
    return {name: hashlib.sha256(content(os.path.join(tmp(out), name))).hexdigest()
            for name in sorted(os.listdir(tmp(out)))}


def times(out):
    return {name: os.stat(os.path.join(tmp(out), name)).st_mtime_ns
            for name in sorted(os.listdir(tmp(out)))}


def table(out, name, hdu):
    return pyfits.getdata(os.path.join(tmp(out), name), hdu)


class Simulate(ProgramTest):
    def make(self, out, *args, status=0, **how):
        return self.ends(status, "simulate", "--library", LIBRARY, "--output", tmp(out), *args,
                         **how)


class Files(Simulate):
    @classmethod
    def setUpClass(cls):
        cls.done = run("simulate", "--library", LIBRARY, "--output", tmp("small"), *SMALL)
        cls.names = [f"coadd-mock-{i:05d}.fits" for i in range(3)]
        cls.truth = table("small", "truth.fits", "TRUTH")
        cls.hdus = [pyfits.open(os.path.join(tmp("small"), n), memmap=False) for n in cls.names]

    @classmethod
    def tearDownClass(cls):
        for hdus in cls.hdus:
            hdus.close()

    def rows(self, kind):
        """(truth, HDUs, row) of every star of a kind."""
        found = [(t, self.hdus[t["FILE"]], t["FITS_ROW"]) for t in self.truth if t["KIND"] == kind]
        self.assertTrue(found, kind)
        return found

    def test_folder_holds_what_it_says(self):
        expected = self.names + [n.replace("coadd", "redrock") for n in self.names]
        self.assertEqual(sorted(os.listdir(tmp("small"))),
                         sorted(expected + ["truth.fits", "catalog.txt"]))
        lines = content(tmp("small/catalog.txt"), "r").split("\n")
        self.assertEqual([line for line in lines if line and not line.startswith("#")], self.names)
        self.assertEqual(list(table("small", "truth.fits", "FILES")["FILE"]), self.names)
        self.assertIn(f"--library {LIBRARY} --catalog", self.done.stdout)

    def test_layout(self):
        for name, hdus, n in zip(self.names, self.hdus, (16, 16, 8)):
            self.assertEqual([h.name for h in hdus], LAYOUT)
            self.assertEqual(len(hdus["FIBERMAP"].data), n)
            for arm, n_pix in N_PIX.items():
                wave = hdus[f"{arm}_WAVELENGTH"].data
                self.assertEqual(wave.dtype, ">f8")
                np.testing.assert_allclose(np.diff(wave), 0.8, atol=1e-9)
                for what in ("FLUX", "IVAR", "MASK"):
                    hdu = hdus[f"{arm}_{what}"]
                    self.assertEqual(hdu.data.shape, (n, n_pix))
                    self.assertEqual(hdu.data.dtype, ">i4" if what == "MASK" else ">f4")
                self.assertEqual(hdus[f"{arm}_RESOLUTION"].data.shape, (n, 11, n_pix))

    def test_passes_the_verifier(self):
        self.assertVerified(*glob.glob(tmp("small/*.fits")))

    def test_columns_are_desi_s(self):
        for hdus in self.hdus:
            self.assertEqual(
                hdus["FIBERMAP"].columns.names,
                "TARGETID LOCATION FIBER COADD_FIBERSTATUS TARGET_RA TARGET_DEC PMRA PMDEC "
                "REF_EPOCH REF_ID REF_CAT OBJTYPE BRICKID DESI_TARGET BGS_TARGET MWS_TARGET "
                "SCND_TARGET FLUX_G FLUX_R FLUX_Z".split())
            self.assertEqual(hdus["SCORES"].columns.names, ["TARGETID"] + [
                f"MEDIAN_COADD_SNR_{arm}" for arm in "BRZ"])
            self.assertEqual(hdus["B_FLUX"].header["BUNIT"], "10**-17 erg/(s cm2 Angstrom)")
            self.assertEqual(hdus["B_IVAR"].header["BUNIT"], "10**+34 (s2 cm4 Angstrom2) / erg2")

    def test_truth_names_every_row(self):
        self.assertEqual(self.truth.columns.names,
                         "TARGETID TEFF LOGG FEH ALPHAFE VRAD VSINI SN LSF_GROUP FILE "
                         "FITS_ROW KIND".split())
        self.assertEqual(self.truth.columns["TEFF"].unit, "K")
        self.assertEqual(self.truth.columns["VRAD"].unit, "km/s")
        self.assertEqual(len(self.truth), 40)
        self.assertEqual(len(set(self.truth["TARGETID"])), 40)
        self.assertTrue((self.truth["TARGETID"] > 0).all())
        at = [(f, r) for f, n in enumerate((16, 16, 8)) for r in range(n)]
        self.assertEqual(list(zip(self.truth["FILE"], self.truth["FITS_ROW"])), at)
        for t in self.truth:
            hdus = self.hdus[t["FILE"]]
            for hdu in ("FIBERMAP", "EXP_FIBERMAP", "SCORES"):
                self.assertEqual(hdus[hdu].data["TARGETID"][t["FITS_ROW"]], t["TARGETID"])
        fibermaps = [h["FIBERMAP"].data for h in self.hdus]
        target_id = np.concatenate([m["TARGETID"] for m in fibermaps])
        brick = np.concatenate([m["BRICKID"] for m in fibermaps])
        np.testing.assert_array_equal(brick, (target_id >> 22) & 0xFFFFF)

    def test_scores_are_the_pixels(self):
        for hdus in self.hdus:
            for arm in "BRZ":
                flux, ivar, mask = (hdus[f"{arm}_{w}"].data for w in ("FLUX", "IVAR", "MASK"))
                for i, score in enumerate(hdus["SCORES"].data[f"MEDIAN_COADD_SNR_{arm}"]):
                    good = (mask[i] == 0) & np.isfinite(flux[i]) & (ivar[i] > 0)
                    sn = flux[i][good] * np.sqrt(ivar[i][good])
                    # float32 products and roots: a few units in the last place
                    np.testing.assert_allclose(score, np.median(sn) if good.any() else 0, rtol=1e-6)

    def test_one_matrix_for_each_group(self):
        seen = {}
        for t in self.truth:
            hdus = self.hdus[t["FILE"]]
            matrix = tuple(hdus[f"{arm}_RESOLUTION"].data[t["FITS_ROW"]].tobytes() for arm in "BRZ")
            self.assertEqual(seen.setdefault(t["LSF_GROUP"], matrix), matrix)
        self.assertEqual(len(set(seen.values())), len(seen))
        self.assertGreater(len(seen), 1)

    def test_every_defect_is_there(self):
        for kind in KINDS:
            for t, hdus, i in self.rows(kind):
                self.check_defect(kind, t, hdus, i)

    def check_defect(self, kind, t, hdus, i):
        def arm(what):
            return {a: hdus[f"{a}_{what}"].data[i] for a in "BRZ"}
        flux, ivar, mask = arm("FLUX"), arm("IVAR"), arm("MASK")
        fibermap = hdus["FIBERMAP"].data[i]
        self.assertEqual(fibermap["OBJTYPE"], "SKY" if kind == "sky" else "TGT")
        # BROKENFIBER and RESTRICTED of desispec's fibermask are bits 2 and 3
        status = {"bad_fiber": 4, "allowed_fiber": 8}.get(kind, 0)
        self.assertEqual(fibermap["COADD_FIBERSTATUS"], status)
        self.assertTrue({
            "masked_arm": lambda: (mask["B"] != 0).all(),
            "nan_arm": lambda: np.isnan(flux["R"]).all(),
            "zero_arm": lambda: not (flux["Z"].any() or ivar["Z"].any()),
            "no_arm": lambda: not any(ivar[a].any() for a in "BRZ"),
            "inf_pixels": lambda: all((np.isinf(flux[a]) & (mask[a] == 0)).sum() == 50
                                      for a in "BRZ"),
            "negative": lambda: np.median(flux["R"]) < 0,
            "spike": lambda: sum((flux[a][mask[a] == 0] == 1e9).sum() for a in "BRZ") == 1,
            "half_masked": lambda: all(abs((mask[a] != 0).mean() - 0.5) < 0.02 for a in "BRZ"),
            "fast_rotator": lambda: t["VSINI"] == 300,
            "high_velocity": lambda: abs(t["VRAD"]) == 900}.get(kind, lambda: True)(), kind)

    def test_redrock_goes_with_it(self):
        for f, name in enumerate(self.names):
            redrock = table("small", name.replace("coadd", "redrock"), "REDSHIFTS")
            truth = self.truth[self.truth["FILE"] == f]
            np.testing.assert_array_equal(redrock["TARGETID"], truth["TARGETID"])
            empty = (truth["KIND"] == "sky") | (truth["KIND"] == "noise")
            galaxy = (truth["KIND"] == "galaxy") | empty
            np.testing.assert_array_equal(redrock["SPECTYPE"] == "GALAXY", galaxy)
            np.testing.assert_array_equal(redrock["ZWARN"][empty] & 4, 4)  # redrock's own bit
            self.assertTrue((np.abs(redrock["Z"][truth["KIND"] == "galaxy"]) * C_KM_S > 1500).all())
            beta = truth["VRAD"] / C_KM_S
            off = ((redrock["Z"] + 1 - np.sqrt((1 + beta) / (1 - beta))) / redrock["ZERR"])[~galaxy]
            self.assertTrue((np.abs(off) < 5).all())  # normal: 6e-7 a row
            self.assertGreater(np.abs(off).max(), 0.1)


class SameBytes(Simulate):
    def test_processes_do_not_matter(self):
        self.make("one", *FAST, "--redrock", "--pathological", 100, "--threads", 1)
        # under mpirun the first rank makes everything
        self.make("three", *FAST, "--redrock", "--pathological", 100, "--threads", 5, ranks=3)
        # other folders, other processes: no trace of them
        self.assertEqual(len(digests("one")), 10)
        self.assertEqual(digests("one"), digests("three"))
        self.make("seed", *FAST, "--redrock", "--pathological", 100, "--seed", 6)
        other = digests("seed")
        for name, digest in digests("one").items():
            self.assertNotEqual(other[name], digest, name)

    def test_files_do_not_matter(self):
        self.make("smaller", *FAST, "--pathological", 100)
        self.make("larger", *FAST, "--pathological", 100, "--per-file", 20)
        first, second = (
            np.concatenate([table(out, f"coadd-mock-{i:05d}.fits", "R_FLUX") for i in range(n)])
            for out, n in (("smaller", 4), ("larger", 2)))
        # a matrix product may round a row differently if it has other rows
        np.testing.assert_allclose(first, second, rtol=1e-6)


class Continue(Simulate):
    def test_other_settings_are_refused(self):
        self.make("mine", *FAST)
        before = times("mine")
        for other in (["--stars", 12], ["--distortion", "0.0300000000001"]):
            self.make("mine", *FAST, *other, status=4,
                      says=[tmp("mine"), "other settings", "--overwrite"])
            self.assertEqual(times("mine"), before)
        # fewer files: those of the old survey must go
        self.make("mine", *FAST, "--stars", 12, "--seed", 6, "--overwrite")
        self.assertEqual(len(os.listdir(tmp("mine"))), 4)

    def test_missing_files_are_made_again(self):
        self.make("gap", *FAST, "--redrock")
        whole, before = digests("gap"), times("gap")
        self.assertIn("complete already", self.make("gap", *FAST, "--redrock").stdout)
        self.assertEqual(times("gap"), before)
        gone = ["coadd-mock-00002.fits", "redrock-mock-00003.fits", "truth.fits"]
        for name in gone:
            os.unlink(os.path.join(tmp("gap"), name))
        # what a killed job leaves, and what is not ours
        left = ["coadd-mock-00002.fits.tmp-4194304-1", "truth.fits.tmp-4194304-1"]
        stale_lock(tmp("gap/truth.fits"))
        mine = ["coadd-mock-2.fits", "notes.txt", "coadd-mock-00001.fits.gz",
                "coadd-mock-00002.fits.tmp-123", "truth.fits.tmp-pid99"]
        for name in left + mine:
            put(os.path.join(tmp("gap"), name), "x")
        self.assertIn("of them already done", self.make("gap", *FAST, "--redrock").stdout)
        for name in mine:
            os.unlink(os.path.join(tmp("gap"), name))  # fails where it was removed
        self.assertEqual(digests("gap"), whole)
        for name, t in times("gap").items():
            self.assertEqual(t == before[name], name not in gone + ["catalog.txt"], name)

    def test_signals_stop_it(self):
        args = ["--stars", 96, "--per-file", 4, "--threads", 1]  # 24 files
        for number, ranks in ((signal.SIGTERM, 0), (signal.SIGUSR1, 2)):
            with self.subTest(number):
                out = f"stop-{number}"
                process = self.start(out, *args, ranks=ranks)
                self.assertIn("give the same command again", self.said_by(process, 75, number)[1])
                # whole files and nothing else
                there = os.listdir(tmp(out))
                self.assertTrue(0 < len(there) < 24, there)
                for name in there:
                    self.assertRegex(name, r"^coadd-mock-\d{5}\.fits$")
        before = times(out)
        again = self.make(out, *args, "--threads", 2)
        self.assertIn(f"{len(there)} of them already done", again.stdout)
        after = times(out)
        self.assertEqual(len(after), 26)
        self.assertEqual({name: after[name] for name in before}, before)

    def start(self, out, *args, ranks=0):
        """Start a survey, wait until its first file is there."""
        process = start("simulate", "--library", LIBRARY, "--output", tmp(out), *args, ranks=ranks)
        wait_until(lambda: os.path.exists(os.path.join(tmp(out), "coadd-mock-00000.fits")), process)
        return process

    def test_a_killed_job_leaves_no_process_and_no_lock(self):
        args = ["--stars", 36, "--per-file", 3, "--redrock", "--threads", 2]
        self.make("calm", *args)
        process = self.start("widow", *args)
        lock = content(tmp("widow/truth.fits.lock"), "r")
        self.assertEqual(int(lock.split()[3]), process.pid)  # host HOST pid N
        process.kill()
        process.communicate(timeout=PATIENCE)  # its pipes close when its workers have ended
        self.assertFalse(os.path.exists(tmp("widow/truth.fits")))
        self.make("widow", *args)
        self.assertEqual(digests("widow"), digests("calm"))

    def test_a_killed_process_ends_the_job(self):
        process = self.start("orphan", "--stars", 400, "--per-file", 3, "--threads", 2)
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as children:
            os.kill(int(children.read().split()[0]), signal.SIGKILL)
        self.assertIn("worker process was killed", self.said_by(process, 70)[1])
        self.assertFalse([n for n in os.listdir(tmp("orphan")) if ".tmp-" in n or ".lock" in n])

    def test_two_jobs_keep_apart(self):
        args = ["--stars", 4000, "--per-file", 10, "--threads", 1]
        process = self.start("shared", *args)
        for more in ([], ["--overwrite"]):
            self.make("shared", *args, *more, status=4,
                      says=[tmp("shared"), "is being written by process"])
        self.assertIsNone(process.poll())
        self.said_by(process, 75, signal.SIGTERM)
        there = os.listdir(tmp("shared"))
        self.assertIn("coadd-mock-00000.fits", there)
        self.assertNotIn("truth.fits.lock", there)


class Refusals(Simulate):
    def test_hostile_options(self):
        for option, values in {
            "stars": ("0", "-1", "1e3", "x", "", "99999999999999999999"),
            "per-file": ("0", "100001", "ten"),
            "seed": ("-1", "x", "18446744073709551616", " 1", "0x10"), "model-error": ("no", ""),
            "sn": ("5", "5,", ",5", "10,5", "0,5", "0.09,5", "5,nan", "5,inf", "5,6,7", "5;6"),
            "vsini": ("0,5", "5,501", "-1,5", "a,b"),
            "vel-sigma": ("-1", "901", "nan", "inf", "1 2"),
            "distortion": ("-0.1", "0.11", "nan", "1e-3x"), "pathological": ("-1", "1001", "1.5"),
            "threads": ("-1", "4097", "two")}.items():
            for value in values:
                self.make("never", f"--{option}={value}", status=2,
                          says=["starmill simulate: ", f"--{option}"])
        for args, part in (
            (["--library", tmp("none.h5")], tmp("none.h5")),
            (["--stars", 2000000, "--per-file", 1], "--per-file"),
            (["--frobnicate"], "--frobnicate"), (["-x"], "-x"), (["--output"], "needs a value"),
            (["input.fits"], "give no files, not 1 argument"), (["--output", ""], "--output")):
            self.make("never", *args, status=2, says=[part])
        self.assertOneLine(starmill("simulate"), "--output", status=2)
        self.assertFalse(os.path.exists(tmp("never")))

    def test_limits_of_options_are_the_surveys(self):
        # values that the options allow must not fail later, when an old survey has been removed
        for ends in (["--sn", "0.1,1e5", "--distortion", "0.1", "--vel-sigma", 900],
                     ["--vsini", "0.01,500", "--distortion", 0, "--vel-sigma", 0]):
            self.make("ends", "--stars", 2, "--overwrite", *ends)

    def test_output_that_cannot_be(self):
        put("file", "")
        self.make("file", *FAST, status=4, says=[tmp("file"), "not a folder"])
        self.make("file/x", *FAST, status=4, says=[tmp("file/x")])
        self.make("no/such", *FAST, status=4, says=[tmp("no/such"), "create its parent"])
        os.makedirs(tmp("busy/coadd-mock-00001.fits"))
        self.make("busy", *FAST, status=4, says=["coadd-mock-00001.fits"])
        self.make("lost", *FAST, status=4, says=[""], env=faults("EIO:sync:/coadd:1:1"))
        own = put(os.path.join(new_folder("work"), "catalog.txt"), "/data/coadd-1.fits\n")
        for more in ([], ["--overwrite"]):
            self.make("work", *FAST, *more, status=4, says=[own, "another folder"])
        self.assertEqual(os.listdir(tmp("work")), ["catalog.txt"])
        self.assertEqual(content(own), b"/data/coadd-1.fits\n")

    def test_files_of_others_are_not_removed(self):
        self.make("mixed", "--stars", 2, "--per-file", 1)
        for name in ("truth.fits", "coadd-mock-00001.fits"):
            with self.subTest(name=name):
                path = os.path.join(tmp("mixed"), name)
                own = content(path)
                pyfits.HDUList([pyfits.PrimaryHDU(np.arange(4))]).writeto(path, overwrite=True)
                before = digests("mixed")
                self.make("mixed", "--stars", 2, "--overwrite", status=4,
                          says=[path, "not made by starmill simulate"])
                self.assertEqual(digests("mixed"), before)
                put(path, own)

    def test_output_over_the_limit(self):
        self.make("limited", *FAST, "--threads", 2, status=4,
                  says=["coadd-mock-0000", "cannot be written", "make room"],
                  preexec_fn=small_files(1_000_000))  # a file has 2.7 MB
        self.assertEqual(os.listdir(tmp("limited")), [])

    def test_a_library_that_does_not_do_costs_no_survey(self):
        self.make("kept", "--stars", 2)
        before = digests("kept")
        for change, word in ((lambda lib: setattr(lib.arm[1], "name", "x"), "has no arm r"),
                             (lambda lib: lib.arm.pop(), "has no arm z"),
                             (lambda lib: setattr(lib, "arm", [lib.arm[0]] + [
                                 dataclasses.replace(lib.arm[0], name=name) for name in "rz"]),
                              "arm r has 3"),
                             (lambda lib: setattr(lib.label[0], "max", 1e9), "hulls")):
            library = library_file.read(LIBRARY)
            change(library)
            library_file.write(tmp("other.h5"), library, overwrite=True)
            self.ends(2, "simulate", "--library", tmp("other.h5"), "--output", tmp("kept"),
                      "--overwrite", says=[tmp("other.h5"), word])
            self.assertEqual(digests("kept"), before)


class Shipped(Simulate):
    """Without --library the shipped library is used, in DESI's arms, with its model error."""

    def test_arms_errors_and_a_fit(self):
        few = ["--stars", 12, "--per-file", 6, "--seed", 3, "--sn", "20,100"]
        shipped = os.path.join(SOURCE, "libraries", "fgk.h5")
        said = run("simulate", "--output", tmp("shipped"), *few).stdout
        self.assertIn(f"library      {os.path.realpath(shipped)}\n", said)
        truth = table("shipped", "truth.fits", "TRUTH")
        n_component = len(read(shipped, "arms/arm0/model_error")["sigmas"])
        for arm in "BRZ":
            share = truth[f"ERROR_SHARE_{arm}"]
            self.assertEqual(share.shape, (12, n_component))
            self.assertTrue((np.abs(share) < 6).all() and (share != 0).all())
        with pyfits.open(tmp("shipped/coadd-mock-00000.fits")) as hdus:
            # templates from 3600 A on reach pixels from 3612 A at every velocity to 1000 km/s
            np.testing.assert_array_equal((hdus["B_IVAR"].data > 0)[:, :16].any(0),
                                          hdus["B_WAVELENGTH"].data[:16] > 3612.03)
            self.assertTrue(hdus["B_MASK"].data[:, :15].all())
        self.fit("shipped.h5", "--catalog", tmp("shipped/catalog.txt"), lib=shipped)
        fits = read(self.path)
        np.testing.assert_array_equal(fits["TARGETID"], truth["TARGETID"])
        self.assertTrue((fits["STATUS"] == FITTED).all())
        for name in ("VRAD", "FEH"):  # normal: 2e-9 a star, but for hulls' edges
            self.assertLess(np.abs((fits[name] - truth[name]) / fits[name + "_ERR"]).max(), 6)

    def test_model_error_is_an_option(self):
        for how in "false", "correlated":
            run("simulate", "--output", tmp(how), "--model-error", how, "--stars", 2, "--noiseless")
            self.assertFalse(table(how, "coadd-mock-00000.fits", "R_MASK").any())  # no cosmics
            names = table(how, "truth.fits", "TRUTH").columns.names
            self.assertEqual("ERROR_SHARE_R" in names, how == "correlated")

    def test_model_error_of_one_component(self):
        library = library_file.read(os.path.join(SOURCE, "libraries", "fgk.h5"))
        for arm in library.arm:
            arm.error.component, arm.error.sigma = arm.error.component[:1], arm.error.sigma[:1]
        library_file.write(tmp("one.h5"), library, False, STARMILL)
        run("simulate", "--library", tmp("one.h5"), "--output", tmp("sole"), "--stars", 3,
            "--per-file", 2)
        share = table("sole", "truth.fits", "TRUTH")["ERROR_SHARE_R"].ravel()
        self.assertEqual((len(share), np.count_nonzero(share)), (3, 3))
