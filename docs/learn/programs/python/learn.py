"""What all programs of the book share: two processes whose queue pairs meet. See chapter 7."""

import os
import socket
import struct
import sys

import pyverbs.device
import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel, cqe_status_to_str
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

LOCAL = e.IBV_ACCESS_LOCAL_WRITE
READ = LOCAL | e.IBV_ACCESS_REMOTE_READ
WRITE = LOCAL | e.IBV_ACCESS_REMOTE_WRITE
ALL = READ | WRITE | e.IBV_ACCESS_REMOTE_ATOMIC
# What one end tells the other of its memory: address, key, length.
GRANT = struct.Struct("!QII")


def open_device():
    devices = pyverbs.device.get_device_list()
    if not devices:
        sys.exit("no RDMA device: did you start this by `iwarp run`?")
    return pyverbs.device.Context(name=devices[0].name.decode())


class End:
    """A queue pair, and the TCP connection over which it learns of its peer's."""

    def __init__(self, stream):
        self.stream, self.lines = stream, stream.makefile()
        self.device = open_device()
        self.pd = PD(self.device)
        self.channel = CompChannel(self.device)
        # One queue for what is sent, one for what is received.
        self.sent = CQ(self.device, 16)
        self.received = CQ(self.device, 16, None, self.channel, 0)
        init = QPInitAttr(e.IBV_QPT_RC, scq=self.sent, rcq=self.received, sq_sig_all=1,
                          cap=QPCap(max_send_wr=16, max_recv_wr=16))
        attr = QPAttr()
        attr.qp_access_flags = ALL
        # With attributes it goes to INIT, where receives can be posted.
        self.qp = QP(self.pd, init, attr)
        self.word = self.memory(1)

    def connect(self):
        """Tells the peer number and address of this queue pair, and learns the peer's."""
        self.say(f"{self.qp.qp_num} {self.device.query_gid(1, 0)}")
        number, address = self.hear().split()
        attr = QPAttr()
        attr.dest_qp_num = int(number)
        attr.ah_attr = AHAttr(gr=GlobalRoute(GID(address), sgid_index=0), is_global=1)
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        self.qp.to_rts(attr)
        # Neither sends before the other is ready.
        self.say("ready")
        self.hear()

    def say(self, words):
        self.stream.sendall(f"{words}\n".encode())

    def hear(self):
        return self.lines.readline().strip()

    def memory(self, length, access=LOCAL):
        return MR(self.pd, length, access)

    def post_recv(self, memory):
        self.qp.post_recv(RecvWR(0, 1, [SGE(memory.buf, memory.length, memory.lkey)]))

    def post_send(self, memory, length):
        place = SGE(memory.buf, length, memory.lkey)
        self.qp.post_send(SendWR(0, e.IBV_WR_SEND, 1, sg=[place]))

    def expect_word(self):
        """A message whose content does not matter: only to be told something."""
        self.post_recv(self.word)

    def send_word(self):
        self.post_send(self.word, 1)
        self.wait(self.sent)

    def post(self, opcode, memory, length, address, key):
        """A Write or a Read."""
        request = SendWR(0, opcode, 1, sg=[SGE(memory.buf, length, memory.lkey)])
        request.set_wr_rdma(key, address)
        self.qp.post_send(request)

    def wait(self, queue, must_succeed=True):
        """The next completion of a queue."""
        found = 0
        while not found:
            found, completions = queue.poll()
        status = completions[0].status
        if must_succeed and status != e.IBV_WC_SUCCESS:
            sys.exit(f"completion: {cqe_status_to_str(status)}")
        return completions[0]

    def accept_and_grant(self, region, wait=True):
        """Connects, and sends the peer a grant of the whole region."""
        self.grant = self.memory(GRANT.size)
        self.grant.write(GRANT.pack(region.buf, region.rkey, region.length), GRANT.size)
        self.connect()
        self.post_send(self.grant, GRANT.size)
        if wait:
            self.wait(self.sent)

    def connect_for_grant(self):
        """Connects, and receives what the server grants."""
        memory = self.memory(GRANT.size)
        self.post_recv(memory)
        self.connect()
        self.wait(self.received)
        return GRANT.unpack(memory.read(GRANT.size, 0))


def learn(server, client, clients=1):
    """Runs both functions, each in a process of its own, the second so many times.

    They are given a function that makes the next End: on the server's side one for each that the
    clients make.
    """
    sys.stdout.reconfigure(line_buffering=True)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    children = []
    for _ in range(clients):
        child = os.fork()
        if child == 0:
            client(lambda: End(socket.create_connection(address)))
            sys.exit()
        children.append(child)
    server(lambda: End(listener.accept()[0]))
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
