# SPDX-License-Identifier: MIT OR Apache-2.0
"""Mooncake's transfer engine and its store."""

import ctypes
import hashlib
import os
import re
import sys

from lab import (
    CLIENT, DEVICE, SERVER, WHEELS, Program, check, compared, idle_and_busy, main, part, run,
    times_tcp,
)

MIB = 1 << 20
SIZE = 32 * MIB
HOME = f"{WHEELS}/mooncake"
ENV = {
    "MC_TE_METRIC": "0",
}


def python(side, *arguments, **more):
    return part(side, *arguments, env=ENV, **more)


def bench(protocol):
    """Its own measure; the target is told where the initiator is by a handshake of theirs."""
    options = f"--metadata_server=P2PHANDSHAKE --protocol={protocol} --device_name={DEVICE}"
    target = Program("server", f"{HOME}/transfer_engine_bench --mode=target {options} "
                     f"--local_server_name={SERVER}:12345", env=ENV)
    target.until(lambda: re.search(r"listening on (\S+)", target.said()), "listens")
    where = re.search(r"listening on (\S+)", target.said())[1]
    speeds = {}
    for operation, what in ("write", "writing"), ("read", "reading"):
        said = run("client", f"{HOME}/transfer_engine_bench --mode=initiator {options} "
                   f"--local_server_name={CLIENT}:12346 --segment_id={where} --duration=1 "
                   f"--operation={operation} --threads=2 --block_size=65536", 60, env=ENV)
        speed = re.search(r"throughput ([0-9.]+) (\S+)", said)
        check(speed, "it says no throughput")
        speeds[what] = float(speed[1])
    target.kill()
    return speeds


def api():
    target = python("server", "target")
    target.says("session: ")
    session, address = re.search(r"session: (\S+) (\d+)", target.said()).groups()
    said = python("client", "initiator", session, address).ends(60)
    written = re.search(r"written: (\S+)", said)[1]
    target.says("done")
    check(f"has: {written}" in target.said(), "the target has other content")
    compared("32 MiB written, and 32 MiB read back, by `TransferEngine` of Python")


def engine(host, port):
    from mooncake.engine import TransferEngine
    engine = TransferEngine()
    status = engine.initialize(f"{host}:{port}", "P2PHANDSHAKE", "rdma", DEVICE)
    check(status == 0, f"initialize: {status}")
    buffer = ctypes.create_string_buffer(SIZE)
    address = ctypes.addressof(buffer)
    check(engine.register_memory(address, SIZE) == 0, "register_memory")
    return engine, buffer, address


def target():
    import time
    this, buffer, address = engine(SERVER, 12347)
    print(f"session: {SERVER}:{this.get_rpc_port()} {address}", flush=True)
    # The initiator's last write is one byte at the end.
    while buffer.raw[-1:] != b"\xff":
        time.sleep(0.05)
    print(f"has: {hashlib.sha256(buffer.raw).hexdigest()}\ndone", flush=True)
    time.sleep(60)


def initiator(session, peer):
    this, buffer, address = engine(CLIENT, 12348)
    peer = int(peer)
    data = os.urandom(SIZE - 1) + b"\0"
    ctypes.memmove(address, data, SIZE)
    check(this.transfer_sync_write(session, address, peer, SIZE) == 0, "write")
    ctypes.memset(address, 0, SIZE)
    check(this.transfer_sync_read(session, address, peer, SIZE) == 0, "read")
    check(buffer.raw == data, "what is read differs")
    ctypes.memset(address + SIZE - 1, 0xFF, 1)
    check(this.transfer_sync_write(session, address + SIZE - 1, peer + SIZE - 1, 1) == 0, "write")
    print(f"written: {hashlib.sha256(data[:-1] + bytes([255])).hexdigest()}", flush=True)


def store():
    master = Program("server", f"{HOME}/mooncake_master --port=50051 "
                     "--enable_http_metadata_server=true --http_metadata_server_port=8080 "
                     "--http_metadata_server_host=0.0.0.0 --metrics_port=9003", env=ENV)
    master.listens(50051).listens(8080)
    holder = python("server", "holder")
    holder.says("ready")
    said = python("client", "user").ends(90)
    check("all the same" in said, "nothing was compared")
    compared("64 objects of up to 4 MiB put by one client and got by another")


def client_of_store(host, segment):
    from mooncake.store import MooncakeDistributedStore
    store = MooncakeDistributedStore()
    status = store.setup(host, f"http://{SERVER}:8080/metadata", segment, 64 * MIB, "rdma", DEVICE,
                         f"{SERVER}:50051")
    check(status == 0, f"setup: {status}")
    return store


def holder():
    """Its memory holds the objects."""
    import time
    store = client_of_store(SERVER, 512 * MIB)
    print("ready", flush=True)
    time.sleep(600)


def user():
    store = client_of_store(CLIENT, 0)
    sizes = [1 + (number * 65_537) for number in range(64)]
    data = [os.urandom(size) for size in sizes]
    for number, value in enumerate(data):
        check(store.put(f"key{number}", value) == 0, f"put {number}")
    for number, value in enumerate(data):
        check(bytes(store.get(f"key{number}")) == value, f"key{number} differs")
    print("all the same", flush=True)
    os._exit(0)


def speed():
    return f"{times_tcp(bench, '{:.2f} GB/s')}, 64 KiB, 2 threads"


def scenario():
    what, *more = sys.argv[1:]
    inside = {"target": target, "initiator": initiator, "holder": holder, "user": user}
    if what in inside:
        return inside[what](*more)
    {"bench": lambda: idle_and_busy(speed), "api": api, "store": store}[what]()


main(scenario)
