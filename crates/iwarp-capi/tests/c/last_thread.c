/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* main ends by pthread_exit. The process ends with the last thread of the program. */
#include <pthread.h>
#include <signal.h>
#include "pair.h"

static int closes_at_exit, was_told;

static void told(int signal)
{
	was_told = signal;
}

static void close_all(void)
{
	CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_qp(b.qp) == 0);
	CHECK(ibv_destroy_cq(a.cq) == 0 && ibv_destroy_cq(b.cq) == 0);
	CHECK(ibv_dereg_mr(a.mr) == 0 && ibv_dereg_mr(b.mr) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static void at_exit(void)
{
	/* Whoever exits takes the signals that the program takes. */
	CHECK(kill(getpid(), SIGTERM) == 0);
	CHECK(was_told == SIGTERM);
	if (closes_at_exit)
		close_all();
	fprintf(stderr, "exits\n");
}

static void *use(void *unused)
{
	open_context();
	meet();
	return unused;
}

static void *last(void *first)
{
	CHECK(pthread_join(*(pthread_t *)first, NULL) == 0);
	return NULL;
}

static pthread_t first;

int main(void)
{
	const char *mode = getenv("MODE");
	struct sigaction action = { .sa_handler = told };
	pthread_t other;

	CHECK(sigaction(SIGTERM, &action, NULL) == 0);
	atexit(at_exit);
	first = pthread_self();
	if (!strcmp(mode, "other")) {
		CHECK(pthread_create(&other, NULL, use, NULL) == 0);
		CHECK(pthread_join(other, NULL) == 0);
		pthread_exit(NULL);
	}
	use(NULL);
	if (!strcmp(mode, "closed"))
		close_all();
	closes_at_exit = !strcmp(mode, "closes");
	/* It ends behind main. */
	CHECK(pthread_create(&other, NULL, last, &first) == 0);
	pthread_exit(NULL);
}
