#!/bin/sh
# pair.sh PORT SERVER CLIENT
#
# Runs the command SERVER, the command CLIENT as soon as SERVER listens on the TCP port PORT, and
# succeeds if both do. Nothing is left running. PAIR_TIMEOUT: seconds that each may take (60).
#
#   pair.sh 7174 'iwarp run rping -s -C 10' 'iwarp run rping -c -a 127.0.0.1 -C 10'
set -u
if [ $# -ne 3 ]; then
    echo "usage: pair.sh PORT SERVER CLIENT" >&2
    exit 2
fi
port=$(printf '%04X' "$1")
seconds=${PAIR_TIMEOUT:-60}

# Local address and port, remote address and port, state: 0A is LISTEN (proc_net_tcp in the kernel's
# documentation).
listens() {
    grep -qs ":$port [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6
}

# Not a process any more that does something (Z, X).
has_ended() {
    ! grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status"
}

# Waits for process $1, which is called $2; sets `status`.
await() {
    wait "$1"
    status=$?
    case $status in
    0) ;;
    124 | 137) echo "pair.sh: the $2 does not end within $seconds s" >&2 ;;
    *) echo "pair.sh: the $2 fails with status $status" >&2 ;;
    esac
}

# `exec`, so that the signal reaches the program and not a shell around it.
timeout -k 1 "$seconds" sh -c "exec $2" &
server=$!
trap 'kill $server ${client:-} 2>/dev/null' EXIT
until listens; do
    if has_ended "$server"; then
        await "$server" server
        echo "pair.sh: nothing listened on port $1" >&2
        exit 1
    fi
    sleep 0.02
done
timeout -k 1 "$seconds" sh -c "exec $3" &
client=$!
await "$client" client
result=$status
if [ "$result" -ne 0 ]; then
    kill "$server" 2>/dev/null
fi
await "$server" server
[ "$result" -ne 0 ] || result=$status
trap - EXIT
exit "$result"
