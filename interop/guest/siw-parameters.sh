#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes parameters of what siw has as constants, with the same defaults, so that one kernel can be
# tried with each setting. usage: siw-parameters.sh DIRECTORY-OF-SIW
#   mpa_version (2), mpa_crc_required (0): asks for CRCs, mpa_crc_strict (0): refuses other choices,
#   peer_to_peer (0): asks for a first frame (RTR), rtr_type (0xc000): 0x8000 Write, 0x4000 Read,
#   relaxed_ird_negotiation (1), try_gso (0): FPDUs longer than a segment, zcopy_tx (1),
#   siw_tcp_nagle (0), loopback_enabled (1)
set -eu
cd "$1"
edit() { # FILE SED-EXPRESSION WHAT-MUST-BE-THERE-THEN
	sed -i -E "$2" "$1"
	grep -q "$3" "$1" || { echo "siw-parameters.sh: no $3 in $1" >&2; exit 1; }
}
for name in zcopy_tx try_gso loopback_enabled mpa_crc_required mpa_crc_strict siw_tcp_nagle peer_to_peer; do
	edit siw.h "s/^extern const bool $name;/extern bool $name;/" "^extern bool $name;"
	edit siw_main.c "s/^const bool $name( = true)?;/bool $name\\1;\nmodule_param($name, bool, 0644);/" \
		"^module_param($name, bool"
done
edit siw_main.c 's/^(u_char mpa_version = .*;)$/\1\nmodule_param(mpa_version, byte, 0644);/' \
	'^module_param(mpa_version'
edit siw_cm.c 's/^static __be16 rtr_type = .*$/static ushort rtr_type = 0xc000;\nmodule_param(rtr_type, ushort, 0644);/' \
	'^module_param(rtr_type'
edit siw_cm.c 's/ord \|= rtr_type;/ord |= htons(rtr_type);/' 'htons(rtr_type)'
edit siw_cm.c 's/^static const bool (relaxed_ird_negotiation) = true;/static bool \1 = true;\nmodule_param(\1, bool, 0644);/' \
	'^module_param(relaxed_ird'
