# SPDX-License-Identifier: BSD-3-Clause
"""Every optimizer gives a star the same bits, with any other stars and any number of threads and ranks.

Stars of the reference survey among rows with one defect each (NaN, infinities, masked and
zero arms, one pixel of 1e9, noise, a changed sign), whose fits take the rarest paths.
"""

from common import *  # noqa: F403

STARS = list(range(2, 200, 39))
PATHO = "sim/coadd-dev-patho.fits.gz"
DEFECTS = list(range(17))
# simplexes are long: of the defects those that leave a meaningless fit
FEW_DEFECTS = ("z_all_nan", "inf_pixels", "b_negative_median", "pure_noise", "tiny_ivar_huge_pix")
# ranks (0: without mpirun), threads, slots, whether the input is reversed
SHARES = ((0, 4, 7, True), (3, 2, 1, True))


def inputs(defects, reverse):
    """Two files with their rows in order, or both the other way round."""
    order = slice(None, None, -1 if reverse else 1)
    name = "reversed" if reverse else "straight"
    return [cut(f"{name}-stars.fits", STARS[order]),
            cut(f"{name}-patho.fits", defects[order], name=PATHO)][order]


class SameBits(EndToEnd):
    def same_bits(self, optimizer, max_eval, defects=DEFECTS):
        files = {reverse: inputs(defects, reverse) for reverse in (False, True)}
        with open(tmp("short.yaml"), "w") as f:
            f.write(f"max_eval: {max_eval}\n")  # of hopeless rows, which would take thousands
        args = ("--optimizer", optimizer, "--config", tmp("short.yaml"))
        self.fit("reference.h5", "--overwrite", *args, "--threads", 1, *files[False])
        reference, catalog = read(self.path), self.catalog()
        self.assertEqual(len(np.unique(reference["TARGETID"])), len(reference["TARGETID"]))
        # all but the two that the selection leaves out, and all of them fitted
        self.assertIn(len(STARS) + len(defects) - len(reference["STATUS"]), (0, 2))
        self.assertTrue((reference["STATUS"] == FITTED).all())
        for ranks, threads, slots, reverse in SHARES:
            with self.subTest(ranks=ranks, threads=threads, slots=slots, reverse=reverse):
                self.fit("other.h5", "--overwrite", *args, "--threads", threads, "--slots", slots,
                         *files[reverse], ranks=ranks)
                other = read(self.path)
                if reverse:
                    # each file's rows, and the files, the other way round: so the table
                    np.testing.assert_array_equal(other["TARGETID"], reference["TARGETID"][::-1])
                    other = {name: values[::-1] for name, values in other.items()}
                self.assertEqual(differing(other, reference), [])
                self.assertEqual(differing(self.catalog(reverse), catalog), [])
        # one star in three, without those around it
        ids = list(reference["TARGETID"])
        kept = np.arange(len(ids)) % 3 == 1
        with open(tmp("ids.txt"), "w") as f:
            f.writelines(f"{ids[i]}\n" for i in np.flatnonzero(kept))
        self.fit("other.h5", "--overwrite", *args, "--threads", 2, "--targetid-file",
                 tmp("ids.txt"), *files[False], ranks=2)
        for name, values in read(self.path).items():
            self.assertEqual(values.tobytes(), reference[name][kept].tobytes(), name)
        for name, values in self.catalog().items():
            self.assertEqual(values.tobytes(), catalog[name][kept].tobytes(), name)

    def catalog(self, reverse=False):
        """/catalog of the last fit but where in the inputs a row was; as if not reversed."""
        return {name: values[::-1] if reverse else values
                for name, values in read(self.path, "catalog").items()
                if name not in ("FILE", "FITS_ROW", "FIRST_EXPOSURE", "IDENTIFIER", "CATALOG_CRC")}

    def test_levenberg_marquardt(self):
        self.same_bits("levenberg-marquardt", 100)  # of others the worst takes 12

    def test_hybrid(self):
        self.same_bits("hybrid", 100)

    def test_nelder_mead(self):
        with pyfits.open(data("sim/truth-dev-patho.fits")) as hdus:
            kinds = [str(kind).strip() for kind in hdus[1].data["KIND"]]
        self.same_bits("nelder-mead", 300, [kinds.index(kind) for kind in FEW_DEFECTS])
