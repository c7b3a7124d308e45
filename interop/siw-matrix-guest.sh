#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's side of `cargo xtask interop`: runs what the other side asks for, N.sh in /host, and
# leaves N.out and N.status there. A job that names a port has N.ready when somebody listens on it;
# N.stop ends it.
cd /host || exit 1
export PATH=/host/bin:$PATH
run() { # JOB
	bash "$1.sh" >"$1.out" 2>&1 &
	local pid=$! port
	port=$(sed -n 's/^# port //p' "$1.sh")
	port=:$(printf %04X "${port:-0}")
	while kill -0 $pid 2>/dev/null; do
		if [ ! -e "$1.ready" ] && grep -qE "$port [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6; then
			: >"$1.ready"
		fi
		[ ! -e "$1.stop" ] || kill -9 $pid 2>/dev/null
		sleep 0.05
	done
	wait $pid
	echo $? >"$1.tmp"
	mv "$1.tmp" "$1.status"
}
uname -r >kernel.tmp
mv kernel.tmp kernel
job=1
until [ -e over ]; do
	if [ -e $job.sh ]; then
		run $job &
		job=$((job + 1))
	else
		sleep 0.05
	fi
done
exit 0
