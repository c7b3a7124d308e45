#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# jemalloc.sh LIBRARY PROGRAM ARGUMENT...
#
# Becomes PROGRAM with jemalloc's LIBRARY in front of what it preloads. Memory is filled when it is
# given out and when it is given back.
[ -f "$1" ] || { echo "$1 is missing: apt-get install libjemalloc2" >&2; exit 1; }
LD_PRELOAD="$1${LD_PRELOAD:+:$LD_PRELOAD}"
MALLOC_CONF=junk:true,abort_conf:true
export LD_PRELOAD MALLOC_CONF
shift
exec "$@"
