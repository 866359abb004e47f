# SPDX-License-Identifier: BSD-3-Clause
"""Files and names made to do harm: a file costs only its own rows, no name runs as a command."""

import struct
import tarfile

from common import *  # noqa: F403

BLOCK, CARD = 2880, 80
ROWS = [3, 100]

# file names with characters that CFITSIO, a shell or printf would interpret
NAMES = ["a[1].fits", "b[FIBERMAP][col X=1].fits", "c(d).fits", "!e.fits", "f|g.fits", "h.fits+1",
         "%s%n%n%100000d.fits", "$(touch i).fits", "`touch j`.fits", "k l;touch m.fits", "n'o\".fits",
         "stdin", "p*?.fits", "file:q.fits", "nfs:r.fits", "~.fits", "s\\n.fits"]
# the same as lines that name no file
NOT_THERE = ["{good}[1]", "{good}[FIBERMAP]", "{good}(copy.fits)", "{good}+1", "!{good}",
             "file://{good}", "http://localhost/x.fits", "ftp://localhost/x.fits", "root://x/y",
             "shmem://h1", "mem://", "stdin://", "-", "|touch pwned", "$(touch pwned)",
             "`touch pwned`", "{good};touch pwned", "gzip://{good}", "{good}*", "~/x.fits"]


@functools.cache
def good():
    """Path of a sound file, and the rows that it must give next to any other files."""
    path = cut("good.fits", ROWS)
    run("fit", "--library", library(), "--output", tmp("good.h5"), path)
    return path, read(tmp("good.h5"))


def with_card(whole, hdu, keyword, value):
    """The file's bytes with another value of a card, in the HDU of that EXTNAME."""
    end = 0 if not hdu else whole.index(b"EXTNAME = '%-8s'" % hdu.encode())
    start = whole.rfind(b"XTENSION=", 0, end) if hdu else 0
    at = whole.index(b"%-8s= " % keyword.encode(), start)
    assert (at - start) % CARD == 0 and at - start < 400 * CARD
    out = bytearray(whole)
    out[at : at + CARD] = b"%-80s" % (b"%-8s= %20s" % (keyword.encode(), value.encode()))[:CARD]
    assert len(out) == len(whole)
    return bytes(out)


class HungryLibrary(ProgramTest):
    def test_a_header_that_asks_for_all_memory(self):
        # HDF5 trusts the size of a chunk in an object's header, here 23 GB, and allocates it
        with tarfile.open(os.path.join(SOURCE, "tests/fuzz/corpus.tar.xz")) as f:
            path = put("hungry.h5", f.extractfile("probe/library-chunk_of_23_GB").read())
        # not all of this machine
        done = starmill("library", "info", path, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_AS, (400 << 20, 400 << 20)))
        self.assertOneLine(done, path, "memory allocation failed", status=2)


