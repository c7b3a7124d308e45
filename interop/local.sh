#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Connections within one host: TCP and shared memory in turn, with the raw TCP of the very run.
#
#   interop/local.sh [ROUNDS]
#
# Prints the median over ROUNDS runs of each way (default: 5), its quotient to the other way, its
# quotient to raw TCP in the run, and the CPU time of both ends. Needs two idle CPUs and python3.
# IWARP names the command (default: target/release/iwarp).
set -euo pipefail
cd "$(dirname "$0")/.."

ROUNDS=${1:-5}
IWARP=$(realpath "${IWARP:-target/release/iwarp}")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
command -v python3 > /dev/null || { echo "missing: apt-get install python3" >&2; exit 1; }

# The test, and the sizes.
while read -r name arguments; do
    for round in $(seq "$ROUNDS"); do
        for way in off auto; do
            # shellcheck disable=SC2086
            IWARP_LOCAL=$way "$IWARP" perf $arguments --crc on --rounds 9 \
                --json "$WORK/$name.$way.$round" > /dev/null 2>&1
        done
    done
done << END
latency lat --size 4 --wait poll,events
bandwidth bw --size 4K,64K,1M
END

python3 - "$WORK" << 'END'
import json, os, statistics, sys

runs = {}
for name in sorted(os.listdir(sys.argv[1])):
    way = name.split(".")[1]
    with open(os.path.join(sys.argv[1], name)) as file:
        cases = json.load(file)["cases"]
    for case in cases:
        yardstick = None
        for subject in case["subjects"]:
            if subject["transport"] == "tcp":
                yardstick = subject["median"]
            key = (case["measure"], case["size"], subject["name"])
            cpu = sum(subject[end]["us_per_message"] for end in ("client_cpu", "server_cpu"))
            versus = (subject["versus"] or {}).get("ratio", subject["median"] / yardstick)
            runs.setdefault(key, {}).setdefault(way, []).append((subject["median"], versus, cpu))
print("measure, bytes, operation: over TCP -> in shared memory (quotient); x raw TCP; CPU us a message")
for (measure, size, name), ways in runs.items():
    if name.startswith("TCP") or set(ways) != {"off", "auto"}:
        continue
    off, auto = ([statistics.median(column) for column in zip(*ways[way])] for way in ("off", "auto"))
    scale, unit = (1e6, "us") if "latency" in measure or "round" in measure else (1e-9, "GB/s")
    print(f"{measure}, {size}, {name}: {off[0] * scale:.2f} -> {auto[0] * scale:.2f} {unit} "
          f"({auto[0] / off[0]:.2f}); {off[1]:.2f} -> {auto[1]:.2f}; {off[2]:.2f} -> {auto[2]:.2f}")
END
