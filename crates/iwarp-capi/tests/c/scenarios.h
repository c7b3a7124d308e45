/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program of several scenarios. */
#ifndef SCENARIOS_H
#define SCENARIOS_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Runs the scenario that the command line names. */
struct scenario {
	const char *name;
	void (*run)(void);
};

#define MAIN(...)                                                                     \
	int main(int argc, char **argv)                                               \
	{                                                                             \
		struct scenario scenarios[] = { __VA_ARGS__ };                        \
		unsigned int i;                                                       \
                                                                                      \
		alarm(60);                                                            \
		for (i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {      \
			if (argc == 2 && !strcmp(argv[1], scenarios[i].name)) {       \
				scenarios[i].run();                                   \
				return 0;                                             \
			}                                                             \
		}                                                                     \
		fprintf(stderr, "no such scenario\n");                                \
		return 2;                                                             \
	}

#endif
