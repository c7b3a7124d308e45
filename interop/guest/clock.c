/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * gettimeofday() by the processor's time stamp counter, preloaded into perftest. perftest compares
 * that counter with gettimeofday() to find its rate, and reports nothing where the samples scatter,
 * as they do where the call is emulated. /proc/cpuinfo has the rate.
 */
#include <stdio.h>
#include <sys/time.h>
#include <x86intrin.h>

static double mhz;

__attribute__((constructor)) static void find_rate(void)
{
	FILE *file = fopen("/proc/cpuinfo", "r");
	char line[256];

	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "cpu MHz : %lf", &mhz) == 1)
			break;
	if (file)
		fclose(file);
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	unsigned long long us = mhz > 0 ? (unsigned long long)((double)__rdtsc() / mhz) : 0;

	(void)zone;
	tv->tv_sec = (time_t)(us / 1000000);
	tv->tv_usec = (suseconds_t)(us % 1000000);
	return 0;
}
