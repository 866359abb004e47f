# SPDX-License-Identifier: BSD-3-Clause
"""Small files of each survey and what readers must hand over, for test_formats.py.  Files are made
byte by byte from random numbers, so that wrong files can be made too."""

import math
import re

from base import ENVIRONMENT, atexit, json, np, os, put, subprocess, tmp, unittest

READER = os.path.join(os.path.dirname(os.environ["STARMILL"]), "tests", "read_spectra")
TYPE = {"wave": "f8", "exposure_row": "i8", "exposure_id": "i4", "exposure_mjd": "f8", "mask": "i4"}
EVERY_FIBRE = f"fiberstatus_allowed_bits: {list(range(64))}\n"
ARMS = ["coadd", "b", "r", "blue", "red", "spectrum", "pfs"]
COADD, B, R, BLUE, RED, SPECTRUM, PFS = range(7)
UNKNOWN, BARYCENTRIC, HELIOCENTRIC, TOPOCENTRIC = range(4)
# Bits of SDSS masks that make a pixel bad: NOPLUG, BADTRACE, BADFLAT, BADARC, MANYBADCOLUMNS,
# MANYREJECTED, FULLREJECT, NOSKY, BRIGHTSKY, COMBINEREJ, BADFLUXFACTOR, BADSKYCHI, REDMONSTER.
SDSS_BAD = sum(1 << bit for bit in (0, 1, 2, 3, 4, 5, 18, 22, 23, 25, 26, 27, 28))
TYPES = {"L": "S1", "B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8"}
BITPIX = {"B": 8, "I": 16, "J": 32, "K": 64, "E": -32, "D": -64}
ODD = np.array([0, np.nan, np.inf, -np.inf, 1e-42, -2.25, np.finfo("f4").max], "f4")
np.seterr(all="ignore")


def vacuum(wave):
    """Vacuum wavelengths from air, by VALD's fit of the inverse of Morton (2000)."""
    s2 = (1e4 / wave) ** 2
    return (1 + 8.336624212083e-5 + 0.02408926869968 / (130.1065924522 - s2)
            + 1.599740894897e-4 / (38.92568793293 - s2)) * wave


class Column:
    """A column of a FITS table.  values: numbers [row][repeat] in a flat array, or a list with one
    text or vector (of any length) for each row.  shared: all rows have the first row's vector."""

    def __init__(self, name, form, values, unit="", shared=False):
        self.name, self.unit, self.shared = name, unit, shared
        self.set(form, values)

    def set(self, form, values):
        self.form = form
        repeat, self.vector, self.code = re.match(r"(\d*)(P?)([A-Z])", form).groups()
        self.repeat = int(repeat or 1)
        self.type = f"S{self.repeat}" if self.code == "A" else TYPES[self.code]
        if not self.vector and self.code != "A":
            values = np.array(values).astype(self.type).ravel()
        self.values = values

    def zeros(self, n):
        return [""] * n if self.code == "A" else np.zeros(n * self.repeat)

    def packed(self, n_row, heap, shift):
        """The column's bytes, [row]; vectors go to the heap."""
        if self.vector:
            places = []
            for values in self.values:
                if not self.shared or not places:
                    at = len(heap)
                    heap += np.asarray(values).astype(self.type).tobytes()
                places.append((len(values), at + shift))
            return np.array(places, ">i4")
        if self.code == "A":
            return np.array([text.ljust(self.repeat).encode() for text in self.values], self.type)
        return self.values.reshape(n_row, self.repeat)


class Hdu:
    """An image is one column without a name."""

    def __init__(self, name, columns, shape=None, cards=()):
        self.name, self.columns, self.shape, self.cards = name, columns, shape, list(cards)
        self.n_row = None if shape is not None or not columns else (
            len(columns[0].values) // (1 if columns[0].code == "A" or columns[0].vector
                                       else columns[0].repeat))
        self.gone = False

    def column(self, name):
        return next(c for c in self.columns if c.name == name)

    def bytes(self, primary, shift):
        cards, heap, data = [], bytearray(), b""
        if self.n_row is None:
            first = "SIMPLE  =                    T" if primary else "XTENSION= 'IMAGE   '"
            code = self.columns[0].code if self.columns else "B"
            axes = self.shape[::-1] if self.columns else ()
            data = self.columns[0].values.tobytes() if self.columns else b""
        else:
            first, code = "XTENSION= 'BINTABLE'", "B"
            packed = [c.packed(self.n_row, heap, shift) for c in self.columns]
            rows = np.zeros(self.n_row, [(str(i), p.dtype, p.shape[1:]) for i, p in enumerate(packed)])
            for i, values in enumerate(packed):
                rows[str(i)] = values
            axes, data = (rows.itemsize, self.n_row), rows.tobytes() + bytes(heap)
        for key, value in (("BITPIX", BITPIX[code]), ("NAXIS", len(axes)),
                           *((f"NAXIS{i + 1}", n) for i, n in enumerate(axes)),
                           *((("PCOUNT", len(heap)), ("GCOUNT", 1)) if not primary else ()),
                           *((("TFIELDS", len(self.columns)),) if self.n_row is not None else ())):
            cards.append(f"{key:<8}= {value:>20}")
        for i, c in enumerate(self.columns if self.n_row is not None else ()):
            cards += [f"TTYPE{i + 1:<3}= '{c.name}'", f"TFORM{i + 1:<3}= '{c.form}'"]
            cards += [f"TUNIT{i + 1:<3}= '{c.unit}'"] if c.unit else []
        cards = [first, *cards, *([f"EXTNAME = '{self.name}'"] if self.name else []), *self.cards, "END"]
        text = "".join(card[:80].ljust(80) for card in cards).encode()
        return text + b" " * (-len(text) % 2880), data + bytes(-len(data) % 2880)


