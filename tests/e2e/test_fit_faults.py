# SPDX-License-Identifier: BSD-3-Clause
"""Faults of disks, files and processes: each ends with its status and message, and none hangs."""

from common import *  # noqa: F403
import fault_cases

# every case with one number of ranks; campaigns/kill faults has the others
RANKS = (0, 2)


class Faults(EndToEnd):
    @classmethod
    def setUpClass(cls):
        if not fault_cases.SHIM:
            raise unittest.SkipTest("the variable FAULT_SHIM does not name the library of faults")
        cls.site = fault_cases.Site(library(), cut("first.fits", range(4)),
                                    cut("second.fits", range(100, 104)), TMP)


def add(number, name):
    def test(self):
        try:
            fault_cases.CASES[name](self.site, RANKS[number % len(RANKS)])
        except fault_cases.Failed as failure:
            self.fail(str(failure))
    setattr(Faults, "test_" + name, test)


for _number, _name in enumerate(fault_cases.CASES):
    add(_number, _name)
