"""Two clients count in the server's memory, with a lock that is there as well."""

import sys

import pyverbs.enums as e
from learn import ALL, learn
from pyverbs.mr import MR
from pyverbs.wr import SGE, SendWR

CLIENTS, ROUNDS = 2, 100
# Alignment: atomic operations want addresses that are multiples of 8.
LOCK, COUNTER, SHARED = 0, 8, 16


def load(memory, offset=0):
    return int.from_bytes(memory.read(8, offset), sys.byteorder)


def store(memory, number):
    memory.write(number.to_bytes(8, sys.byteorder), 8)


def server(next_peer):
    peers, regions = [], []
    for _ in range(CLIENTS):
        peers.append(next_peer())
        # The same bytes for each peer, registered in its protection domain.
        address = {"address": regions[0].buf} if regions else {}
        regions.append(MR(peers[-1].pd, SHARED, ALL, **address))
        if not address:
            regions[0].write(bytes(SHARED), SHARED)
        peers[-1].expect_word()
        peers[-1].accept_and_grant(regions[-1])
    for peer in peers:
        peer.wait(peer.received)
    print("server: the counter is", load(regions[0], COUNTER))
    print("server: the lock is", "taken" if load(regions[0], LOCK) else "free")


def compare_swap(server, grant, found, before, after):
    """Puts `after` there if `before` is there; returns what was there."""
    request = SendWR(0, e.IBV_WR_ATOMIC_CMP_AND_SWP, 1, sg=[SGE(found.buf, 8, found.lkey)])
    address, key, _ = grant
    request.set_wr_atomic(key, address + LOCK, before, after)
    server.qp.post_send(request)
    server.wait(server.sent)
    return load(found)


def client(to_server):
    server = to_server()
    grant = address, key, _ = server.connect_for_grant()
    counter, found = server.memory(8), server.memory(8)
    for _ in range(ROUNDS):
        while compare_swap(server, grant, found, 0, 1) != 0:
            pass  # the other one has it
        server.post(e.IBV_WR_RDMA_READ, counter, 8, address + COUNTER, key)
        server.wait(server.sent)
        store(counter, load(counter) + 1)
        server.post(e.IBV_WR_RDMA_WRITE, counter, 8, address + COUNTER, key)
        server.wait(server.sent)
        compare_swap(server, grant, found, 1, 0)
    server.send_word()


learn(server, client, CLIENTS)
