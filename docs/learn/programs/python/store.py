"""A key-value store: the server puts, clients get by RDMA Read."""

import struct
from zlib import crc32

import pyverbs.enums as e
from learn import READ, learn

SLOTS = 64
# Key, value, and a checksum of both.
SLOT = struct.Struct("16s40sI")


def text(padded):
    return padded.rstrip(b"\0").decode()


def slot_of(region, place):
    return SLOT.unpack(region.read(SLOT.size, place * SLOT.size))


def put(table, key, value):
    place = crc32(key.encode()) % SLOTS
    while text(slot_of(table, place)[0]) not in ("", key):
        place = (place + 1) % SLOTS
    slot = SLOT.pack(key.encode(), value.encode(), 0)[:-4]
    table.write(slot + struct.pack("I", crc32(slot)), SLOT.size, place * SLOT.size)


def server(next_peer):
    peer = next_peer()
    table = peer.memory(SLOTS * SLOT.size, READ)
    table.write(bytes(table.length), table.length)
    for key, value in (("apple", "red"), ("banana", "yellow"), ("cherry", "dark red")):
        put(table, key, value)
    peer.expect_word()
    peer.expect_word()
    peer.accept_and_grant(table)
    peer.wait(peer.received)
    put(table, "apple", "green")
    peer.send_word()
    peer.wait(peer.received)
    print("server: put 4 times, got nothing")


def get(server, grant, key):
    """Reads slots from the key's place on, until the key or a free slot turns up."""
    address, right, _ = grant
    slot = server.memory(SLOT.size)
    place = crc32(key.encode())
    while True:
        where = address + place % SLOTS * SLOT.size
        server.post(e.IBV_WR_RDMA_READ, slot, SLOT.size, where, right)
        server.wait(server.sent)
        found, value, check = slot_of(slot, 0)
        if text(found) and check != crc32(found + value):
            continue  # half old and half new: read again
        if text(found) in ("", key):
            return text(value) or "not there"
        place += 1


def client(to_server):
    server = to_server()
    grant = server.connect_for_grant()
    for key in ("apple", "banana", "pear"):
        print(f"client: {key} is {get(server, grant, key)}")
    server.expect_word()
    server.send_word()
    server.wait(server.received)
    print(f"client: apple is now {get(server, grant, 'apple')}")
    server.send_word()


learn(server, client)
