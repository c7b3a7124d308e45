#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `iwarp conform` against Linux siw as a server and as a client, with CRCs and without. The program
# on siw is conform_target.c. See README.md for what PEER_VM must offer.
#
# usage: siw-conform.sh
#        IWARP=FILE         the command, if not built here
#        TABLE=FILE         write there what deviates
#        KEEP=DIR           keep JSON and a capture of each case there
# status: 0 all cases were run; 1 something failed; 77 skipped, because there is no peer
#
# siw deviates in many cases; that is the table's subject, and no failure of this script.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

. "$here/peer.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
if ! ${CC:-cc} -O2 -Wall -Wextra -pthread -o "$work/conform_target" "$here/conform_target.c" -lrdmacm -libverbs; then
	echo "SKIPPED: siw-conform.sh: conform_target.c needs a C compiler and the headers of librdmacm and" \
		"libibverbs (Debian: librdmacm-dev, libibverbs-dev)." >&2
	exit 77
fi
export IWARP=${IWARP:-${CARGO_TARGET_DIR:-$here/../target}/release/iwarp}
if [ ! -x "$IWARP" ]; then
	cargo build --release --manifest-path "$here/../Cargo.toml" -p iwarp-cli || exit 1
fi
IWARP=$(realpath "$IWARP")

bad=0
for crc in on off; do
	for role in server client; do
		shared=$work/$crc-$role
		mkdir "$shared" && cp "$work/conform_target" "$shared" || exit 1
		required=1
		[ $crc = on ] || required=0
		# A guest for each, as a case may leave siw's listener without life.
		CRC=$crc ROLE=$role SHARED=$shared "$PEER_VM/run" --timeout 900 --share "$shared" --env "ROLE=$role" \
			--siw mpa_crc_required=$required --host-cmd "$here/siw-conform-here.sh" \
			"$here/siw-conform-guest.sh" </dev/null || bad=1
		echo "siw as $role, CRC $crc: $(tail -n 1 "$shared/table")"
		[ -e "$shared/json" ] || bad=1
	done
done
[ -z "${KEEP:-}" ] || { mkdir -p "$KEEP" && cp -r "$work"/*-* "$KEEP"; }
[ $bad = 0 ] || { echo "FAILED"; exit 1; }
if [ -n "${TABLE:-}" ]; then
	python3 "$here/siw-conform-table.py" "$work" "$(cat "$work/on-server/kernel")" >"$TABLE.new" &&
		mv "$TABLE.new" "$TABLE" || exit 1
fi
