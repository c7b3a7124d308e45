# SPDX-License-Identifier: MIT OR Apache-2.0
"""Performance Co-Pilot's agent for InfiniBand, by itself: its log says which ports it watches."""

import os

from lab import DEVICE, Program, check, compared, main, package

AGENT = "/usr/lib/pcp/pmdas/infiniband/pmdaib"


def scenario():
    package("pcp-pmda-infiniband")
    log = f"{os.getcwd()}/agent.log"
    # It speaks with its collector by standard input and output, and ends with these.
    Program("server", ["sh", "-c", f"exec {AGENT} -l {log} >/dev/null"]).ends(20, None)
    with open(log) as file:
        said = file.read()
    print(said)
    check(f"'{DEVICE}'" in said or f"{DEVICE}:1" in said, "it does not find the device")
    check("No IB ports found to monitor" not in said, "it cannot open the port for MADs")
    compared("the ports that it watches")


main(scenario)
