# SPDX-License-Identifier: MIT OR Apache-2.0
"""Valkey over RDMA: its own test, and clients whose values TCP reads, too."""

import csv
import os
import sys

from lab import (
    SERVER, Program, built, check, compared, digest, idle_and_busy, main, random_file, run, times_tcp,
)

HOME = built("valkey")
# One number for both, as users have it: TCP at all addresses, RDMA at one.
PORT = 6379
SIZES = [1, 4096, (1 << 20) - 1, (1 << 20) + 1, 24 << 20]
SECONDS = 2


def runtest():
    """As a user would, in a tree that is the user's; it compiles its client first."""
    run("server", f"cp --recursive {HOME} tree", iwarp=False)
    # It leaves by `os._exit`, which drops what Python has not written yet.
    env = {"PYTHONUNBUFFERED": "1"}
    program = Program("server", ["sh", "-c", "cd tree && exec ./runtest-rdma"], env=env)
    said = program.ends(100)
    check("Valkey Over RDMA test over" in said and "FAILED" not in said, "it did not pass")
    compared("its client gets what it has set, of 4 connections")


def server(*options):
    options = ["--protected-mode", "no", "--save", "", "--rdma-bind", SERVER, *options]
    program = Program("server", [
        f"{HOME}/src/valkey-server", "--port", PORT, "--rdma-port", PORT, *options])
    return program.says("Ready to accept connections rdma")


def of(transport):
    """The options that choose a transport."""
    return f"-h {SERVER} -p {PORT}" + (" --rdma" if transport == "rdma" else "")


def client(transport, command):
    line = f"{HOME}/src/valkey-cli {of(transport)} {command}"
    return run("client", ["sh", "-c", line], iwarp=transport == "rdma")


def values():
    """Set by one transport, got by the other; the values are octets that no text has."""
    for size in SIZES:
        for writer, reader in ("rdma", "tcp"), ("tcp", "rdma"):
            path = random_file(f"{os.getcwd()}/{writer}{size}", size)
            back = f"{path}.back"
            said = client(writer, f"-x SET {writer}{size} < {path}")
            check("OK" in said, f"SET of {size} by {writer}: {said}")
            # What the client prints ends with a line feed of its own.
            client(reader, f"GET {writer}{size} | head --bytes=-1 > {back}")
            check(digest(path) == digest(back), f"{size} octets by {writer}: {reader} has others")


def benchmark(transport):
    """Requests a second, by command."""
    line = (f"{HOME}/src/valkey-benchmark {of(transport)} -t set,get -c 16 -d 1024 "
            f"--duration {SECONDS} --csv")
    said = run("client", line, iwarp=transport == "rdma")
    rows = csv.reader(line for line in said.splitlines() if line.startswith('"'))
    rates = {row[0]: float(row[1]) for row in rows if row[0] in ("SET", "GET")}
    check(len(rates) == 2, "valkey-benchmark says no rate")
    return rates


def move(keys):
    line = f"{HOME}/tests/rdma/rdma-test -t 4 --maxkeys {keys} -h {SERVER} -p {PORT}"
    check("Valkey Over RDMA test [OK]" in run("client", line, 100), "rdma-test does not pass")
    values()
    compared("`rdma-test` gets what it has set; values of up to 24 MiB, "
             "set by one transport and got by the other")


def threads():
    """Threads that spin take each other's processors where there are few, over TCP as well: then a
    request may take milliseconds, and a speed says nothing."""
    this = server("--io-threads", 2)
    move(256)
    check(this.process.poll() is None, "the server has ended")


def store():
    this = server()
    move(8192)
    idle_and_busy(lambda: f"{times_tcp(benchmark, '{:,.0f}/s')}, 16 clients, 1 KiB")
    check(this.process.poll() is None, "the server has ended")


def scenario():
    {"runtest": runtest, "store": store, "threads": threads}[sys.argv[1]]()


main(scenario)
