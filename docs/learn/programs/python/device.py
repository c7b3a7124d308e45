"""Which RDMA devices are there, and what can they do?"""

import sys

import pyverbs.device
import pyverbs.enums as e

devices = pyverbs.device.get_device_list()
if not devices:
    sys.exit("no RDMA device: did you start this by `iwarp run`?")
for found in devices:
    device = pyverbs.device.Context(name=found.name.decode())
    can = device.query_device()
    port = device.query_port(1)
    print("device", found.name.decode())
    print("  port 1:", "active" if port.state == e.IBV_PORT_ACTIVE else "not active")
    print("  atomics:", "no" if can.atomic_caps == e.IBV_ATOMIC_NONE else "yes")
    print("  Reads under way at a time:", can.max_qp_rd_atom)
    device.close()