def packed(hdus, shift=0):
    """Return a file's bytes and where each HDU and its data begin; shift falsifies heap offsets."""
    out, starts = b"", []
    for hdu in hdus:
        if not hdu.gone:
            head, data = hdu.bytes(hdu is hdus[0], shift)
            starts.append((len(out), len(out) + len(head)))
            out += head + data
    return out, starts


def edit(hdus, text):
    """Make the edit of the HDUs that text describes:

     -HDU, HDU-COLUMN    leave out an HDU or a column
     HDU!TEXT, HDU+CARD  leave out cards that begin with TEXT, add a card
     HDU COLUMN>NAME     rename a column
     HDU COLUMN~FORM     change TFORM (values become zeros);  HDU COLUMN#UNIT changes TUNIT
     HDU COLUMN@i=VALUE  change one value
     HDU/AXES            change the axes of an image or the rows of a table (zeros fill)
    An empty HDU is the primary one, "@5" is hdus[5]; an empty COLUMN is an image."""
    def find(name):
        if name.startswith("@"):
            return hdus[int(name[1:])]
        return next(h for h in hdus if h.name == name)
    if text.startswith("-"):
        find(text[1:]).gone = True
        return
    name, op, rest = re.match(r"([^-!+ /]*)([-!+ /])(.*)", text).groups()
    hdu = find(name)
    if op == "-":
        hdu.columns.remove(hdu.column(rest))
    elif op == "!":
        hdu.cards = ["COMMENT gone" if card.startswith(rest) else card for card in hdu.cards]
    elif op == "+":
        hdu.cards.append(rest)
    elif op == "/":
        axes = [int(n) for n in rest.split(",")]
        hdu.shape = tuple(axes[::-1])
        if hdu.n_row is not None:
            hdu.n_row = axes[0]
        for c in hdu.columns:
            old, new = c.values, c.zeros(hdu.n_row if hdu.n_row is not None else math.prod(axes))
            n = min(len(old), len(new))
            new[:n] = old[:n]
            c.set(c.form, new)
    else:
        name, op, value = re.match(r"([^>~#@]*)([>~#@])(.*)", rest).groups()
        column = hdu.column(name)
        if op == ">":
            column.name = value
        elif op == "#":
            column.unit = value
        elif op == "~":
            n = hdu.n_row if hdu.n_row is not None else len(column.values)
            column.form = value
            column.set(value, Column("", value, ()).zeros(n))
        else:
            at, value = value.split("=", 1)
            column.values[int(at)] = value if column.code == "A" else (
                float(value) if column.code in "ED" else int(value))


class Sample:
    """hdus, and what the reader must give: frame, catalogue rows, spectra by exposure and arm."""

    def __init__(self, kind, seed=1, edits=""):
        self.rng, self.rows, self.spectra, self.kind = np.random.default_rng(seed), [], [], kind
        self.format, draw, self.lsf = KINDS[kind]
        self.hdus, self.frame = draw(self)
        self.shift = 0
        self.edit(edits)

    def edit(self, edits):
        for text in filter(None, edits.split(";")):
            edit(self.hdus, text)
        return self

    def row(self, **known):
        self.rows.append({
            "target_id": -1, "fits_row": len(self.rows), "fiber": int(self.rng.integers(5000)),
            "exp_id": -1, "ref_id": -1, "n_exposure": 1, "object": "", "spectype": "", "subtype": "",
            "ref_cat": "", "ra": self.rng.uniform(0, 360), "dec": self.rng.uniform(-90, 90),
            "z": np.nan, **known})
        return self.rows[-1]

    def spectrum(self, exposure, arm, n):
        """Random flux and ivar; a quarter are values of ODD, which no reader may change."""
        def floats():
            x = self.rng.uniform(-10, 100, n).astype("f4")
            return np.where(self.rng.integers(4, size=n) == 0, self.rng.choice(ODD, n), x)
        mask = self.rng.integers(-2**31, 2**31, n) * self.rng.integers(2, size=n)
        self.spectra.append({"exposure": exposure, "arm": arm, "flux": floats(), "ivar": floats(),
                             "mask": mask.astype("i4"), "resolution": None, "sigma": None})
        return self.spectra[-1]

    def ascending(self, n, first, step):
        return first + step * np.cumsum(self.rng.uniform(0.5, 1.5, n))

    def of_rows(self, key):
        return [row[key] for row in self.rows]


