/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Asynchronous events, acknowledged or not. */
#include "misuse.h"

static struct ibv_async_event event;
static struct ibv_srq *srq;

static void acknowledge(void)
{
	ibv_ack_async_event(&event);
}

/* Takes an event of the second queue pair. */
static void take_event(void)
{
	struct pollfd ready = { context->async_fd, POLLIN };

	for (;;) {
		CHECK(poll(&ready, 1, 20000) == 1);
		CHECK(ibv_get_async_event(context, &event) == 0);
		if (event.element.qp == b.qp)
			return;
		acknowledge();
	}
}

/* The last receive of a shared queue: an event of a queue pair that is right. */
static void begin(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	open_context();
	make(&a, NULL);
	srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	make(&b, srq);
	join();
	CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
	take_event();
	CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
}

static void finish(void)
{
	unmake(&b);
	CHECK(ibv_destroy_srq(srq) == 0);
	unmake(&a);
	close_context();
}

static void pair_wrong(void)
{
	pthread_t thread;

	begin(); /* pair_wrong: there */
	thread = once_told("event-not-acknowledged", acknowledge);
	finish(); /* pair_wrong: here */
	CHECK(pthread_join(thread, NULL) == 0);
}

static void pair_right(void)
{
	begin();
	acknowledge();
	finish();
}

static void *takes(void *unused)
{
	begin();
	return unused;
}

/* The thread that took it acknowledges it when it likes. */
static void other_right(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, takes, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	acknowledge();
	finish();
}

MAIN({ "pair_wrong", pair_wrong }, { "pair_right", pair_right }, { "other_right", other_right })
