# SPDX-License-Identifier: BSD-3-Clause
"""Writes the files of a mock survey: coadds in DESI's layout, redrock tables, the truth."""

import contextlib
import os

import numpy as np
from astropy.io import fits

from starmill.cli.basics import Failure, begin_file, writing
from starmill.mocks import observe
from starmill.mocks.instrument import N_DIAG, N_GROUP
from starmill.wavelength import doppler

N_FIBER = 5000  # fibers of the instrument, 500 per petal
BROKEN, REACH = 1 << 2, 1 << 3  # a forbidden and an allowed bit of the fiber status
DESI_MWS_ANY, DESI_SKY, MWS_BROAD = 1 << 61, 1 << 32, 1 << 0
ZWARN_SKY, ZWARN_DELTACHI2, ZWARN_NEGATIVE, ZWARN_NODATA = 1 << 0, 1 << 2, 1 << 3, 1 << 9
GALAXY_Z, MAX_NOISE_Z, NOISE_Z_ERROR = 0.3, 1.6, 1e-3  # z of "galaxy" rows; noise: largest z, error
Z_ERROR_AT_SN10 = 2e-5  # 6 km/s; falls as 1 / S/N

# DESI's names, types and units
FIBERMAP = [("TARGETID", "i8", ""), ("LOCATION", "i8", ""), ("FIBER", "i4", ""),
            ("COADD_FIBERSTATUS", "i4", ""), ("TARGET_RA", "f8", "deg"),
            ("TARGET_DEC", "f8", "deg"), ("PMRA", "f4", "mas yr^-1"), ("PMDEC", "f4", "mas yr^-1"),
            ("REF_EPOCH", "f4", "yr"), ("REF_ID", "i8", ""), ("REF_CAT", "S2", ""),
            ("OBJTYPE", "S3", ""), ("BRICKID", "i4", ""), ("DESI_TARGET", "i8", ""),
            ("BGS_TARGET", "i8", ""), ("MWS_TARGET", "i8", ""), ("SCND_TARGET", "i8", ""),
            *((f"FLUX_{band}", "f4", "nanomaggy") for band in "GRZ")]
EXP_FIBERMAP = [("TARGETID", "i8", ""), ("EXPID", "i4", ""), ("LOCATION", "i8", ""),
                ("FIBER", "i4", ""), ("FIBERSTATUS", "i4", "")]
SCORES = [("TARGETID", "i8", ""), *((f"MEDIAN_COADD_SNR_{arm}", "f4", "") for arm in "BRZ")]
COADD = {"FIBERMAP": FIBERMAP, "EXP_FIBERMAP": EXP_FIBERMAP, "SCORES": SCORES}
REDSHIFTS = [("TARGETID", "i8", ""), ("Z", "f8", ""), ("ZERR", "f8", ""), ("ZWARN", "i8", ""),
             ("CHI2", "f8", ""), ("SPECTYPE", "S6", ""), ("SUBTYPE", "S20", ""),
             ("DELTACHI2", "f8", "")]


