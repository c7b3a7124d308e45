/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The checks and helpers that these programs have in common. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends the program, naming the line, unless something holds. */
#ifndef CHECK
#define CHECK(what)                                                            \
	do {                                                                   \
		if (!(what)) {                                                 \
			fprintf(stderr, "line %d: %s (errno %d: %s)\n",        \
				__LINE__, #what, errno, strerror(errno));      \
			exit(1);                                               \
		}                                                              \
	} while (0)
#endif

#ifdef _GNU_SOURCE
#include <sched.h>

/* From now on this process has a network of its own, with loopback alone. False where it may not. */
static int own_network(void)
{
	return unshare(CLONE_NEWNET) == 0 && system("ip link set lo up") == 0;
}
#endif
