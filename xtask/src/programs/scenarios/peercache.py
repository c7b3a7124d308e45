# SPDX-License-Identifier: MIT OR Apache-2.0
"""PeerCache's transfer engine: one process reads another's memory, and writes to it."""

import ctypes
import os
import sys
import time

from lab import CLIENT, DEVICE, SERVER, check, compared, main, part

SIZE, PARTS = 16 << 20, 64


def engine(host, port):
    from peercache import _peercache
    this = _peercache.TransferEngine(
        device_names=[DEVICE], ib_port=1, gid_index=0, bind_host=host, bind_port=port,
        max_channels_per_peer=4)
    buffer = ctypes.create_string_buffer(SIZE)
    address = ctypes.addressof(buffer)
    return this, buffer, address, this.register_mr(address, SIZE)[0].rkey


def owner():
    this, buffer, address, rkey = engine(SERVER, 17001)
    data = os.urandom(SIZE)
    ctypes.memmove(address, data, SIZE)
    with open("data", "wb") as file:
        file.write(data)
    print("memory:", this.local_endpoint(), address, rkey, flush=True)
    # The last byte says that the peer has written all.
    end = (data[-1] + 1) % 256
    while buffer[SIZE - 1] != bytes([end]):
        time.sleep(0.02)
    with open("back.new", "wb") as file:
        file.write(buffer.raw)
    os.rename("back.new", "back")
    time.sleep(30)


def peer(endpoint, address, rkey):
    this, buffer, own, _ = engine(CLIENT, 17002)
    address, rkey, part = int(address), int(rkey), SIZE // PARTS
    offsets = range(0, SIZE, part)

    def each(call):
        done = call([endpoint] * PARTS, [own + at for at in offsets],
                    [address + at for at in offsets], [rkey] * PARTS, [part] * PARTS)
        check(all(done), f"{sum(map(bool, done))} of {PARTS} parts are done")

    each(this.batch_read_v)
    with open("data", "rb") as file:
        data = file.read()
    check(buffer.raw == data, "what is read differs")
    new = os.urandom(SIZE - 1) + bytes([(data[-1] + 1) % 256])
    ctypes.memmove(own, new, SIZE)
    each(this.batch_write_v)
    deadline = time.monotonic() + 20
    while not os.path.exists("back"):
        check(time.monotonic() < deadline, "what was written is not there")
        time.sleep(0.02)
    with open("back", "rb") as file:
        back = file.read()
    # Parts come in any order, so that the last may be there before others.
    ctypes.memset(own, 0, SIZE)
    each(this.batch_read_v)
    check(buffer.raw == new and back[-1] == new[-1], "what was written differs")
    print("all the same", flush=True)
    os._exit(0)


def scenario():
    what, *more = sys.argv[1:] or [""]
    if what:
        return {"owner": owner, "peer": peer}[what](*more)
    first = part("server", "owner", name="owner")
    first.says("memory: ").says("\n")
    memory = first.said().split("memory: ")[1].split()
    said = part("client", "peer", *memory[:3], name="peer").ends(60)
    check("all the same" in said, "nothing was compared")
    compared("16 MiB read, and 16 MiB written and read back, in 64 parts")


main(scenario)
