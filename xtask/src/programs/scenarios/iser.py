# SPDX-License-Identifier: MIT OR Apache-2.0
"""libiscsi and tgtd speak iSCSI over RDMA (iSER), beside iSCSI over TCP to the same disk."""

import ctypes
import os
import re
import sys
import time

from lab import (
    SERVER, Program, beside, check, compared, digest, main, package, part, random_file, run,
)

MIB = 1 << 20
TARGET = "iqn.2026-11.test:disk"
TCP_PORT, ISER_PORT = 3260, 3261
# By name too: addresses alone are not always enough for `tgtd` over iSER.
LIBISCSI = "iqn.2007-10.com.github:sahlberg:libiscsi"
INITIATORS = ["iqn.2026-11.test:ann", f"{LIBISCSI}:iscsi-test", f"{LIBISCSI}:iscsi-test-2"]
# Tests that pass over TCP only, by their cause in libiscsi 1.19.0 or tgt 1.0.85.
KNOWN = {
    # Whoever has more commands under way follows a null pointer.
    "libiscsi has 256 descriptors (`NUM_MRS`)": ["Read10.Async", "Write10.Async"],
    "libiscsi does not tell how much less than was asked for has come": [
        "Inquiry.AllocLength", "Inquiry.BlockLimits", "ModeSense6.Residuals"],
    # Any block may be hit, by the test after as well.
    "libiscsi damages its heap: what it allocates for a short answer (`lib/iser.c:540`) is freed "
    "into the pool of larger blocks (334)": ["GetLBAStatus.UnmapSingle", "PrinReadKeys.Simple"],
    # `tgtd` waits for that number, as it should; the next command has no answer.
    "libiscsi counts a command of more than 256 KiB that it then does not send "
    "(`lib/iser.c:652`)": ["ExtendedCopy."],
    "libiscsi takes a second without an answer for an error (`lib/sync.c:65`, `lib/iser.c:105`); "
    "tgtd writes the whole disk meanwhile, block by block (`usr/bs_rdwr.c:222`)": [
        "WriteSame10.ZeroBlocks", "WriteSame16.ZeroBlocks"],
    "tgtd keeps reservations of a connection that has ended": ["Reserve6."],
}
DAEMONS = []
SIZE = 64 * MIB
CHUNK = 256 << 10
BLOCK = 512


def disk(size):
    """Starts tgtd with one target on both transports; returns the file behind it."""
    path = random_file(f"{os.getcwd()}/disk.img", size)
    env = {"TGT_IPC_SOCKET": f"{os.getcwd()}/tgtd"}
    tgtd = Program(
        "server",
        f"tgtd -f -C 0 --iscsi portal=0.0.0.0:{TCP_PORT} --iser port={ISER_PORT}",
        env=env,
    )
    tgtd.listens(TCP_PORT).listens(ISER_PORT)
    DAEMONS.append(tgtd)

    def admin(command):
        return run("server", f"tgtadm -C 0 {command}", 20, iwarp=False, env=env)

    # One target for each transport, both with the same file.
    for number, lld in (1, "iscsi"), (2, "iser"):
        admin(f"--lld {lld} --mode target --op new --tid {number} -T {TARGET}-{lld}")
        admin(f"--lld {lld} --mode logicalunit --op new --tid {number} --lun 1 -b {path}")
        admin(f"--lld {lld} --mode target --op bind --tid {number} -I ALL")
        for initiator in INITIATORS:
            admin(f"--lld {lld} --mode target --op bind --tid {number} -Q {initiator}")
    return path


def url(transport):
    port = {"iscsi": TCP_PORT, "iser": ISER_PORT}[transport]
    return f"{transport}://{SERVER}:{port}/{TARGET}-{transport}/1"


