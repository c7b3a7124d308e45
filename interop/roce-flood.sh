#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Floods one end of an idle RC connection over RoCE v2 with packets that mean harm, one kind after
# the other, and measures what the process pays for each; then both ends walk through all steps of
# rxe_peer, under the last kinds of flood, to see that nothing is broken. The same packets to a bare
# recvmmsg come first: what they cost is held against it. Needs no peer.
#
# usage: roce-flood.sh [KIND...]       icrc qpn ahead behind ack cnp mad
#        BIN=DIR                       our command and libraries, if not built here
#        FOR=SECONDS                   for each kind (4)
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BIN=${BIN:-${CARGO_TARGET_DIR:-$here/../target}/release}
kinds=${*:-icrc qpn ahead behind ack cnp mad}
seconds=${FOR:-4}
work=$(mktemp -d) || exit 1
one= two= flood=
cleanup() {
	for pid in $one $two $flood; do kill "$pid" 2>/dev/null; done
	rm -rf "$work"
}
trap cleanup EXIT
cc -O2 -o "$work/rxe_peer" "$here/rxe_peer.c" -libverbs || exit 1
cc -O2 -o "$work/roce_flood" "$here/roce_flood.c" || exit 1
export IWARP_WIRE=roce
run=("$BIN/iwarp" run --personality roce --)
# the index of ::1 among the GIDs
gid=$("${run[@]}" ibv_devinfo -v | sed -n 's/.*GID\[ *\([0-9]*\)\]:[[:space:]]*::1,.*/\1/p')
total=$((seconds * ($(wc -w <<<"$kinds") + 2) + 10))
port=18999
"${run[@]}" "$work/rxe_peer" -g "$gid" -w $total -s 5 $port >"$work/one" 2>&1 &
one=$!
until grep -qE ":$(printf %04X $port) [0-9A-F:]* 0A " /proc/net/tcp6; do sleep 0.1; done
"${run[@]}" "$work/rxe_peer" -g "$gid" -w $total -s 5 $port ::1 >"$work/two" 2>&1 &
two=$!
until grep -q waits "$work/one" && grep -q waits "$work/two"; do
	kill -0 $one $two || { cat "$work"/one "$work"/two; exit 1; }
	sleep 0.1
done
read -r qp psn < <(sed -n 's/waits as \(.*\), expects \(.*\)/\1 \2/p' "$work/one")
ticks=$(getconf CLK_TCK)
# of both: either may be the one that reads queue pair 1 for all
cpu() { cat "/proc/$one/stat" "/proc/$two/stat" | awk '{ sub(/.*\) /, ""); sum += $12 + $13 } END { print sum }'; }
memory() { awk '/VmRSS/ { sum += $2 } END { print sum }' "/proc/$one/status" "/proc/$two/status"; }
count() { awk -v name="$1" '$1 == name { print $2 }' /proc/net/snmp6; }
files() { ls "/proc/$one/fd" "/proc/$two/fd" | grep -c '^[0-9]'; }
bare= # us that a bare recvmmsg pays for a packet
yardstick() {
	local sent taken used other=4799
	"$work/roce_flood" sink ::1 $other >"$work/sink" &
	flood=$!
	until grep -qE ":$(printf %04X $other) " /proc/net/udp6; do sleep 0.1; done
	sent=$("$work/roce_flood" behind "$seconds" ::1 ::1 "$qp" "$psn" $other)
	wait $flood
	flood=
	read -r taken used <"$work/sink"
	bare=$(awk -v taken="$taken" -v used="$used" 'BEGIN { printf "%.3f", used / taken }')
	printf "| bare recvmmsg | %d | %d | %.2f | %.2f | 1 | - | - |\n" "$sent" "$taken" \
		"$(awk -v used="$used" 'BEGIN { print used / 1e6 }')" "$bare"
}
measure() { # KIND: a line of the table
	local before_cpu before_in sent=0 used taken
	before_cpu=$(cpu) before_in=$(count Udp6InDatagrams)
	if [ "$1" = idle ]; then sleep "$seconds"; else sent=$("$work/roce_flood" "$1" "$seconds" ::1 ::1 "$qp" "$psn"); fi
	sleep 0.3
	used=$(($(cpu) - before_cpu)) taken=$(($(count Udp6InDatagrams) - before_in))
	awk -v kind="$1" -v sent="$sent" -v taken=$taken -v used=$used -v ticks="$ticks" -v kb="$(memory)" \
		-v files="$(files)" -v bare="$bare" 'BEGIN {
		us = taken && sent ? used / ticks / taken * 1e6 : 0
		printf "| %s | %d | %d | %.2f | %s | %s | %d | %d |\n", kind, sent, taken, used / ticks,
			us ? sprintf("%.2f", us) : "-", us ? sprintf("%.2f", us / bare) : "-", kb, files }'
}
echo "| Packets | sent | taken by sockets | CPU, s | CPU, us each | x bare | resident, KiB | descriptors |"
echo "|---|---|---|---|---|---|---|---|"
yardstick
measure idle
for kind in $kinds; do measure "$kind"; done
# and while they work
(while :; do for kind in $kinds; do "$work/roce_flood" "$kind" 0.2 ::1 ::1 "$qp" "$psn" >/dev/null; done; done) &
flood=$!
wait $one
status=$?
one=
wait $two
status=$status$?
two=
kill $flood; wait $flood 2>/dev/null
flood=
echo
sed '/^waits/d' "$work/one" "$work/two"
[ $status = 00 ]
