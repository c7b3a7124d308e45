#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Half round trips of unmodified perftest on the drop-in libraries beside raw TCP that spins and raw
# TCP that blocks, in turn, over loopback.
#
#   interop/perftest-latency.sh [ROUNDS]
#
# Needs two CPUs, perftest and a C compiler: apt-get install perftest gcc libc6-dev. LIBS names the
# folder of libibverbs.so.1 and librdmacm.so.1 (default: those that `cargo build --release -p
# iwarp-ibverbs -p iwarp-rdmacm` has made).
set -euo pipefail
cd "$(dirname "$0")/.."
. interop/measure.sh

ROUNDS=${1:-5}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
need "perftest gcc libc6-dev" ib_write_lat cc
cc -O2 -o "$WORK/tcp" interop/tcp-pingpong.c
if [ -z "${LIBS:-}" ]; then
    LIBS=$WORK/lib
    mkdir "$LIBS"
    for name in libibverbs librdmacm; do
        cp "target/release/deps/$name.so" "$LIBS/$name.so.1"
    done
fi

# The typical time of a program whose server has CPU $1 and whose client has CPU $2.
typical() {
    local server=$1 client=$2 personality=$3
    shift 3
    local with=(env LD_LIBRARY_PATH="$LIBS" IWARP_PERSONALITY="$personality" IWARP_LOG=error)
    "${with[@]}" timeout 60 taskset -c "$server" "$@" -F -s 4 > "$WORK/server" 2>&1 &
    for _ in $(seq 400); do
        grep -qs ":4853 0\{8,32\}:0000 0A" /proc/net/tcp /proc/net/tcp6 && break
        sleep 0.01
    done
    "${with[@]}" timeout 60 taskset -c "$client" "$@" -F -s 4 127.0.0.1 > "$WORK/client" 2>&1 \
        || { cat "$WORK/client" >&2; return 1; }
    wait $!
    awk '$1 == 4 && NF >= 5 { print $5 }' "$WORK/client"
}

for _ in $(seq "$ROUNDS"); do
    "$WORK/tcp" spin 20000 4 >> "$WORK/spin"
    "$WORK/tcp" apart 5000 4 >> "$WORK/apart"
    taskset -c 0 "$WORK/tcp" block 5000 4 >> "$WORK/block-same"
    for personality in iwarp roce; do
        typical 0 1 $personality ib_write_lat -n 20000 >> "$WORK/write-$personality"
        typical 0 1 $personality ib_send_lat -n 20000 >> "$WORK/send-$personality"
        typical 0 1 $personality ib_send_lat -e -n 5000 >> "$WORK/events-$personality"
        typical 0 0 $personality ib_send_lat -e -n 5000 >> "$WORK/same-$personality"
    done
done

row() { printf '| %s | %s | %s |\n' "$1" "$(median "$2-iwarp")" "$(median "$2-roce")"; }
echo "Raw TCP, half round trips in microseconds: spinning $(median spin)," \
    "blocking $(median apart), both ends on one CPU $(median block-same)"
echo "| half round trip of 4 bytes, microseconds | iwarp | roce |"
echo "|---|---|---|"
row ib_write_lat write
row ib_send_lat send
row "ib_send_lat -e, a CPU each" events
row "ib_send_lat -e, both ends on one CPU" same
