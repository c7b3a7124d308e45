#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# This machine's side of siw-exchange.sh, beside the guest. Both sides walk through the same list of
# exchanges: port, who listens, read depth, who disconnects. Results go to $SHARED.
set -u
exchange() {
	timeout 60 "$EXCHANGE" "$1" "$2" "$3" "$4" >"$SHARED/$5.ours" 2>&1
	echo $? >"$SHARED/$5.tmp"
	mv "$SHARED/$5.tmp" "$SHARED/$5.status"
}
while read -r port listens depth closes; do
	case $listens in
	iwarp) exchange listen "$PV_HOST_IP:$port" "$depth" "$closes" "$port" ;;
	siw)
		until grep -qs listening "$SHARED/$port.theirs" || [ -e "$SHARED/$port.over" ]; do sleep 0.1; done
		exchange connect "$PV_GUEST_IP:$port" "$depth" "$closes" "$port"
		;;
	esac
	until [ -e "$SHARED/$port.over" ]; do sleep 0.1; done
done <"$SHARED/list"
