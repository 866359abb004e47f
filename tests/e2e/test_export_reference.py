# SPDX-License-Identifier: BSD-3-Clause
"""The reference survey through the eyes of who reads rvspecfit's files, and star by star beside it."""

import csv
import re

import astropy.table as atpy

from common import *  # noqa: F403

REFERENCE = data("sim/reference-rm.fits")
REAL = data("real/desi/coadd-4-80613-thru20210324.fits.gz")
OTHERS = [data(f"real/desi/{name}.fits.gz") for name in (
    "coadd-special-dark-27247", "coadd-5-169-thru20210419", "coadd-sv3-dark-26065",
    "spectra-sv3-dark-26065")]
SHIPPED = os.path.join(SOURCE, "libraries", "fgk.h5")
N_STAR = 40
OURS_OF_REFERENCE = ("M2LL_", "_BEST")  # what was added to rvspecfit's columns there


def setUpModule():
    path = cut("coadd-cut.fits", range(N_STAR))
    run("fit", "--library", library(), "--output", tmp("out.h5"), "--models", tmp("models.h5"), path,
        REAL)
    export("out.h5", "models.h5", "products")


def export(result, models, folder):
    """Both products of each input."""
    run("export", "--output", tmp(folder), tmp(result))
    run("export", "--to", "rvmod", "--models", tmp(models), "--output", tmp(folder), tmp(result))


def read_survey(pattern):
    """How a user of rvspecfit's files collects a survey: parameters, identifiers, targeting."""
    tables = []
    for name in sorted(glob.glob(pattern)):
        parameters = atpy.Table().read(name, format="fits", hdu="RVTAB")
        fibermap = atpy.Table().read(name, format="fits", hdu="FIBERMAP")
        scores = atpy.Table().read(name, format="fits", hdu="SCORES")
        assert len(parameters) == len(fibermap) == len(scores)
        assert np.all(parameters["TARGETID"] == fibermap["TARGETID"])
        assert np.all(parameters["TARGETID"] == scores["TARGETID"])
        for column in ("MWS_TARGET", "OBJTYPE", "FLUX_G", "REF_EPOCH"):
            parameters[column] = fibermap[column]
        parameters["SCORE"] = scores["MEDIAN_COADD_SNR_R"]
        tables.append(parameters)
    return atpy.vstack(tables, metadata_conflicts="silent")


