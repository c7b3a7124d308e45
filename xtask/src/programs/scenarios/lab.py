# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the scenarios share: programs on the two hosts of a lane, and what is said of them.

A scenario is a Python script that xtask starts in a directory of its own. It exits with 0 when
everything was as it should be. Of what it prints, xtask keeps lines that begin with `version: `,
`compared: ` and `beside: ` (the speed beside the program's own way over TCP).
"""

import hashlib
import mmap
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time

PLACE = os.environ["PLACE"]
SERVER, CLIENT = os.environ["SERVER"], os.environ["CLIENT"]
DEVICE = os.environ["DEVICE"]
WHEELS = os.environ.get("WHEELS", "")
ON = {side: shlex.split(os.environ[f"ON_{side.upper()}"]) for side in ("server", "client")}
IWARP = shlex.split(os.environ["IWARP"])
LOOK = 0.01

running = []


class Failure(Exception):
    """What went wrong, for the last line."""


class Program:
    """A program on one of the hosts, as an ordinary user, with what it says in a file."""

    def __init__(self, side, command, name=None, iwarp=True, env=None):
        words = shlex.split(command) if isinstance(command, str) else list(map(str, command))
        self.name = name or os.path.basename(words[0])
        self.log = f"{len(running):02}-{self.name}.txt"
        settings = ["env"] + [f"{key}={value}" for key, value in (env or {}).items()]
        line = ON[side] + settings + (IWARP if iwarp else []) + words
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        running.append(self)

    def said(self):
        with open(self.log, "rb") as log:
            return log.read().decode(errors="replace")

    def until(self, condition, what, seconds=30):
        """Waits until something is so; the program must not end before."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                raise Failure(f"{self.name} ends before {what}: status {self.process.returncode}")
            if time.monotonic() > deadline:
                raise Failure(f"{self.name}: not within {seconds} s: {what}")
            time.sleep(LOOK)
        return self

    def listens(self, port, seconds=30):
        return self.until(lambda: port in self.ports(), f"listens at port {port}", seconds)

    def says(self, text, seconds=30):
        return self.until(lambda: text in self.said(), f"says '{text}'", seconds)

    def ports(self):
        """TCP ports at which somebody listens on the program's host (proc_net_tcp.txt)."""
        found = set()
        try:
            # At first the process is still on the host of this script.
            if os.readlink(f"/proc/{self.process.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                return found
        except OSError:
            # It has ended.
            return found
        for table in "tcp", "tcp6":
            try:
                with open(f"/proc/{self.process.pid}/net/{table}") as lines:
                    rows = [line.split() for line in lines][1:]
            except OSError:
                continue
            found |= {int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A"}
        return found

    def ends(self, seconds=60, status=0):
        """Waits for the end; its status must be `status`, unless that is None."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} does not end in {seconds} s") from None
        if status is not None and code != status:
            raise Failure(f"{self.name} ends with status {code}")
        return self.said()

    def kill(self, number=signal.SIGKILL):
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
        self.process.wait()


def run(side, command, seconds=60, status=0, **more):
    """Runs a program to its end and returns what it said."""
    return Program(side, command, **more).ends(seconds, status)


def part(side, *arguments, env=None, **more):
    """A part of the scenario: the script with other arguments, as a program of its own.

    It is told where it is by the variables of this process, as all programs are."""
    env = {"PYTHONPATH": WHEELS, **(env or {})}
    return Program(side, ["/usr/bin/python3", "scenario.py", *arguments], env=env, **more)


def check(condition, what):
    if not condition:
        raise Failure(what)


def compared(text):
    print(f"compared: {text}", flush=True)


def beside(text):
    print(f"beside: {text}", flush=True)


def times_tcp(measure, unit, rounds=3):
    """How many times as fast a program is by RDMA as by its own TCP, in words.

    `measure` is told which of the two, and returns rates by what is done. The two take turns, and
    medians count, so that a machine that is slow for a while slows both."""
    found = {"rdma": [], "tcp": []}
    for way in list(found) * rounds:
        found[way].append(measure(way))
    rdma, tcp = ({what: statistics.median(one[what] for one in runs) for what in runs[0]}
                 for runs in found.values())
    return ", ".join(f"{rdma[what] / tcp[what]:.2f} x {what} ({unit.format(rdma[what])})"
                     for what in rdma)


def idle_and_busy(measure):
    """Says what `measure` returns: alone, and with a busy loop for each processor beside."""
    idle = measure()
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
             for _ in range(os.cpu_count())]
    try:
        busy = measure()
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    beside(f"{idle}; busy: {busy}")


def version(text):
    print(f"version: {text}", flush=True)


def package(name):
    """Says which version of a Debian package is installed."""
    query = ["dpkg-query", "--show", "--showformat=${Version}", name]
    version(f"{name} {subprocess.run(query, capture_output=True, text=True, check=True).stdout}")


def built(name):
    """The folder of what was built of a source package of Debian's; says its version."""
    folder = f"{os.environ['SOURCES']}/{name}"
    with open(f"{folder}/version") as file:
        version(file.read())
    return folder


def touch(size):
    """Uses so much memory and gives it back, before a program is measured that needs it.

    In a virtual machine, pages that were free for some seconds may have to come from its host again:
    2 to 7 ms for each MiB, many times what moving it takes. The program that runs second gets those
    that the first has left, and seems the faster one."""
    with mmap.mmap(-1, size) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def random_file(path, size):
    """A file whose content nobody could have by chance; every user may read and write it."""
    with open(path, "wb") as file:
        for _ in range(0, size, 1 << 20):
            file.write(os.urandom(min(size, 1 << 20)))
    os.chmod(path, 0o666)
    return path


def main(scenario):
    """Runs a scenario; on failure, shows the end of what each program said."""
    try:
        scenario()
    except (Failure, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        for program in running:
            lines = [line for line in program.said().splitlines() if line.strip()]
            for line in lines[-12:]:
                print(f"    {program.name}: {line[:300]}")
        print(f"failure: {error}" if isinstance(error, Failure) else f"failure: {error!r}")
        sys.exit(1)
    finally:
        for program in running:
            program.kill()