def image(name, code, values, cards=()):
    return Hdu(name, [Column("", code, values)], np.shape(values), cards)


def table(name, *columns, cards=()):
    return Hdu(name, [Column(*c) for c in columns], cards=cards)


def desi(s):
    """Five rows, arms b and r, at HDU 2 FIBERMAP."""
    for i, target in enumerate((30, 10, -5, 20, 40)):
        s.row(target_id=target, ref_cat="" if i == 3 else "G2")
    hdus = [Hdu("", []), table(
        "FIBERMAP", ("TARGETID", "K", s.of_rows("target_id")), ("OBJTYPE", "3A", ["TGT"] * 5),
        ("COADD_FIBERSTATUS", "J", [0, 8, 1 << 20, 0, 8 | 1 << 20]), ("FIBER", "J", s.of_rows("fiber")),
        ("TARGET_RA", "D", s.of_rows("ra")), ("TARGET_DEC", "D", s.of_rows("dec")),
        ("REF_CAT", "2A", s.of_rows("ref_cat")))]
    n_pix = 4, 4 + int(s.rng.integers(8))
    waves = [s.ascending(n, first, 1.0) for n, first in zip(n_pix, (4000, 5000))]
    for i in range(5):
        for arm, wave in zip((B, R), waves):
            p = s.spectrum(i, arm, len(wave))
            p["wave"] = wave
            p["resolution"] = np.array([s.spectrum(0, 0, 3 * len(wave))["flux"]]).ravel()
            s.spectra.pop()
    for x, wave, of in zip("BR", waves, (s.spectra[::2], s.spectra[1::2])):
        hdus += [image(x + "_WAVELENGTH", "D", wave),
                 *(image(f"{x}_{name.upper()}", code, [p[name] for p in of])
                   for name, code in (("flux", "E"), ("ivar", "E"), ("mask", "J"))),
                 image(x + "_RESOLUTION", "E", [p["resolution"].reshape(3, -1) for p in of])]
    return hdus, BARYCENTRIC


def sdss_table(s, name, mask, n, p):
    loglam = s.ascending(n, 3.6, 1e-3).astype("f4")
    wdisp = s.rng.uniform(0.5, 10, n).astype("f4")
    p["wave"] = np.array([math.pow(10.0, float(x)) for x in loglam])
    p["sigma"] = (wdisp.astype(float) * 1e-4 * math.log(10) * p["wave"]).astype("f4")
    hdu = table(name, ("flux", "E", p["flux"]), ("LogLam", "E", loglam), ("ivar", "E", p["ivar"]),
                (mask, "J", p["mask"]), ("wdisp", "E", wdisp))
    p["mask"] &= SDSS_BAD
    return hdu


def sdss(s):
    """COADD at HDU 2, SPECOBJ, then exposures 7 (red, blue) and 5 (blue)."""
    row = s.row(z=-3.5e-5, fiber=31, fits_row=1, object="spec-0266-51602-0031", spectype="STAR",
                subtype="WD", identifier="sdss 0266-51602-0031")
    n = 6 + int(s.rng.integers(8))
    hdus = [Hdu("", [], cards=["HELIO_RV=        4.97393101991"]),
            sdss_table(s, "COADD", "AND_MASK", n, s.spectrum(0, COADD, n)),
            table("SPECOBJ", ("PLATE", "J", [266]), ("MJD", "J", [51602]), ("FIBERID", "J", [31]),
                  ("PLUG_RA", "D", [row["ra"]]), ("PLUG_DEC", "D", [row["dec"]]), ("Z", "D", [row["z"]]),
                  ("CLASS", "6A", ["STAR"]), ("SUBCLASS", "21A", ["WD"]), ("OBJTYPE", "16A", ["QSO"]))]
    s.single = {}
    for i, name in enumerate(("R1-00000007", "B1-00000007", "B1-00000005")):
        s.single[name] = s.spectrum(0, 0, 4 + i)
        hdus.append(sdss_table(s, name + "-00000001-00000002", "mask", 4 + i, s.spectra.pop()))
        hdus[-1].cards = ["HELIO_RV=        4.9"]
    return hdus, HELIOCENTRIC


