# SPDX-License-Identifier: MIT OR Apache-2.0
"""nvmeof, an initiator for NVMe over RDMA, with a small target (NVMe over Fabrics 1.1) on pyverbs,
which is Debian's or PyPI's."""

import hashlib
import os
import struct
import sys

from lab import CLIENT, SERVER, WHEELS, check, compared, main, package, part

PORT, NAME = 4420, "nqn.2026-07.example.lab:disk"
BLOCK, BLOCKS, LARGEST = 4096, 4096, 1 << 20
DEPTH, CONTROLLER = 32, 1
FLUSH, WRITE, READ, IDENTIFY, SET_FEATURES, FABRICS = 0, 1, 2, 6, 9, 0x7F
PROPERTY_SET, CONNECT, PROPERTY_GET = 0, 1, 4
CAPABILITIES, CONFIGURATION, STATUS = 0, 0x14, 0x1C


def signaled():
    """rdma-core has changed the name of the module."""
    try:
        from pyverbs.libibverbs_enums import IBV_SEND_SIGNALED
    except ImportError:
        from pyverbs.enums import IBV_SEND_SIGNALED
    return IBV_SEND_SIGNALED


class Disk:
    def __init__(self):
        self.blocks = bytearray(BLOCK * BLOCKS)
        self.configuration = 0
        self.commands = set()

    def property(self, offset):
        # Queues of DEPTH, the set of commands for blocks of memory, half a second to get ready.
        return {CAPABILITIES: DEPTH - 1 | 1 << 24 | 1 << 37, CONFIGURATION: self.configuration,
                STATUS: self.configuration & 1}[offset]

    def identify(self, controller):
        data = bytearray(4096)
        if controller:
            data[4:72] = b"1".ljust(20) + b"lab".ljust(40) + b"1".ljust(8)
            data[77] = (LARGEST // BLOCK).bit_length() - 1
            struct.pack_into("<HI", data, 78, CONTROLLER, 0x10400)
            struct.pack_into("<HI", data, 514, DEPTH, 1)
            # Lists with keys; a command has 64 bytes and an answer 16.
            struct.pack_into("<I", data, 536, 1 << 2)
            struct.pack_into("<IIH", data, 1792, 4, 1, 0)
        else:
            struct.pack_into("<QQQ", data, 0, BLOCKS, BLOCKS, BLOCKS)
            data[130] = BLOCK.bit_length() - 1
        return data


class Queue:
    """A connection of the initiator's."""

    def __init__(self, listener, disk, queue):
        from pyverbs.cmid import ConnParam
        self.disk, self.queue = disk, queue
        self.id = listener.get_request()
        self.commands = [self.id.reg_msgs(64) for _ in range(DEPTH)]
        self.answer = self.id.reg_msgs(16)
        self.data = self.id.reg_msgs(LARGEST)
        for place in self.commands:
            self.id.post_recv(place)
        accepted = ConnParam(resources=1, depth=4, data_len=32)
        accepted.set_private_data(struct.pack("<HH28x", 0, DEPTH))
        self.id.accept(accepted)

    def wait_sent(self):
        done = self.id.get_send_comp()
        check(done.status == 0, f"a request of the target's ends with status {done.status}")

    def get(self, address, size, key):
        self.id.post_read(self.data, size, address, key, signaled())
        self.wait_sent()
        return self.data.read(size, 0)

    def put(self, address, size, key, data):
        self.data.write(bytes(data), size)
        self.id.post_write(self.data, size, address, key, signaled())
        self.wait_sent()

    def serve(self):
        """Does what the next command says, and returns its code; None when the initiator has left."""
        done = self.id.get_recv_comp()
        if done.status:
            return None
        place = self.commands.pop(0)
        command = place.read(64, 0)
        self.commands.append(place)
        self.id.post_recv(place)
        code, number = command[0], struct.unpack_from("<H", command, 2)[0]
        where = (*struct.unpack_from("<Q", command, 24),
                 int.from_bytes(command[32:35], "little"), *struct.unpack_from("<I", command, 35))
        result = self.obey(code, command, where)
        self.answer.write(struct.pack("<QHHHH", result, 0, self.queue, number, 0), 16)
        self.id.post_send(self.answer, signaled())
        self.wait_sent()
        self.disk.commands.add(code)
        return code

    def obey(self, code, command, where):
        disk = self.disk
        start, count = (number * BLOCK for number in struct.unpack_from("<QH", command, 40))
        span = slice(start, start + count + BLOCK)
        offset, value = struct.unpack_from("<IQ", command, 44)
        if code == FABRICS and command[4] == CONNECT:
            check(NAME.encode() in self.get(*where), "the initiator wants another disk")
            return CONTROLLER
        if code == FABRICS and command[4] == PROPERTY_GET:
            return disk.property(offset)
        if code == FABRICS and command[4] == PROPERTY_SET:
            disk.configuration = value
        elif code == IDENTIFY:
            self.put(*where, disk.identify(command[40] == 1))
        elif code == WRITE:
            disk.blocks[span] = self.get(*where)
        elif code == READ:
            self.put(*where, disk.blocks[span])
        else:
            check(code in (SET_FEATURES, FLUSH), f"a command that is not served: {code:#x}")
        return 0


def target():
    from pyverbs.cmid import CMID, AddrInfo
    from pyverbs.qp import QPCap, QPInitAttr
    try:
        from pyverbs.librdmacm_enums import RAI_PASSIVE, RDMA_PS_TCP
    except ImportError:
        from pyverbs.cm_enums import RAI_PASSIVE, RDMA_PS_TCP
    about = AddrInfo(src=SERVER, src_service=str(PORT), port_space=RDMA_PS_TCP, flags=RAI_PASSIVE)
    listener = CMID(creator=about, qp_init_attr=QPInitAttr(
        cap=QPCap(max_send_wr=DEPTH, max_recv_wr=2 * DEPTH)))
    listener.listen()
    print("ready", flush=True)
    disk = Disk()
    admin = Queue(listener, disk, 0)
    # This is the order of the initiator's, so that one thread is enough.
    while admin.serve() != SET_FEATURES:
        pass
    data = Queue(listener, disk, 1)
    data.serve()
    check(admin.serve() == IDENTIFY, "the initiator does not ask for the disk's size")
    while data.serve() is not None:
        pass
    import pyverbs
    print(f"pyverbs is {pyverbs.__file__}")
    check({WRITE, READ, FLUSH} <= disk.commands, f"commands were {disk.commands}")
    print(f"disk: {hashlib.sha256(disk.blocks).hexdigest()}", flush=True)


def initiator():
    import nvmeof
    content = os.urandom(BLOCK * BLOCKS)
    with nvmeof.Controller.connect(SERVER, NAME, port=PORT, source=CLIENT) as controller:
        disk = controller.namespace(1)
        check(disk.lba_size * disk.info.size_lbas == len(content), "the disk has another size")
        with controller.allocate(len(content)) as buffer:
            buffer.write(content)
            disk.write(buffer, slba=0)
            disk.flush()
            buffer.write(bytes(len(content)))
            disk.read(buffer, slba=0)
            check(buffer.read() == content, "what is read differs")
            # Some blocks in the middle, to another place of the buffer.
            disk.read(buffer, slba=1234, blocks=3, buffer_offset=BLOCK)
            check(buffer.read(3 * BLOCK, BLOCK) == content[1234 * BLOCK:1237 * BLOCK],
                  "three blocks differ")
    print(f"wrote: {hashlib.sha256(content).hexdigest()}", flush=True)


def scenario():
    if sys.argv[1] in ("target", "initiator"):
        return {"target": target, "initiator": initiator}[sys.argv[1]]()
    if sys.argv[1:] == ["debian"]:
        package("python3-pyverbs")
    ends = part("server", "target", name="target")
    ends.says("ready")
    said = part("client", "initiator", name="initiator").ends(60)
    written = said.split("wrote: ")[1].split()[0]
    told = ends.ends(20)
    check(f"disk: {written}" in told, "the disk has other content")
    check(f"pyverbs is {WHEELS.split(':')[-1]}" in told or sys.argv[1] == "debian",
          "the target does not use PyPI's pyverbs")
    compared("16 MiB of a disk written and read back, at both ends")


main(scenario)
