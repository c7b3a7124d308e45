# SPDX-License-Identifier: MIT OR Apache-2.0
"""gloo: four processes, two on each host, reduce numbers and check every result; two processes
measure the speed between them."""

import os
import re
import subprocess
import sys
import tempfile

from lab import (
    DEVICE, SERVER, Program, check, compared, idle_and_busy, main, package, times_tcp,
)

RANKS = 4


def start(ranks, transport, *more):
    """The processes, which find each other by files of a folder that only they have."""
    store = tempfile.mkdtemp(dir=os.getcwd())
    os.chmod(store, 0o777)
    programs = [
        Program(("server", "client")[rank % 2],
                [f"{os.getcwd()}/gloo_ring", rank, ranks, store, transport, *more],
                name=f"rank-{rank}")
        for rank in range(ranks)
    ]
    for rank, program in enumerate(programs):
        program.says(f"rank {rank}: done", 90)
    return programs


def reduce():
    programs = start(RANKS, DEVICE)
    said = "".join(program.said() for program in programs)
    results = said.count("is right")
    check(results == 9 * RANKS, f"{results} results")
    compared("sums of 1 to 250,000 numbers, by three algorithms, 20 times in each process")


def rates(way):
    programs = start(2, DEVICE if way == "rdma" else SERVER, "speed")
    found = re.findall(r"rate of (\S+) KiB: (\S+)", programs[0].said())
    for program in programs:
        program.kill()
    return {f"{int(size):,} KiB": float(rate) for size, rate in found}


def scenario():
    package("libgloo0")
    subprocess.run(["g++", "-O1", "-std=c++14", "-o", "gloo_ring", "gloo_ring.cc", "-lgloo",
                    "-libverbs", "-pthread"], check=True)
    {"reduce": reduce, "speed": lambda: idle_and_busy(
        lambda: times_tcp(rates, "{:.0f}/s"))}[sys.argv[1]]()


main(scenario)