def sdss_v(s):
    """An SDSS-V file: COADD (HDU 2), SPALL, ZALL, and the spectra s.single of two exposures."""
    row = s.row(z=-3.5e-5, fiber=-1, fits_row=1, object="27021598054114233", spectype="STAR", subtype="F9",
                identifier="sdss 112360-60000-27021598054114233", target_id=56789012)
    n = 6 + int(s.rng.integers(8))
    hdus = [Hdu("", [], cards=["V_RAD   =        2.06602295456", "HELIO_RV=        2.06602295456",
                               "TAI-BEG =         5184019757.0", "TAI-END =         5184028003.0"]),
            sdss_table(s, "COADD", "AND_MASK", n, s.spectrum(0, COADD, n)),
            table("SPALL", ("FIELD", "K", [112360]), ("MJD", "K", [60000]), ("OBJTYPE", "16A", ["SCIENCE"]),
                  ("CATALOGID", "K", [27021598054114233]), ("SDSS_ID", "K", [row["target_id"]]),
                  ("PLUG_RA", "D", [row["ra"]]), ("PLUG_DEC", "D", [row["dec"]]), ("Z", "D", [row["z"]]),
                  ("CLASS", "6A", ["STAR"]), ("SUBCLASS", "21A", ["F9"]), ("MJD_FINAL", "D", [0])),
            table("ZALL", ("FIELD", "J", [112360, 112360]))]
    s.single = []
    for i in range(2):
        hdus.append(sdss_table(s, f"MJD_EXP_60000-{i:02d}", "AND_MASK", n, s.spectrum(i, COADD, n)))
        hdus[-1].cards = ["V_RAD   =                  1.9", f"EXPOSURE= {353048 + i}",
                          f"TAI-BEG = {5184019757 + 1000 * i}", f"TAI-END = {5184020657 + 1000 * i}"]
        s.single.append(s.spectra.pop())
    return hdus, BARYCENTRIC


def mwm(s, is_visit=False):
    """Astra's coadd or visits (BOSS/LCO), at rest; visit two is not, as the coadd lacks it."""
    n, n_row = 6 + int(s.rng.integers(8)), 3 if is_visit else 1
    position = {k: s.rng.uniform(0, 90) for k in ("ra", "dec")}
    for i in range(n_row):
        s.row(fiber=-1, target_id=99560000, object="63050395967613090",
              identifier=f"sdss_id 99560000:{i}" if is_visit else "sdss_id 99560000", **position)
        s.spectrum(i, COADD, n)
    vel, stack = s.rng.uniform(-300, 300, n_row).astype("f4"), np.arange(n_row) != 1
    width = s.rng.uniform(1.5, 4, (n_row, n)).astype("f4")
    rest = np.array([math.pow(10.0, 3.5523 + 0.05 * k) for k in range(n)])  # reaches above 6000 A
    flags = np.array([p["mask"] for p in s.spectra], "i8") & 0x7fffffff
    for p, v, used, w, m in zip(s.spectra, vel, stack, width, flags):
        p["wave"] = rest / (1 - float(v) * (used or not is_visit) / 299792.458)
        p["mask"] = (m & SDSS_BAD & ~(1 << 18 | 1 << 25)).astype("i4")
        power = np.where(p["wave"] < 6000, 1560 + (p["wave"] - 3700) * (710 / 2300),
                         1850 + (p["wave"] - 6000) * (800 / 3000))
        p["sigma"] = ((w.astype(float) if is_visit else p["wave"] / power) / math.sqrt(8 * math.log(2))).astype("f4")
    columns = [("flux", f"{n}E", [p["flux"] for p in s.spectra]), ("ivar", f"{n}E", [p["ivar"] for p in s.spectra]),
               ("pixel_flags", f"{n}K", flags)]
    columns += [("xcsao_v_rad", "E", vel), ("in_stack", "L", [b"FT"[i:i + 1] for i in stack.astype(int)]),
                ("wresl", f"{n}E", width), ("tai_beg", "K", [5184019757 + 86400 * i for i in range(n_row)]),
                ("tai_end", "K", [5184020757 + 86400 * i for i in range(n_row)])] if is_visit else [("v_rad", "E", vel)]
    cards = ["CRVAL   =               3.5523", "CDELT   =                 0.05", "CRPIX   =                    1",
             "CTYPE   = 'LOG-LINEAR'"]
    return [Hdu("", [], cards=["SDSS_ID =             99560000", "CAT_ID  =    63050395967613090",
                               f"RA      = {position['ra']:.17g}", f"DEC     = {position['dec']:.17g}"]),
            table("BOSS/APO", *((name, form, []) for name, form, _ in columns)),
            table("BOSS/LCO", *columns, cards=cards), table("APOGEE/APO", ("sdss_id", "K", []))], BARYCENTRIC


