# SPDX-License-Identifier: MIT OR Apache-2.0
"""rdmatop records, by netlink, what perftest moves."""

import csv
import os

from lab import DEVICE, SERVER, WHEELS, Program, check, compared, main, run

MESSAGES, SIZE = 5000, 65536


def scenario():
    # It makes the file itself, as the ordinary user that it is; this folder is that user's.
    path = f"{os.getcwd()}/counters.csv"
    record = Program("server", [
        f"{WHEELS}/rdmatop/bin/rdmatop", "--format", "csv", "--output", path,
        "--device", DEVICE, "--interval", 50, "--duration", 12])
    # It keeps most of what it writes until its end.
    record.until(lambda: os.path.exists(path), "records")
    Program("server", f"ib_write_bw -n {MESSAGES} -s {SIZE}").listens(18515)
    run("client", f"ib_write_bw -n {MESSAGES} -s {SIZE} {SERVER}")
    record.ends(30)
    with open(path) as file:
        samples = list(csv.DictReader(file))
    # What ends takes its share along, and the last octets come between two samples.
    grown = {name: max(int(row[name]) for row in samples) - int(samples[0][name])
             for name in ("tx_bytes", "rx_bytes", "tx_pkts", "rx_pkts")}
    check(grown["rx_bytes"] >= MESSAGES * SIZE / 2, f"it saw less than was written: {grown}")
    check(all(grown.values()), f"a counter stands still: {grown}")
    compared(f"at least half of the {MESSAGES} writes of {SIZE} bytes of `ib_write_bw`, as it sees "
             "them come in")


main(scenario)
