# SPDX-License-Identifier: MIT OR Apache-2.0
"""NIXL: an agent reads another's memory, and writes to it, by the UCX that its wheel brings along."""

import hashlib
import json
import os
import sys
import time

from lab import DEVICE, check, compared, idle_and_busy, main, part, times_tcp

SIZE, PARTS = 32 << 20, 64
# `UCX_TLS=^ud,ud:aux` is enough; this way nothing goes through memory that two processes share.
# TCP is for the first messages, with which UCX sets up the others.
WAYS = {"rdma": "rc_verbs,tcp,self", "tcp": "tcp,self"}
ROUNDS = 8


class Agent:
    def __init__(self, name):
        import numpy
        from nixl_cu12 import nixl_agent, nixl_agent_config
        self.nixl = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
        self.memory = numpy.zeros(SIZE, dtype=numpy.uint8)
        address, part = self.memory.ctypes.data, SIZE // PARTS
        self.nixl.register_memory([(address, SIZE, 0, "")], "DRAM")
        self.parts = [(address + at, part, 0) for at in range(0, SIZE, part)]

    def digest(self):
        return hashlib.sha256(self.memory.tobytes()).hexdigest()

    def fill(self):
        self.memory[:] = bytearray(os.urandom(SIZE))
        return self.digest()

    def wait(self, ready, what):
        deadline = time.monotonic() + 30
        while not (found := ready()):
            check(time.monotonic() < deadline, f"not within 30 s: {what}")
            time.sleep(0.002)
        return found

    def told(self, peer):
        """What the peer says, by a message of NIXL's own."""
        return self.wait(lambda: self.nixl.get_new_notifs().get(peer), f"a message from {peer}")


def leave(name, about):
    with open(f"{name}.new", "w") as file:
        json.dump(about, file)
    os.rename(f"{name}.new", name)


def left(name):
    with open(name) as file:
        return json.load(file)


def owner(way):
    agent = Agent("owner")
    had = agent.fill()
    leave(f"{way}.owner", {"metadata": agent.nixl.get_agent_metadata().hex(), "parts": agent.parts})
    print("ready", flush=True)
    told = agent.told("peer")
    check(told == [b"written"], f"the peer says {told}")
    leave(f"{way}.owner's", {"had": had, "got": agent.digest()})
    # Until then the peer may read.
    agent.wait(lambda: os.path.exists(f"{way}.end"), "the peer's end")


def peer(way):
    agent, about = Agent("peer"), left(f"{way}.owner")
    name = agent.nixl.add_remote_agent(bytes.fromhex(about["metadata"]))
    here = agent.nixl.get_xfer_descs(agent.parts, "DRAM")
    there = agent.nixl.get_xfer_descs([tuple(part) for part in about["parts"]], "DRAM")

    def transfer(operation, message=b""):
        handle = agent.nixl.initialize_xfer(operation, here, there, name, message)
        agent.nixl.transfer(handle)
        agent.wait(lambda: agent.nixl.check_xfer_state(handle) != "PROC", operation)
        state = agent.nixl.check_xfer_state(handle)
        check(state == "DONE", f"{operation} ends as {state}")
        agent.nixl.release_xfer_handle(handle)

    def speed(operation):
        start = time.monotonic()
        for _ in range(ROUNDS):
            transfer(operation)
        return ROUNDS * (SIZE >> 20) / (time.monotonic() - start)

    transfer("READ")
    had = agent.digest()
    reading = speed("READ")
    new = agent.fill()
    writing = speed("WRITE")
    transfer("WRITE", b"written")
    agent.memory[:] = 0
    transfer("READ")
    leave(f"{way}.peer's", {"had": had, "wrote": new, "got": agent.digest(),
                            "speeds": {"writing": writing, "reading": reading}})
    agent.nixl.remove_remote_agent(name)


def run_with(way):
    for name in ("owner", "owner's", "peer's", "end"):
        # Of a run before: an owner that finds the end takes its leave.
        if os.path.exists(f"{way}.{name}"):
            os.remove(f"{way}.{name}")
    env = {"UCX_TLS": WAYS[way], "UCX_PROTO_INFO": "y", "UCX_LOG_LEVEL": "info"}
    first = part("server", "owner", way, name="owner", env=env)
    first.says("ready")
    said = part("client", "peer", way, name="peer", env=env).ends(60)
    leave(f"{way}.end", True)
    first.ends(20)
    owners, peers = left(f"{way}.owner's"), left(f"{way}.peer's")
    check(owners["had"] == peers["had"], "what is read differs")
    check(owners["got"] == peers["wrote"], "what is written differs")
    check(peers["got"] == peers["wrote"], "what is read back differs")
    by_device = f"rc_verbs/{DEVICE}" in said
    check(by_device == (way == "rdma"), "UCX does not say that it moves data in the way it should")
    return peers["speeds"]


def speed_beside_tcp():
    return f"{times_tcp(run_with, '{:.0f} MiB/s')}, 512 KiB each"


def scenario():
    if sys.argv[1:]:
        return {"owner": owner, "peer": peer}[sys.argv[1]](sys.argv[2])
    idle_and_busy(speed_beside_tcp)
    compared("32 MiB read, and 32 MiB written and read back, in 64 parts")


main(scenario)
