#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# This machine's side of siw-conform.sh: the tester. Results go to $SHARED.
set -u
conform=("$IWARP" conform --peer verbs --crc "$CRC" --patience 2 --json "$SHARED/json" --pcapng "$SHARED/captures")
case $ROLE in
server)
	until [ -e "$SHARED/listens" ]; do sleep 0.1; done
	# siw loses an FPDU now and then that comes right behind its Reply.
	"${conform[@]}" --pause 60 "$PV_GUEST_IP" >"$SHARED/table" 2>&1
	;;
client)
	"${conform[@]}" --listen "$PV_HOST_IP" >"$SHARED/table" 2>&1
	;;
esac
: >"$SHARED/over"
