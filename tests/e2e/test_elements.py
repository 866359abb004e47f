# SPDX-License-Identifier: BSD-3-Clause
"""Elements as labels: a library of twelve labels, pulls of simulated stars, flags, products."""

import dataclasses

from base import *  # noqa: F403
from scipy.linalg import block_diag
from starmill.templates import library_file
from starmill.templates.library_data import Hull, Label
from survey_stats import half_width

ELEMENTS = "CFE NFE NAFE MGFE SIFE CAFE TIFE NIFE".split()
N_STAR, LOW, HIGH = 250, -0.4, 0.6
NO_VALUE, EDGE = 1, 4


def with_elements(path):
    """Write the small library with eight more labels, each the strength of 60 lines in ln flux.
    Two hidden units x and -x carry a label to its lines: SiLU(x) - SiLU(-x) = x."""
    library, n, random = library_file.read(coarse_library()), len(ELEMENTS), np.random.default_rng(5)
    n_label = library.n_label
    labels = [Label(e.lower(), e, "dex", 0, 0.1, 0.3, LOW, HIGH, 0.1) for e in ELEMENTS]
    hulls = [Hull(np.array([n_label + i]), np.array([[1, -(HIGH - 0.1) / 0.3], [-1, (LOW - 0.1) / 0.3]]))
             for i in range(n)]
    pair, through = np.kron(np.eye(n), [[1], [-1]]), np.kron(np.eye(n), [[1, -1], [-1, 1]])
    arms = []
    for arm in library.arm:
        weight, bias, lines = arm.emulator.weight, arm.emulator.bias, np.zeros((n, arm.n_pix))
        for line in lines:
            for at in random.integers(0, arm.n_pix, 60):
                line -= 0.3 * np.exp(-0.5 * ((np.arange(arm.n_pix) - at) / 2) ** 2)
        more = [0.3 * pair, *[through] * (len(weight) - 2)]
        weight = [*map(block_diag, weight[:-1], more), np.hstack([weight[-1], lines.T @ pair.T])]
        shift = [0.1 * pair.sum(1), *[np.zeros(2 * n)] * (len(bias) - 2), []]
        arms.append(dataclasses.replace(arm, emulator=dataclasses.replace(
            arm.emulator, weight=[w.astype("f4") for w in weight],
            bias=[np.append(b, s).astype("f4") for b, s in zip(bias, shift)])))
    guess = np.hstack([library.guess_label, np.zeros((len(library.guess_label), n))])
    library_file.write(path, dataclasses.replace(
        library, label=library.label + labels, hull=library.hull + hulls, arm=arms, guess_label=guess))
    return path


