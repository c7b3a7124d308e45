#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Unmodified perftest over RoCE v2 from user space, beside plain UDP and raw TCP, in turn, on one host.
#
#   interop/roce-speed.sh [ROUNDS]
#
# Needs root (a network namespace of its own, where TCP's congestion control is cubic), two CPUs,
# perftest, qperf and a C compiler: apt-get install perftest qperf gcc libc6-dev zlib1g-dev. IWARP
# names the command (default: target/release/iwarp).
set -euo pipefail
cd "$(dirname "$0")/.."
. interop/measure.sh

ROUNDS=${1:-5}
IWARP=$(realpath "${IWARP:-target/release/iwarp}")
need "perftest qperf gcc libc6-dev zlib1g-dev" ib_send_lat qperf cc
WORK=$(mktemp -d)
lab iwarp-$$-roce-speed
cc -O2 -o "$WORK/udp" interop/udp-yardstick.c -lz
SERVER=(env IWARP_WIRE=roce timeout 60 taskset -c 1 "$IWARP" run --)
CLIENT=(env IWARP_WIRE=roce timeout 60 taskset -c 0 "$IWARP" run --)

# Raw TCP in MiB/s.
tcp() {
    inside timeout 30 qperf --listen_port $QPERF_PORT -uu -t 2 -m "$1" 127.0.0.1 tcp_bw \
        | awk '$1 == "bw" { printf "%.1f\n", $3 / 1048576 }'
}

SIZES=(65536 1048576)
MTUS=(4096 1024)
for _ in $(seq "$ROUNDS"); do
    inside "$WORK/udp" spin 20000 4 >> "$WORK/spin"
    perftest 5 ib_send_lat -F -c UD -s 4 -n 20000 >> "$WORK/lat"
    inside "$WORK/udp" crc 20000 4 >> "$WORK/crc"
    inside "$WORK/udp" list 2 64 >> "$WORK/list"
    perftest 5 ib_send_bw -F -c UD -s 64 -l 32 -D 2 | awk '{ print $1 * 1e6 }' >> "$WORK/rate"
    for size in "${SIZES[@]}"; do
        tcp "$size" >> "$WORK/tcp-$size"
        for mtu in "${MTUS[@]}"; do
            perftest 4 ib_write_bw -F -c RC -m "$mtu" -s "$size" -D 2 >> "$WORK/write-$size-$mtu"
        done
    done
done

ratio() { awk -v ours="$(median "$1")" -v theirs="$(median "$2")" 'BEGIN { printf "%.2f", ours / theirs }'; }
echo "| What | ours | yardstick | x |"
echo "|---|---|---|---|"
row() { echo "| $1 | $(median "$2") $4 | $(median "$3") $4 | $(ratio "$2" "$3") |"; }
row "UD, half round trip of 4 bytes; UDP with two CRCs" lat crc µs
row "the same; UDP" lat spin µs
row "UD, 64 bytes in lists of 32; bare sendmmsg" rate list /s
for size in "${SIZES[@]}"; do
    for mtu in "${MTUS[@]}"; do
        row "RC, Writes of $size bytes, PMTU $mtu; raw TCP" "write-$size-$mtu" "tcp-$size" MiB/s
    done
done
