#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Has User Mode Linux compute CRC32c with the processor's instruction, as any x86 kernel does but it
# does not: without, siw's CRCs cost many times more than on a machine. usage: crc32c.sh KERNEL-SOURCE
set -eu
cd "$1"
write() { # HEADER: the function, into lib/crc32c_instruction.h
	cat >lib/crc32c_instruction.h <<-END
	#include <$1/unaligned.h>

	static u32 crc32c_instruction(u32 crc, const u8 *p, size_t len)
	{
		u64 wide = crc;

		for (; len >= 8; len -= 8, p += 8)
			asm("crc32q %1, %0" : "+r"(wide) : "rm"(get_unaligned((const u64 *)p)));
		for (crc = wide; len; len--, p++)
			asm("crc32b %1, %0" : "+r"(crc) : "rm"(*p));
		return crc;
	}
	END
}
if [ -f lib/crc/crc32-main.c ]; then
	write linux
	sed -i 's|^#define crc32c_arch crc32c_base$|#include "../crc32c_instruction.h"\n#define crc32c_arch crc32c_instruction|' \
		lib/crc/crc32-main.c
	grep -q crc32c_instruction lib/crc/crc32-main.c
else
	# in 6.1 the function is weak
	write asm
	cat >lib/crc32c_instruction.c <<-END
	#include <linux/crc32.h>
	#include "crc32c_instruction.h"

	u32 __pure __crc32c_le(u32 crc, unsigned char const *p, size_t len)
	{
		return crc32c_instruction(crc, p, len);
	}
	END
	echo 'obj-y += crc32c_instruction.o' >>lib/Makefile
fi
