# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints the number of each packet of a capture (raw IP) whose ICRC scapy finds wrong, then how
many it looked at."""

import sys
import zlib

from scapy.compat import raw
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.utils import RawPcapReader


def of_ipv6(packet, octets):
    """As scapy does it for IPv4 alone: the fields that routers change are all ones."""
    masked = packet.copy()
    masked.tc, masked.fl, masked.hlim = 0xFF, 0xFFFFF, 0xFF
    masked[UDP].chksum = 0xFFFF
    head = raw(masked)[:48]
    bth = octets[48:52] + b"\xff" + octets[53:-4]
    return zlib.crc32(b"\xff" * 8 + head + bth).to_bytes(4, "little")


seen = 0
for octets, _ in RawPcapReader(sys.argv[1]):
    seen += 1
    if octets[0] >> 4 == 4:
        icrc = IP(octets)[BTH].compute_icrc(octets[28:])
    else:
        icrc = of_ipv6(IPv6(octets), octets)
    if icrc != octets[-4:]:
        print("packet", seen, "has", octets[-4:].hex(), "not", icrc.hex())
print("looked at", seen)
