#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's side of siw-rping.sh: librdmacm's rping on siw. The peer's directory is /host.
bad=0
case $WAYS in
*c*)
	rping -s -P -a "$PV_GUEST_IP" -p 7176 -S 65535 >/tmp/server4 2>&1 &
	rping -s -P -a "$PV_GUEST_IP6" -p 7177 -S 65535 >/tmp/server6 2>&1 &
	# 1C08, 1C09: those ports; 0A: listening
	i=0
	until [ "$(cat /proc/net/tcp /proc/net/tcp6 | grep -cE ':1C0[89] [0-9A-F:]* 0A ')" = 2 ]; do
		i=$((i + 1))
		[ $i -lt 300 ] || { echo "FAIL rping does not listen"; cat /tmp/server4 /tmp/server6; exit 1; }
		sleep 0.1
	done
	: >/host/guest-listens
	until [ -e /host/results ]; do sleep 0.2; done
	cat /host/results
	! grep -q FAIL /host/results || { bad=1; tail -n 20 /tmp/server4 /tmp/server6; }
	;;
esac
case $WAYS in
*s*)
	for port in 7174 7175; do
		i=0
		until [ -e /host/here-listens.$port ]; do
			i=$((i + 1))
			[ $i -lt 300 ] || { echo "FAIL iwarp does not listen"; cat /host/server.$port; exit 1; }
			sleep 0.1
		done
	done
	for size in 23 64 1000 1460 4096 16383 65535; do
		for target in "$PV_HOST_IP 7174" "$PV_HOST_IP6 7175"; do
			set -- $target
			# rping's status is 0 after some errors too: the last round must have been shown
			if timeout 30 rping -c -a "$1" -p "$2" -S $size -C 25 -V -v >/tmp/log 2>&1 &&
				grep -q '^ping data: rdma-ping-24: ' /tmp/log && ! grep -q mismatch /tmp/log; then
				echo "ok   siw -> iwarp  $1 size $size"
			else
				echo "FAIL siw -> iwarp  $1 size $size"
				cut -c1-80 /tmp/log | tail -n 5 | sed 's/^/     /'
				bad=1
			fi
		done
	done
	# a server that complained; librdmacm's says two lines at each end of a connection
	for port in 7174 7175; do
		! grep -vE '^(listening|server DISCONNECT|wait for RDMA_READ_ADV)' /host/server.$port || bad=1
	done
	;;
esac
exit $bad
