# SPDX-License-Identifier: MIT OR Apache-2.0
# What the scripts share that measure. They set WORK, a folder for what is measured, before they call.
# shellcheck shell=bash

PERFTEST_PORT=18515
QPERF_PORT=19765

# Ends where one of the programs $2... is missing, which are in the packages $1.
need() {
    local packages=$1 program
    shift
    for program; do
        command -v "$program" > /dev/null || { echo "missing: apt-get install $packages" >&2; exit 1; }
    done
}

# Makes the network namespace $1 with TCP as on most hosts and qperf in it. All goes with the script.
lab() {
    LAB=$1
    ip netns add "$LAB"
    trap leave EXIT
    ip -n "$LAB" link set lo up
    ip -n "$LAB" route replace local 127.0.0.1 dev lo table local proto kernel scope host \
        src 127.0.0.1 congctl cubic
    inside qperf --listen_port $QPERF_PORT &
    listening $QPERF_PORT
}

leave() {
    ip netns pids "$LAB" | xargs -r kill -9 2> /dev/null || true
    ip netns del "$LAB"
    rm -rf "$WORK"
}

inside() { ip netns exec "$LAB" "$@"; }

# Waits until somebody in the lab listens at port $1.
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

# Field $1 of the last line of numbers of the client of perftest's program $2 with the options
# behind: the fourth is the average bandwidth, the fifth the typical latency. SERVER and CLIENT say
# by what the two are run.
perftest() {
    local field=$1
    shift
    inside "${SERVER[@]}" "$@" > "$WORK/server" 2>&1 &
    local pid=$!
    listening $PERFTEST_PORT
    inside "${CLIENT[@]}" "$@" 127.0.0.1 > "$WORK/client" 2>&1 || { cat "$WORK/client" >&2; return 1; }
    wait $pid
    awk -v field="$field" '$1 ~ /^[0-9]+$/ && NF >= 5 { value = $field } END { print value }' "$WORK/client"
}

# The median of the numbers in the file $1, one a line.
median() { sort -g "$WORK/$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
