#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Unmodified perftest on a busy host: RC Writes over RoCE v2 and over iWARP, beside raw TCP, in turn.
#
#   interop/roce-busy.sh [ROUNDS [LOOPS]]
#
# LOOPS busy loops (20) compete for the processors. Needs root (a network namespace of its own),
# perftest, qperf, setpriv: apt-get install perftest qperf util-linux. IWARP names the command
# (default: target/release/iwarp). The programs have no CAP_NET_ADMIN, so that net.core.rmem_max
# limits their receive buffer, as it does for a user's.
set -euo pipefail
cd "$(dirname "$0")/.."
. interop/measure.sh

ROUNDS=${1:-5}
LOOPS=${2:-20}
IWARP=$(realpath "${IWARP:-target/release/iwarp}")
need "perftest qperf util-linux" ib_write_bw qperf setpriv
WORK=$(mktemp -d)
lab iwarp-$$-roce-busy
loops=()
trap 'kill "${loops[@]}" 2> /dev/null; leave' EXIT
for _ in $(seq "$LOOPS"); do
    sh -c 'while :; do :; done' &
    loops+=($!)
done

for _ in $(seq "$ROUNDS"); do
    inside timeout 60 qperf --listen_port $QPERF_PORT -uu -t 4 -m 65536 127.0.0.1 tcp_bw \
        | awk '$1 == "bw" { printf "%.1f\n", $3 / 1048576 }' >> "$WORK/tcp"
    for wire in roce iwarp; do
        SERVER=(env IWARP_WIRE=$wire timeout 100 setpriv --bounding-set -net_admin
            --inh-caps -net_admin "$IWARP" run --)
        CLIENT=("${SERVER[@]}")
        perftest 4 ib_write_bw -F -c RC -s 65536 -D 4 >> "$WORK/$wire"
    done
done

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }
tcp=$(median "$WORK/tcp")
echo "$LOOPS busy loops, net.core.rmem_max $(cat /proc/sys/net/core/rmem_max): MiB/s, Writes of 64 KiB"
echo "raw TCP $tcp"
for wire in roce iwarp; do
    mine=$(median "$WORK/$wire")
    awk -v wire=$wire -v mine="$mine" -v tcp="$tcp" \
        'BEGIN { printf "%s %s, %.2f x raw TCP\n", wire, mine, mine / tcp }'
done
