#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs on our libraries here, without privilege, against the kernel's rxe in a guest: each as
# server and as client, over IPv4 and IPv6, over a good wire and bad ones. See README.md for what
# PEER_VM must offer, and rxe-list for the programs.
#
# usage: rxe.sh [GROUP...] [CONDITION...]
#   groups      ud uc rc cm mcast; all but the last unless some are named
#   conditions  clean loss1 loss5 (1 and 5 % lost) reorder duplicate (5 %) all (5 % of each);
#              auto (a good wire, and IWARP_WIRE unset here, which is "roce" otherwise)
#              clean unless some are named
#   matrix     all groups but mcast, on a good wire and under each of the conditions alone
#        BIN=DIR       our command and libraries, if not built here
#        MATCH=REGEX   only the programs whose lines match it
#        KEEP=DIR      keep the output of what fails there
#        FAMILIES=6 WAYS=we-connect   only these of 4 and 6, of we-serve and we-connect
#        LONG=SECONDS  rxe_peer goes on for so long
#        LIMIT=SECONDS for each program (90)
#        VM="OPTION..."  more options for PEER_VM's run
#        PCAP=FILE     keep a capture there
#        ICRC=1        have scapy, zlib and tshark judge all packets that our programs sent (icrc.py)
#        TABLE=FILE    write the table there too, between its marks if FILE has such (rxe-table.sh)
#        RESULTS=FILE  add the results to those of earlier runs there, and make the table of all
# status: 0 all well; 1 something failed; 77 skipped, because there is no peer
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/peer.sh"
groups= conditions=
for word; do
	case $word in
	ud | uc | rc | cm | mcast) groups+=" $word" ;;
	matrix) conditions+=" clean loss1 loss5 reorder duplicate" ;;
	clean | auto | loss1 | loss5 | reorder | duplicate | all) conditions+=" $word" ;;
	*) echo "rxe.sh: neither a group nor a condition: $word" >&2; exit 2 ;;
	esac
done
if [ -z "${BIN:-}" ]; then
	cargo build --release --manifest-path "$here/../Cargo.toml" -p iwarp-cli -p iwarp-ibverbs \
		-p iwarp-rdmacm || exit 1
	BIN=${CARGO_TARGET_DIR:-$here/../target}/release
fi
SHARED=$(mktemp -d) || exit 1
trap 'rm -rf "$SHARED"' EXIT
chmod 755 "$SHARED"
mkdir "$SHARED/bin" && cp "$BIN/iwarp" "$BIN"/lib*.so "$SHARED/bin" || exit 1
results=${RESULTS:-$SHARED/all}
if ! ${CC:-cc} -O2 -Wall -Wextra -o "$SHARED/rxe_peer" "$here/rxe_peer.c" -libverbs ||
	! ${CC:-cc} -O2 -Wall -Wextra -o "$SHARED/rxe_link" "$here/rxe_link.c"; then
	echo "SKIPPED: rxe.sh needs a C compiler and the headers of libibverbs (Debian: libibverbs-dev)." >&2
	exit 77
fi
cp "$here/rxe-list" "$SHARED/list"
export SHARED GROUPS_="${groups:-ud uc rc cm}" CONDITIONS="${conditions:-clean}"
options=(${VM:-} --rxe --offload off --share "$SHARED" --timeout "${TIMEOUT:-3600}")
[ -z "${ICRC:-}" ] || PCAP=${PCAP:-$SHARED/pcap}
[ -z "${PCAP:-}" ] || options+=(--pcap "$PCAP")
"$PEER_VM/run" "${options[@]}" --host-cmd "exec '$here/rxe-here.sh'" "$here/rxe-guest.sh"
status=$?

if [ ! -s "$SHARED/results" ]; then echo "nothing ran (status $status)"; exit 1; fi
cat "$SHARED/results" >>"$results"
echo
kernel=$(cat "$SHARED/kernel" 2>/dev/null || echo "of an unknown version")
"$here/rxe-table.sh" "$results" "$kernel"
[ -z "${TABLE:-}" ] || "$here/rxe-table.sh" "$results" "$kernel" "$TABLE" || status=1
for file in "$SHARED"/link.*; do
	[ ! -s "$file" ] || echo "the wire, ${file##*.}: $(tail -n 1 "$file")"
done
if [ -n "${ICRC:-}" ]; then
	echo
	# shellcheck disable=SC2046 # addresses
	"${PYTHON:-python3}" "$here/icrc.py" "$PCAP" $(cat "$SHARED/ours") || status=1
fi
failed=$(grep -c ^FAIL "$SHARED/results")
echo "$(grep -c ^ok "$SHARED/results") ok, $(grep -c ^left "$SHARED/results") left, $failed failed"
[ "$failed" = 0 ] && [ $status = 0 ]
