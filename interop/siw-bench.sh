#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Bandwidth and latency of perftest on Linux siw, on this project's libraries and of raw TCP, all
# in the same guest and in turn. See README.md for what PEER_VM must offer. Prints a Markdown table.
#
# usage: siw-bench.sh [NAME...]                  only the settings of these names
#        IWARP=FILE                              the command, if not built here
#        ROUNDS=N                                how often each cell is measured (5)
#        DURATION=S                              seconds of each bandwidth measurement (1)
#        LOG=FILE                                keep the measurements; those in it count too
# status: 0 all measured; 1 something could not be; 77 skipped, because there is no peer
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rounds=${ROUNDS:-5}
duration=${DURATION:-1}

# name, MTU of the guest's loopback, CRC
settings() {
	cat <<-'END'
	lo-nocrc        65536   off
	lo-crc          65536   on
	1500-nocrc      1500    off
	1500-crc        1500    on
	END
}

# test, bytes; what follows is measured of each: raw TCP, siw, ours
cells() {
	printf '%s\n' {write,read,send}_bw\ {65536,1048576} {write,read,send}_lat\ 4
}

. "$here/peer.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
IWARP=${IWARP:-${CARGO_TARGET_DIR:-$here/../target}/release/iwarp}
if [ ! -x "$IWARP" ]; then
	cargo build --release --manifest-path "$here/../Cargo.toml" -p iwarp-cli || exit 1
fi
# a copy: it may be built anew meanwhile
mkdir "$work/host" &&
	cp "$IWARP" "$(dirname "$IWARP")"/lib{ibverbs,rdmacm}.so "$work/host" || exit 1
log=${LOG:-$work/log}
: >>"$log"

# What one guest measures: the cells one after the other, the three of a cell in an order that
# changes from round to round. siw may wedge its kernel; the guest then gives up, and the next one
# goes on behind the measurement that did it.
measure() { # ROUND NAME MTU CRC
	local round=$1 name=$2 mtu=$3 crc=$4 orders=("tcp siw iwarp" "iwarp tcp siw" "siw iwarp tcp")
	local siw=0 order=${orders[$((round % 3))]} what
	[ "$crc" = off ] || siw=1
	while read -r cell; do for what in $order; do echo "$cell $what"; done; done < <(cells) \
		>"$work/all"
	cp "$work/all" "$work/host/todo"
	: >"$work/results"
	for _ in 1 2 3 4; do
		timeout -k 20 450 "$PEER_VM/run" --timeout 420 --share "$work/host" \
			--siw "mpa_crc_required=$siw" \
			--env "MTU=$mtu" --env "CRC=$crc" --env "DURATION=$duration" \
			"$here/siw-bench-guest.sh" </dev/null 2>"$work/err" | tee -a "$work/results" |
			sed -n 's/^note /  /p' >&2
		# the guest crosses off the list what it begins
		[ -s "$work/host/todo" ] || break
		echo "  the guest gave up, $(wc -l <"$work/host/todo") measurements left" >&2
		sed 's/^/  /' "$work/err" >&2
	done
	# what has no result, as the guest died of it or never came to it, is none
	awk -v "round=$round $name " '
		file == 1 && $1 == "result" { value[$2 " " $3 " " $4] = $5 }
		file == 2 { print round $0, (($0 in value) ? value[$0] : "nan") }' \
		file=1 "$work/results" file=2 "$work/all" >>"$log"
}

ran=0
before=$(awk '$1 > most { most = $1 } END { print most + 0 }' "$log")
for round in $(seq $((before + 1)) $((before + rounds))); do
	while read -r name mtu crc; do
		if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
		ran=$((ran + 1))
		echo "== round $round of $((before + rounds)): $name" >&2
		measure "$round" "$name" "$mtu" "$crc"
	done < <(settings)
done
if [ $ran = 0 ]; then echo "no setting is called $*" >&2; exit 1; fi

awk -f "$here/siw-bench-table.awk" file=1 <(settings) file=2 <(cells) file=3 "$log"
