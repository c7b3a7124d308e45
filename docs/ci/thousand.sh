#!/bin/sh
# thousand.sh [PROGRAM]
#
# Shows that parallel jobs on one machine do not disturb each other: RUNS times (1000) rping, and
# as often PROGRAM if there is one, JOBS (8) at a time; first all in one network namespace, with a
# port for each, then each in a namespace of its own, with the same port. As root it goes on as
# `nobody`. Needs `iwarp` and rping on the PATH, unshare of util-linux and ip of iproute2.
#
# Ubuntu 24.04 and containers do not let users make namespaces: PLACES=host leaves that half out.
#
# Fails if one run does, and shows what that said.
set -eu
runs=${RUNS:-1000}
jobs=${JOBS:-8}
# Below the ports that the system gives to those who do not care.
first_port=${FIRST_PORT:-20000}
places=${PLACES:-host namespace}

# One run: WHAT (rping, or the program), WHERE (host or namespace), NUMBER.
if [ "${1:-}" = --one ]; then
    what=$2 where=$3 number=$4
    log=$SCRATCH/$number.txt
    port=7174
    [ "$where" = namespace ] || port=$((first_port + number))
    case $what in
    rping)
        set -- "$PAIR" "$port" "iwarp run rping -s -a 127.0.0.1 -p $port -C 10 -V" \
            "iwarp run rping -c -a 127.0.0.1 -p $port -C 10 -V"
        ;;
    *) set -- timeout -k 1 60 iwarp run "$what" ;;
    esac
    if [ "$where" = namespace ]; then
        set -- unshare --user --map-root-user --net \
            sh -c 'ip link set lo up && exec "$@"' sh "$@"
    fi
    if "$@" >"$log" 2>&1 </dev/null; then
        rm "$log"
        exit 0
    fi
    echo "run $number of $what ($where) fails:"
    tail -n 20 "$log"
    exit 1
fi

if [ "$(id -u)" = 0 ]; then
    exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
        env HOME=/nonexistent USER=nobody "$0" "$@"
fi
program=${1:-}
case " $places " in
*' namespace '*)
    if ! unshare --user --map-root-user --net ip link set lo up; then
        echo "thousand.sh: users may not make namespaces here; PLACES=host does without" >&2
        exit 2
    fi
    ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
PAIR=$here/pair.sh
SCRATCH=$(mktemp -d)
export PAIR SCRATCH
trap 'rm -rf "$SCRATCH"' EXIT

echo "user $(id -u), $runs runs of each, $jobs at a time"
failed=0
for where in $places; do
    for what in rping $program; do
        began=$(date +%s)
        bad=0
        seq 1 "$runs" | xargs -P "$jobs" -n 1 "$here/thousand.sh" --one "$what" "$where" || bad=1
        count=$(find "$SCRATCH" -name '*.txt' | wc -l)
        find "$SCRATCH" -name '*.txt' -delete
        took=$(($(date +%s) - began))
        [ "$where" = host ] && place='one namespace, ports of their own' ||
            place='namespaces of their own, one port'
        echo "$(basename "$what"), $place: $((runs - count)) of $runs succeed in $took s"
        [ "$bad" = 0 ] || failed=1
    done
done
exit "$failed"