def lamost(s, is_image=False, is_dr1=False):
    """A spectrum of low resolution: table COADD (HDU 2), or primary image (DR1: no wavelengths)."""
    n = 5 + int(s.rng.integers(8))
    p = s.spectrum(0, COADD, n)
    p["mask"] &= 0xffff
    p["wave"] = (np.array([math.pow(10, 3.5682 + 1e-4 * i) for i in range(n)]) if is_dr1 else
                 s.ascending(n, 3700, 1).astype("f4").astype(float))
    row = s.row(fiber=110, exp_id=3703110, fits_row=0 if is_image else 1, z=-0.00005617,
                object="LAMOST J091219.42+275336.4", identifier="lamost 55877-B7708-03-110",
                spectype="STAR", subtype="K7")
    values = [p["flux"], p["ivar"], p["flux"] if is_dr1 else p["wave"], p["mask"], np.ones(n)]
    cards = ["TELESCOP= 'LAMOST  '", "HELIO   =                    T",
             "FILENAME= 'spec-55877-B7708_sp03-110.fits'", "OBSID   =              3703110",
             "DESIG   = 'LAMOST J091219.42+275336.4'", "FIBERID =                  110",
             "LMJD    =                55877", "PLANID  = 'B7708   '",
             "SPID    =                    3", "FIB_TYPE= 'Obj     '", "CLASS   = 'STAR    '",
             "SUBCLASS= 'K7      '", "Z       =          -0.00005617",
             f"RA      = {row['ra']:.17g}", f"DEC     = {row['dec']:.17g}"]
    if is_dr1:
        cards += ["EXTEN0  = 'Flux Inverse Subcontinuum Andmask Ormask'", "COEFF0  =              3.56820",
                  "COEFF1  =          0.000100000"]
    if is_image:
        return [image("", "E", values, cards)], HELIOCENTRIC
    # real files have these cards of the older layout
    cards += ["NAXIS1  =                 3909 /", "NAXIS2  =                    5 /"]
    return [Hdu("", [], cards=cards), table("COADD", *(
        (name, f"{n}E", v) for name, v in zip(("flux", "IVAR", "WAVELENGTH", "ANDMASK", "ORMASK"),
                                              values)))], HELIOCENTRIC


def lamost_mrs(s):
    """LAMOST's medium resolution.  s.single: {HDU: spectrum}; wavelengths of R-84107317 descend."""
    row = s.row(fiber=15, exp_id=681001015, fits_row=1, object="LAMOST J230311.44+321335.5",
                identifier="lamost 58408-TD2301-01-015")
    hdus = [Hdu("", [], cards=[
        "TELESCOP= 'LAMOST  '", "HELIO   =                    T", "VACUUM  =                    T",
        "OBSID   =            681001015", f"DESIG   = '{row['object']}'", "FIBERID =                   15",
        "LMJD    =                58408", "PLANID  = 'TD2301  '", "SPID    =                    1",
        "FIBERTYP= 'Obj     '", f"RA      = {row['ra']:.17g}", f"DEC     = {row['dec']:.17g}"])]
    s.single = {}
    for name, arm in (("COADD_B", B), ("COADD_R", R), ("B-84107317", B), ("R-84107317", R), ("B-84107305", B)):
        n, is_coadd = 5 + int(s.rng.integers(8)), name.startswith("C")
        p = s.single[name] = s.spectrum(0, arm, n)
        s.spectra = s.spectra[:len(s.spectra) - (not is_coadd)]
        p["mask"] = p["mask"].astype("i2").astype("i4")
        loglam = s.ascending(n, 3.7, 1e-5).astype("f4")
        p["wave"] = np.array([math.pow(10.0, float(x)) for x in loglam])
        turn = slice(None, None, -1 if name == "R-84107317" else 1)
        hdus.append(table(name, ("FLUX", "E", p["flux"][turn]), ("IVAR", "E", p["ivar"][turn]),
                          ("LOGLAM", "E", loglam[turn]), ("ANDMASK" if is_coadd else "PIXMASK", "I", p["mask"][turn]),
                          cards=[] if is_coadd else ["EXPTIME =                 1200"]))
    return hdus, HELIOCENTRIC


