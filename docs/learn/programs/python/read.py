"""The client reads a row of the server's table; the server has nothing to do."""

import struct

import pyverbs.enums as e
from learn import READ, learn

ROW = struct.Struct("20sI")
MOUNTAINS = [("Aconcagua", 6961), ("Denali", 6190), ("Everest", 8849), ("Kilimanjaro", 5895)]


def server(next_peer):
    peer = next_peer()
    table = b"".join(ROW.pack(name.encode(), height) for name, height in MOUNTAINS)
    region = peer.memory(len(table), READ)
    region.write(table, len(table))
    peer.expect_word()
    peer.accept_and_grant(region)
    # Here it waits until the client says goodbye.
    peer.wait(peer.received)
    print("server: one message came, the goodbye")


def client(to_server):
    server = to_server()
    address, key, length = server.connect_for_grant()
    row = server.memory(ROW.size)
    print(f"client: there are {length // ROW.size} rows")
    for number in (2, 0):
        place = address + number * ROW.size
        server.post(e.IBV_WR_RDMA_READ, row, ROW.size, place, key)
        server.wait(server.sent)
        name, height = ROW.unpack(row.read(ROW.size, 0))
        print(f"client: row {number} is {name.rstrip(bytes(1)).decode()}, {height} m")
    server.send_word()


learn(server, client)