class Session:
    """libiscsi, called from Python."""

    def __init__(self, transport):
        port = {"iscsi": TCP_PORT, "iser": ISER_PORT}[transport]
        self.library = ctypes.CDLL("libiscsi.so.7")
        for name in "iscsi_create_context", "iscsi_read16_iov_sync", "iscsi_write16_sync":
            getattr(self.library, name).restype = ctypes.c_void_p
        self.library.iscsi_get_error.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(self.library.iscsi_create_context(b"iqn.2026-11.test:ann"))
        # That chooses the transport, too.
        self.library.iscsi_parse_full_url.restype = ctypes.c_void_p
        check(self.library.iscsi_parse_full_url(self.context, url(transport).encode()), "URL")
        self.call("iscsi_set_header_digest", 1)
        self.call("iscsi_set_targetname", f"{TARGET}-{transport}".encode())
        self.call("iscsi_set_session_type", 2)
        self.call("iscsi_full_connect_sync", f"{SERVER}:{port}".encode(), 1)

    def call(self, name, *arguments):
        status = getattr(self.library, name)(self.context, *arguments)
        if status:
            raise OSError(f"{name}: {self.error()}")

    def error(self):
        return self.library.iscsi_get_error(self.context).decode()

    def done(self, task):
        """A command's status, SCSI's GOOD."""
        check(task, f"no answer: {self.error()}")
        sense = ctypes.create_string_buffer(64)
        status = self.library.scsi_task_get_status(ctypes.c_void_p(task), sense)
        check(status == 0, f"status {status}: {self.error()}")
        self.library.scsi_free_scsi_task(ctypes.c_void_p(task))

    def write(self, offset, data):
        self.done(self.library.iscsi_write16_sync(
            self.context, 1, ctypes.c_uint64(offset // BLOCK), data, len(data), BLOCK,
            0, 0, 0, 0, 0))

    def read(self, offset, size):
        buffer = ctypes.create_string_buffer(size)
        vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), size)
        self.done(self.library.iscsi_read16_iov_sync(
            self.context, 1, ctypes.c_uint64(offset // BLOCK), size, BLOCK, 0, 0, 0, 0, 0,
            vector, 1))
        return buffer.raw


def copy():
    """The client's part runs as a program of its own, under `iwarp run`."""
    path = disk(SIZE)
    # libiscsi 1.19 takes it for granted that memory from malloc is zero where it keeps the head of
    # a list (lib/iser.c, iser_reg_mr), which it is only in a process that has not used much yet.
    said = part("client", "client", env={"MALLOC_PERTURB_": "255"}).ends(100)
    times = dict(re.findall(r"seconds of (\S+): (\S+)", said))
    check(digest(path) == re.search(r"digest: (\S+)", said)[1], "the disk has other content")
    compared("64 MiB written by each transport and read by the other, at both ends")
    ratios = [float(times[f"iscsi-{what}"]) / float(times[f"iser-{what}"])
              for what in ("write", "read")]
    beside(f"{ratios[0]:.2f} x writing, {ratios[1]:.2f} x reading (256 KiB, one at a time)")


def client():
    import hashlib
    sessions = {transport: Session(transport) for transport in ("iscsi", "iser")}
    best = {}
    for round in range(3):
        for writer, reader in ("iser", "iscsi"), ("iscsi", "iser"):
            data = os.urandom(SIZE)
            for what, transport in ("write", writer), ("read", reader):
                session, start = sessions[transport], time.monotonic()
                for offset in range(0, SIZE, CHUNK):
                    part = data[offset:offset + CHUNK]
                    if what == "write":
                        session.write(offset, part)
                    else:
                        check(session.read(offset, CHUNK) == part, f"differs at {offset}")
                took = time.monotonic() - start
                key = f"{transport}-{what}"
                best[key] = min(took, best.get(key, took))
    for key, took in best.items():
        print(f"seconds of {key}: {took:.4f}")
    print("digest:", hashlib.sha256(data).hexdigest())


def suite():
    """Each test has the same result over both transports."""
    listed = run("client", "iscsi-test-cu --list", 20, iwarp=False)
    suites = re.findall(r"^(SCSI\.[^.\s]+)$", listed, re.M)
    results = {"iscsi": {}, "iser": {}}
    for transport, outcome in results.items():
        # A process for each: see MALLOC_PERTURB_ above.
        for suite in suites:
            # A `tgtd` for each: it keeps what it had for connections of iSER that have ended.
            for old in DAEMONS:
                old.kill()
            disk(100 * MIB)
            env = {"MALLOC_PERTURB_": "255"}
            command = ["iscsi-test-cu", "--dataloss", "--test", suite, url(transport)]
            outcome.update(outcomes(run("client", command, 60, None, env=env)))
    good = [name for name, result in results["iscsi"].items() if result == "passed"]
    check(len(good) > 100, f"only {len(good)} tests pass over TCP")
    worse = [name for name in good if results["iser"].get(name) != "passed"]
    causes = {cause: [name for name in worse if name.startswith(tuple(tests))]
              for cause, tests in KNOWN.items()}
    new = set(worse).difference(*causes.values())
    check(not new, f"{len(new)} pass over TCP only: {', '.join(new)}")
    others = "; ".join(f"{cause}: {', '.join(names)}" for cause, names in causes.items() if names)
    compared(f"{len(good)} tests pass over iSCSI/TCP, {len(good) - len(worse)} of them over iSER"
             + (f". {others}" if others else ""))


def outcomes(said):
    """By suite and test, passed or FAILED."""
    found, suite = {}, ""
    for part in re.split(r"^(?=Suite: |  Test: )", said, flags=re.M):
        if part.startswith("Suite: "):
            suite = part.split()[1]
        elif part.startswith("  Test: "):
            result = re.search(r"(passed|FAILED)", part)
            found[f"{suite}.{part.split()[1]}"] = result[1] if result else "died"
    return found


def scenario():
    if sys.argv[1] == "client":
        return client()
    package("tgt")
    package("libiscsi-bin")
    {"copy": copy, "suite": suite}[sys.argv[1]]()


main(scenario)
