/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Events that are waited for though they do not come, and others. */
#include "misuse.h"

static pthread_t thread;

static void arm(void)
{
	CHECK(ibv_req_notify_cq(a.cq, 0) == 0);
}

static void wake(void)
{
	write_four(IBV_SEND_SIGNALED);
}

static void take_event(void)
{
	struct ibv_cq *cq;
	void *side;

	CHECK(ibv_get_cq_event(channel, &cq, &side) == 0 && cq == a.cq);
	ibv_ack_cq_events(cq, 1);
}

/* A completion lies in the queue. */
static void begin(void)
{
	start();
	arm();
	wake();
	take_event();
}

static void finish(void)
{
	CHECK(pthread_join(thread, NULL) == 0);
	end();
}

static void blocked_wrong(void)
{
	begin();
	thread = once_told("lost-wake-up", wake);
	arm(); /* blocked_wrong: here */
	take_event(); /* blocked_wrong: there */
	finish();
}

static void poll_wrong(void)
{
	struct pollfd ready;

	begin();
	ready = (struct pollfd){ channel->fd, POLLIN };
	thread = once_told("lost-wake-up", wake);
	arm(); /* poll_wrong: here */
	CHECK(poll(&ready, 1, -1) == 1);
	take_event();
	finish();
}

static void epoll_wrong(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	int set = epoll_create1(0);

	begin();
	CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, channel->fd, &event) == 0);
	thread = once_told("lost-wake-up", wake);
	arm(); /* epoll_wrong: here */
	CHECK(epoll_wait(set, &event, 1, -1) == 1);
	take_event();
	finish();
}

/* The order of the manual: the event is for what comes after the poll. */
static void polled_right(void)
{
	begin();
	arm();
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	wake();
	take_event();
	end();
}

/* The first poll comes before, when nothing is there. */
static void empty_right(void)
{
	begin();
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	arm();
	wake();
	take_event();
	end();
}

/* It does not rely on the event alone. */
static void limited_right(void)
{
	struct pollfd ready;

	begin();
	ready = (struct pollfd){ channel->fd, POLLIN };
	arm();
	CHECK(poll(&ready, 1, 1500) == 0);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	end();
}

static void *polls(void *unused)
{
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	wake();
	return unused;
}

/* One thread waits for events, and another polls. */
static void divided_right(void)
{
	begin();
	arm();
	CHECK(pthread_create(&thread, NULL, polls, NULL) == 0);
	take_event();
	finish();
}

MAIN({ "blocked_wrong", blocked_wrong }, { "poll_wrong", poll_wrong },
     { "epoll_wrong", epoll_wrong }, { "polled_right", polled_right },
     { "empty_right", empty_right }, { "limited_right", limited_right },
     { "divided_right", divided_right })
