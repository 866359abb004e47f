# SPDX-License-Identifier: BSD-3-Clause
"""Check the NVTX ranges of a short run on the CPU, which tests/nvtx/injection.c records."""

import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from base import *

INJECTION = os.environ.get("MILL_NVTX_INJECTION", "")
if not os.path.isfile(INJECTION):
    skip("MILL_NVTX_INJECTION does not name the recording library")

N_STAR = 7
NAMES = set("read prepare upload guess round emulate likelihood polish errors download "
            "write".split())
# the range that each lies directly in; the others are outermost
INSIDE = {"emulate": "round", "likelihood": "round", "polish": "round", "errors": "round"}
THREAD_OF = {"read": "reader", "write": "I/O"}

made = {}


def setUpModule():
    made["library"], made["file"] = coarse_survey(N_STAR)


class Ranges(ProgramTest):
    def record(self, name, injection, *args):
        """The lines that a fit leaves; None where it left no file."""
        path = tmp(name + ".ranges")
        self.ends(0, "fit", "--library", made["library"], "--output", tmp(name + ".h5"),
                  "--backend", "cpu", *args, made["file"],
                  env={"STARMILL_NVTX_RECORD": path, "NVTX_INJECTION64_PATH": injection})
        return content(path, "r").splitlines() if os.path.exists(path) else None

    def test_names_nesting_and_domain(self):
        lines = self.record("ranges", INJECTION, "--threads", 2, "--slots", 3)
        self.assertIsNotNone(lines, "the tool was not loaded")
        self.assertEqual(lines[0], "domain starmill")
        threads, count = {}, collections.Counter()
        stacks, order = collections.defaultdict(list), collections.defaultdict(set)
        for line in lines[1:]:
            self.assertNotIn("problem", line)
            thread, what, *rest = line.split(" ", 2)
            stack = stacks[thread]
            if what == "name":
                threads[rest[0]] = thread
            elif what == "push":
                (name,) = rest
                count[name] += 1
                self.assertEqual(stack[-1] if stack else None, INSIDE.get(name), line)
                stack.append(name)
                order[thread].add(name)
            else:
                self.assertEqual(what, "pop")
                self.assertTrue(stack, f"a pop too many: {line}")
                stack.pop()
        self.assertEqual(set(count), NAMES)
        for thread, stack in stacks.items():
            self.assertEqual(stack, [], f"not ended on thread {thread}")
        self.assertEqual(set(threads), {"fit", "reader", "I/O"})
        for name, thread in THREAD_OF.items():
            for t, names in order.items():
                self.assertEqual(name in names, t == threads[thread], f"{name} on {t}")
        for thread in THREAD_OF.values():  # any thread that fits
            self.assertTrue(order[threads[thread]].isdisjoint({"upload", "download", "round"}))
        self.assertEqual(count["upload"], N_STAR)
        # of the stars that begin together
        self.assertEqual(count["prepare"], count["guess"])
        self.assertLessEqual(count["guess"], N_STAR)
        table = read(tmp("ranges.h5"))
        # An evaluation has a range for each of three arms.  A Jacobian may have the leading arm's
        # range only, but a star's last Jacobian has three.  A star's logic has two ranges `errors`.
        less = (3 * int(table["NEVAL"].sum()) + 2 * N_STAR - count["likelihood"] - count["errors"])
        self.assertEqual(less % 2, 0)
        self.assertLessEqual(less, 2 * int(table["NJAC"].sum()) - 2 * N_STAR)
        self.assertGreaterEqual(less, 0)

    def test_rows_are_the_same_with_and_without_a_tool(self):
        for name, injection in (("with", INJECTION), ("without", "")):
            lines = self.record(name, injection, "--threads", 1)
            self.assertEqual(lines is not None, name == "with")
        self.assertEqual(differing(read(tmp("with.h5")), read(tmp("without.h5"))), [])
