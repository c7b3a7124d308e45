# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the tests of rdma-core's Python bindings and writes a line for each into a file.

Called in the folder that has them as `tests`: python3 run.py RESULTS EXCLUDED [name...]
EXCLUDED is a list that commas separate.
"""

import os
import sys
import unittest
from importlib.machinery import SourceFileLoader


class Lines(unittest.TextTestResult):
    """A result that is written down as soon as it is known."""

    def _write(self, outcome, test, reason=""):
        reason = " ".join(str(reason).split())
        results.write(f"{outcome}\t{test.id()}\t{reason}\n")
        results.flush()

    def startTest(self, test):
        self._write("start", test)
        super().startTest(test)

    def addSuccess(self, test):
        self._write("passed", test)
        super().addSuccess(test)

    def addSkip(self, test, reason):
        self._write("skipped", test, reason)
        super().addSkip(test, reason)

    def addFailure(self, test, error):
        self._write("failed", test, error[1])
        super().addFailure(test, error)

    def addError(self, test, error):
        self._write("failed", test, f"{error[0].__name__}: {error[1]}")
        super().addError(test, error)


def without(suite, excluded):
    """The suite without the tests whose name ends in one of these."""
    rest = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            rest.addTest(without(test, excluded))
        elif not any(test.id().endswith(name) for name in excluded):
            rest.addTest(test)
    return rest


results = open(sys.argv[1], "w")
excluded = [name for name in sys.argv[2].split(",") if name]
names = sys.argv[3:]
sys.argv[1:] = []
here = os.path.join(os.getcwd(), "tests")
sys.path.insert(0, here)
from args_parser import parser  # noqa: E402

tests = SourceFileLoader("tests", os.path.join(here, "__init__.py")).load_module()
parser.parse_args()
loader = unittest.defaultTestLoader
suite = loader.loadTestsFromNames(names, tests) if names else loader.loadTestsFromModule(tests)
suite = without(suite, excluded)
run = unittest.TextTestRunner(verbosity=2, resultclass=Lines).run(suite)
sys.exit(0 if run.wasSuccessful() else 1)
