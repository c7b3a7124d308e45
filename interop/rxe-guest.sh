#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's side of rxe.sh: runs what the other side asks for, N.sh in /host, and leaves N.out and
# N.status there. A job that says a port is reported as N.ready when somebody listens on it.
cd /host || exit 1
# the connection manager would take it, being the first on the interface
rdma link delete siw0 2>/dev/null
gid_of() { # ADDRESS: the index of its GID
	for file in /sys/class/infiniband/rxe0/ports/1/gids/*; do
		[ "$(cat "$file")" != "$1" ] || { echo "${file##*/}"; return; }
	done
}
hex() { # IPv6 ADDRESS with :: in it, as sysfs writes it
	local left right words i
	left=${1%%::*} right=${1##*::}
	IFS=: read -ra words <<<"$left"
	for ((i = 0; i < 8; i++)); do
		[ $i -lt ${#words[@]} ] && printf %04x 0x${words[i]} || printf 0000
	done | sed "s/.\{4\}$/$(printf %04x "0x$right")/; s/..../&:/g; s/:$//"
}
v4() { printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${1//./ }; }
uname -r >kernel
echo "GID4=$(gid_of "$(v4 "$PV_GUEST_IP")") GID6=$(gid_of "$(hex "$PV_GUEST_IP6")")" >env.tmp
mv env.tmp env
run() { # JOB
	timeout -k 1 "$(sed -n "s/^# limit //p" "$1.sh")" bash "$1.sh" >"$1.out" 2>&1 &
	local pid=$! port
	port=$(sed -n 's/^# port //p' "$1.sh")
	port=:$(printf %04X "${port:-0}")
	while kill -0 $pid 2>/dev/null; do
		if [ ! -e "$1.ready" ] && grep -qE "$port [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6; then
			: >"$1.ready"
		fi
		[ ! -e "$1.stop" ] || kill $pid 2>/dev/null
		sleep 0.1
	done
	wait $pid
	echo $? >"$1.tmp"
	mv "$1.tmp" "$1.status"
}
job=1
until [ -e over ]; do
	if [ -e $job.sh ]; then
		run $job &
		job=$((job + 1))
	else
		sleep 0.1
	fi
done
wait
exit 0
