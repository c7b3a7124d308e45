# SPDX-License-Identifier: MIT OR Apache-2.0
"""UCX's own measure by all that the device has, beside UCX's TCP."""

import re

from lab import DEVICE, SERVER, Program, check, idle_and_busy, main, package, run, times_tcp

PORT = 13337
WAYS = {"rdma": "ib,self", "tcp": "tcp,self"}
# Words for a test, its name, bytes, and messages.
TESTS = [
    ("there and back, 4 KiB", "tag_lat", 4 << 10, 2_000),
    ("there and back, 1 MiB", "tag_lat", 1 << 20, 100),
    ("put, 4 KiB", "ucp_put_bw", 4 << 10, 10_000),
    ("put, 1 MiB", "ucp_put_bw", 1 << 20, 200),
]


def rates(way):
    """Messages a second: on the way there and back each is one."""
    env = {"UCX_TLS": WAYS[way], "UCX_LOG_LEVEL": "info"}
    found = {}
    for what, test, size, count in TESTS:
        server = Program("server", "ucx_perftest", env=env).listens(PORT)
        said = run("client", f"ucx_perftest {SERVER} -t {test} -s {size} -n {count} -w 100",
                   60, env=env)
        server.ends(20)
        check((f"rc_verbs/{DEVICE}" in said) == (way == "rdma"), f"UCX does not go by {way}")
        final = re.search(r"^Final: +(.*)", said, re.M)
        check(final, "ucx_perftest says no result")
        # Messages; µs of the typical one, on average lately, on average; MB/s; messages a second.
        found[what] = float(final[1].split()[-1])
    return found


def scenario():
    package("ucx-utils")
    idle_and_busy(lambda: times_tcp(rates, "{:,.0f}/s"))


main(scenario)
