/* What these programs have in common. */
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