class FitsOutput:
    """A FITS file that several processes write; commit() gives it its name."""

    def __init__(self, path, origin, hdus, cards=()):
        """origin: (digest, lines of text) of the survey's history, for MOCKID and HISTORY."""
        self.path, self.temporary = path, begin_file(path)
        self.start = {}  # {EXTNAME: byte offset of the data}
        primary = fits.PrimaryHDU().header
        primary["EXTEND"] = True
        primary["MOCKID"] = (origin[0], "digest of what the file is made from")
        for line in origin[1]:
            primary["HISTORY"] = line
        primary.update(cards)
        try:  # write all headers and leave room for the data
            with writing(self.path), open(self.temporary, "r+b") as file:
                end = file.write(primary.tostring().encode())
                for header, n_byte in hdus:
                    file.seek(end)
                    end += file.write(header.tostring().encode())
                    self.start[header["EXTNAME"]] = end
                    end += -(-n_byte // 2880) * 2880
                file.truncate(end)
        except Failure:
            self.drop()
            raise

    def put(self, name, row, values):
        """Write values [n]... to n rows of an HDU, from row on."""
        data = np.ascontiguousarray(values, values.dtype.newbyteorder(">"))
        with writing(self.path), open(self.temporary, "r+b") as file:
            file.seek(self.start[name] + row * (data.nbytes // len(data)))
            file.write(data)

    def commit(self):
        with writing(self.path):
            with open(self.temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(self.temporary, self.path)

    def drop(self):
        """Remove a file that was not committed."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.temporary)


def _table(name, columns, n_row):
    """Return the header and data size (bytes) of a table.  columns: [(name, type, unit)], types
    such as (3,)f8.  Importing astropy's tables would take a third of a small survey's time."""
    dtype = np.dtype([column[:2] for column in columns])
    letter = {"i4": "J", "i8": "K", "f4": "E", "f8": "D"}
    header = fits.Header([
        ("XTENSION", "BINTABLE", "binary table extension"), ("BITPIX", 8, "array data type"),
        ("NAXIS", 2, "number of array dimensions"),
        ("NAXIS1", dtype.itemsize, "length of dimension 1"),
        ("NAXIS2", n_row, "length of dimension 2"), ("PCOUNT", 0, "number of group parameters"),
        ("GCOUNT", 1, "number of groups"), ("TFIELDS", len(columns), "number of table fields")])
    for i, (column, kind, unit) in enumerate(columns, 1):
        header[f"TTYPE{i}"] = column
        header[f"TFORM{i}"] = f"{kind[1:]}A" if kind[0] == "S" else kind[1:-4] + letter[kind[-2:]]
        if unit:
            header[f"TUNIT{i}"] = unit
    header["EXTNAME"] = (name, "extension name")
    return header, n_row * dtype.itemsize


def _image(name, dtype, shape, unit):
    header = fits.ImageHDU(np.broadcast_to(np.zeros((), dtype), shape), name=name).header
    if unit:
        header["BUNIT"] = unit
    return header, np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))


def _fill(columns, n, values):
    """Return n rows of a table from {column: values}; other columns are 0."""
    rows = np.zeros(n, np.dtype([column[:2] for column in columns]))
    for name in values.keys() & set(rows.dtype.names):
        rows[name] = values[name]
    return rows


def open_coadd(path, survey, n_row):
    hdus = [_table(name, columns, n_row) for name, columns in COADD.items()]
    for arm in survey.arms:
        hdus += [_image(f"{arm.name.upper()}_{what}", dtype, shape, unit)
                 for what, dtype, shape, unit in (
                     ("WAVELENGTH", "f8", (arm.n_pix,), "Angstrom"),
                     ("FLUX", "f4", (n_row, arm.n_pix), "10**-17 erg/(s cm2 Angstrom)"),
                     ("IVAR", "f4", (n_row, arm.n_pix), "10**+34 (s2 cm4 Angstrom2) / erg2"),
                     ("MASK", "i4", (n_row, arm.n_pix), ""),
                     ("RESOLUTION", "f4", (n_row, N_DIAG, arm.n_pix), ""))]
    file = FitsOutput(path, survey.origin, hdus, [
        ("SPGRP", "healpix"), ("SPGRPVAL", 0),  # a mock survey has no healpix
        ("HPXPIXEL", 0), ("HPXNSIDE", 64), ("HPXNEST", True), ("SURVEY", "mock"),
        ("PROGRAM", "starmill")])
    for arm in survey.arms:
        file.put(f"{arm.name.upper()}_WAVELENGTH", 0, arm.wave_aa)
    return file


def put_coadd(file, row, survey, stars, observed=None):
    """Write stars to the rows `row`, row + 1, ...  observed: result of observe(), if known."""
    spectra, median_sn = observed or observe.observe(survey, stars)
    tables = _coadd_tables(stars, median_sn)
    for name, columns in COADD.items():
        file.put(name, row, _fill(columns, len(stars.index), tables))
    for arm, pixels in zip(survey.arms, spectra):
        for what, values in zip(("FLUX", "IVAR", "MASK"), pixels):
            file.put(f"{arm.name.upper()}_{what}", row, values)
        file.put(f"{arm.name.upper()}_RESOLUTION", row, arm.resolution[stars.group])


def _coadd_tables(stars, median_sn):
    """Return {column: values [n]} of the three tables."""
    is_sky = stars.kind == "sky"
    # fibers of one group share a line-spread function, as neighbours in a spectrograph do
    n_group_fiber = N_FIBER // N_GROUP
    fiber = stars.group * n_group_fiber + stars.index % n_group_fiber
    status = np.select([stars.kind == "bad_fiber", stars.kind == "allowed_fiber"], [BROKEN, REACH])
    flux = np.where(is_sky[:, np.newaxis], 0.0, 10.0 ** (0.4 * (22.5 - stars.magnitude)))
    columns = {"TARGETID": stars.target_id, "LOCATION": fiber // 500 * 1000 + fiber % 500,
               "FIBER": fiber, "COADD_FIBERSTATUS": status, "FIBERSTATUS": status,
               "TARGET_RA": stars.ra_deg, "TARGET_DEC": stars.dec_deg, "REF_EPOCH": 2015.5,
               "REF_ID": np.where(is_sky, -1, stars.index + 1),
               "REF_CAT": np.where(is_sky, b"", b"G2"), "OBJTYPE": np.where(is_sky, b"SKY", b"TGT"),
               "BRICKID": stars.target_id >> 22 & 0xFFFFF, "EXPID": 1,
               "DESI_TARGET": np.where(is_sky, DESI_SKY, DESI_MWS_ANY),
               "MWS_TARGET": np.where(is_sky, 0, MWS_BROAD)}
    columns.update(zip(("FLUX_G", "FLUX_R", "FLUX_Z"), flux.T))
    columns.update(zip((name for name, _, _ in SCORES[1:]), median_sn.T))
    return columns


def put_redrock(file, row, survey, stars):
    """Write made-up results of redrock: redshifts with random errors, SUBTYPE from Teff, and ZWARN
    bits of the kinds sky, noise, negative and no_arm.  CHI2 and DELTACHI2 are only rough."""
    n, n_pix, empty = len(stars.index), sum(arm.n_pix for arm in survey.arms), stars.is_empty()
    is_galaxy = stars.kind == "galaxy"
    uniform, normal = stars.redrock.T
    with np.errstate(divide="ignore"):
        z_error = np.where(empty, NOISE_Z_ERROR, Z_ERROR_AT_SN10 * 10.0 / stars.sn)
    z = doppler(stars.vrad_km_s) - 1.0 + z_error * normal
    # redrock always finds something
    z = np.select([empty, is_galaxy], [MAX_NOISE_Z * uniform, GALAXY_Z], z)
    no_data = stars.kind == "no_arm"
    subtype = np.full(n, b"")
    teff = [i for i, label in enumerate(survey.library.label) if label.name == "teff"]
    if teff:
        kelvin = stars.label[:, teff[0]]
        subtype = np.select([empty | is_galaxy, kelvin < 5200, kelvin < 6000, kelvin < 7500],
                            [b"", b"K", b"G", b"F"], b"A")
    file.put("REDSHIFTS", row, _fill(REDSHIFTS, n, {
        "TARGETID": stars.target_id, "Z": z, "ZERR": z_error,
        "ZWARN": np.select([stars.kind == "sky", empty, stars.kind == "negative", no_data],
                           [ZWARN_DELTACHI2 | ZWARN_SKY, ZWARN_DELTACHI2, ZWARN_NEGATIVE,
                            ZWARN_NODATA]),
        "CHI2": np.where(no_data, 0.0, n_pix),
        "DELTACHI2": np.where(no_data, 0.0, n_pix * stars.sn ** 2 / 100.0),
        "SPECTYPE": np.where(empty | is_galaxy, b"GALAXY", b"STAR"), "SUBTYPE": subtype}))


def _truth_columns(survey):
    columns = [("TARGETID", "i8", "")]
    columns += [(label.column, "f8", label.unit) for label in survey.library.label]
    columns += [("VRAD", "f8", "km/s"), ("VSINI", "f8", "km/s"), ("SN", "f8", ""),
                ("LSF_GROUP", "i4", ""), ("FILE", "i4", ""), ("FITS_ROW", "i8", ""),
                ("KIND", "S24", "")]
    return columns + [(f"ERROR_SHARE_{arm.name.upper()}", f"({n},)f8", "")
                      for arm, n in zip(survey.arms, survey.n_share) if n > 0]


def open_truth(path, survey, n_row):
    file = FitsOutput(path, survey.origin, [_table("TRUTH", _truth_columns(survey), n_row),
                                            _table("FILES", [("FILE", "S39", "")], survey.n_file)])
    file.put("FILES", 0, np.array([survey.name(i) for i in range(survey.n_file)], "S39"))
    return file


def put_truth(file, row, survey, stars):
    values = {"TARGETID": stars.target_id, "VRAD": stars.vrad_km_s, "VSINI": stars.vsini_km_s,
              "SN": stars.sn, "LSF_GROUP": stars.group, "KIND": stars.kind.astype("S24")}
    values["FILE"], values["FITS_ROW"] = np.divmod(stars.index, survey.settings.per_file)
    values.update({label.column: stars.label[:, i] for i, label in enumerate(survey.library.label)})
    values.update({f"ERROR_SHARE_{arm.name.upper()}": share
                   for arm, share in zip(survey.arms, stars.share)})
    file.put("TRUTH", row, _fill(_truth_columns(survey), len(stars.index), values))


# {file: (function that opens it, function that writes stars to it)}
KINDS = {"coadd": (open_coadd, put_coadd), "truth": (open_truth, put_truth), "redrock": (
    lambda path, survey, n_row: FitsOutput(path, survey.origin, [
        _table("REDSHIFTS", REDSHIFTS, n_row)]), put_redrock)}
