#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# RDMA Write, RDMA Read and Send of 1 byte to 4 MiB between this project and Linux siw, each end
# connecting, each end operating, each end disconnecting; every byte compared. One guest for each
# line of the table below. See README.md for what PEER_VM must offer.
#
# usage: siw-exchange.sh [NAME...]               only the settings of these names
#        EXCHANGE=FILE                          this project's end, if not built here
#        PCAP=DIR                               keep a capture of each setting there
# status: 0 all well; 1 something failed; 77 skipped, because there is no peer
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# name, siw's settings, our environment
settings() {
	cat <<-'END'
	v2-nocrc        mpa_crc_required=0                            IWARP_CRC=off
	v2-crc          mpa_crc_required=1                            IWARP_CRC=on
	v1-nocrc        mpa_version=1,mpa_crc_required=0              IWARP_CRC=off,IWARP_MPA_REVISION=1
	v1-crc          mpa_version=1,mpa_crc_required=1              IWARP_CRC=on,IWARP_MPA_REVISION=1
	p2p-write       peer_to_peer=1,rtr_type=32768                 IWARP_PEER_TO_PEER=write
	p2p-read        peer_to_peer=1,rtr_type=16384                 IWARP_PEER_TO_PEER=read
	large-nocrc     mpa_crc_required=0                            IWARP_CRC=off,IWARP_MULPDU=64768
	large-crc       mpa_crc_required=1                            IWARP_CRC=on,IWARP_MULPDU=64768
	small-crc       mpa_crc_required=1                            IWARP_CRC=on,IWARP_MULPDU=128
	END
}

. "$here/peer.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
if ! ${CC:-cc} -O2 -Wall -Wextra -o "$work/siw_peer" "$here/siw_peer.c" -lrdmacm -libverbs; then
	echo "SKIPPED: siw-exchange.sh: siw_peer.c needs a C compiler and the headers of librdmacm and" \
		"libibverbs (Debian: librdmacm-dev, libibverbs-dev)." >&2
	exit 77
fi
if [ -z "${EXCHANGE:-}" ]; then
	cargo build --release --manifest-path "$here/../Cargo.toml" -p iwarp --example siw_exchange ||
		exit 1
	EXCHANGE=${CARGO_TARGET_DIR:-$here/../target}/release/examples/siw_exchange
fi
EXCHANGE=$(realpath "$EXCHANGE") || exit 1
export EXCHANGE

failed=()
ran=0
while read -r name siw env; do
	if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
	ran=$((ran + 1))
	shared=$work/$name
	mkdir "$shared" && cp "$work/siw_peer" "$shared" && cp "$here/siw-exchange-list" "$shared/list" || exit 1
	echo "== $name: siw ${siw//,/ }; ${env//,/ }"
	options=(--timeout 240 --share "$shared")
	for setting in ${siw//,/ }; do options+=(--siw "$setting"); done
	[ -z "${PCAP:-}" ] || options+=(--pcap "$PCAP/$name.pcap")
	# the guest's script judges; what happened on this side it finds in the shared directory
	if ! env ${env//,/ } SHARED="$shared" "$PEER_VM/run" "${options[@]}" \
		--host-cmd "$here/siw-exchange-here.sh" "$here/siw-exchange-guest.sh" </dev/null; then
		failed+=("$name")
	fi
done < <(settings)

if [ $ran = 0 ]; then echo "no setting is called $*" >&2; exit 1; fi
if [ ${#failed[@]} -gt 0 ]; then echo "FAILED: ${failed[*]}"; exit 1; fi
echo "all $ran settings passed"