class HostileFiles(EndToEnd):
    @classmethod
    def setUpClass(cls):
        cls.good, cls.expected = good()
        cls.whole = content(cls.good)

    def kinds(self):
        """Name and bytes of files that must be refused; for some, words of the refusal.
        test_fits_files.py has more headers, cuts and packed files, test_formats.py more formats."""
        w, packed, header = self.whole, gzip.compress(self.whole, 1), self.whole[:BLOCK]
        bomb = gzip.compress(header + bytes(64 << 20), 9)
        return [
            ("rows.fits", with_card(w, "FIBERMAP", "NAXIS2", "9223372036854775807"), "HDU"),
            ("heap.fits", with_card(w, "FIBERMAP", "TFORM1", "'1PE(9999999999)'"), "HDU"),
            ("no-end.fits", header[:CARD] + header[CARD:2 * CARD] * 70000),  # SIMPLE, BITPIX
            ("many-hdus.fits", header * 20000),
            ("zeros.fits", bytes(BLOCK * 10)), ("text.fits", b"hello\n" * 1000, "not a FITS file"),
            ("bomb.fits.gz", bomb, "gzip_limit_mib"), ("bomb-of-members.fits.gz", bomb * 3),
            ("twice.fits.gz", gzip.compress(packed, 1)),
            ("crc.fits.gz", packed[:-8] + bytes(4) + struct.pack("<I", len(w))),
            ("not-deflate.fits.gz", b"\x1f\x8b\x08" + bytes(100)),
            ("compress.fits.Z", b"\x1f\x9d\x90" + bytes(1000)), ("zip.fits", b"PK\x03\x04" + bytes(1000)),
            ("hdf5.fits", content(library())[:100000]),
            ("cut-last.fits", w[:-BLOCK], "HDU", "Z_RESOLUTION"),
            ("cut.fits.gz", packed[:len(packed) // 2], "gzip"),
            ("no-arms.fits", content(few_hdus(self.good, 2)), "arms"),
            ("cut-arm.fits", content(few_hdus(self.good, 11)), "has no HDU R_IVAR")]

    def holes(self):
        """Sparse files of 600 GB: there is no memory for their rows or texts."""
        at = self.whole.index(b"EXTNAME = 'FIBERMAP'")
        end = at + self.whole[at:].index(b"END" + 77 * b" ")
        head = self.whole[: (end // BLOCK + 1) * BLOCK]
        with pyfits.open(self.good) as hdus:
            row = hdus["FIBERMAP"].header["NAXIS1"]
            wide = hdus["FIBERMAP"].columns.names.index("OBJTYPE") + 1
            old = hdus["FIBERMAP"].columns["OBJTYPE"].format
            place = hdus["FIBERMAP"].fileinfo()
            rest = self.whole[place["datLoc"] + place["datSpan"] :]
        n_row, n_text = 5 * 10**9, 2 * 10**9
        text_row = row - int(old[:-1]) + n_text
        text = with_card(with_card(head, "FIBERMAP", f"TFORM{wide}", f"'{n_text}A'"), "FIBERMAP",
                         "NAXIS1", str(text_row))
        for name, header, size in (
            ("sparse-rows.fits", with_card(head, "FIBERMAP", "NAXIS2", str(n_row)), n_row * row),
            ("sparse-text.fits", text, text_row * len(ROWS))):
            path = put(name, header)
            size += len(header)
            with open(path, "r+b") as f:
                f.seek(size + -size % BLOCK)
                f.write(rest)
            yield path

    def test_each_kind_costs_itself(self):
        said = {put(name, kind): parts for name, kind, *parts in self.kinds()}
        os.symlink(tmp("loop.fits"), tmp("loop.fits"))
        os.makedirs(tmp("folder.fits"))
        os.mkfifo(tmp("pipe.fits"))
        said.update({tmp("not-there.fits"): ["No such file"], tmp("folder.fits"): ["folder"],
                     tmp("pipe.fits"): ["pipe"], tmp("loop.fits"): [], "/dev/zero": [], "/dev/null": [],
                     "/proc/self/mem": [], tmp("good.fits/x"): []})
        said.update(zip(self.holes(), (["5000000000 rows"], ["2000000000 bytes"])))
        bad = list(said)
        half = len(bad) // 2
        copies = [put(f"good{i}.fits", self.whole) for i in range(2)]
        inputs = [self.good, *bad[:half], copies[0], *bad[half:], copies[1]]
        put("hostile.txt", "\n".join(inputs) + "\n")
        put("small.yaml", "gzip_limit_mib: 8\n")
        done = self.fit("hostile.h5", "--config", tmp("small.yaml"), "--catalog",
                        tmp("hostile.txt"), ranks=3, status=3)
        self.assertIn(f"{len(bad)} of {len(inputs)} files", done.stdout)
        table = read(self.path)
        for name, values in self.expected.items():
            self.assertEqual(table[name].tobytes(), 3 * values.tobytes(), name)
        paths, errors = (texts(read(self.path, "catalog/files")[k]) for k in ("PATH", "ERROR"))
        self.assertEqual(paths, inputs)
        error = dict(zip(paths, errors))
        self.assertEqual({p for p, e in error.items() if e}, set(bad))
        for path, parts in said.items():
            with self.subTest(path=path):
                if parts:
                    self.assertOneLine(done, "ERROR", path + ":", *parts, status=3)
                for part in (os.path.basename(path), *parts):
                    self.assertIn(part, error[path])


class OnlyNames(EndToEnd):
    """No character of a path means anything, whatever the path is for."""

    @classmethod
    def setUpClass(cls):
        cls.folder = new_folder("names")
        cls.good, cls.expected = good()

    def run_here(self, *args, status=0):
        """Run in the folder of odd names; only the outputs may appear there."""
        before = set(os.listdir(self.folder))
        done = self.ends(status, "fit", *args, cwd=self.folder)
        return done, set(os.listdir(self.folder)) - before

    def test_inputs(self):
        for name in NAMES:
            put(os.path.join(self.folder, name), content(self.good))
        put(os.path.join(self.folder, "list"), "\n".join(NAMES) + "\n")
        out = tmp("inputs.h5")
        for how in (["--catalog", "list"], NAMES):
            _, made = self.run_here("--library", library(), "--output", out, "--overwrite", *how)
            self.assertEqual(made, set())
            table = read(out)
            for name, values in self.expected.items():
                self.assertEqual(table[name].tobytes(), len(NAMES) * values.tobytes(), name)

    def test_names_of_nothing(self):
        lines = [line.format(good=self.good) for line in NOT_THERE]
        put("nothing.txt", "\n".join([*lines, self.good]) + "\n")
        done, made = self.run_here("--library", library(), "--output", tmp("nothing.h5"),
                                   "--catalog", tmp("nothing.txt"), status=3)
        self.assertEqual(made, set())
        self.assertIn(f"{len(lines)} of {len(lines) + 1} files", done.stdout)
        self.assertEqual(differing(read(tmp("nothing.h5")), self.expected), [])

    def test_library_output_models_and_start(self):
        for name in "%s[1](2)!%%s%%n|$(touch x).h5", "ufs:%s:12.h5", "-%s+1.h5":
            lib, out, models, log, start = (name % kind for kind in "lomgs")
            put(os.path.join(self.folder, lib), content(library()))
            with pyfits.open(data("sim/truth-dev.fits")) as hdus:
                hdus[1].data = hdus[1].data[ROWS]
                hdus.writeto(os.path.join(self.folder, start))
            mine = {out, models, log, out + ".status.json"}
            _, made = self.run_here(f"--library={lib}", f"--output={out}", f"--models={models}",
                                    f"--log={log}", self.good)
            self.assertLessEqual({out, models}, made)
            self.assertLessEqual(made, mine)
            self.assertEqual(differing(read(os.path.join(self.folder, out)), self.expected), [])
            # once more: it is found finished under its name
            done, made = self.run_here(f"--library={lib}", f"--output={out}", self.good)
            self.assertIn("finished already", done.stdout)
            self.assertLessEqual(made, mine)
            # a table to start from
            self.run_here(f"--library={lib}", "--output", tmp("started.h5"), "--overwrite",
                          f"--start={start if start[0] == '-' else out}", self.good)
            self.assertEqual(list(read(tmp("started.h5"))["STATUS"]), [FITTED] * 2)


def how_many(usual):
    """Damaged files of a test; a campaign wants more."""
    return int(os.environ.get("MILL_DAMAGED_FILES", usual))


class DamagedHdf5(EndToEnd):
    """HDF5 crashes on some damage; the program then names the file (test_hdf5_crash.c)."""

    def damaged(self, whole, name, n):
        """Paths of copies, each with its own damage, mostly where the structure is."""
        rng = np.random.default_rng(20261121)
        for i in range(n):
            b = bytearray(whole)
            for _ in range(rng.integers(1, 4)):
                at = int(rng.integers(len(b)) if i % 4 == 0 else rng.integers(min(len(b), 8192)))
                size = int(rng.choice([1, 8, 64, 512]))
                size = min(size, len(b) - at)
                b[at : at + size] = bytes(size) if rng.integers(2) else rng.bytes(size)
            yield put(name, bytes(b[: int(rng.integers(1, len(b)))] if i % 8 == 7 else b))

    def assertEnds(self, paths, call, *status):
        """Run `call` for each file: it exits with one of `status`, and names the file if not 0."""
        found = {}
        for path in paths:
            done = starmill(*call)
            self.assertIn(done.returncode, status, done.stdout + done.stderr)
            if done.returncode != 0:
                self.assertRegex(done.stdout + done.stderr, ".*/damaged")
            kind = "died" if "the process died" in done.stderr else done.returncode
            found[kind] = found.get(kind, 0) + 1
        print(call[0], found, file=sys.stderr)
        return found

    def test_library_and_start(self):
        stars = cut("stars.fits", ROWS)
        path, out = tmp("damaged-file.h5"), tmp("planned.h5")
        self.fit("started.h5", stars)
        for option, whole, n in (("--library", library(), 10), ("--library", coarse_library(), 10),
                                 ("--start", tmp("started.h5"), 8)):
            named = [] if option == "--library" else ["--library", library()]
            found = self.assertEnds(self.damaged(content(whole), path, how_many(n)),
                                    ["fit", "--plan", *named, option, path, "--output", out, stars], 0, 2)
            self.assertIn(2, found)

    def test_output(self):
        out = tmp("damaged.h5")
        fit = ["fit", "--library", library(), "--output", out, cut("stars.fits", ROWS)]
        run(*fit)
        whole = content(out)
        found = self.assertEnds(self.damaged(whole, out, how_many(4)), fit, 0, 4)
        self.assertIn(4, found)
        run(*fit, "--overwrite")
        put(out, whole)
        found = self.assertEnds(self.damaged(whole, out, how_many(12)), ["status", out], 0, 4, 75)
        self.assertIn(4, found)
