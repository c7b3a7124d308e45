#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# network.sh PROGRAM ARGUMENT...
#
# Makes the network namespace that it is in a host with the interfaces lo and apart0, and becomes
# PROGRAM. The addresses are of documentation (RFC 5737, RFC 3849), and there is no way to others:
# a search for a name ends at once.
set -e
ip -batch - <<END
link set lo up
link add name apart0 type veth peer name apart1
addr add 198.51.100.7/24 dev apart0
END
# No tests of addresses for duplicates, which take a second. A host may do without IPv6.
ip -force -batch - 2>/dev/null <<END || :
link set apart0 addrgenmode none
link set apart1 addrgenmode none
addr add 2001:db8::7/64 dev apart0 nodad
addr add fe80::7/64 dev apart0 nodad
END
ip -batch - <<END
link set apart0 up
link set apart1 up
route add 224.0.0.0/4 dev apart0
END
# To make the namespace an ordinary user got rights, which PROGRAM does not expect to have.
if [ "$(id -u)" != 0 ]; then
    set -- setpriv --ambient-caps=-all --inh-caps=-all "$@"
fi
exec "$@"
