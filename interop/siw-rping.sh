#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `iwarp rping` against librdmacm's rping on Linux siw, both ways round, one guest for each line
# of the table below. See README.md for what PEER_VM must offer.
#
# usage: siw-rping.sh [NAME...]                  only the settings of these names
#        IWARP=FILE                             the command, if not built here
#        LIBRDMACM=1                            librdmacm's rping here too, on the drop-in libraries
#        PCAP=DIR                               keep a capture of each setting there
# status: 0 all well; 1 something failed; 77 skipped, because there is no peer
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# name, ways, siw's settings, our environment.  Ways: s we serve, c we connect.
# rping cannot serve a revision 1 request on siw: it accepts with the ORD of the request, which has
# none there, so its first RDMA Read fails.
settings() {
	cat <<-'END'
	v2-nocrc        sc  mpa_crc_required=0                  IWARP_CRC=off
	v2-crc          sc  mpa_crc_required=1                  IWARP_CRC=on
	v2-crc-ours     sc  mpa_crc_required=0                  IWARP_CRC=on
	v2-crc-theirs   sc  mpa_crc_required=1                  IWARP_CRC=off
	v1-nocrc        s   mpa_version=1,mpa_crc_required=0    IWARP_CRC=off,IWARP_MPA_REVISION=1
	v1-crc          s   mpa_version=1,mpa_crc_required=1    IWARP_CRC=on,IWARP_MPA_REVISION=1
	v1-to-v2        sc  mpa_version=1,mpa_crc_required=1    IWARP_CRC=on
	p2p-write       sc  peer_to_peer=1,rtr_type=32768       IWARP_PEER_TO_PEER=write
	p2p-read        sc  peer_to_peer=1,rtr_type=16384       IWARP_PEER_TO_PEER=read
	gso             sc  try_gso=1,mpa_crc_required=1        IWARP_CRC=on
	END
}

. "$here/peer.sh"
export IWARP=${IWARP:-${CARGO_TARGET_DIR:-$here/../target}/release/iwarp}
if [ ! -x "$IWARP" ]; then
	cargo build --release --manifest-path "$here/../Cargo.toml" -p iwarp-cli || exit 1
fi
IWARP=$(realpath "$IWARP")

failed=()
ran=0
while read -r name ways siw env; do
	if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
	ran=$((ran + 1))
	shared=$(mktemp -d) || exit 1
	echo "== $name: siw ${siw//,/ }; ${env//,/ }"
	options=(--timeout 240 --share "$shared" --env "WAYS=$ways")
	for setting in ${siw//,/ }; do options+=(--siw "$setting"); done
	[ -z "${PCAP:-}" ] || options+=(--pcap "$PCAP/$name.pcap")
	# the guest's script judges; what happened on this side it finds in the shared directory
	if ! env ${env//,/ } WAYS="$ways" SHARED="$shared" "$PEER_VM/run" "${options[@]}" \
		--host-cmd "$here/siw-rping-here.sh" "$here/siw-rping-guest.sh"; then
		failed+=("$name")
	fi
	rm -rf "$shared"
done < <(settings)

if [ $ran = 0 ]; then echo "no setting is called $*" >&2; exit 1; fi
if [ ${#failed[@]} -gt 0 ]; then echo "FAILED: ${failed[*]}"; exit 1; fi
echo "all $ran settings passed"
