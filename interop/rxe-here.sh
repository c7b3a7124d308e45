#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# This machine's side of rxe.sh, beside the guest: makes a network namespace for our programs, with
# a wire to the guest that can be bad, walks through the list, and writes the results to $SHARED.
set -u
LIMIT=$((${LIMIT:-90} + ${LONG:-0}))
# "cargo xtask" removes what is called so and whose process is gone
name=iwarp-$$-rxe
link=
cleanup() {
	trap '' INT TERM
	[ -z "$link" ] || kill "$link" 2>/dev/null
	ip netns del "$name" 2>/dev/null
	: >"$SHARED/over"
}
trap cleanup EXIT
trap 'exit 143' INT TERM

# ---- the network ---------------------------------------------------------------------
device=$(ip -o -4 addr show to "$PV_HOST_IP" | awk '{ print $2; exit }')
ip netns add "$name" || exit 1
ip link add iwarp0 type veth peer name eth0 netns "$name" || exit 1
for address in "$PV_HOST_IP/24" "$PV_HOST_IP6/64"; do
	ip addr del "$address" dev "$device" 2>/dev/null
done
ip link set iwarp0 up
ip -n "$name" link set lo up
ip -n "$name" link set eth0 up
ip -n "$name" addr add "$PV_HOST_IP/24" dev eth0
ip -n "$name" -6 addr add "$PV_HOST_IP6/64" dev eth0 nodad
# what goes over the wire must fit its frames, and have its checksums
for in in "" "ip netns exec $name"; do
	dev=iwarp0
	[ -z "$in" ] || dev=eth0
	$in ethtool -K $dev tso off gso off gro off tx off sg off >/dev/null 2>&1
done
echo "$PV_HOST_IP $PV_HOST_IP6" >"$SHARED/ours"
connect() { # CONDITION: has the wire behave so
	local chances
	case $1 in
	clean | auto) chances= ;;
	loss1) chances="lose=1" ;;
	loss5) chances="lose=5" ;;
	reorder) chances="delay=5" ;;
	duplicate) chances="repeat=5" ;;
	all) chances="lose=5 delay=5 repeat=5" ;;
	esac
	if [ -n "$link" ]; then kill "$link"; wait "$link" 2>/dev/null; fi
	"$SHARED/rxe_link" iwarp0 "$device" $chances seed="${SEED:-1}" >"$SHARED/link.$1" 2>&1 &
	link=$!
	if [ "$1" = auto ]; then unset IWARP_WIRE; else export IWARP_WIRE=roce; fi
	until grep -q passes "$SHARED/link.$1" || ! kill -0 "$link"; do sleep 0.05; done
}

# ---- programs ------------------------------------------------------------------------
here=(ip netns exec "$name" setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs
	--inh-caps=-all --bounding-set=-all env TMPDIR=/tmp HOME=/ "$SHARED/bin/iwarp" run
	--personality roce --)
export IWARP_WIRE=roce
our_device=$(timeout 20 "${here[@]}" ibv_devinfo | awk '/hca_id/ { print $2; exit }')
our_gid() { timeout 20 "${here[@]}" ibv_devinfo -v | sed -n "s/.*GID\[ *\([0-9]*\)\]:[[:space:]]*$1,.*/\1/p"; }
OUR4=$(our_gid "::ffff:$PV_HOST_IP") OUR6=$(our_gid "$PV_HOST_IP6")
until [ -e "$SHARED/env" ]; do sleep 0.1; done
. "$SHARED/env"

