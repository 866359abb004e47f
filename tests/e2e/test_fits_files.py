# SPDX-License-Identifier: BSD-3-Clause
"""Sound FITS files, plain or packed, are read.  Cut, malformed or damaged files are refused before
CFITSIO sees them, with a message that names the file and the place."""

import gzip

from base import *  # noqa: F403
from survey_files import *  # noqa: F403

# what the reader of DESI says of the small file, after the general checks have passed it
GOOD = "no HDU B_WAVELENGTH"
RICE = {"compression_type": "RICE_1"}


def small():
    """A primary, a table of two rows, an image of 2 x 3."""
    return [Hdu("", [], cards=["EXTEND  =                    T"]),
            table("FIBERMAP", ("TARGETID", "K", [11, 12]), ("OBJTYPE", "3A", ["TGT", "SKY"])),
            image("B_FLUX", "E", [[1, 2, 3], [4, 5, 6]])]


class Files(unittest.TestCase):
    def says(self, data, *parts, config="", name="file.fits", error=3):
        """The reader refuses a file of bytes `data` (None: as it is on disk) and says all parts."""
        path = tmp(name) if data is None else put(name, data)
        answer = Reader.read(path, config)
        self.assertEqual(answer.get("error"), error, answer)
        for part in (path, *parts):
            self.assertIn(part, answer["message"])

    def test_two_hdus_of_one_name(self):
        for kind, name in (("sdss", "COADD"), ("sdss", "SPECOBJ"), ("mwm star", "BOSS/LCO"),
                           ("lamost", "COADD"), ("4most", "SPECTAB"), ("pfs", "TARGET")):
            s = Sample(kind)
            s.hdus.append(next(hdu for hdu in s.hdus if hdu.name == name))
            self.says(packed(s.hdus)[0], f"are both named {name}")

    def test_what_is_no_fits_file(self):
        for data, part in ((b"", "empty"), (b"S", "not a FITS file"),
                           (b"hello, this is no FITS file", "not a FITS file")):
            self.says(data, part)
        os.mkfifo(tmp("pipe"))
        os.mkdir(tmp("folder"))
        for name, part in (("nothing", "No such file"), ("pipe", "pipe or device"), ("folder", "folder"),
                           ("/dev/zero", "pipe or device"), ("a" * 2000, "longer")):
            answer = Reader.read(tmp(name))
            self.assertEqual(answer["error"], 3)
            self.assertIn(part, answer["message"])

    def test_every_cut(self):
        """Every cut file is refused: by its format if whole HDUs are left, else by FITS checks."""
        data, starts = packed(small())
        begins = [start for start, _ in starts]
        for n in sorted({*range(1, len(data), 719), *(b + k for b in range(0, len(data), 2880)
                                                      for k in (-1, 1) if 0 < b + k), *begins[1:]}):
            answer = Reader.read(put("file.fits", data[:n]))
            # of whole HDUs the format says what is missing
            is_whole = any(text in answer["message"] for text in ("no known format", "library's arms"))
            self.assertEqual(is_whole, n in begins, (n, answer))
        self.says(data[:begins[2] + 100], "ends inside this header")
        self.says(data[:starts[1][1] + 4], "HDU 2 (FIBERMAP): needs 22 bytes")

    def test_cards(self):
        """One card of an otherwise good file replaced."""
        data, starts = packed(small())
        for i_hdu, i_card, card, says in (
                # aborts the process inside CFITSIO 4.2
                (1, 8, "TTYPE1  = " + 70 * "x", "HDU 2 (FIBERMAP): card 9 (TTYPE1) must be a string"),
                (1, 8, "TTYPE1  = 'TARGETID", "card 9 (TTYPE1) is a string without its closing"),
                (1, 8, "TTYPE1  = 'TARGETID' x", "text after its closing quote"),
                (1, 8, "TTYPE1  ='TARGETID'", "(TTYPE1) has no value"),
                (1, 8, "TTYPE1  =", "(TTYPE1) must be a string"),
                (1, 8, "ttype1  = 'TARGETID'", "bad keyword"),
                (1, 8, "TTY PE1 = 'TARGETID'", "bad keyword"),
                (1, 8, "TTYPE1  = 'TARG\x01TID'", "not printable"),
                (1, 8, "TTYPE1  = 'TARG\xc3\xa9TID'", "not printable"),
                (1, 9, "TFORM1  = 8", "must be a string"),
                (1, 9, "TFORM1  = 'Y'", "must be a column format"),
                (1, 9, "TFORM1  = '99999999999K'", "must be a column format"),
                (1, 9, "TFORM1  = 'J'", "columns add up to 7 bytes, but its rows have 11"),
                (1, 9, "TFORM1  = '3PE(5)'", "must be a column format"),
                (1, 9, "TFORM2  = '3A'", "TFORM2 stands twice"),
                (1, 12, "TFORM01 = '3A'", "TFORM01 stands twice"),  # CFITSIO's TFORM1
                (1, 9, "COMMENT no format here", "TFORM1 is missing"),
                (1, 7, "TFIELDS = 1000", "TFIELDS = '1000' is out of range"),
                (1, 7, "TFIELDS = 2x", "must be an integer"),
                (1, 7, "TFIELD  = 2", "not the mandatory TFIELDS"),
                *((1, 12, card, "does not belong there") for card in (
                    "TFIELDS = 2", "PCOUNT  = 0", "NAXIS2  = 1")),
                (1, 12, "TSCAL1  = nan", "must be a finite number"),
                (1, 3, "NAXIS1  = -11", "NAXIS1 = '-11' is out of range"),
                (1, 3, "NAXIS1  = 9223372036854775807", "more than a file can hold"),
                (1, 3, "NAXIS1  = 99999999999999999999", "must be an integer"),
                (1, 4, "NAXIS2  = 1000", "needs 11000 bytes"),
                (1, 5, "PCOUNT  = 9223372036854775807", "more than a file can hold"),
                (1, 6, "GCOUNT  = 2", "GCOUNT = '2' is out of range"),
                (1, 1, "BITPIX  = 16", "a table has BITPIX 16"),
                (1, 0, "XTENSION= BINTABLE", "must be a string"),
                (1, 0, "SIMPLE  = T", "not the mandatory XTENSION"),
                (1, 0, "XTENSION= 'BINTABLE%s%n'", "does not belong there"), (1, 5, "PCOUNT  = -2880", "out of range"),
                (1, 7, "TFIELDS = 0", "its rows have 11"), (1, 9, "TFORM1  = '%n%n%s'", "must be a column format"),
                (2, 1, "BITPIX  = 7", "expected 8, 16"),
                (2, 5, "PCOUNT  = 1", "PCOUNT"), (2, 2, "NAXIS   = 0", "NAXIS1"),
                (2, 2, "NAXIS   = -1", "out of range"),
                (2, 2, "NAXIS   = 999", "out of range"), (0, 1, "BITPIX  = 2147483647", "out of range"),
                (2, 2, "NAXIS   = 'a'", "must be an integer"),
                (2, 3, "NAXIS1  = 4611686018427387905", "more than a file can hold"),
                (2, 7, "BSCALE  = one", "must be a finite number"), (2, 8, "END     x", "text follows END"),
                (2, 8, "NOEND   = 1", "card 37 of the header holds a byte that is not printable"),
                (0, 0, "SIMPLE  = F", "SIMPLE is not T"), (0, 3, "GROUPS  = T", "does not belong there"),
                # and these are fine
                *((0, 3, card, GOOD) for card in (
                    "HISTORY anything = 'goes", "HIERARCH long name = 'it''s fine' / comment",
                    "WITHSLAS= 'a / b'", "UNDEFIN =", "        a blank keyword")),
                (1, 8, "TTYPE1  = 'TARGETID' / comment", GOOD)):
            with self.subTest(card=card):
                at = starts[i_hdu][0] + 80 * i_card
                self.says(data[:at] + card.encode("latin-1").ljust(80) + data[at + 80:], says)

    def test_tables_without_bytes_and_with_two_heaps(self):
        """Rows of the first table have no bytes, so a short file can claim any number of rows."""
        hdus = [Hdu("", []), table("FIBERMAP", ("OBJTYPE", "1A", ["x"]))]
        data = packed(hdus)[0]
        for old, new in ((b"'1A'", b"'0A'"), (b"NAXIS1  = %20d" % 1, b"NAXIS1  = %20d" % 0),
                         (b"NAXIS2  = %20d" % 1, b"NAXIS2  = %20d" % 10**18)):
            data = data.replace(old, new)
        self.says(data, "HDU 2 (FIBERMAP): its 1000000000000000000 rows have no bytes")
        for n, says in ((1, GOOD), (2, "HDU 2 (FIBERMAP): THEAP stands twice")):
            hdus = small()
            hdus[1].cards = n * ["THEAP   = 22"]
            self.says(packed(hdus)[0], says)

    def compressed(self, *cards, **how):
        """An image of zeros in two tiles, with cards replaced by others."""
        tile = (1, 3000) if "tile_shape" in pyfits.CompImageHDU.__init__.__code__.co_varnames else None
        hdu = pyfits.CompImageHDU(np.zeros((2, 3000), "i4"), name="B_MASK",
                                  **({"tile_shape": tile} if tile else {"tile_size": (3000, 1)}), **how)
        pyfits.HDUList([pyfits.PrimaryHDU(), hdu]).writeto(tmp("tiles.fits"), overwrite=True)
        data = content(tmp("tiles.fits"))
        for keyword, card in cards:
            at = data.index(keyword.ljust(8).encode())
            self.assertEqual(at % 80, 0)
            data = data[:at] + card.ljust(80).encode() + data[at + 80:]
        return data

    def test_compression(self):
        good = "no known format"
        for how, keyword, card, says in (
                (RICE, "ZNAME1", "ZNAME1  = 'OTHER'", "parameter 1 of RICE"),
                (RICE, "ZVAL1", "ZVAL1   = 0", "BLOCKSIZE = 0"),
                (RICE, "ZVAL1", "ZVAL1   = 'a text of more than thirty characters'", "parameter 1 of RICE"),
                (RICE, "ZVAL1", "COMMENT gone", "parameter 1 of RICE"),
                (RICE, "ZVAL2", "ZVAL2   = 8", "BYTEPIX 8 for ZBITPIX 32"),
                (RICE, "ZVAL2", "COMMENT gone", good),  # 4
                (RICE, "ZNAME2", "ZNAXIS1 = 3000", "ZNAXIS1 stands twice"),
                (RICE, "ZNAME2", "ZTILE1  = 3000", "ZTILE1 stands twice"),
                (RICE, "ZNAME2", "ZBITPIX = 32", "ZBITPIX stands twice"),
                (RICE, "EXTNAME", "ZDITHER0= 0", "ZDITHER0 = '0', expected 1 to"),
                (RICE, "EXTNAME", "ZDITHER0= 'x'", "ZDITHER0) must be an integer"),
                (RICE, "EXTNAME", "ZDITHER0= 1", good),
                ({}, "ZCMPTYPE", "ZCMPTYPE= 'HCOMPRESS_1'", "only RICE_1, GZIP_1"),
                ({}, "ZNAXIS2", "ZNAXIS2 = 3", "2 compressed tiles instead of 3")):
            with self.subTest(card=card):
                how = {"compression_type": "GZIP_1", **how}
                self.says(self.compressed(**how), good)
                self.says(self.compressed((keyword, card), **how), says)
        packs = {"compression_type": "GZIP_1"}
        self.says(self.compressed(**packs), "HDU 2 (B_MASK): the compressed image unpacks to", "gzip_limit_mib",
                  config="gzip_limit_mib: 0.02\n")  # it has 0.023 MiB
        self.says(self.compressed(**packs), good, config="gzip_limit_mib: 0.03\n")
        # a tile of 800 MB for some fifty bytes of the file
        tile = ("ZTILE1", "ZTILE1  = 200000000")
        self.says(self.compressed(tile, **packs), "in tiles of")
        self.says(self.compressed(tile, ("ZNAXIS1", "ZNAXIS1 = 200000000"), **packs),
                  "tile 1 has too few bytes")

    def test_bytes_after_the_last_hdu(self):
        self.says(packed(small())[0] + 2880 * b"j", "HDU 4")

    def test_brackets_in_a_path_mean_nothing(self):
        data = packed(small())[0]
        self.says(data, GOOD, name="a[1][TARGETID > 1].fits")
        put("file.fits", data)  # and the part before the bracket is not taken for the file
        self.says(None, "No such file", name="file.fits[1]")

    def test_gzip_by_content(self):
        """Gzip is known by its first bytes, not by the name; two members and padding are one file."""
        data = packed(small())[0]
        two = gzip.compress(data[:4000]) + gzip.compress(data[4000:])
        self.says(two, GOOD)
        self.says(two + bytes(100), GOOD)
        damaged = bytearray(two)
        damaged[len(two) // 2] ^= 0x55
        for bad in (two + 100 * b"x", bytes(damaged), *(two[:n] for n in range(2, len(two), 37))):
            self.says(bad, "gzip stream")
        self.says(gzip.compress(b""), "empty")
        # read to the end
        s = Sample("desi")
        answer = Reader.read(put("file.fits", gzip.compress(packed(s.hdus)[0])))
        self.assertEqual([row["target_id"] for row in answer["rows"]], s.of_rows("target_id"))
        self.assertEqual(answer["file_size"], os.path.getsize(tmp("file.fits")))

    def test_what_gzip_unpacks_to_is_bounded(self):
        data = gzip.compress(packed(small())[0].ljust(3 << 20, b"\0"))
        scratch = new_folder("scratch")
        self.says(data, "gunzip it, or raise gzip_limit_mib", "2 MiB",
                  config=f"gzip_limit_mib: 2\nscratch: {scratch}\n")
        # then only the zeros at the end are wrong
        self.says(data, "HDU 4", config=f"gzip_limit_mib: 3\nscratch: {scratch}\n")
        self.assertEqual(os.listdir(scratch), [])

    def test_scratch_folder(self):
        data = packed(small())[0]
        path = put("file.fits", gzip.compress(data))
        self.says(None, "scratch", config=f"scratch: {path}\n", error=4)  # a file, no folder
        # a full disk, here a limit on file sizes, costs this file only
        put("full.yaml", f"scratch: {new_folder('full')}\n")
        line = "\t".join(("spectra", path, tmp("full.yaml"), "b", "0", "0", "0")) + "\n"
        done = subprocess.run([READER], input=line.encode(), env=ENVIRONMENT, capture_output=True, check=True,
                              preexec_fn=lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                                                  small_files(4096)()))
        answer = json.loads(done.stdout.splitlines()[0])
        self.assertEqual(answer["error"], 3)
        for part in (path, f"needs {len(data) / 2**20:.1f} MiB unpacked", "set scratch", tmp("full")):
            self.assertIn(part, answer["message"])
        self.assertEqual(os.listdir(tmp("full")), [])

    def test_scaled_integers_are_read_exactly(self):
        def ids(form, values, *cards):
            s = Sample("desi")
            s.hdus[1].column("TARGETID").set(form, values)
            s.hdus[1].cards += cards
            return Reader.read(put("file.fits", packed(s.hdus)[0]))
        large = [2**60 + 1 + i for i in range(5)]
        word = [-2**31, 2**31 - 1, 0, 0, 0]
        for form, values, cards, expected in (
                ("K", large, (), large),
                # unsigned integers of 64 bits, with the offset in all forms that programs write
                *(("K", [x - 2**63 for x in large], cards, large) for cards in (
                    ("TSCAL1  = 1.0", "TZERO1  = 9223372036854775808"),
                    ("TSCAL1  = 1", "TZERO1  = 9.223372036854775808D18"),
                    ("TZERO1  = 9.2233720368547758E+18",))),
                ("K", large, ("TZERO1  = -9007199254740993",), [x - 9007199254740993 for x in large]),
                ("J", word, ("TZERO1  = 2147483648",), [x + 2**31 for x in word])):
            answer = ids(form, values, *cards)
            self.assertEqual([row["target_id"] for row in answer["rows"]], expected, cards)
        # what cannot be had exactly
        for cards, says in ((("TSCAL1  = 1.0", "TZERO1  = 9223372036854775808"), "column TARGETID, row 0"),
                            (("TSCAL1  = 2",), "column TARGETID has TSCAL"),
                            (("TZERO1  = 0.5",), "column TARGETID has TSCAL"),
                            (("TZERO1  = 1E40",), "column TARGETID has TSCAL")):
            self.assertIn(says, ids("K", large, *cards)["message"])
