#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Go and the JVM have handlers of SIGSEGV of their own, and turn faults of their own programs into panics
# and exceptions. This shows that they live with ours, which comes with the first memory region: in one
# process, each gets its faults, and a fault that is nobody's ends the program as it would without us.
#
# usage: interop/handlers.sh [FOLDER]  with libibverbs.so in it (target/release if none is given)
#
# Needs go (golang-go), javac and java (default-jdk-headless), gcc and libibverbs-dev; what is missing is
# said, and left out. Exits with 77 where neither language is there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
libraries=$(cd "${1:-$here/../target/release}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/handlers/* "$work"
cd "$work"
mkdir lib
ln -s "$libraries/libibverbs.so" lib/libibverbs.so.1
export LD_LIBRARY_PATH="$work/lib" IWARP_PERSONALITY=iwarp IWARP_LOG=off
flags="-O1 -I$here/../crates/iwarp-capi/tests/c"
tried=0

# A name, what a crash has to say, and the command; with one more argument it crashes.
try() {
	name=$1 said=$2
	shift 2
	printf '%s: ' "$name"
	timeout 120 "$@"
	if timeout 60 "$@" crash >crash.txt 2>&1; then
		echo "$name: a fault that is nobody's was survived" >&2
		exit 1
	fi
	grep -q "$said" crash.txt || { cat crash.txt >&2; exit 1; }
	tried=$((tried + 1))
}

if command -v go >/dev/null; then
	export HOME="$work" CGO_CFLAGS="$flags" GOFLAGS=-mod=mod
	go mod init gone 2>/dev/null
	go build -o gone .
	try Go "segmentation violation" ./gone
else
	echo "no go: apt-get install golang-go" >&2
fi
if command -v javac >/dev/null; then
	gcc $flags -shared -fPIC -o libgone.so gone.c -libverbs
	javac -d . Gone.java
	# C1 alone has every null pointer found by SIGSEGV.
	for mode in -XX:+TieredCompilation -XX:TieredStopAtLevel=1 -Xint; do
		try "JVM $mode" "fatal error has been detected by the Java" \
			java "$mode" -Xss512k -XX:-CreateCoredumpOnCrash -cp . Gone "$work/libgone.so"
	done
else
	echo "no javac: apt-get install default-jdk-headless" >&2
fi
[ "$tried" -gt 0 ] || exit 77
