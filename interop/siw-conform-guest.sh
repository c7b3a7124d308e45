#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's side of siw-conform.sh: conform_target on siw. The peer's directory is /host.
uname -r >/host/kernel
case $ROLE in
server)
	/host/conform_target listen "$PV_GUEST_IP" 7175 >/host/target 2>&1 &
	until grep -qs listening /host/target; do sleep 0.1; done
	: >/host/listens
	;;
client)
	# Until the tester listens, and again where siw has refused to go on.
	until [ -e /host/over ]; do
		timeout 60 /host/conform_target call "$PV_HOST_IP" 7175 >>/host/target 2>&1
		sleep 0.2
	done
	;;
esac
until [ -e /host/over ]; do sleep 0.2; done