is_good() { [[ $1 = clean || $1 = auto ]]; } # CONDITION: nothing goes wrong on the way
fill_in() { # COMMAND END FAMILY PORT SERVER-IS CONDITION: its placeholders
	local command=$1 dev=$our_device gid addr other own l=
	[ "$2" = here ] || dev=rxe0
	case $2$3 in here4) gid=$OUR4 ;; here6) gid=$OUR6 ;; there4) gid=$GID4 ;; there6) gid=$GID6 ;; esac
	addr=$PV_HOST_IP
	[ "$5" = here ] || addr=$PV_GUEST_IP
	other=$addr
	if [ "$3" = 6 ]; then addr=$PV_HOST_IP6; [ "$5" = here ] || addr=$PV_GUEST_IP6; fi
	case $2$3 in
	here4) own=$PV_HOST_IP ;; here6) own=$PV_HOST_IP6 ;; there4) own=$PV_GUEST_IP ;; *) own=$PV_GUEST_IP6 ;;
	esac
	if is_good "$6"; then command=$(sed -E 's# ([0-9]+)/[0-9]+# \1#g' <<<"$command")
	else l=-l command=$(sed -E 's# [0-9]+/([0-9]+)# \1#g' <<<"$command"); fi
	command=${command//%d/$dev} command=${command//%g/$gid} command=${command//%p/$4}
	command=${command//%a/$addr} command=${command//%o/$other} command=${command//%m/$own}
	command=${command//%s/${LONG:+-s $LONG}}
	echo "${command//%l/$l}"
}
job=0
begin() { # END COMMAND PORT OUTPUT: starts it, its job is $begun
	local words
	if [ "$1" = here ]; then
		read -ra words <<<"$2"
		[ "${words[0]}" != rxe_peer ] || words[0]=$SHARED/rxe_peer
		timeout -k 1 "$LIMIT" "${here[@]}" "${words[@]}" >"$4" 2>&1 &
		begun=$!
	else
		job=$((job + 1))
		begun=$job
		rm -f "$SHARED/$job".*
		printf '# port %s\n# limit %s\nexport PATH=/host:$PATH\nexec %s\n' "$3" "$LIMIT" "$2" >"$SHARED/$job.tmp"
		mv "$SHARED/$job.tmp" "$SHARED/$job.sh"
	fi
}
ready() { # END PORT PID-OR-JOB
	local i
	for ((i = 0; i < 300; i++)); do
		if [ "$1" = here ]; then
			! ip netns exec "$name" grep -qhE ":$(printf %04X "$2") [0-9A-F:]* 0A " \
				/proc/net/tcp /proc/net/tcp6 || return 0
			kill -0 "$3" 2>/dev/null || return 1
		else
			[ ! -e "$SHARED/$3.ready" ] || return 0
			[ ! -e "$SHARED/$3.status" ] || return 1
		fi
		sleep 0.1
	done
	return 1
}
finish() { # END PID-OR-JOB SECONDS OUTPUT: its status is $status, its output in OUTPUT
	local i
	for ((i = 0; i < $3 * 10; i++)); do
		if [ "$1" = here ]; then kill -0 "$2" 2>/dev/null || break
		else [ ! -e "$SHARED/$2.status" ] || break; fi
		sleep 0.1
	done
	if [ "$1" = here ]; then
		kill "$2" 2>/dev/null
		wait "$2" 2>/dev/null
		status=$?
	else
		[ -e "$SHARED/$2.status" ] || : >"$SHARED/$2.stop"
		for ((i = 0; i < 50; i++)); do [ ! -e "$SHARED/$2.status" ] || break; sleep 0.1; done
		status=$(cat "$SHARED/$2.status" 2>/dev/null || { : >"$SHARED/gone"; echo gone; })
		cp "$SHARED/$2.out" "$4" 2>/dev/null
	fi
}
last_words() { grep -vE '^[[:space:]]*$|^-+$' "$1" 2>/dev/null | tail -n 1 | cut -c1-110; }

# OUTPUT of a client: REJ 8, or SIDR status 1
nobody_listened() { grep -qE 'rdma_connect: Connection refused|REJECTED[,;] error:? 8|UNREACHABLE[,;] error:? 1\>' "$1"; }

port=18600
# SERVER'S-STATUS CLIENT'S: one end went well, and the other says that nobody was there any more
somebody_left() {
	local log=$SHARED/server.log
	[ "$1" != 0 ] || log=$SHARED/client.log
	[[ "$1 $2" = "0 "* || "$1 $2" = *" 0" ]] && grep -qE 'retry counter exceeded|status:? 12\>' "$log"
}
row() { # GROUP CONDITION FAMILY WAY SERVER CLIENT TITLE MIND: prints a line
	local server=here client=there word=ok reason= endless= one two try began=$SECONDS
	if [[ $5 = "& "* ]]; then endless=1; set -- "$1" "$2" "$3" "$4" "${5#& }" "$6" "$7" "$8"; fi
	# the kernel asks for a DREP for 17 s where the last one was lost
	is_good "$2" && local patience=5 || local patience=25
	[ "$4" = we-serve ] || { server=there; client=here; }
	port=$((port + 1))
	begin $server "$(fill_in "$5" $server "$3" $port $server "$2")" $port "$SHARED/server.log"
	one=$begun
	if [[ $1 = cm || $1 = mcast ]]; then sleep 1; else ready $server $port "$one"; fi
	for try in 1 2 3; do
		begin $client "$(fill_in "$6" $client "$3" $port $server "$2")" 0 "$SHARED/client.log"
		two=$begun
		finish $client "$two" "$LIMIT" "$SHARED/client.log"
		two=$status
		# whether a program listens for the connection manager cannot be seen from without
		if [ "$1" != cm ] || [ $try = 3 ] || ! nobody_listened "$SHARED/client.log"; then break; fi
		sleep 1
	done
	if [ -n "$endless" ]; then finish $server "$one" 0 "$SHARED/server.log"; status=0
	else finish $server "$one" $patience "$SHARED/server.log"; fi
	one=$status
	if [ "$8" = leaves ] && ! is_good "$2" && [ "$one $two" != "0 0" ] && somebody_left "$one" "$two"; then
		word=left
	elif [ "$one $two" != "0 0" ]; then
		word=FAIL reason="server's status $one: $(last_words "$SHARED/server.log"); client's $two: $(last_words "$SHARED/client.log")"
	elif grep -hiE 'invalid data|mismatch|Failed status' "$SHARED/server.log" "$SHARED/client.log" >"$SHARED/bad"; then
		word=FAIL reason=$(head -n 1 "$SHARED/bad")
	fi
	if [ $word = FAIL ] && [ -n "${KEEP:-}" ]; then
		mkdir -p "$KEEP" && cp "$SHARED/server.log" "$KEEP/$port.server"
		cp "$SHARED/client.log" "$KEEP/$port.client"
	fi
	printf '%-4s %-9s IPv%s %-10s %3us %s%s\n' $word "$2" "$3" "$4" $((SECONDS - began)) "$7" \
		"${reason:+: $reason}"
}

# ---- the list ------------------------------------------------------------------------
for condition in ${CONDITIONS:-clean}; do
	connect "$condition"
	while read -r group conditions families mind program; do
		case $group in '#'* | "") continue ;; esac
		[[ " $GROUPS_ " = *" $group "* ]] || continue
		case $condition in
		auto) [[ $group = rc || $group = cm ]] || continue ;;
		*) [[ $conditions = all || ,$conditions, = *",$condition,"* ]] || continue ;;
		esac
		[[ $program =~ ${MATCH:-} ]] || continue
		if [[ $program = *"||"* ]]; then
			server=${program%%||*} client=${program##*||}
		else
			server=${program%%|*} client="${program%%|*} ${program##*|}"
		fi
		title=$(sed 's/^& //; s/ -[dgxpabs] %[a-z]//g; s/ %[a-z]//g; s/  */ /g; s/ $//' <<<"$server")
		for ((n = 0; n < ${#families}; n++)); do
			[[ ${FAMILIES:-46} = *${families:n:1}* ]] || continue
			for way in ${WAYS:-we-serve we-connect}; do
				[ ! -e "$SHARED/gone" ] || { echo "FAIL the guest is gone" >>"$SHARED/results"; exit 1; }
				row "$group" "$condition" "${families:n:1}" $way "$server" "$client" "$title" "$mind" \
					>"$SHARED/line"
				tee -a "$SHARED/results" <"$SHARED/line"
			done
			port=$((port + 2))
		done
	done <"$SHARED/list"
done
kill "$link"; wait "$link" 2>/dev/null
link=
exit 0
