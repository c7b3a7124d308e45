#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""SPDK's NVMe over Fabrics by RDMA beside SPDK's own TCP: one target in memory, one initiator.

    interop/spdk.py FOLDER ADDRESS

FOLDER is a built tree (docs/suites.md), ADDRESS one of this host's that is not a loopback address:
an identifier that is bound to one of those has no device, which SPDK refuses. IWARP names the command (default: target/release/iwarp).
Needs two processors: each end polls on its own. Prints the medians of three rounds, alone, and with
a busy loop for each processor beside.
"""

import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
FOLDER, ADDRESS = os.path.realpath(sys.argv[1]), sys.argv[2]
IWARP = os.path.realpath(os.environ.get("IWARP", f"{HERE}/../target/release/iwarp"))
# The lab of `cargo xtask programs` tells a scenario this; here there is one host, and no lab.
os.environ |= {"PLACE": "loopback", "SERVER": ADDRESS, "CLIENT": ADDRESS,
               "DEVICE": "roce0", "ON_SERVER": "", "ON_CLIENT": "", "IWARP": f"{IWARP} run --sysfs"}
sys.path.insert(0, f"{HERE}/../xtask/src/programs/scenarios")
sys.dont_write_bytecode = True

from lab import SERVER, Program, check, idle_and_busy, main, run, times_tcp  # noqa: E402

LIBRARIES = {"LD_LIBRARY_PATH": f"{FOLDER}/build/lib"}
DISK = "nqn.2026-11.io.spdk:disk"
PORTS = {"rdma": 4420, "tcp": 4421}
# Words for a run, its bytes, and its kind.
RUNS = [(f"{kind}, {size >> 10} KiB", size, f"rand{kind}")
        for size in (4 << 10, 128 << 10) for kind in ("read", "write")]


def target():
    """Serves one disk by both transports."""
    this = Program("server", f"{FOLDER}/build/bin/nvmf_tgt --no-huge -s 1024 -m 1 --no-pci "
                   f"-r {os.getcwd()}/rpc", env=LIBRARIES)
    this.until(lambda: os.path.exists("rpc"), "has a socket for commands")

    def command(words):
        run("server", f"{FOLDER}/scripts/rpc.py -s {os.getcwd()}/rpc {words}", iwarp=False)

    command("bdev_malloc_create -b Disk 64 4096")
    command(f"nvmf_create_subsystem {DISK} -a")
    command(f"nvmf_subsystem_add_ns {DISK} Disk")
    for way, port in PORTS.items():
        command(f"nvmf_create_transport -t {way.upper()}")
        command(f"nvmf_subsystem_add_listener {DISK} -t {way} -a {SERVER} -s {port}")


def rates(way):
    where = (f"trtype:{way.upper()} adrfam:IPv4 traddr:{SERVER} trsvcid:{PORTS[way]} "
             f"subnqn:{DISK}")
    found = {}
    for what, size, kind in RUNS:
        said = run("client", [f"{FOLDER}/build/bin/spdk_nvme_perf", "--no-huge", "-s", 512,
                              "-c", 2, "-q", 8, "-o", size, "-w", kind, "-t", 2, "-r", where],
                   env=LIBRARIES)
        total = re.search(r"^Total +: +([0-9.]+)", said, re.M)
        check(total, "spdk_nvme_perf says no total")
        found[what] = float(total[1])
    return found


def scenario():
    target()
    idle_and_busy(lambda: times_tcp(rates, "{:,.0f}/s"))


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    main(scenario)
