#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's side of siw-bench.sh: does what /host/todo lists, one line after the other, and
# prints `result TEST OCTETS WHAT VALUE` for each: MB/s, or microseconds; nan where there is none.
limit=20
tmp=/tmp/siw-bench
mkdir -p $tmp
ip link set lo mtu "$MTU" || exit 1
# no rdma_cm on 127.0.0.1 with iWARP; PV_LO_IP is another address of lo
device=$(rdma link | sed -n 's|^link \([^/]*\)/.* netdev lo *$|\1|p')
[ -n "$device" ] || { echo "note no siw on lo"; exit 1; }

until_true() { # SECONDS COMMAND...
	tries=$(($1 * 5))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.2
	done
}
listens() { grep -qE ":$(printf %04X "$port") [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6; }
begin() { # NAME COMMAND: its output goes to NAME.log, its status to NAME.status
	rm -f "$tmp/$1".*
	(
		sh -c "echo \$\$ >$tmp/$1.pid; exec $2" >$tmp/$1.log 2>&1
		echo $? >$tmp/$1.new
		mv $tmp/$1.new $tmp/$1.status
	) &
}
finish() { # NAME SECONDS: false if it cannot even be killed
	until_true "$2" test -e $tmp/$1.status && return
	kill -9 "$(cat $tmp/$1.pid)"
	until_true 5 test -e $tmp/$1.status
}
run_pair() { # SERVER CLIENT SECONDS, which the server has to end by itself
	begin server "$1"
	until_true 10 listens || echo "note $test $octets $what: the server does not listen"
	begin client "$2"
	alive=1
	finish client $limit || alive=0
	finish server "$3" || alive=0
	[ $alive = 1 ] && [ "$(cat $tmp/client.status)" = 0 ]
}

alive=1
port=18600
while [ -s /host/todo ]; do
	read -r test octets what </host/todo
	sed 1d /host/todo >$tmp/todo && cp $tmp/todo /host/todo
	# a port of its own for each, as a server before may not be quite gone
	port=$((port + 1))
	case $test in
	*_bw) how="-D $DURATION --output=bandwidth" ;;
	*) how="-n 500 --output=latency" ;;
	esac
	perftest="ib_$test -R -p $port -s $octets $how"
	patience=3
	case $what in
	siw) server="$perftest -d $device" ;;
	iwarp) server="/host/iwarp run --personality iwarp --crc $CRC -- $perftest" ;;
	tcp)
		server="qperf -lp $port"
		patience=0
		;;
	esac
	case $what-$test in
	tcp-*_bw) client="$server -t $DURATION -uu -m $octets $PV_LO_IP tcp_bw" ;;
	tcp-*) client="$server -t $DURATION -uu -m $octets $PV_LO_IP tcp_lat" ;;
	*) client="$server $PV_LO_IP" ;;
	esac
	run_pair "$server" "$client" $patience
	good=$?
	# qperf's are bytes/s and nanoseconds, perftest's MiB/s and microseconds
	case $what-$test in
	tcp-*_bw) value=$(awk '/bw *=/ { print $3 / 1e6 }' $tmp/client.log) ;;
	tcp-*) value=$(awk '/latency *=/ { print $3 / 1e3 }' $tmp/client.log) ;;
	*_bw) value=$(tail -n 1 $tmp/client.log | awk '$1 + 0 > 0 { print $1 * 1.048576 }') ;;
	*) value=$(tail -n 1 $tmp/client.log | awk '$1 + 0 > 0 { print $1 }') ;;
	esac
	if [ $good != 0 ] || [ -z "$value" ]; then
		echo "note $test $octets $what: $(tail -n 1 $tmp/client.log | cut -c1-100)"
		value=nan
	fi
	echo "result $test $octets $what $value"
	[ $alive = 1 ] || { echo "note $test $octets $what cannot be killed"; exit 1; }
done
