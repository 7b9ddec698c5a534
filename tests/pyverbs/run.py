"""Runs some modules of rdma-core's own tests, and prints the result of each test as a line of JSON.

usage: run.py FOLDER DEVICE FAMILY SECONDS MODULE...

FOLDER has the tests of Debian's package rdma-core, unpacked. FAMILY is that of the address that they use, ipv4 or ipv6:
where the device has none, nothing runs and nothing is printed. A test that takes longer than SECONDS ends the process,
with a traceback of where it waits: pyverbs calls cannot be interrupted otherwise.
"""

import faulthandler
import importlib
import json
import sys
import unittest

from pyverbs.device import Context

folder, device, family, seconds, *modules = sys.argv[1:]
seconds = float(seconds)


class Lines(unittest.TestResult):
    """Tells each outcome at once, so that those before a crash are known."""

    def startTest(self, test):
        super().startTest(test)
        faulthandler.dump_traceback_later(seconds, exit=True)
        self.tell(test, "start")

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def tell(self, test, outcome, reason=""):
        # What a subtest is of.
        test = getattr(test, "test_case", test)
        line = {"test": test.id().removeprefix("tests."), "outcome": outcome, "reason": reason}
        print(json.dumps(line), flush=True)

    def addSuccess(self, test):
        self.tell(test, "pass")

    def addSkip(self, test, reason):
        self.tell(test, "skip", reason)

    def addFailure(self, test, err):
        self.tell(test, "fail", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addFailure(subtest, err)


def gid_index():
    """The first of the device's GIDs that is of the family."""
    with Context(name=device) as context:
        length = context.query_port(1).gid_tbl_len
        for index in range(length):
            groups = str(context.query_gid(1, index)).split(":")
            is_empty = set(groups) == {"0000"}
            is_ipv4 = groups[:6] == ["0000"] * 5 + ["ffff"]
            if not is_empty and is_ipv4 == (family == "ipv4"):
                return index
    sys.exit(0)


# The suite's own parser of arguments is asked for the device by each test.
sys.argv[1:] = ["--dev", device, "--port", "1", "--gid", str(gid_index())]
sys.path.insert(0, folder + "/tests")
import args_parser

args_parser.parser.parse_args()
# As the package `tests`, which is how its modules name each other. Its __init__ would load all of them.
package = type(sys)("tests")
package.__path__ = [folder + "/tests"]
sys.modules["tests"] = package
# Its modules import each other in circles, which end well from here.
importlib.import_module("tests.utils")
loader = unittest.TestLoader()
suite = unittest.TestSuite(
    loader.loadTestsFromModule(importlib.import_module("tests." + module)) for module in modules
)
suite.run(Lines())
