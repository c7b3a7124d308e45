"""Four mistakes, and how each shows."""

import pyverbs.enums as e
from learn import READ, learn
from pyverbs.cq import cqe_status_to_str

MISTAKES = [
    "a Read beyond the end",
    "a Read with a wrong key",
    "a Write where only Reads are granted",
    "a message longer than the receive",
]


def server(next_peer):
    lines = []
    # A failed connection does not work again: each mistake gets one of its own.
    for _ in MISTAKES:
        peer = next_peer()
        table, small = peer.memory(64, READ), peer.memory(4)
        peer.post_recv(small)
        # Without waiting for the completion: the client's mistake may come before it.
        peer.accept_and_grant(table, wait=False)
        status = peer.wait(peer.received, must_succeed=False).status
        lines.append(f"server: the receive: {cqe_status_to_str(status)}")
    # Only when the client has printed its lines, so that they never mix.
    peer.hear()
    print("\n".join(lines))


def client(to_server):
    for mistake in MISTAKES:
        server = to_server()
        memory = server.memory(128)
        address, key, length = server.connect_for_grant()
        if mistake == MISTAKES[0]:
            server.post(e.IBV_WR_RDMA_READ, memory, 2 * length, address, key)
        elif mistake == MISTAKES[1]:
            server.post(e.IBV_WR_RDMA_READ, memory, length, address, key + 1)
        elif mistake == MISTAKES[2]:
            server.post(e.IBV_WR_RDMA_WRITE, memory, length, address, key)
        else:
            server.post_send(memory, 64)
        status = server.wait(server.sent, must_succeed=False).status
        print(f"client: {mistake}: {cqe_status_to_str(status)}")
    server.say("done")


learn(server, client)
