# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two processes with the Python package ibverbs: Sends, Writes, Reads and atomics."""

import os
import sys
import time

from lab import check, compared, main, part

SIZE = 1 << 20


def said_by(name):
    """What the other process has left in a file, which appears at once."""
    deadline = time.monotonic() + 20
    while not os.path.exists(name):
        check(time.monotonic() < deadline, f"nobody writes {name}")
        time.sleep(0.005)
    with open(name, "rb") as file:
        return file.read()


def leave(name, data):
    with open(f"{name}.new", "wb") as file:
        file.write(data)
    os.rename(f"{name}.new", name)


class End:
    def __init__(self, own, other):
        import ctypes
        import ibverbs as ib
        self.ib, self.own, self.other = ib, own, other
        device = ib.get_device_list()[0]
        self.context = device.open()
        self.pd = self.context.alloc_pd()
        self.cq = self.context.create_cq(64)
        self.buffer = ctypes.create_string_buffer(SIZE + 8)
        flags = ib.AccessFlags
        access = (flags.LOCAL_WRITE | flags.REMOTE_WRITE | flags.REMOTE_READ
                  | flags.REMOTE_ATOMIC)
        self.address = (ctypes.addressof(self.buffer) + 7) & ~7
        self.memory = self.pd.reg_mr(self.address, SIZE, access)
        self.qp = self.pd.create_qp(
            ib.QPInitAttr(send_cq=self.cq, recv_cq=self.cq, qp_type=ib.QPType.RC))
        psn = int.from_bytes(os.urandom(3), "big")
        info = ib.local_qp_info(
            self.qp, self.context.query_port(1), self.context.query_gid(1, 0), port=1, psn=psn)
        words = [info.to_bytes().hex(), str(self.address), str(self.memory.rkey)]
        leave(own, " ".join(words).encode())
        theirs, address, rkey = said_by(other).decode().split()
        self.remote = {"remote_addr": int(address), "rkey": int(rkey)}
        ib.connect_rc(self.qp, ib.QPInfo.from_bytes(bytes.fromhex(theirs)), port=1, sgid_index=0,
                      access=access, local_psn=psn)

    def place(self, offset):
        return self.address - __import__("ctypes").addressof(self.buffer) + offset

    def put(self, data, offset=0):
        at = self.place(offset)
        self.buffer[at:at + len(data)] = data

    def get(self, size, offset=0):
        at = self.place(offset)
        return self.buffer[at:at + size]

    def post(self, opcode, size, **more):
        ib = self.ib
        self.qp.post_send(ib.SendWR(
            wr_id=1, sg_list=[ib.SGE(self.memory, size)], opcode=opcode,
            send_flags=ib.SendFlags.SIGNALED, **more))
        self.wait()

    def wait(self):
        deadline = time.monotonic() + 20
        while True:
            done = list(self.cq.poll(1))
            if done:
                done[0].raise_for_status()
                return done[0]
            check(time.monotonic() < deadline, "no completion")


def serve():
    end = End("server.info", "client.info")
    ib = end.ib
    end.qp.post_recv(ib.RecvWR(wr_id=2, sg_list=[ib.SGE(end.memory, SIZE)]))
    leave("posted", b"")
    end.wait()
    leave("received", end.get(SIZE))
    said_by("written")
    leave("has", end.get(SIZE))
    said_by("read")


def client():
    end = End("client.info", "server.info")
    opcode = end.ib.WROpcode
    data = [os.urandom(SIZE) for _ in range(3)]
    said_by("posted")
    end.put(data[0])
    end.post(opcode.SEND, SIZE)
    check(said_by("received") == data[0], "what was sent differs")
    end.put(data[1])
    end.post(opcode.RDMA_WRITE, SIZE, **end.remote)
    # A Read is answered when what was written before is placed.
    end.put(bytes(SIZE))
    end.post(opcode.RDMA_READ, SIZE, **end.remote)
    check(end.get(SIZE) == data[1], "what is read back differs")
    leave("written", b"")
    check(said_by("has") == data[1], "what was written differs")
    leave("read", b"")


def scenario():
    if sys.argv[1:] == ["serve"]:
        return serve()
    if sys.argv[1:] == ["client"]:
        return client()
    ends = [part(side, what, name=what)
            for side, what in (("server", "serve"), ("client", "client"))]
    for end in reversed(ends):
        end.ends(60)
    compared("1 MiB sent, 1 MiB written and read back, at both ends")


main(scenario)
