#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has others judge the ICRC of each RoCE v2 packet of a capture: what it says, what it should be.

usage: icrc.py CAPTURE [SENDER...]     IP addresses whose packets count; all, if none are named

IPv4: computed by scapy (contrib/roce.py). IPv6, which scapy cannot do: computed here by zlib, as are
the ones of IPv4 once more. tshark, where it is installed, takes the packets apart, and must find the
same four octets to be the ICRC, where it finds one (4.0 does not in a Send of no octets); it does not
compute it.
Prints a table. status: 0 all are right; 1 some are not, or there are none; 77 no scapy
"""

import ipaddress
import shutil
import subprocess
import sys
import zlib
from collections import defaultdict

try:
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP
    from scapy.utils import RawPcapReader
except ImportError:
    print("SKIPPED: icrc.py needs scapy (Debian: python3-scapy)", file=sys.stderr)
    sys.exit(77)

ETHERNET = 14
UDP = 17
PORT = 4791
# scapy has no names for them
NAMES = {0x16: "RC_SEND_LAST_WITH_INVALIDATE", 0x17: "RC_SEND_ONLY_WITH_INVALIDATE", 0x81: "CNP"}


def packet_of(frame):
    """The IP version, sender, and IP packet of a frame with RoCE v2."""
    kind, packet = frame[12:14], frame[ETHERNET:]
    if kind == b"\x08\x00" and packet[9] == UDP:
        version, header, length = 4, 20, int.from_bytes(packet[2:4], "big")
        sender = packet[12:16]
    elif kind == b"\x86\xdd" and packet[6] == UDP:
        version, header, length = 6, 40, 40 + int.from_bytes(packet[4:6], "big")
        sender = packet[8:24]
    else:
        return None
    if int.from_bytes(packet[header + 2 : header + 4], "big") != PORT:
        return None
    return version, str(ipaddress.ip_address(sender)), packet[:length]


def computed_here(version, packet):
    """What changes on the way counts as ones, as do the eight bytes of the missing LRH."""
    octets = bytearray(packet[:-4])
    if version == 4:
        header, ones = 20, [1, 8, 10, 11]
    else:
        header, ones = 40, [1, 2, 3, 7]
        octets[0] |= 0x0F
    for at in ones + [header + 6, header + 7, header + 8 + 4]:
        octets[at] = 0xFF
    return zlib.crc32(octets, zlib.crc32(b"\xff" * 8)).to_bytes(4, "little")


def computed_by_scapy(packet):
    return IP(packet)[BTH].compute_icrc(b"")


def seen_by_tshark(capture):
    """What tshark takes for the ICRC, by number of the frame."""
    if not shutil.which("tshark"):
        return None
    fields = ["frame.number", "infiniband.invariant.crc"]
    command = ["tshark", "-r", capture, "-Y", "infiniband", "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = (line.split("\t") for line in out.splitlines())
    return {int(number): int(crc, 16).to_bytes(4, "big") for number, crc in lines if crc}


def main(capture, senders):
    senders = {str(ipaddress.ip_address(sender)) for sender in senders}
    tshark = seen_by_tshark(capture)
    names = NAMES | BTH().get_field("opcode").i2s
    counts = defaultdict(lambda: [0, 0, 0, 0])
    for number, (frame, _) in enumerate(RawPcapReader(capture), 1):
        found = packet_of(frame)
        if not found or senders and found[1] not in senders:
            continue
        version, _, packet = found
        bth = packet[28 if version == 4 else 48 :]
        name = names.get(bth[0], f"{bth[0]:#x}")
        name += {b"\0\0\1": ", to queue pair 1", b"\xff\xff\xff": ", multicast"}.get(bth[5:8], "")
        count = counts[f"IPv{version}", name]
        icrc = packet[-4:]
        count[0] += 1
        count[1] += computed_here(version, packet) != icrc
        count[2] += version == 4 and computed_by_scapy(packet) != icrc
        count[3] += tshark is not None and tshark.get(number, icrc) != icrc
    print("| | Packet | Packets | ICRC wrong: by zlib | by scapy | tshark sees another |")
    print("|---|---|---|---|---|---|")
    total = defaultdict(lambda: [0, 0, 0, 0])
    for (family, name), count in sorted(counts.items()):
        total[family] = [a + b for a, b in zip(total[family], count)]
        row(family, name, count, tshark)
    for family, count in sorted(total.items()):
        row(family, "all", count, tshark)
    return 0 if total and not any(sum(count[1:]) for count in total.values()) else 1


def row(family, name, count, tshark):
    packets, here, scapy, other = count
    scapy = scapy if family == "IPv4" else "-"
    other = other if tshark is not None else "-"
    print(f"| {family} | {name} | {packets} | {here} | {scapy} | {other} |")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
