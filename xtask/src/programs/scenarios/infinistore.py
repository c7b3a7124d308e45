# SPDX-License-Identifier: MIT OR Apache-2.0
"""InfiniStore: a server that holds blocks of a key-value cache, and a client in another process.

Its own tests want a GPU (`device="cuda:0"`); this uses the same calls with memory of the host.
"""

import asyncio
import ctypes
import os
import sys

from lab import DEVICE, SERVER, check, compared, main, part

BLOCK, BLOCKS = 256 << 10, 64
PORT = 22345


def client():
    import infinistore
    connection = infinistore.InfinityConnection(infinistore.ClientConfig(
        host_addr=SERVER, service_port=PORT, connection_type=infinistore.TYPE_RDMA,
        dev_name=DEVICE, ib_port=1, link_type="Ethernet"))
    connection.connect()
    size = BLOCK * BLOCKS
    source, target = ctypes.create_string_buffer(os.urandom(size), size), bytearray(size)
    target = (ctypes.c_char * size).from_buffer(target)
    places = [ctypes.addressof(memory) for memory in (source, target)]
    for place in places:
        connection.register_mr(place, size)
    blocks = [(f"key{number}", number * BLOCK) for number in range(BLOCKS)]
    asyncio.run(connection.rdma_write_cache_async(blocks, BLOCK, places[0]))
    check(all(connection.check_exist(key) for key, _ in blocks), "a key is missing")
    asyncio.run(connection.rdma_read_cache_async(blocks[::-1], BLOCK, places[1]))
    check(source.raw == target.raw, "what is read differs")
    print("all the same", flush=True)
    connection.close()


def serve():
    """As `python -m infinistore.server`, which also wants the right to lower its OOM score
    (server.py, prevent_oom), and that is root's."""
    import uvloop
    import infinistore
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    config = infinistore.ServerConfig(
        host="0.0.0.0", service_port=PORT, manage_port=18080, dev_name=DEVICE, ib_port=1,
        link_type="Ethernet", prealloc_size=1, minimal_allocate_size=16)
    config.verify()
    infinistore.register_server(loop, config)
    loop.run_forever()


def scenario():
    if sys.argv[1:] == ["serve"]:
        return serve()
    if sys.argv[1:] == ["client"]:
        return client()
    part("server", "serve", name="server").listens(PORT)
    said = part("client", "client").ends(60)
    check("all the same" in said, "nothing was compared")
    compared("16 MiB in 64 blocks, written and read back")


main(scenario)
