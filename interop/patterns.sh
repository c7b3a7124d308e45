#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The patterns of PyTorch's RPC and of NIXL, by verbs and by TCP in turn (patterns.c).
#
#   interop/patterns.sh [ROUNDS [loopback|veth [WITHOUT]]]
#
# With WITHOUT, each row by verbs is also measured with IWARP_WITHOUT=WITHOUT at both ends. Needs
# root (network namespaces of its own) and a C compiler with the headers of libibverbs:
# apt-get install gcc libibverbs-dev. IWARP names the command (default: target/release/iwarp), OPTIONS are
# options of `iwarp run`, such as --shared-heap.
set -euo pipefail
cd "$(dirname "$0")/.."

ROUNDS=${1:-5}
PLACE=${2:-loopback}
WITHOUT=${3:-}
IWARP=$(realpath "${IWARP:-target/release/iwarp}")
WORK=$(mktemp -d)
A=iwarp-$$-a B=iwarp-$$-b ADDRESS=127.0.0.1
trap 'for host in $A $B; do ip netns pids $host | xargs -r kill -9; ip netns del $host; done 2> /dev/null
    rm -rf "$WORK"' EXIT
gcc -O2 -Wall -o "$WORK/patterns" interop/patterns.c -libverbs -lpthread \
    || { echo "missing: apt-get install gcc libibverbs-dev" >&2; exit 1; }
for host in $A $B; do
    ip netns add $host
    ip -n $host link set lo up
done
CLIENT=$A
if [ "$PLACE" = veth ]; then
    CLIENT=$B ADDRESS=10.77.0.1
    ip link add eth0 netns $A mtu 1500 type veth peer name eth0 netns $B mtu 1500
    ip -n $A address add $ADDRESS/24 dev eth0
    ip -n $B address add 10.77.0.2/24 dev eth0
    ip -n $A link set eth0 up
    ip -n $B link set eth0 up
fi

# One run: pattern, way, octets of a piece, rounds, and a setting of the ends by verbs.
run() {
    local command=(env "${5:-IWARP_WITHOUT=}")
    # shellcheck disable=SC2206
    [ "$2" = tcp ] || command+=("$IWARP" run ${OPTIONS:-} --)
    ip netns exec $A timeout 60 "${command[@]}" "$WORK/patterns" "$1" "$2" serve 7471 "$3" "$4" &
    until ip netns exec $A grep -qs ':1D2F 0\{8\}:0000 0A' /proc/net/tcp; do sleep 0.01; done
    ip netns exec $CLIENT timeout 60 "${command[@]}" "$WORK/patterns" "$1" "$2" $ADDRESS 7471 "$3" "$4"
    wait $!
}

median() { sort -n "$1" | awk '{ value[NR] = $0 } END { print value[int((NR + 1) / 2)] }'; }

# A row: its title, the median of the speed, the ratio to TCP's, and both ends' CPU time.
row() {
    echo "$1 $(median "$2") $(median "$3")" | awk -v title="$4" \
        '{ printf "%s, %s: %s MiB/s, %.2f x TCP, CPU %s and %s ms/GiB\n", title, $1, $2, $2 / $5, $3, $4 }' FS=' (MiB/s )?'
}

echo "$PLACE, $ROUNDS rounds; CPU time of the client and of the server"
while read -r pattern piece rounds title; do
    ways=(tcp verbs)
    [ -z "$WITHOUT" ] || ways+=(without)
    for _ in $(seq "$ROUNDS"); do
        for way in "${ways[@]}"; do
            setting="IWARP_WITHOUT="
            [ $way != without ] || setting="IWARP_WITHOUT=$WITHOUT"
            run "$pattern" "${way/without/verbs}" "$piece" "$rounds" "$setting" >> "$WORK/$pattern-$piece-$way"
        done
    done
    for way in "${ways[@]}"; do
        row "$way" "$WORK/$pattern-$piece-$way" "$WORK/$pattern-$piece-tcp" "$title"
    done
done << 'END'
ring 2097152 16 tensors of 16 MiB by way of rings of 2 MiB
reads 8256 6 Reads of 8 KiB
reads 524288 16 Reads of 512 KiB
writes 524288 16 Writes of 512 KiB
END