def weave(s):
    """WEAVE's images, from BLUE_DATA (HDU 2) on.  The last fibre is parked, the fourth is a sky."""
    n_pix = {"BLUE": 4, "RED": 3}
    for i in range(5):
        s.row(object=f"WVE_00{s.rng.integers(10**6):06d}-{i:07d}")
    no_sens = s.rng.choice(np.array([0, np.nan, -1, np.inf], "f4"), (5, 4))
    sens = {"BLUE": np.where(s.rng.integers(3, size=(5, 4)), s.rng.uniform(0.1, 9, (5, 4)),
                             no_sens).astype("f4"),
            "RED": s.rng.uniform(1e-18, 1e-16, 3).astype("f4")}
    sens["BLUE"][0, 0] = 0.5  # no physical unit
    factor = {"BLUE": sens["BLUE"].astype(float), "RED": np.tile(sens["RED"].astype(float) * 1e17, (5, 1))}
    wave = {"BLUE": vacuum(3650.0 + np.arange(4) * 0.25), "RED": (579.0 + (np.arange(3) - 1) * 0.05) * 10}
    data = {"BLUE": [], "RED": []}
    for i in range(5):
        for arm, x in ((BLUE, "BLUE"), (RED, "RED")):
            p, f = s.spectrum(i, arm, n_pix[x]), factor[x][i]
            data[x].append((p["flux"], p["ivar"]))
            good = np.isfinite(f) & (f > 0)
            p["flux"] = np.where(good, (p["flux"].astype(float) * f).astype("f4"), p["flux"])
            p["ivar"] = np.where(good, (p["ivar"].astype(float) / (f * f)).astype("f4"), np.float32(0))
            p["wave"], p["mask"] = wave[x], None
    cards = {"BLUE": ["CRVAL1  =               3650.0", "CD1_1   =                 0.25",
                      "CRPIX1  =                  1.0", "CTYPE1  = 'AWAV'", "CUNIT1  = 'Angstrom'"],
             "RED": ["CRVAL1  =                579.0", "CDELT1  =                 0.05",
                     "CRPIX1  =                  2.0", "CTYPE1  = 'WAVE'", "CUNIT1  = 'nm'",
                     "SPECSYS = 'BARYCENT'"]}
    hdus = [Hdu("", [])]
    for x in n_pix:
        flux, ivar = zip(*data[x])
        hdus += [image(x + "_DATA", "E", flux, cards[x]), image(x + "_IVAR", "E", ivar)]
        hdus += [image("BLUE_DATA_NOSS", "E", ivar)] if x == "BLUE" else []
        hdus.append(image(x + "_SENSFUNC", "E", sens[x]))
    hdus.append(table("FIBTABLE", ("FIBREID", "J", s.of_rows("fiber")), ("CNAME", "20A", s.of_rows("object")),
                      ("TARGRA", "D", s.of_rows("ra")), ("TARGDEC", "D", s.of_rows("dec")),
                      ("Status", "1A", list("AaAAP")), ("TARGUSE", "1A", list("TCTST"))))
    del s.rows[3:], s.spectra[6:]
    return hdus, UNKNOWN  # blue does not say


def fourmost(s):
    """4MOST's table SPECTAB (HDU 2): object, reference star, parked fibre, sky, lamp; in air."""
    n, kept = 4 + int(s.rng.integers(8)), []
    for i in range(5):
        s.row(target_id=int(s.rng.integers(2**62)), object=f"QMST{i:08d}-4111450")
        kept.append(s.spectrum(i, BLUE, n))
        kept[-1]["wave"] = vacuum((370.0 + np.arange(n) * 0.025) * 10)
    hdus = [Hdu("", [], cards=["SPECSYS = 'BARYCENT'"]),
            table("SPECTAB", ("FLUX", f"{n}E", [p["flux"] for p in kept], "erg/(s*cm^2*Angstrom)"),
                  ("FLUX_IVAR", f"{n}E", [p["ivar"] for p in kept]), ("QUAL", f"{n}J", [p["mask"] for p in kept]),
                  cards=["1CRVL1  =                370.0", "1CDLT1  =                0.025",
                         "1CUNI1  = 'nm'", "1CTYP1  = 'AWAV'"]),
            table("FIBMETATAB", ("OBJ_NME", "20A", s.of_rows("object")), ("OBJ_UID", "K", s.of_rows("target_id")),
                  ("FIB_ID", "J", s.of_rows("fiber")), ("FIB_ST", "I", [2, 2, 1, 2, 2]),
                  ("FIB_USE", "I", [1, 2, 1, 3, 4]), ("OBJ_RA", "D", s.of_rows("ra"), "deg"),
                  ("OBJ_DEC", "D", s.of_rows("dec"), "deg"), ("SNR", "E", [9, 11, 50, 50, 50]))]
    del s.rows[2:], s.spectra[2:]
    return hdus, BARYCENTRIC


def fourmost_single(s):
    """Blue and red of the high resolution, joined, in physical units."""
    row, columns = s.row(target_id=11031146069, fiber=644, object="QMST20562750-4111450"), []
    for arm, first, n in ((BLUE, 3926, 4), (RED, 6100, 4 + int(s.rng.integers(8)))):
        p = s.spectrum(0, arm, n)
        p["wave"] = (first + 0.05 * np.arange(n)).astype("f4").astype(float)
        flux, error = (p["flux"] * np.float32(1e-17)), (s.rng.uniform(0.5, 9, n) * 1e-17).astype("f4")
        columns.append((p["wave"], flux, error, p["mask"]))
        p["flux"] = (flux.astype(float) * 1e17).astype("f4")
        scaled = error.astype(float) * 1e17
        p["ivar"] = (1 / (scaled * scaled)).astype("f4")
    wave, flux, error, mask = (np.concatenate(c) for c in zip(*columns))
    n = len(wave)
    return [Hdu("", [], cards=["INSTRUME= 'QMOST   '", "SPECSYS = 'HELIOCEN'"]),
            table("PHASE3SPECTRUM", ("WAVE", f"{n}E", wave, "Angstrom"), ("FLUX", f"{n}E", flux),
                  ("ERR_FLUX", f"{n}E", error), ("QUAL", f"{n}J", mask), ("FLUX_NOSS", f"{n}E", flux), cards=[
                      "TUCD1   = 'em.wl'", f"TRG_NME = '{row['object']}'", "TRG_UID =          11031146069",
                      "FIB_ID  =                  644", "FIB_ST  =                    2",
                      "FIB_USE =                    1", f"TRG_RA  = {row['ra']:.17g}",
                      f"TRG_DEC = {row['dec']:.17g}"])], HELIOCENTRIC


