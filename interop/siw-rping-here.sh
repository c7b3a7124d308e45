#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# This machine's side of siw-rping.sh, beside the guest. Results go to $SHARED.
set -u
# librdmacm's own program on the drop-in libraries, or ours
rping=("$IWARP" rping)
[ -z "${LIBRDMACM:-}" ] || rping=("$IWARP" run -- rping)
case $WAYS in
*s*)
	for ip in "$PV_HOST_IP" "$PV_HOST_IP6"; do
		port=7174
		[ "$ip" = "$PV_HOST_IP" ] || port=7175
		"${rping[@]}" -s -P -a "$ip" -p $port -S 65535 2>"$SHARED/server.$port" &
		# the guest waits for this; 0A: listening
		while ! grep -qhE ":$(printf %04X $port) [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done
		: >"$SHARED/here-listens.$port"
	done
	;;
esac
case $WAYS in
*c*)
	# the guest says when its servers listen
	until [ -e "$SHARED/guest-listens" ]; do sleep 0.1; done
	for size in 23 64 1000 1460 4096 16383 65535; do
		for target in "$PV_GUEST_IP 7176" "$PV_GUEST_IP6 7177"; do
			set -- $target
			if timeout 30 "${rping[@]}" -c -a "$1" -p "$2" -S $size -C 25 -V -d >"$SHARED/log" 2>&1; then
				echo "ok   iwarp -> siw  $1 size $size"
			else
				echo "FAIL iwarp -> siw  $1 size $size (status $?)"
				tail -n 6 "$SHARED/log" | sed 's|^|     |'
			fi
		done
	done >"$SHARED/results.tmp" 2>&1
	mv "$SHARED/results.tmp" "$SHARED/results"
	;;
esac
wait
