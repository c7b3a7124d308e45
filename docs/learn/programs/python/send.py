"""A question and its answer: Send and Receive, and what completes."""

import pyverbs.enums as e
from learn import learn
from pyverbs.wr import SGE, RecvWR, SendWR


def server(next_peer):
    peer = next_peer()
    memory = peer.memory(64)
    # First the receive, then the connection: the peer may send at once.
    place = SGE(memory.buf, 64, memory.lkey)
    peer.qp.post_recv(RecvWR(wr_id=7, num_sge=1, sg=[place]))
    peer.connect()
    wc = peer.wait(peer.received)
    text = memory.read(wc.byte_len, 0).decode()
    print(f"server: request {wc.wr_id} is complete, {wc.byte_len} bytes: {text}")

    memory.write(text.upper(), wc.byte_len)
    place = SGE(memory.buf, wc.byte_len, memory.lkey)
    peer.qp.post_send(SendWR(wr_id=8, opcode=e.IBV_WR_SEND, num_sge=1, sg=[place]))
    peer.wait(peer.sent)


def client(to_server):
    server = to_server()
    question, answer = server.memory(5), server.memory(64)
    question.write("hello", 5)
    server.qp.post_recv(RecvWR(1, 1, [SGE(answer.buf, 64, answer.lkey)]))
    server.connect()
    place = SGE(question.buf, 5, question.lkey)
    server.qp.post_send(SendWR(wr_id=2, opcode=e.IBV_WR_SEND, num_sge=1, sg=[place]))
    server.wait(server.sent)
    wc = server.wait(server.received)
    text = answer.read(wc.byte_len, 0).decode()
    print(f"client: request {wc.wr_id} is complete, {wc.byte_len} bytes: {text}")


learn(server, client)
