# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# For the scripts beside it: PEER_VM, the directory with the program that boots a guest. It is guest/
# unless the caller names another (README.md).
PEER_VM=${PEER_VM:-$(dirname "${BASH_SOURCE[0]}")/guest}
if [ ! -x "$PEER_VM/run" ]; then
	echo "SKIPPED: ${0##*/}: there is no $PEER_VM/run" >&2
	exit 77
elif [ -x "$PEER_VM/init" ] && ! "$PEER_VM/run" --which >/dev/null; then
	echo "SKIPPED: ${0##*/}: no guest to test against. interop/guest/build builds one (10 CPU minutes)." >&2
	exit 77
fi
