"""The client writes into the server's memory."""

import pyverbs.enums as e
from learn import GRANT, WRITE, learn
from pyverbs.wr import SGE, SendWR


def text(board):
    return board.read(board.length, 0).rstrip(b"\0").decode()


def server(next_peer):
    peer = next_peer()
    board = peer.memory(64, WRITE)
    board.write("(nothing yet)", 13)
    grant = peer.memory(GRANT.size)
    grant.write(GRANT.pack(board.buf, board.rkey, board.length), GRANT.size)

    # A receive only to be told when to look.
    peer.expect_word()
    peer.connect()
    print("server: the board says", text(board))
    peer.post_send(grant, GRANT.size)
    peer.wait(peer.sent)
    peer.wait(peer.received)
    print("server: the board says", text(board))


def client(to_server):
    server = to_server()
    grant, news = server.memory(GRANT.size), server.memory(13)
    news.write("Hello, board!", 13)
    server.post_recv(grant)
    server.connect()
    server.wait(server.received)
    address, key, length = GRANT.unpack(grant.read(GRANT.size, 0))
    print(f"client: may write {length} bytes")

    # Where: the address there. By which right: the key.
    request = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(news.buf, 13, news.lkey)])
    request.set_wr_rdma(key, address)
    server.qp.post_send(request)
    server.wait(server.sent)
    # The server has noticed nothing. A message tells it, and arrives after the Write.
    server.send_word()


learn(server, client)
