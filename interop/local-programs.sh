#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Unmodified programs whose two ends are on one host: by TCP, in shared memory, and with the heaps
# shared, in turn; with the yardsticks of the very run: raw TCP, a copy within a process, one call
# that copies to another process, and UCX by shared memory.
#
#   interop/local-programs.sh [ROUNDS]
#
# Prints the median over ROUNDS runs (default: 5) and the quartiles. Needs two idle CPUs, python3,
# a C compiler, perftest and ucx-utils. IWARP names the command (default: target/release/iwarp).
set -euo pipefail
cd "$(dirname "$0")/.."

ROUNDS=${1:-5}
IWARP=$(realpath "${IWARP:-target/release/iwarp}")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
for program in python3 cc ib_write_lat ucx_perftest; do
    command -v "$program" > /dev/null && continue
    echo "missing: apt-get install python3 gcc libc6-dev perftest ucx-utils" >&2
    exit 1
done
cc -O2 -o "$WORK/anchors" interop/anchors.c

# listening PORT: waits until a server listens.
listening() {
    for _ in $(seq 200); do
        grep -q ":$(printf %04X "$1") 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 && return
        sleep 0.02
    done
    echo "no server listens at port $1" >&2
    exit 1
}

# pair PORT COMMAND...: the command as server on CPU 1 and as client on CPU 0; prints what that says.
pair() {
    local port=$1
    shift
    taskset -c 1 "$@" > "$WORK/server" 2>&1 &
    listening "$port"
    taskset -c 0 timeout 60 "$@" 127.0.0.1 2> /dev/null
    wait $!
}

# perftest WAY PROGRAM OPTIONS...: µs (typical) or GB/s (average).
perftest() {
    local way=$1 options=() local=auto
    shift
    case $way in off) local=off ;; heap) options=(--shared-heap) ;; esac
    IWARP_LOCAL=$local pair 18515 "$IWARP" run "${options[@]}" "$@" |
        awk -v lat="$([[ $1 = *_lat ]] && echo 1 || echo 0)" \
            '$1 ~ /^[0-9]+$/ && NF >= 4 { print lat ? $5 : $4 * 1048576 / 1e9; exit }'
}

# ucx TEST SIZE: likewise.
ucx() {
    UCX_TLS=posix,cma pair 13337 ucx_perftest -t "$1" -s "$2" -n "$([ "$2" -gt 1000 ] && echo 20000 || echo 500000)" |
        awk -v lat="$([[ $1 = *_lat ]] && echo 1 || echo 0)" \
            '/^Final:/ { print lat ? $3 : $6 * 1048576 / 1e9 }'
}

say() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >> "$WORK/results"; }

for _ in $(seq "$ROUNDS"); do
    say "raw TCP, half round trip of 4 bytes" "" "$("$WORK/anchors" tcp-latency)"
    say "UCX put, tag: half round trip of 4 bytes" put "$(ucx ucp_put_lat 4)"
    say "UCX put, tag: half round trip of 4 bytes" tag "$(ucx tag_lat 4)"
    for program in write send read atomic; do
        size=(-s 4)
        [ "$program" = atomic ] && size=()
        for way in off auto heap; do
            say "ib_${program}_lat, 4 bytes (atomic: 8)" $way \
                "$(perftest $way ib_${program}_lat "${size[@]}" -n 20000)"
        done
    done
    for size in 4096 65536 1048576; do
        say "memcpy, $size bytes" "" "$("$WORK/anchors" copy $size)"
        say "process_vm_writev, $size bytes" "" "$("$WORK/anchors" cma $size)"
        say "raw TCP, $size bytes" "" "$("$WORK/anchors" tcp $size)"
        say "UCX put, $size bytes" "" "$(ucx ucp_put_bw $size)"
        for program in write read send; do
            for way in off auto heap; do
                say "ib_${program}_bw, $size bytes" $way \
                    "$(perftest $way ib_${program}_bw -s $size -D 1)"
            done
        done
    done
done

python3 - "$WORK/results" << 'END'
import statistics, sys

rows = {}
with open(sys.argv[1]) as file:
    for line in file:
        name, way, value = line.rstrip("\n").split("\t")
        if not value:
            sys.exit(f"{name}, {way}: printed no result")
        rows.setdefault(name, {}).setdefault(way, []).append(float(value))
print("µs for latencies, GB/s else; median [quartiles]; off: by TCP, auto: in shared memory, heap: and with --shared-heap")
for name, ways in rows.items():
    told = []
    for way, values in ways.items():
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        told.append(f"{way} {middle:.2f} [{low:.2f}-{high:.2f}]".strip())
    print(f"{name}: " + "; ".join(told))
END
