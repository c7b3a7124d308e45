#!/usr/bin/env bash
# Unmodified perftest on the drop-in libraries beside raw TCP (qperf), in turn, on one host.
#
#   interop/perftest.sh [ROUNDS]
#
# Needs root (a network namespace of its own, where TCP's congestion control is cubic), perftest and
# qperf: apt-get install perftest qperf. IWARP names the command (default: target/release/iwarp).
set -euo pipefail
cd "$(dirname "$0")/.."

ROUNDS=${1:-7}
IWARP=$(realpath "${IWARP:-target/release/iwarp}")
LAB=iwarp-$$-perftest
WORK=$(mktemp -d)
PERFTEST_PORT=18515
QPERF_PORT=19765

for program in ib_write_bw qperf; do
    command -v "$program" > /dev/null || { echo "missing: apt-get install perftest qperf" >&2; exit 1; }
done

ip netns add "$LAB"
cleanup() {
    ip netns pids "$LAB" | xargs -r kill -9 2> /dev/null || true
    ip netns del "$LAB"
    rm -rf "$WORK"
}
trap cleanup EXIT
inside() { ip netns exec "$LAB" "$@"; }
ip -n "$LAB" link set lo up
ip -n "$LAB" route replace local 127.0.0.1 dev lo table local proto kernel scope host \
    src 127.0.0.1 congctl cubic
inside qperf --listen_port $QPERF_PORT &

listening() {
    local port
    port=$(printf ':%04X' "$1")
    for _ in $(seq 400); do
        inside grep -qs "$port 0\{8,32\}:0000 0A" /proc/net/tcp /proc/net/tcp6 && return
        sleep 0.01
    done
    echo "nobody listens at port $1" >&2
    return 1
}

# Microseconds, or MiB/s: the field of perftest's last line that has the average.
perftest() {
    local crc=$1 program=$2 field=$3
    shift 3
    inside timeout 30 "$IWARP" run --crc "$crc" -- "$program" -R "$@" > "$WORK/server" 2>&1 &
    local server=$!
    listening $PERFTEST_PORT
    inside timeout 30 "$IWARP" run --crc "$crc" -- "$program" -R "$@" 127.0.0.1 > "$WORK/client" 2>&1 \
        || { cat "$WORK/client" >&2; return 1; }
    wait $server
    awk -v field="$field" '$1 ~ /^[0-9]+$/ && NF >= 5 { value = $field } END { print value }' "$WORK/client"
}

# The same of raw TCP: half a round trip, or octets per second.
tcp() {
    inside timeout 30 qperf --listen_port $QPERF_PORT -uu -t 1 -m "$2" 127.0.0.1 "$1" \
        | awk -v test="$1" '/=/ { print (test == "tcp_lat" ? $3 / 1000 : $3 / 1048576) }'
}

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

row() {
    local test=$1 what=$2 size=$3 field=$4 count=$5
    for _ in $(seq "$ROUNDS"); do
        tcp "$test" "$size" >> "$WORK/tcp"
        for program in write read send; do
            for crc in off on; do
                perftest $crc "ib_${program}_$what" "$field" -s "$size" -n "$count" \
                    >> "$WORK/$program-$crc"
            done
        done
    done
    local base
    base=$(median < "$WORK/tcp")
    printf '| %s | %s | %.1f |' "$what" "$size" "$base"
    for program in write read send; do
        for crc in off on; do
            median < "$WORK/$program-$crc" | awk -v base="$base" '{ printf " %.1f (%.2f x) |", $1, $1 / base }'
        done
    done
    echo
    rm -f "$WORK"/tcp "$WORK"/*-on "$WORK"/*-off
}

listening $QPERF_PORT
echo "| | size | TCP | write | write, CRC | read | read, CRC | send | send, CRC |"
echo "|---|---|---|---|---|---|---|---|---|"
# The average bandwidth is perftest's fourth field, the typical latency its fifth.
row tcp_bw bw 4096 4 20000
row tcp_bw bw 65536 4 20000
row tcp_bw bw 1048576 4 2000
row tcp_lat lat 4 5 20000
row tcp_lat lat 4096 5 20000
row tcp_lat lat 65536 5 5000
