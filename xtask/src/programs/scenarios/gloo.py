# SPDX-License-Identifier: MIT OR Apache-2.0
"""gloo: four processes, two on each host, reduce numbers and check every result."""

import os
import subprocess

from lab import DEVICE, Program, check, compared, main, package

RANKS = 4


def scenario():
    package("libgloo0")
    os.mkdir("store")
    os.chmod("store", 0o777)
    subprocess.run(["g++", "-O1", "-std=c++14", "-o", "gloo_ring", "gloo_ring.cc", "-lgloo",
                    "-libverbs", "-pthread"], check=True)
    programs = [
        Program(("server", "client")[rank % 2],
                [f"{os.getcwd()}/gloo_ring", rank, RANKS, f"{os.getcwd()}/store", DEVICE],
                name=f"rank-{rank}")
        for rank in range(RANKS)
    ]
    for rank, program in enumerate(programs):
        program.says(f"rank {rank}: done", 90)
    said = "".join(program.said() for program in programs)
    results = said.count("is right")
    check(results == 9 * RANKS, f"{results} results")
    compared("sums of 1 to 250,000 numbers, by three algorithms, 20 times in each process")


main(scenario)