def pfs(s, has_wave=False):
    """PFS's coadd of two visits, FLUX in HDU 2.  CRPIX1 counts pixels from 2, as PFS writes it."""
    n = 6 + int(s.rng.integers(8))
    p, start = s.spectrum(0, PFS, n), 3.8e-7 + 0.5 * (n - 1) * 8e-11
    row = s.row(target_id=0x1234567890abc, fits_row=1, object="10092-0001234567890abc",
                identifier="pfs 10092-00001-2,2-0001234567890abc")
    wave, variance = s.ascending(n, 380, 0.08), s.rng.uniform(0.1, 9, n).astype("f4")
    p["wave"] = wave * 10 if has_wave else (start + (np.arange(n) + 2 - (0.5 * n + 1.5)) * 8e-11) * 1e10
    p["ivar"] = (1 / variance.astype(float)).astype("f4")
    p["sigma"] = np.full(n, 2.1 / math.sqrt(8 * math.log(2)), "f4")
    bad = {"BAD": 3, "SAT": 6, "CR": 9, "SUSPECT": 11, "NO_DATA": 14, "UNMASKEDNAN": 17,
           "BAD_FLAT": 20, "BAD_SKY": 25, "BAD_FLUXCAL": 31}  # this file's bits
    flags = [f"HIERARCH MP_{name} = {bit}" for name, bit in (*bad.items(), ("FIBERTRACE", 12))]
    cards = ["CTYPE1  = 'WAVE    '", "CUNIT1  = 'm       '", f"CRPIX1  = {0.5 * n + 1.5}", "CDELT1  = 8E-11",
             f"CRVAL1  = {start:.17g}"]
    hdus = [Hdu("", []), image("FLUX", "E", p["flux"], [] if has_wave else cards), image("MASK", "J", p["mask"], flags),
            table("TARGET", ("filterName", "1A", ["g"]), cards=[
                "CATID   =                10092", "TRACT   =                    1", "PATCH   = '2,2     '",
                f"OBJID   = {row['target_id']}", f"RA      = {row['ra']:.17g}", f"DEC     = {row['dec']:.17g}",
                "HIERARCH TARGETTYPE = 1", "HIERARCH TargetType.SKY = 2"]),
            image("COVAR", "E", [variance, variance * 0, variance * 0]),
            table("OBSERVATIONS", ("visit", "J", [7, 8]), ("arm", "1A", ["b", "r"]),
                  ("fiberId", "J", [row["fiber"]] * 2),
                  ("obsTime", "19A", ["2025-03-23T10:30:00", "2025-03-23T10:50:00"]))]
    p["mask"] &= np.array(sum(1 << bit for bit in bad.values()), "u4").view("i4")
    return hdus + ([image("WAVELENGTH", "D", wave)] if has_wave else []), UNKNOWN


def generic(s, plain=True):
    """Generic table SPECTRA (HDU 2).  plain: lengths, types and units are fixed; else random."""
    units = {"Angstrom": 1.0, "angstrom": 1.0, "AA": 1.0, "nm": 10.0, "um": 1e4}
    variable, is_error, is_double = (0, 0, 0) if plain else s.rng.integers(2, size=3)
    unit = "Angstrom" if plain else str(s.rng.choice(list(units)))
    fixed, found = 4 if plain else 4 + int(s.rng.integers(8)), []
    for i in range(3):
        n = 2 + int(s.rng.integers(14)) if variable else fixed
        s.row(fiber=-1, target_id=int(s.rng.integers(2**62)), object=f"star_{'abc'[i]}")
        p = s.spectrum(i, SPECTRUM, n)
        wave, error = s.ascending(n, 4000, 1), s.rng.uniform(0.01, 5, n)
        sigma = s.rng.uniform(0.5, 2, n).astype("f4")
        if is_error:
            p["ivar"] = (1 / (error * error)).astype("f4")
        found.append((wave, p["flux"], error if is_error else p["ivar"], p["mask"], sigma))
        p["wave"] = wave * units[unit]
        p["sigma"] = (sigma.astype(float) * units[unit]).astype("f4")
    columns = [("NAME", "6A", s.of_rows("object"))]
    for name, code, of, values in zip(
            ("WAVELENGTH", "FLUX", "ERROR" if is_error else "IVAR", "MASK", "LSF_SIGMA"),
            ("D", "D" if is_double else "E", "D" if is_error else "E", "J", "E"), (unit, "", "", "", unit),
            zip(*found)):
        columns.append((name, f"1P{code}(16)" if variable else f"{fixed}{code}",
                        list(values) if variable else np.array(values), of))
    columns += [("TARGETID", "K", s.of_rows("target_id")), ("RA", "D", s.of_rows("ra"), "deg"),
                ("DEC", "D", s.of_rows("dec"), "deg")]
    return [Hdu("", []), table("SPECTRA", *columns, cards=[
        "MEDIUM  = 'vacuum'", "FRAME   = 'barycentric'"])], BARYCENTRIC