class Reference(EndToEnd):
    def test_a_reader_of_rvspecfit_reads_it(self):
        survey = read_survey(tmp("products/rvtab-*.fits"))
        self.assertEqual(len(survey), N_STAR + 1)
        good = survey[(survey["RVS_WARN"] == 0) & survey["SUCCESS"] & (survey["VRAD_ERR"] < 5)]
        reference = atpy.Table.read(REFERENCE, hdu="RVTAB")
        both = atpy.join(good, reference, keys="TARGETID", table_names=["ours", "theirs"],
                         metadata_conflicts="silent")
        self.assertGreater(len(both), 0.8 * N_STAR)
        # both minimise the same function: most velocities agree far within their errors, and a
        # tenth of one is more than the stops of the two minimizers leave
        far = np.abs(both["VRAD_ours"] - both["VRAD_theirs"]) / both["VRAD_ERR_theirs"]
        self.assertLess(np.percentile(far, 80), 0.1)
        # the S/N that the file states is a median over other pixels: a few per cent
        np.testing.assert_allclose(good["SN_R"], good["SCORE"], rtol=0.1)

    def test_every_column_of_rvspecfit_is_there(self):
        with pyfits.open(REFERENCE) as theirs, \
                pyfits.open(tmp("products/rvtab-coadd-cut.fits")) as ours:
            found = {c.name: c for c in ours["RVTAB"].columns}
            n_checked = 0
            for column in theirs["RVTAB"].columns:
                if any(part in column.name for part in OURS_OF_REFERENCE):
                    continue
                self.assertIn(column.name, found)
                self.assertEqual(found[column.name].format, column.format, column.name)
                self.assertEqual(found[column.name].unit, column.unit, column.name)
                n_checked += 1
            self.assertEqual(n_checked, 29)

    def test_a_real_coadd(self):
        """81 columns of FIBERMAP, Gaia's among them, and 30 exposures of one target."""
        name = os.path.basename(REAL)[:-3]
        with pyfits.open(REAL) as inputs, pyfits.open(tmp("products/rvtab-" + name)) as hdus:
            for table in ("FIBERMAP", "SCORES", "EXP_FIBERMAP"):
                self.assertEqual(hdus[table].data.tobytes(), inputs[table].data.tobytes())
                self.assertEqual(hdus[table].columns.names, inputs[table].columns.names)
            self.assertEqual(hdus["FIBERMAP"].data["GAIA_PHOT_G_MEAN_MAG"],
                             inputs["FIBERMAP"].data["GAIA_PHOT_G_MEAN_MAG"])
            for column in ("REF_ID", "TARGET_RA", "TARGET_DEC", "FIBER"):
                self.assertEqual(hdus["RVTAB"].data[column], inputs["FIBERMAP"].data[column])
            for key in ("SPGRP", "SPGRPVAL", "TILEID", "SPECTRO", "PETAL", "NIGHT"):
                self.assertEqual(hdus[0].header[key], inputs[0].header[key])

    def test_files_end_where_fits_says(self):
        """Of all real files, also of DESI's newer format, whose FIBERMAP has a header of whole
        blocks; its one row has one axis of wavelengths, as rvspecfit writes it."""
        self.fit("new.h5", "--models", tmp("new-models.h5"), *OTHERS, lib=SHIPPED)
        export("new.h5", "new-models.h5", "new")
        for path in glob.glob(tmp("products/*")) + glob.glob(tmp("new/*")):
            with pyfits.open(path) as hdus:
                last = hdus[len(hdus) - 1].fileinfo()
                self.assertEqual(os.path.getsize(path), last["datLoc"] + last["datSpan"], path)
                for i, hdu in enumerate(hdus):
                    if isinstance(hdu, pyfits.BinTableHDU):
                        self.assertEqual(len(atpy.Table.read(path, hdu=i)), hdu.header["NAXIS2"])
        with pyfits.open(tmp("new/rvmod-coadd-special-dark-27247.fits")) as hdus:
            self.assertEqual(hdus["B_WAVELENGTH"].data.shape, hdus["B_MODEL"].data.shape[1:])
        self.assertVerified(*glob.glob(tmp("products/*")), *glob.glob(tmp("new/*")))

    def test_exposures_fitted_together(self):
        """One row of RVTAB, of FIBERMAP that of the first exposure; a model of each."""
        def edit(hdus):
            for table in ("FIBERMAP", "SCORES", "EXP_FIBERMAP"):
                for name in {"TARGETID", "TARGET_RA", "TARGET_DEC"} & set(hdus[table].data.names):
                    hdus[table].data[name][2] = hdus[table].data[name][0]
            columns = hdus["FIBERMAP"].columns + pyfits.ColDefs(
                [pyfits.Column("EXPID", "J", array=[7, 8, 9])])
            hdus["FIBERMAP"] = pyfits.BinTableHDU.from_columns(columns, name="FIBERMAP")

        path = cut("joint.fits", [3, 60, 100], edit)
        self.fit("joint.h5", "--exposures", "joint", "--models", tmp("joint-models.h5"), path)
        export("joint.h5", "joint-models.h5", "joint")
        self.assertEqual(list(read(self.path, "catalog")["N_EXPOSURE"]), [2, 1])
        with pyfits.open(path) as inputs, pyfits.open(tmp("joint/rvtab-joint.fits")) as tab, \
                pyfits.open(tmp("joint/rvmod-joint.fits")) as mod, \
                h5py.File(tmp("joint-models.h5")) as models:
            fibermap = inputs["FIBERMAP"].data
            self.assertEqual(tab["FIBERMAP"].data.tobytes(), fibermap[[0, 1]].tobytes())
            self.assertEqual(len(tab["EXP_FIBERMAP"].data), 3)
            self.assertEqual(mod["FIBERMAP"].data.tobytes(), fibermap[[0, 2, 1]].tobytes())
            np.testing.assert_array_equal(mod["Z_MODEL"].data, models["models/z/flux"][...])
            self.assertEqual(mod["Z_MODEL"].data.shape[0], 3)

    def compare(self, *args, status=0):
        done = starmill("compare", *args)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_star_by_star(self):
        rvtab, out = tmp("products/rvtab-coadd-cut.fits"), tmp("out.h5")
        said = self.compare(REFERENCE, out, "--list", tmp("stars.csv")).stdout
        self.assertIn(f"matched by TARGETID: {N_STAR} stars; rows 200 and {N_STAR + 1}", said)
        # the figures of the table, from the list of stars
        with open(tmp("stars.csv"), newline="", encoding="utf-8") as f:
            stars = list(csv.DictReader(f))
        self.assertEqual(len(stars), N_STAR)
        a, b, wa, wb = (np.array([float(s[k]) for s in stars]) for k in (
            "VRAD_A", "VRAD_B", "RVS_WARN_A", "RVS_WARN_B"))
        clean = (wa == 0) & (wb == 0)
        line = re.search(r"\| VRAD \[km/s\] \| (\d+) \| (\S+) \| (\S+) \|", said)
        self.assertEqual(int(line[1]), clean.sum())
        low, middle, high = np.percentile((b - a)[clean], [15.865, 50, 84.135])
        self.assertEqual((float(line[2]), float(line[3])),
                         (round(middle, 3), round(0.5 * (high - low), 3)))
        # the forms of one result are the same stars with the same values
        said = self.compare(rvtab + "," + tmp("products/rvtab-" + os.path.basename(REAL)[:-3]),
                            out, "--all").stdout
        for name in ("VRAD [km/s]", "TEFF [K]", "FEH"):
            self.assertRegex(said, re.escape(f"| {name} | ") + r"\d+ \| 0\.0+ \| 0\.0+ \| 0\.000")
        self.assertIn("A lower by more than 1 in 0, B in 0", said)
        # what is no result has a line
        done = self.compare(out, data("sim/truth-dev.fits"), status=4)
        self.assertIn("neither a table RVTAB nor STARMILL", done.stderr)
