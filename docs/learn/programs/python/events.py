"""Two ways to wait for a completion."""

import sys
import time

from learn import learn


def server(next_peer):
    peer = next_peer()
    peer.expect_word()
    peer.expect_word()
    peer.connect()
    for _ in range(2):
        peer.wait(peer.received)
        time.sleep(0.1)  # it has to think
        peer.send_word()


def by_polling(server):
    """Keeps asking: the answer is seen at once, and the CPU is busy until then."""
    looks = 1
    while server.received.poll()[0] == 0:
        looks += 1
    return looks


def by_event(server):
    """Sleeps until something has come."""
    looks = 0
    while True:
        looks += 1
        # Armed first: what comes after this look makes an event.
        server.received.req_notify()
        if server.received.poll()[0]:
            return looks
        server.channel.get_cq_event(server.received)
        server.received.ack_events(1)


def client(to_server):
    server = to_server()
    server.expect_word()
    server.expect_word()
    server.connect()
    server.send_word()
    # How often is another number each time: it goes where no test looks.
    print(f"looked {by_polling(server)} times", file=sys.stderr)
    print("the first answer is found by polling")
    server.send_word()
    print(f"looked {by_event(server)} times", file=sys.stderr)
    print("the second answer is found by an event")


learn(server, client)