class Reader:
    """A process that reads one file after the other through the readers' common interface."""
    process = None

    @classmethod
    def ask(cls, *words):
        if not cls.process:
            cls.process = subprocess.Popen([READER], env=ENVIRONMENT, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE)
        cls.process.stdin.write(("\t".join(map(str, words)) + "\n").encode())
        cls.process.stdin.flush()
        return json.loads(cls.process.stdout.readline())

    @classmethod
    def read(cls, path, config="", arms=ARMS, lsf=True, each=False, cut=0):
        put("formats.yaml", (config if "fiberstatus" in config else EVERY_FIBRE + config))
        answer = cls.ask("spectra", path, tmp("formats.yaml"), ",".join(arms), int(lsf), int(each), cut)
        data = cls.process.stdout.read(answer["n_byte"])

        def decode(of):
            for key, value in of.items():
                if key in TYPE or key in ("flux", "ivar", "resolution", "sigma"):
                    of[key] = value and np.frombuffer(data, TYPE.get(key, "f4"), value[1], value[0])
                elif isinstance(value, list):
                    for item in value:
                        if isinstance(item, dict):
                            decode(item)
        decode(answer)
        return answer

atexit.register(lambda: Reader.process and Reader.process.communicate())


# {kind: (format, function that draws a sample, 1 if the file has a line-spread function)}
KINDS = {"desi": ("desi", desi, 1), "sdss": ("sdss", sdss, 1), "sdss-v": ("sdss", sdss_v, 1),
         "mwm star": ("sdss", mwm, 1), "mwm visit": ("sdss", lambda s: mwm(s, True), 1),
         "lamost": ("lamost", lamost, 0), "lamost image": ("lamost", lambda s: lamost(s, True), 0),
         "lamost dr1": ("lamost", lambda s: lamost(s, True, True), 0),
         "lamost-mrs": ("lamost-mrs", lamost_mrs, 0), "weave": ("weave", weave, 0),
         "4most": ("4most", fourmost, 0), "4most single": ("4most", fourmost_single, 0),
         "pfs": ("pfs", pfs, 1), "pfs wave": ("pfs", lambda s: pfs(s, True), 1),
         "generic": ("generic", generic, 1), "generic, any": ("generic", lambda s: generic(s, False), 1)}

FIT, NO_LSF = 0, 1
NO_WIDTH = 1 << 30  # mask bit that the reader sets where SDSS's file gives no width


class Formats(unittest.TestCase):
    def path(self, sample):
        return put("coadd-x.fits", packed(sample.hdus, sample.shift)[0])

    def read(self, sample, config="", **how):
        """A sample is written and read, which works."""
        answer = Reader.read(self.path(sample), config, **{"lsf": sample.lsf, **how})
        self.assertNotIn("error", answer, answer.get("message"))
        return answer

    def refused(self, sample, *parts, config="", name="coadd-x.fits", **how):
        """The sample is refused; the message names the file (or `name`) and has these parts."""
        answer = Reader.read(self.path(sample), config, **{"lsf": sample.lsf, **how})
        self.assertEqual(answer.get("error"), 3, answer)
        for part in (tmp(name), *parts):
            self.assertIn(part, answer["message"])

    def assertSame(self, got, wanted, what=""):
        """Bit for bit; any NaN is a NaN."""
        self.assertEqual(got is None, wanted is None, what)
        if wanted is not None:
            wanted = np.asarray(wanted, got.dtype)
            self.assertEqual(got.shape, wanted.shape, what)
            same = (got == wanted) & (np.signbit(got) == np.signbit(wanted)) | (got != got) & (wanted != wanted)
            self.assertTrue(same.all(), f"{what}: {got[~same]} instead of {wanted[~same]}")

    def assertSegments(self, found, wanted):
        self.assertEqual([(s["use"], s["exposure"], s["arm"]) for s in found],
                         [(FIT, s["exposure"], s["arm"]) for s in wanted])
        for got, s in zip(found, wanted):
            for name in ("wave", "flux", "ivar", "mask", "resolution", "sigma"):
                self.assertSame(got[name], s[name], name)
