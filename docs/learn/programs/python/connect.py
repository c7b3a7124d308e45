"""Every step of a connection, as an event."""

import ipaddress
import os
import socket

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from learn import open_device
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.qp import QPCap, QPInitAttr


def next_event(channel, lines):
    event = CMEvent(channel)
    lines.append(event.event_str())
    return event


def said(event):
    return (event.private_data or b"").split(b"\0")[0].decode()


def param(words):
    found = ConnParam(data_len=len(words))
    found.set_private_data(words.encode())
    return found


def create_qp(id):
    id.create_qp(QPInitAttr(e.IBV_QPT_RC, cap=QPCap(max_send_wr=1, max_recv_wr=1)))


def server(id, channel):
    lines = []
    event = next_event(channel, lines)
    lines.append(f"{said(event)} is refused")
    CMID(creator=event, listen_id=id).reject(b"no guests")
    event.ack_cm_event()

    event = next_event(channel, lines)
    lines.append(f"{said(event)} is accepted")
    peer = CMID(creator=event, listen_id=id)
    event.ack_cm_event()
    create_qp(peer)
    peer.accept(param("welcome"))
    next_event(channel, lines).ack_cm_event()
    next_event(channel, lines).ack_cm_event()
    return [f"server: {line}" for line in lines]


def client(address):
    for name in ("guest", "member"):
        lines = []
        channel = CMEventChannel()
        id = CMID(creator=channel, port_space=ce.RDMA_PS_TCP)
        id.resolve_addr(address, 2000)
        next_event(channel, lines).ack_cm_event()
        id.resolve_route(2000)
        next_event(channel, lines).ack_cm_event()
        create_qp(id)
        id.connect(param(name))
        event = next_event(channel, lines)
        lines.append(f"the server says {said(event)}")
        event.ack_cm_event()
        print("\n".join(f"client: {line}" for line in lines))
    id.disconnect()


ready, tell = os.pipe()
child = os.fork()
if child == 0:
    os.close(tell)
    here, port = os.read(ready, 100).decode().split()
    client(AddrInfo(src=here, dst=here, dst_service=port, port_space=ce.RDMA_PS_TCP))
else:
    # An address of the device: pyverbs cannot listen at 127.0.0.1.
    here = str(ipaddress.ip_address(open_device().query_gid(1, 0)).ipv4_mapped)
    # Nor does it tell which port a listener got, so a free one is looked for.
    with socket.create_server((here, 0)) as free:
        port = free.getsockname()[1]
    channel = CMEventChannel()
    listener = CMID(creator=channel, port_space=ce.RDMA_PS_TCP)
    listener.bind_addr(AddrInfo(src=here, src_service=str(port), flags=ce.RAI_PASSIVE))
    listener.listen()
    os.write(tell, f"{here} {port}".encode())
    lines = server(listener, channel)
    # Only when the client has printed its lines, so that they never mix.
    os.waitpid(child, 0)
    print("\n".join(lines))
