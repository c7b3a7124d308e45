/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the yardsticks share. */
#ifndef YARDSTICK_H
#define YARDSTICK_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void check(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

/* In microseconds. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void stay_on(int cpu)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    check(!sched_setaffinity(0, sizeof cpus, &cpus), "sched_setaffinity");
}

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Prints the median. */
static void print_median(double *times, int count)
{
    qsort(times, count, sizeof *times, ascending);
    printf("%.2f\n", times[count / 2]);
}

#endif
