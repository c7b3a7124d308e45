#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Unmodified perftest on the drop-in libraries beside raw TCP (qperf), in turn, on one host.
#
#   interop/perftest.sh [ROUNDS]
#
# Needs root (a network namespace of its own, where TCP's congestion control is cubic), perftest and
# qperf: apt-get install perftest qperf. IWARP names the command (default: target/release/iwarp).
set -euo pipefail
cd "$(dirname "$0")/.."
. interop/measure.sh

ROUNDS=${1:-7}
IWARP=$(realpath "${IWARP:-target/release/iwarp}")
need "perftest qperf" ib_write_bw qperf
WORK=$(mktemp -d)
lab iwarp-$$-perftest

# Of raw TCP: half a round trip in microseconds, or MiB/s.
tcp() {
    inside timeout 30 qperf --listen_port $QPERF_PORT -uu -t 1 -m "$2" 127.0.0.1 "$1" \
        | awk -v test="$1" '/=/ { print (test == "tcp_lat" ? $3 / 1000 : $3 / 1048576) }'
}

row() {
    local test=$1 what=$2 size=$3 field=$4 count=$5
    for _ in $(seq "$ROUNDS"); do
        tcp "$test" "$size" >> "$WORK/tcp"
        for program in write read send; do
            for crc in off on; do
                SERVER=(timeout 30 "$IWARP" run --crc "$crc" --)
                CLIENT=("${SERVER[@]}")
                perftest "$field" "ib_${program}_$what" -R -s "$size" -n "$count" \
                    >> "$WORK/$program-$crc"
            done
        done
    done
    local base
    base=$(median tcp)
    printf '| %s | %s | %.1f |' "$what" "$size" "$base"
    for program in write read send; do
        for crc in off on; do
            median "$program-$crc" | awk -v base="$base" '{ printf " %.1f (%.2f x) |", $1, $1 / base }'
        done
    done
    echo
    rm -f "$WORK"/tcp "$WORK"/*-on "$WORK"/*-off
}

echo "| | size | TCP | write | write, CRC | read | read, CRC | send | send, CRC |"
echo "|---|---|---|---|---|---|---|---|---|"
row tcp_bw bw 4096 4 20000
row tcp_bw bw 65536 4 20000
row tcp_bw bw 1048576 4 2000
row tcp_lat lat 4 5 20000
row tcp_lat lat 4096 5 20000
row tcp_lat lat 65536 5 5000
