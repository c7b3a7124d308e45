# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prometheus' node exporter counts what perftest has moved."""

import re

from lab import DEVICE, SERVER, Program, check, compared, main, package, run

PORT = 9100


def scenario():
    package("prometheus-node-exporter")
    Program("server", [
        "sh", "-c", "exec prometheus-node-exporter --path.sysfs=$IWARP_SYSFS/sys "
        "--collector.disable-defaults --collector.infiniband "
        f"--web.listen-address=0.0.0.0:{PORT}"], name="exporter").listens(PORT)

    def read():
        command = ["/usr/bin/python3", "-c", "import urllib.request as r; print(r.urlopen("
                   f"'http://{SERVER}:{PORT}/metrics').read().decode())"]
        said = run("client", command, 20, iwarp=False)
        found = re.findall(r"^(node_infiniband_\w+)\{([^}]*)\} (\S+)", said, re.M)
        return {name: float(value) for name, labels, value in found if DEVICE in labels}

    before = read()
    check(before, "no counters of the device")
    Program("server", "ib_write_bw -n 200").listens(18515)
    run("client", f"ib_write_bw -n 200 {SERVER}")
    after = read()
    grown = sorted(name for name in after if after[name] > before[name])
    check(any("packets" in name for name in grown), f"no counter of packets grows: {after}")
    compared(f"counters before and after `ib_write_bw`: {len(after)}, of which {len(grown)} grow")


main(scenario)
