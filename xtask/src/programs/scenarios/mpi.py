# SPDX-License-Identifier: MIT OR Apache-2.0
"""MPI: four processes, two on each host, send blocks to each other and check what they get; two
processes measure the speed between them."""

import os
import re
import subprocess
import sys

from lab import (
    CLIENT, DEVICE, PLACE, SERVER, WHEELS, Program, check, compared, idle_and_busy, main, package,
    times_tcp,
)

RANKS = 4
PREFIX = f"{WHEELS}/local"
# TCP is for the first messages, with which UCX sets up the others; left to itself it sets them up by
# datagrams, and processes of one host share memory beside.
PLAIN = {"UCX_LOG_LEVEL": "info", "UCX_PROTO_INFO": "y"}
UCX = {"UCX_TLS": "rc_verbs,tcp,self", **PLAIN}
OFI = {"FI_PROVIDER": "verbs;ofi_rxm", "FI_LOG_LEVEL": "info"}
# Else the processes of a host share memory and leave the device alone.
MPICH = {"MPIR_CVAR_NOLOCAL": "1"}
WAYS = {
    "debian": ("mpich", {**MPICH, **PLAIN}, []),
    "debian-ib": ("mpich", {**MPICH, **PLAIN, "UCX_TLS": "ib,self"}, []),
    "mpich-ucx": (None, {**MPICH, **UCX, "MPIR_CVAR_CH4_NETMOD": "ucx"}, []),
    "mpich-ofi": (None, {**MPICH, **OFI, "MPIR_CVAR_CH4_NETMOD": "ofi"}, []),
    "open-ucx": (None, UCX, ["--mca", "pml", "ucx"]),
    "open-ofi": (None, {"FI_LOG_LEVEL": "info"}, ["--mca", "pml", "cm", "--mca", "mtl", "ofi",
                            "--mca", "opal_common_ofi_provider_include", "verbs;ofi_rxm"]),
}
# Two processes by the device, and by what the same MPI has for TCP.
SPEEDS = {
    "open-speed": {"rdma": WAYS["open-ucx"][1:],
                   "tcp": (UCX, ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"])},
    "mpich-speed": {"rdma": WAYS["mpich-ucx"][1:],
                    "tcp": ({**WAYS["mpich-ucx"][1], "UCX_TLS": "tcp,self"}, [])},
}


def tools(name):
    """The compiler and the starter: Debian's, or those of a wheel."""
    if name.startswith("debian"):
        return "/usr/bin/mpicc.mpich", "/usr/bin/mpiexec.hydra"
    return f"{PREFIX}/bin/mpicc", f"{PREFIX}/bin/mpiexec"


def start(name, env, options):
    """The processes' starter, which says how it ends for all of them."""
    starter, program = tools(name)[1], f"{os.getcwd()}/alltoall"
    if name.startswith("open"):
        line = [starter, "--oversubscribe", "-n", RANKS, *options, program]
        return Program("server", line, env=env)
    if PLACE == "loopback":
        return Program("server", [starter, "-n", RANKS, program], env=env)
    # It says what is to be run on each host, as there is no ssh here.
    hosts = ["-hosts", f"{SERVER},{CLIENT}", "-ppn", RANKS // 2, "-iface", "eth0"]
    line = [starter, "-launcher", "manual", *hosts, "-n", RANKS, program]
    first = Program("server", line, env=env)
    first.says("HYDRA_LAUNCH_END")
    for side, words in zip(("server", "client"), re.findall("HYDRA_LAUNCH: (.*)", first.said())):
        Program(side, words, name=f"proxy-{side}", env=env)
    return first


def built(name, program):
    subprocess.run([tools(name)[0], "-O1", "-o", program, f"{program}.c"], check=True)
    return {"HOME": os.getcwd(), "TMPDIR": os.getcwd()}


def speed(name):
    ends = ["-n", 2, f"{os.getcwd()}/there_and_back"]
    general = ["--oversubscribe"] if name.startswith("open") else []
    compiled = built(name, "there_and_back")

    def rate(way):
        env, options = SPEEDS[name][way]
        line = [tools(name)[1], *general, *options, *ends]
        said = Program("server", line, env={**compiled, **env}).ends(90)
        check((f"rc_verbs/{DEVICE}" in said) == (way == "rdma"), f"it does not go by {way}")
        return {"1 MiB there and back": float(re.search(r"rate: (\d+)", said)[1])}

    return times_tcp(rate, "{:.0f} MiB/s")


def scenario():
    name = sys.argv[1]
    if name in SPEEDS:
        return idle_and_busy(lambda: speed(name))
    debian, env, options = WAYS[name]
    ucx = "UCX_PROTO_INFO" in env
    if debian:
        package(debian)
    env = {**built(name, "alltoall"), **env}
    said = start(name, env, options).ends(90)
    right = re.search(r"(\d+) ranks, (\d+) MiB: all is right", said)
    check(right and int(right[1]) == RANKS, "the processes do not say that all is right")
    if ucx:
        check(f"rc_verbs/{DEVICE}" in said, "UCX does not say that it moves data by rc_verbs")
    else:
        check(f"domain: {DEVICE}" in said, "libfabric does not say that it takes the device")
    compared(f"{right[2]} MiB by `MPI_Alltoall` and `MPI_Put`, at {RANKS} processes")


main(scenario)
