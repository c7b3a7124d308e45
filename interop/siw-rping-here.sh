#!/bin/bash
# This machine's side of siw-rping.sh, beside the guest. Results go to $SHARED.
set -u
case $WAYS in
*s*)
	for ip in "$PV_HOST_IP" "$PV_HOST_IP6"; do
		port=7174
		[ "$ip" = "$PV_HOST_IP" ] || port=7175
		"$IWARP" rping -s -P -a "$ip" -p $port -S 65535 2>"$SHARED/server.$port" &
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
			if timeout 30 "$IWARP" rping -c -a "$1" -p "$2" -S $size -C 25 -V -d >"$SHARED/log" 2>&1; then
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