class Elements(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.library = with_elements(tmp("elements.h5"))
        folder, cls.out = tmp("stars"), tmp("out.h5")
        run("simulate", "--output", folder, "--library", cls.library, "--stars", N_STAR, "--sn", "30,60",
            "--quiet")
        (cls.input,) = glob.glob(os.path.join(folder, "coadd*"))
        run("fit", "--library", cls.library, "--output", cls.out, cls.input)
        cls.row, cls.truth = read(cls.out), pyfits.getdata(os.path.join(folder, "truth.fits"))

    def test_values_are_right_and_errors_honest(self):
        for name in ELEMENTS:
            value, error, flag = (self.row[name + end] for end in ("", "_ERR", "_FLAG"))
            good = flag == 0
            self.assertGreater(good.sum(), 0.8 * N_STAR)
            pull = ((value - self.truth[name]) / error)[good]
            self.assertLess(abs(np.median(pull)), 0.33, name)
            self.assertLess(abs(half_width(pull) - 1), 0.05 + 4 * 0.96 / np.sqrt(len(pull)), name)

    def test_an_element_at_its_edge_does_not_spoil_its_star(self):
        at_edge = {}
        for name in ELEMENTS:
            at_edge[name] = self.row[name + "_FLAG"] & EDGE > 0
            beyond = np.abs(self.row[name] - (LOW + HIGH) / 2) > (HIGH - LOW) / 2 - 0.3e-3
            np.testing.assert_array_equal(at_edge[name], beyond & np.isfinite(self.row[name]))
        self.assertTrue((self.row["SUCCESS"][np.any(list(at_edge.values()), axis=0)] == 1).any())

    def test_two_stars_of_so_many_labels_are_refused_before_there_is_output(self):
        two = put("two.yaml", "binaries: true\n")
        for more in ["--plan"], [], ["--library", coarse_library()]:
            done = starmill("fit", "--library", self.library, *more, "--config", two, "--output", tmp("no.h5"), self.input)
            self.assertOneLine(done, self.library, "two stars of 12 labels", "binaries: false", status=2)
            self.assertFalse(os.path.exists(tmp("no.h5")))

    def test_a_row_of_another_library_has_no_value(self):
        """Elements fixed at LOW suit few stars, so the library without elements fits better."""
        far = put("far.yaml", "fix_param:\n" + "".join(
            f"  - {{param: {e.lower()}, value: {LOW}}}\n" for e in ELEMENTS))
        run("fit", "--config", far, "--library", self.library, "--library", coarse_library(), "--output",
            tmp("two.h5"), "--object", self.row["TARGETID"][0], self.input)
        row = read(tmp("two.h5"))
        self.assertEqual(row["LIBRARY"], 2)
        for name in ELEMENTS:
            self.assertTrue(np.isnan(row[name]).all() and row[name + "_FLAG"] == NO_VALUE)

    def test_products_have_all_labels(self):
        """rvspecfit's files, a table and posteriors, and their merged forms."""
        table, rvtab, post = tmp("table.fits"), tmp("rvtab"), tmp("post.h5")
        run("export", "--to", "fits", "--output", table, self.out)
        run("export", "--to", "rvtab", "--no-fibermap", "--output", rvtab, self.out)
        run("merge", "--output", tmp("merged.h5"), self.out)
        for values in (read(tmp("merged.h5")), pyfits.getdata(table, 1),
                       pyfits.getdata(glob.glob(rvtab + "/*")[0], 1)):
            for name in (e + end for e in ELEMENTS for end in ("", "_ERR", "_FLAG")):
                np.testing.assert_array_equal(values[name], self.row[name])
        for path in (table, glob.glob(rvtab + "/*")[0]):
            header = pyfits.getheader(path, 1)
            self.assertEqual([header[f"FLAG{i:02d}"] for i in range(4)],
                             ["NO_VALUE", "WEAK", "EDGE", "POOR_LINES"])
        star = self.row["TARGETID"][0]
        run("sample", "--fit", self.out, "--output", post, "--object", star, self.input)
        self.assertEqual(read(post)["POST_MEAN"].shape, (1, 14))
        self.assertIn("POOR_LINES", h5py.File(post)["fits/MGFE_FLAG"].attrs["NAMES"].astype(str))

    def test_results_are_compared_by_elements(self):
        """Elements that either result flags are left out, unless --all is given; --list has all."""
        other, weak = shutil.copy(self.out, tmp("other.h5")), np.arange(N_STAR) % 10 == 0

        def edit(fits, _):
            fits["MGFE"] += 0.4 * fits["MGFE_ERR"]
            fits["MGFE_FLAG"][weak] |= 2
        edited(other, edit)
        good, whole = self.row["RVS_WARN"] == 0, np.isfinite(self.row["VRAD"] + self.row["MGFE"])
        for use, options in ((good & ~weak & (self.row["MGFE_FLAG"] == 0), ["--list", tmp("list.csv")]),
                             (whole, ["--all"])):
            said = run("compare", self.out, other, *options).stdout
            self.assertRegex(said, rf"\| MGFE \| {use.sum()} \| 0\.\d+ \| .* \| 0\.400 \| 0\.000 \| 0 \|\n")
            self.assertRegex(said, r"\| NIFE_ERR \| \d+ \| 0\.000 \| 0\.000 \|")
            self.assertRegex(said, r"\| MGFE \| 0\.4 \|")  # among the stars that differ most
        head, line = content(tmp("list.csv"), "r").splitlines()[:2]
        star = dict(zip(head.split(","), line.split(",")))
        self.assertEqual(int(star["MGFE_FLAG_B"]), int(star["MGFE_FLAG_A"]) | 2 * weak[0])

    def test_a_report_tells_flagged_abundances(self):
        path = shutil.copy(self.out, tmp("told.h5"))
        edited(path, lambda fits, _: fits["NFE_FLAG"].fill(6))
        with without_pictures():
            run("report", "--no-spectra", path)
        page = content(path + ".html", "r")
        cards = re.findall(r'<span class="(p[ a-z]*)">\[([NC])/Fe\] [^<]* dex([^<]*)</span>', page)
        self.assertIn(("p soft", "N", " WEAK EDGE"), cards)
        self.assertNotIn(("p", "N", ""), cards)
        self.assertIn(("p", "C", ""), cards)
