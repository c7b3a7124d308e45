#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's side of siw-exchange.sh: siw_peer on siw. The peer's directory is /host.
bad=0
within() { # SECONDS COMMAND...: until it is true
	i=0
	limit=$(($1 * 10))
	shift
	until "$@"; do
		i=$((i + 1))
		[ $i -lt $limit ] || return 1
		sleep 0.1
	done
}
while read -r port listens depth closes; do
	case $listens in
	siw) timeout 60 /host/siw_peer listen "$PV_GUEST_IP" $port $depth >/host/$port.theirs 2>&1 ;;
	iwarp)
		within 30 grep -qs listening /host/$port.ours
		timeout 60 /host/siw_peer connect "$PV_HOST_IP" $port $depth >/host/$port.theirs 2>&1
		;;
	esac
	theirs=$?
	within 70 test -e /host/$port.status
	ours=$(cat /host/$port.status)
	: >/host/$port.over
	if [ "$theirs $ours" = "0 0" ] && [ "$(grep -c ^ok /host/$port.ours)" = 10 ]; then
		word=ok
	else
		word=FAIL
		bad=1
	fi
	echo "$word $listens listens, depth $depth, $closes: status $theirs there, $ours here;" \
		"$(grep -c ^ok /host/$port.ours) of 10 lines ok;$(grep depths /host/$port.ours | cut -c13-)"
	[ $word = ok ] || sed 's|^|       |' /host/$port.ours /host/$port.theirs
done <<END
$(cat /host/list)
END
exit $bad
