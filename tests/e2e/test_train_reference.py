# SPDX-License-Identifier: BSD-3-Clause
"""starmill library train against NumPy: losses of ten epochs (tests/reference/train_losses.py)."""

import csv

from base import *  # noqa: F403
import train_losses as tool


class TrainReferenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.grid = tmp("grid.h5")
        tool.make_grid(cls.grid)
        cls.cases = [(case, np.array(tool.train(tool.make_problem(cls.grid, tool.options_of(case)),
                                                tool.options_of(case)))) for case in tool.CASES]

    def losses(self, options, threads=2):
        """[[loss, loss of models left out]] of the epochs by starmill."""
        run("library", "train", "--overwrite", "--threads", threads, "--output", tmp("lib.h5"),
            *tool.words_for_starmill(tool.options_of(options)), self.grid)
        with open(tmp("lib.h5.losses.csv"), newline="", encoding="ascii") as file:
            return np.array([[float(row["loss"]), float(row["loss_left_out"])]
                             for row in csv.DictReader(file)])

    def test_losses_are_those_of_numpy(self):
        for case, expected in self.cases:
            with self.subTest(case):
                found = self.losses(case)
                self.assertEqual(found.shape, (10, 2))
                off = np.abs(found / expected - 1)
                print(case, "differs from NumPy by", np.nanmax(off))
                np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
                # float32 against float64 leaves 1e-6; L1's slope jumps where a residual changes its
                # sign, which leaves 1e-4
                self.assertLess(np.nanmax(off), 1e-2 if "l1" in case.values() else 1e-5)
                self.assertLess(expected[-1, 0], 0.9 * expected[0, 0])  # something was learned

    def test_another_rate_is_another_curve(self):
        """What is compared sees a change of a setting by 2 %."""
        case, expected = self.cases[0]
        found = self.losses({**case, "rate": 2.04e-3})
        self.assertGreater(np.abs(found / expected - 1).max(), 1e-3)

    def test_random_numbers(self):
        """Random123's known answers for counter and key 0; orders hold every model once."""
        self.assertEqual([int(x) for x in tool.words(0, 0, "\0\0\0\0", 4)],
                         [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])
        order, n_train = tool.split(50, 0.3, 4)
        self.assertEqual((sorted(order), n_train), (list(range(50)), 35))
        self.assertEqual(sorted(tool.shuffled(50, 4, 1, "shuf")), list(range(50)))
